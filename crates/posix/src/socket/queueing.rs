//! How connections wait to be accepted. The kernel gives each to whichever process accepts first; here it waits at the process whose queue its packets come by. That is
//! slower where processes take few at a time:
//!
//! - **one at a time**: a connection has waited for a moment, the process that takes it has closed all others of the listener, and its thread has not waited for a
//!   processor meanwhile. Servers that start several processes, each of which accepts one, serves and closes it, are found by that.
//! - **as many as it has threads**: some always wait, the process takes them one by one, and mostly sleeps, as the time tells that it has used processors and that its
//!   thread that accepts has waited for one. (One that takes none for a while may rest this once: see `stall.rs`.)
//!
//! A server with an event loop does neither, whatever its load.

use clock::{Duration, Instant};

/// Who waits for less does not wait for others to be served.
const WAIT: Duration = Duration::from_millis(1);
/// If some wait for so long, some always do.
const ALWAYS: Duration = Duration::from_millis(20);
/// Looks further apart say nothing of the time between.
const APART_MAX: Duration = Duration::from_millis(40);

/// In a part of so long, so many waited, and at least one of so many that were taken; or it slept at so many looks.
const PART: Duration = Duration::from_secs(4);
const WAITED_MIN: u32 = 16;
const TAKEN_FOR_EACH: u32 = 8;
const SLEPT_MIN: u32 = 16;

/// What the last part of time has shown.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Queueing {
    /// Since when one waits, and none is taken.
    waits_since: Option<Instant>,
    /// Since when some wait.
    some_since: Option<Instant>,
    /// The thread that took the last one while more waited.
    acceptor: i32,
    /// When it was last looked, for how long the process had not slept until then, and what it had taken.
    looked: Option<(Instant, Duration, u32)>,
    /// For how long the thread that took one had waited for a processor then.
    delayed: Duration,
    began: Instant,
    taken: u32,
    waited: u32,
    slept: u32,
}

impl Queueing {
    /// A connection waits.
    pub(crate) fn note_waiting(&mut self, now: Instant) {
        self.waits_since.get_or_insert(now);
        self.some_since.get_or_insert(now);
    }

    /// None waits any more, and perhaps was taken: a peer may have reset it.
    pub(crate) fn note_none(&mut self) {
        (self.waits_since, self.some_since) = (None, None);
    }

    /// The program takes one, and more wait or not. Returns how long it has waited, if that is long.
    pub(crate) fn note_taken(&mut self, more_wait: bool, now: Instant) -> Option<Duration> {
        self.begin_part(now);
        self.taken = self.taken.saturating_add(1);
        self.some_since = self.some_since.filter(|_| more_wait);
        let since = std::mem::replace(&mut self.waits_since, more_wait.then_some(now));
        since.map(|since| now.since(since)).filter(|waited| *waited >= WAIT)
    }

    /// A thread has taken one while more wait.
    pub(crate) fn note_acceptor(&mut self, thread: i32) {
        self.acceptor = thread;
    }

    /// It has waited for so long, and the program has closed all that it took before. The thread that takes it has waited for a processor for `delayed` since
    /// it began: if for a good part of this time, it would have taken it before.
    pub(crate) fn note_waited(&mut self, waited: Duration, delayed: Duration) {
        let before = std::mem::replace(&mut self.delayed, delayed);
        let meanwhile = if delayed > before { delayed - before } else { Duration::ZERO }; // Another thread may accept by now.
        if meanwhile < waited / 2 {
            self.waited = self.waited.saturating_add(1);
        }
    }

    /// Looks whether the process has slept, and taken some, while others waited. `awake` tells for how long it has not, since it began,
    /// by the thread that accepts.
    pub(crate) fn look(&mut self, awake: impl FnOnce(i32) -> Option<Duration>, now: Instant) {
        self.begin_part(now);
        let always = self.some_since.is_some_and(|since| now.since(since) >= ALWAYS);
        let this = always.then(|| awake(self.acceptor)).flatten().map(|awake| (now, awake, self.taken));
        if let Some((at, before, taken)) = std::mem::replace(&mut self.looked, this)
            && let Some((_, awake, _)) = this
            && now.since(at) < APART_MAX
            && self.taken != taken
            && awake >= before // Another thread may accept by now.
            && awake - before < now.since(at) / 2
        {
            self.slept += 1;
        }
    }

    /// Whether it takes few at a time. Then it begins to count anew.
    pub(crate) fn is_found(&mut self) -> bool {
        let is_serial = self.waited >= WAITED_MIN && self.waited.saturating_mul(TAKEN_FOR_EACH) >= self.taken;
        let is_found = is_serial || self.slept >= SLEPT_MIN;
        if is_found {
            (self.taken, self.waited, self.slept) = (0, 0, 0);
        }
        is_found
    }

    fn begin_part(&mut self, now: Instant) {
        if now.since(self.began) >= PART {
            (self.began, self.taken, self.waited, self.slept) = (now, 0, 0, 0);
            self.looked = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// Takes so many from `now` on, each after so many microseconds, while others wait. Returns whether it is found.
    fn is_serial(queueing: &mut Queueing, mut now: Instant, count: u32, each_us: u64) -> bool {
        queueing.note_waiting(now);
        let took = |_| {
            now += Duration::from_micros(each_us);
            if let Some(waited) = queueing.note_taken(true, now) {
                queueing.note_waited(waited, Duration::ZERO);
            }
            queueing.is_found()
        };
        (0..count).any(took)
    }

    #[test]
    fn who_has_others_wait_for_long_again_and_again_is_found() {
        assert!(is_serial(&mut Queueing::default(), at(0), 16, 1000));
        assert!(!is_serial(&mut Queueing::default(), at(0), 15, 1000));
        assert!(!is_serial(&mut Queueing::default(), at(0), 10_000, 900), "each is served at once");
    }

    #[test]
    fn few_of_many_do_not_count_nor_what_was_long_ago() {
        let mut queueing = Queueing::default();
        assert!(!is_serial(&mut queueing, at(0), 200, 100));
        queueing.note_none();
        assert!(!is_serial(&mut queueing, at(20), 20, 1000), "20 of 220");
        queueing.note_none();
        assert!(is_serial(&mut queueing, at(40), 10, 1000), "30 of 230");
        let mut rare = Queueing::default();
        assert!(!is_serial(&mut rare, at(0), 15, 1000));
        rare.note_none();
        assert!(!is_serial(&mut rare, at(0) + PART, 15, 1000));
    }

    #[test]
    fn time_in_which_nobody_waits_does_not_count() {
        let mut queueing = Queueing::default();
        for second in 0..100 {
            queueing.note_waiting(at(second * 1000));
            assert_eq!(queueing.note_taken(false, at(second * 1000)), None);
        }
    }

    /// Whether a process is found that lets each wait for 10 ms, and for so many microseconds of these waits for a processor itself.
    fn is_found_delayed(each_us: u64) -> bool {
        let mut queueing = Queueing::default();
        queueing.note_waiting(at(0));
        (1..100).any(|taken| {
            let waited = queueing.note_taken(true, at(taken * 10)).unwrap();
            queueing.note_waited(waited, Duration::from_micros(taken * each_us));
            queueing.is_found()
        })
    }

    #[test]
    fn who_waits_for_a_processor_is_not_found() {
        assert!(is_found_delayed(4900));
        assert!(!is_found_delayed(5000));
    }

    /// Whether a process is found that is looked at for a second while some wait, and is awake for so long between two looks.
    fn is_asleep(every_ms: u64, awake_ms: u64) -> bool {
        let mut queueing = Queueing::default();
        queueing.note_waiting(at(0));
        (1..1000 / every_ms).any(|look| {
            queueing.note_taken(true, at(look * every_ms));
            queueing.look(|_| Some(Duration::from_millis(look * awake_ms)), at(look * every_ms));
            queueing.is_found()
        })
    }

    #[test]
    fn who_sleeps_while_some_always_wait_is_found() {
        assert!(is_asleep(20, 9));
        assert!(!is_asleep(20, 11), "it works");
        assert!(!is_asleep(50, 0), "nobody knows what was between");
        let mut resting = Queueing::default();
        resting.note_waiting(at(0));
        for look in 1..1000 {
            resting.look(|_| Some(Duration::ZERO), at(look * 20));
            assert!(!resting.is_found(), "it takes none");
        }
        let mut emptied = Queueing::default();
        for look in 1..1000 {
            emptied.note_waiting(at(look * 20 - 1));
            emptied.look(|_| Some(Duration::ZERO), at(look * 20));
            emptied.note_taken(false, at(look * 20));
            assert!(!emptied.is_found(), "each is taken at once");
        }
    }
}
