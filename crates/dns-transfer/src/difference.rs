//! What leads from one version of a zone to the next (RFC 1995, 4).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use dns_message::{Message, Record, push_record, serial_of};
use dns_wire::{Class, Name, NameBuf, Rtype};
use dns_zone::{Changed, Node, RecordError, Rrset, Zone, ZoneEditor};

/// The records of one difference, as a transfer has them: the old SOA, what is removed, the new SOA, what is added.
///
/// They are held in wire format, as a history holds many of them for as long as the server runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// One record after the other, without compression, as [`push_record`] writes them. All are whole and of class IN.
    octets: Box<[u8]>,
    /// Offset of the new SOA.
    added: usize,
}

/// A record of a difference, of class IN. Names in its data are not compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordRef<'d> {
    /// Its owner.
    pub owner: Name<'d>,
    /// Its type.
    pub rtype: Rtype,
    /// Seconds.
    pub ttl: u32,
    /// Its data.
    pub rdata: &'d [u8],
}

/// The records in octets that [`Difference`] has, one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Records<'d>(&'d [u8]);

impl<'d> Iterator for Records<'d> {
    type Item = RecordRef<'d>;

    fn next(&mut self) -> Option<RecordRef<'d>> {
        if self.0.is_empty() {
            return None;
        }
        let (record, rest) = RecordRef::split_from(self.0).expect("all records are whole");
        self.0 = rest;
        Some(record)
    }
}

impl<'d> RecordRef<'d> {
    /// Reads a record as [`push_record`] writes it, and returns what is behind it.
    fn split_from(octets: &'d [u8]) -> Option<(RecordRef<'d>, &'d [u8])> {
        let (owner, rest) = Name::split_from(octets).ok()?;
        let (&[rtype_high, rtype_low, _, _, a, b, c, d, len_high, len_low], rest) =
            rest.split_first_chunk()?;
        let (rdata, rest) = rest.split_at_checked(u16::from_be_bytes([len_high, len_low]).into())?;
        let rtype = Rtype(u16::from_be_bytes([rtype_high, rtype_low]));
        Some((RecordRef { owner, rtype, ttl: u32::from_be_bytes([a, b, c, d]), rdata }, rest))
    }

    /// What tells it from others, to the octet.
    fn key(self) -> Key<'d> {
        (self.owner.as_bytes(), self.rtype, self.ttl, self.rdata)
    }

    fn push_to(self, octets: &mut Vec<u8>) {
        push_record(octets, self.owner, self.rtype, Class::IN, self.ttl, self.rdata);
    }
}

/// Appends a record to those that a difference is made of.
pub(crate) fn push(octets: &mut Vec<u8>, record: &Record) {
    let Record { owner, rtype, ttl, rdata, .. } = record;
    RecordRef { owner: owner.as_name(), rtype: *rtype, ttl: *ttl, rdata }.push_to(octets);
}

/// Why differences cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// They are for another version, or remove what is not there.
    #[error("the differences do not fit the version that we have")]
    Version,
    /// A record that cannot be in the zone.
    #[error("the record {owner} {rtype}: {error}")]
    Record {
        /// Its owner.
        owner: Box<NameBuf>,
        /// Its type.
        rtype: Rtype,
        /// What is wrong with it.
        error: RecordError,
    },
}

impl Difference {
    /// A difference of these records, see [`push`]; `None` if it does not have its two SOA records, with serials.
    pub(crate) fn new(octets: Vec<u8>) -> Option<Difference> {
        let mut rest = Records(&octets);
        let mut soas = std::iter::from_fn(|| {
            let start = octets.len() - rest.0.len();
            rest.next().map(|record| (start, record))
        })
        .filter(|(_, record)| record.rtype == Rtype::SOA);
        let [(0, old), (added, new)] = [soas.next()?, soas.next()?] else { return None };
        let has_serials = [old, new].iter().all(|soa| serial_of(soa.rdata).is_some());
        if soas.next().is_some() || !has_serials {
            return None;
        }
        Some(Difference { octets: octets.into(), added })
    }

    /// The same of records that a primary has sent. A record that is removed and added cancels out: NSD sends what leads over several
    /// versions as one difference, where a record that came and went meanwhile is removed and added, and is in neither version.
    pub(crate) fn received(octets: Vec<u8>) -> Option<Difference> {
        let difference = Difference::new(octets)?;
        let [removed, added] = difference.halves();
        let mut rest = rest_of(removed.clone(), count(added.clone()));
        if rest.len() == difference.added {
            return Some(difference);
        }
        let new_soa = rest.len();
        rest.extend(rest_of(added, count(removed)));
        Some(Difference { octets: rest.into(), added: new_soa })
    }

    /// The serial of the version that it is for.
    pub fn from(&self) -> u32 {
        self.serial_at(0)
    }

    /// The serial of the version that it leads to.
    pub fn to(&self) -> u32 {
        self.serial_at(self.added)
    }

    fn serial_at(&self, offset: usize) -> u32 {
        serial_of(self.soa_at(offset).rdata).expect("it was checked when it was made")
    }

    fn soa_at(&self, offset: usize) -> RecordRef<'_> {
        Records(&self.octets[offset..]).next().expect("both SOA records are there")
    }

    /// All records in their order.
    pub fn records(&self) -> impl Iterator<Item = RecordRef<'_>> {
        Records(&self.octets)
    }

    /// The record at an offset, and the offset of the next one; `None` behind the last one.
    pub(crate) fn record_at(&self, offset: usize) -> Option<(RecordRef<'_>, usize)> {
        let mut records = Records(&self.octets[offset..]);
        let record = records.next()?;
        Some((record, self.octets.len() - records.0.len()))
    }

    /// What is removed, behind the old SOA, and what is added, behind the new one.
    pub(crate) fn halves(&self) -> [Records<'_>; 2] {
        let (removed, added) = self.octets.split_at(self.added);
        [Records(removed), Records(added)]
    }

    /// Whether nothing changes but the SOA.
    pub fn is_empty(&self) -> bool {
        self.halves().into_iter().all(|half| half.count() == 1)
    }

    /// Whether nothing changes at all.
    pub fn is_nothing(&self) -> bool {
        self.is_empty() && self.soa_at(0) == self.soa_at(self.added)
    }

    /// About as many octets as it takes in a message.
    pub fn octets(&self) -> usize {
        self.octets.len()
    }

    /// Octets of memory that it takes as one of a history.
    pub fn memory(&self) -> usize {
        /// What counts the references to it.
        const COUNTS: usize = 2 * size_of::<AtomicUsize>();
        size_of::<Arc<Difference>>() + COUNTS + size_of::<Difference>() + self.octets.len()
    }

    /// The records in wire format, one after the other.
    pub fn encode(&self) -> &[u8] {
        &self.octets
    }

    /// Reads what [`Difference::encode`] has written.
    pub fn decode(octets: &[u8]) -> Option<Difference> {
        let message = [&[0; 12], octets].concat(); // As if behind a header.
        let mut message = Message::parse(&message).ok()?;
        let mut records = Vec::with_capacity(octets.len());
        while !message.is_at_end() {
            let record = message.next_record().ok().filter(|record| record.class == Class::IN)?;
            push(&mut records, &record);
        }
        Difference::new(records)
    }

    /// What differs between two versions; `None` if it takes more than so many octets.
    pub fn between(old: &Zone, new: &Zone, octets_max: usize) -> Option<Difference> {
        let mut difference = Collected { octets: Vec::new(), octets_max };
        difference.add_missing(old.nodes(), old, new)?;
        let added = difference.octets.len();
        difference.add_missing(new.nodes(), new, old)?;
        Some(Difference { octets: difference.octets.into(), added })
    }

    /// What differs between two versions at these names, each of which is there once.
    pub fn at(old: &Zone, new: &Zone, names: &[NameBuf]) -> Difference {
        let nodes = |zone| names.iter().filter_map(move |name| Zone::find(zone, name.as_name().as_bytes()));
        let mut difference = Collected { octets: Vec::new(), octets_max: usize::MAX };
        difference.add_missing(nodes(old), old, new).expect("there is room for all");
        let added = difference.octets.len();
        difference.add_missing(nodes(new), new, old).expect("there is room for all");
        Difference { octets: difference.octets.into(), added }
    }
}

/// A record to its octets.
type Key<'r> = (&'r [u8], Rtype, u32, &'r [u8]);

/// How often each record of one half of a difference is there, apart from the SOA.
fn count(half: Records<'_>) -> BTreeMap<Key<'_>, usize> {
    let mut counts = BTreeMap::new();
    half.skip(1).for_each(|record| *counts.entry(record.key()).or_default() += 1);
    counts
}

/// One half of a difference without the records that `others` has, as often as it has them.
fn rest_of<'r>(half: Records<'r>, mut others: BTreeMap<Key<'r>, usize>) -> Vec<u8> {
    let mut rest = Vec::with_capacity(half.0.len());
    for record in half {
        // The SOA is not among them.
        match others.get_mut(&record.key()).filter(|count| **count > 0) {
            Some(count) => *count -= 1,
            None => record.push_to(&mut rest),
        }
    }
    rest
}

struct Collected {
    octets: Vec<u8>,
    octets_max: usize,
}

impl Collected {
    /// Adds the SOA of `zone`, and what `nodes` of it have and `other` has not, or has with another TTL.
    fn add_missing<'z>(
        &mut self,
        nodes: impl Iterator<Item = Node<'z>>,
        zone: &'z Zone,
        other: &Zone,
    ) -> Option<()> {
        let soa = zone.soa();
        soa.records().try_for_each(|rdata| self.add(zone.apex(), soa, rdata))?;
        for node in nodes {
            let there = other.find(node.name());
            for rrset in node.rrsets().filter(|rrset| rrset.rtype() != Rtype::SOA) {
                let same = |set: &Rrset<'_>| {
                    (set.rtype(), set.covered(), set.ttl()) == (rrset.rtype(), rrset.covered(), rrset.ttl())
                };
                let there = there.and_then(|node| node.rrsets().find(same));
                let has = |rdata: &[u8]| there.is_some_and(|set| set.records().any(|other| other == rdata));
                rrset
                    .records()
                    .filter(|rdata| !has(rdata))
                    .try_for_each(|rdata| self.add(node, rrset, rdata))?;
            }
        }
        Some(())
    }

    fn add(&mut self, node: Node<'_>, rrset: Rrset<'_>, rdata: &[u8]) -> Option<()> {
        let owner = Name::from_wire(node.name()).expect("the tree holds valid names");
        let (rtype, ttl) = (rrset.rtype(), rrset.ttl());
        RecordRef { owner, rtype, ttl, rdata }.push_to(&mut self.octets);
        (self.octets.len() <= self.octets_max).then_some(())
    }
}

/// The version that `differences` lead to from `held`, one after the other.
///
/// # Errors
/// One of them does not fit.
pub fn apply(held: &Zone, differences: &[Arc<Difference>]) -> Result<Changed, Unfit> {
    let mut editor = ZoneEditor::new(held);
    let mut soa: Vec<u8> = held.soa().records().next().map(<[u8]>::to_vec).unwrap_or_default();
    for difference in differences {
        if serial_of(&soa) != Some(difference.from()) {
            return Err(Unfit::Version);
        }
        let [removed, added] = difference.halves();
        for RecordRef { owner, rtype, rdata, .. } in removed {
            // A SOA is told by its serial: primaries do not all spell it as they did.
            let rdata = if rtype == Rtype::SOA { &soa } else { rdata };
            let removed = editor.remove(owner, rtype, rdata);
            if !removed.map_err(|error| explain(owner, rtype, error))? {
                return Err(Unfit::Version);
            }
        }
        for RecordRef { owner, rtype, ttl, rdata } in added {
            editor.add(owner, ttl, rtype, rdata).map_err(|error| explain(owner, rtype, error))?;
        }
        soa = difference.soa_at(difference.added).rdata.to_vec();
    }
    editor.finish().map(Changed::built_anew_if_due).map_err(|_| Unfit::Version)
}

pub(crate) fn explain(owner: Name<'_>, rtype: Rtype, error: RecordError) -> Unfit {
    Unfit::Record { owner: Box::new(owner.into()), rtype, error }
}

/// The last differences of a zone, for secondaries that have one of the versions before.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Each leads to the version that the next one is for.
    differences: Vec<Arc<Difference>>,
}

impl History {
    /// Octets of memory that all differences take, and their number, at most: older ones are forgotten.
    pub const OCTETS_MAX: usize = 4 << 20;
    const COUNT_MAX: usize = 1000;

    /// The history of the version that `new` leads to.
    pub fn with(&self, new: &[Arc<Difference>]) -> History {
        let mut differences = self.differences.clone();
        for difference in new {
            if differences.last().is_some_and(|last| last.to() != difference.from()) {
                differences.clear();
            }
            differences.push(Arc::clone(difference));
        }
        let mut octets = 0;
        let kept = differences.iter().rev().take(History::COUNT_MAX).take_while(|difference| {
            octets += difference.memory();
            octets <= History::OCTETS_MAX
        });
        let forgotten = differences.len() - kept.count();
        History { differences: differences.split_off(forgotten) }
    }

    /// What leads from the version of one serial to that of another one, if it is known.
    pub fn between(&self, from: u32, to: u32) -> Option<&[Arc<Difference>]> {
        let place = self.differences.iter().position(|difference| difference.from() == from)?;
        let found = &self.differences[place..];
        found.last().filter(|last| last.to() == to).map(|_| found)
    }
}

#[cfg(test)]
#[path = "difference_tests.rs"]
mod tests;
