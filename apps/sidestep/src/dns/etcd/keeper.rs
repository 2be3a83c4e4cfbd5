//! The zones from etcd: one thread changes them, keeps them on disk, and has them published.
//!
//! etcd has every change, so a zone is published first and written to disk then: the files are for a start without etcd.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use dns_etcd::{Key, KeyChange, Layout, Outcome, Refusal, Revision, SetChange, read_records, read_settings};
use dns_wire::NameBuf;

use super::config::EtcdSpec;
use super::files::{Files, Job};
use super::kept::{Kept, Prepared, Served};
use super::{Changes, Input, Link, Pair, Unpublished};
use crate::dns::events::Event;
use crate::dns::orders::SharedStates;
use crate::dns::reload::log_changes;
use crate::dns::signing;

/// Lines of the log about what is wrong, for one input.
const COMPLAINTS_MAX: usize = 10;

/// What is wrong with zones of which etcd has no key any more.
const LOST: &str = "etcd has lost all of its zones at once: it is kept until etcd has others";

/// The zones, and what is being read of them.
pub(super) struct Keeper {
    spec: Arc<EtcdSpec>,
    layout: Layout,
    zones: BTreeMap<NameBuf, Kept>,
    /// Those of them of which etcd has no key any more, and which are kept all the same: it had lost all at once.
    vanished: BTreeSet<NameBuf>,
    /// Those that are new, and not published.
    joined: BTreeSet<NameBuf>,
    reading: Option<Reading>,
    /// What is to be published.
    changes: Changes,
    /// What is, as soon as whoever publishes has time.
    unpublished: Unpublished,
    /// Whether more may belong to what is to be published.
    is_open: bool,
    /// Zones of which tools know something else.
    touched: BTreeSet<NameBuf>,
    /// What is to be written to disk when it is published.
    unsaved: BTreeSet<NameBuf>,
    files: Files,
    events: Sender<Event>,
    states: SharedStates,
    /// When signatures are looked at.
    renewal: Instant,
}

/// What is read at the moment.
struct Reading {
    revision: u64,
    /// The zones that are to be read, and have not been.
    expected: BTreeSet<NameBuf>,
    /// The one whose records come.
    current: Option<(NameBuf, Vec<SetChange>)>,
    complaints: Complaints,
}

/// Says what is wrong, up to a number of lines.
#[derive(Default)]
struct Complaints(usize);

impl Complaints {
    fn add(&mut self, what: impl FnOnce() -> String) {
        self.0 += 1;
        if self.0 <= COMPLAINTS_MAX {
            log::error!("{}", what());
        }
    }
}

impl Drop for Complaints {
    fn drop(&mut self) {
        if self.0 > COMPLAINTS_MAX {
            log::error!("etcd: {} more such errors", self.0 - COMPLAINTS_MAX);
        }
    }
}

impl Keeper {
    pub(super) fn new(
        spec: Arc<EtcdSpec>,
        prepared: Vec<Prepared>,
        files: Files,
        events: Sender<Event>,
        states: SharedStates,
    ) -> Keeper {
        let layout = Layout::new(&spec.prefix);
        let zones: BTreeMap<NameBuf, Kept> = prepared.into_iter().map(Kept::resumed).collect();
        let touched = zones.keys().cloned().collect();
        let mut keeper = Keeper {
            spec,
            layout,
            zones,
            vanished: BTreeSet::new(),
            joined: BTreeSet::new(),
            reading: None,
            changes: Changes::new(),
            unpublished: Unpublished::default(),
            is_open: false,
            touched,
            unsaved: BTreeSet::new(),
            files,
            events,
            states,
            renewal: Instant::now(),
        };
        keeper.tell(None);
        keeper
    }

    /// Does what an input demands.
    pub(super) fn take(&mut self, input: Input) {
        self.is_open |= !matches!(input, Input::Publish(_) | Input::Connected(_) | Input::Renew { .. });
        match input {
            Input::All { revision } => self.begin_all(revision),
            Input::Zones(page) => self.list(page),
            Input::Listed => self.end_list(),
            Input::Zone { revision, zone } => self.begin_zone(revision, &zone),
            Input::Records(page) => self.read(page),
            Input::End => self.end_reading(),
            Input::Revision(revision) => self.change(revision),
            Input::Publish(revision) => self.publish(revision),
            Input::Connected(is_connected) => {
                if !is_connected {
                    self.reading = None; // Its rest does not come.
                    self.publish(0);
                }
                self.states
                    .with(|states| states.etcd_link.get_or_insert_default().is_connected = is_connected);
            }
            Input::Renew { at_once } => self.renew(at_once),
        }
    }

    /// All zones are read. What was not read to its end before is read anew.
    fn begin_all(&mut self, revision: u64) {
        let complaints = Complaints::default();
        self.reading = Some(Reading { revision, expected: BTreeSet::new(), current: None, complaints });
    }

    /// Zones are there.
    fn list(&mut self, page: Vec<Pair>) {
        let Some(mut reading) = self.reading.take() else { return };
        for pair in page {
            if let Some(origin) = self.zone_in(&pair.key, &mut reading.complaints) {
                self.join(&origin, &pair.value, &mut reading.complaints);
                reading.expected.insert(origin);
            }
        }
        self.reading = Some(reading);
    }

    /// Zones that were not listed leave.
    fn end_list(&mut self) {
        let Some(reading) = &self.reading else { return };
        let is_gone = |origin: &&NameBuf| !reading.expected.contains(*origin);
        let gone = self.zones.keys().filter(is_gone).cloned().collect();
        self.let_go(gone, 0);
    }

    /// One zone is read: it may be new, or have other settings.
    fn begin_zone(&mut self, revision: u64, pair: &Pair) {
        let mut complaints = Complaints::default();
        let Some(origin) = self.zone_in(&pair.key, &mut complaints) else { return };
        self.join(&origin, &pair.value, &mut complaints);
        self.let_go(Vec::new(), 0);
        self.reading =
            Some(Reading { revision, expected: BTreeSet::from([origin]), current: None, complaints });
    }

    /// The zone that a key names, if it is the key of a zone.
    fn zone_in(&self, key: &[u8], complaints: &mut Complaints) -> Option<NameBuf> {
        match self.layout.parse(key) {
            Ok(Key::Zone(origin)) => Some(*origin),
            Ok(Key::Records { .. }) => None,
            Err(error) => {
                complaints.add(|| format!("etcd: the key {} is passed over: {error}", shown(key)));
                None
            }
        }
    }

    /// A zone is there from now on. Settings that are wrong change nothing.
    fn join(&mut self, origin: &NameBuf, settings: &[u8], complaints: &mut Complaints) {
        self.vanished.remove(origin);
        self.touched.insert(origin.clone());
        let (file, joined) = (self.spec.file_of(origin), &mut self.joined);
        let kept = self.zones.entry(origin.clone()).or_insert_with(|| {
            joined.insert(origin.clone());
            Kept::new(origin, file)
        });
        let settings = match read_settings(settings) {
            Ok(settings) => settings,
            Err(error) => {
                let problem = format!("its settings in etcd are wrong, and change nothing: {error}");
                if kept.problems.settings.as_ref() != Some(&problem) {
                    complaints.add(|| format!("zone {origin}: {problem}"));
                }
                kept.problems.settings = Some(problem);
                return;
            }
        };
        let served = kept.set(settings, &self.spec);
        if !matches!(served, Ok(Served::AsBefore)) {
            self.renewal = Instant::now();
        }
        self.serve(origin, served);
    }

    /// Zones that etcd does not have any more are served no longer, unless it has lost all at once. `joining` zones are read next.
    fn let_go(&mut self, gone: Vec<NameBuf>, joining: usize) {
        let mut is_news = false;
        for origin in gone.into_iter().filter(|origin| self.zones.contains_key(origin)) {
            self.touched.insert(origin.clone());
            is_news |= self.vanished.insert(origin);
        }
        if self.vanished.len() == self.zones.len() && joining == 0 {
            if is_news {
                log::error!(
                    "etcd has lost all of its zones at once: the {} zones that it had are kept until it has others",
                    self.zones.len()
                );
            }
            return;
        }
        let left = std::mem::take(&mut self.vanished);
        log_changes("zones that have left etcd, and are served no longer", left.iter());
        for origin in left {
            self.unsaved.remove(&origin);
            self.joined.remove(&origin);
            self.touched.insert(origin.clone());
            if let Some(file) = self.zones.remove(&origin).and_then(|kept| kept.file) {
                // At once, as this thread writes it, should the zone come back.
                signing::forget(&file);
                self.files.add(origin.clone(), Job { file, zone: None, differences: None });
            }
            self.changes.insert(origin, None);
        }
    }

    /// Keys of records, in their order: those of a zone lie side by side.
    fn read(&mut self, page: Vec<Pair>) {
        let Some(mut reading) = self.reading.take() else { return };
        for Pair { key, value } in page {
            let (origin, owner, rtype) = match self.layout.parse(&key) {
                Ok(Key::Records { zone, owner, rtype }) => (*zone, *owner, rtype),
                Ok(Key::Zone(_)) => continue,
                Err(error) => {
                    reading
                        .complaints
                        .add(|| format!("etcd: the key {} is passed over: {error}", shown(&key)));
                    continue;
                }
            };
            if reading.current.as_ref().is_some_and(|(current, _)| *current != origin) {
                self.end_zone(&mut reading);
            }
            // Records may be written before the key that has their zone served.
            if reading.expected.contains(&origin) {
                let set = Some(read_records(origin.as_name(), owner.as_name(), rtype, &value));
                let (_, sets) = reading.current.get_or_insert_with(|| (origin, Vec::new()));
                sets.push(SetChange { owner, rtype, set });
            }
        }
        self.reading = Some(reading);
    }

    /// All records of a zone are read.
    fn end_zone(&mut self, reading: &mut Reading) {
        let Some((origin, sets)) = reading.current.take() else { return };
        reading.expected.remove(&origin);
        let Some(kept) = self.zones.get_mut(&origin) else { return };
        let outcome = kept.content.read(reading.revision, sets);
        self.follow(&origin, outcome, reading.revision, &mut reading.complaints);
    }

    fn end_reading(&mut self) {
        let Some(mut reading) = self.reading.take() else { return };
        self.end_zone(&mut reading);
        for origin in std::mem::take(&mut reading.expected) {
            reading.current = Some((origin, Vec::new())); // It has no records.
            self.end_zone(&mut reading);
        }
    }

    /// Carries a transaction out.
    fn change(&mut self, revision: Revision) {
        let Revision { revision, changes } = revision;
        let mut complaints = Complaints::default();
        let mut by_zone = BTreeMap::<NameBuf, Vec<SetChange>>::new();
        let (mut gone, mut joining) = (Vec::new(), 0);
        for KeyChange { key, value } in changes {
            match self.layout.parse(&key) {
                Ok(Key::Records { zone, owner, rtype }) if self.zones.contains_key(&*zone) => {
                    let read = |value: Vec<u8>| read_records(zone.as_name(), owner.as_name(), rtype, &value);
                    let set = value.map(read);
                    by_zone.entry(*zone).or_default().push(SetChange { owner: *owner, rtype, set });
                }
                Ok(Key::Records { .. }) => {} // They count when their zone is there, which is read then.
                Ok(Key::Zone(origin)) => match value {
                    // What is there of it is read next.
                    Some(_) => {
                        self.vanished.remove(&*origin);
                        joining += 1;
                    }
                    None => gone.push(*origin),
                },
                // A key that was wrong may go.
                Err(_) if value.is_none() => {}
                Err(error) => {
                    complaints.add(|| format!("etcd: the key {} is passed over: {error}", shown(&key)));
                }
            }
        }
        self.let_go(gone, joining);
        for (origin, sets) in by_zone {
            let Some(kept) = self.zones.get_mut(&origin) else { continue };
            let outcome = kept.content.change(revision, sets);
            self.follow(&origin, outcome, revision, &mut complaints);
        }
    }

    /// Has what came of changes of a zone served.
    fn follow(&mut self, origin: &NameBuf, outcome: Outcome, revision: u64, complaints: &mut Complaints) {
        let Outcome { step, refused } = outcome;
        self.touched.insert(origin.clone());
        let Some(kept) = self.zones.get_mut(origin) else { return };
        let first = refused.first().map(Refusal::to_string);
        if first != kept.problems.waiting {
            for refusal in &refused {
                complaints.add(|| {
                    format!("zone {origin}: not as etcd has it since revision {revision}: {refusal}")
                });
            }
        }
        let waiting = &mut kept.problems.waiting;
        *waiting = first.or_else(|| waiting.take()).filter(|_| kept.content.waiting() > 0);
        let served = kept.take(step, &self.spec);
        self.serve(origin, served);
    }

    /// Has a zone published, or notes why it is served as it was.
    fn serve(&mut self, origin: &NameBuf, served: anyhow::Result<Served>) {
        let Some(kept) = self.zones.get_mut(origin) else { return };
        let is_anew = matches!(served, Ok(Served::Anew));
        match served {
            Ok(Served::Anew) if kept.file.is_some() => {
                self.unsaved.insert(origin.clone());
                if kept.version.as_ref().and_then(signing::why_unsaved).is_some() {
                    self.renewal = Instant::now(); // It says when to try again.
                }
            }
            Ok(_) => {}
            Err(error) => {
                let problem = format!("it cannot be signed: {error:#}");
                if kept.problems.signing.as_ref() != Some(&problem) {
                    let is_there = kept.version.as_ref().is_some_and(|version| version.tree().is_some());
                    let served = if is_there { "served as it was" } else { "answered with SERVFAIL" };
                    log::error!("zone {origin} cannot be signed, and is {served}: {error:#}");
                }
                kept.problems.signing = Some(problem);
                self.renewal = self.renewal.min(Instant::now() + signing::LOOK_AFTER_ERROR);
            }
        }
        if kept.note_placeholder() || is_anew {
            self.changes.insert(origin.clone(), kept.served());
        }
    }

    /// Renews signatures that end soon, and looks what keys have come or gone.
    fn renew(&mut self, at_once: bool) {
        let now = Instant::now();
        if now < self.renewal && !at_once {
            return;
        }
        let mut again = signing::LOOK_MAX;
        let signed = self.zones.iter().filter(|(_, kept)| kept.is_to_be_signed());
        for origin in signed.map(|(origin, _)| origin.clone()).collect::<Vec<_>>() {
            again = again.min(self.renew_zone(&origin));
        }
        self.renewal = now + again;
        if !self.is_open {
            self.publish(0);
        }
    }

    /// When to look again.
    fn renew_zone(&mut self, origin: &NameBuf) -> Duration {
        self.touched.insert(origin.clone());
        let Some(kept) = self.zones.get_mut(origin) else { return signing::LOOK_MAX };
        let (served, again) = match kept.renew(&self.spec) {
            Ok((served, again)) => (Ok(served), again),
            Err(error) => (Err(error), signing::LOOK_AFTER_ERROR),
        };
        self.serve(origin, served);
        again
    }

    /// Publishes what came, and has it written then.
    fn publish(&mut self, revision: u64) {
        self.is_open = false;
        log_changes("zones that join from etcd", std::mem::take(&mut self.joined).iter());
        let changes = std::mem::take(&mut self.changes);
        self.tell(Some(revision).filter(|revision| *revision > 0));
        if self.unpublished.leave(changes) {
            let _ = self.events.send(Event::Etcd(self.unpublished.clone())); // A server that ends needs no zones.
        }
        for origin in std::mem::take(&mut self.unsaved) {
            if let Some(job) = self.zones.get_mut(&origin).and_then(Kept::job) {
                self.files.add(origin, job);
            }
        }
    }

    /// Has tools know which zones are here, and what is wrong with them.
    fn tell(&mut self, revision: Option<u64>) {
        let touched = std::mem::take(&mut self.touched);
        self.states.with(|states| {
            for origin in touched {
                let is_lost = self.vanished.contains(&origin);
                let lost = || is_lost.then(|| LOST.to_owned());
                match self.zones.get(&origin) {
                    Some(kept) => states.etcd.insert(origin, lost().or_else(|| kept.problem())),
                    None => states.etcd.remove(&origin),
                };
            }
            let link = states.etcd_link.get_or_insert(Link::default());
            link.revision = revision.unwrap_or(link.revision);
        });
    }
}

/// A key for people.
fn shown(key: &[u8]) -> String {
    const OCTETS_MAX: usize = 300;
    key[..key.len().min(OCTETS_MAX)].escape_ascii().to_string()
}

#[cfg(test)]
#[path = "keeper_tests.rs"]
mod tests;
