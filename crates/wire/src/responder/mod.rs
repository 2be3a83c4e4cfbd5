//! The hot path of a UDP service: where a request lies in its frame, and how its reply leaves in the same frame.
//!
//! ```text
//!   | Ethernet, 0-2 tags | IPv4, 20 octets, or IPv6, 40 octets | UDP, 8 octets | payload | padding |
//!   0                    l3                                    l4              l4 + 8
//! ```
//!
//! Only what the steering program hands over is accepted: no fragments, no IPv4 options, no IPv6 extension headers.

mod parse;
mod reply;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use core::ops::Range;

use crate::checksum::Sum;
use crate::ethernet::{ethertype, find_payload};
use crate::{DropReason, protocol};

pub(crate) use reply::{write_udp_fields, write_v4_header, write_v6_fixed};

pub(crate) const IPV4_LEN: usize = 20;
pub(crate) const IPV6_LEN: usize = 40;
pub(crate) const UDP_LEN: usize = 8;
/// TTL or hop limit of what we send.
const HOP_LIMIT: u8 = 64;

/// Which Internet protocol a packet is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IpVersion {
    /// RFC 791.
    V4,
    /// RFC 8200.
    V6,
}

/// Where the parts of a UDP datagram lie in its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpHeaders {
    /// At most 22 and 62, so that octets do; the distance tells the IP version.
    l3: u8,
    l4: u8,
    payload_len: u16,
}

/// Which received checksums to verify.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChecksumPolicy {
    /// The device has verified IPv4 and UDP checksums already: they are skipped.
    pub verified: bool,
    /// A transport checksum that holds the sum of the pseudo-header, not complemented, is right too: so veth and virtio leave
    /// it, expecting hardware to finish it.
    pub accept_partial: bool,
}

/// Finds the parts of the UDP datagram in `frame`, or says why to drop it.
#[inline]
pub fn parse_udp(frame: &[u8], policy: ChecksumPolicy) -> Result<UdpHeaders, DropReason> {
    let (ethertype, l3) = find_payload(frame)?;
    if (frame[0] | frame[6]) & 1 != 0 {
        return Err(parse::which_mac_is_group(frame[0]));
    }
    let packet = &frame[l3..];
    match ethertype {
        ethertype::IPV4 => parse::parse_v4(packet, l3, policy),
        ethertype::IPV6 => parse::parse_v6(packet, l3, policy),
        _ => Err(DropReason::EthertypeUnknown),
    }
}

/// Rewrites the headers of a request for a reply of `payload_len` octets that stands where the request's payload stood;
/// returns the frame's new length, without Ethernet padding.
///
/// MAC addresses, IP addresses and ports are swapped; VLAN tags stay. The IP header is a fresh one: TTL or hop limit 64,
/// DSCP, ECN and flow label zero, IPv4 identification zero with "do not fragment" (RFC 6864, 4.1). With
/// `tx_checksum_offload` the UDP checksum field is left as it is, for the device to fill in.
///
/// # Panics
/// If `headers` were not parsed from `frame`, the reply reaches beyond `frame`, or it exceeds an IP packet: keep
/// `payload_len` within [`UdpHeaders::max_payload`].
#[inline]
pub fn turn_around(
    frame: &mut [u8],
    headers: &UdpHeaders,
    payload_len: usize,
    tx_checksum_offload: bool,
) -> usize {
    assert!(payload_len <= headers.max_payload(u16::MAX), "a reply fits an IP packet");
    let len = headers.payload_offset() + payload_len;
    let (ethernet, packet) = frame[..len].split_at_mut(usize::from(headers.l3));
    let macs: &mut [u8; 12] = ethernet.first_chunk_mut().expect("parsed from this frame");
    let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5] = *macs;
    *macs = [s0, s1, s2, s3, s4, s5, d0, d1, d2, d3, d4, d5];
    match headers.ip_version() {
        IpVersion::V4 => reply::turn_around_v4(packet, tx_checksum_offload),
        IpVersion::V6 => reply::turn_around_v6(packet, tx_checksum_offload),
    }
    len
}

impl UdpHeaders {
    pub(crate) fn new(version: IpVersion, l3: usize, payload_len: u16) -> UdpHeaders {
        let ip_len = match version {
            IpVersion::V4 => IPV4_LEN,
            IpVersion::V6 => IPV6_LEN,
        };
        UdpHeaders { l3: l3 as u8, l4: (l3 + ip_len) as u8, payload_len }
    }

    /// IPv4 or IPv6.
    #[inline]
    pub fn ip_version(&self) -> IpVersion {
        match usize::from(self.l4 - self.l3) {
            IPV4_LEN => IpVersion::V4,
            _ => IpVersion::V6,
        }
    }

    /// Octets from the start of the frame to the IP header.
    #[inline]
    pub fn ip_offset(&self) -> usize {
        usize::from(self.l3)
    }

    /// Octets from the start of the frame to the UDP header.
    #[inline]
    pub fn udp_offset(&self) -> usize {
        usize::from(self.l4)
    }

    /// Octets from the start of the frame to the payload.
    #[inline]
    pub fn payload_offset(&self) -> usize {
        usize::from(self.l4) + UDP_LEN
    }

    /// Where the payload lies in the frame.
    #[inline]
    pub fn payload_range(&self) -> Range<usize> {
        let start = self.payload_offset();
        start..start + usize::from(self.payload_len)
    }

    /// Longest payload, in octets, with which the IP packet fits `mtu`.
    #[inline]
    pub fn max_payload(&self, mtu: u16) -> usize {
        usize::from(mtu).saturating_sub(self.payload_offset() - self.ip_offset())
    }

    /// The sender of the datagram. The scope of a link-local address is not in the frame, and zero here.
    ///
    /// # Panics
    /// If the headers were not parsed from `frame`; so does [`UdpHeaders::destination`].
    #[inline]
    pub fn source(&self, frame: &[u8]) -> SocketAddr {
        let address = match self.ip_version() {
            IpVersion::V4 => self.v4_at(frame, 12),
            IpVersion::V6 => self.v6_at(frame, 8),
        };
        socket_addr(address, self.port_at(frame, 0))
    }

    /// Which address and port were asked.
    #[inline]
    pub fn destination(&self, frame: &[u8]) -> SocketAddr {
        let address = match self.ip_version() {
            IpVersion::V4 => self.v4_at(frame, 16),
            IpVersion::V6 => self.v6_at(frame, 24),
        };
        socket_addr(address, self.port_at(frame, 2))
    }

    fn v4_at(&self, frame: &[u8], at: usize) -> IpAddr {
        let octets: &[u8; 4] = frame[self.ip_offset() + at..].first_chunk().expect("parsed from this frame");
        Ipv4Addr::from(*octets).into()
    }

    fn v6_at(&self, frame: &[u8], at: usize) -> IpAddr {
        let octets: &[u8; 16] = frame[self.ip_offset() + at..].first_chunk().expect("parsed from this frame");
        Ipv6Addr::from(*octets).into()
    }

    fn port_at(&self, frame: &[u8], at: usize) -> u16 {
        u16_at(frame, self.udp_offset() + at)
    }
}

/// Protocol and length: what follows the addresses in a pseudo-header.
#[inline]
fn pseudo_tail(udp_len: u16) -> Sum {
    Sum::of_u16(u16::from(protocol::UDP)) + Sum::of_u16(udp_len)
}

fn socket_addr(address: IpAddr, port: u16) -> SocketAddr {
    match address {
        IpAddr::V4(address) => SocketAddrV4::new(address, port).into(),
        IpAddr::V6(address) => SocketAddrV6::new(address, port, 0, 0).into(),
    }
}

#[inline]
fn u16_at(octets: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([octets[at], octets[at + 1]])
}

#[inline]
fn u32_at(octets: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]])
}

#[inline]
fn u64_at(octets: &[u8], at: usize) -> u64 {
    u64::from(u32_at(octets, at)) << 32 | u64::from(u32_at(octets, at + 4))
}
