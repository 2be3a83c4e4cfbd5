//! UDP services on kernel sockets: SO_REUSEPORT, recvmmsg and sendmmsg as a Device.
//!
//! [`KernelSockets`] makes a set of UDP sockets look like a network card, so that the engine's code is the same with
//! and without AF_XDP: a datagram is received into a frame behind headers made up around it, and the headers of a
//! frame to be sent say where its payload goes and from which address. Needs no privilege, except for ports below 1024.
//!
//! Each engine has its own [`KernelSockets`] on the same addresses; the kernel spreads clients over them
//! (SO_REUSEPORT). What the kernel fragments, reassembles, filters or routes by policy stays the kernel's business.
//!
//! # Where the unsafe is
//!
//! In `message`: recvmmsg(2) and sendmmsg(2), and two socket options that no safe crate offers, in `option`.

mod address;
mod config;
mod device;
mod message;
mod option;
mod socket;

pub use config::{Config, PAYLOAD_MAX};
pub use device::KernelSockets;
pub use socket::OpenError;
