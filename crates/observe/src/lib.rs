//! Observing running programs: their sockets, counters, traces and packets, over a Unix socket.
//!
//! A program calls [`serve`] once with the handles of its engines. From then on the tools find it in a well-known directory.
//! If a program cannot open the socket itself, another process owns the [`ControlListener`] and passes each connection
//! to the program's [`attend`]. Threads of the control socket carry requests out. They ask the engines for a small piece at
//! a time, so that neither a million connections nor a client that does not read delays an engine.
//!
//! | file | what it has |
//! | --- | --- |
//! | `protocol.rs`, `report/` | requests and answers, and their encoding |
//! | `server/` | the program's side: one file per request |
//! | `client.rs`, `directory.rs`, `peer.rs` | the tools' side: finding sockets, asking there, and what their owners may say |
//! | `filter/` | the language of filters for packets and sockets |
//! | `ring.rs`, `pcapng.rs` | packets from an engine to a capture, and into a file |
#![forbid(unsafe_code)]

pub mod client;
mod directory;
pub mod filter;
pub mod pcapng;
mod peer;
pub mod protocol;
pub mod report;
mod ring;
mod server;

pub use directory::{
    broker_name, brokers_in, directories, make_directory_of, make_own_directory, own_directory,
};
pub use engine::Direction;
pub use filter::{Filter, FilterError};
pub use peer::Peer;
pub use ring::Header;
pub use server::{ControlListener, ControlSocket, Program, Subject, attend, refusal, serve, serve_at};
