//! How long something waits at a socket that no thread takes, and how often.

use clock::{Duration, Instant};

/// Others were to have what waited so often, and at least once for so much that was taken: the kernel serves the socket better.
const UNSERVED_MIN: u32 = 8;
const TAKEN_FOR_EACH: u32 = 16;
/// So it does if in a part of so long so many looks found that nothing was taken, in so many pauses; or so many more, in however few.
const PART: Duration = Duration::from_secs(4);
const LOOKS_MIN: u32 = 25;
const PAUSES_MIN: u32 = 4;
const LOOKS_OF_FEW_PAUSES_MIN: u32 = 100;

/// What a socket's looks have found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stall {
    /// How often the program has taken something from it.
    pub(crate) taken: u32,
    /// The same at the last look.
    pub(crate) seen: u32,
    /// Looks since then.
    pub(crate) looks: u32,
    pub(crate) is_listed: bool,
    /// How often others were to have what waited; counted once until something is taken.
    unserved: u32,
    /// What was taken when that was last counted; `None` if the whole socket has moved since.
    counted_at: Option<u32>,
    /// What was taken before the whole socket moved.
    taken_before: u32,
    lately: Lately,
}

/// The pauses of the last part of time.
#[derive(Clone, Copy, Debug, Default)]
struct Lately {
    began: Instant,
    pauses: u32,
    looks: u32,
}

impl Stall {
    /// The program took something.
    pub(crate) fn note_taken(&mut self) {
        self.taken = self.taken.wrapping_add(1);
    }

    /// Something still waits; returns whether it is time to ask for other processes that would take it.
    pub(crate) fn look(&mut self, patience: u32, now: Instant) -> bool {
        if std::mem::replace(&mut self.seen, self.taken) != self.taken {
            self.looks = 0;
            return false;
        }
        self.looks = self.looks.saturating_add(1);
        if now.since(self.lately.began) >= PART {
            self.lately = Lately { began: now, ..Lately::default() };
        }
        self.lately.looks += 1;
        let least = if self.taken == 0 { 1 } else { patience };
        self.looks >= least && self.looks.is_power_of_two()
    }

    /// Nothing waits any more.
    pub(crate) fn unlist(&mut self) {
        (self.seen, self.looks, self.is_listed) = (0, 0, false);
    }

    /// What waited is gone.
    pub(crate) fn settle(&mut self) {
        self.looks = 0;
    }

    /// Others are to have what waits. Returns whether that is so often the case that the socket is better the kernel's, which gives a
    /// connection to whoever asks first: its processes take turns by a lock of their own, serve one connection at a time, or only watch it.
    pub(crate) fn note_unserved(&mut self) -> bool {
        if self.counted_at.replace(self.taken) != Some(self.taken) {
            self.unserved = self.unserved.saturating_add(1);
            self.lately.pauses += 1;
        }
        let taken = self.taken_before.saturating_add(self.taken);
        let is_mostly =
            self.unserved >= UNSERVED_MIN && self.unserved.saturating_mul(TAKEN_FOR_EACH) >= taken;
        let Lately { pauses, looks, .. } = self.lately;
        let is_long = looks >= if pauses >= PAUSES_MIN { LOOKS_MIN } else { LOOKS_OF_FEW_PAUSES_MIN };
        is_mostly || is_long
    }

    /// Whether the program has ever taken anything.
    pub(crate) fn has_taken(&self) -> bool {
        self.taken > 0 || self.taken_before > 0
    }

    /// The whole socket moved, and is as new but for what was counted.
    pub(crate) fn reset(&mut self) {
        let taken_before = self.taken_before.saturating_add(self.taken);
        let Stall { is_listed, unserved, lately, .. } = *self;
        *self = Stall { is_listed, unserved, taken_before, lately, ..Stall::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::stalls::LOOK_EVERY;

    #[test]
    fn who_has_never_taken_anything_is_given_one_look() {
        let mut stall = Stall::default();
        let due: Vec<bool> = (0..8).map(|_| stall.look(64, Instant::ZERO)).collect();
        assert_eq!(due, [true, true, false, true, false, false, false, true], "ever less often");
    }

    #[test]
    fn a_socket_that_is_often_left_waiting_is_better_the_kernels() {
        let rounds_until_left = |taken_between: u32| {
            let mut stall = Stall::default();
            (1..1000).find(|_| {
                (0..taken_between).for_each(|_| stall.note_taken());
                stall.note_unserved()
            })
        };
        assert_eq!(rounds_until_left(1), Some(8), "one taken for each that is left to others");
        assert_eq!(rounds_until_left(16), Some(8));
        assert_eq!(rounds_until_left(17), None, "it is served mostly");
    }

    /// Whether a worker that takes much, and pauses for so many looks so often in a second, is found in so many seconds.
    fn is_found_pausing(looks: u32, times: u64, seconds: u64) -> bool {
        let mut stall = Stall::default();
        (0..seconds * times).any(|pause| {
            (0..1000).for_each(|_| stall.note_taken());
            let began = Instant::from_nanos(pause * 1_000_000_000 / times);
            (0..=looks).any(|look| stall.look(2, began + LOOK_EVERY * look) && stall.note_unserved())
        })
    }

    #[test]
    fn who_takes_much_and_pauses_for_much_of_the_time_is_found() {
        assert!(is_found_pausing(10, 2, 4), "for 200 ms twice a second");
        assert!(!is_found_pausing(3, 1, 1000), "for 60 ms each second");
        assert!(!is_found_pausing(30, 1, 3), "three times for 600 ms may be chance");
        assert!(is_found_pausing(130, 1, 1), "for more than two seconds at a time");
    }

    #[test]
    fn one_long_pause_is_counted_once() {
        let mut stall = Stall::default();
        stall.note_taken();
        assert!((0..100).all(|_| !stall.note_unserved()));
    }

    #[test]
    fn who_only_watches_is_known_by_the_socket_that_moves_again_and_again() {
        let mut stall = Stall::default();
        let rounds = (1..100).find(|_| {
            let is_left = stall.note_unserved();
            stall.reset();
            is_left
        });
        assert_eq!(rounds, Some(8));
    }

    #[test]
    fn who_takes_is_left_alone() {
        let mut stall = Stall::default();
        for _ in 0..100 {
            stall.note_taken();
            assert!(!stall.look(2, Instant::ZERO));
        }
        let looks: Vec<u32> = (1..200).filter(|_| stall.look(64, Instant::ZERO)).collect();
        assert_eq!(looks, [64, 128]);
    }
}
