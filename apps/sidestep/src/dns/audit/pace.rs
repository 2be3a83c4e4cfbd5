//! Bounds of rate: for each server that is asked, and for all together.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Leaves a time between questions.
#[derive(Debug)]
pub(super) struct Pace {
    interval: Duration,
    next: Mutex<Instant>,
    count: AtomicU64,
}

impl Pace {
    /// So many questions a second at most.
    pub(super) fn new(rate: u32) -> Pace {
        let interval = Duration::from_secs(1) / rate.max(1);
        Pace { interval, next: Mutex::new(Instant::now()), count: AtomicU64::new(0) }
    }

    /// Takes the next turn, and returns when it is.
    fn take(&self) -> Instant {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let at = (*next).max(Instant::now());
        *next = at + self.interval;
        self.count.fetch_add(1, Ordering::Relaxed);
        at
    }

    /// Questions so far.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

/// The turns of questions to one server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turns<'p> {
    pub(super) own: &'p Pace,
    /// Of all servers together.
    pub(super) all: &'p Pace,
}

impl Turns<'_> {
    /// Returns when the next question may leave.
    pub(super) async fn wait(&self) {
        sleep_until(self.own.take()).await;
        sleep_until(self.all.take()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_bounds_hold_and_each_question_is_counted() {
        let (all, one, other) = (Pace::new(100), Pace::new(1000), Pace::new(50));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let started = Instant::now();
        runtime.block_on(async {
            for _ in 0..10 {
                Turns { own: &one, all: &all }.wait().await;
            }
            assert!(started.elapsed() >= Duration::from_millis(90), "that for all");
            for _ in 0..6 {
                Turns { own: &other, all: &all }.wait().await;
            }
        });
        assert!(started.elapsed() >= Duration::from_millis(190), "that for one server");
        assert_eq!((all.count(), one.count(), other.count()), (16, 10, 6));
    }
}
