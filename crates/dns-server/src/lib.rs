//! The DNS responder on an engine.
//!
//! [`DnsResponder`] answers batches of datagrams, and single messages for other transports, from the zones that are currently
//! [`Published`]. [`DnsOverTcp`] does so for connections on an engine's stack; its parts serve kernel sockets as well.
//! Publishing swaps one pointer, which every responder reads before its next batch: no query is lost, none
//! sees half of a change, and the old version is freed when its last reader is done.
#![forbid(unsafe_code)]

mod extras;
mod guard;
mod late;
mod responder;
mod special;
mod tcp;

pub use extras::asks_for_keepalive;
pub use guard::GuardOptions;
pub use late::LateReply;
pub use responder::{Answer, Asker, DnsResponder, Published};
pub use special::{OnSpecial, SpecialRequest, TransferService, Wanted};
pub use tcp::{
    Admission, DnsOverTcp, Permit, QueryStream, StreamResponder, TcpCounters, TcpLimits, Unanswerable,
};
