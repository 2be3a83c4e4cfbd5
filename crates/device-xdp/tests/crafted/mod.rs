//! Packets from the client, made octet by octet, as no stack would send them. Checksums are left out: nobody here looks.

use std::net::{Ipv4Addr, Ipv6Addr};

pub(crate) const SERVER_V4: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
pub(crate) const CLIENT_V4: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
pub(crate) const SERVER_V6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1);
pub(crate) const CLIENT_V6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2);

pub(crate) const UDP: u8 = 17;
pub(crate) const TCP: u8 = 6;
const ICMP: u8 = 1;
pub(crate) const HOP_BY_HOP: u8 = 0;
pub(crate) const DESTINATION_OPTIONS: u8 = 60;
pub(crate) const FRAGMENT: u8 = 44;

pub(crate) const SYN: u8 = 0x02;
pub(crate) const RST: u8 = 0x04;
pub(crate) const ACK: u8 = 0x10;

/// IPv4's field for a first fragment, more to come, and that for a later one.
pub(crate) const FIRST: u16 = 0x2000;
pub(crate) const LATER: u16 = 0x2001;

/// A segment's header from `source` to `destination`, and `len` octets.
pub(crate) fn tcp(source: u16, destination: u16, flags: u8, len: usize) -> Vec<u8> {
    let ports = [source.to_be_bytes(), destination.to_be_bytes()].concat();
    [&ports[..], &[0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 0x10, 0, 0, 0, 0, 0], &vec![7; len]].concat()
}

/// A datagram's header from `source` to `destination`, and `len` octets.
pub(crate) fn udp(source: u16, destination: u16, len: usize) -> Vec<u8> {
    let fields = [source, destination, 8 + len as u16, 0].map(u16::to_be_bytes);
    [fields.as_flattened(), &vec![7; len]].concat()
}

/// An IPv4 packet to the server, with `options`, which are whole words.
pub(crate) fn ipv4_with(protocol: u8, fragment: u16, options: &[u8], payload: &[u8]) -> Vec<u8> {
    frame([8, 0], &ipv4_packet([CLIENT_V4, SERVER_V4], protocol, fragment, options, payload))
}

pub(crate) fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    ipv4_with(protocol, 0, &[], payload)
}

/// An ICMP error to the server about a packet that it sent.
pub(crate) fn unreachable(protocol: u8, sent: &[u8]) -> Vec<u8> {
    let quoted = ipv4_packet([SERVER_V4, CLIENT_V4], protocol, 0, &[], sent);
    ipv4(ICMP, &[&[3, 1, 0, 0, 0, 0, 0, 0], &quoted[..]].concat())
}

/// An IPv6 packet to the server, whose first header behind the fixed one is `next`.
pub(crate) fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u16).to_be_bytes();
    let header = [0x60, 0, 0, 0, len[0], len[1], next, 64];
    frame([0x86, 0xdd], &[&header[..], &CLIENT_V6.octets(), &SERVER_V6.octets(), payload].concat())
}

/// An extension header of 8 octets in front of `rest`, which begins with `next`.
pub(crate) fn options(next: u8, rest: &[u8]) -> Vec<u8> {
    [&[next, 0, 1, 4, 0, 0, 0, 0], rest].concat()
}

/// A fragment header, for the fragment `offset` times 8 octets into the packet.
pub(crate) fn fragment(next: u8, offset: u16, rest: &[u8]) -> Vec<u8> {
    let [high, low] = (offset << 3 | 1).to_be_bytes();
    [&[next, 0, high, low, 0, 0, 0, 9], rest].concat()
}

fn ipv4_packet(
    [source, destination]: [Ipv4Addr; 2],
    protocol: u8,
    fragment: u16,
    options: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    let [high, low] = ((20 + options.len() + payload.len()) as u16).to_be_bytes();
    let [flags, offset] = fragment.to_be_bytes();
    let ihl = 0x45 + options.len() as u8 / 4;
    let header = [ihl, 0, high, low, 0, 9, flags, offset, 64, protocol, 0, 0];
    [&header[..], &source.octets(), &destination.octets(), options, payload].concat()
}

fn frame(ethertype: [u8; 2], packet: &[u8]) -> Vec<u8> {
    [&[0xff; 6][..], &[2; 6], &ethertype, packet].concat()
}
