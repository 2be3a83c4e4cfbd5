//! TCP (RFC 9293).
//!
//! [`Connection`] is the state machine, in the order of the RFC's section 3.10: `user.rs` has the user calls, `input.rs` the
//! arrival of segments, `timers.rs` the timeouts, and `output.rs` decides what is sent and writes it. `handshake.rs` is the
//! small state of a connection that a peer has begun and not completed, `listener.rs` what waits to be accepted.
//!
//! A connection never sends by itself: it notes what is due, and [`Connection::poll_transmit`] makes one segment at a time
//! of it.

mod connection;
pub(crate) mod handshake;
mod info;
mod input;
pub(crate) mod listener;
mod opening;
mod output;
mod path;
mod receiver;
mod timers;
mod transfer;
mod user;

pub use connection::{Connection, Events, Readiness, State};
pub(crate) use connection::{Fate, Origin, Shared};
pub use info::TcpInfo;
pub use listener::Listener;
pub(crate) use output::{Outgoing, SegmentWriter, mss_of_link};
pub(crate) use receiver::{receive_limit, scale_for};
pub use user::{RecvError, SendError, SetOptionError, Shutdown, TcpError};
