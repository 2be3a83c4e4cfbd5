//! A handshake as a value.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::{Hop, SeqNum, Timestamps};

/// A handshake that a peer has begun and not completed (SYN-RECEIVED of RFC 9293, 3.3.2), off the stack: all that a stack with the
/// same listener has to know to go on with it. The peer's ACK, and another SYN-ACK if that does not come, are the other's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Handshake {
    /// Our end.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// Where its packets leave.
    pub hop: Hop,
    /// The sequence number of the peer's SYN.
    pub irs: SeqNum,
    /// The sequence number of ours.
    pub iss: SeqNum,
    /// Largest segment that the peer takes.
    pub peer_mss: u16,
    /// The shifts of the peer's windows and of ours, if both sides scale them.
    pub window_scales: Option<(u8, u8)>,
    /// Both sides agreed on SACK.
    pub sack_permitted: bool,
    /// Both sides agreed on ECN.
    pub ecn: bool,
    /// What the next segment would say, if both sides agreed on timestamps.
    pub timestamps: Option<Timestamps>,
    /// The window that our SYN-ACK offered.
    pub window: u16,
    /// SYN-ACKs sent.
    pub syn_acks: u8,
    /// Timeouts so far.
    pub timeouts: u8,
    /// Microseconds since the SYN came.
    pub age_us: u64,
    /// The headers of the SYN, if the listener wants them.
    pub saved_syn: Option<Box<[u8]>>,
}
