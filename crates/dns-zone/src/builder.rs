//! From records to a zone tree.

use dns_wire::{Name, NameBuf, Rtype, fold};
use thiserror::Error;

use crate::denial::Chain;
use crate::index::Index;
use crate::offset::Offset;
use crate::tree::{
    Marks, NEXT_LEN, NONE, Node, NodeEntry, NodeId, Rrset, RrsetEntry, Zone, node_flag, parent, record,
    type_covered,
};
use crate::versioned::{Array, Octets};

/// Why a record cannot be part of the zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RecordError {
    /// The owner is not at or below the origin.
    #[error("the owner is outside of the zone")]
    OutOfZone,
    /// A CNAME beside other data (RFC 2181, 10.1).
    #[error("a CNAME and other data at the same name")]
    CnameAndOtherData,
    /// A second, different CNAME, DNAME or SOA at one name.
    #[error("a second {0} record at the same name")]
    Second(Rtype),
    /// A type that only questions and messages have, such as ANY or OPT.
    #[error("{0} is no type of zone data")]
    NotData(Rtype),
    /// A SOA below the origin.
    #[error("a SOA record below the origin of the zone")]
    SoaBelowOrigin,
    /// RDATA that its type does not allow.
    #[error("the data of the {0} record has a wrong length")]
    Malformed(Rtype),
    /// More records of one name and type than one message can carry.
    #[error("the records of one name and type exceed the 65535 octets of a message")]
    RrsetTooLarge,
    /// More names or record sets than are numbered.
    #[error("the zone exceeds 4294967294 names or record sets")]
    ZoneTooLarge,
}

/// Why there is no zone in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ZoneError {
    /// No SOA at the origin.
    #[error("the zone has no SOA record")]
    NoSoa,
}

/// Collects records in any order and makes a [`Zone`] of them.
pub struct ZoneBuilder {
    pub(crate) zone: Zone,
    /// The node of the record before: mostly the next one has the same owner, or the same parent.
    pub(crate) last: NodeId,
}

impl ZoneBuilder {
    /// Starts a zone at `origin`. `seed` keys the hashes; take it from a source that the outside cannot guess.
    pub fn new(origin: Name<'_>, seed: u64) -> ZoneBuilder {
        ZoneBuilder::with_octets(origin, seed, Octets::default(), Octets::default())
    }

    fn with_octets(origin: Name<'_>, seed: u64, names: Octets, records: Octets) -> ZoneBuilder {
        let zone = Zone {
            origin: NameBuf::from(origin),
            nodes: Array::default(),
            names,
            rrsets: Array::default(),
            records,
            index: Index::default(),
            seed,
            record_count: 0,
            depths: (origin.label_count() as u8, 0), // A name has at most 127 labels.
            chain: Chain::default(),
            is_signed: false,
            is_hashed: false,
            changes: 0,
            removed: 0,
        };
        let mut builder = ZoneBuilder { zone, last: NodeId(0) };
        let hash = fold::hash_name(origin.as_bytes(), seed);
        builder.push_node(origin.as_bytes(), None, hash).expect("one name fits");
        builder
    }

    /// Makes room for the rest, if `done` parts of `of` have been added: growing later would copy, and touch memory twice.
    /// What the rest takes more than it seems by then, is made room for when it comes.
    pub fn make_room(&mut self, done: u64, of: u64) {
        let zone = &mut self.zone;
        let rest = |len: usize| {
            let all = len as u128 * u128::from(of) / u128::from(done.max(1));
            usize::try_from(all + all / 32).unwrap_or(usize::MAX).saturating_sub(len)
        };
        zone.nodes.reserve(rest(zone.nodes.len()));
        zone.names.reserve(rest(zone.names.base_len()));
        zone.rrsets.reserve(rest(zone.rrsets.len()));
        zone.records.reserve(rest(zone.records.base_len()));
        zone.index.reserve(rest(zone.index.len()));
    }

    /// Hints that records of this owner come soon: what finding it takes is fetched meanwhile.
    #[inline]
    pub fn expect_owner(&self, owner: Name<'_>) {
        let index = &self.zone.index;
        index.prefetch(index.home(fold::hash_name(owner.as_bytes(), self.zone.seed)));
    }

    /// Adds a record with uncompressed `rdata`. A duplicate is dropped (RFC 2181, 5); of different TTLs in one set the
    /// lowest counts for all (RFC 2181, 5.2). A signature takes the TTL of the set that it covers (RFC 4034, 3).
    pub fn add(&mut self, owner: Name<'_>, ttl: u32, rtype: Rtype, rdata: &[u8]) -> Result<(), RecordError> {
        let node = self.ensure_node(owner.as_bytes())?;
        self.last = node;
        self.check(node, rtype, rdata)?;
        match self.find_rrset(node, rtype, type_covered(rtype, rdata)) {
            Some(rrset) => self.extend_rrset(rrset, ttl, rdata),
            None => self.push_rrset(node, ttl, rtype, rdata),
        }
    }

    /// Ends the zone: no more records.
    pub fn finish(mut self) -> Result<Zone, ZoneError> {
        if self.find_rrset(NodeId(0), Rtype::SOA, None).is_none() {
            return Err(ZoneError::NoSoa);
        }
        if self.zone.is_signed || self.zone.is_hashed {
            let nodes = 0..self.zone.nodes.len() as u32;
            nodes.map(NodeId).for_each(|node| {
                self.settle_signed(node);
            });
        }
        let zone = &mut self.zone;
        zone.nodes.share();
        zone.names.share();
        zone.rrsets.share();
        zone.records.share();
        zone.index.share();
        zone.chain = Chain::of(zone);
        Ok(self.zone)
    }

    /// Once all records of a signed or hashed zone are there: what depends on several of one name. Returns whether it has become a name of the
    /// zone, or a mere hash.
    pub(crate) fn settle_signed(&mut self, node: NodeId) -> bool {
        self.give_ttls_to_signatures(node);
        let is_another = is_hash_owner(self.zone.node(node)) != self.zone.node(node).is_hashed();
        if is_another {
            self.entry_mut(node).flags ^= node_flag::HASHED;
        }
        is_another
    }

    /// RFC 4034, 3: a signature has the TTL of the set that it covers. One that covers nothing here keeps its own.
    fn give_ttls_to_signatures(&mut self, node: NodeId) {
        let mut at = self.zone.node(node).first_rrset();
        while let Some(entry) = self.zone.rrsets.get(at as usize).copied() {
            let set = self.covered_by(&entry).and_then(|rtype| self.find_rrset(node, rtype, None));
            let ttl = set.and_then(|set| Some(self.zone.rrsets.get(set)?.ttl)).unwrap_or(entry.ttl);
            if ttl != entry.ttl {
                self.zone.rrsets.get_mut(at as usize).ttl = ttl;
            }
            at = entry.next;
        }
    }

    pub(crate) fn entry_mut(&mut self, node: NodeId) -> &mut NodeEntry {
        self.zone.nodes.get_mut(node.0 as usize)
    }

    /// The type that the signatures of a set cover; `None` for other sets.
    fn covered_by(&self, entry: &RrsetEntry) -> Option<Rtype> {
        type_covered(entry.rtype, record(&self.zone.records, entry.first_record).1)
    }

    fn check(&self, node: NodeId, rtype: Rtype, rdata: &[u8]) -> Result<(), RecordError> {
        if rtype == Rtype::SOA && node.0 != 0 {
            return Err(RecordError::SoaBelowOrigin);
        }
        if rtype.is_meta() {
            return Err(RecordError::NotData(rtype));
        }
        // A response carries all signatures of a name together.
        if rtype == Rtype::RRSIG && self.wire_len(node, rtype) + rdata.len() + 12 > RRSET_LEN_MAX {
            return Err(RecordError::RrsetTooLarge);
        }
        let target = target_offset(rtype);
        if target.is_some_and(|at| rdata.get(at..).is_none_or(|name| !starts_with_name(name, rtype))) {
            return Err(RecordError::Malformed(rtype));
        }
        if is_service_binding(rtype) && rdata.get(2..).is_none_or(|name| Name::split_from(name).is_err()) {
            return Err(RecordError::Malformed(rtype));
        }
        let beside_cname = |other: Rtype| matches!(other, Rtype::RRSIG | Rtype::NSEC | Rtype::KEY);
        if rtype == Rtype::CNAME {
            let others = self.zone.node(node).rrsets();
            if others.map(|rrset| rrset.rtype()).any(|other| other != Rtype::CNAME && !beside_cname(other)) {
                return Err(RecordError::CnameAndOtherData);
            }
        } else if self.zone.node(node).has_cname() && !beside_cname(rtype) {
            return Err(RecordError::CnameAndOtherData);
        }
        Ok(())
    }

    /// Says what answers about a name depend on besides the zone, and nothing else.
    pub(crate) fn mark(&mut self, owner: Name<'_>, marks: Marks) -> Result<NodeId, RecordError> {
        let node = self.ensure_node(owner.as_bytes())?;
        let entry = self.entry_mut(node);
        entry.flags &= !(node_flag::VARIED | node_flag::CHOSEN);
        entry.flags |= marks.flags();
        Ok(node)
    }

    /// The node of `name`, made together with its missing ancestors.
    fn ensure_node(&mut self, name: &[u8]) -> Result<NodeId, RecordError> {
        let last = self.zone.node(self.last);
        if last.name() == name {
            return Ok(self.last);
        }
        let hash = fold::hash_name(name, self.zone.seed);
        if let Some(id) = self.find_node(name, hash) {
            self.revive(id);
            return Ok(id);
        }
        let above = parent(name).filter(|above| above.len() >= self.zone.origin.as_name().len());
        let above = above.ok_or(RecordError::OutOfZone)?;
        let parent_id = match last.parent() {
            Some(sibling_parent) if sibling_parent.name() == above => sibling_parent.id(),
            _ => self.ensure_node(above)?,
        };
        self.push_node(name, Some(parent_id), hash)
    }

    /// A removed name, and those above it, are back.
    fn revive(&mut self, node: NodeId) {
        let node = self.zone.node(node);
        if !node.is_removed() {
            return;
        }
        let (id, above) = (node.id(), node.parent().expect("the apex is never removed").id());
        self.entry_mut(id).flags &= !node_flag::REMOVED;
        self.zone.removed -= 1;
        self.revive(above);
    }

    fn find_node(&self, name: &[u8], hash: u64) -> Option<NodeId> {
        let matches = |id| fold::equal(self.zone.node(NodeId(id)).name(), name);
        self.zone.index.find(hash, matches).map(NodeId)
    }

    fn push_node(&mut self, name: &[u8], parent: Option<NodeId>, hash: u64) -> Result<NodeId, RecordError> {
        let zone = &mut self.zone;
        let id = number(zone.nodes.len())?;
        let mut entry = NodeEntry {
            name: Offset::new(zone.names.begin_item()),
            name_len: u8::try_from(name.len()).expect("a name has at most 255 octets"),
            flags: 0,
            first_rrset: NONE,
            parent: 0,
            last_child: NONE,
            sibling: NONE,
        };
        if let Some(parent) = parent {
            let above = zone.nodes.get_mut(parent.0 as usize);
            entry.parent = parent.0;
            entry.sibling = std::mem::replace(&mut above.last_child, id);
            above.flags |= if name.starts_with(b"\x01*") { node_flag::WILDCARD_CHILD } else { 0 };
        }
        let labels = Name::from_wire(name).expect("names are checked before they come here").label_count();
        zone.depths.1 = zone.depths.1.max(labels as u8);
        zone.names.extend_from_slice(name);
        zone.nodes.push(entry);
        zone.index.insert(hash, id);
        Ok(NodeId(id))
    }

    /// The set of this type, and of signatures the one that covers `covered`.
    pub(crate) fn find_rrset(&self, node: NodeId, rtype: Rtype, covered: Option<Rtype>) -> Option<usize> {
        let rrsets = &self.zone.rrsets;
        let mut at = self.zone.node(node).first_rrset();
        while let Some(entry) = rrsets.get(at as usize) {
            if entry.rtype == rtype && (rtype != Rtype::RRSIG || self.covered_by(entry) == covered) {
                return Some(at as usize);
            }
            at = entry.next;
        }
        None
    }

    /// Octets of all records of a type as they stand in a message with compressed owners.
    fn wire_len(&self, node: NodeId, rtype: Rtype) -> usize {
        let sets = self.zone.node(node).rrsets().filter(|rrset| rrset.rtype() == rtype);
        sets.flat_map(|rrset| rrset.records()).map(|rdata| rdata.len() + 12).sum()
    }

    fn push_rrset(&mut self, node: NodeId, ttl: u32, rtype: Rtype, rdata: &[u8]) -> Result<(), RecordError> {
        if rdata.len() + 12 > RRSET_LEN_MAX {
            return Err(RecordError::RrsetTooLarge);
        }
        let record = self.push_record(rdata)?;
        let zone = &mut self.zone;
        let number = number(zone.rrsets.len())?;
        let entry =
            RrsetEntry { next: NONE, first_record: record, last_record: record, ttl, rtype, count: 1 };
        zone.rrsets.push(entry);
        zone.is_signed |= rtype == Rtype::RRSIG;
        zone.is_hashed |= rtype == Rtype::NSEC3;
        let node_entry = zone.nodes.get_mut(node.0 as usize);
        node_entry.flags |= flags_for(rtype, node);
        if node_entry.first_rrset == NONE {
            node_entry.first_rrset = number;
            return Ok(());
        }
        let mut at = node_entry.first_rrset as usize;
        while let Some(entry) = zone.rrsets.get(at).filter(|entry| entry.next != NONE) {
            at = entry.next as usize;
        }
        zone.rrsets.get_mut(at).next = number;
        Ok(())
    }

    fn extend_rrset(&mut self, number: usize, ttl: u32, rdata: &[u8]) -> Result<(), RecordError> {
        let entry = *self.zone.rrsets.get_mut(number);
        let mut wire_len = 0;
        let mut at = entry.first_record;
        while at != Offset::NONE {
            let (next, data) = record(&self.zone.records, at);
            if is_same(entry.rtype, data, rdata) {
                self.zone.rrsets.get_mut(number).ttl = entry.ttl.min(ttl);
                return Ok(());
            }
            wire_len += data.len() + 12;
            at = next;
        }
        if matches!(entry.rtype, Rtype::CNAME | Rtype::DNAME | Rtype::SOA) {
            return Err(RecordError::Second(entry.rtype));
        }
        if wire_len + rdata.len() + 12 > RRSET_LEN_MAX {
            return Err(RecordError::RrsetTooLarge);
        }
        let last = match self.zone.records.get_mut(entry.last_record.get()) {
            Some(_) => entry.last_record,
            None => self.copy_records(number, usize::MAX)?, // Other versions may have them.
        };
        let new = self.push_record(rdata)?;
        self.link(last, new);
        let entry = self.zone.rrsets.get_mut(number);
        entry.last_record = new;
        entry.count += 1;
        entry.ttl = entry.ttl.min(ttl);
        Ok(())
    }

    /// Copies the records of a set, without number `without` of them, so that none is another version's, too. Returns the last one.
    pub(crate) fn copy_records(&mut self, number: usize, without: usize) -> Result<Offset, RecordError> {
        let mut at = self.zone.rrsets.get_mut(number).first_record;
        let mut copied: Vec<Offset> = Vec::new();
        for place in 0.. {
            if at == Offset::NONE {
                break;
            }
            let (next, data) = record(&self.zone.records, at);
            if place != without {
                let data = data.to_vec();
                let new = self.push_record(&data)?;
                copied.last().into_iter().for_each(|last| self.link(*last, new));
                copied.push(new);
            }
            at = next;
        }
        let (&first, &last) = copied.first().zip(copied.last()).expect("a set keeps a record");
        let entry = self.zone.rrsets.get_mut(number);
        self.zone.record_count -= usize::from(entry.count);
        *entry = RrsetEntry { first_record: first, last_record: last, count: copied.len() as u16, ..*entry };
        Ok(last)
    }

    /// Has the record `next` follow the record `at`, which no other version has.
    fn link(&mut self, at: Offset, next: Offset) {
        let octets = self.zone.records.get_mut(at.get()).expect("it is this version's own");
        octets[..NEXT_LEN].copy_from_slice(&next.to_octets());
    }

    fn push_record(&mut self, rdata: &[u8]) -> Result<Offset, RecordError> {
        let zone = &mut self.zone;
        let at = Offset::new(zone.records.begin_item());
        let len = u16::try_from(rdata.len()).map_err(|_| RecordError::RrsetTooLarge)?;
        let ([a, b, c, d, e, f], [low, high]) = (Offset::NONE.to_octets(), len.to_le_bytes());
        zone.records.extend_from_slice(&[a, b, c, d, e, f, low, high]);
        zone.records.extend_from_slice(rdata);
        zone.record_count += 1;
        Ok(at)
    }
}

/// Octets of the records of one set as they stand in a message, at most. What a message must carry besides: a header, the
/// longest question, OPT with an identifier.
const RRSET_LEN_MAX: usize = 65_535 - 700;

/// Whether two records of one type are the same: names in their data are compared without case (RFC 2181, 5; RFC 4343, 3).
pub fn is_same(rtype: Rtype, left: &[u8], right: &[u8]) -> bool {
    // The numbers of a SOA are no name.
    let names_from = target_offset(rtype).filter(|_| rtype != Rtype::SOA).unwrap_or(left.len());
    left.len() == right.len()
        && left[..names_from] == right[..names_from]
        && fold::equal(&left[names_from..], &right[names_from..])
}

/// Whether a name holds an NSEC3 record and nothing but its signatures, and is a child of the apex without children.
fn is_hash_owner(node: Node<'_>) -> bool {
    let of_hash = |rrset: Rrset<'_>| rrset.rtype() == Rtype::NSEC3 || rrset.covered() == Some(Rtype::NSEC3);
    node.rrset(Rtype::NSEC3).is_some()
        && node.rrsets().all(of_hash)
        && node.parent().is_some_and(|parent| parent.id().0 == 0)
        && node.children().all(Node::is_removed)
}

/// Where in its data a record of this type names the host or name that an answer goes on with.
pub fn target_offset(rtype: Rtype) -> Option<usize> {
    match rtype {
        Rtype::NS | Rtype::CNAME | Rtype::DNAME | Rtype::PTR | Rtype::SOA => Some(0),
        Rtype::MX => Some(2),
        Rtype::SRV => Some(6),
        _ => None,
    }
}

/// Whether records of this type are service bindings (RFC 9460): a priority, a target name, parameters.
pub fn is_service_binding(rtype: Rtype) -> bool {
    matches!(rtype, Rtype::SVCB | Rtype::HTTPS)
}

/// Whether `octets` are a name, and for types that end with it nothing else; a SOA has another name and 20 octets.
fn starts_with_name(octets: &[u8], rtype: Rtype) -> bool {
    let Ok((_, rest)) = Name::split_from(octets) else { return false };
    match rtype {
        Rtype::SOA => Name::split_from(rest).is_ok_and(|(_, numbers)| numbers.len() == 20),
        _ => rest.is_empty(),
    }
}

pub(crate) fn flags_for(rtype: Rtype, node: NodeId) -> u8 {
    match rtype {
        Rtype::NS if node.0 != 0 => node_flag::CUT,
        Rtype::DNAME => node_flag::DNAME,
        Rtype::CNAME => node_flag::CNAME,
        _ => 0,
    }
}

/// The number of what is added behind `count` others.
fn number(count: usize) -> Result<u32, RecordError> {
    u32::try_from(count).ok().filter(|&number| number <= Index::NUMBER_MAX).ok_or(RecordError::ZoneTooLarge)
}

#[cfg(test)]
pub(crate) mod tests {
    use dns_wire::LabelStarts;

    use super::*;

    pub(crate) const SOA: &[u8] =
        b"\x00\x00\x00\x00\x00\x07\x00\x00\x00\x02\x00\x00\x00\x03\x00\x00\x00\x04\x00\x00\x00\x05";

    pub(crate) fn name(text: &str) -> NameBuf {
        NameBuf::from_text(text.as_bytes(), None).unwrap()
    }

    pub(crate) fn builder() -> ZoneBuilder {
        let mut builder = ZoneBuilder::new(name("example.").as_name(), 1);
        builder.add(name("example.").as_name(), 60, Rtype::SOA, SOA).unwrap();
        builder
    }

    fn add(builder: &mut ZoneBuilder, owner: &str, rtype: Rtype, rdata: &[u8]) -> Result<(), RecordError> {
        builder.add(name(owner).as_name(), 300, rtype, rdata)
    }

    #[test]
    fn names_and_data_beyond_4_gib_are_found() {
        let octets = || Octets::starting_at((4 << 30) - 40);
        let mut builder = ZoneBuilder::with_octets(name("example.").as_name(), 1, octets(), octets());
        add(&mut builder, "example.", Rtype::SOA, SOA).unwrap();
        for host in 0..10 {
            for last in 0..3 {
                add(&mut builder, &format!("h{host}.example."), Rtype::A, &[192, 0, host, last]).unwrap();
            }
        }
        let zone = builder.finish().unwrap();
        for host in 0..10 {
            let node = zone.find(name(&format!("H{host}.example.")).as_name().as_bytes()).unwrap();
            let records: Vec<&[u8]> = node.rrset(Rtype::A).unwrap().records().collect();
            assert_eq!(records, [[192, 0, host, 0], [192, 0, host, 1], [192, 0, host, 2]]);
        }
        assert_eq!((zone.serial(), zone.record_count()), (7, 31));
    }

    #[test]
    fn numbers_end_before_those_that_mark_nothing() {
        assert_eq!(number(Index::NUMBER_MAX as usize), Ok(Index::NUMBER_MAX));
        assert_eq!(number(Index::NUMBER_MAX as usize + 1), Err(RecordError::ZoneTooLarge));
    }

    #[test]
    fn names_between_a_record_and_the_origin_exist_without_data() {
        let mut builder = builder();
        add(&mut builder, "a.b.c.example.", Rtype::A, &[192, 0, 2, 1]).unwrap();
        let zone = builder.finish().unwrap();
        assert_eq!(zone.node_count(), 4);
        let between = zone.find(name("B.c.example.").as_name().as_bytes()).unwrap();
        assert_eq!(between.rrsets().count(), 0);
    }

    fn encloser<'z>(zone: &'z Zone, asked: &str) -> Node<'z> {
        let asked = name(asked);
        zone.closest_encloser(asked.as_name().as_bytes(), &LabelStarts::of(asked.as_name()))
    }

    #[test]
    fn the_closest_encloser_is_the_longest_existing_ancestor() {
        let mut builder = builder();
        add(&mut builder, "a.b.example.", Rtype::A, &[192, 0, 2, 1]).unwrap();
        let zone = builder.finish().unwrap();
        assert_eq!(encloser(&zone, "x.y.b.example.").name(), name("b.example.").as_name().as_bytes());
    }

    #[test]
    fn the_closest_encloser_is_found_at_every_depth() {
        let mut builder = builder();
        let deep = "x.".repeat(30) + "example.";
        add(&mut builder, &deep, Rtype::A, &[192, 0, 2, 1]).unwrap();
        add(&mut builder, "y.example.", Rtype::A, &[192, 0, 2, 1]).unwrap();
        let zone = builder.finish().unwrap();
        for existing in 0..=30 {
            let existing = "x.".repeat(existing) + "example.";
            for missing in 0..90 {
                let asked = "z.".repeat(missing) + &existing;
                let found = encloser(&zone, &asked);
                assert_eq!(found.name(), name(&existing).as_name().as_bytes(), "{asked}");
            }
        }
        assert_eq!(encloser(&zone, "x.x.y.example.").name(), b"\x01y\x07example\0");
    }

    #[test]
    fn few_labels_of_a_deep_name_are_looked_up() {
        let mut builder = builder();
        add(&mut builder, &("x.".repeat(30) + "example."), Rtype::A, &[192, 0, 2, 1]).unwrap();
        let zone = builder.finish().unwrap();
        let before = zone.index.searches();
        encloser(&zone, &("z.".repeat(100) + "example."));
        assert!(zone.index.searches() - before <= 5, "30 labels, halved each time");
    }

    #[test]
    fn everything_below_a_cut_is_occluded_and_the_cut_is_not() {
        let mut builder = builder();
        add(&mut builder, "ns.sub.example.", Rtype::A, &[192, 0, 2, 1]).unwrap();
        add(&mut builder, "sub.example.", Rtype::NS, name("ns.sub.example.").as_name().as_bytes()).unwrap();
        let zone = builder.finish().unwrap();
        let node = |text| zone.find(name(text).as_name().as_bytes()).unwrap();
        assert!(node("sub.example.").is_cut() && !node("sub.example.").is_occluded());
        assert!(node("ns.sub.example.").is_occluded());
        assert_eq!(node("ns.sub.example.").topmost_boundary().unwrap().id(), node("sub.example.").id());
    }

    #[test]
    fn ns_records_at_the_apex_are_no_cut() {
        let mut builder = builder();
        add(&mut builder, "example.", Rtype::NS, name("ns.example.").as_name().as_bytes()).unwrap();
        assert!(!builder.finish().unwrap().apex().is_cut());
    }

    #[test]
    fn a_wildcard_is_found_from_its_parent() {
        let mut builder = builder();
        add(&mut builder, "*.w.example.", Rtype::A, &[192, 0, 2, 1]).unwrap();
        let zone = builder.finish().unwrap();
        let parent = zone.find(name("w.example.").as_name().as_bytes()).unwrap();
        assert!(parent.wildcard().is_some() && zone.apex().wildcard().is_none());
    }

    #[test]
    fn cname_and_other_data_exclude_each_other_in_either_order() {
        let target = name("t.example.");
        let mut builder = builder();
        add(&mut builder, "a.example.", Rtype::CNAME, target.as_name().as_bytes()).unwrap();
        let after = add(&mut builder, "a.example.", Rtype::A, &[192, 0, 2, 1]);
        add(&mut builder, "b.example.", Rtype::A, &[192, 0, 2, 1]).unwrap();
        let before = add(&mut builder, "b.example.", Rtype::CNAME, target.as_name().as_bytes());
        assert_eq!(
            (after, before),
            (Err(RecordError::CnameAndOtherData), Err(RecordError::CnameAndOtherData))
        );
    }

    #[test]
    fn duplicates_vanish_and_the_lowest_ttl_counts() {
        let mut builder = builder();
        let owner = name("a.example.");
        for (ttl, last) in [(300, 1), (200, 2), (100, 1)] {
            builder.add(owner.as_name(), ttl, Rtype::A, &[192, 0, 2, last]).unwrap();
        }
        let zone = builder.finish().unwrap();
        let rrset = zone.find(owner.as_name().as_bytes()).unwrap().rrset(Rtype::A).unwrap();
        assert_eq!((rrset.count(), rrset.ttl(), zone.record_count()), (2, 100, 3));
        assert_eq!(rrset.records().collect::<Vec<_>>(), [[192, 0, 2, 1], [192, 0, 2, 2]]);
    }

    #[test]
    fn signatures_have_the_ttl_of_what_they_cover_and_else_their_own() {
        let mut builder = builder();
        let owner = name("a.example.");
        let covering = |rtype: Rtype, last| [&rtype.0.to_be_bytes()[..], &[8, 2, last]].concat();
        let mut add = |ttl, rtype, rdata: &[u8]| builder.add(owner.as_name(), ttl, rtype, rdata).unwrap();
        add(100, Rtype::RRSIG, &covering(Rtype::A, 1));
        add(300, Rtype::A, &[192, 0, 2, 1]);
        add(200, Rtype::RRSIG, &covering(Rtype::A, 2));
        add(600, Rtype::TXT, b"\x01t");
        add(700, Rtype::RRSIG, &covering(Rtype::TXT, 1));
        add(50, Rtype::RRSIG, &covering(Rtype::MX, 1));
        add(40, Rtype::RRSIG, &covering(Rtype::MX, 1));
        let zone = builder.finish().unwrap();
        let node = zone.find(owner.as_name().as_bytes()).unwrap();
        let signatures = node.rrsets().filter(|rrset| rrset.rtype() == Rtype::RRSIG);
        let sets: Vec<(u32, u16)> = signatures.map(|rrset| (rrset.ttl(), rrset.count())).collect();
        assert_eq!(sets, [(300, 2), (600, 1), (40, 1)]);
    }

    #[test]
    fn signatures_of_one_name_that_no_message_can_carry_are_refused() {
        let mut builder = builder();
        let outcome = (0..10u16).try_for_each(|covered| {
            let rdata = [&covered.to_be_bytes()[..], &[0; 10_000]].concat();
            add(&mut builder, "a.example.", Rtype::RRSIG, &rdata)
        });
        assert_eq!(outcome, Err(RecordError::RrsetTooLarge));
    }

    #[test]
    fn a_record_set_that_no_message_can_carry_is_refused() {
        let mut builder = builder();
        let text: Vec<u8> = std::iter::once(255).chain(std::iter::repeat_n(b'x', 255)).collect();
        let outcome = (0..300u16).try_for_each(|number| {
            let mut rdata = text.repeat(2);
            rdata[1..3].copy_from_slice(&number.to_be_bytes());
            add(&mut builder, "t.example.", Rtype::TXT, &rdata)
        });
        assert_eq!(outcome, Err(RecordError::RrsetTooLarge));
    }

    #[test]
    fn records_that_differ_in_the_case_of_a_name_are_one() {
        let mut builder = builder();
        for server in ["ns.example.", "NS.Example.", "ns2.example."] {
            add(&mut builder, "example.", Rtype::NS, name(server).as_name().as_bytes()).unwrap();
        }
        for rdata in [b"\x00\x41\x01m\x00", b"\x00\x61\x01m\x00", b"\x00\x61\x01M\x00"] {
            add(&mut builder, "example.", Rtype::MX, rdata).unwrap();
        }
        let zone = builder.finish().unwrap();
        let count = |rtype| zone.apex().rrset(rtype).unwrap().count();
        assert_eq!((count(Rtype::NS), count(Rtype::MX)), (2, 2));
    }

    #[test]
    fn a_single_record_that_no_message_can_carry_is_refused() {
        let outcome = add(&mut builder(), "n.example.", Rtype(65_280), &[0; 65_000]);
        assert_eq!(outcome, Err(RecordError::RrsetTooLarge));
    }

    #[test]
    fn a_service_binding_without_a_target_is_refused() {
        let outcome = add(&mut builder(), "n.example.", Rtype::HTTPS, b"\x00\x01\x03ab");
        assert_eq!(outcome, Err(RecordError::Malformed(Rtype::HTTPS)));
    }

    #[test]
    fn names_outside_and_soa_records_below_the_origin_are_refused() {
        let mut builder = builder();
        assert_eq!(add(&mut builder, "other.", Rtype::A, &[192, 0, 2, 1]), Err(RecordError::OutOfZone));
        assert_eq!(add(&mut builder, "badexample.", Rtype::A, &[192, 0, 2, 1]), Err(RecordError::OutOfZone));
        assert_eq!(add(&mut builder, "a.example.", Rtype::SOA, SOA), Err(RecordError::SoaBelowOrigin));
    }

    #[test]
    fn negative_answers_live_for_the_lesser_of_soa_ttl_and_minimum() {
        let zone = builder().finish().unwrap();
        assert_eq!((zone.serial(), zone.negative_ttl()), (7, 5));
    }
}
