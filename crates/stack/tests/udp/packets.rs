//! Packets as others send them, and addresses of both versions.

use std::net::{IpAddr, SocketAddr};

use clock::Instant;
use stack::udp::{UdpBind, UdpId, UdpOptions};
use stack::{Arrival, Config, Hop, LinkHeader, LinkId, Stack};
use wire::checksum::Sum;
use wire::ip::Ip;
use wire::{MacAddress, icmp, ipv4, ipv6, protocol, udp};

pub(crate) const NOW: Instant = Instant::from_nanos(1_000_000_000);

/// Who takes part, in one version of IP.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    pub(crate) server: SocketAddr,
    /// Another address of the server's.
    pub(crate) other_server: SocketAddr,
    /// All addresses of the server's.
    pub(crate) any: SocketAddr,
    pub(crate) client: SocketAddr,
    /// Another client.
    pub(crate) stranger: SocketAddr,
    pub(crate) router: IpAddr,
}

/// IPv4 and IPv6.
pub(crate) fn versions() -> [Ends; 2] {
    let ends = |server: &str, other: &str, any: &str, client: &str, stranger: &str, router: &str| Ends {
        server: server.parse().unwrap(),
        other_server: other.parse().unwrap(),
        any: any.parse().unwrap(),
        client: client.parse().unwrap(),
        stranger: stranger.parse().unwrap(),
        router: router.parse().unwrap(),
    };
    [
        ends("192.0.2.1:53", "192.0.2.3:53", "0.0.0.0:53", "192.0.2.2:4000", "192.0.2.9:4000", "192.0.2.254"),
        ends(
            "[2001:db8::1]:53",
            "[2001:db8::3]:53",
            "[::]:53",
            "[2001:db8::2]:4000",
            "[2001:db8::9]:4000",
            "2001:db8::fe",
        ),
    ]
}

pub(crate) fn stack() -> Stack {
    Stack::new(Config::default(), [7; 32], NOW)
}

pub(crate) fn bind(stack: &mut Stack, local: SocketAddr) -> UdpId {
    stack.udp_bind(&UdpBind::new(local)).unwrap()
}

pub(crate) fn bind_with(stack: &mut Stack, local: SocketAddr, options: UdpOptions) -> UdpId {
    stack.udp_bind(&UdpBind { options, ..UdpBind::new(local) }).unwrap()
}

/// The packet's interface and header, which tell where a reply leaves.
pub(crate) fn arrival() -> Arrival {
    let header = LinkHeader {
        destination: MacAddress([2, 0, 0, 0, 0, 1]),
        source: MacAddress([2, 0, 0, 0, 0, 2]),
        tags: [None; 2],
    };
    Arrival { link: LinkId(3), header, ..Arrival::default() }
}

/// Where replies to packets with [`arrival`] leave.
pub(crate) fn hop() -> Hop {
    Hop { link: arrival().link, header: arrival().header.reversed() }
}

/// A datagram in an IP packet with TTL 55 and traffic class 0xb9.
pub(crate) fn datagram(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let mut octets = vec![0; udp::HEADER_LEN];
    octets.extend(payload);
    let pseudo_header = pseudo_header(from.ip(), to.ip(), protocol::UDP, octets.len());
    udp::write(&mut octets, from.port(), to.port(), Some(pseudo_header)).unwrap();
    in_ip(from.ip(), to.ip(), protocol::UDP, &octets)
}

/// An ICMP error from `reporter` about `packet`, quoting 64 octets of it.
pub(crate) fn icmp_error(reporter: IpAddr, packet: &[u8], fields: icmp::Fields) -> Vec<u8> {
    let mut message = vec![0; icmp::HEADER_LEN];
    message.extend(&packet[..packet.len().min(64)]);
    message[..2].copy_from_slice(&[fields.kind, fields.code]);
    message[4..8].copy_from_slice(&fields.rest.to_be_bytes());
    in_icmp(reporter, Ip::parse_quoted(packet).unwrap().source(), &mut message)
}

/// An ICMP message in a packet; its checksum is made anew.
pub(crate) fn in_icmp(from: IpAddr, to: IpAddr, message: &mut [u8]) -> Vec<u8> {
    let (number, sum) = match from {
        IpAddr::V4(_) => (protocol::ICMP, Sum::ZERO),
        IpAddr::V6(_) => (protocol::ICMPV6, pseudo_header(from, to, protocol::ICMPV6, message.len())),
    };
    let rest = u32::from_be_bytes(*message[4..].first_chunk().unwrap());
    let fields = icmp::Fields { kind: message[0], code: message[1], rest };
    icmp::write(message, &fields, sum).unwrap();
    in_ip(from, to, number, message)
}

/// "Port unreachable" about `packet`.
pub(crate) fn port_unreachable(reporter: IpAddr, packet: &[u8]) -> Vec<u8> {
    let (kind, code) = if packet[0] >> 4 == 4 { (3, 3) } else { (1, 4) };
    icmp_error(reporter, packet, icmp::Fields { kind, code, rest: 0 })
}

/// "Fragmentation needed" or "packet too big" about `packet`.
pub(crate) fn too_big(reporter: IpAddr, packet: &[u8], mtu: u32) -> Vec<u8> {
    let (kind, code) = if packet[0] >> 4 == 4 { (3, 4) } else { (2, 0) };
    icmp_error(reporter, packet, icmp::Fields { kind, code, rest: mtu })
}

fn pseudo_header(from: IpAddr, to: IpAddr, protocol: u8, len: usize) -> Sum {
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => Sum::pseudo_v4(from, to, protocol, len as u16),
        (IpAddr::V6(from), IpAddr::V6(to)) => Sum::pseudo_v6(from, to, protocol, len as u16),
        _ => panic!("two versions"),
    }
}

fn in_ip(from: IpAddr, to: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let (ttl, traffic_class, payload_len) = (55, 0xb9, payload.len());
    let mut packet = vec![0; ipv6::HEADER_LEN];
    let len = match (from, to) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let fields = ipv4::Fields { source, destination, protocol, ttl, traffic_class, payload_len };
            ipv4::write(&mut packet, &fields)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let (next_header, hop_limit) = (protocol, ttl);
            let fields =
                ipv6::Fields { source, destination, next_header, hop_limit, traffic_class, payload_len };
            ipv6::write(&mut packet, &fields)
        }
        _ => panic!("two versions"),
    };
    packet.truncate(len.unwrap());
    packet.extend(payload);
    packet
}

/// The next packet that leaves, and where.
pub(crate) fn transmit(stack: &mut Stack) -> Option<(Vec<u8>, Hop)> {
    let mut room = [0; 2000];
    let transmit = stack.poll_transmit(NOW, &mut room)?;
    Some((room[..transmit.len].to_vec(), transmit.hop))
}

/// All packets that leave.
pub(crate) fn transmit_all(stack: &mut Stack) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| transmit(stack).map(|(packet, _)| packet)).collect()
}

/// Takes a packet in, as it must not be refused.
pub(crate) fn arrive(stack: &mut Stack, packet: &[u8]) {
    stack.on_packet(packet, &arrival(), NOW).unwrap();
}

/// The oldest datagram's payload.
pub(crate) fn recv(stack: &mut Stack, id: UdpId) -> Option<Vec<u8>> {
    let mut room = vec![0; 65_535];
    let received = stack.udp_recv_from(id, &mut room).ok()?;
    room.truncate(received.len);
    Some(room)
}
