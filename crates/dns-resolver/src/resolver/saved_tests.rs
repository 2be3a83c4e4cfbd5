//! What a resolver that starts again believes of what an earlier one has left.

use super::*;
use crate::dnssec::anchors::{NegativeAnchor, TrustAnchor};
use crate::options::Dnssec;

const NOW: Instant = Instant::from_nanos(10_000_000_000_000);

fn started(options: Options, zones: Zones, unix_secs: u64) -> Resolver {
    let mut resolver = Resolver::new(options, zones, [1; 16], NOW);
    resolver.on_wall_clock(unix_secs, NOW);
    resolver
}

fn validating() -> Zones {
    Zones { trust: Trust { anchors: vec![TrustAnchor::root()], negative: Vec::new() }, ..Zones::default() }
}

fn saved(zones: Zones) -> Vec<u8> {
    let mut octets = Vec::new();
    started(Options::default(), zones, 1_000).save(NOW, &mut octets).unwrap();
    octets
}

#[test]
fn what_counts_as_true_has_to_be_the_same() {
    let octets = saved(validating());
    let restore = |options, zones| started(options, zones, 1_000).restore(&octets, NOW);
    assert_eq!(restore(Options::default(), validating()), Ok(0));
    assert_eq!(restore(Options::default(), Zones::default()), Err(NotRestored::OtherTerms));
    let suspended = NegativeAnchor { zone: NameBuf::root(), until: None };
    let mut other = validating();
    other.trust.negative.push(suspended);
    assert_eq!(restore(Options::default(), other), Err(NotRestored::OtherTerms));
    let sha1 = Options { dnssec: Dnssec { sha1: true, ..Dnssec::default() }, ..Options::default() };
    assert_eq!(restore(sha1, validating()), Err(NotRestored::OtherTerms));
    let mut elsewhere = validating();
    let kind = DirectedKind::Forward;
    elsewhere.directed.push(Directed { zone: NameBuf::root(), kind, servers: Vec::new() });
    assert_eq!(restore(Options::default(), elsewhere), Err(NotRestored::OtherTerms));
}

#[test]
fn what_was_saved_later_than_now_is_of_unknown_age() {
    let octets = saved(validating());
    let restore = |unix_secs| started(Options::default(), validating(), unix_secs).restore(&octets, NOW);
    assert_eq!(restore(1_000 - 60), Ok(0), "clocks are set by some seconds");
    assert_eq!(restore(1_000 - 61), Err(NotRestored::OfTheFuture));
}
