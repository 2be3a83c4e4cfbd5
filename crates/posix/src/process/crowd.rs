//! How often the threads of a process wait for each other.
//!
//! One engine serves all threads, behind one lock. The kernel serves each on its own processor. So threads that mostly find the lock taken are
//! served better by the kernel, all of them: the process leaves the stack (`moves/crowd.rs`), unless its profile says that it stays.

/// Why the sockets of such a process are the kernel's.
pub(crate) const CROWDED: &str = "the program's threads waited for each other on the stack";

/// Times that the lock is taken between two looks.
const PERIOD: u32 = 1 << 14;
/// The lock is crowded where one time in so many a thread has to wait for it.
const SHARE: u32 = 3;
/// Looks in a row that find it crowded before the process leaves: a moment's crowd is none.
const LOOKS: u32 = 8;

/// What was seen at the lock of late.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Crowd {
    taken: u32,
    waited: u32,
    crowded_looks: u32,
    /// The process has left the stack for this, and does not come back.
    pub(crate) has_left: bool,
}

impl Crowd {
    /// A thread has taken the lock, and had to wait for it or not.
    #[inline]
    pub(crate) fn note(&mut self, waited: bool) {
        self.taken += 1;
        self.waited += u32::from(waited);
        if self.taken == PERIOD {
            self.look();
        }
    }

    fn look(&mut self) {
        let is_crowded = self.waited >= PERIOD / SHARE;
        self.crowded_looks = if is_crowded { self.crowded_looks.saturating_add(1) } else { 0 };
        (self.taken, self.waited) = (0, 0);
    }

    /// Whether the process is to leave.
    pub(crate) fn is_too_much(&self) -> bool {
        self.crowded_looks >= LOOKS
    }

    /// It cannot leave now, or is to stay: looked at from the beginning.
    pub(crate) fn begin_anew(&mut self) {
        *self = Crowd { has_left: self.has_left, ..Crowd::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes of it if one time in `one_in` is a wait.
    fn after(times: u32, one_in: u32) -> bool {
        let mut crowd = Crowd::default();
        (0..times).for_each(|time| crowd.note(time % one_in == 0));
        crowd.is_too_much()
    }

    #[test]
    fn threads_that_often_wait_for_each_other_are_too_many() {
        assert!(after(LOOKS * PERIOD, SHARE) && after(LOOKS * PERIOD, 2));
        assert!(!after(LOOKS * PERIOD - 1, 2), "not yet");
        assert!(!after(100 * LOOKS * PERIOD, SHARE + 1));
    }

    #[test]
    fn a_moment_without_a_crowd_ends_it() {
        let mut crowd = Crowd::default();
        for _ in 0..3 {
            (0..(LOOKS - 1) * PERIOD).for_each(|_| crowd.note(true));
            assert!(!crowd.is_too_much());
            (0..PERIOD).for_each(|_| crowd.note(false));
        }
        (0..LOOKS * PERIOD).for_each(|_| crowd.note(true));
        assert!(crowd.is_too_much());
        crowd.begin_anew();
        assert!(!crowd.is_too_much());
    }
}
