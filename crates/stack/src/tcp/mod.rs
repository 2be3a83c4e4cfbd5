//! TCP (RFC 9293).
//!
//! [`Connection`] is the state machine, in the order of the RFC's section 3.10: `user.rs` has the user calls, `input.rs` the
//! arrival of segments with `acceptance.rs` and `acknowledgement.rs` for two of its steps, `timers.rs` the timeouts.
//! `output.rs` decides what is sent, `transmit.rs` sends it. `connecting.rs` is the handshake of an active open,
//! `handshake.rs` the small state of an incomplete passive open, `listener.rs` the queue of connections that wait for `accept`.
//! `detached.rs` is a connection as a value that moves to another stack, `detached_handshake.rs` the same for a handshake.
//!
//! A connection never sends by itself. It notes what is due, and `Connection::poll_transmit` makes one segment at a time from that.

mod acceptance;
mod acknowledgement;
mod connecting;
mod connection;
mod detached;
mod detached_handshake;
pub(crate) mod handshake;
mod info;
mod input;
pub(crate) mod listener;
mod opening;
mod output;
mod path;
mod receiver;
mod records;
mod segment_size;
mod segment_writer;
mod send_limits;
pub(crate) mod super_segment;
mod timers;
mod transfer;
mod transmit;
mod urgent;
mod user;

pub use connection::{Connection, Events, Readiness};
pub(crate) use connection::{Fate, Origin, Shared, micros};
pub use detached::{DetachError, Detached};
pub(crate) use handshake::HalfOpen;
pub use info::TcpInfo;
pub use listener::Listener;
pub(crate) use path::Quoted;
pub(crate) use receiver::{receive_limit, scale_for};
pub(crate) use segment_size::mss_of_link;
pub(crate) use segment_writer::{Outgoing, SegmentWriter};
pub use transit::{Handshake, State};
pub use urgent::UrgentError;
pub use user::{RecvError, SendError, SetOptionError, Shutdown, TcpError};
