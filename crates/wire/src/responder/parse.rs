//! Requests: where their parts are, and what is wrong with them.

use super::{
    ChecksumPolicy, IPV4_LEN, IPV6_LEN, IpVersion, UDP_LEN, UdpHeaders, pseudo_tail, u16_at, u32_at, u64_at,
};
use crate::checksum::Sum;
use crate::{DropReason, protocol};

#[inline]
pub(super) fn parse_v4(packet: &[u8], l3: usize, policy: ChecksumPolicy) -> Result<UdpHeaders, DropReason> {
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
    Ok(UdpHeaders::new(IpVersion::V4, l3, (udp.len() - UDP_LEN) as u16))
}

#[inline]
pub(super) fn parse_v6(packet: &[u8], l3: usize, policy: ChecksumPolicy) -> Result<UdpHeaders, DropReason> {
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
    Ok(UdpHeaders::new(IpVersion::V6, l3, (udp.len() - UDP_LEN) as u16))
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
pub(super) fn which_mac_is_group(first_of_destination: u8) -> DropReason {
    match first_of_destination & 1 {
        0 => DropReason::EthernetGroupSource,
        _ => DropReason::EthernetGroupDestination,
    }
}

/// Distinguishes what is wrong with an IPv4 packet shorter than IP and UDP headers.
#[cold]
fn why_v4_is_short(packet: &[u8]) -> DropReason {
    match packet.first_chunk::<IPV4_LEN>() {
        None => DropReason::IpTruncated,
        Some(header) if header[0] >> 4 != 4 => DropReason::IpVersion,
        Some(header) if header[9] != protocol::UDP => DropReason::ProtocolUnknown,
        Some(_) => DropReason::UdpTruncated,
    }
}
