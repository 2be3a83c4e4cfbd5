//! Catalog zones (RFC 9432): a zone whose records name the zones that secondaries are to have.

use std::collections::BTreeMap;

use dns_wire::name::NAME_LEN_MAX;
use dns_wire::{Name, NameBuf, Rtype};
use dns_zone::{Zone, ZoneBuilder};
use thiserror::Error;

/// The rdata of the TXT record that says which version of the format a catalog has (4.2.1).
const VERSION_2: &[u8] = b"\x012";
/// A name server that nobody has (4.1), as nobody asks a catalog by delegation.
const NOBODY: &[u8] = b"\x07invalid\0";
/// Seconds: the TTL of all records, and how often a secondary looks, looks again, and gives up.
const TTL: u32 = 0;
const TIMERS: [u32; 3] = [3600, 600, 2_147_483_646];

/// The zones of a catalog, each with the label that it has there. A zone whose label changes is another one: what was known of it is to be
/// forgotten (5.4).
pub type Members = BTreeMap<NameBuf, Box<[u8]>>;

/// Why a catalog cannot be followed. What it said before stays in force (5.1).
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CatalogError {
    /// There is no TXT record `version` with the value 2.
    #[error("not a catalog of version 2: expected one TXT record \"2\" at version.{0}")]
    Version(Box<NameBuf>),
    /// A label stands for several zones.
    #[error("{0} has more than one PTR record")]
    SeveralZones(Box<NameBuf>),
    /// A zone has two labels.
    #[error("zone {0} is there twice")]
    Twice(Box<NameBuf>),
    /// A PTR record has something other than a name.
    #[error("the PTR record of {0} is malformed")]
    Malformed(Box<NameBuf>),
}

/// The members of a catalog. Properties of members other than their names are passed over (4.3).
pub fn members(catalog: &Zone) -> Result<Members, CatalogError> {
    let origin = NameBuf::from(catalog.origin());
    let below = |label: &[u8]| {
        let mut name = origin.clone();
        name.prepend(label).map(|()| name)
    };
    let has_version = below(b"version").is_ok_and(|owner| {
        let set = catalog.find(owner.as_name().as_bytes()).and_then(|node| node.rrset(Rtype::TXT));
        set.is_some_and(|set| set.count() == 1 && set.records().next() == Some(VERSION_2))
    });
    if !has_version {
        return Err(CatalogError::Version(Box::new(origin)));
    }
    let mut members = Members::new();
    // A catalog whose name is too long for that has no members.
    let Ok(zones) = below(b"zones") else { return Ok(members) };
    for node in catalog.nodes() {
        let Ok(owner) = Name::from_wire(node.name()) else { continue };
        let is_member = owner.parent().is_some_and(|parent| NameBuf::from(parent) == zones);
        let (true, Some(set)) = (is_member, node.rrset(Rtype::PTR)) else { continue };
        if set.count() > 1 {
            return Err(CatalogError::SeveralZones(Box::new(NameBuf::from(owner))));
        }
        let target = set.records().next().and_then(|rdata| Name::from_wire(rdata).ok());
        let target = target.ok_or_else(|| CatalogError::Malformed(Box::new(NameBuf::from(owner))))?;
        let mut lower = [0; NAME_LEN_MAX];
        let member = NameBuf::from(target.lowercase(&mut lower));
        let label = owner.labels().next().unwrap_or_default().to_ascii_lowercase();
        if members.insert(member.clone(), label.into()).is_some() {
            return Err(CatalogError::Twice(Box::new(member)));
        }
    }
    Ok(members)
}

/// A catalog named `origin` of these zones. The label of a zone is made from its name, so it stays the same as long as the zone is there.
///
/// `None` if a name is too long to stand in it.
pub fn build(origin: Name<'_>, zones: &[NameBuf], serial: u32, seed: u64) -> Option<Zone> {
    let mut builder = ZoneBuilder::new(origin, seed);
    let numbers = [serial, TIMERS[0], TIMERS[1], TIMERS[2], TTL].map(u32::to_be_bytes).concat();
    builder.add(origin, TTL, Rtype::SOA, &[NOBODY, NOBODY, &numbers].concat()).ok()?;
    builder.add(origin, TTL, Rtype::NS, NOBODY).ok()?;
    let below = |label: &[u8], parent: Name<'_>| {
        let mut name = NameBuf::from(parent);
        name.prepend(label).ok().map(|()| name)
    };
    builder.add(below(b"version", origin)?.as_name(), TTL, Rtype::TXT, VERSION_2).ok()?;
    let parent = below(b"zones", origin)?;
    for zone in zones {
        let owner = below(&label_of(zone.as_name()), parent.as_name())?;
        builder.add(owner.as_name(), TTL, Rtype::PTR, zone.as_name().as_bytes()).ok()?;
    }
    builder.finish().ok()
}

/// A label that no other zone has: the hash of the name in hexadecimal.
fn label_of(zone: Name<'_>) -> Vec<u8> {
    let hash = nsec3::Parameters { iterations: 0, salt: b"catalog" }.hash(zone);
    hash.iter().flat_map(|octet| format!("{octet:02x}").into_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> NameBuf {
        NameBuf::from_text(text.as_bytes(), None).unwrap()
    }

    /// A catalog with these records besides SOA and NS.
    fn catalog(records: &[(&str, Rtype, &[u8])]) -> Zone {
        let origin = name("catalog.");
        let mut builder = ZoneBuilder::new(origin.as_name(), 1);
        let soa = [NOBODY, NOBODY, &[1u32, 2, 3, 4, 5].map(u32::to_be_bytes).concat()].concat();
        builder.add(origin.as_name(), 0, Rtype::SOA, &soa).unwrap();
        builder.add(origin.as_name(), 0, Rtype::NS, NOBODY).unwrap();
        for (owner, rtype, rdata) in records {
            builder.add(name(owner).as_name(), 0, *rtype, rdata).unwrap();
        }
        builder.finish().unwrap()
    }

    const VERSION: (&str, Rtype, &[u8]) = ("version.catalog.", Rtype::TXT, VERSION_2);
    const EXAMPLE: &[u8] = b"\x07Example\0";
    const OTHER: &[u8] = b"\x05other\0";

    #[test]
    fn the_members_are_the_targets_right_below_zones() {
        let group: &[u8] = b"\x05group";
        let zone = catalog(&[
            VERSION,
            ("A1.zones.catalog.", Rtype::PTR, EXAMPLE),
            ("b2.zones.catalog.", Rtype::PTR, OTHER),
            ("group.b2.zones.catalog.", Rtype::TXT, group),
            ("coo.b2.zones.catalog.", Rtype::PTR, EXAMPLE),
            ("elsewhere.catalog.", Rtype::PTR, b"\x04else\0"),
        ]);
        let expected = [(name("example."), b"a1"[..].into()), (name("other."), b"b2"[..].into())];
        assert_eq!(members(&zone), Ok(Members::from(expected)));
    }

    #[test]
    fn a_catalog_that_is_broken_says_how() {
        let member = ("a.zones.catalog.", Rtype::PTR, EXAMPLE);
        assert_eq!(members(&catalog(&[member])), Err(CatalogError::Version(Box::new(name("catalog.")))));
        let version_1 = ("version.catalog.", Rtype::TXT, &b"\x011"[..]);
        assert_eq!(
            members(&catalog(&[version_1, member])),
            Err(CatalogError::Version(Box::new(name("catalog."))))
        );
        assert!(members(&catalog(&[VERSION, version_1, member])).is_err(), "two versions");
        let again = ("b.zones.catalog.", Rtype::PTR, EXAMPLE);
        let twice = members(&catalog(&[VERSION, member, again]));
        assert_eq!(twice, Err(CatalogError::Twice(Box::new(name("example.")))));
        let second = ("a.zones.catalog.", Rtype::PTR, OTHER);
        let several = members(&catalog(&[VERSION, member, second]));
        assert_eq!(several, Err(CatalogError::SeveralZones(Box::new(name("a.zones.catalog.")))));
    }

    #[test]
    fn a_catalog_that_is_built_has_the_zones_that_it_was_built_of() {
        let zones: Vec<NameBuf> = (0..1000).map(|number| name(&format!("zone-{number}.example."))).collect();
        let origin = name("catalog.");
        let built = build(origin.as_name(), &zones, 7, 1).unwrap();
        assert_eq!(built.serial(), 7);
        let found = members(&built).unwrap();
        assert!(found.keys().eq(zones.iter().collect::<std::collections::BTreeSet<_>>()));
        // A zone keeps its label whatever zones there are beside it.
        let fewer = members(&build(origin.as_name(), &zones[..10], 8, 1).unwrap()).unwrap();
        assert!(fewer.iter().all(|(zone, label)| found[zone] == *label));
    }
}
