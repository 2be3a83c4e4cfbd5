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
        Pace::with_interval(Duration::from_secs(1) / rate.max(1))
    }

    /// So much time from one question to the next.
    pub(super) fn with_interval(interval: Duration) -> Pace {
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
    /// Whether it waits for the turn among all. What does not takes its turn all the same, so that the others wait instead.
    pub(super) is_patient: bool,
}

impl Turns<'_> {
    /// Returns when the next question may leave.
    pub(super) async fn wait(&self) {
        sleep_until(self.own.take()).await;
        let at = self.all.take();
        if self.is_patient {
            sleep_until(at).await;
        }
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
                Turns { own: &one, all: &all, is_patient: true }.wait().await;
            }
            assert!(started.elapsed() >= Duration::from_millis(90), "that for all");
            for _ in 0..6 {
                Turns { own: &other, all: &all, is_patient: true }.wait().await;
            }
        });
        assert!(started.elapsed() >= Duration::from_millis(190), "that for one server");
        assert_eq!((all.count(), one.count(), other.count()), (16, 10, 6));
    }

    #[test]
    fn what_is_urgent_does_not_wait_for_all_and_the_others_wait_for_it() {
        const HOUR: Duration = Duration::from_secs(3600);
        let (all, one) = (Pace::with_interval(HOUR), Pace::new(1000));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let started = Instant::now();
        let asked = runtime.block_on(async {
            let all = async {
                for _ in 0..30 {
                    Turns { own: &one, all: &all, is_patient: false }.wait().await;
                }
            };
            tokio::time::timeout(HOUR / 60, all).await
        });
        assert!(asked.is_ok(), "it has waited for the turn among all");
        assert!(all.take() >= started + 30 * HOUR, "each has taken a turn");
    }
}
