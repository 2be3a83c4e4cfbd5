//! Loads over connections: HTTP/1.1, HTTP/2, and DNS over TCP, TLS and HTTPS. Octets and times come in, octets go out.
//!
//! ```text
//!   Schedule ──due──▶ Backlog ──▶ a connection with room ──octets──▶ the server
//!                                        │      ▲                       │
//!                         what it cost: Tally   └──────── octets ◀──────┘
//! ```
//!
//! - [`load`]: all connections of a load, and which of them takes the next request. Start here.
//! - `backlog`: requests that are due while no connection is free.
//! - `http1` and `answer_reader`, `http2`, `dns`: what is spoken on a connection.
//! - `conversation`: what `load` needs to know of that.
//! - [`holding`]: connections that are opened and held, and say nothing.
//!
//! TLS is the driver's: it is below the octets.

pub(crate) mod answer_reader;
pub(crate) mod backlog;
pub(crate) mod conversation;
pub(crate) mod dns;
mod fault;
pub mod holding;
pub(crate) mod http1;
pub(crate) mod http2;
pub mod load;

pub use fault::Fault;
pub use holding::Holding;
pub use http1::Http1Request;
pub use http2::Http2Request;
pub use load::{Pace, Setup, Speech, Streams};
