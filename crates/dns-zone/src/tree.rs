//! The zone tree: names, their record sets, and what RFC 1034, 4.3.2 needs to know about each.
//!
//! Nodes are numbers into one array, found by an index over whole names; a name's ancestors up to the origin always exist as nodes too, so
//! an empty non-terminal (RFC 4592, 2.2.2) is a node without record sets. Parents precede their children.
//!
//! A version never changes. The next one is made from records by a [`ZoneBuilder`](crate::ZoneBuilder), or from this one by a
//! [`ZoneEditor`](crate::ZoneEditor), and shares with it what both have. A removed name keeps its node, marked, in case it comes back.

use dns_wire::{LabelStarts, Name, NameBuf, Rtype, fold};

use crate::denial::{Chain, Denial, in_canonical_order};
use crate::index::Index;
use crate::offset::Offset;
use crate::versioned::{Array, Octets};

/// One version of a zone. A copy is cheap: it shares all with the original.
#[derive(Clone, Debug)]
pub struct Zone {
    pub(crate) origin: NameBuf,
    pub(crate) nodes: Array<NodeEntry>,
    /// Owner names as written in the zone, wire format, one after the other.
    pub(crate) names: Octets,
    pub(crate) rrsets: Array<RrsetEntry>,
    /// Records: the offset of the next one of the RRset, the length of the data, the data.
    pub(crate) records: Octets,
    pub(crate) index: Index,
    pub(crate) seed: u64,
    pub(crate) record_count: usize,
    /// Labels of the origin, and of the longest name.
    pub(crate) depths: (u8, u8),
    pub(crate) chain: Chain,
    /// Whether there are signatures, or were in a version before.
    pub(crate) is_signed: bool,
    /// The same of NSEC3 records.
    pub(crate) is_hashed: bool,
    /// Names that editors have changed since the zone was built, each as often as it was.
    pub(crate) changes: usize,
    /// Names that are no more, whose places are kept.
    pub(crate) removed: usize,
}

/// Numbers a node within its zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId(pub(crate) u32);

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NodeEntry {
    pub(crate) name: Offset,
    pub(crate) name_len: u8,
    pub(crate) flags: u8,
    pub(crate) first_rrset: u32,
    pub(crate) parent: u32,
    /// The child that came last, and the one that its parent had before: a removed one remains.
    pub(crate) last_child: u32,
    pub(crate) sibling: u32,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RrsetEntry {
    pub(crate) next: u32,
    pub(crate) first_record: Offset,
    pub(crate) last_record: Offset,
    pub(crate) ttl: u32,
    pub(crate) rtype: Rtype,
    pub(crate) count: u16,
}

/// Ends a list of RRsets or of children.
pub(crate) const NONE: u32 = u32::MAX;

pub(crate) mod node_flag {
    /// NS records below the apex: a zone cut.
    pub(crate) const CUT: u8 = 1;
    /// A DNAME: names below are redirected.
    pub(crate) const DNAME: u8 = 2;
    /// Not in this version.
    pub(crate) const REMOVED: u8 = 4;
    /// Has a child `*`, or had one in a version before.
    pub(crate) const WILDCARD_CHILD: u8 = 8;
    /// A CNAME.
    pub(crate) const CNAME: u8 = 16;
    /// Holds an NSEC3 record, and nothing but its signatures: the name itself does not exist (RFC 5155, 7.2.8).
    pub(crate) const HASHED: u8 = 32;
    /// What it has depends on the line of the client. Such a name exists for all lines, with records or without.
    pub(crate) const VARIED: u8 = 64;
    /// What of its records is given is chosen anew for each answer, or changes with the health of hosts.
    pub(crate) const CHOSEN: u8 = 128;
}

/// What answers about a name depend on besides the zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// The line of the client. Such a name exists for all lines, with records or without.
    pub varied: bool,
    /// A choice among its records, by weight and health.
    pub chosen: bool,
}

impl Marks {
    pub(crate) fn flags(self) -> u8 {
        let flag = |is_set: bool, flag| if is_set { flag } else { 0 };
        flag(self.varied, node_flag::VARIED) | flag(self.chosen, node_flag::CHOSEN)
    }
}

impl Zone {
    /// The name of the apex.
    pub fn origin(&self) -> Name<'_> {
        self.origin.as_name()
    }

    /// The node at the origin.
    pub fn apex(&self) -> Node<'_> {
        self.node(NodeId(0))
    }

    /// The SOA record set.
    pub fn soa(&self) -> Rrset<'_> {
        self.apex().rrset(Rtype::SOA).expect("no zone is built without a SOA")
    }

    /// SERIAL of the SOA.
    pub fn serial(&self) -> u32 {
        soa_field(self.soa(), 0)
    }

    /// TTL of negative answers: the lesser of the SOA's TTL and its MINIMUM (RFC 2308, 5).
    pub fn negative_ttl(&self) -> u32 {
        self.soa_of_denials().1
    }

    /// The SOA, and [`Zone::negative_ttl`].
    pub fn soa_of_denials(&self) -> (Rrset<'_>, u32) {
        let soa = self.soa();
        (soa, soa.ttl().min(soa_field(soa, 4)))
    }

    /// What keys the hashes of this version's names.
    pub fn hash_seed(&self) -> u64 {
        self.seed
    }

    /// Number of records.
    pub fn record_count(&self) -> usize {
        self.record_count
    }

    /// Places of [`Zone::node_at`].
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Number of names, those included that only lead to others.
    pub fn name_count(&self) -> usize {
        self.nodes.len() - self.removed
    }

    /// Octets of memory that the tree holds.
    pub fn memory(&self) -> usize {
        self.nodes.memory()
            + self.names.memory()
            + self.rrsets.memory()
            + self.records.memory()
            + self.index.memory()
            + self.chain.memory()
    }

    /// Whether there are signatures in the zone, or were in a version of which this one was made.
    pub fn is_signed(&self) -> bool {
        self.is_signed
    }

    /// What proves that a name does not exist, or has no records of some type; `None` in a zone that is not signed.
    pub fn denial(&self) -> Option<Denial<'_>> {
        Denial::of(self)
    }

    /// All nodes, parents before children.
    pub fn nodes(&self) -> impl Iterator<Item = Node<'_>> {
        (0..self.nodes.len()).filter_map(|place| self.node_at(place)).filter(|node| !node.is_removed())
    }

    /// The names that are wanted, in canonical order (RFC 4034, 6.1).
    pub fn in_canonical_order(&self, is_wanted: impl Fn(Node<'_>) -> bool) -> impl Iterator<Item = Node<'_>> {
        in_canonical_order(self, is_wanted).into_iter().map(|(_, id)| self.node(id))
    }

    /// The node at this place in the order of [`Zone::nodes`], for readers that go on later where they stopped. That of a removed name has no
    /// record sets.
    pub fn node_at(&self, place: usize) -> Option<Node<'_>> {
        let entry = self.nodes.get(place)?;
        Some(Node { zone: self, id: NodeId(place as u32), entry }) // Nodes are numbered in 32 bits.
    }

    /// The node with this number, of this version.
    #[inline(always)]
    pub(crate) fn node(&self, id: NodeId) -> Node<'_> {
        let entry = self.nodes.get(id.0 as usize).expect("nodes are never taken away");
        Node { zone: self, id, entry }
    }

    /// The node with this number, if this version has it.
    pub fn live_node(&self, id: NodeId) -> Option<Node<'_>> {
        self.node_at(id.0 as usize).filter(|node| !node.is_removed())
    }

    /// The name of this number, whether this version has it or not.
    ///
    /// # Panics
    /// If the number is of another zone.
    pub fn name(&self, id: NodeId) -> Name<'_> {
        Name::from_wire(self.node(id).name()).expect("the tree holds valid names")
    }

    /// The node of `name`, an uncompressed wire-format name; case does not matter.
    #[inline(always)]
    pub fn find(&self, name: &[u8]) -> Option<Node<'_>> {
        self.find_kept(name).filter(|node| !node.is_removed())
    }

    /// The node of `name`, removed or not.
    #[inline(always)]
    pub(crate) fn find_kept(&self, name: &[u8]) -> Option<Node<'_>> {
        let hash = fold::hash_name(name, self.seed);
        let matches = |id| fold::equal(self.node(NodeId(id)).name(), name);
        self.index.find(hash, matches).map(|id| self.node(NodeId(id)))
    }

    /// The longest existing ancestor of `name`, or `name`'s own node: the closest encloser (RFC 4592, 3.3.1).
    ///
    /// All ancestors of a node are nodes, so the search halves the labels that are in question, of which there are no more than
    /// those of the zone's longest name.
    ///
    /// # Panics
    /// If `name` is not at or below the origin, or `labels` are not its.
    pub fn closest_encloser(&self, name: &[u8], labels: &LabelStarts) -> Node<'_> {
        let (mut exists, longest) = self.depths;
        let mut encloser = None;
        let mut may_exist = labels.count().min(longest);
        while exists < may_exist {
            let middle = exists + (may_exist - exists).div_ceil(2);
            match self.find(&name[labels.of_last(middle)..]) {
                Some(node) => (encloser, exists) = (Some(node), middle),
                None => may_exist = middle - 1,
            }
        }
        let encloser = encloser.filter(|node| node.entry.flags & node_flag::HASHED == 0);
        encloser.unwrap_or_else(|| {
            assert!(labels.count() >= self.depths.0, "the origin is above every name that is asked for");
            self.apex() // The owner of an NSEC3 record is a child of the apex.
        })
    }
}

/// A name of the zone, with what lies there.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    zone: &'a Zone,
    id: NodeId,
    entry: &'a NodeEntry,
}

impl<'a> Node<'a> {
    /// The node's number.
    pub fn id(self) -> NodeId {
        self.id
    }

    /// The owner name in wire format, as written in the zone.
    #[inline(always)]
    pub fn name(self) -> &'a [u8] {
        let names = self.zone.names.get(self.entry.name.get()).expect("a node has a name");
        &names[..usize::from(self.entry.name_len)]
    }

    /// The node one label up; `None` at the apex.
    pub fn parent(self) -> Option<Node<'a>> {
        (self.id.0 != 0).then(|| self.zone.node(NodeId(self.entry.parent)))
    }

    /// Whether authority ends here: NS records below the apex.
    pub fn is_cut(self) -> bool {
        self.entry.flags & node_flag::CUT != 0
    }

    /// Whether a DNAME redirects all names below.
    pub fn has_dname(self) -> bool {
        self.entry.flags & node_flag::DNAME != 0
    }

    /// Whether a cut or a DNAME above hides this name: glue, or data that no query reaches.
    pub fn is_occluded(self) -> bool {
        self.ancestors().skip(1).any(|above| above.is_cut() || above.has_dname())
    }

    pub(crate) fn zone(self) -> &'a Zone {
        self.zone
    }

    pub(crate) fn first_rrset(self) -> u32 {
        self.entry.first_rrset
    }

    /// Whether the name is not in this version.
    pub(crate) fn is_removed(self) -> bool {
        self.entry.flags & node_flag::REMOVED != 0
    }

    /// The node itself, its parent, and so on up to the apex.
    pub fn ancestors(self) -> impl Iterator<Item = Node<'a>> {
        std::iter::successors(Some(self), |node| node.parent())
    }

    /// The names one label below, of any version; the last one first.
    pub(crate) fn children(self) -> impl Iterator<Item = Node<'a>> {
        let zone = self.zone;
        let next = move |id: u32| (id != NONE).then(|| zone.node(NodeId(id)));
        std::iter::successors(next(self.entry.last_child), move |child| next(child.entry.sibling))
    }

    /// All names below, however deep.
    pub fn below(self) -> impl Iterator<Item = Node<'a>> {
        let mut left = vec![self];
        std::iter::from_fn(move || {
            let node = left.pop()?;
            left.extend(node.children().filter(|child| !child.is_removed()));
            Some(node)
        })
        .skip(1)
    }

    /// Whether this is only the owner of an NSEC3 record, and no name of the zone (RFC 5155, 7.2.8).
    pub fn is_hashed(self) -> bool {
        self.entry.flags & node_flag::HASHED != 0
    }

    /// Whether some line has other records here than others.
    #[inline(always)]
    pub fn is_varied(self) -> bool {
        self.entry.flags & node_flag::VARIED != 0
    }

    /// What answers about the name depend on besides the zone.
    #[inline(always)]
    pub fn marks(self) -> Marks {
        Marks { varied: self.is_varied(), chosen: self.entry.flags & node_flag::CHOSEN != 0 }
    }

    /// Whether there is a CNAME.
    pub fn has_cname(self) -> bool {
        self.entry.flags & node_flag::CNAME != 0
    }

    /// The child `*`, the source of synthesis for names below that do not exist (RFC 4592, 3.3.1).
    pub fn wildcard(self) -> Option<Node<'a>> {
        if self.entry.flags & node_flag::WILDCARD_CHILD == 0 {
            return None;
        }
        let mut name = NameBuf::root();
        name.set(Name::from_wire(self.name()).ok()?);
        name.prepend(b"*").ok()?;
        self.zone.find(name.as_name().as_bytes())
    }

    /// The topmost cut or DNAME at or above this node: where the search of RFC 1034, 4.3.2 leaves the zone's own data.
    pub fn topmost_boundary(self) -> Option<Node<'a>> {
        self.ancestors().filter(|node| node.is_cut() || node.has_dname()).last()
    }

    /// The record set of this type; of RRSIG, which has one for each type covered, the first.
    #[inline(always)]
    pub fn rrset(self, rtype: Rtype) -> Option<Rrset<'a>> {
        self.rrsets().find(|rrset| rrset.rtype() == rtype)
    }

    /// The signatures of the record set of this type.
    pub fn signatures(self, rtype: Rtype) -> Option<Rrset<'a>> {
        self.rrsets().find(|rrset| rrset.covered() == Some(rtype))
    }

    /// The same of one of the node's record sets, which zones mostly bring in front of its signatures.
    #[inline]
    pub fn signatures_of(self, rrset: Rrset<'a>) -> Option<Rrset<'a>> {
        let mut behind = self.rrsets_from(rrset.entry.next);
        behind.find(|it| it.covered() == Some(rrset.rtype())).or_else(|| self.signatures(rrset.rtype()))
    }

    /// The record set that denies names behind the node, if it is one that does.
    #[inline]
    pub fn denying(self) -> Option<Rrset<'a>> {
        self.rrsets().find(|rrset| matches!(rrset.rtype(), Rtype::NSEC | Rtype::NSEC3))
    }

    /// All record sets, in the order in which the zone brought them.
    #[inline(always)]
    pub fn rrsets(self) -> impl Iterator<Item = Rrset<'a>> {
        self.rrsets_from(self.entry.first_rrset)
    }

    /// Those of them from a place in the list on.
    #[inline(always)]
    fn rrsets_from(self, mut next: u32) -> impl Iterator<Item = Rrset<'a>> {
        let zone = self.zone;
        std::iter::from_fn(move || {
            let entry = zone.rrsets.get(next as usize)?;
            next = entry.next;
            Some(Rrset { zone, entry })
        })
    }
}

/// The records of one name and type; of RRSIG records, those that cover one type (RFC 4034, 3).
#[derive(Clone, Copy, Debug)]
pub struct Rrset<'a> {
    pub(crate) zone: &'a Zone,
    pub(crate) entry: &'a RrsetEntry,
}

impl<'a> Rrset<'a> {
    /// Their type.
    #[inline(always)]
    pub fn rtype(self) -> Rtype {
        self.entry.rtype
    }

    /// The type of the set that these signatures cover; `None` for other sets.
    pub fn covered(self) -> Option<Rtype> {
        type_covered(self.entry.rtype, record(&self.zone.records, self.entry.first_record).1)
    }

    /// Their TTL in seconds, one for all (RFC 2181, 5.2).
    #[inline(always)]
    pub fn ttl(self) -> u32 {
        self.entry.ttl
    }

    /// Number of records, at least one.
    #[inline(always)]
    pub fn count(self) -> u16 {
        self.entry.count
    }

    /// The data of each record: wire format, names not compressed.
    #[inline(always)]
    pub fn records(self) -> impl Iterator<Item = &'a [u8]> + Clone {
        let zone = self.zone;
        let mut next = self.entry.first_record;
        std::iter::from_fn(move || {
            let rdata;
            (next, rdata) = (next != Offset::NONE).then(|| record(&zone.records, next))?;
            Some(rdata)
        })
    }
}

/// Octets of the offset of the next record, in front of a record's length and data.
pub(crate) const NEXT_LEN: usize = 6;

/// The record at `at`: the offset of the next one, and the data.
#[inline(always)]
pub(crate) fn record(records: &Octets, at: Offset) -> (Offset, &[u8]) {
    let octets = records.get(at.get()).expect("a record is where it was put");
    let (head, rest) = octets.split_first_chunk::<8>().expect("a record has a head");
    let [next @ .., low, high] = *head;
    (Offset::from_octets(next), &rest[..usize::from(u16::from_le_bytes([low, high]))])
}

/// The type whose record set a signature covers; `None` for other types.
pub(crate) fn type_covered(rtype: Rtype, rdata: &[u8]) -> Option<Rtype> {
    let covered = rdata.first_chunk::<2>().filter(|_| rtype == Rtype::RRSIG)?;
    Some(Rtype(u16::from_be_bytes(*covered)))
}

/// Drops the first label of an uncompressed name; `None` for the root.
pub(crate) fn parent(name: &[u8]) -> Option<&[u8]> {
    match name.first() {
        None | Some(0) => None,
        Some(&len) => name.get(1 + usize::from(len)..),
    }
}

/// The `index`-th of the five numbers behind the two names of a SOA: SERIAL, REFRESH, RETRY, EXPIRE, MINIMUM.
fn soa_field(soa: Rrset<'_>, index: usize) -> u32 {
    let rdata = soa.records().next().expect("a record set has a record");
    let numbers = rdata.last_chunk::<20>().expect("the builder checked the length of the SOA");
    u32::from_be_bytes(numbers[4 * index..4 * index + 4].try_into().expect("four octets of twenty"))
}
