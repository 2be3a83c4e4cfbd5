//! Connections that become the kernel's.
//!
//! ```text
//!   kernel has the socket, silent --> its packets pass to it --> it begins to speak
//! ```
//!
//! In this order: a segment that reached the kernel before the socket is there would be answered by a reset. What arrives at the
//! queue until then is lost, and sent again.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use clock::Instant;
use rustix::net::SocketAddrAny;
use steering::Transport;
use tcp_repair::{Established, prepare};

use super::broker::Broker;
use crate::moving::unpack;
use crate::protocol::{Moving, Refusal};
use crate::registry::ClientId;

impl Broker {
    /// Makes the kernel's socket of a client's connection. Its local end must be one that the client has claimed: it cannot speak
    /// for others.
    pub(super) fn take_over(
        &mut self,
        client: ClientId,
        moving: Moving,
        file: Option<OwnedFd>,
        now: Instant,
    ) -> Result<OwnedFd, Refusal> {
        let not_taken = |error: std::io::Error| Refusal::NotTaken(error.to_string());
        let Established { local, remote, .. } = moving.connection;
        if !self.registry.covers(client, Transport::Tcp, local) {
            return Err(Refusal::NoSuchClaim);
        }
        let connection = unpack(moving, file.as_ref()).map_err(not_taken)?;
        let prepared = prepare(&connection).map_err(not_taken)?;
        let epoch = self.registry.epoch(local.port());
        self.ports.iter_mut().for_each(|port| port.add_kernel_flow(local, remote, epoch));
        self.registry.note_moved(local, now);
        self.settle_registry(now);
        prepared.start().map_err(not_taken)
    }
}

/// An end of a connection, its IPv4 address written as one; `None` if the socket is not one of IP.
pub(super) fn end(name: SocketAddrAny) -> Option<SocketAddr> {
    let end = SocketAddr::try_from(name).ok()?;
    Some(SocketAddr::new(end.ip().to_canonical(), end.port()))
}
