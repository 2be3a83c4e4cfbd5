//! The files of zones from etcd, written by a thread of their own: a disk that is slow, or ten thousand new zones, delay no change.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use dns_transfer::Difference;
use dns_wire::NameBuf;
use dns_zone::Zone;

use crate::dns::store;

/// So many differences wait while the disk is slow, of so many octets together. Beyond, the zone is written as a whole.
const DIFFERENCES_MAX: usize = 1000;
const OCTETS_MAX: usize = 1 << 20;

/// What is to be done with the file of a zone.
pub(super) struct Job {
    pub(super) file: PathBuf,
    /// The version that is kept; `None` if the zone has left.
    pub(super) zone: Option<Zone>,
    /// What the file and its journal lack; `None` if all of the zone is to be written.
    pub(super) differences: Option<Vec<Arc<Difference>>>,
}

/// Where jobs are left, by the zones that they are about: one that waits is joined by the next one.
#[derive(Clone, Default)]
pub(super) struct Files(Arc<Shared>);

#[derive(Default)]
struct Shared {
    waiting: Mutex<BTreeMap<NameBuf, Job>>,
    has_come: Condvar,
}

impl Files {
    /// Starts the thread, which ends with the process.
    pub(super) fn start() -> io::Result<Files> {
        let files = Files::default();
        let own = files.clone();
        thread::Builder::new().name("etcd-files".to_owned()).spawn(move || own.work())?;
        Ok(files)
    }

    /// Leaves a job.
    pub(super) fn add(&self, origin: NameBuf, job: Job) {
        let mut waiting = self.waiting();
        let before = waiting.remove(&origin);
        let job = match before {
            Some(before) => before.followed_by(job),
            None => job,
        };
        waiting.insert(origin, job);
        self.0.has_come.notify_one();
    }

    fn work(&self) {
        // Zones whose files could not be written: the next time all of it is.
        let mut unsaved = BTreeSet::new();
        loop {
            let (origin, mut job) = self.take();
            if unsaved.remove(&origin) {
                job.differences = None;
            }
            if let Err(error) = job.carry_out() {
                log::error!("zone {origin} is served, and its file stays old: {error:#}");
                unsaved.insert(origin);
            }
        }
    }

    /// Does all that waits, without a thread.
    #[cfg(test)]
    pub(super) fn work_off(&self) {
        for job in std::mem::take(&mut *self.waiting()).into_values() {
            job.carry_out().unwrap();
        }
    }

    /// How many differences wait for a zone's file; `None` if all of it is to be written.
    #[cfg(test)]
    pub(super) fn gathered(&self, origin: &NameBuf) -> Option<usize> {
        self.waiting()[origin].differences.as_ref().map(Vec::len)
    }

    fn take(&self) -> (NameBuf, Job) {
        let mut waiting = self.waiting();
        loop {
            if let Some(job) = waiting.pop_first() {
                return job;
            }
            waiting = self.0.has_come.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<NameBuf, Job>> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Job {
    /// One job in place of two.
    fn followed_by(self, next: Job) -> Job {
        let differences = self.differences.filter(|_| self.zone.is_some()).zip(next.differences);
        let differences = differences.map(|(first, second)| [first, second].concat());
        let octets =
            |all: &Vec<Arc<Difference>>| all.iter().map(|difference| difference.octets()).sum::<usize>();
        let differences = differences.filter(|all| all.len() <= DIFFERENCES_MAX && octets(all) <= OCTETS_MAX);
        Job { differences, ..next }
    }

    fn carry_out(&self) -> anyhow::Result<()> {
        let Some(zone) = &self.zone else {
            store::remove(&self.file);
            return Ok(());
        };
        match self.differences.as_deref() {
            Some([]) => Ok(()),
            Some(differences) => store::add(&self.file, differences, zone),
            None => store::save(&self.file, zone),
        }
    }
}
