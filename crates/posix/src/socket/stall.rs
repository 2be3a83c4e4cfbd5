//! How long something waits at a socket that no thread takes.

/// What waited is left to others so often in a row, with so little taken in between, before that counts as the way in which the program works.
const GIVES: u32 = 4;
const TAKEN_BETWEEN: u32 = 16;

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
    /// How often what waited was left to others, one soon after the other, and what had been taken the last time.
    given: u32,
    taken_until: u32,
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

    /// What waits is left to others; whether that has become the rule.
    pub(crate) fn give(&mut self) -> bool {
        if self.taken.wrapping_sub(self.taken_until) > TAKEN_BETWEEN {
            self.given = 0;
        }
        (self.given, self.taken_until) = (self.given + 1, self.taken);
        self.given >= GIVES
    }

    /// Nothing waits.
    pub(crate) fn rest(&mut self) {
        *self =
            Stall { taken: self.taken, given: self.given, taken_until: self.taken_until, ..Stall::default() };
    }

    /// What waited is gone.
    pub(crate) fn settle(&mut self) {
        self.looks = 0;
    }

    /// The whole socket moved, and is as new.
    pub(crate) fn reset(&mut self) {
        *self = Stall { is_listed: self.is_listed, given: self.given, ..Stall::default() };
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
    fn to_leave_to_others_is_the_rule_where_little_is_taken_in_between() {
        let gives = |taken_between: u32| {
            let mut stall = Stall::default();
            (0..8).any(|_| {
                (0..taken_between).for_each(|_| stall.note_taken());
                stall.give()
            })
        };
        assert!(gives(0) && gives(TAKEN_BETWEEN) && !gives(TAKEN_BETWEEN + 1));
        let mut stall = Stall::default();
        for time in 1..=GIVES {
            assert_eq!(stall.give(), time == GIVES);
            stall.rest();
            stall.reset();
        }
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
