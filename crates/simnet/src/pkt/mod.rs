//! packetdrill's language: scripts of packets and system calls, played against one stack under simulated time.
//!
//! A script says what a program does, which packets its peer sends, and which packets the stack must send, each with
//! its time:
//!
//! ```text
//! // A listener answers a SYN (RFC 9293, 3.10.7.2).
//!  0  socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
//! +0  bind(3, ..., ...) = 0
//! +0  listen(3, 1) = 0
//! +0  < S 0:0(0) win 65535 <mss 1460>
//! +0  > S. 0:0(0) ack 1 <...>
//! ```
//!
//! [`play`] does what a script says and tells how it went; `cargo run -p simnet --bin pkt -- FILE...` does so for files.
//! [`parser`] reads the language into [`ast`]; `player/` walks through the events; `sockets/` are the system calls,
//! `flow.rs` knows what the script's numbers are on the wire, `compare.rs` says what differs, and `host/` is the only
//! part that calls the stack.
//!
//! What differs from packetdrill: time is simulated, so nothing is late by chance; data is a pattern instead of zeros,
//! so lost and doubled octets show; shell commands are understood instead of run; packets that name their ports belong
//! to the connection with those ports, so that one script may have many.
//!
//! Not understood, and said so by the verdict: `pipe` and `splice`, since there are no files; the times that `SO_TIMESTAMPING` puts into the
//! error queue, as the stack takes none (under `sidestep run` the crate `posix` does). A write with `MSG_ZEROCOPY` is copied, and the error
//! queue says so. Of `sysctl` and `/proc/sys` lines those count that set what `host/sysctl.rs` lists; a setting that the stack does not have
//! is named in the verdict.

pub mod ast;
mod compare;
mod cookies;
pub mod errno;
mod flow;
mod host;
mod packet;
pub mod parser;
mod payload;
mod player;
pub mod python;
mod report;
pub mod settings;
pub mod shell;
mod show;
mod sockets;
mod symbols;
mod trouble;
mod world;

pub use player::play;
pub use report::{Finding, Report, Verdict};
