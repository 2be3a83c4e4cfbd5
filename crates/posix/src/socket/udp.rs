//! The part of a socket that only UDP has.

use std::net::SocketAddr;

use clock::{Duration, Instant};
use stack::tcp::Readiness;
use stack::udp::UdpId;
use stack::{Hop, Stack};

use crate::socket::readiness::{READABLE, WRITABLE};
use crate::socket::udp_messages::Asked;

/// Destinations whose route is cached.
const WAYS_MAX: usize = 64;
/// How long a way is believed: neighbours change, and the kernel knows.
const WAY_LIFETIME: Duration = Duration::from_secs(30);

/// A UDP socket.
#[derive(Default)]
pub(crate) struct UdpRole {
    pub(crate) on_stack: Option<UdpId>,
    /// bind(2) was called: threads that wait for datagrams there get them from the stack.
    pub(crate) is_bound: bool,
    ways: Vec<LearnedWay>,
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

/// How a datagram came: what goes back goes the same way.
pub(crate) struct LearnedWay {
    remote: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) hop: Hop,
    at: Instant,
}

impl UdpRole {
    /// A socket that was bound before we knew it.
    pub(crate) fn bound() -> UdpRole {
        UdpRole { is_bound: true, ..UdpRole::default() }
    }

    pub(crate) fn poll(&self, stack: &Stack) -> u32 {
        let readiness = self.on_stack.and_then(|id| stack.udp_readiness(id)).unwrap_or_default();
        let Readiness { readable, error, .. } = readiness;
        // An error alone is nothing to read, although reading reports it.
        let readable = readable && (!error || self.on_stack.is_some_and(|id| stack.udp_peek(id).is_some()));
        let bits = if readable { READABLE | WRITABLE } else { 0 };
        bits | if error { libc::EPOLLERR as u32 } else { 0 }
    }

    pub(crate) fn learn(&mut self, remote: SocketAddr, local: SocketAddr, hop: Hop, now: Instant) {
        match self.ways.iter_mut().find(|way| way.remote == remote) {
            Some(way) => *way = LearnedWay { remote, local, hop, at: now },
            None => {
                if self.ways.len() >= WAYS_MAX {
                    self.ways.remove(0);
                }
                self.ways.push(LearnedWay { remote, local, hop, at: now });
            }
        }
    }

    pub(crate) fn way_to(&self, remote: SocketAddr, now: Instant) -> Option<&LearnedWay> {
        self.ways.iter().find(|way| way.remote == remote && now.since(way.at) < WAY_LIFETIME)
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
