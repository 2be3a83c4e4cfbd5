//! A connection that goes to the accept queue of a kernel's listener, as its peer would tell the kernel of it.
//!
//! What makes a connection of the first acknowledgement is not here: it is a program at the loopback interface that knows the segment by its
//! mark. Without one, the kernel resets the peer.

use std::io;
use std::net::IpAddr;

use transit::{Established, State};
use wire::tcp::flag;

use crate::socket::RawSocket;
use crate::stand_in::StandIn;

/// Octets that may have been received: as many as fit the first window of a socket with the kernel's default buffers.
const RECEIVED_MAX: usize = 32 << 10;
/// Octets of a segment; the loopback interface takes 64 KiB.
const SEGMENT_MAX: usize = 16 << 10;
/// The smallest segments of peers for which the kernel takes a connection so (`bpf_sk_assign_tcp_reqsk` in Linux's net/core/filter.c).
const MSS_MIN_V4: u16 = 536;
const MSS_MIN_V6: u16 = 1220;

/// Speaks for the peer of such a connection. Needs `CAP_NET_RAW`, and `CAP_NET_ADMIN` for the mark.
#[derive(Debug)]
pub struct Enqueuing<'c> {
    connection: &'c Established,
    stand_in: StandIn,
}

impl<'c> Enqueuing<'c> {
    /// Whether so many octets are too many to be said again.
    pub fn is_too_much(received_len: usize) -> bool {
        received_len > RECEIVED_MAX
    }

    /// Fails with `InvalidInput` if the connection is none that waits at a listener, or one that the kernel does not take so.
    pub fn new(connection: &'c Established) -> io::Result<Enqueuing<'c>> {
        connection.check()?;
        if !can_wait(connection) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let stand_in = StandIn::new(connection)?;
        Ok(Enqueuing { connection, stand_in })
    }

    /// Sends the acknowledgement that ends the handshake, with this mark.
    pub fn announce(&self, mark: u32) -> io::Result<()> {
        let socket = RawSocket::new(self.connection.local.is_ipv6())?;
        socket.set_mark(mark)?;
        StandIn::over(socket).send_segment(self.connection, flag::ACK, 0, &[])
    }

    /// Sequence numbers that the peer has used since the handshake.
    pub fn received(&self) -> u64 {
        self.connection.received.len() as u64 + u64::from(self.connection.state.has_fin_received())
    }

    /// Sends all that the peer has sent. What the kernel has already, it ignores.
    pub fn repeat(&self) -> io::Result<()> {
        for (number, octets) in self.connection.received.chunks(SEGMENT_MAX).enumerate() {
            let at = number * SEGMENT_MAX;
            self.stand_in.send_segment(self.connection, flag::ACK | flag::PSH, at as u32, octets)?;
        }
        match self.connection.state.has_fin_received() {
            true => self.stand_in.send_fin(self.connection),
            false => Ok(()),
        }
    }

    /// Resets the kernel's connection, which has received so much; the peer hears nothing of it.
    pub fn take_back(&self, received: u64) -> io::Result<()> {
        self.stand_in.send_segment(self.connection, flag::RST | flag::ACK, received as u32, &[])
    }
}

/// Nothing was sent to the peer, and nothing is to be kept that the kernel cannot be told.
fn can_wait(connection: &Established) -> bool {
    let Established { state, local, remote, peer_mss, .. } = connection;
    let (mss_min, is_link_local) = match (local.ip(), remote.ip()) {
        (IpAddr::V6(local), IpAddr::V6(remote)) => {
            // The kernel would look for the peer by the loopback interface.
            (MSS_MIN_V6, local.is_unicast_link_local() || remote.is_unicast_link_local())
        }
        _ => (MSS_MIN_V4, false),
    };
    matches!(state, State::Established | State::CloseWait)
        && connection.unacked.is_empty()
        && connection.unsent.is_empty()
        && !Enqueuing::is_too_much(connection.received.len())
        && !(connection.read_closed || connection.orphaned)
        && *peer_mss >= mss_min
        && !is_link_local
}
