//! Events of recovery, for counters.

use core::fmt;

/// Something that recovery did or noticed, named after the Linux counter that it adds one to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Event {
    /// TCPSackRecovery: a fast recovery began on selective acknowledgements.
    SackRecovery,
    /// TCPRenoRecovery: a fast recovery began on duplicate acknowledgements.
    RenoRecovery,
    /// TCPTimeouts: the retransmission timer expired.
    Timeout,
    /// TCPLossProbeRecovery: a tail loss probe repaired a loss.
    LossProbeRecovery,
    /// TCPDSACKRecv: the peer told of a duplicate.
    DsackReceived,
    /// TCPSACKReneging: the peer dropped what it had selectively acknowledged.
    SackReneging,
    /// TCPSpuriousRTOs: F-RTO found that a timeout was spurious.
    SpuriousTimeout,
    /// TCPFullUndo: a fast recovery was found spurious by timestamps at its end.
    FullUndo,
    /// TCPPartialUndo: a fast recovery was found spurious by timestamps before its end.
    PartialUndo,
    /// TCPDSACKUndo: every retransmission was a duplicate.
    DsackUndo,
    /// TCPLossUndo: a recovery after a timeout was found spurious.
    LossUndo,
    /// TCPSACKDiscard: a selective acknowledgement was out of range.
    SackDiscarded,
}

impl Event {
    const ALL: [Event; 12] = [
        Event::SackRecovery,
        Event::RenoRecovery,
        Event::Timeout,
        Event::LossProbeRecovery,
        Event::DsackReceived,
        Event::SackReneging,
        Event::SpuriousTimeout,
        Event::FullUndo,
        Event::PartialUndo,
        Event::DsackUndo,
        Event::LossUndo,
        Event::SackDiscarded,
    ];
}

/// A set of [`Event`]s: each happens at most once for an acknowledgement or a timeout.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Events(u16);

impl Events {
    /// Whether nothing happened.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether `event` happened.
    pub fn contains(self, event: Event) -> bool {
        self.0 & (1 << event as u8) != 0
    }

    /// Those that happened.
    pub fn iter(self) -> impl Iterator<Item = Event> {
        Event::ALL.into_iter().filter(move |&event| self.contains(event))
    }

    pub(super) fn add(&mut self, event: Event) {
        self.0 |= 1 << event as u8;
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_added() {
        let mut events = Events::default();
        assert!(events.is_empty());
        events.add(Event::DsackUndo);
        events.add(Event::DsackReceived);
        events.add(Event::SackDiscarded);
        let seen: Vec<_> = events.iter().collect();
        assert_eq!(seen, [Event::DsackReceived, Event::DsackUndo, Event::SackDiscarded]);
    }
}
