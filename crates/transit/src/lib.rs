//! TCP connections and handshakes as values, on their way from one owner to the next.
//!
//! An owner is a stack or the kernel. The same value leaves the one, travels in the broker's messages, and enters the other:
//! `stack` makes and takes it, `tcp-repair` makes a kernel socket of it.
//!
//! Serialized, an [`Established`] is without its octets, which travel in a file.
#![forbid(unsafe_code)]

mod established;
mod handshake;
mod hop;
pub mod seq;
mod state;

use serde::{Deserialize, Serialize};

pub use established::{Established, Invalid, SocketKind};
pub use handshake::Handshake;
pub use hop::{Hop, LinkHeader, LinkId};
pub use seq::SeqNum;
pub use state::State;

/// Timestamps of one segment (RFC 7323, 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timestamps {
    /// TSval: the sender's clock.
    pub value: u32,
    /// TSecr: the receiver's clock, echoed.
    pub echo: u32,
}
