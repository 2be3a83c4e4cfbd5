//! The privileged process of `sidestep run`: claims, queues and moved connections for unprivileged programs.
//!
//! | file | what it has |
//! | --- | --- |
//! | `protocol/` | the messages between a program's library and the broker |
//! | `client/` | the library's end |
//! | `peer.rs`, `machine_clock.rs` | the process at the other end of a socket; the clock that all processes share |
//! | `shares.rs` | what users share, so that none keeps others out |
//! | `book.rs` | the connections of a process, in a file that outlives it |
//! | `registry/` | who has which claim and which queue, and the resulting actions; pure |
//! | `server/` | sockets, the kernel, and the clock around the registry |
#![forbid(unsafe_code)]

pub mod book;
pub mod client;
mod fuzz;
mod machine_clock;
mod moving;
mod peer;
pub mod protocol;
pub mod registry;
pub mod server;
mod shares;
mod transfer;

pub use fuzz::fuzz_broker;
pub use server::fuzz_requests;
