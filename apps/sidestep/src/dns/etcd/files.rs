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
        let differences = match (self.differences, next.differences) {
            (Some(first), Some(second)) if self.zone.is_some() => Some([first, second].concat()),
            _ => None,
        };
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
