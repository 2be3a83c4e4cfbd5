//! The socket API on our stack: descriptors, blocking, epoll, poll, errno. The program's own calls drive the engine.
//!
//! Start at [`calls`]: one function for each family of system calls. Everything there takes safe types, which `preload` makes from
//! C's. Behind it:
//!
//! | file | what it has |
//! | --- | --- |
//! | `fd_table.rs` | the kind of each descriptor, with one load |
//! | `process.rs`, `global.rs` | the state behind one lock; the process that we are loaded into |
//! | `runtime.rs`, `attachment.rs`, `brokered.rs`, `handshake_message.rs`, `ways.rs` | the engine, and the source of queues, claims and routes |
//! | `drive.rs`, `waiter.rs`, `batch.rs`, `watchdog.rs`, `own_thread.rs` | turns of the engine, sleeping, waking |
//! | `socket/`, `epoll/`, `poll.rs` | the calls themselves |
//! | `held.rs` | descriptors that are closed while a call still uses them |
//! | `status.rs`, `observing.rs` | reports, and tools that observe the process |
//! | `socket/place.rs`, `socket/moves/` | where a socket is, between stack and kernel, and how it gets there |
//! | `lifecycle.rs` | fork, exec, seccomp, exit |
#![forbid(unsafe_code)]

mod attachment;
mod batch;
mod brokered;
pub mod calls;
mod drive;
mod epoll;
mod errno;
mod fd_table;
mod global;
mod handshake_message;
mod held;
pub mod inside;
mod internal;
mod lifecycle;
mod observing;
mod own_thread;
mod poll;
mod process;
mod runtime;
mod socket;
mod status;
#[cfg(test)]
mod tests;
mod waiter;
mod watchdog;
mod ways;

pub use errno::Errno;
