//! Headers that are written: those of replies, and of datagrams that answer none.

use super::{HOP_LIMIT, IPV4_LEN, IPV6_LEN, UDP_LEN, pseudo_tail, u32_at, u64_at};
use crate::checksum::{Sum, udp_field};
use crate::protocol;

#[inline]
pub(super) fn turn_around_v4(packet: &mut [u8], tx_checksum_offload: bool) {
    let total_len = packet.len();
    let (header, payload) = packet.split_first_chunk_mut::<28>().expect("parsed from this frame");
    let addresses = u64_at(header, 12).rotate_left(32);
    let ports = u32_at(header, 20).rotate_left(16);
    write_v4_header(header.first_chunk_mut().expect("a longer array"), addresses, total_len as u16);
    let addresses = Sum::of_eight(addresses.to_be_bytes());
    write_udp_fields(&mut header[IPV4_LEN..], payload, ports, addresses, tx_checksum_offload);
}

#[inline]
pub(super) fn turn_around_v6(packet: &mut [u8], tx_checksum_offload: bool) {
    let (header, payload) = packet.split_first_chunk_mut::<48>().expect("parsed from this frame");
    let ports = u32_at(header, 40).rotate_left(16);
    let addresses = Sum::of(&header[8..IPV6_LEN]); // Before the swap: what was just stored is slow to load.
    let source: [u8; 16] = *header[8..].first_chunk().expect("a longer array");
    let destination: [u8; 16] = *header[24..].first_chunk().expect("a longer array");
    header[8..24].copy_from_slice(&destination);
    header[24..IPV6_LEN].copy_from_slice(&source);
    write_v6_fixed(header.first_chunk_mut().expect("a longer array"), (UDP_LEN + payload.len()) as u16);
    write_udp_fields(&mut header[IPV6_LEN..], payload, ports, addresses, tx_checksum_offload);
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
pub(crate) fn write_udp_fields(
    udp: &mut [u8],
    payload: &[u8],
    ports: u32,
    addresses: Sum,
    leave_checksum: bool,
) {
    let len = (UDP_LEN + payload.len()) as u16;
    udp[0..4].copy_from_slice(&ports.to_be_bytes());
    udp[4..6].copy_from_slice(&len.to_be_bytes());
    if !leave_checksum {
        let header = Sum::of_four(ports.to_be_bytes()) + Sum::of_u16(len);
        let sum = addresses + pseudo_tail(len) + header + Sum::of(payload);
        udp[6..8].copy_from_slice(&udp_field(sum).to_be_bytes());
    }
}
