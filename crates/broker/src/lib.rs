//! Who has the privileges: claims, queues and moved connections for programs that have none.
//!
//! | file | what it has |
//! | --- | --- |
//! | `protocol.rs`, `refusal.rs`, `report.rs` | what a program's library and the broker say to each other |
//! | `client.rs` | the library's end |
//! | `peer.rs` | who is at the other end of a socket |
//! | `registry/` | who has which claim and which queue, and what follows; pure |
//! | `server/` | sockets, the kernel, and the clock around the registry |
#![forbid(unsafe_code)]

pub mod client;
mod fuzz;
mod moving;
mod peer;
pub mod protocol;
mod refusal;
pub mod registry;
mod report;
pub mod server;
mod transfer;

pub use fuzz::fuzz_broker;
