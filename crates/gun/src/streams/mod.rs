//! Loads over connections: HTTP/1.1, HTTP/2, HTTP/3, and DNS over TCP, TLS, HTTPS and QUIC. Octets and times come in, octets go out.
//!
//! ```text
//!   Schedule ──due──▶ Backlog ──▶ a connection with room ──octets──▶ the server
//!                                        │      ▲                       │
//!                         what it cost: Tally   └──────── octets ◀──────┘
//! ```
//!
//! - [`load`]: all connections of a load, and which of them takes the next request. Start here.
//! - `backlog`: requests that are due while no connection is free.
//! - `http1` and `answer_reader`, `http2`, `dns`, `doq`, `http3`: what is spoken on a connection. `quic` is what the last two stand on.
//! - `conversation`: what `load` needs to know of that.
//! - [`holding`]: connections that are opened and held, and say nothing.
//!
//! TLS is the driver's: it is below the octets. With QUIC octets are whole datagrams, and TLS is a part of it.

pub(crate) mod answer_reader;
pub(crate) mod backlog;
pub(crate) mod conversation;
pub(crate) mod dns;
pub(crate) mod doq;
mod fault;
pub mod holding;
pub(crate) mod http1;
pub(crate) mod http2;
pub(crate) mod http3;
mod http3_transport;
pub mod load;
pub(crate) mod quic;
pub(crate) mod request;

pub use fault::Fault;
pub use holding::Holding;
pub use http1::Http1Request;
pub use load::{Pace, Setup, Speech, Streams};
pub use quic::Quic;
pub use request::HttpRequest;
