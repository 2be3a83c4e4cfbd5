//! Whether a program serves one connection of a listener at a time, while others wait: servers that start several processes, each of which accepts one, serves
//! and closes it.
//!
//! A connection comes to the process whose queue its packets come by, and would wait there although another process has nothing to do. The kernel gives it to
//! whoever accepts first.

use clock::{Duration, Instant};

/// Who waits for less does not wait for others to be served.
const WAIT: Duration = Duration::from_millis(1);
/// In a part of so long, so many waited, and at least one of so many that were taken.
const PART: Duration = Duration::from_secs(4);
const WAITED_MIN: u32 = 16;
const TAKEN_FOR_EACH: u32 = 8;

/// What the last part of time has shown.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Serial {
    /// Since when one waits, and none is taken.
    waits_since: Option<Instant>,
    began: Instant,
    taken: u32,
    waited: u32,
}

impl Serial {
    /// A connection waits.
    pub(crate) fn note_waiting(&mut self, now: Instant) {
        self.waits_since.get_or_insert(now);
    }

    /// None waits any more, and perhaps was taken: a peer may have reset it.
    pub(crate) fn note_none(&mut self) {
        self.waits_since = None;
    }

    /// The program takes one, and more wait or not. Returns whether it has waited for long.
    pub(crate) fn note_taken(&mut self, more_wait: bool, now: Instant) -> bool {
        if now.since(self.began) >= PART {
            *self = Serial { began: now, waits_since: self.waits_since, ..Serial::default() };
        }
        self.taken = self.taken.saturating_add(1);
        let since = std::mem::replace(&mut self.waits_since, more_wait.then_some(now));
        since.is_some_and(|since| now.since(since) >= WAIT)
    }

    /// It has waited for long, and the program has closed all that it took before.
    pub(crate) fn note_waited(&mut self) {
        self.waited = self.waited.saturating_add(1);
    }

    /// Whether it is often so. Then it begins to count anew.
    pub(crate) fn is_found(&mut self) -> bool {
        let is_often = self.waited >= WAITED_MIN && self.waited.saturating_mul(TAKEN_FOR_EACH) >= self.taken;
        if is_often {
            (self.taken, self.waited) = (0, 0);
        }
        is_often
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes so many from `now` on, each after so many microseconds, while others wait. Returns whether it is found.
    fn is_found(serial: &mut Serial, mut now: Instant, count: u32, each_us: u64) -> bool {
        serial.note_waiting(now);
        let took = |_| {
            now += Duration::from_micros(each_us);
            if serial.note_taken(true, now) {
                serial.note_waited();
            }
            serial.is_found()
        };
        (0..count).any(took)
    }

    #[test]
    fn who_has_others_wait_for_long_again_and_again_is_found() {
        assert!(is_found(&mut Serial::default(), Instant::ZERO, 16, 1000));
        assert!(!is_found(&mut Serial::default(), Instant::ZERO, 15, 1000));
        assert!(!is_found(&mut Serial::default(), Instant::ZERO, 10_000, 900), "each is served at once");
    }

    #[test]
    fn few_of_many_do_not_count_nor_what_was_long_ago() {
        let mut serial = Serial::default();
        let later = |ms| Instant::ZERO + Duration::from_millis(ms);
        assert!(!is_found(&mut serial, Instant::ZERO, 200, 100));
        serial.note_none();
        assert!(!is_found(&mut serial, later(20), 20, 1000), "20 of 220");
        serial.note_none();
        assert!(is_found(&mut serial, later(40), 10, 1000), "30 of 230");
        let mut rare = Serial::default();
        assert!(!is_found(&mut rare, Instant::ZERO, 15, 1000));
        rare.note_none();
        assert!(!is_found(&mut rare, Instant::ZERO + PART, 15, 1000));
    }

    #[test]
    fn time_in_which_nobody_waits_does_not_count() {
        let mut serial = Serial::default();
        for second in 0..100 {
            let now = Instant::ZERO + Duration::from_secs(second);
            serial.note_waiting(now);
            assert!(!serial.note_taken(false, now));
        }
    }
}
