//! What leads from one version of a zone to the next (RFC 1995, 4).

use std::collections::BTreeMap;
use std::sync::Arc;

use dns_message::{Message, Record, push_record, serial_of};
use dns_wire::{Class, Name, NameBuf, Rtype};
use dns_zone::{Changed, Node, RecordError, Rrset, Zone, ZoneEditor};

/// The records of one difference, as a transfer has them: the old SOA, what is removed, the new SOA, what is added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    records: Vec<Record>,
    /// Place of the new SOA.
    added: usize,
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
    /// A difference of these records; `None` if it does not have its two SOA records, with serials.
    pub(crate) fn new(records: Vec<Record>) -> Option<Difference> {
        let mut soas = records.iter().enumerate().filter(|(_, record)| record.rtype == Rtype::SOA);
        let [(0, _), (added, _)] = [soas.next()?, soas.next()?] else { return None };
        let has_serials = [0, added].iter().all(|at| serial_of(&records[*at].rdata).is_some());
        (soas.next().is_none() && has_serials).then_some(Difference { records, added })
    }

    /// The same of records that a primary has sent. A record that is removed and added cancels out: NSD sends what leads over several
    /// versions as one difference, where a record that came and went meanwhile is removed and added, and is in neither version.
    pub(crate) fn received(records: Vec<Record>) -> Option<Difference> {
        let difference = Difference::new(records)?;
        let (removed, added) = difference.halves();
        let mut in_both = count(&added[1..]);
        let removed = rest_of(removed, &mut in_both);
        if removed.len() == difference.added {
            return Some(difference);
        }
        let mut in_both = count(&difference.halves().0[1..]);
        let added = rest_of(added, &mut in_both);
        Some(Difference { added: removed.len(), records: [removed, added].concat() })
    }

    /// The serial of the version that it is for.
    pub fn from(&self) -> u32 {
        self.serial_at(0)
    }

    /// The serial of the version that it leads to.
    pub fn to(&self) -> u32 {
        self.serial_at(self.added)
    }

    fn serial_at(&self, place: usize) -> u32 {
        serial_of(&self.records[place].rdata).expect("it was checked when it was made")
    }

    /// All records in their order.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// What is removed, behind the old SOA, and what is added, behind the new one.
    pub(crate) fn halves(&self) -> (&[Record], &[Record]) {
        self.records.split_at(self.added)
    }

    /// Whether nothing changes but the SOA.
    pub fn is_empty(&self) -> bool {
        self.records.len() == 2
    }

    /// Whether nothing changes at all.
    pub fn is_nothing(&self) -> bool {
        self.is_empty() && self.records[0] == self.records[1]
    }

    /// About as many octets as it takes in a message.
    pub fn octets(&self) -> usize {
        self.records.iter().map(|record| record.owner.as_name().len() + 10 + record.rdata.len()).sum()
    }

    /// The records in wire format, one after the other.
    pub fn encode(&self) -> Vec<u8> {
        let mut octets = Vec::with_capacity(self.octets());
        for Record { owner, rtype, class, ttl, rdata } in &self.records {
            push_record(&mut octets, owner.as_name(), *rtype, *class, *ttl, rdata);
        }
        octets
    }

    /// Reads what [`Difference::encode`] has written.
    pub fn decode(octets: &[u8]) -> Option<Difference> {
        let message = [&[0; 12], octets].concat(); // As if behind a header.
        let mut message = Message::parse(&message).ok()?;
        let mut records = Vec::new();
        while !message.is_at_end() {
            records.push(message.next_record().ok()?);
        }
        Difference::new(records)
    }

    /// What differs between two versions; `None` if it takes more than so many octets.
    pub fn between(old: &Zone, new: &Zone, octets_max: usize) -> Option<Difference> {
        let mut difference = Collected { records: Vec::new(), octets_left: octets_max };
        difference.add_missing(old.nodes(), old, new)?;
        let added = difference.records.len();
        difference.add_missing(new.nodes(), new, old)?;
        Some(Difference { records: difference.records, added })
    }

    /// What differs between two versions at these names, each of which is there once.
    pub fn at(old: &Zone, new: &Zone, names: &[NameBuf]) -> Difference {
        let nodes = |zone| names.iter().filter_map(move |name| Zone::find(zone, name.as_name().as_bytes()));
        let mut difference = Collected { records: Vec::new(), octets_left: usize::MAX };
        difference.add_missing(nodes(old), old, new).expect("there is room for all");
        let added = difference.records.len();
        difference.add_missing(nodes(new), new, old).expect("there is room for all");
        Difference { records: difference.records, added }
    }
}

/// A record to its octets.
type Key<'r> = (&'r [u8], Rtype, u32, &'r [u8]);

fn key(record: &Record) -> Key<'_> {
    (record.owner.as_name().as_bytes(), record.rtype, record.ttl, &record.rdata)
}

/// How often each record is there.
fn count(records: &[Record]) -> BTreeMap<Key<'_>, usize> {
    let mut counts = BTreeMap::new();
    records.iter().for_each(|record| *counts.entry(key(record)).or_default() += 1);
    counts
}

/// One half of a difference, its SOA first, without the records that `others` has, as often as it has them.
fn rest_of<'r>(half: &'r [Record], others: &mut BTreeMap<Key<'r>, usize>) -> Vec<Record> {
    let mut rest = vec![half[0].clone()];
    for record in &half[1..] {
        match others.get_mut(&key(record)).filter(|count| **count > 0) {
            Some(count) => *count -= 1,
            None => rest.push(record.clone()),
        }
    }
    rest
}

struct Collected {
    records: Vec<Record>,
    octets_left: usize,
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
        self.octets_left = self.octets_left.checked_sub(node.name().len() + 10 + rdata.len())?;
        let owner = NameBuf::from(Name::from_wire(node.name()).expect("the tree holds valid names"));
        let (rtype, ttl) = (rrset.rtype(), rrset.ttl());
        self.records.push(Record { owner, rtype, class: Class::IN, ttl, rdata: rdata.to_vec() });
        Some(())
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
        let (removed, added) = difference.halves();
        for record in removed {
            // A SOA is told by its serial: primaries do not all spell it as they did.
            let rdata = if record.rtype == Rtype::SOA { &soa } else { &record.rdata };
            let removed = editor.remove(record.owner.as_name(), record.rtype, rdata);
            if !removed.map_err(|error| explain(record, error))? {
                return Err(Unfit::Version);
            }
        }
        for record in added {
            let added = editor.add(record.owner.as_name(), record.ttl, record.rtype, &record.rdata);
            added.map_err(|error| explain(record, error))?;
        }
        soa.clone_from(&difference.records[difference.added].rdata);
    }
    editor.finish().map(Changed::built_anew_if_due).map_err(|_| Unfit::Version)
}

pub(crate) fn explain(record: &Record, error: RecordError) -> Unfit {
    Unfit::Record { owner: Box::new(record.owner.clone()), rtype: record.rtype, error }
}

/// The last differences of a zone, for secondaries that have one of the versions before.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Each leads to the version that the next one is for.
    differences: Vec<Arc<Difference>>,
}

impl History {
    /// Octets of all differences, and their number, at most: older ones are forgotten.
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
            octets += difference.octets();
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
