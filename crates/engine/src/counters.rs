//! An engine's counters. Its own thread writes them, and any thread may read them.

use std::sync::atomic::{AtomicU64, Ordering};

use device::DeviceCounters;
use wire::DropReason;

use crate::Role;
use crate::handle::DeviceId;
use crate::phase::PhaseTimes;

/// Counts of one engine.
#[derive(Debug)]
pub struct EngineCounters {
    requests: AtomicU64,
    replies: AtomicU64,
    unsent: AtomicU64,
    sleeps: AtomicU64,
    times: PhaseTimes,
    dropped: [AtomicU64; DropReason::ALL.len()],
}

impl Default for EngineCounters {
    fn default() -> EngineCounters {
        let zero = || AtomicU64::new(0);
        EngineCounters {
            requests: zero(),
            replies: zero(),
            unsent: zero(),
            sleeps: zero(),
            times: PhaseTimes::default(),
            dropped: std::array::from_fn(|_| zero()),
        }
    }
}

impl EngineCounters {
    pub(crate) fn on_burst(&self, requests: usize, replies: usize) {
        add(&self.requests, requests as u64);
        add(&self.replies, replies as u64);
    }

    pub(crate) fn on_drop(&self, reason: DropReason) {
        add(&self.dropped[reason.index()], 1);
    }

    pub(crate) fn on_unsent(&self) {
        add(&self.unsent, 1);
    }

    pub(crate) fn on_sleep(&self) {
        add(&self.sleeps, 1);
    }

    pub(crate) fn times(&self) -> &PhaseTimes {
        &self.times
    }

    /// Name and value of each count, and the nanoseconds that the engine was busy, looked for packets in vain, and slept; of the reasons for drops, those that occurred.
    pub fn named(&self) -> Vec<(String, u64)> {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut named = vec![
            ("requests".to_owned(), read(&self.requests)),
            ("replies".to_owned(), read(&self.replies)),
            ("replies_unsent".to_owned(), read(&self.unsent)),
            ("sleeps".to_owned(), read(&self.sleeps)),
        ];
        named.extend(self.times.named().map(|(name, value)| (name.to_owned(), value)));
        let drops = DropReason::ALL
            .map(|reason| (format!("dropped_{}", reason.name()), read(&self.dropped[reason.index()])));
        named.extend(drops.into_iter().filter(|(_, value)| *value != 0));
        named
    }
}

/// One writer, so a plain load and store do; they are never torn.
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

/// What one device says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceReport {
    /// Which one.
    pub id: DeviceId,
    /// What it is to the engine.
    pub role: Role,
    /// Its own words, see [`device::Capabilities::description`].
    pub description: String,
    /// Its counts.
    pub counters: DeviceCounters,
}

/// What the devices of an engine say of themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceReports {
    /// Those that there are.
    pub present: Vec<DeviceReport>,
    /// What those have counted that were removed: without it sums would go backwards.
    pub gone: DeviceCounters,
}
