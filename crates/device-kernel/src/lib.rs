//! UDP services on kernel sockets: SO_REUSEPORT, recvmmsg and sendmmsg as a Device; and whole interfaces by packet sockets.
//!
//! [`KernelSockets`] makes a set of UDP sockets look like a network card, so that the engine's code is the same with
//! and without AF_XDP. A datagram is received into a frame, with headers synthesised around it. The headers of a
//! frame to be sent determine the payload's destination and source address. Needs no privileges, except for ports below 1024.
//!
//! Each engine has its own [`KernelSockets`] on the same addresses; the kernel spreads clients over them
//! (SO_REUSEPORT). The kernel still fragments, reassembles, filters and routes the packets.
//!
//! [`Datagrams`] is one UDP socket by the same calls, with datagrams as octets, for programs that answer later than at once.
//!
//! [`PacketSocket`] is an interface with all its frames, for programs that stand between two wires.
//!
//! # Where the unsafe is
//!
//! In `message`: recvmmsg(2) and sendmmsg(2); and in `option`: socket options, and bind(2) of packet sockets, that no safe
//! crate offers.

mod address;
mod config;
mod datagrams;
mod device;
mod message;
mod option;
mod packet;
mod socket;

pub use config::{Config, PAYLOAD_MAX};
pub use datagrams::{Datagrams, Peer};
pub use device::KernelSockets;
pub use packet::PacketSocket;
pub use socket::OpenError;
