//! The order of a signed zone's names, to find the records that prove what is not there.
//!
//! A zone is signed with NSEC records, in the canonical order of names (RFC 4034, 6.1), or with NSEC3 records, in the order of their
//! hashes (RFC 5155, 7.1). Both are kept as a sorted array of nodes with a key beside each, so that a search seldom leaves it.

use std::cmp::Ordering;

use dns_wire::{LabelStarts, Name, Rtype};
use nsec3::{Hash, Parameters};

use crate::tree::{NONE, Node, NodeId, Rrset, Zone};

/// The nodes whose records deny.
#[derive(Debug, Default)]
pub(crate) enum Chain {
    /// There are none: the zone is not signed.
    #[default]
    None,
    /// Those with NSEC records, and for each the start of its name's [`key`].
    Nsec(Vec<(u64, NodeId)>),
    /// Those with NSEC3 records.
    Nsec3(Hashes),
}

/// The NSEC3 records of one set of parameters.
#[derive(Debug)]
pub(crate) struct Hashes {
    iterations: u16,
    salt: Box<[u8]>,
    /// In order, the nodes of the records, and the hash that each stands for.
    ring: Vec<(Hash, NodeId)>,
    /// For each node of the zone the one whose record stands for it, or [`NONE`]: no name that exists is hashed for an answer.
    matching: Vec<u32>,
}

impl Hashes {
    /// The records of these parameters; `None` if there are none.
    fn of(zone: &Zone, parameters: Parameters<'_>) -> Option<Hashes> {
        let hash = |node: Node<'_>| {
            let is_of_chain = |rdata| Parameters::split_from(rdata).is_some_and(|it| it.0 == parameters);
            let label = Name::from_wire(node.name()).ok()?.labels().next()?;
            let is_child = node.parent()?.id() == zone.apex().id();
            let has_record = is_child && node.rrset(Rtype::NSEC3)?.records().any(is_of_chain);
            Some((nsec3::from_base32hex(label).filter(|_| has_record)?, node.id()))
        };
        let mut ring: Vec<_> = zone.nodes().filter_map(hash).collect();
        ring.sort_unstable_by_key(|(hash, _)| *hash);
        ring.shrink_to_fit();
        let record_of = |node: Node<'_>| {
            let is_name = !node.is_hashed() && !node.is_occluded();
            let wanted = is_name.then(|| parameters.hash(name_of(node)))?;
            Some(ring[ring.binary_search_by_key(&wanted, |(hash, _)| *hash).ok()?].1.0)
        };
        let matching = match &ring[..] {
            [] => return None,
            _ => zone.nodes().map(|node| record_of(node).unwrap_or(NONE)).collect(),
        };
        Some(Hashes { iterations: parameters.iterations, salt: parameters.salt.into(), ring, matching })
    }
}

impl Chain {
    /// The chain of a zone whose records are complete. A zone with NSEC3PARAM is denied by NSEC3 (RFC 5155, 7.3), if it has such records.
    pub(crate) fn of(zone: &Zone) -> Chain {
        if let Some(hashes) = parameters(zone).find_map(|parameters| Hashes::of(zone, parameters)) {
            return Chain::Nsec3(hashes);
        }
        if zone.apex().rrset(Rtype::NSEC).is_none() {
            return Chain::None;
        }
        let depth = zone.depths.0;
        let denying = zone.nodes().filter(|node| node.rrset(Rtype::NSEC).is_some());
        let mut names: Vec<_> = denying.map(|node| (key(name_of(node), depth), node.id())).collect();
        let name = |id| name_of(zone.node(id));
        // Stable, as files are mostly in order already.
        names.sort_by(|(one, a), (other, b)| one.cmp(other).then_with(|| name(*a).cmp(&name(*b))));
        names.shrink_to_fit();
        Chain::Nsec(names)
    }

    pub(crate) fn memory(&self) -> usize {
        match self {
            Chain::None => 0,
            Chain::Nsec(names) => names.capacity() * size_of::<(u64, NodeId)>(),
            Chain::Nsec3(hashes) => {
                hashes.ring.capacity() * size_of::<(Hash, NodeId)>()
                    + hashes.matching.capacity() * size_of::<u32>()
            }
        }
    }
}

/// Finds the records of a signed zone that deny.
#[derive(Clone, Copy, Debug)]
pub enum Denial<'z> {
    /// By names.
    Nsec(Nsec<'z>),
    /// By hashes of names.
    Nsec3(Nsec3<'z>),
}

impl<'z> Denial<'z> {
    pub(crate) fn of(zone: &'z Zone) -> Option<Denial<'z>> {
        match &zone.chain {
            Chain::None => None,
            Chain::Nsec(names) => Some(Denial::Nsec(Nsec { zone, names })),
            Chain::Nsec3(hashes) => Some(Denial::Nsec3(Nsec3 { zone, hashes })),
        }
    }
}

/// The names of a zone with NSEC records, in canonical order.
#[derive(Clone, Copy, Debug)]
pub struct Nsec<'z> {
    zone: &'z Zone,
    names: &'z [(u64, NodeId)],
}

impl<'z> Nsec<'z> {
    /// The last node that is `name` or stands in front of it: its record matches the name, or covers it.
    ///
    /// `name` is at or below the origin.
    pub fn at_or_before(self, name: Name<'_>) -> Node<'z> {
        let wanted = key(name, self.zone.depths.0);
        let beyond = self.names.partition_point(|(key, id)| {
            key.cmp(&wanted).then_with(|| name_of(self.zone.node(*id)).cmp(&name)) != Ordering::Greater
        });
        self.zone.node(self.names[beyond.saturating_sub(1)].1) // The first one is the apex.
    }
}

/// The hashes of a zone with NSEC3 records, in order.
#[derive(Clone, Copy, Debug)]
pub struct Nsec3<'z> {
    zone: &'z Zone,
    hashes: &'z Hashes,
}

impl<'z> Nsec3<'z> {
    /// The node whose record matches the name of `node`.
    pub fn matching(self, node: Node<'_>) -> Option<Node<'z>> {
        let number = *self.hashes.matching.get(node.id().0 as usize)?;
        (number != NONE).then(|| self.zone.node(NodeId(number)))
    }

    /// The node whose record covers `name`, which has no hash of its own in the zone. Takes as many hashes as the zone has iterations.
    pub fn covering(self, name: Name<'_>) -> Node<'z> {
        let Hashes { iterations, salt, ring, .. } = self.hashes;
        let wanted = Parameters { iterations: *iterations, salt }.hash(name);
        let beyond = ring.partition_point(|(hash, _)| *hash <= wanted);
        // In front of the first hash is the last one: they form a ring.
        let before = beyond.checked_sub(1).unwrap_or(ring.len() - 1);
        self.zone.node(ring[before].1)
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
    let octets = (depth + 1..=starts.count()).flat_map(|labels| {
        let (len, rest) =
            name.as_bytes()[starts.of_last(labels)..].split_first().expect("a label has a length");
        let label = &rest[..usize::from(*len)];
        let escaped = label.iter().flat_map(|octet| match octet {
            0 | 1 => [Some(1), Some(octet + 1)],
            octet => [Some(octet.to_ascii_lowercase()), None],
        });
        escaped.flatten().chain([0])
    });
    let mut key = [0; 8];
    key.iter_mut().zip(octets).for_each(|(to, octet)| *to = octet);
    u64::from_be_bytes(key)
}
