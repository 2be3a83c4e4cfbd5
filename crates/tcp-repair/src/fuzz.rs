//! One entry for fuzzers: packets in a peer's name.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use wire::ip::Ip;
use wire::tcp::{Tcp, flag};

use crate::stand_in::{CHECKSUM, packet_of};

/// Makes the packet that [`deliver`](crate::deliver) would inject into the kernel. The lowest two bits of the first octet of `data` say
/// whether our end and the peer's are of IPv6; then follow the two ports and the segment.
///
/// # Panics
/// If a packet is made from something that is not a segment of the peer, or differs from what the peer would have sent. Fuzzers look for
/// that.
pub fn fuzz_late_segment(data: &[u8]) {
    let Some((&[kinds, a, b, c, d], segment)) = data.split_first_chunk() else { return };
    let local = SocketAddr::new(address(kinds & 1 != 0, 1), u16::from_be_bytes([a, b]));
    let remote = SocketAddr::new(address(kinds & 2 != 0, 2), u16::from_be_bytes([c, d]));
    let packet = packet_of(local, remote, segment);
    assert_eq!(packet.is_some(), belongs(local, remote, segment), "{segment:?}");
    if let Some(packet) = packet {
        compare(&packet, local, remote, segment);
    }
}

fn address(is_ipv6: bool, host: u8) -> IpAddr {
    match is_ipv6 {
        true => Ipv6Addr::from([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]).into(),
        false => Ipv4Addr::from([192, 0, 2, host]).into(),
    }
}

/// Whether `remote` may have sent the segment to `local`, in the middle of a connection.
fn belongs(local: SocketAddr, remote: SocketAddr, segment: &[u8]) -> bool {
    let ip_header_len = if local.is_ipv4() { 20 } else { 0 }; // That of IPv6 is not part of the length.
    let is_of_flow = |tcp: Tcp<'_>| {
        (tcp.source_port(), tcp.destination_port()) == (remote.port(), local.port())
            && tcp.flags() & flag::SYN == 0
    };
    local.is_ipv4() == remote.is_ipv4()
        && ip_header_len + segment.len() <= usize::from(u16::MAX)
        && Tcp::parse(segment).is_ok_and(is_of_flow)
}

fn compare(packet: &[u8], local: SocketAddr, remote: SocketAddr, segment: &[u8]) {
    let ip = Ip::parse_quoted(packet).expect("what is made is a packet");
    assert_eq!((ip.source(), ip.destination()), (remote.ip(), local.ip()));
    assert!(packet.ends_with(ip.payload()));
    let tcp = Tcp::parse(ip.payload()).expect("what is in it is a segment");
    assert!(tcp.checksum_is_valid(ip.pseudo_header(ip.payload().len())));
    let mut same = segment.to_vec();
    same[CHECKSUM].copy_from_slice(&ip.payload()[CHECKSUM]);
    assert_eq!(ip.payload(), same, "nothing changes but the checksum");
}
