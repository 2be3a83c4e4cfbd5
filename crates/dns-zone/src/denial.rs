//! The order of a signed zone's names, to find the records that prove what is not there.
//!
//! A zone is signed with NSEC records, in the canonical order of names (RFC 4034, 6.1), or with NSEC3 records, in the order of their
//! hashes (RFC 5155, 7.1). Both are kept as a sorted array of nodes with a key beside each, so that a search seldom leaves it. With compact denial (`compact.rs`)
//! there is no order to keep.

use std::cmp::Ordering;
use std::sync::{Arc, OnceLock};

use dns_wire::{LabelStarts, Name, NameBuf, Rtype};
use nsec3::{Hash, Parameters};

use crate::compact::is_compact;
use crate::tree::{NONE, Node, NodeId, Rrset, Zone};
use crate::versioned::Array;

/// The nodes whose records deny.
#[derive(Clone, Debug, Default)]
pub(crate) enum Chain {
    /// There are none: the zone is not signed.
    #[default]
    None,
    /// Those with NSEC records.
    Nsec(Names),
    /// Those with NSEC3 records.
    Nsec3(Hashes),
    /// Those with NSEC records, each for itself.
    Compact,
}

/// The nodes with NSEC records, by the start of their names' [`key`].
#[derive(Clone, Debug)]
pub(crate) struct Names {
    ordered: Ordered<u64>,
    /// The node whose record denies a wildcard below the apex: names that are not there are mostly asked for there. Looked up once a version.
    at_wildcard: OnceLock<Option<NodeId>>,
}

impl Names {
    fn new(ordered: Ordered<u64>) -> Names {
        Names { ordered, at_wildcard: OnceLock::new() }
    }
}

/// Nodes in the order of their keys: those that the zone was built with, and those that came since. Some may have lost their record meanwhile.
#[derive(Clone, Debug)]
pub(crate) struct Ordered<K> {
    base: Arc<Vec<(K, NodeId)>>,
    added: Vec<(K, NodeId)>,
}

impl<K: Copy + Ord> Ordered<K> {
    fn new(mut base: Vec<(K, NodeId)>) -> Ordered<K> {
        base.shrink_to_fit();
        Ordered { base: Arc::new(base), added: Vec::new() }
    }

    /// The last node that has its record and whose key is below `key`, or the same and `is_within`; `order` is that of all.
    fn last(
        &self,
        key: K,
        is_within: impl Fn(NodeId) -> bool,
        order: impl Fn(&(K, NodeId), &(K, NodeId)) -> Ordering,
        has_record: impl Fn(NodeId) -> bool,
    ) -> Option<NodeId> {
        // First by the keys alone: few have the same, and to compare the nodes takes long.
        let last_of = |list: &[(K, NodeId)]| {
            let start = list.partition_point(|entry| entry.0 < key);
            let has_same = list.get(start).is_some_and(|entry| entry.0 == key);
            let beyond = match has_same {
                true => start + list[start..].partition_point(|entry| entry.0 == key && is_within(entry.1)),
                false => start,
            };
            list[..beyond].iter().rfind(|entry| has_record(entry.1)).copied()
        };
        let found = match (last_of(&self.base), last_of(&self.added)) {
            (Some(base), Some(added)) if order(&base, &added) == Ordering::Less => Some(added),
            (base, added) => base.or(added),
        };
        found.map(|entry| entry.1)
    }

    /// Adds a node, unless it is there.
    fn add(&mut self, entry: (K, NodeId), order: impl Fn(&(K, NodeId), &(K, NodeId)) -> Ordering) {
        let place = |list: &[(K, NodeId)]| list.binary_search_by(|other| order(other, &entry));
        if place(&self.base).is_err()
            && let Err(at) = place(&self.added)
        {
            self.added.insert(at, entry);
        }
    }

    fn memory(&self) -> usize {
        (self.base.capacity() + self.added.capacity()) * size_of::<(K, NodeId)>()
    }
}

/// The NSEC3 records of one set of parameters.
#[derive(Clone, Debug)]
pub(crate) struct Hashes {
    iterations: u16,
    salt: Arc<[u8]>,
    /// The nodes of the records, and the hash that each stands for.
    ring: Ordered<Hash>,
    /// For each node of the zone the one whose record stands for it, or [`NONE`]: no name that exists is hashed for an answer.
    matching: Array<u32>,
}

impl Hashes {
    /// The records of these parameters; `None` if there are none.
    fn of(zone: &Zone, parameters: Parameters<'_>) -> Option<Hashes> {
        let entry = |node: Node<'_>| Some((hash_of_record(node, parameters)?, node.id()));
        let mut ring: Vec<_> = zone.nodes().filter_map(entry).collect();
        if ring.is_empty() {
            return None;
        }
        ring.sort_unstable_by_key(|(hash, _)| *hash);
        let mut hashes = Hashes {
            iterations: parameters.iterations,
            salt: parameters.salt.into(),
            ring: Ordered::new(ring),
            matching: vec![NONE; zone.node_count()].into(),
        };
        zone.nodes().for_each(|node| hashes.match_node(zone, node));
        hashes.matching.share();
        Some(hashes)
    }

    /// The same for a version in which these nodes may be others. `None` if that cannot be said without a look at all.
    fn after(&self, zone: &Zone, touched: &[NodeId]) -> Option<Hashes> {
        parameters(zone).next().filter(|it| *it == self.parameters())?;
        let mut hashes = self.clone();
        (hashes.matching.len()..zone.node_count()).for_each(|_| hashes.matching.push(NONE));
        let nodes = || touched.iter().filter_map(|id| zone.live_node(*id));
        let mut new: Vec<NodeId> = Vec::new();
        for (node, hash) in nodes().filter_map(|node| Some((node, hash_of_record(node, self.parameters())?)))
        {
            if self.find(zone, &hash).is_none() {
                new.push(node.id());
            }
            hashes.ring.add((hash, node.id()), by_hash);
        }
        for node in nodes().flat_map(Node::ancestors) {
            hashes.match_node(zone, node);
            let record = hashes.matching.get(node.id().0 as usize).copied();
            new.retain(|id| Some(id.0) != record);
        }
        new.is_empty().then_some(hashes) // A record for a name that has not changed: which?
    }

    fn parameters(&self) -> Parameters<'_> {
        Parameters { iterations: self.iterations, salt: &self.salt }
    }

    /// Notes which record stands for a name of the zone.
    fn match_node(&mut self, zone: &Zone, node: Node<'_>) {
        let is_name = !node.is_hashed() && !node.is_occluded();
        let wanted = is_name.then(|| self.parameters().hash(name_of(node)));
        let record = wanted.and_then(|wanted| self.find(zone, &wanted));
        *self.matching.get_mut(node.id().0 as usize) = record.map_or(NONE, |id| id.0);
    }

    /// The node of the record that stands for a hash.
    fn find(&self, zone: &Zone, hash: &Hash) -> Option<NodeId> {
        let found = self.last_of(zone, *hash, true)?;
        let label = Name::from_wire(zone.node(found).name()).ok()?.labels().next()?;
        (nsec3::from_base32hex(label)? == *hash).then_some(found)
    }

    /// The last node whose hash is below `hash`, or `or_same`.
    fn last_of(&self, zone: &Zone, hash: Hash, or_same: bool) -> Option<NodeId> {
        let has_record = |id| zone.live_node(id).is_some_and(|node| self.has_record(node));
        self.ring.last(hash, |_| or_same, by_hash, has_record)
    }

    fn has_record(&self, node: Node<'_>) -> bool {
        hash_of_record(node, self.parameters()).is_some()
    }
}

/// Not below any other one.
const LAST_HASH: Hash = [u8::MAX; size_of::<Hash>()];

fn by_hash((one, _): &(Hash, NodeId), (other, _): &(Hash, NodeId)) -> Ordering {
    one.cmp(other)
}

/// The hash that a node's NSEC3 record of these parameters stands for.
fn hash_of_record(node: Node<'_>, parameters: Parameters<'_>) -> Option<Hash> {
    let is_of_chain = |rdata| Parameters::split_from(rdata).is_some_and(|it| it.0 == parameters);
    let is_child = node.parent()?.parent().is_none();
    let has_record = is_child && node.rrset(Rtype::NSEC3)?.records().any(is_of_chain);
    let label = Name::from_wire(node.name()).ok()?.labels().next()?;
    nsec3::from_base32hex(label).filter(|_| has_record)
}

impl Chain {
    /// The chain of a zone whose records are complete. A zone with NSEC3PARAM is denied by NSEC3 (RFC 5155, 7.3), if it has such records.
    pub(crate) fn of(zone: &Zone) -> Chain {
        if let Some(hashes) = parameters(zone).find_map(|parameters| Hashes::of(zone, parameters)) {
            return Chain::Nsec3(hashes);
        }
        if !has_nsec(zone.apex()) {
            return Chain::None;
        }
        if is_compact(zone) {
            return Chain::Compact;
        }
        Chain::Nsec(Names::new(Ordered::new(in_canonical_order(zone, has_nsec))))
    }

    /// The chain of the next version, in which these nodes may be others. `None` if that cannot be said without a look at all.
    pub(crate) fn after(&self, zone: &Zone, touched: &[NodeId]) -> Option<Chain> {
        let is_hashed = parameters(zone).next().is_some();
        match self {
            Chain::None => (!is_hashed && !has_nsec(zone.apex())).then_some(Chain::None),
            Chain::Compact => (!is_hashed && is_compact(zone)).then_some(Chain::Compact),
            Chain::Nsec(names) if !is_hashed && has_nsec(zone.apex()) && !is_compact(zone) => {
                let mut ordered = names.ordered.clone();
                let nodes = touched.iter().filter_map(|id| zone.live_node(*id));
                nodes
                    .filter(|node| has_nsec(*node))
                    .for_each(|node| ordered.add(entry_of(node), by_name(zone)));
                Some(Chain::Nsec(Names::new(ordered)))
            }
            Chain::Nsec(_) => None,
            Chain::Nsec3(hashes) => hashes.after(zone, touched).map(Chain::Nsec3),
        }
    }

    pub(crate) fn memory(&self) -> usize {
        match self {
            Chain::None | Chain::Compact => 0,
            Chain::Nsec(names) => names.ordered.memory(),
            Chain::Nsec3(hashes) => hashes.ring.memory() + hashes.matching.memory(),
        }
    }
}

/// The nodes that are wanted, in canonical order.
pub(crate) fn in_canonical_order(zone: &Zone, is_wanted: impl Fn(Node<'_>) -> bool) -> Vec<(u64, NodeId)> {
    let mut names: Vec<_> = zone.nodes().filter(|node| is_wanted(*node)).map(entry_of).collect();
    names.sort_by(by_name(zone)); // Stable, as files are mostly in order already.
    names
}

fn has_nsec(node: Node<'_>) -> bool {
    node.rrset(Rtype::NSEC).is_some()
}

fn entry_of(node: Node<'_>) -> (u64, NodeId) {
    (key(name_of(node), node.zone().depths.0), node.id())
}

/// The canonical order (RFC 4034, 6.1) of nodes with keys.
fn by_name(zone: &Zone) -> impl Fn(&(u64, NodeId), &(u64, NodeId)) -> Ordering {
    let name = |id| name_of(zone.node(id));
    move |(one, a), (other, b)| one.cmp(other).then_with(|| name(*a).cmp(&name(*b)))
}

/// Finds the records of a signed zone that deny.
#[derive(Clone, Copy, Debug)]
pub enum Denial<'z> {
    /// By names.
    Nsec(Nsec<'z>),
    /// By hashes of names.
    Nsec3(Nsec3<'z>),
    /// By NSEC records of which each denies types at its own name alone (RFC 9824). Only who has the zone's keys can deny names.
    Compact,
}

impl<'z> Denial<'z> {
    pub(crate) fn of(zone: &'z Zone) -> Option<Denial<'z>> {
        match &zone.chain {
            Chain::None => None,
            Chain::Compact => Some(Denial::Compact),
            Chain::Nsec(names) => Some(Denial::Nsec(Nsec { zone, names })),
            Chain::Nsec3(hashes) => Some(Denial::Nsec3(Nsec3 { zone, hashes })),
        }
    }
}

/// The names of a zone with NSEC records, in canonical order.
#[derive(Clone, Copy, Debug)]
pub struct Nsec<'z> {
    zone: &'z Zone,
    names: &'z Names,
}

impl<'z> Nsec<'z> {
    /// The last node that is `name` or stands in front of it: its record matches the name, or covers it.
    ///
    /// `name` is at or below the origin.
    pub fn at_or_before(self, name: Name<'_>) -> Node<'z> {
        self.last(name, false)
    }

    /// The last node in front of `name`, which is below the origin.
    pub fn before(self, name: Name<'_>) -> Node<'z> {
        self.last(name, true)
    }

    /// As [`Nsec::at_or_before`], for the wildcard below the apex; `None` if its name would be too long.
    pub fn at_or_before_wildcard(self) -> Option<Node<'z>> {
        let find = || {
            let mut wildcard = NameBuf::from(self.zone.origin());
            wildcard.prepend(b"*").ok()?;
            Some(self.at_or_before(wildcard.as_name()).id())
        };
        self.names.at_wildcard.get_or_init(find).map(|id| self.zone.node(id))
    }

    fn last(self, name: Name<'_>, is_before: bool) -> Node<'z> {
        let wanted = key(name, self.zone.depths.0);
        let last_order = if is_before { Ordering::Less } else { Ordering::Equal };
        let is_within = |id| name_of(self.zone.node(id)).cmp(&name) <= last_order;
        let has_record = |id| self.zone.live_node(id).is_some_and(has_nsec);
        let found = self.names.ordered.last(wanted, is_within, by_name(self.zone), has_record);
        self.zone.node(found.unwrap_or(NodeId(0))) // The first one is the apex.
    }
}

/// The hashes of a zone with NSEC3 records, in order.
#[derive(Clone, Copy, Debug)]
pub struct Nsec3<'z> {
    zone: &'z Zone,
    hashes: &'z Hashes,
}

impl<'z> Nsec3<'z> {
    /// How names are hashed.
    pub fn parameters(self) -> Parameters<'z> {
        self.hashes.parameters()
    }

    /// The node of the record that stands for a hash.
    pub fn find(self, hash: &Hash) -> Option<Node<'z>> {
        self.hashes.find(self.zone, hash).map(|id| self.zone.node(id))
    }

    /// The node of the last record whose hash is `hash` or in front of it; in front of the first one is the last one: they form a ring.
    pub fn at_or_before(self, hash: &Hash) -> Option<Node<'z>> {
        self.last_or_end(*hash, true)
    }

    /// The hash in front of another one, in the same way.
    pub fn before(self, hash: &Hash) -> Option<Hash> {
        let node = self.last_or_end(*hash, false)?;
        hash_of_record(node, self.hashes.parameters())
    }

    fn last_or_end(self, hash: Hash, or_same: bool) -> Option<Node<'z>> {
        let last = self.hashes.last_of(self.zone, hash, or_same);
        let found = last.or_else(|| self.hashes.last_of(self.zone, LAST_HASH, true));
        found.map(|id| self.zone.node(id))
    }

    /// The node whose record matches the name of `node`.
    pub fn matching(self, node: Node<'_>) -> Option<Node<'z>> {
        let number = *self.hashes.matching.get(node.id().0 as usize)?;
        let record = self.zone.live_node(NodeId(number))?; // [`NONE`] is the number of no node.
        self.hashes.has_record(record).then_some(record)
    }

    /// The node whose record covers `name`, which has no hash of its own in the zone. Takes as many hashes as the zone has iterations.
    ///
    /// `None` if the zone has lost all its records.
    pub fn covering(self, name: Name<'_>) -> Option<Node<'z>> {
        self.at_or_before(&self.hashes.parameters().hash(name))
    }
}

/// How the names of the zone may be hashed: its NSEC3PARAM records that say how (RFC 5155, 4.1.2: their flags are 0).
fn parameters(zone: &Zone) -> impl Iterator<Item = Parameters<'_>> {
    let records = zone.apex().rrset(Rtype::NSEC3PARAM).into_iter().flat_map(Rrset::records);
    records.filter_map(|rdata| match Parameters::split_from(rdata)? {
        (parameters, 0, _) if parameters.iterations <= ITERATIONS_MAX => Some(parameters),
        _ => None,
    })
}

/// More iterations than this are not computed for strangers. Validators take no such proof since RFC 9276, which wants none at all.
const ITERATIONS_MAX: u16 = 500;

fn name_of(node: Node<'_>) -> Name<'_> {
    Name::from_wire(node.name()).expect("the tree holds valid names")
}

/// The first octets of what sorts as names do (RFC 4034, 6.1): labels from the right in lower case, each ended by a zero. `depth` labels,
/// the origin's, are left out. Names with different keys are in the order of their keys.
///
/// Within labels the octets 0 and 1 become two octets, so that a label's end sorts in front of whatever may follow there.
fn key(name: Name<'_>, depth: u8) -> u64 {
    let starts = LabelStarts::of(name);
    let (mut key, mut room) = (0, u64::BITS);
    let mut push = |octet: u8| {
        room = room.saturating_sub(u8::BITS);
        key |= u64::from(octet) << room;
        room > 0
    };
    for labels in depth + 1..=starts.count() {
        let (len, rest) =
            name.as_bytes()[starts.of_last(labels)..].split_first().expect("a label has a length");
        for octet in &rest[..usize::from(*len)] {
            let has_room = match octet {
                0 | 1 => push(1) && push(octet + 1),
                octet => push(octet.to_ascii_lowercase()),
            };
            if !has_room {
                return key;
            }
        }
        if !push(0) {
            return key;
        }
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ZoneBuilder, ZoneEditor};

    fn name(text: &str) -> NameBuf {
        NameBuf::from_text(text.as_bytes(), None).unwrap()
    }

    /// A zone in which each of these names has an NSEC record.
    fn zone(names: &[String]) -> Zone {
        let mut builder = ZoneBuilder::new(name("example.").as_name(), 5);
        builder.add(name("example.").as_name(), 60, Rtype::SOA, &[0; 22]).unwrap();
        for owner in names.iter().map(String::as_str).chain(["example."]) {
            builder.add(name(owner).as_name(), 60, Rtype::NSEC, b"\0").unwrap();
        }
        builder.finish().unwrap()
    }

    fn names(zone: &Zone) -> Nsec<'_> {
        match zone.denial() {
            Some(Denial::Nsec(names)) => names,
            _ => panic!("it has NSEC records"),
        }
    }

    #[test]
    fn names_whose_keys_are_the_same_are_told_apart() {
        // Of "customer-00" and the rest a key has the first eight octets.
        let owners: Vec<String> =
            (0..50).map(|number| format!("customer-{:02}.example.", 2 * number)).collect();
        let zone = zone(&owners);
        let names = names(&zone);
        let owner_of = |node: Node<'_>| name_of(node).to_string();
        for (number, owner) in owners.iter().enumerate() {
            let before = if number == 0 { "example." } else { &*owners[number - 1] };
            assert_eq!(owner_of(names.at_or_before(name(owner).as_name())), *owner);
            assert_eq!(owner_of(names.before(name(owner).as_name())), before);
            let between = name(&format!("customer-{:02}.example.", 2 * number + 1));
            assert_eq!(owner_of(names.at_or_before(between.as_name())), *owner);
            assert_eq!(owner_of(names.before(between.as_name())), *owner);
        }
    }

    #[test]
    fn each_version_has_its_own_record_at_the_wildcard() {
        let first = zone(&["a.example.".to_owned()]);
        let denies = |zone: &Zone| name_of(names(zone).at_or_before_wildcard().unwrap()).to_string();
        assert_eq!(denies(&first), "example.");
        let mut editor = ZoneEditor::new(&first);
        editor.add(name("!.example.").as_name(), 60, Rtype::NSEC, b"\0").unwrap();
        let second = editor.finish().unwrap().zone;
        assert_eq!((denies(&first), denies(&second)), ("example.".to_owned(), "!.example.".to_owned()));
    }

    #[test]
    fn signatures_are_found_wherever_they_stand() {
        let signature = |covered: Rtype| [&covered.0.to_be_bytes()[..], &[0; 20]].concat();
        for is_behind in [true, false] {
            let mut builder = ZoneBuilder::new(name("example.").as_name(), 5);
            let mut add =
                |rtype, rdata: &[u8]| builder.add(name("example.").as_name(), 60, rtype, rdata).unwrap();
            let signatures = [Rtype::SOA, Rtype::NSEC].map(signature);
            if !is_behind {
                signatures.iter().for_each(|rdata| add(Rtype::RRSIG, rdata));
            }
            add(Rtype::SOA, &[0; 22]);
            add(Rtype::NSEC, b"\0");
            add(Rtype::TXT, b"\0");
            if is_behind {
                signatures.iter().for_each(|rdata| add(Rtype::RRSIG, rdata));
            }
            let zone = builder.finish().unwrap();
            let covered = |rtype| {
                let set = zone.apex().rrset(rtype).unwrap();
                zone.apex().signatures_of(set).and_then(Rrset::covered)
            };
            assert_eq!(covered(Rtype::NSEC), Some(Rtype::NSEC));
            assert_eq!((covered(Rtype::SOA), covered(Rtype::TXT)), (Some(Rtype::SOA), None));
        }
    }
}
