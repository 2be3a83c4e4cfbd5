//! Zones made by chance, in which names overlap as much as possible, and questions that hurt.

use std::collections::BTreeSet;

use dns_wire::{NameBuf, Rtype};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};

use super::{ZoneList, ZoneRecord};

/// Types that are asked for, the last one of no meaning.
pub const QTYPES: [Rtype; 16] = [
    Rtype::A,
    Rtype::AAAA,
    Rtype::NS,
    Rtype::SOA,
    Rtype::CNAME,
    Rtype::DNAME,
    Rtype::MX,
    Rtype::TXT,
    Rtype::DS,
    Rtype::PTR,
    Rtype::SRV,
    Rtype::RRSIG,
    Rtype::SVCB,
    Rtype::HTTPS,
    Rtype::ANY,
    Rtype(65280),
];

/// `cases` cases from a fixed seed; PROPTEST_RNG_SEED and PROPTEST_CASES replace them.
pub fn config(cases: u32, seed: u64) -> Config {
    let mut config = Config { failure_persistence: None, ..Config::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = cases;
    }
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(seed);
    }
    config
}

const ORIGINS: [&[u8]; 6] =
    [b"\0", b"\x01t\0", b"\x01a\x01t\0", b"\x01b\x01a\x01t\0", b"\x01B\x01T\0", b"\x01u\0"];
const LABELS: [&[u8]; 9] = [b"a", b"b", b"c", b"A", b"*", b"ns", b"NS", b"x", b"\0."];

/// Up to four zones, some above others.
pub fn zones() -> impl Strategy<Value = Vec<ZoneList>> {
    let origins = proptest::sample::subsequence(ORIGINS.to_vec(), 1..=4);
    origins.prop_flat_map(|origins| origins.into_iter().map(zone).collect::<Vec<_>>())
}

/// One zone.
pub fn zone(origin: &'static [u8]) -> impl Strategy<Value = ZoneList> {
    let minimum = prop::sample::select(vec![0u8, 60, 200]);
    (proptest::collection::vec(record(origin), 0..30), minimum).prop_map(move |(records, minimum)| {
        let mut rdata = [&b"\x02ns"[..], origin, b"\0"].concat();
        rdata.extend_from_slice(&[0; 19]);
        rdata.push(minimum);
        let soa = ZoneRecord { owner: buf(origin), ttl: 100, rtype: Rtype::SOA, rdata };
        let records = std::iter::once(soa).chain(records).collect();
        ZoneList { origin: buf(origin), records }.accepted()
    })
}

fn record(origin: &'static [u8]) -> impl Strategy<Value = ZoneRecord> {
    let ttl = prop::sample::select(vec![0, 60, 300, i32::MAX as u32]);
    (relative(), ttl, data()).prop_map(move |(owner, ttl, (rtype, rdata))| ZoneRecord {
        owner: buf(&[&owner[..], origin].concat()),
        ttl,
        rtype,
        rdata,
    })
}

fn relative() -> impl Strategy<Value = Vec<u8>> {
    let label = prop::sample::select(LABELS.to_vec());
    proptest::collection::vec(label, 0..4)
        .prop_map(|labels| labels.iter().flat_map(|label| [&[label.len() as u8], *label].concat()).collect())
}

/// A name in or near the zones.
pub fn absolute() -> impl Strategy<Value = Vec<u8>> {
    (relative(), prop::sample::select(ORIGINS.to_vec()))
        .prop_map(|(labels, origin)| [&labels[..], origin].concat())
}

fn data() -> impl Strategy<Value = (Rtype, Vec<u8>)> {
    let named = |rtype, head: &'static [u8]| {
        absolute().prop_map(move |target| (rtype, [head, &target[..]].concat())).boxed()
    };
    let address = (0..9u8).prop_map(|last| (Rtype::A, vec![192, 0, 2, last]));
    let address6 = (0..5u8).prop_map(|last| (Rtype::AAAA, [[0x20; 15].to_vec(), vec![last]].concat()));
    let text = (0..=255u8).prop_map(|len| (Rtype::TXT, [vec![len], vec![b't'; usize::from(len)]].concat()));
    prop_oneof![
        6 => address,
        3 => address6,
        2 => text,
        3 => named(Rtype::NS, b""),
        3 => named(Rtype::CNAME, b""),
        2 => named(Rtype::DNAME, b""),
        2 => named(Rtype::MX, b"\0\x05"),
        1 => named(Rtype::SRV, b"\0\0\0\0\0\x50"),
        1 => named(Rtype::PTR, b""),
        1 => Just((Rtype::DS, vec![0, 1, 8, 2, 0])),
        3 => signature(),
        1 => named(Rtype::SVCB, b"\0\x01"),
        2 => named(Rtype::HTTPS, b"\0\x01"),
        1 => named(Rtype::HTTPS, b"\0\0"),
        1 => Just((Rtype::HTTPS, vec![0, 2, 0, 0, 3, 0, 2, 1, 187])),
    ]
}

/// A signature over a set that may be there: not a right one.
fn signature() -> impl Strategy<Value = (Rtype, Vec<u8>)> {
    let covered = prop::sample::select(vec![Rtype::A, Rtype::NS, Rtype::CNAME, Rtype::TXT]);
    (covered, 0..3u8).prop_map(|(covered, last)| {
        let fixed = [8, 2, 0, 0, 0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, last];
        (Rtype::RRSIG, [&covered.0.to_be_bytes()[..], &fixed].concat())
    })
}

fn buf(octets: &[u8]) -> NameBuf {
    let name = dns_wire::Name::from_wire(octets).expect("short labels, few of them");
    NameBuf::from(name)
}

/// All names of the zones and those that they lead to, with their ancestors, and children and siblings of each, spelled as
/// written, in upper and in mixed case.
pub fn names(zones: &[ZoneList]) -> BTreeSet<Vec<u8>> {
    let mut names = BTreeSet::from([vec![0], b"\x07outside\0".to_vec()]);
    for record in zones.iter().flat_map(|zone| &zone.records) {
        let mut name = record.owner.as_name();
        loop {
            names.insert(name.as_bytes().to_vec());
            match name.parent() {
                Some(parent) => name = parent,
                None => break,
            }
        }
        if matches!(record.rtype, Rtype::CNAME | Rtype::DNAME | Rtype::NS) {
            names.insert(record.rdata.clone());
        }
    }
    for name in names.clone() {
        let parent = dns_wire::Name::from_wire(&name).expect("a name").parent();
        for label in [&b"\x01*"[..], b"\x01a", b"\x05fresh"] {
            names.insert([label, &name].concat());
            names.extend(parent.map(|parent| [label, parent.as_bytes()].concat()));
        }
    }
    names.retain(|name| name.len() <= 255);
    for name in names.clone() {
        names.insert(name.to_ascii_lowercase());
        names.insert(name.to_ascii_uppercase());
        let mixed = name.iter().enumerate().map(|(at, octet)| match at % 3 {
            0 => octet.to_ascii_uppercase(),
            _ => octet.to_ascii_lowercase(),
        });
        names.insert(mixed.collect());
    }
    names
}
