//! Segments and acknowledgements, and what follows.

use super::AckSegment;
use crate::seq::{SeqNum, SeqRange};

/// Octets `start` to `end` in thousands, near the end of the sequence space.
pub(super) fn seq_range(start: u32, end: u32) -> SeqRange {
    SeqRange::new(seq(start), seq(end))
}

fn seq(thousands: u32) -> SeqNum {
    SeqNum(0) - 15_000 + 1000 * thousands
}

/// An acknowledgement of `ack` with nothing else, for a sender with `una` and `nxt`, in thousands.
pub(super) fn ack_of(ack: u32, una: u32, nxt: u32) -> AckSegment<'static> {
    AckSegment {
        ack: seq(ack),
        snd_una: seq(una),
        snd_nxt: seq(nxt),
        sack: &[],
        ece: false,
        echoed: None,
        timestamp_rtt: None,
        has_payload: false,
        window_changed: false,
        has_unsent: false,
    }
}
