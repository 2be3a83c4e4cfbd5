//! The hot path of a UDP service: where a request lies in its frame, and how its reply leaves in the same frame.
//!
//! ```text
//!   | Ethernet, 0-2 tags | IPv4, 20 octets, or IPv6, 40 octets | UDP, 8 octets | payload | padding |
//!   0                    l3                                    l4              l4 + 8
//! ```
//!
//! Only what the steering program hands over is accepted: no fragments, no IPv4 options, no IPv6 extension headers.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use core::ops::Range;

use crate::checksum::{Sum, udp_field};
use crate::ethernet::{ethertype, find_payload};
use crate::{DropReason, protocol};

pub(crate) const IPV4_LEN: usize = 20;
pub(crate) const IPV6_LEN: usize = 40;
pub(crate) const UDP_LEN: usize = 8;
/// TTL or hop limit of what we send.
pub(crate) const HOP_LIMIT: u8 = 64;

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
    version: IpVersion,
    l3: u16,
    l4: u16,
    payload_len: u16,
}

/// How far received checksums are to be looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChecksumPolicy {
    /// The device has verified IPv4 and UDP checksums already: they are skipped.
    pub verified: bool,
    /// A UDP checksum that holds the sum of the pseudo-header, not complemented, is right too: so veth and virtio leave
    /// it, expecting hardware to finish it.
    pub accept_partial: bool,
}

/// Finds the parts of the UDP datagram in `frame`, or tells why it is to be dropped.
#[inline]
pub fn parse_udp(frame: &[u8], policy: ChecksumPolicy) -> Result<UdpHeaders, DropReason> {
    let (ethertype, l3) = find_payload(frame)?;
    if (frame[0] | frame[6]) & 1 != 0 {
        return Err(which_mac_is_group(frame[0]));
    }
    let packet = &frame[l3..];
    match ethertype {
        ethertype::IPV4 => parse_v4(packet, l3 as u16, policy),
        ethertype::IPV6 => parse_v6(packet, l3 as u16, policy),
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
    let (destination, source) = ethernet[..12].split_at_mut(6);
    destination.swap_with_slice(source);
    match headers.version {
        IpVersion::V4 => turn_around_v4(packet, tx_checksum_offload),
        IpVersion::V6 => turn_around_v6(packet, tx_checksum_offload),
    }
    len
}

impl UdpHeaders {
    pub(crate) fn new(version: IpVersion, l3: u16, payload_len: u16) -> UdpHeaders {
        let ip_len = match version {
            IpVersion::V4 => IPV4_LEN,
            IpVersion::V6 => IPV6_LEN,
        };
        UdpHeaders { version, l3, l4: l3 + ip_len as u16, payload_len }
    }

    /// IPv4 or IPv6.
    #[inline]
    pub fn ip_version(&self) -> IpVersion {
        self.version
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

    /// Who sent the datagram. The scope of a link-local address is not in the frame, and zero.
    ///
    /// # Panics
    /// If the headers were not parsed from `frame`; so does [`UdpHeaders::destination`].
    #[inline]
    pub fn source(&self, frame: &[u8]) -> SocketAddr {
        let address = match self.version {
            IpVersion::V4 => self.v4_at(frame, 12),
            IpVersion::V6 => self.v6_at(frame, 8),
        };
        socket_addr(address, self.port_at(frame, 0))
    }

    /// Which address and port were asked.
    #[inline]
    pub fn destination(&self, frame: &[u8]) -> SocketAddr {
        let address = match self.version {
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

#[inline]
fn parse_v4(packet: &[u8], l3: u16, policy: ChecksumPolicy) -> Result<UdpHeaders, DropReason> {
    let Some(header) = packet.first_chunk::<{ IPV4_LEN + UDP_LEN }>() else {
        return Err(why_v4_is_short(packet));
    };
    check_v4_header(header)?;
    let total_len = usize::from(u16_at(header, 2));
    if total_len < IPV4_LEN + UDP_LEN || total_len > packet.len() {
        return Err(DropReason::IpLength);
    }
    check_v4_addresses(header)?;
    let udp = udp_part(&packet[..total_len], IPV4_LEN)?;
    if !policy.verified {
        let ip: &[u8; IPV4_LEN] = header.first_chunk().expect("a longer array");
        if !Sum::of(ip).is_valid() {
            return Err(DropReason::Ipv4Checksum);
        }
        if u16_at(udp, 6) != 0 {
            let addresses = Sum::of_eight(*header[12..].first_chunk().expect("a longer array"));
            check_sum(addresses, udp, policy)?;
        }
    }
    Ok(UdpHeaders {
        version: IpVersion::V4,
        l3,
        l4: l3 + IPV4_LEN as u16,
        payload_len: (udp.len() - UDP_LEN) as u16,
    })
}

#[inline]
fn parse_v6(packet: &[u8], l3: u16, policy: ChecksumPolicy) -> Result<UdpHeaders, DropReason> {
    let Some(header) = packet.first_chunk::<IPV6_LEN>() else {
        return Err(DropReason::IpTruncated);
    };
    if header[0] >> 4 != 6 {
        return Err(DropReason::IpVersion);
    }
    match header[6] {
        protocol::UDP => {}
        0 | 43 | 51 | 60 | 135 => return Err(DropReason::Ipv6ExtensionHeaders),
        44 => return Err(DropReason::IpFragment),
        _ => return Err(DropReason::ProtocolUnknown),
    }
    let total_len = IPV6_LEN + usize::from(u16_at(header, 4));
    if total_len > packet.len() {
        return Err(DropReason::IpLength);
    }
    check_v6_addresses(header)?;
    let udp = udp_part(&packet[..total_len], IPV6_LEN)?;
    if !policy.verified {
        if u16_at(udp, 6) == 0 {
            return Err(DropReason::UdpChecksumMissing);
        }
        check_sum(Sum::of(&header[8..]), udp, policy)?;
    }
    Ok(UdpHeaders {
        version: IpVersion::V6,
        l3,
        l4: l3 + IPV6_LEN as u16,
        payload_len: (udp.len() - UDP_LEN) as u16,
    })
}

/// Version, header length, fragmentation and protocol (RFC 791, 3.1).
#[inline]
fn check_v4_header(header: &[u8; 28]) -> Result<(), DropReason> {
    const MORE_FRAGMENTS_OR_OFFSET: u16 = 0x3fff;
    match header[0] {
        0x45 => {}
        0x40..=0x44 => return Err(DropReason::Ipv4HeaderLength),
        0x46..=0x4f => return Err(DropReason::Ipv4Options),
        _ => return Err(DropReason::IpVersion),
    }
    if u16_at(header, 6) & MORE_FRAGMENTS_OR_OFFSET != 0 {
        return Err(DropReason::IpFragment);
    }
    if header[9] != protocol::UDP {
        return Err(DropReason::ProtocolUnknown);
    }
    Ok(())
}

#[inline]
fn check_v4_addresses(header: &[u8; 28]) -> Result<(), DropReason> {
    let is_unicast = |address: u32| address != 0 && address != u32::MAX && address >> 28 != 0xe;
    if !is_unicast(u32_at(header, 12)) {
        return Err(DropReason::SourceAddress);
    }
    if !is_unicast(u32_at(header, 16)) {
        return Err(DropReason::DestinationAddress);
    }
    Ok(())
}

#[inline]
fn check_v6_addresses(header: &[u8; IPV6_LEN]) -> Result<(), DropReason> {
    let is_unicast = |at: usize| header[at] != 0xff && (u64_at(header, at) | u64_at(header, at + 8)) != 0;
    if !is_unicast(8) {
        return Err(DropReason::SourceAddress);
    }
    if !is_unicast(24) {
        return Err(DropReason::DestinationAddress);
    }
    Ok(())
}

/// Header and payload of the UDP datagram behind `ip_len` octets of `packet`; what follows it in the packet is cut off.
#[inline]
fn udp_part(packet: &[u8], ip_len: usize) -> Result<&[u8], DropReason> {
    let rest = &packet[ip_len..];
    let Some(header) = rest.first_chunk::<UDP_LEN>() else {
        return Err(DropReason::UdpTruncated);
    };
    let len = usize::from(u16_at(header, 4));
    if len < UDP_LEN || len > rest.len() {
        return Err(DropReason::UdpLength);
    }
    if u16_at(header, 0) == 0 {
        return Err(DropReason::SourcePortZero);
    }
    if u16_at(header, 2) == 0 {
        return Err(DropReason::DestinationPortZero);
    }
    Ok(&rest[..len])
}

#[inline]
fn check_sum(addresses: Sum, udp: &[u8], policy: ChecksumPolicy) -> Result<(), DropReason> {
    let pseudo = addresses + pseudo_tail(udp.len() as u16);
    let valid =
        (pseudo + Sum::of(udp)).is_valid() || policy.accept_partial && u16_at(udp, 6) == pseudo.fold();
    valid.then_some(()).ok_or(DropReason::UdpChecksum)
}

#[cold]
fn which_mac_is_group(first_of_destination: u8) -> DropReason {
    match first_of_destination & 1 {
        0 => DropReason::EthernetGroupSource,
        _ => DropReason::EthernetGroupDestination,
    }
}

/// Tells apart what is wrong with an IPv4 packet shorter than IP and UDP headers.
#[cold]
fn why_v4_is_short(packet: &[u8]) -> DropReason {
    match packet.first_chunk::<IPV4_LEN>() {
        None => DropReason::IpTruncated,
        Some(header) if header[0] >> 4 != 4 => DropReason::IpVersion,
        Some(header) if header[9] != protocol::UDP => DropReason::ProtocolUnknown,
        Some(_) => DropReason::UdpTruncated,
    }
}

#[inline]
fn turn_around_v4(packet: &mut [u8], tx_checksum_offload: bool) {
    let total_len = packet.len();
    let (header, payload) = packet.split_first_chunk_mut::<28>().expect("parsed from this frame");
    let addresses = u64_at(header, 12).rotate_left(32);
    let ports = u32_at(header, 20).rotate_left(16);
    write_v4_header(header.first_chunk_mut().expect("a longer array"), addresses, total_len as u16);
    let addresses = Sum::of_eight(addresses.to_be_bytes());
    write_udp(&mut header[IPV4_LEN..], payload, ports, addresses, tx_checksum_offload);
}

#[inline]
fn turn_around_v6(packet: &mut [u8], tx_checksum_offload: bool) {
    let (header, payload) = packet.split_first_chunk_mut::<48>().expect("parsed from this frame");
    let ports = u32_at(header, 40).rotate_left(16);
    let addresses = Sum::of(&header[8..IPV6_LEN]); // Before the swap: what was just stored is slow to load.
    let (source, destination) = header[8..IPV6_LEN].split_at_mut(16);
    source.swap_with_slice(destination);
    write_v6_fixed(header.first_chunk_mut().expect("a longer array"), (UDP_LEN + payload.len()) as u16);
    write_udp(&mut header[IPV6_LEN..], payload, ports, addresses, tx_checksum_offload);
}

/// Writes an IPv4 header without options for UDP; `addresses` holds source and destination, in that order.
#[inline]
pub(crate) fn write_v4_header(header: &mut [u8; IPV4_LEN], addresses: u64, total_len: u16) {
    const DO_NOT_FRAGMENT: u32 = 0x4000;
    let first = 0x4500_0000 | u32::from(total_len);
    let third = u32::from(HOP_LIMIT) << 24 | u32::from(protocol::UDP) << 16;
    let sum = Sum::of_eight(addresses.to_be_bytes())
        + Sum::of_four(first.to_be_bytes())
        + Sum::of_four(DO_NOT_FRAGMENT.to_be_bytes())
        + Sum::of_four(third.to_be_bytes());
    header[0..4].copy_from_slice(&first.to_be_bytes());
    header[4..8].copy_from_slice(&DO_NOT_FRAGMENT.to_be_bytes());
    header[8..12].copy_from_slice(&(third | u32::from(sum.complement())).to_be_bytes());
    header[12..20].copy_from_slice(&addresses.to_be_bytes());
}

/// Writes what comes before the addresses in an IPv6 header for UDP.
#[inline]
pub(crate) fn write_v6_fixed(header: &mut [u8; IPV6_LEN], payload_len: u16) {
    header[0..4].copy_from_slice(&0x6000_0000u32.to_be_bytes());
    header[4..6].copy_from_slice(&payload_len.to_be_bytes());
    header[6] = protocol::UDP;
    header[7] = HOP_LIMIT;
}

/// Writes the UDP header in front of `payload`. The sum is taken from the numbers rather than from the octets: loading
/// wide what was stored narrow just before would wait for the stores.
///
/// With `leave_checksum` the checksum field keeps what it holds.
#[inline]
pub(crate) fn write_udp(udp: &mut [u8], payload: &[u8], ports: u32, addresses: Sum, leave_checksum: bool) {
    let len = (UDP_LEN + payload.len()) as u16;
    udp[0..4].copy_from_slice(&ports.to_be_bytes());
    udp[4..6].copy_from_slice(&len.to_be_bytes());
    if !leave_checksum {
        let header = Sum::of_four(ports.to_be_bytes()) + Sum::of_u16(len);
        let sum = addresses + pseudo_tail(len) + header + Sum::of(payload);
        udp[6..8].copy_from_slice(&udp_field(sum).to_be_bytes());
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
