//! What a datagram carries beside its payload: the control messages of other implementations.

use core::net::{IpAddr, SocketAddr};

use clock::Instant;

use crate::path::Hop;
use crate::segment::Ecn;
use crate::udp::Datagram;

/// Where a datagram goes and how; the default is to the connected peer, by the socket's options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UdpSend {
    /// Destination, if not the connected peer.
    pub to: Option<SocketAddr>,
    /// Our address, if not the one that the socket is bound or connected with (`IP_PKTINFO`, `IPV6_PKTINFO`).
    pub from: Option<IpAddr>,
    /// Where the packet leaves; necessary for a destination other than the connected peer.
    pub hop: Option<Hop>,
    /// IPv4 TOS or IPv6 traffic class, ECN bits included (`IP_TOS`, `IPV6_TCLASS`).
    pub traffic_class: Option<u8>,
    /// IPv4 TTL or IPv6 hop limit (`IP_TTL`, `IPV6_HOPLIMIT`).
    pub hop_limit: Option<u8>,
    /// The payload is to be split in datagrams of this many octets, of which the last may be shorter; zero for one datagram
    /// (`UDP_SEGMENT`).
    pub segment_len: Option<u16>,
}

/// What arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Octets that were copied to the caller.
    pub len: usize,
    /// Octets that arrived; what exceeds `len` is lost (`MSG_TRUNC`).
    pub full_len: usize,
    /// Several datagrams of this many octets each, of which the last may be shorter (`UDP_GRO`); `None` for one.
    pub segment_len: Option<u16>,
    /// The sender. Port 0 if it wants no answer (RFC 768).
    pub remote: SocketAddr,
    /// Our address that it was sent to (`IP_PKTINFO`; RFC 1122, 4.1.3.5).
    pub local: SocketAddr,
    /// Where a reply leaves: the interface on which it arrived, and the reverse of the header in front of it.
    pub hop: Hop,
    /// IPv4 TOS or IPv6 traffic class (`IP_RECVTOS`, `IPV6_RECVTCLASS`).
    pub traffic_class: u8,
    /// IPv4 TTL or IPv6 hop limit as it arrived (`IP_RECVTTL`, `IPV6_RECVHOPLIMIT`).
    pub hop_limit: u8,
    /// When it arrived; of several, the first.
    pub at: Instant,
}

impl Received {
    pub(crate) fn new(datagram: &Datagram, len: usize) -> Received {
        Received {
            len,
            full_len: datagram.len as usize,
            segment_len: Some(datagram.segment_len).filter(|len| *len != 0),
            remote: datagram.key.remote(),
            local: datagram.key.local(),
            hop: datagram.hop,
            traffic_class: datagram.traffic_class,
            hop_limit: datagram.hop_limit,
            at: datagram.at,
        }
    }

    /// Whether the caller's room was too small.
    pub fn is_truncated(&self) -> bool {
        self.len < self.full_len
    }

    /// The ECN bits (RFC 3168, 5).
    pub fn ecn(&self) -> Ecn {
        Ecn::of_traffic_class(self.traffic_class)
    }

    /// What sends a reply back the way this came (RFC 1122, 4.1.3.5).
    pub fn reply(&self) -> UdpSend {
        UdpSend {
            to: Some(self.remote),
            from: Some(self.local.ip()),
            hop: Some(self.hop),
            ..UdpSend::default()
        }
    }
}
