//! The DNS responder on an engine.
//!
//! [`DnsResponder`] answers batches of datagrams, and single messages for other transports, from what is [`Published`] at
//! the moment. [`DnsOverTcp`] does so for connections on an engine's stack; what it is made of serves kernel sockets as well.
//! Publishing swaps one pointer, which every responder picks up before its next batch: no query is lost, none
//! sees half of a change, and the old version goes when its last reader has.
#![forbid(unsafe_code)]

mod responder;
mod tcp;

pub use responder::{DnsResponder, Published};
pub use tcp::{
    Admission, DnsOverTcp, Nonsense, Permit, QueryStream, StreamResponder, TcpCounters, TcpLimits,
};
