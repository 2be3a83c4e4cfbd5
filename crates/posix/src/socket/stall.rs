//! How long something waits at a socket that no thread takes.

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
}

impl Stall {
    /// The program took something.
    pub(crate) fn note_taken(&mut self) {
        self.taken = self.taken.wrapping_add(1);
    }

    /// Something still waits; returns whether it is time to ask for other processes that would take it.
    pub(crate) fn look(&mut self, patience: u32) -> bool {
        if std::mem::replace(&mut self.seen, self.taken) != self.taken {
            self.looks = 0;
            return false;
        }
        self.looks = self.looks.saturating_add(1);
        let least = if self.taken == 0 { 1 } else { patience };
        self.looks >= least && self.looks.is_power_of_two()
    }

    /// What waited is gone.
    pub(crate) fn settle(&mut self) {
        self.looks = 0;
    }

    /// The whole socket moved, and is as new.
    pub(crate) fn reset(&mut self) {
        *self = Stall { is_listed: self.is_listed, ..Stall::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_never_taken_anything_is_given_one_look() {
        let mut stall = Stall::default();
        let due: Vec<bool> = (0..8).map(|_| stall.look(64)).collect();
        assert_eq!(due, [true, true, false, true, false, false, false, true], "ever less often");
    }

    #[test]
    fn who_takes_is_left_alone() {
        let mut stall = Stall::default();
        for _ in 0..100 {
            stall.note_taken();
            assert!(!stall.look(2));
        }
        let looks: Vec<u32> = (1..200).filter(|_| stall.look(64)).collect();
        assert_eq!(looks, [64, 128]);
    }
}
