//! The time by which keys come and go: that of the machine's clock, unless it was set far forwards.
//!
//! Each step of a change of keys waits until caches have what the step before has brought. When the clock is set forwards, all steps are due at once,
//! and what was done by a wrong clock is not undone when that is set right. So keys go on by the monotonic clock until it is known which one is right.

use std::time::{Duration, Instant};

use dns_sign::KeySet;

use super::transfers::unix_time;

/// A clock that is more seconds ahead than this was set. All that waits for caches has more room.
const JUMP_MAX: u64 = 300;

/// A clock that was set forwards, and stays so, is right after this time: then the longest wait in a change of keys is over, which is 8 days and
/// 2 hours.
const CONFIRMED_AFTER: Duration = Duration::from_secs(9 * 86_400);

/// What both clocks show at a moment: the monotonic one, and seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) monotonic: Instant,
    pub(super) unix: u64,
}

impl Reading {
    pub(super) fn now() -> Reading {
        Reading { monotonic: Instant::now(), unix: unix_time() }
    }

    /// By how many seconds the clock was set forwards since `before`; zero if it was set back.
    pub(super) fn ahead_of(&self, before: &Reading) -> u64 {
        self.unix.saturating_sub(before.after(self.monotonic))
    }

    /// The time at a later moment of the monotonic clock.
    fn after(&self, monotonic: Instant) -> u64 {
        self.unix.saturating_add(monotonic.saturating_duration_since(self.monotonic).as_secs())
    }
}

/// The time in seconds since 1970 by which these keys come and go.
pub(super) fn now(keys: &KeySet) -> u64 {
    reading(keys).unix
}

/// The same, beside the monotonic clock.
pub(super) fn reading(keys: &KeySet) -> Reading {
    let newest = keys.keys().iter().filter_map(|key| key.times.created).max();
    with_clock(|clock, now| {
        let (reading, said) = clock.look(now, newest);
        match said {
            Some(Said::Set(seconds)) => log::error!(
                "the clock was set forwards by {seconds} s: keys come and go as if it had not been. If it is right now, restart the server; if not, set it"
            ),
            Some(Said::Right) => log::warn!("the clock is taken to be right: keys come and go by it again"),
            Some(Said::Back) => {
                log::warn!("the clock is where it was before it was set: keys come and go by it again")
            }
            None => {}
        }
        reading
    })
}

#[cfg(not(test))]
fn with_clock<T>(act: impl FnOnce(&mut KeyClock, Reading) -> T) -> T {
    use std::sync::{LazyLock, Mutex, PoisonError};
    static CLOCK: LazyLock<Mutex<KeyClock>> = LazyLock::new(|| Mutex::new(KeyClock::new(Reading::now())));
    act(&mut CLOCK.lock().unwrap_or_else(PoisonError::into_inner), Reading::now())
}

#[cfg(test)]
use tests::with_clock;

/// How far the machine's clock is believed.
struct KeyClock {
    /// When it was believed last.
    believed: Reading,
    /// When it was set to another time, and by how many seconds.
    set: Option<(Instant, i64)>,
}

/// What the log is to say of the clock.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    /// It was set forwards by so many seconds.
    Set(u64),
    /// It is believed as it is.
    Right,
    /// It is where it was.
    Back,
}

impl KeyClock {
    /// One that believes the clock as it is: nobody knows better.
    fn new(now: Reading) -> KeyClock {
        KeyClock { believed: now, set: None }
    }

    /// The time of keys, the newest of which was made at `newest`, as its file says. One that is made later than now shows that the clock was behind before,
    /// as when a machine starts; and whoever makes one by the clock that was set has looked at it.
    fn look(&mut self, now: Reading, newest: Option<u64>) -> (Reading, Option<Said>) {
        let expected = self.believed.after(now.monotonic);
        let by = now.unix.cast_signed().saturating_sub(expected.cast_signed());
        let is_near = |other: i64| by.abs_diff(other) <= JUMP_MAX;
        if is_near(0) {
            self.believed = now;
            let was_ahead = self.set.take().is_some_and(|(_, by)| by > 0);
            return (now, was_ahead.then_some(Said::Back));
        }
        let before = self.set.filter(|(_, by)| is_near(*by));
        let (since, _) = *self.set.insert(before.unwrap_or((now.monotonic, by)));
        let is_made_by_it = |made: u64| made > expected.saturating_add(JUMP_MAX) && made <= now.unix;
        let is_right = now.monotonic.saturating_duration_since(since) >= CONFIRMED_AFTER
            || newest.is_some_and(is_made_by_it);
        if is_right {
            *self = KeyClock::new(now);
            return (now, (by > 0).then_some(Said::Right));
        }
        let said = (before.is_none() && by > 0).then_some(Said::Set(by.unsigned_abs()));
        (Reading { unix: now.unix.min(expected), ..now }, said)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    const DAY: u64 = 86_400;

    thread_local! {
        static CLOCK: RefCell<KeyClock> = RefCell::new(KeyClock::new(Reading::now()));
        static SET_BY: Cell<i64> = const { Cell::new(0) };
    }

    /// Has the clock of this thread be ahead by so many seconds.
    pub(in super::super) fn set_clock(seconds: i64) {
        SET_BY.set(seconds);
    }

    pub(super) fn with_clock<T>(act: impl FnOnce(&mut KeyClock, Reading) -> T) -> T {
        let now = Reading::now();
        let now = Reading { unix: now.unix.saturating_add_signed(SET_BY.get()), ..now };
        CLOCK.with_borrow_mut(|clock| act(clock, now))
    }

    /// A clock that was believed at a moment.
    struct Trial {
        clock: KeyClock,
        start: Instant,
    }

    impl Trial {
        fn started_at(unix: u64) -> Trial {
            let start = Instant::now();
            Trial { clock: KeyClock::new(Reading { monotonic: start, unix }), start }
        }

        /// The time of keys, one of which was made then, when so many seconds have passed and the machine's clock shows this; and what is said.
        fn look(&mut self, passed: u64, unix: u64, newest: Option<u64>) -> (u64, Option<Said>) {
            let now = Reading { monotonic: self.start + Duration::from_secs(passed), unix };
            let (reading, said) = self.clock.look(now, newest);
            assert_eq!(reading.monotonic, now.monotonic);
            (reading.unix, said)
        }
    }

    #[test]
    fn keys_go_on_as_if_a_clock_had_not_been_set_forwards_until_it_is_set_back() {
        let mut trial = Trial::started_at(1_000_000);
        assert_eq!(
            trial.look(60, 1_000_060 + JUMP_MAX, None),
            (1_000_360, None),
            "less than what is waited for"
        );
        assert_eq!(trial.look(120, 9_000_420, None), (1_000_420, Some(Said::Set(8_000_000))));
        assert_eq!(trial.look(3600, 9_003_900, None), (1_003_900, None), "it is said once");
        assert_eq!(trial.look(7200, 7_007_500, None), (1_007_500, Some(Said::Set(6_000_000))));
        assert_eq!(trial.look(7260, 1_007_560, None), (1_007_560, Some(Said::Back)));
        assert_eq!(trial.look(7320, 1_007_620, None), (1_007_620, None));
    }

    #[test]
    fn a_clock_that_stays_ahead_is_right_when_the_longest_wait_is_over() {
        let (mut trial, ahead) = (Trial::started_at(1_000_000), 5_000_000);
        trial.look(0, ahead, None);
        let almost = CONFIRMED_AFTER.as_secs() - 1;
        assert_eq!(trial.look(almost, ahead + almost, None), (1_000_000 + almost, None));
        let (passed, shown) = (almost + 1, ahead + almost + 1);
        assert_eq!(trial.look(passed, shown, None), (shown, Some(Said::Right)));
        assert_eq!(trial.look(passed + DAY, shown + DAY, None), (shown + DAY, None));
    }

    #[test]
    fn a_key_that_was_made_later_than_now_shows_that_the_clock_was_behind() {
        for (newest, expected) in [(4_000_000, 5_000_000), (999_000, 1_000_000), (6_000_000, 1_000_000)] {
            let mut trial = Trial::started_at(1_000_000);
            assert_eq!(trial.look(0, 1_000_000, Some(newest)).0, 1_000_000);
            assert_eq!(trial.look(0, 5_000_000, Some(newest)).0, expected, "{newest}");
        }
    }

    #[test]
    fn a_clock_that_is_set_back_is_followed_and_may_return() {
        let mut trial = Trial::started_at(1_000_000);
        assert_eq!(trial.look(10, 500_000, None), (500_000, None));
        assert_eq!(trial.look(20, 1_000_020, None), (1_000_020, None));
        assert_eq!(trial.look(30, 500_030, None), (500_030, None));
        assert_eq!(trial.look(40, 2_000_040, None), (1_000_040, Some(Said::Set(1_000_000))));
        let (mut trial, passed) = (Trial::started_at(9_000_000), CONFIRMED_AFTER.as_secs());
        assert_eq!(trial.look(0, 1_000_000, None), (1_000_000, None), "it was ahead at the start");
        assert_eq!(trial.look(passed, 1_000_000 + passed, None), (1_000_000 + passed, None));
        assert_eq!(trial.look(passed, 9_000_000, None).0, 1_000_000 + passed, "it is known by now");
    }
}
