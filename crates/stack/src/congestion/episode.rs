//! The state of window-based controllers about the last congestion event.

use super::{Acked, Congestion};

/// Between a congestion event and its end.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Episode {
    /// The last loss was found by the retransmission timer.
    pub(super) after_timeout: bool,
    /// Nothing was cumulatively acknowledged since the timer expired.
    timeout_unanswered: bool,
}

impl Episode {
    /// Notes an event; says whether it is the timer expiring again for the same segment, when ssthresh is held
    /// (RFC 5681, 3.1, below equation 4).
    pub(super) fn begin(&mut self, congestion: Congestion) -> bool {
        match congestion {
            Congestion::Loss => *self = Episode::default(),
            Congestion::Ecn => {}
            Congestion::Timeout => {
                self.after_timeout = true;
                return core::mem::replace(&mut self.timeout_unanswered, true);
            }
        }
        false
    }

    /// Notes an acknowledgement; says whether the window may grow by it.
    ///
    /// In fast recovery it may not: proportional rate reduction paces the sender. After a timeout it may: recovery
    /// is slow start then (RFC 5681, 3.1).
    pub(super) fn lets_grow(&mut self, acked: &Acked) -> bool {
        self.timeout_unanswered &= acked.cumulative == 0;
        acked.delivered > 0 && (!acked.in_recovery || self.after_timeout)
    }

    /// The application was idle: slow start begins anew, and not by the event.
    pub(super) fn end(&mut self) {
        *self = Episode::default();
    }

    /// The last event was spurious.
    pub(super) fn undo(&mut self) {
        *self = Episode::default();
    }
}
