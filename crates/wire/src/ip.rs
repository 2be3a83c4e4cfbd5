//! Either Internet protocol, as far as transports care.

use core::net::IpAddr;

use crate::checksum::Sum;
use crate::ethernet::{Ethernet, ethertype};
use crate::ipv4::Ipv4;
use crate::ipv6::Ipv6;
use crate::{DropReason, protocol};

/// A packet of either version.
#[derive(Clone, Copy, Debug)]
pub enum Ip<'a> {
    /// IPv4.
    V4(Ipv4<'a>),
    /// IPv6.
    V6(Ipv6<'a>),
}

impl<'a> Ip<'a> {
    /// The packet in an Ethernet frame.
    pub fn in_frame(ethernet: &Ethernet<'a>) -> Result<Ip<'a>, DropReason> {
        match ethernet.ethertype() {
            ethertype::IPV4 => Ipv4::parse(ethernet.payload()).map(Ip::V4),
            ethertype::IPV6 => Ipv6::parse(ethernet.payload()).map(Ip::V6),
            _ => Err(DropReason::EthertypeUnknown),
        }
    }

    /// The packet at the start of `octets`, which may end early.
    pub fn parse_quoted(octets: &'a [u8]) -> Result<Ip<'a>, DropReason> {
        match octets.first().map(|first| first >> 4) {
            Some(4) => Ipv4::parse_quoted(octets).map(Ip::V4),
            Some(6) => Ipv6::parse_quoted(octets).map(Ip::V6),
            Some(_) => Err(DropReason::IpVersion),
            None => Err(DropReason::IpTruncated),
        }
    }

    /// Sender.
    #[inline]
    pub fn source(&self) -> IpAddr {
        match self {
            Ip::V4(packet) => packet.source().into(),
            Ip::V6(packet) => packet.source().into(),
        }
    }

    /// Receiver.
    #[inline]
    pub fn destination(&self) -> IpAddr {
        match self {
            Ip::V4(packet) => packet.destination().into(),
            Ip::V6(packet) => packet.destination().into(),
        }
    }

    /// Number of the transport protocol.
    #[inline]
    pub fn protocol(&self) -> u8 {
        match self {
            Ip::V4(packet) => packet.protocol(),
            Ip::V6(packet) => packet.protocol(),
        }
    }

    /// Whether this is a part of a packet only.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        match self {
            Ip::V4(packet) => packet.is_fragment(),
            Ip::V6(packet) => packet.fragment().is_some_and(|part| part.offset != 0 || part.more),
        }
    }

    /// What the IP headers are in front of.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        match self {
            Ip::V4(packet) => packet.payload(),
            Ip::V6(packet) => packet.payload(),
        }
    }

    /// The sum that the checksum of a transport header and payload of `len` octets starts from. ICMP for IPv4 has none.
    #[inline]
    pub fn pseudo_header(&self, len: usize) -> Sum {
        match self {
            Ip::V4(packet) if packet.protocol() == protocol::ICMP => Sum::ZERO,
            Ip::V4(packet) => packet.pseudo_header(len),
            Ip::V6(packet) => packet.pseudo_header(len),
        }
    }
}
