//! How long the threads of a process wait for each other.
//!
//! One engine serves all threads, behind one lock. The kernel serves each on its own processor. So where threads on several processors
//! wait for the lock for as long as they run, the kernel serves them better, all of them: the process leaves the stack
//! (`moves/crowd.rs`), unless its profile says that it stays.
//!
//! On one processor a thread that waits leaves it to the one that has the lock, and nothing is lost.

use clock::Duration;

/// Why the sockets of such a process are the kernel's.
pub(crate) const CROWDED: &str = "the program's threads waited for each other on the stack";

/// Times that the lock is taken between two looks.
const PERIOD: u32 = 1 << 14;
/// Looks in a row that find it crowded before the process leaves: a moment's crowd is none.
const LOOKS: u32 = 32;

/// What was seen at the lock of late.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Crowd {
    taken: u32,
    waited: Duration,
    /// On which processors threads waited: a bit for each, modulo 64.
    processors: u64,
    /// The processors' time that the process had at the last look.
    run_until: Duration,
    crowded_looks: u32,
    /// The process has left the stack for this, and does not come back.
    pub(crate) has_left: bool,
}

impl Crowd {
    /// A thread has waited for the lock, on this processor.
    pub(crate) fn note_wait(&mut self, waited: Duration, processor: i32) {
        self.waited += waited;
        self.processors |= 1u64.rotate_left(processor as u32);
    }

    /// A thread has taken the lock; whether it is time for a look.
    #[inline]
    pub(crate) fn note_taken(&mut self) -> bool {
        self.taken += 1;
        self.taken >= PERIOD
    }

    /// Looks whether it is crowded. `run`: the time that the process has had of all processors, since it began.
    #[cold]
    pub(crate) fn look(&mut self, run: Duration) {
        let ran = run.as_nanos().saturating_sub(self.run_until.as_nanos());
        let waited = self.waited.as_nanos();
        let is_crowded = self.processors.count_ones() > 1 && waited >= ran;
        let crowded_looks = if is_crowded { self.crowded_looks.saturating_add(1) } else { 0 };
        *self = Crowd { run_until: run, crowded_looks, has_left: self.has_left, ..Crowd::default() };
    }

    /// Whether the process is to leave.
    pub(crate) fn is_too_much(&self) -> bool {
        self.crowded_looks >= LOOKS
    }

    /// It cannot leave now, or is to stay: looked at from the beginning.
    pub(crate) fn begin_anew(&mut self) {
        self.crowded_looks = 0;
    }
}

#[cfg(test)]
impl Crowd {
    /// As it is when threads have waited for nearly all of the time.
    pub(crate) fn too_much() -> Crowd {
        Crowd { crowded_looks: LOOKS, ..Crowd::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// Looks at each of which threads have run for 10 ms, and waited for so long on these processors.
    fn look(crowd: &mut Crowd, looks: u32, waited: Duration, processors: &[i32]) {
        for _ in 0..looks {
            let each = Duration::from_nanos(waited.as_nanos() / processors.len() as u64);
            processors.iter().for_each(|processor| crowd.note_wait(each, *processor));
            let run = crowd.run_until + millis(10);
            crowd.look(run);
        }
    }

    #[test]
    fn threads_that_wait_for_each_other_for_as_long_as_they_run_are_too_many() {
        for (waited, expected) in [(millis(10), true), (millis(100), true), (millis(9), false)] {
            let mut crowd = Crowd::default();
            look(&mut crowd, LOOKS - 1, waited, &[3, 5]);
            assert!(!crowd.is_too_much(), "not yet");
            look(&mut crowd, 1, waited, &[3, 5]);
            assert_eq!(crowd.is_too_much(), expected, "{waited:?}");
        }
    }

    #[test]
    fn on_one_processor_nothing_is_lost_by_waiting() {
        let mut crowd = Crowd::default();
        look(&mut crowd, 10 * LOOKS, millis(100), &[3]);
        assert!(!crowd.is_too_much());
    }

    #[test]
    fn a_moment_without_a_crowd_ends_it() {
        let mut crowd = Crowd::default();
        for _ in 0..3 {
            look(&mut crowd, LOOKS - 1, millis(20), &[0, 1]);
            look(&mut crowd, 1, millis(1), &[0, 1]);
            assert!(!crowd.is_too_much());
        }
    }

    #[test]
    fn it_is_time_for_a_look_each_time_that_the_lock_was_taken_so_often() {
        let mut crowd = Crowd::default();
        for _ in 0..3 {
            assert!((1..PERIOD).all(|_| !crowd.note_taken()) && crowd.note_taken());
            crowd.look(millis(1));
        }
    }
}
