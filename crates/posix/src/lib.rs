//! Sockets as programs know them: descriptors, blocking, epoll, poll, errno, on an engine that the program's own calls drive.
//!
//! Start at [`calls`]: one function for each family of system calls. Everything there takes safe types; `preload` makes them of
//! C's. Behind it:
//!
//! | file | what it has |
//! | --- | --- |
//! | `fd_table.rs` | what each descriptor is: one load |
//! | `process.rs`, `global.rs` | everything behind one lock; the process that we are loaded into |
//! | `runtime.rs`, `attachment.rs`, `brokered.rs`, `handshake_message.rs`, `ways.rs` | the engine, and who gives it queues, claims and ways |
//! | `drive.rs`, `waiter.rs`, `batch.rs`, `watchdog.rs`, `own_thread.rs` | turns of the engine, sleeping, waking |
//! | `socket/`, `epoll/`, `poll.rs` | what the calls do |
//! | `held.rs` | what is closed while a call still uses it |
//! | `status.rs`, `observing.rs` | what those see who look |
//! | `lifecycle.rs`, `kinship.rs` | fork, exec, seccomp, exit; connections that parent and child have in common |
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
mod kinship;
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
