//! The part of a socket that only UDP has.

use std::net::SocketAddr;

use clock::Instant;
use stack::Stack;
use stack::tcp::Readiness;
use stack::udp::UdpId;

use crate::socket::learned_ways::{LearnedWay, LearnedWays};
use crate::socket::readiness::{READABLE, WRITABLE};
use crate::socket::udp_messages::Asked;

/// Octets that the longest datagram has, and those that came together.
pub(crate) const DATAGRAM_MAX: usize = 65_535;

/// What looks like a client, as it is connected or was never bound, is claimed when it is waited for this often. A claim is a request to the
/// broker: who asks one question, such as for the address of a name, would wait longer for it than for the answer.
pub(crate) const CLIENT_WAITS: u32 = 32;

/// A UDP socket.
#[derive(Default)]
pub(crate) struct UdpRole {
    pub(crate) on_stack: Option<UdpId>,
    /// bind(2) was called, and connect(2) was not: who waits for datagrams there gets them from the stack.
    pub(crate) is_bound: bool,
    /// How often a thread waited here while it was not bound, or was connected.
    waits: u32,
    ways: Box<LearnedWays>,
    /// What it wants to be told of datagrams.
    pub(crate) asked: Asked,
    /// The kernel alone can do with what it sends what was asked for.
    pub(crate) is_sent_by_kernel: bool,
    /// The kernel waits for the rest of a datagram (`MSG_MORE`).
    pub(crate) is_corked: bool,
    /// The peer that it is connected to, if that peer's datagrams are on the stack.
    pub(crate) peer: Option<SocketAddr>,
    /// Room to put a datagram together that comes in pieces, or is to leave so.
    pub(crate) room: Vec<u8>,
}

impl UdpRole {
    /// A socket that was bound before we knew it.
    pub(crate) fn bound() -> UdpRole {
        UdpRole { is_bound: true, ..UdpRole::default() }
    }

    /// A thread waits for datagrams: whether they are worth a claim.
    pub(crate) fn note_wait(&mut self) -> bool {
        self.waits = self.waits.saturating_add(1);
        self.is_bound || self.waits >= CLIENT_WAITS
    }

    /// connect(2) has succeeded or failed; `is_bound` says whether there is a port and no peer.
    pub(crate) fn on_connect(&mut self, is_bound: bool) {
        self.is_bound = is_bound;
        self.waits = 0;
    }

    pub(crate) fn poll(&self, stack: &Stack) -> u32 {
        let readiness = self.on_stack.and_then(|id| stack.udp_readiness(id)).unwrap_or_default();
        let Readiness { readable, error, .. } = readiness;
        // An error alone is nothing to read, although reading reports it.
        let readable = readable && (!error || self.on_stack.is_some_and(|id| stack.udp_peek(id).is_some()));
        let bits = if readable { READABLE | WRITABLE } else { 0 };
        bits | if error { libc::EPOLLERR as u32 } else { 0 }
    }

    /// A datagram came this way: what goes back goes the same.
    pub(crate) fn learn(&mut self, way: LearnedWay, now: Instant) {
        self.ways.note(way, now);
    }

    pub(crate) fn way_to(&self, remote: SocketAddr, now: Instant) -> Option<&LearnedWay> {
        self.ways.find(remote, now)
    }
}

pub(crate) fn scatter(octets: &[u8], buffers: &mut [std::io::IoSliceMut<'_>]) {
    let mut rest = octets;
    for buffer in buffers {
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        rest = &rest[count..];
    }
}
