//! A clock that tests can stop and advance.

use std::sync::atomic::{AtomicU64, Ordering};

use ::clock::{Duration, Instant};

/// Nanoseconds that each reading of a stopped clock takes: a loop that waits for a time to pass must end.
const A_LOOK: u64 = 1000;

/// The time of a process. What a test says of milliseconds must not depend on when its thread gets a core.
#[derive(Clone, Copy)]
pub(crate) struct Clock {
    real: engine::Clock,
    /// Nanoseconds at which it stands; none if it goes.
    held: &'static AtomicU64,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock { real: engine::Clock::start(), held: Box::leak(Box::default()) }
    }

    pub(crate) fn now(&self) -> Instant {
        match self.held.load(Ordering::Relaxed) {
            0 => self.real.now(),
            _ => Instant::from_nanos(self.held.fetch_add(A_LOOK, Ordering::Relaxed)),
        }
    }

    /// Stands still, but for looks.
    pub(super) fn hold(&self) {
        self.held.store(self.real.now().as_nanos().max(1), Ordering::Relaxed);
    }

    /// Goes on by `time`, having been held.
    pub(super) fn pass(&self, time: Duration) {
        self.held.fetch_add(time.as_nanos(), Ordering::Relaxed);
    }
}
