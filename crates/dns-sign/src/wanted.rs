//! What a signed zone has at a name.

use std::collections::BTreeSet;

use dns_wire::name::NAME_LEN_MAX;
use dns_wire::{Name, Rtype};
use dns_zone::{Node, Rrset, Zone};

use crate::hashed::PARAMETERS_DATA;
use crate::key::is_for_parent;
use crate::key_set::Active;

/// TTL of the sets that keys make, in seconds: a change of keys takes as long as this to be seen by all.
pub(crate) const KEY_TTL: u32 = 3600;

/// A record set that the signed zone is to have; never one of signatures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Set {
    pub(crate) rtype: Rtype,
    pub(crate) ttl: u32,
    pub(crate) records: Vec<Vec<u8>>,
    /// Whether it has signatures: glue and the NS records of a cut do not (RFC 4035, 2.2).
    pub(crate) is_signed: bool,
}

impl Set {
    fn of(set: Rrset<'_>, is_signed: bool) -> Set {
        let records = set.records().map(<[u8]>::to_vec).collect();
        Set { rtype: set.rtype(), ttl: set.ttl(), records, is_signed }
    }

    /// One that denies, for as long as negative answers (RFC 9077, 3).
    pub(crate) fn denial(rtype: Rtype, rdata: Vec<u8>, source: &Zone) -> Set {
        Set { rtype, ttl: source.negative_ttl(), records: vec![rdata], is_signed: true }
    }

    /// The NSEC3 record that a node of a signed zone has.
    pub(crate) fn held_nsec3(node: Node<'_>) -> Option<Set> {
        node.rrset(Rtype::NSEC3).map(|set| Set::of(set, true))
    }

    /// Whether `set` has the same records.
    pub(crate) fn is(&self, set: Rrset<'_>) -> bool {
        let is_alike =
            (set.rtype(), set.ttl(), usize::from(set.count())) == (self.rtype, self.ttl, self.records.len());
        is_alike && set.records().all(|rdata| self.records.iter().any(|record| record == rdata))
    }
}

/// Whether a name of a source has an NSEC record: it has records, and is not hidden by a cut or DNAME (RFC 4035, 2.3).
pub(crate) fn is_linked(node: Node<'_>) -> bool {
    node.rrsets().any(|set| !set.rtype().is_made_by_signing()) && !node.is_occluded()
}

/// Whether a set of a signed zone may have signatures: nothing that a cut or DNAME hides, and at a cut only what is said of it (RFC 4035, 2.2). NSEC3
/// records are no names of the zone, and stay where a DNAME is at its apex.
pub(crate) fn may_be_signed(node: Node<'_>, rtype: Rtype) -> bool {
    let is_of_parent = || !node.is_cut() || [Rtype::DS, Rtype::NSEC].contains(&rtype);
    rtype == Rtype::NSEC3 || (is_of_parent() && !node.is_occluded())
}

/// How a name that is not hidden by a cut or DNAME stands among those that are denied by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Linked<'n> {
    /// It has an NSEC record that leads to this name.
    Nsec(Name<'n>),
    /// It has an NSEC3 record, at the name of its hash.
    Nsec3,
}

/// What a name of a source has in the signed zone, apart from signatures and the NSEC3 records of hashes. `csync` is the serial of the apex's
/// CSYNC record, if it is to have one.
pub(crate) fn sets_at(
    node: Node<'_>,
    linked: Option<Linked<'_>>,
    source: &Zone,
    keys: &Active<'_>,
    csync: Option<u32>,
) -> Vec<Set> {
    let is_authoritative = |rtype| linked.is_some() && (!node.is_cut() || rtype == Rtype::DS);
    let own = node.rrsets().filter(|set| !set.rtype().is_made_by_signing());
    let mut sets: Vec<Set> = own.map(|set| Set::of(set, is_authoritative(set.rtype()))).collect();
    if node.parent().is_none() {
        add_keys(&mut sets, source.origin(), keys);
        // One alone may be there (RFC 7477, 2.1), and that of the zone's owner counts.
        if let Some(serial) = csync.filter(|_| sets.iter().all(|set| set.rtype != Rtype::CSYNC)) {
            let records = vec![csync_data(serial)];
            sets.push(Set { rtype: Rtype::CSYNC, ttl: KEY_TTL, records, is_signed: true });
        }
        if linked == Some(Linked::Nsec3) {
            let records = vec![PARAMETERS_DATA.to_vec()];
            sets.push(Set { rtype: Rtype::NSEC3PARAM, ttl: 0, records, is_signed: true });
        }
    }
    if let Some(Linked::Nsec(next)) = linked {
        let types = types_of(&sets).chain([Rtype::RRSIG, Rtype::NSEC]).collect();
        sets.push(Set::denial(Rtype::NSEC, nsec_data(next, types), source));
    }
    sets
}

/// The types that a denial at a name with these sets says are there: not those of glue.
fn types_of(sets: &[Set]) -> impl Iterator<Item = Rtype> {
    sets.iter().filter(|set| set.is_signed || set.rtype == Rtype::NS).map(|set| set.rtype)
}

/// The bit maps of the NSEC3 record for a name with these sets (RFC 5155, 3.2.1): empty for one that is there for those below it alone.
pub(crate) fn hashed_types(sets: &[Set]) -> Vec<u8> {
    let signatures = sets.iter().any(|set| set.is_signed).then_some(Rtype::RRSIG);
    let mut bit_maps = Vec::new();
    push_bit_maps(&mut bit_maps, types_of(sets).chain(signatures).collect());
    bit_maps
}

/// The data of the CDS record and of the CDNSKEY record by which the parent is to remove all DS records (RFC 8078, 4).
const DELETE: [(Rtype, &[u8]); 2] = [(Rtype::CDS, &[0, 0, 0, 0, 0]), (Rtype::CDNSKEY, &[0, 0, 3, 0, 0])];

fn is_delete(set: &Set) -> bool {
    DELETE
        .iter()
        .any(|(rtype, rdata)| set.rtype == *rtype && set.records.iter().any(|record| record == rdata))
}

/// DNSKEY records of a source that are none of ours: of others who sign the zone as well (RFC 8901).
fn keys_of_others(sets: &[Set], keys: &Active<'_>) -> Vec<Vec<u8>> {
    let is_ours = |record: &Vec<u8>| keys.published.iter().any(|key| key.dnskey() == record.as_slice());
    let records = sets.iter().filter(|set| set.rtype == Rtype::DNSKEY).flat_map(|set| &set.records);
    records.filter(|record| !is_ours(record)).cloned().collect()
}

/// Whether a CDS or CDNSKEY record tells the parent of this key. The digest is not computed: it is the other signer's.
fn is_copy(rtype: Rtype, record: &[u8], dnskey: &[u8]) -> bool {
    match rtype {
        Rtype::CDNSKEY => record == dnskey,
        _ => dnskey.get(3).is_some_and(|algorithm| {
            let [high, low] = tag_of(dnskey).to_be_bytes();
            record.starts_with(&[high, low, *algorithm])
        }),
    }
}

/// RFC 4034, appendix B.
pub(crate) fn tag_of(dnskey: &[u8]) -> u16 {
    let places = dnskey.iter().enumerate();
    let sum: u32 = places.map(|(at, octet)| u32::from(*octet) << if at % 2 == 0 { 8 } else { 0 }).sum();
    (sum + (sum >> 16)) as u16
}

/// Adds the keys to the DNSKEY records that the source may have, and what the parent is to make of them (RFC 7344, 3). CDS and CDNSKEY records of the
/// source are kept if they are of keys in its DNSKEY set that are not ours. Others are of keys that the zone had elsewhere, and are left out. But if one of them has the parent remove all DS records, those two stand alone.
fn add_keys(sets: &mut Vec<Set>, origin: Name<'_>, keys: &Active<'_>) {
    let is_to_end = sets.iter().any(is_delete);
    let others = keys_of_others(sets, keys);
    for set in sets.iter_mut().filter(|set| is_for_parent(set.rtype)) {
        set.records.retain(|record| !is_to_end && others.iter().any(|key| is_copy(set.rtype, record, key)));
    }
    sets.retain(|set| !set.records.is_empty());
    let mut add = |rtype, rdata: Vec<u8>| match sets.iter_mut().find(|set| set.rtype == rtype) {
        Some(set) if set.records.contains(&rdata) => {}
        Some(set) => set.records.push(rdata),
        None => sets.push(Set { rtype, ttl: KEY_TTL, records: vec![rdata], is_signed: true }),
    };
    keys.published.iter().for_each(|key| add(Rtype::DNSKEY, key.dnskey().to_vec()));
    if is_to_end {
        DELETE.iter().for_each(|(rtype, rdata)| add(*rtype, rdata.to_vec()));
    } else {
        for key in &keys.synced {
            add(Rtype::CDS, key.ds(origin));
            add(Rtype::CDNSKEY, key.dnskey().to_vec());
        }
    }
    // Times of keys count on it that nobody has such a set for longer.
    let of_keys = sets.iter_mut().filter(|set| set.rtype == Rtype::DNSKEY || is_for_parent(set.rtype));
    of_keys.for_each(|set| set.ttl = set.ttl.min(KEY_TTL));
}

/// The types of which the parent is to have copies (RFC 7477, 2.1.2): the name servers, and the addresses of those in the zone.
const COPIED: [Rtype; 3] = [Rtype::NS, Rtype::A, Rtype::AAAA];

/// RFC 7477, 2.1. The parent may take the records at once, without asking anybody (`immediate`), and from a server whose zone has this serial or
/// a later one (`soaminimum`): another one may have the records of before.
fn csync_data(serial: u32) -> Vec<u8> {
    const IMMEDIATE: u16 = 1;
    const SOA_MINIMUM: u16 = 2;
    let mut rdata = [&serial.to_be_bytes()[..], &(IMMEDIATE | SOA_MINIMUM).to_be_bytes()].concat();
    push_bit_maps(&mut rdata, COPIED.to_vec());
    rdata
}

/// The serial of the CSYNC record that a signed zone has, if that is one of ours, and its parent is to copy nothing else since then.
pub(crate) fn csync_serial(held: &Zone, source: &Zone) -> Option<u32> {
    let rdata = held.apex().rrset(Rtype::CSYNC)?.records().next()?;
    let serial = u32::from_be_bytes(*rdata.first_chunk()?);
    (rdata == csync_data(serial) && copied_of(held) == copied_of(source)).then_some(serial)
}

/// What the parent copies of a zone.
fn copied_of(zone: &Zone) -> BTreeSet<(Vec<u8>, u16, Vec<u8>)> {
    let servers = zone.apex().rrset(Rtype::NS).into_iter().flat_map(|set| set.records().map(<[u8]>::to_vec));
    let servers: Vec<Vec<u8>> = servers.map(|name| name.to_ascii_lowercase()).collect();
    let sets_of = |server: &Vec<u8>| {
        let sets = zone.find(server).into_iter().flat_map(Node::rrsets);
        let sets = sets.filter(|set| [Rtype::A, Rtype::AAAA].contains(&set.rtype()));
        let records = |set: Rrset<'_>| {
            let record = |rdata: &[u8]| (server.clone(), set.rtype().0, rdata.to_vec());
            set.records().map(record).collect::<Vec<_>>()
        };
        sets.flat_map(records).collect::<Vec<_>>()
    };
    let addresses: Vec<_> = servers.iter().flat_map(sets_of).collect();
    let names = servers.into_iter().map(|server| (server, Rtype::NS.0, Vec::new()));
    names.chain(addresses).collect()
}

/// RFC 4034, 4.1. The next name is in lower case, as its case is signed (RFC 6840, 5.1).
fn nsec_data(next: Name<'_>, types: Vec<Rtype>) -> Vec<u8> {
    let mut lower = [0; NAME_LEN_MAX];
    let mut rdata = next.lowercase(&mut lower).as_bytes().to_vec();
    push_bit_maps(&mut rdata, types);
    rdata
}

/// RFC 4034, 4.1.2.
fn push_bit_maps(rdata: &mut Vec<u8>, mut types: Vec<Rtype>) {
    types.sort_unstable_by_key(|rtype| rtype.0);
    for window in types.chunk_by(|one, other| one.0 >> 8 == other.0 >> 8) {
        let mut bits = [0_u8; 32];
        window.iter().for_each(|rtype| bits[usize::from(rtype.0 as u8 >> 3)] |= 0x80 >> (rtype.0 & 7));
        let len = bits.iter().rposition(|octet| *octet != 0).map_or(0, |last| last + 1);
        rdata.extend_from_slice(&[(window[0].0 >> 8) as u8, len as u8]);
        rdata.extend_from_slice(&bits[..len]);
    }
}

#[cfg(test)]
mod tests {
    use dns_wire::NameBuf;

    use super::*;
    use crate::key::{Key, KeyFiles, Role, Times};
    use crate::key_set::KeySet;

    #[test]
    fn a_set_that_keys_are_joined_to_has_no_longer_ttl_than_theirs() {
        let origin = NameBuf::from_text(b"example.", None).unwrap();
        let times = Times { sync_publish: Some(1), ..Times::default() };
        let files = KeyFiles::generate(origin.as_name(), Role::KeySigning, times).unwrap();
        let keys = KeySet::new(vec![Key::read(origin.as_name(), &files.public, &files.private).unwrap()]);
        for (own, expected) in [(86_400, KEY_TTL), (60, 60)] {
            let types = [Rtype::DNSKEY, Rtype::CDS, Rtype::CDNSKEY];
            let octet = |rtype| if rtype == Rtype::CDNSKEY { 2 } else { 1 };
            let set = |rtype| Set { rtype, ttl: own, records: vec![vec![octet(rtype); 8]], is_signed: true };
            let mut sets: Vec<Set> = types.into_iter().chain([Rtype::A]).map(set).collect();
            add_keys(&mut sets, origin.as_name(), &keys.at(2).unwrap());
            let seen: Vec<(u32, usize)> = sets.iter().map(|set| (set.ttl, set.records.len())).collect();
            assert_eq!(seen, [(expected, 2), (own, 1), (KEY_TTL, 1), (KEY_TTL, 1)], "CDS is ours alone");
        }
    }

    #[test]
    fn what_the_parent_is_to_know_of_other_signers_stays() {
        let origin = NameBuf::from_text(b"example.", None).unwrap();
        let [own, other] = [(); 2].map(|()| {
            let times = Times { sync_publish: Some(1), ..Times::default() };
            let files = KeyFiles::generate(origin.as_name(), Role::KeySigning, times).unwrap();
            Key::read(origin.as_name(), &files.public, &files.private).unwrap()
        });
        let (dnskey, ds) = (other.dnskey().to_vec(), other.ds(origin.as_name()));
        assert_eq!(tag_of(&dnskey), other.tag());
        let set = |rtype, records| Set { rtype, ttl: 60, records, is_signed: true };
        let gone = vec![1; 36];
        let mut sets = vec![
            set(Rtype::DNSKEY, vec![dnskey.clone()]),
            set(Rtype::CDS, vec![ds.clone(), gone.clone()]),
            set(Rtype::CDNSKEY, vec![dnskey.clone(), gone]),
        ];
        let own_records = (own.dnskey().to_vec(), own.ds(origin.as_name()));
        add_keys(&mut sets, origin.as_name(), &KeySet::new(vec![own]).at(2).unwrap());
        let found = [0, 1, 2].map(|at| sets[at].records.clone());
        let own_dnskey = own_records.0;
        let of_keys = vec![dnskey, own_dnskey];
        assert_eq!(found, [of_keys.clone(), vec![ds, own_records.1], of_keys]);
    }

    #[test]
    fn a_source_that_has_the_parent_remove_all_ds_records_has_that_alone() {
        let origin = NameBuf::from_text(b"example.", None).unwrap();
        let times = Times { sync_publish: Some(1), ..Times::default() };
        let files = KeyFiles::generate(origin.as_name(), Role::KeySigning, times).unwrap();
        let keys = KeySet::new(vec![Key::read(origin.as_name(), &files.public, &files.private).unwrap()]);
        for (rtype, rdata) in DELETE {
            let set = |rtype, records| Set { rtype, ttl: 60, records, is_signed: true };
            let mut sets =
                vec![set(rtype, vec![vec![1; 8], rdata.to_vec()]), set(Rtype::A, vec![vec![1; 4]])];
            add_keys(&mut sets, origin.as_name(), &keys.at(2).unwrap());
            let of_parent: Vec<_> = sets.iter().filter(|set| is_for_parent(set.rtype)).collect();
            let deletes = DELETE.map(|(rtype, rdata)| (rtype, vec![rdata.to_vec()]));
            assert_eq!(
                of_parent.iter().map(|set| (set.rtype, set.records.clone())).collect::<Vec<_>>(),
                deletes
            );
        }
    }

    #[test]
    fn type_bit_maps_are_those_of_the_example_of_rfc_4034() {
        // 4.3: host.example.com., A MX RRSIG NSEC TYPE1234.
        let next = NameBuf::from_text(b"Host.example.com.", None).unwrap();
        let types = vec![Rtype::NSEC, Rtype(1234), Rtype::A, Rtype::RRSIG, Rtype::MX];
        let rdata = nsec_data(next.as_name(), types);
        let expected = [
            &b"\x04host\x07example\x03com\0"[..],
            &[0x00, 0x06, 0x40, 0x01, 0x00, 0x00, 0x00, 0x03],
            &[0x04, 0x1b],
            &[0; 26],
            &[0x20],
        ];
        assert_eq!(rdata, expected.concat());
    }
}
