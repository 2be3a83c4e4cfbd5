//! Looking at running programs: their sockets, counters, traces and packets, over a Unix socket.
//!
//! A program calls [`serve`] once with the handles of its engines; from then on the tools find it in a directory that all
//! know, and ask it. For one that cannot do so itself another process has the [`ControlListener`], and hands it who connects,
//! to [`attend`] to. What they ask is carried out on threads of the control socket, which ask the engines a small piece at
//! a time, so that neither a million connections nor a client that does not read holds up an engine.
//!
//! | file | what it has |
//! | --- | --- |
//! | `protocol.rs`, `report/` | what is asked and answered, and how it looks on the socket |
//! | `server/` | the program's side: one file per request |
//! | `client.rs`, `directory.rs` | the tools' side |
//! | `filter/` | the language that says which packets and sockets are meant |
//! | `ring.rs`, `pcapng.rs` | packets from an engine to a capture, and to a file |
#![forbid(unsafe_code)]

pub mod client;
mod directory;
pub mod filter;
pub mod pcapng;
pub mod protocol;
pub mod report;
mod ring;
mod server;

pub use directory::{directories, make_own_directory, own_directory};
pub use engine::Direction;
pub use filter::{Filter, FilterError};
pub use ring::Header;
pub use server::{ControlListener, ControlSocket, Program, attend, refusal, serve, serve_at};
