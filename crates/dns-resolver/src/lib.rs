//! A recursive resolver without sockets and clocks.
//!
//! [`Resolver`] takes questions of clients and responses of servers, with the time, and gives queries to send and answers. Its page
//! says in which order it is called. It opens nothing, reads no clock, and draws its random numbers from a key that it is made with.
//!
//! | module | what it does |
//! | --- | --- |
//! | `resolver` | the calls, and what waits for what |
//! | `iterator` | from a question to the servers that know (RFC 1034, 5.3.3) |
//! | `servers` | which server is asked, and for how long |
//! | `dnssec` | whether it is true |
//! | `cache` | what servers said |
//! | `stale` | when expired data is served |
//! | `subnet` | answers that differ by where clients are |
//! | `dns64` | IPv6 addresses for clients behind a translator |
//! | `delegation`, `hints`, `local_zones` | where zones are |
//! | `message` | the octets |
//! | `options` | every constant, with its reason |
#![forbid(unsafe_code)]

mod cache;
mod delegation;
mod dns64;
mod dnssec;
mod fuzz;
mod hints;
mod iterator;
mod local_zones;
mod message;
mod options;
mod random;
mod resolver;
pub mod servers;
pub mod stale;
mod subnet;

pub use cache::{NotRestored, Scope};
pub use dns64::Dns64;
pub use dnssec::anchors::{NegativeAnchor, Trust, TrustAnchor};
#[doc(hidden)]
pub use fuzz::fuzz_resolver;
pub use hints::Hints;
pub use options::{CacheOptions, Dnssec, Limits, Minimisation, Options, Selection, Stale};
pub use random::Random;
pub use resolver::{
    Answer, ClientId, Counters, Directed, DirectedKind, KnownAnswer, QueryId, Refusal, Resolver, Terms,
    Transmit, Transport, Zones,
};
pub use servers::ServerReport;
pub use subnet::Subnet;
