//! Names that no server outside can answer for: answered here, so that the questions do not leak (RFC 6303, RFC 6761).

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use dns_wire::{Name, NameBuf, Rtype};

use crate::iterator::last_labels;
use crate::message::{Rdatas, Rrset};

/// Zones that are empty: RFC 6303, 4; RFC 7793 (shared addresses); RFC 8375 (home.arpa); RFC 6761 (invalid, test); RFC 7686 (onion).
const EMPTY: [&str; 31] = [
    "10.in-addr.arpa.",
    "168.192.in-addr.arpa.",
    "0.in-addr.arpa.",
    "127.in-addr.arpa.",
    "254.169.in-addr.arpa.",
    "2.0.192.in-addr.arpa.",
    "100.51.198.in-addr.arpa.",
    "113.0.203.in-addr.arpa.",
    "255.255.255.255.in-addr.arpa.",
    "0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.ip6.arpa.",
    "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.ip6.arpa.",
    "d.f.ip6.arpa.",
    "8.e.f.ip6.arpa.",
    "9.e.f.ip6.arpa.",
    "a.e.f.ip6.arpa.",
    "b.e.f.ip6.arpa.",
    "8.b.d.0.1.0.0.2.ip6.arpa.",
    "home.arpa.",
    "invalid.",
    "test.",
    "onion.",
    "16.172.in-addr.arpa.",
    "17.172.in-addr.arpa.",
    "18.172.in-addr.arpa.",
    "19.172.in-addr.arpa.",
    "20.172.in-addr.arpa.",
    "21.172.in-addr.arpa.",
    "22.172.in-addr.arpa.",
    "23.172.in-addr.arpa.",
    "24.172.in-addr.arpa.",
    "25.172.in-addr.arpa.",
];

/// First and last of further empty zones `N.172.in-addr.arpa.` and `N.100.in-addr.arpa.`
const RANGES: [(u8, u8, &str); 2] = [(26, 31, "172"), (64, 127, "100")];

/// TTL of what is made up here, in seconds (RFC 6303, 3).
const TTL: u32 = 10_800;

/// An answer from here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LocalAnswer {
    Records(Box<Rrset>),
    /// The name exists, or not, without records of the type: the SOA says for how long.
    NoData(Arc<Rrset>),
    NoName(Arc<Rrset>),
}

/// The zones that are answered here.
#[derive(Clone, Debug, Default)]
pub(crate) struct LocalZones {
    empty: Vec<NameBuf>,
    /// The last labels of these, each once: nearly every question is for a name under another.
    tops: Vec<NameBuf>,
}

impl LocalZones {
    /// All of them, without those at, above or below the zones of `except`, which the user sends elsewhere.
    pub(crate) fn new<'a>(except: impl Iterator<Item = Name<'a>> + Clone) -> LocalZones {
        let ranges =
            RANGES.iter().flat_map(|&(first, last, net)| (first..=last).map(move |number| (number, net)));
        let ranges = ranges.map(|(number, net)| format!("{number}.{net}.in-addr.arpa."));
        let names = EMPTY.into_iter().map(str::to_owned).chain(ranges);
        let zones = names.map(|text| NameBuf::from_text(text.as_bytes(), None).expect("the table has names"));
        let is_elsewhere = |zone: &NameBuf| {
            let zone = zone.as_name();
            except.clone().any(|other| zone.ends_with(other) && !other.is_root() || other.ends_with(zone))
        };
        let empty: Vec<NameBuf> = zones.filter(|zone| !is_elsewhere(zone)).collect();
        let mut tops: Vec<NameBuf> = empty.iter().map(|zone| last_labels(zone.as_name(), 1).into()).collect();
        tops.sort();
        tops.dedup();
        LocalZones { empty, tops }
    }

    /// The answer, if the name is one of these.
    pub(crate) fn answer(&self, name: Name<'_>, rtype: Rtype) -> Option<LocalAnswer> {
        if let Some(answer) = localhost(name, rtype) {
            return (!self.empty.is_empty()).then_some(answer);
        }
        if !self.tops.iter().any(|top| name.ends_with(top.as_name())) {
            return None;
        }
        let zone = self.empty.iter().find(|zone| name.ends_with(zone.as_name()))?;
        if zone.as_name() != name {
            return Some(LocalAnswer::NoName(soa(zone)));
        }
        Some(match rtype {
            Rtype::SOA => LocalAnswer::Records(Box::new((*soa(zone)).clone())),
            Rtype::NS => LocalAnswer::Records(set(zone, Rtype::NS, zone.as_name().as_bytes()).into()),
            _ => LocalAnswer::NoData(soa(zone)),
        })
    }
}

/// `localhost.` and what is below it are this host (RFC 6761, 6.3); the reverse of its addresses is `localhost.`
fn localhost(name: Name<'_>, rtype: Rtype) -> Option<LocalAnswer> {
    const LOCALHOST: &[u8] = b"\x09localhost\0";
    const REVERSE: &[u8] = b"\x011\x010\x010\x03127\x07in-addr\x04arpa\0";
    if name.ends_with(Name::from_wire(LOCALHOST).expect("it is a name")) {
        let owner = NameBuf::from(name);
        let records = |rdata: &[u8]| LocalAnswer::Records(set(&owner, rtype, rdata).into());
        return Some(match rtype {
            Rtype::A => records(&Ipv4Addr::LOCALHOST.octets()),
            Rtype::AAAA => records(&Ipv6Addr::LOCALHOST.octets()),
            _ => LocalAnswer::NoData(soa(&owner)),
        });
    }
    let is_reverse = name == Name::from_wire(REVERSE).expect("it is a name") && rtype == Rtype::PTR;
    is_reverse.then(|| LocalAnswer::Records(set(&name.into(), rtype, LOCALHOST).into()))
}

fn set(owner: &NameBuf, rtype: Rtype, rdata: &[u8]) -> Rrset {
    Rrset::unsigned(owner.clone(), rtype, TTL, Rdatas::pack([rdata]))
}

/// The SOA record of an empty zone (RFC 6303, 3).
fn soa(zone: &NameBuf) -> Arc<Rrset> {
    let numbers = [1u32, 3600, 1200, 604_800, TTL].map(u32::to_be_bytes).concat();
    let rdata = [zone.as_name().as_bytes(), b"\x06nobody\x07invalid\0", &numbers].concat();
    Arc::new(set(zone, Rtype::SOA, &rdata))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> NameBuf {
        NameBuf::from_text(text.as_bytes(), None).unwrap()
    }

    fn answer(zones: &LocalZones, text: &str, rtype: Rtype) -> Option<LocalAnswer> {
        zones.answer(name(text).as_name(), rtype)
    }

    #[test]
    fn private_reverse_zones_and_names_without_meaning_are_denied() {
        let zones = LocalZones::new(std::iter::empty());
        for text in ["1.0.0.10.in-addr.arpa.", "x.31.172.in-addr.arpa.", "x.100.100.in-addr.arpa.", "a.test."]
        {
            assert!(matches!(answer(&zones, text, Rtype::PTR), Some(LocalAnswer::NoName(_))), "{text}");
        }
        assert!(matches!(answer(&zones, "invalid.", Rtype::A), Some(LocalAnswer::NoData(_))));
        assert!(answer(&zones, "8.8.8.8.in-addr.arpa.", Rtype::PTR).is_none());
        assert!(answer(&zones, "32.172.in-addr.arpa.", Rtype::PTR).is_none());
    }

    #[test]
    fn localhost_is_this_host() {
        let zones = LocalZones::new(std::iter::empty());
        let Some(LocalAnswer::Records(set)) = answer(&zones, "a.localhost.", Rtype::A) else { panic!() };
        assert_eq!(set.rdatas.iter().next(), Some(&[127, 0, 0, 1][..]));
        assert!(matches!(answer(&zones, "localhost.", Rtype::MX), Some(LocalAnswer::NoData(_))));
        assert!(matches!(
            answer(&zones, "1.0.0.127.in-addr.arpa.", Rtype::PTR),
            Some(LocalAnswer::Records(_))
        ));
    }

    #[test]
    fn zones_that_the_user_sends_elsewhere_are_not_answered_here() {
        let other = name("1.10.in-addr.arpa.");
        let zones = LocalZones::new(std::iter::once(other.as_name()));
        assert!(answer(&zones, "1.0.0.10.in-addr.arpa.", Rtype::PTR).is_none());
        assert!(answer(&zones, "1.168.192.in-addr.arpa.", Rtype::PTR).is_some());
    }
}
