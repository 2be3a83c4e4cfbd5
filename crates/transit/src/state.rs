//! States of RFC 9293, 3.3.2.

use serde::{Deserialize, Serialize};

/// States of RFC 9293, 3.3.2, without LISTEN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum State {
    /// We sent a SYN.
    SynSent,
    /// We sent a SYN-ACK: to a SYN that crossed ours, or to one that brought data (RFC 7413).
    SynReceived,
    /// Open both ways.
    Established,
    /// The user sends no more. Our FIN is not acknowledged and perhaps not even sent.
    FinWait1,
    /// Our FIN is acknowledged.
    FinWait2,
    /// The peer sent a FIN.
    CloseWait,
    /// The user closed first, then the peer's FIN arrived. Ours is not acknowledged and perhaps not even sent.
    Closing,
    /// The peer's FIN arrived first. Ours is not acknowledged and perhaps not even sent.
    LastAck,
    /// Both FINs are acknowledged, ours was the first.
    TimeWait,
    /// Gone.
    Closed,
}

use State::*;

impl State {
    /// Whether sequence numbers of both sides are known.
    pub const fn is_synchronised(self) -> bool {
        !matches!(self, SynSent | SynReceived | Closed)
    }

    /// Whether the peer's FIN may still come.
    pub const fn may_receive(self) -> bool {
        matches!(self, Established | FinWait1 | FinWait2)
    }

    /// Whether data may be sent, or sent again.
    pub const fn may_send(self) -> bool {
        matches!(self, Established | CloseWait | FinWait1 | Closing | LastAck)
    }

    /// Whether a connection in this state can go to another owner: as soon as both SYNs are acknowledged, as long as an end may have
    /// something to say.
    ///
    /// Not SYN-SENT and SYN-RECEIVED, where sequence numbers or options are not settled. Not TIME-WAIT: all that is left is to answer a
    /// repeated FIN of the peer, and the old owner does that. FIN-WAIT-2 is one, as the peer may have a lot to send yet.
    pub const fn is_transferable(self) -> bool {
        matches!(self, Established | CloseWait | FinWait1 | FinWait2 | Closing | LastAck)
    }

    /// Whether the peer's FIN has arrived, and the connection is not over.
    pub const fn has_fin_received(self) -> bool {
        matches!(self, CloseWait | Closing | LastAck)
    }

    /// Whether the user sends no more, and the connection is not over.
    pub const fn is_write_closed(self) -> bool {
        matches!(self, FinWait1 | FinWait2 | Closing | LastAck)
    }

    /// Whether the kernel must receive a segment from the peer to get into this state. We send it in the peer's name.
    pub const fn has_peer_to_speak(self) -> bool {
        self.has_fin_received() || matches!(self, FinWait2)
    }
}
