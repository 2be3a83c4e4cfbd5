//! A zone that follows its keys.
//!
//! What is held, with the changes that wait put in place, is always what etcd has. A transaction that cannot be carried out waits as a whole. It
//! is tried again when a later one has changed all names that kept it back: records depend on those of their own name, and on no others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::RangeInclusive;

use dns_message::serial_of;
use dns_transfer::Difference;
use dns_wire::{Name, NameBuf, Rtype};
use dns_zone::{Changed, RecordError, Rrset, Zone, ZoneBuilder, ZoneEditor};
use thiserror::Error;

use crate::serial::{could_be_serial, serial_at};
use crate::value::{RecordSet, ValueError};

/// TTL, REFRESH, RETRY, EXPIRE and MINIMUM of a SOA that is made, in seconds.
const SOA_TTL: u32 = 3600;
const SOA_TIMERS: [u32; 4] = [3600, 600, 1_209_600, 300];

/// A zone whose records are in etcd.
#[derive(Debug)]
pub struct EtcdZone {
    origin: NameBuf,
    /// Keys the hashes of the zone.
    seed: u64,
    held: Option<Zone>,
    /// The SOA that its owner gives, if one is. Its serial is what is added to revisions.
    soa: Option<RecordSet>,
    /// Whether there is no SOA to go by: that in etcd is wrong, and none was read before.
    lacks_soa: bool,
    /// What became of record sets since, and is not in `held`.
    waiting: Changes,
    /// The names of which something that waits is wrong. While there are some, nothing that waits can be carried out.
    blocked: BTreeSet<NameBuf>,
}

/// What became of one record set: its records, `None` if they were deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetChange {
    /// Its owner.
    pub owner: NameBuf,
    /// Its type.
    pub rtype: Rtype,
    /// Its records now, or why its value says nothing.
    pub set: Option<Result<RecordSet, ValueError>>,
}

/// By owner and type.
type Changes = BTreeMap<(NameBuf, u16), Option<Result<RecordSet, ValueError>>>;

/// What comes of changes.
#[derive(Debug)]
pub struct Outcome {
    /// What is served from now on.
    pub step: Step,
    /// What cannot be carried out, and waits.
    pub refused: Vec<Refusal>,
}

/// From what was held to what is held.
#[derive(Debug)]
pub enum Step {
    /// Nothing changes.
    Same,
    /// The first version is held.
    First,
    /// The next version, and what leads to it.
    Next(Box<Changed>, Box<Difference>),
}

/// Why a record set is not as etcd has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The record set; without one it is the whole zone.
    pub about: Option<(Box<NameBuf>, Rtype)>,
    /// What is wrong.
    pub why: Why,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Why {
    /// The value.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// A record has no place in the zone.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The zone would lose all it has at once, which is rarely meant.
    #[error("it would lose all of its {0} records at once: they are kept until it has others")]
    Emptied(usize),
    /// Its name leaves no room for the mailbox of a SOA.
    #[error("its name is too long for a SOA that is made: give it one")]
    NoSoa,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.about {
            Some((owner, rtype)) => write!(f, "{owner} {rtype}: {}", self.why),
            None => self.why.fmt(f),
        }
    }
}

impl EtcdZone {
    /// A zone of which nothing is known. `seed` keys its hashes: take it from a source that the outside cannot guess.
    pub fn new(origin: Name<'_>, seed: u64) -> EtcdZone {
        EtcdZone {
            origin: NameBuf::from(origin),
            seed,
            held: None,
            soa: None,
            lacks_soa: false,
            waiting: Changes::new(),
            blocked: BTreeSet::new(),
        }
    }

    /// A zone that was kept over a restart. It is not changed before it was read.
    pub fn resumed(zone: Zone, seed: u64) -> EtcdZone {
        EtcdZone { held: Some(zone.clone()), lacks_soa: true, ..EtcdZone::new(zone.origin(), seed) }
    }

    /// The name of the zone.
    pub fn origin(&self) -> Name<'_> {
        self.origin.as_name()
    }

    /// What is held, without signatures.
    pub fn zone(&self) -> Option<&Zone> {
        self.held.as_ref()
    }

    /// How many record sets are not as etcd has them.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Takes all record sets that the zone has at a revision. What differs is carried out, but for names of which a value is wrong: what is held
    /// of these stays.
    pub fn read(&mut self, revision: u64, sets: impl IntoIterator<Item = SetChange>) -> Outcome {
        let wanted: Changes = sets.into_iter().map(SetChange::into_entry).collect();
        // What is read is all there is.
        self.waiting.clear();
        self.blocked.clear();
        let changes = self.differing(wanted);
        self.carry_out_right(revision, changes)
    }

    /// Takes the changes of one transaction: all of them are carried out, or all wait.
    pub fn change(&mut self, revision: u64, changes: impl IntoIterator<Item = SetChange>) -> Outcome {
        let changes: Changes = changes.into_iter().map(SetChange::into_entry).collect();
        let has_soa = changes.contains_key(&self.soa_key());
        if self.lacks_soa && !has_soa {
            self.wait(changes, &[]);
            return Outcome { step: Step::Same, refused: Vec::new() };
        }
        if self.held.is_none() || self.lacks_soa {
            let tried = self.with_waiting(changes, has_soa);
            return self.carry_out_right(revision, tried);
        }
        self.unblock(&changes);
        if !self.waiting.is_empty() && self.blocked.is_empty() {
            let mut all = self.waiting.clone();
            all.extend(changes.clone());
            match self.attempt(revision, &all, Judging::Change) {
                Ok((step, zone)) => {
                    self.settle(zone, &all);
                    return Outcome { step, refused: Vec::new() };
                }
                Err(errors) => self.block(&errors),
            }
        }
        match self.attempt(revision, &changes, Judging::Change) {
            Ok((step, zone)) => {
                self.settle(zone, &changes);
                Outcome { step, refused: Vec::new() }
            }
            Err(refused) => {
                self.wait(changes, &refused);
                Outcome { step: Step::Same, refused }
            }
        }
    }

    /// Carries out what can be. Names of which something is wrong wait.
    fn carry_out_right(&mut self, revision: u64, mut changes: Changes) -> Outcome {
        let mut refused = Vec::new();
        loop {
            match self.attempt(revision, &changes, Judging::Whole) {
                Ok((step, zone)) => {
                    self.settle(zone, &changes);
                    return Outcome { step, refused };
                }
                Err(errors) => {
                    // Names are judged each by itself, so the rest may be right; some errors are found once others are out of the way.
                    let wrong = self.take_wrong(&mut changes, &errors);
                    if wrong.is_empty() {
                        self.note_soa(&changes, &errors);
                        self.wait(changes, &errors);
                        refused.extend(errors);
                        return Outcome { step: Step::Same, refused };
                    }
                    self.wait(wrong, &errors);
                    refused.extend(errors);
                }
            }
        }
    }

    /// Changes with what waits of their names, or with all that waits. What waits of other names costs nothing.
    fn with_waiting(&mut self, changes: Changes, with_all: bool) -> Changes {
        let mut tried = Changes::new();
        if with_all {
            self.blocked.clear();
            tried = std::mem::take(&mut self.waiting);
        } else {
            let owners: BTreeSet<&NameBuf> = changes.keys().map(|(owner, _)| owner).collect();
            for owner in owners {
                self.blocked.remove(owner);
                let keys: Vec<_> = self.waiting.range(types_of(owner)).map(|(key, _)| key.clone()).collect();
                tried.extend(keys.iter().filter_map(|key| self.waiting.remove_entry(key)));
            }
        }
        tried.extend(changes);
        tried
    }

    /// Has changes wait for those of the names that errors are about.
    fn wait(&mut self, changes: Changes, errors: &[Refusal]) {
        for (key, set) in changes {
            // What was deleted before it was ever held is as etcd has it.
            if set.is_none() && !self.holds(&key) {
                self.waiting.remove(&key);
            } else {
                self.waiting.insert(key, set);
            }
        }
        self.block(errors);
    }

    fn block(&mut self, errors: &[Refusal]) {
        let owners = errors.iter().filter_map(|error| error.about.as_ref());
        self.blocked.extend(owners.map(|(owner, _)| (**owner).clone()));
    }

    /// Names that changes mend keep nothing back any more.
    fn unblock(&mut self, changes: &Changes) {
        let touched: BTreeSet<&NameBuf> = changes.keys().map(|(owner, _)| owner).collect();
        let touched = touched.into_iter().filter(|owner| self.blocked.contains(*owner));
        let mended: Vec<&NameBuf> = touched.filter(|owner| self.is_mended(owner, changes)).collect();
        for owner in mended {
            self.blocked.remove(owner);
        }
    }

    /// Whether a name is right with what waits of it and these changes.
    fn is_mended(&self, owner: &NameBuf, changes: &Changes) -> bool {
        let Some(held) = &self.held else { return false };
        let of_name = self.waiting.range(types_of(owner)).chain(changes.range(types_of(owner)));
        let of_name: Changes = of_name.map(|(key, set)| (key.clone(), set.clone())).collect();
        of_name.iter().all(|entry| wrong_value(entry).is_none())
            && self.put_in(&mut ZoneEditor::new(held), &of_name).is_empty()
    }

    fn holds(&self, (owner, rtype): &(NameBuf, u16)) -> bool {
        let node = self.held.as_ref().and_then(|held| held.find(owner.as_name().as_bytes()));
        node.is_some_and(|node| node.rrset(Rtype(*rtype)).is_some())
    }

    /// What was carried out waits no longer.
    fn settle(&mut self, zone: Option<Zone>, changes: &Changes) {
        if zone.is_some() {
            self.held = zone;
        }
        self.note_soa(changes, &[]);
        for key in changes.keys() {
            self.waiting.remove(key);
        }
        if self.waiting.is_empty() {
            self.blocked.clear();
        }
    }

    /// Takes the SOA, unless it is what errors are about.
    fn note_soa(&mut self, changes: &Changes, errors: &[Refusal]) {
        let is_about_soa = |error: &Refusal| self.is_about_soa(error) || error.why == Why::NoSoa;
        if errors.iter().any(is_about_soa) {
            self.lacks_soa |= self.held.is_none();
        } else {
            self.lacks_soa = false;
            if let Some(soa) = changes.get(&self.soa_key()) {
                self.soa = given(soa).cloned();
            }
        }
    }

    fn is_about_soa(&self, error: &Refusal) -> bool {
        error.about.as_ref().is_some_and(|(owner, rtype)| **owner == self.origin && *rtype == Rtype::SOA)
    }

    fn soa_key(&self) -> (NameBuf, u16) {
        (self.origin.clone(), Rtype::SOA.0)
    }

    /// Takes out of `changes` those of the names that errors are about; none, if nothing else can be carried out.
    fn take_wrong(&self, changes: &mut Changes, errors: &[Refusal]) -> Changes {
        if errors.iter().any(|error| error.about.is_none() || self.is_about_soa(error)) {
            return Changes::new();
        }
        let soa_key = self.soa_key();
        let owners = errors.iter().filter_map(|error| error.about.as_ref());
        let owners: BTreeSet<&NameBuf> = owners.map(|(owner, _)| &**owner).collect();
        let is_wrong = |key: &(NameBuf, u16)| owners.contains(&key.0) && *key != soa_key;
        let (wrong, right) = std::mem::take(changes).into_iter().partition(|(key, _)| is_wrong(key));
        *changes = right;
        wrong
    }

    /// What leads from what is held to what is wanted. The SOA is always part of it.
    fn differing(&self, mut wanted: Changes) -> Changes {
        let soa = wanted.remove(&self.soa_key()).flatten();
        let mut changes = Changes::new();
        if let Some(held) = &self.held {
            for node in held.nodes() {
                let owner = NameBuf::from(Name::from_wire(node.name()).expect("the tree holds valid names"));
                for set in node.rrsets().filter(|set| set.rtype() != Rtype::SOA) {
                    let key = (owner.clone(), set.rtype().0);
                    match wanted.get(&key) {
                        None => drop(changes.insert(key, None)),
                        Some(Some(Ok(own))) if is_same(own, &set) => drop(wanted.remove(&key)),
                        Some(_) => {}
                    }
                }
            }
        }
        changes.extend(wanted);
        changes.insert(self.soa_key(), soa);
        changes
    }

    /// The version that changes lead to.
    ///
    /// # Errors
    /// All that is wrong with them.
    fn attempt(
        &self,
        revision: u64,
        changes: &Changes,
        judging: Judging,
    ) -> Result<(Step, Option<Zone>), Vec<Refusal>> {
        let wrong: Vec<Refusal> = changes.iter().filter_map(wrong_value).collect();
        if !wrong.is_empty() {
            return Err(wrong);
        }
        let soa = match changes.get(&self.soa_key()) {
            Some(soa) => given(soa),
            None => self.soa.as_ref(),
        };
        match &self.held {
            Some(held) => self.edit(held, revision, changes, (soa, judging)),
            None => self.build(revision, changes, soa),
        }
    }

    fn build(
        &self,
        revision: u64,
        changes: &Changes,
        soa: Option<&RecordSet>,
    ) -> Result<(Step, Option<Zone>), Vec<Refusal>> {
        let mut builder = ZoneBuilder::new(self.origin(), self.seed);
        let mut refused = Vec::new();
        if self.sets(changes).next().is_none() {
            return Ok((Step::Same, None)); // It is served when it has something.
        }
        let servers = given_set(changes, &self.origin, Rtype::NS).map(|set| &set.records[..]);
        let first = servers.and_then(|servers| servers.iter().min()).map(Vec::as_slice);
        match self.soa(soa, first, revision) {
            Some((ttl, rdata)) => {
                let added = builder.add(self.origin(), ttl, Rtype::SOA, &rdata);
                refused.extend(added.err().map(|error| about(&self.soa_key(), error.into())));
            }
            None => refused.push(Refusal { about: None, why: Why::NoSoa }),
        }
        for (key, set) in self.sets(changes) {
            let add = |rdata: &Vec<u8>| builder.add(key.0.as_name(), set.ttl, Rtype(key.1), rdata);
            refused.extend(set.records.iter().try_for_each(add).err().map(|error| about(key, error.into())));
        }
        if !refused.is_empty() {
            return Err(refused);
        }
        let zone = builder.finish().map_err(|_| vec![Refusal { about: None, why: Why::NoSoa }])?;
        Ok((Step::First, Some(zone)))
    }

    fn edit(
        &self,
        held: &Zone,
        revision: u64,
        changes: &Changes,
        (soa, judging): (Option<&RecordSet>, Judging),
    ) -> Result<(Step, Option<Zone>), Vec<Refusal>> {
        let mut editor = ZoneEditor::new(held);
        let refused = self.put_in(&mut editor, changes);
        if !refused.is_empty() {
            return Err(refused);
        }
        let count = held.record_count() - 1; // One is the SOA.
        if editor.zone().record_count() == 1 && count > 0 {
            return Err(vec![Refusal { about: None, why: Why::Emptied(count) }]);
        }
        let mut names: Vec<NameBuf> = changes.keys().map(|(owner, _)| owner.clone()).collect();
        names.push(self.origin.clone());
        names.sort();
        names.dedup();
        let servers = editor.zone().apex().rrset(Rtype::NS);
        let first = servers.and_then(|servers| servers.records().min());
        let made = self.soa(soa, first, revision);
        let (ttl, mut rdata) = made.ok_or_else(|| vec![Refusal { about: None, why: Why::NoSoa }])?;
        let is_right = self.is_right_soa(held, (ttl, &rdata), revision, (soa, judging));
        if is_right && Difference::at(held, editor.zone(), &names).is_empty() {
            return Ok((Step::Same, None));
        }
        if serial_of(&rdata) == Some(held.serial()) {
            // A backup was restored, and has come to the same revision. Secondaries are to see that it is another version.
            set_serial(&mut rdata, serial_at(held.serial(), 1));
        }
        editor.remove_sets(self.origin(), |set| set.rtype() == Rtype::SOA);
        let added = editor.add(self.origin(), ttl, Rtype::SOA, &rdata);
        added.map_err(|error| vec![about(&self.soa_key(), error.into())])?;
        let difference = Difference::at(held, editor.zone(), &names);
        let changed = editor
            .finish()
            .map(Changed::built_anew_if_due)
            .map_err(|_| vec![Refusal { about: None, why: Why::NoSoa }])?;
        let zone = changed.zone.clone();
        Ok((Step::Next(Box::new(changed), Box::new(difference)), Some(zone)))
    }

    /// Puts changes in the place of what is there, apart from the SOA; what is wrong with them.
    fn put_in(&self, editor: &mut ZoneEditor, changes: &Changes) -> Vec<Refusal> {
        let soa_key = self.soa_key();
        // What takes the place of something comes when that is gone: a CNAME, say.
        for (owner, rtype) in changes.keys().filter(|key| **key != soa_key) {
            editor.remove_sets(owner.as_name(), |set| set.rtype().0 == *rtype);
        }
        let mut refused = Vec::new();
        for (key, set) in self.sets(changes) {
            let add = |rdata: &Vec<u8>| editor.add(key.0.as_name(), set.ttl, Rtype(key.1), rdata);
            refused.extend(set.records.iter().try_for_each(add).err().map(|error| about(key, error.into())));
        }
        refused
    }

    /// The records of changes, apart from the SOA.
    fn sets<'c>(&self, changes: &'c Changes) -> impl Iterator<Item = (&'c (NameBuf, u16), &'c RecordSet)> {
        let soa_key = self.soa_key();
        changes
            .iter()
            .filter(move |(key, _)| **key != soa_key)
            .filter_map(|(key, set)| Some((key, given(set)?)))
    }

    /// TTL and data of the SOA at a revision: the given one, or one that is made for the `first` of the name servers. `None` if the name of the
    /// zone is too long for one.
    fn soa(&self, soa: Option<&RecordSet>, first: Option<&[u8]>, revision: u64) -> Option<(u32, Vec<u8>)> {
        if let Some(RecordSet { ttl, records }) = soa {
            let mut rdata = records.first()?.clone();
            let serial = serial_at(serial_of(&rdata)?, revision);
            set_serial(&mut rdata, serial);
            return Some((*ttl, rdata));
        }
        let mut mailbox = self.origin.clone();
        mailbox.prepend(b"hostmaster").ok()?;
        let names = [first.unwrap_or(self.origin.as_name().as_bytes()), mailbox.as_name().as_bytes()];
        let [refresh, retry, expire, minimum] = SOA_TIMERS;
        let numbers = [serial_at(0, revision), refresh, retry, expire, minimum].map(u32::to_be_bytes);
        Some((SOA_TTL, [&names.concat()[..], &numbers.concat()].concat()))
    }

    /// Whether the SOA that is held needs no other one, as long as nothing else changes.
    fn is_right_soa(
        &self,
        held: &Zone,
        (ttl, rdata): (u32, &[u8]),
        revision: u64,
        (soa, judging): (Option<&RecordSet>, Judging),
    ) -> bool {
        let mut with_held_serial = rdata.to_vec();
        set_serial(&mut with_held_serial, held.serial());
        let own = held.soa();
        let is_same = own.ttl() == ttl && own.records().eq([&with_held_serial[..]]);
        let base = |soa: Option<&RecordSet>| soa.and_then(|soa| serial_of(soa.records.first()?)).unwrap_or(0);
        let is_known = match judging {
            // Whoever has watched, or kept the zone over a restart, knows the revision of the last change, and others have its serial. The next one
            // is that of another version of the same revision.
            Judging::Whole => could_be_serial(held.serial(), base(soa), revision + 1),
            Judging::Change => base(soa) == base(self.soa.as_ref()),
        };
        is_same && is_known
    }
}

/// Whether changes are those of a transaction, or lead to all that etcd has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Judging {
    Change,
    Whole,
}

impl SetChange {
    fn into_entry(self) -> ((NameBuf, u16), Option<Result<RecordSet, ValueError>>) {
        ((self.owner, self.rtype.0), self.set)
    }
}

/// The records that a set has now, if it has some that are right.
fn given(set: &Option<Result<RecordSet, ValueError>>) -> Option<&RecordSet> {
    set.as_ref()?.as_ref().ok()
}

/// The keys of a name.
fn types_of(owner: &NameBuf) -> RangeInclusive<(NameBuf, u16)> {
    (owner.clone(), 0)..=(owner.clone(), u16::MAX)
}

fn given_set<'c>(changes: &'c Changes, owner: &NameBuf, rtype: Rtype) -> Option<&'c RecordSet> {
    given(changes.get(&(owner.clone(), rtype.0))?)
}

fn wrong_value((key, set): (&(NameBuf, u16), &Option<Result<RecordSet, ValueError>>)) -> Option<Refusal> {
    let error = set.as_ref()?.as_ref().err()?;
    Some(about(key, Why::Value(error.clone())))
}

fn about((owner, rtype): &(NameBuf, u16), why: Why) -> Refusal {
    Refusal { about: Some((Box::new(owner.clone()), Rtype(*rtype))), why }
}

fn is_same(own: &RecordSet, set: &Rrset<'_>) -> bool {
    let has = |rdata: &[u8]| own.records.iter().any(|own| own == rdata);
    own.ttl == set.ttl() && own.records.len() == usize::from(set.count()) && set.records().all(has)
}

/// Five numbers end a SOA, and the serial is the first.
fn set_serial(rdata: &mut [u8], serial: u32) {
    if let Some(numbers) = rdata.last_chunk_mut::<20>() {
        numbers[..4].copy_from_slice(&serial.to_be_bytes());
    }
}

#[cfg(test)]
#[path = "zone_tests.rs"]
mod tests;
