//! When questions are due: at a fixed rate, whatever happens.

use clock::{Duration, Instant};

/// Nanoseconds of a second.
const SECOND: u128 = 1_000_000_000;
/// A generator that is no later than this keeps up.
const LATE_MAX: Duration = Duration::from_millis(10);

/// Questions at a fixed rate for a while.
#[derive(Clone, Debug)]
pub struct Schedule {
    rate: u64,
    /// How many are due altogether.
    count: u64,
    /// How many were taken.
    taken: u64,
    /// When the next one is due: this, and so many parts of a nanosecond, of which one has `rate`.
    next: Instant,
    parts: u64,
}

impl Schedule {
    /// `rate` questions a second, from `start` on, for this time; one at least.
    pub fn new(start: Instant, rate: u32, length: Duration) -> Schedule {
        let count = u128::from(rate) * u128::from(length.as_nanos()) / SECOND;
        Schedule::with_count(start, rate, (count as u64).max(1))
    }

    /// `count` questions, `rate` a second, from `start` on.
    pub fn with_count(start: Instant, rate: u32, count: u64) -> Schedule {
        Schedule { rate: rate.into(), count, taken: 0, next: start, parts: 0 }
    }

    /// Questions a second.
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// From the first question until all have been due, and the last one's distance has passed.
    pub fn length(&self) -> Duration {
        Duration::from_nanos((u128::from(self.count) * SECOND / u128::from(self.rate.max(1))) as u64)
    }

    /// When the next question is due; `None` if all have been.
    pub fn next_due(&self) -> Option<Instant> {
        (self.taken < self.count).then_some(self.next)
    }

    /// The next question, if it is due by now.
    pub fn take(&mut self, now: Instant) -> Option<Instant> {
        let due = self.next_due().filter(|due| *due <= now)?;
        self.taken += 1;
        self.parts += SECOND as u64 % self.rate;
        let carry = self.parts / self.rate;
        self.parts -= carry * self.rate;
        self.next += Duration::from_nanos(SECOND as u64 / self.rate + carry);
        Some(due)
    }

    /// How many were not taken that were due in so long from the start, by the second in which they were, of which the first is 0. None if they are
    /// no more than come in some milliseconds: whoever ends a load ends it amid something.
    pub fn left_by_second(&self, length: Duration) -> impl Iterator<Item = (usize, u64)> + use<> {
        let due_in = |length: Duration| u128::from(self.rate) * u128::from(length.as_nanos()) / SECOND;
        let due = u64::try_from(due_in(length)).unwrap_or(u64::MAX).min(self.count);
        let is_late = u128::from(due.saturating_sub(self.taken)) > due_in(LATE_MAX);
        let (mut next, end, rate) = (self.taken, if is_late { due } else { 0 }, self.rate.max(1));
        std::iter::from_fn(move || {
            let second = next / rate;
            let count = end.min((second + 1) * rate).checked_sub(next).filter(|count| *count > 0)?;
            next += count;
            Some((second as usize, count))
        })
    }

    /// How many were taken, and how many there are.
    pub fn progress(&self) -> (u64, u64) {
        (self.taken, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1000)
    }

    #[test]
    fn questions_are_due_at_equal_distances_and_not_before() {
        let mut schedule = Schedule::new(at(50), 100_000, Duration::from_millis(1));
        assert_eq!(schedule.take(at(49)), None);
        assert_eq!(schedule.take(at(50)), Some(at(50)));
        assert_eq!(schedule.take(at(59)), None);
        assert_eq!(schedule.next_due(), Some(at(60)));
    }

    #[test]
    fn who_is_late_still_has_all_of_them_to_send_each_with_its_own_time() {
        let mut schedule = Schedule::new(at(0), 1000, Duration::from_millis(3));
        let late: Vec<Instant> = std::iter::from_fn(|| schedule.take(at(1_000_000))).collect();
        assert_eq!(late, [at(0), at(1000), at(2000)]);
        assert_eq!((schedule.next_due(), schedule.progress()), (None, (3, 3)));
    }

    #[test]
    fn what_is_left_is_what_was_due_and_not_taken() {
        let mut schedule = Schedule::new(at(0), 1_000_000, Duration::from_secs(1));
        (0..300_000).for_each(|_| assert!(schedule.take(at(1_000_000)).is_some()));
        let left = |schedule: &Schedule, length| schedule.left_by_second(length).collect::<Vec<_>>();
        assert_eq!(left(&schedule, Duration::from_millis(310)), []);
        assert_eq!(left(&schedule, Duration::from_millis(400)), [(0, 100_000)]);
        assert_eq!(left(&schedule, Duration::from_secs(9)), [(0, 700_000)], "there are no more");
        let mut long = Schedule::new(at(0), 1000, Duration::from_millis(3500));
        (0..1500).for_each(|_| assert!(long.take(at(4_000_000)).is_some()));
        assert_eq!(left(&long, Duration::from_secs(4)), [(1, 500), (2, 1000), (3, 500)]);
    }

    #[test]
    fn a_load_has_one_question_at_least() {
        let mut schedule = Schedule::new(at(0), 1, Duration::from_millis(100));
        assert_eq!((schedule.take(at(0)), schedule.next_due()), (Some(at(0)), None));
    }

    #[test]
    fn rates_that_do_not_divide_a_second_lose_nothing_over_time() {
        let mut schedule = Schedule::new(at(0), 333_333, Duration::from_secs(4));
        assert_eq!(schedule.progress().1, 4 * 333_333);
        (0..3 * 333_333).for_each(|_| assert!(schedule.take(at(10_000_000)).is_some()));
        assert_eq!(schedule.next_due(), Some(at(3_000_000)));
    }
}
