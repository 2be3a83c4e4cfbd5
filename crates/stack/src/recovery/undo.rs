//! Whether a reduction of the window was spurious (RFC 3522, Eifel detection; RFC 3708, DSACK).

use crate::seq::{SeqNum, SeqRange};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// There is nothing that could be undone.
    #[default]
    Off,
    /// A recovery is going on.
    Going,
    /// The recovery is complete, but news of duplicates may still come.
    Complete,
}

/// What may show that a recovery was not needed; kept while nothing is in flight.
#[derive(Debug, Default)]
pub(super) struct Undo {
    phase: Phase,
    has_retransmitted: bool,
    /// SND.UNA when the recovery began.
    marker: SeqNum,
    /// In [`Phase::Complete`]: SND.NXT when the recovery ended.
    end: SeqNum,
    /// Octets sent again that the peer did not say it got twice.
    outstanding: u32,
    /// TSval of the first retransmission.
    first_timestamp: u32,
}

impl Undo {
    /// A recovery begins at SND.UNA.
    pub(super) fn start(&mut self, una: SeqNum) {
        *self = Undo { phase: Phase::Going, marker: una, ..Undo::default() };
    }

    /// It cannot be undone any more.
    pub(super) fn cancel(&mut self) {
        self.phase = Phase::Off;
    }

    /// The recovery is complete; whether it may still prove spurious.
    pub(super) fn complete(&mut self, snd_nxt: SeqNum) -> bool {
        let may_be_spurious = self.phase == Phase::Going && self.outstanding > 0;
        self.phase = if may_be_spurious { Phase::Complete } else { Phase::Off };
        self.end = snd_nxt;
        may_be_spurious
    }

    /// Whether the recovery is complete and all news of duplicates must have come: ends the wait.
    pub(super) fn expire(&mut self, una: SeqNum) -> bool {
        let is_over = self.phase == Phase::Complete && una.is_after(self.end);
        if is_over {
            self.phase = Phase::Off;
        }
        is_over
    }

    /// Whether a complete recovery may still prove spurious.
    pub(super) fn is_waiting(&self) -> bool {
        self.phase == Phase::Complete
    }

    pub(super) fn on_retransmitted(&mut self, octets: u32, timestamp_value: u32) {
        if self.phase != Phase::Going {
            return;
        }
        if !self.has_retransmitted {
            self.has_retransmitted = true;
            self.first_timestamp = timestamp_value;
        }
        self.outstanding = self.outstanding.saturating_add(octets);
    }

    pub(super) fn on_dsack(&mut self, dsack: SeqRange) {
        if dsack.start.is_at_or_after(self.marker) {
            self.outstanding = self.outstanding.saturating_sub(dsack.len());
        }
    }

    /// Whether all that was sent again was a duplicate (RFC 3708).
    pub(super) fn was_all_duplicate(&self) -> bool {
        self.phase != Phase::Off && self.has_retransmitted && self.outstanding == 0
    }

    /// Whether the acknowledgement that moved SND.UNA first since the recovery began was caused by an earlier transmission
    /// (RFC 3522, 3.2, step 4), or nothing was sent again at all.
    pub(super) fn was_original_acknowledged(&self, echoed: Option<u32>) -> bool {
        let echoes_original = |echoed| SeqNum(echoed).is_before(SeqNum(self.first_timestamp));
        self.phase == Phase::Going && (!self.has_retransmitted || echoed.is_some_and(echoes_original))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::seq_range;
    use super::*;

    fn after_retransmission() -> Undo {
        let mut undo = Undo::default();
        undo.start(seq_range(10, 11).start);
        undo.on_retransmitted(1000, 500);
        undo.on_retransmitted(1000, 600);
        undo
    }

    #[test]
    fn an_echo_older_than_the_first_retransmission_is_of_the_original_rfc3522_3_2() {
        let undo = after_retransmission();
        let table = [(Some(499), true), (Some(500), false), (Some(700), false), (None, false)];
        for (echoed, expected) in table {
            assert_eq!(undo.was_original_acknowledged(echoed), expected, "{echoed:?}");
        }
    }

    #[test]
    fn a_recovery_is_spurious_when_every_retransmission_was_a_duplicate_rfc3708() {
        let mut undo = after_retransmission();
        undo.on_dsack(seq_range(8, 9)); // before this recovery
        undo.on_dsack(seq_range(10, 11));
        assert!(!undo.was_all_duplicate());
        assert!(undo.complete(seq_range(20, 21).start));
        undo.on_dsack(seq_range(11, 12));
        assert!(undo.was_all_duplicate());
        assert!(!undo.expire(seq_range(20, 21).start));
        assert!(undo.expire(seq_range(21, 22).start));
        assert!(!undo.was_all_duplicate());
    }
}
