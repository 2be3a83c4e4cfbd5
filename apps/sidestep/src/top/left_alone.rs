//! Who does not answer is left alone for a while, each time twice as long. Pure.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long at first, and at most.
const PAUSE_MIN: Duration = Duration::from_secs(10);
const PAUSE_MAX: Duration = Duration::from_secs(300);

/// Processes that did not answer: until when they are left alone, and for how long that is.
#[derive(Debug, Default)]
pub(super) struct LeftAlone(BTreeMap<u32, (Instant, Duration)>);

impl LeftAlone {
    /// Forgets those who have been asked again since, or gone.
    pub(super) fn forget(&mut self, now: Instant) {
        self.0.retain(|_, (until, pause)| now < *until + *pause);
    }

    /// Whether it is not to be asked now.
    pub(super) fn has(&self, pid: u32, now: Instant) -> bool {
        self.0.get(&pid).is_some_and(|(until, _)| now < *until)
    }

    /// It did not answer.
    pub(super) fn add(&mut self, pid: u32, now: Instant) {
        let pause = self.0.get(&pid).map_or(PAUSE_MIN, |(_, pause)| (2 * *pause).min(PAUSE_MAX));
        self.0.insert(pid, (now + pause, pause));
    }

    /// It has answered.
    pub(super) fn remove(&mut self, pid: u32) {
        self.0.remove(&pid);
    }

    /// All of them.
    pub(super) fn pids(&self) -> impl Iterator<Item = u32> {
        self.0.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_longer_each_time_and_over_with_an_answer() {
        let (mut silent, mut now) = (LeftAlone::default(), Instant::now());
        for seconds in [10, 20, 40, 80, 160, 300, 300] {
            silent.add(7, now);
            assert!(silent.has(7, now + Duration::from_secs(seconds) - Duration::from_nanos(1)), "{seconds}");
            now += Duration::from_secs(seconds);
            silent.forget(now);
            assert!(!silent.has(7, now) && silent.pids().eq([7]), "{seconds}");
        }
        silent.forget(now + PAUSE_MAX);
        assert_eq!(silent.pids().count(), 0, "nobody has asked it again: it has gone");
        silent.add(7, now);
        silent.remove(7);
        assert!(!silent.has(7, now));
    }
}
