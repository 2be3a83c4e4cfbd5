//! Traits of a resolver's queries, and a table of the traits that servers have. The table is made in the laboratory from servers as Debian
//! packages them: `tests/tests/audit/packaged.rs` holds it to them.

use std::collections::BTreeSet;
use std::fmt;

use super::front::{Reaction, Reactions};
use crate::authority::Entry;

/// What queries and failures look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint {
    /// Names are asked for label by label (RFC 9156).
    pub(super) is_minimised: bool,
    /// Letters of names are in both cases (0x20).
    pub(super) is_mixed: bool,
    /// The answer that EDNS announces; 0 without EDNS.
    pub(super) edns_size: u16,
    /// DO is set.
    pub(super) dnssec_ok: bool,
    /// CD is set.
    pub(super) cd: bool,
    /// There are cookies.
    pub(super) has_cookie: bool,
    /// How long after the first query to a silent server the next one leaves, roughly: see [`Fingerprint::retry`].
    pub(super) retry: Retry,
}

/// The time to the second query, in steps that a loaded machine does not blur.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retry {
    /// There is none.
    Never,
    /// Less than 0.6 s.
    Short,
    /// Up to 1.2 s.
    Second,
    /// Longer.
    Long,
}

impl Fingerprint {
    /// Of all queries, those for a deep name, and those to a silent authority.
    pub(super) fn of(all: &[&Entry], deep: &[&Entry], silent: &[&Entry]) -> Fingerprint {
        let most =
            |trait_of: fn(&Entry) -> bool| all.iter().filter(|entry| trait_of(entry)).count() * 2 > all.len();
        let sizes: BTreeSet<u16> = all.iter().filter_map(|entry| entry.edns_size).collect();
        let is_mixed = |entry: &Entry| {
            entry.qname.bytes().any(|octet| octet.is_ascii_uppercase())
                && entry.qname.bytes().any(|octet| octet.is_ascii_lowercase())
        };
        Fingerprint {
            is_minimised: is_minimised(deep),
            is_mixed: all.iter().filter(|entry| is_mixed(entry)).count() * 2 > all.len(),
            edns_size: sizes.last().copied().unwrap_or(0),
            dnssec_ok: most(|entry| entry.dnssec_ok),
            cd: most(|entry| entry.cd),
            has_cookie: most(|entry| entry.has_cookie),
            retry: Fingerprint::retry(silent),
        }
    }

    fn retry(silent: &[&Entry]) -> Retry {
        let mut times: Vec<u64> = silent.iter().map(|entry| entry.at_ms).collect();
        times.sort_unstable();
        match times[..] {
            [first, second, ..] => match second - first {
                0..600 => Retry::Short,
                600..1200 => Retry::Second,
                _ => Retry::Long,
            },
            _ => Retry::Never,
        }
    }

    /// How many traits differ, without the time to the second query: how busy a machine and its network are changes that.
    pub(super) fn distance(&self, other: &Fingerprint) -> usize {
        let same = [
            self.is_minimised == other.is_minimised,
            self.is_mixed == other.is_mixed,
            self.edns_size == other.edns_size,
            self.dnssec_ok == other.dnssec_ok,
            self.cd == other.cd,
            self.has_cookie == other.has_cookie,
        ];
        same.iter().filter(|is_same| !**is_same).count()
    }
}

/// Whether the queries for a deep name left labels out at first.
pub(super) fn is_minimised(deep: &[&Entry]) -> bool {
    let labels: BTreeSet<usize> = deep.iter().map(|entry| entry.qname.matches('.').count()).collect();
    labels.len() > 1
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |is: bool, yes: &'static str, no: &'static str| if is { yes } else { no };
        let words = [
            word(self.is_minimised, "minimised names", "whole names"),
            word(self.is_mixed, "mixed case", "case as asked"),
            word(self.dnssec_ok, "DO", "no DO"),
            word(self.cd, "CD", "no CD"),
            word(self.has_cookie, "cookies", "no cookies"),
        ];
        let retry = match self.retry {
            Retry::Never => "no second query to a silent server",
            Retry::Short => "second query within 0.6 s",
            Retry::Second => "second query after about a second",
            Retry::Long => "second query after more than 1.2 s",
        };
        write!(f, "{}, EDNS {}, {retry}", words.join(", "), self.edns_size)
    }
}

/// The servers whose traits are nearest, and how many differ. Those that also ask again after the same time come first.
pub(super) fn nearest(seen: &Fingerprint) -> (Vec<&'static Known>, usize) {
    let asking = || KNOWN.iter().filter_map(|known| Some((known, known.asks.as_ref()?)));
    let distance = asking().map(|(_, asks)| asks.distance(seen)).min().unwrap_or(usize::MAX);
    let mut found: Vec<_> = asking().filter(|(_, asks)| asks.distance(seen) == distance).collect();
    found.sort_by_key(|(_, asks)| asks.retry != seen.retry);
    (found.into_iter().map(|(known, _)| known).collect(), distance)
}

/// The known server whose name is in `text`, which a server says of itself.
pub(super) fn named_in(text: &str) -> Option<&'static str> {
    let text = text.to_ascii_lowercase();
    let is_named = |name: &str| {
        let first = name.split(' ').next().unwrap_or(name).to_ascii_lowercase();
        text.contains(&first)
    };
    KNOWN.iter().map(|known| known.name).find(|name| is_named(name))
}

const fn traits(flags: [bool; 5], edns_size: u16, retry: Retry) -> Fingerprint {
    let [is_minimised, is_mixed, dnssec_ok, cd, has_cookie] = flags;
    Fingerprint { is_minimised, is_mixed, edns_size, dnssec_ok, cd, has_cookie, retry }
}

const fn reply(rcode: u16, flags: [bool; 3]) -> Reaction {
    let [aa, ra, has_question] = flags;
    Reaction::Answer(rcode, aa, ra, has_question)
}

/// A server of the table.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) name: &'static str,
    /// `None` for one that asks no authorities.
    pub(super) asks: Option<Fingerprint>,
    /// What it makes of odd questions.
    pub(super) answers: Reactions,
    /// It keeps answers of type TXT, too.
    pub(super) keeps_texts: bool,
    /// What becomes of a TTL of two weeks, in seconds.
    pub(super) cap_s: u32,
}

/// Traits: minimised, mixed case, DO, CD, cookies; EDNS size; second query. Reactions to an unknown name of class CH,
/// STATUS, NOTIFY, class 9, AXFR and MAILA: RCODE; AA, RA, question.
pub(super) static KNOWN: [Known; 6] = [
    Known {
        name: "Sidestep",
        asks: Some(traits([true, false, true, false, true], 1232, Retry::Short)),
        answers: Reactions([
            reply(5, [false, true, true]),
            reply(4, [false, true, true]),
            reply(4, [false, true, true]),
            reply(5, [false, true, true]),
            reply(5, [false, true, true]),
            reply(5, [false, true, true]),
        ]),
        keeps_texts: true,
        cap_s: 604_800,
    },
    Known {
        name: "Unbound 1.17",
        asks: Some(traits([true, false, true, true, false], 1232, Retry::Short)),
        answers: Reactions([
            reply(5, [false, true, true]),
            reply(4, [false, false, true]),
            reply(5, [false, true, true]),
            reply(5, [false, true, true]),
            reply(5, [false, false, true]),
            reply(1, [false, false, true]),
        ]),
        keeps_texts: true,
        cap_s: 86_400,
    },
    Known {
        name: "BIND 9.18",
        asks: Some(traits([true, false, true, false, true], 1232, Retry::Second)),
        answers: Reactions([
            reply(5, [false, false, true]),
            reply(4, [false, false, false]),
            reply(9, [false, false, true]),
            reply(4, [false, false, true]),
            reply(9, [false, true, true]),
            reply(4, [false, true, true]),
        ]),
        keeps_texts: true,
        cap_s: 604_800,
    },
    Known {
        name: "PowerDNS Recursor 4.8",
        asks: Some(traits([true, false, true, false, false], 1232, Retry::Long)),
        answers: Reactions([
            reply(2, [false, true, true]),
            Reaction::Silence,
            Reaction::Silence,
            reply(2, [false, true, true]),
            reply(2, [false, true, true]),
            reply(2, [false, true, true]),
        ]),
        keeps_texts: true,
        cap_s: 86_400,
    },
    Known {
        name: "Knot Resolver 5.6",
        asks: Some(traits([true, true, true, true, false], 1232, Retry::Short)),
        answers: Reactions([
            reply(2, [false, true, true]),
            reply(0, [false, true, true]),
            reply(0, [false, true, true]),
            reply(2, [false, true, true]),
            reply(2, [false, true, true]),
            reply(0, [false, true, true]),
        ]),
        keeps_texts: true,
        cap_s: 518_400,
    },
    Known {
        name: "dnsmasq 2.90",
        asks: None,
        answers: Reactions([
            reply(4, [false, true, true]),
            Reaction::Silence,
            Reaction::Silence,
            Reaction::Silence,
            Reaction::Silence,
            Reaction::Silence,
        ]),
        keeps_texts: false,
        cap_s: u32::MAX,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_to_the_second_query_only_puts_equals_in_order() {
        let bind = traits([true, false, true, false, true], 1232, Retry::Second);
        let names = |seen: &Fingerprint| nearest(seen).0.iter().map(|known| known.name).collect::<Vec<_>>();
        assert_eq!(names(&bind), ["BIND 9.18", "Sidestep"]);
        assert_eq!(names(&Fingerprint { retry: Retry::Short, ..bind }), ["Sidestep", "BIND 9.18"]);
        assert_eq!(nearest(&Fingerprint { retry: Retry::Long, ..bind }).1, 0);
    }

    #[test]
    fn a_server_is_known_by_what_it_says() {
        assert_eq!(named_in("PowerDNS Recursor 4.8.8 (built Aug 1)"), Some("PowerDNS Recursor 4.8"));
        assert_eq!(named_in("unbound 1.17.1"), Some("Unbound 1.17"));
        assert_eq!(named_in("9.18.49-1~deb12u1-Debian"), None);
    }
}
