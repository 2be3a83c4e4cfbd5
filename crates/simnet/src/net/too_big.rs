//! The ICMP error of a router whose next link is too narrow (RFC 1191, 4; RFC 4443, 3.2).

use std::net::{Ipv4Addr, Ipv6Addr};

use wire::checksum::Sum;
use wire::ip::Ip;
use wire::{icmp, ipv4, ipv6, protocol};

/// Octets of the packet that an IPv4 router quotes (RFC 1812, 4.3.2.3), and an IPv6 router (RFC 4443, 3.2).
const QUOTE_V4: usize = 548;
const QUOTE_V6: usize = 1232;

/// What a router with an `mtu` sends back to the sender of `packet`.
pub(crate) fn too_big(packet: &[u8], mtu: u16) -> Option<Vec<u8>> {
    match Ip::parse_quoted(packet).ok()? {
        Ip::V4(ip) => too_big_v4(packet, ip.source(), mtu),
        Ip::V6(ip) => too_big_v6(packet, ip.source(), mtu),
    }
}

fn too_big_v4(packet: &[u8], destination: Ipv4Addr, mtu: u16) -> Option<Vec<u8>> {
    let quote = &packet[..packet.len().min(QUOTE_V4)];
    let payload_len = icmp::HEADER_LEN + quote.len();
    let mut octets = vec![0; ipv4::HEADER_LEN + payload_len];
    let source = Ipv4Addr::new(203, 0, 113, 1);
    let ip = ipv4::Fields {
        source,
        destination,
        protocol: protocol::ICMP,
        ttl: 60,
        traffic_class: 0,
        payload_len,
    };
    let at = ipv4::write(&mut octets, &ip)?;
    octets[at + icmp::HEADER_LEN..].copy_from_slice(quote);
    let fields = icmp::Fields { kind: 3, code: 4, rest: mtu.into() };
    icmp::write(&mut octets[at..], &fields, Sum::ZERO)?;
    Some(octets)
}

fn too_big_v6(packet: &[u8], destination: Ipv6Addr, mtu: u16) -> Option<Vec<u8>> {
    let quote = &packet[..packet.len().min(QUOTE_V6)];
    let payload_len = icmp::HEADER_LEN + quote.len();
    let mut octets = vec![0; ipv6::HEADER_LEN + payload_len];
    let source = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1);
    let next_header = protocol::ICMPV6;
    let ip = ipv6::Fields { source, destination, next_header, hop_limit: 60, traffic_class: 0, payload_len };
    let at = ipv6::write(&mut octets, &ip)?;
    octets[at + icmp::HEADER_LEN..].copy_from_slice(quote);
    let fields = icmp::Fields { kind: 2, code: 0, rest: mtu.into() };
    let sum = Sum::pseudo_v6(source, destination, protocol::ICMPV6, payload_len as u16);
    icmp::write(&mut octets[at..], &fields, sum)?;
    Some(octets)
}
