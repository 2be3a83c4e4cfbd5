//! One sent segment.

use clock::Instant;

use super::delivery_rate::Snapshot;
use crate::seq::{SeqNum, SeqRange};

/// The assumed state of a segment that is not cumulatively acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Standing {
    /// Sent, nothing known.
    InFlight,
    /// Sent again though not lost, such as by a probe: two copies may be on their way.
    InFlightTwice,
    /// Lost, and not sent again yet.
    Lost,
    /// Lost, and sent again.
    Resent,
    /// Selectively acknowledged.
    Sacked,
}

impl Standing {
    /// How many, for tables.
    pub(super) const COUNT: usize = 5;

    /// Copies that are in flight: what a segment adds to RFC 6675's pipe.
    pub(super) const fn copies_in_flight(self) -> u32 {
        match self {
            Standing::InFlight | Standing::Resent => 1,
            Standing::InFlightTwice => 2,
            Standing::Lost | Standing::Sacked => 0,
        }
    }

    /// Whether a copy may still arrive or be found lost.
    pub(super) const fn is_pending(self) -> bool {
        self.copies_in_flight() > 0
    }
}

/// A segment as it was sent last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) range: SeqRange,
    /// Last transmission.
    pub(super) sent_at: Instant,
    pub(super) first_sent_at: Instant,
    pub(super) snapshot: Snapshot,
    /// TSval of the last transmission.
    pub(super) timestamp_value: u32,
    pub(super) standing: Standing,
    /// How often it was sent; stays at 255.
    pub(super) transmissions: u8,
    /// One octet of `range`, the first or the last, is SYN or FIN.
    pub(super) has_control_octet: bool,
}

impl Segment {
    pub(super) fn len(&self) -> u32 {
        self.range.len()
    }

    /// Octets that a retransmission of it may have when payload is limited to `mss`.
    pub(super) fn len_max(&self, mss: u32) -> u32 {
        mss.max(1) + u32::from(self.has_control_octet)
    }

    pub(super) fn was_retransmitted(&self) -> bool {
        self.transmissions > 1
    }

    /// Cuts at `at`, which is inside; returns the part behind it. A control octet is taken for a FIN, which is last.
    pub(super) fn split_off(&mut self, at: SeqNum) -> Segment {
        let behind = Segment { range: SeqRange::new(at, self.range.end), ..*self };
        self.range.end = at;
        self.has_control_octet = false;
        behind
    }

    /// Whether `next`, which follows, can be kept as part of this one.
    pub(super) fn can_absorb(&self, next: &Segment, mss: u32) -> bool {
        self.standing == next.standing
            && self.transmissions == next.transmissions
            && !self.has_control_octet
            && self.len() + next.len() <= next.len_max(mss)
    }

    /// Keeps `next`, which follows, as part of this one; both count as sent when `next` was.
    pub(super) fn absorb(&mut self, next: &Segment) {
        *self = Segment {
            range: SeqRange::new(self.range.start, next.range.end),
            first_sent_at: self.first_sent_at,
            ..*next
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_small() {
        assert!(size_of::<Segment>() <= 48, "{}", size_of::<Segment>());
    }
}
