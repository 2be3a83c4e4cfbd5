//! The views over IPv6 extension headers, TCP and ICMP, on packets written out by hand.

use std::net::SocketAddr;

use wire::checksum::Sum;
use wire::icmp::{self, ErrorKind, IcmpError};
use wire::ip::Ip;
use wire::ipv4::{self, Ipv4};
use wire::ipv6::{self, Fragment, Ipv6};
use wire::tcp::{self, Tcp, TcpOption, flag};
use wire::{DropReason, Endpoints, Envelope, protocol, write_udp};

/// An IPv6 packet: fixed header with `next_header`, then `rest`.
fn v6(next_header: u8, rest: &[u8]) -> Vec<u8> {
    let fields = ipv6::Fields {
        source: "2001:db8::1".parse().unwrap(),
        destination: "2001:db8::2".parse().unwrap(),
        next_header,
        hop_limit: 9,
        traffic_class: 0xb9,
        payload_len: rest.len(),
    };
    let mut packet = vec![0; 40];
    ipv6::write(&mut packet, &fields).unwrap();
    packet.extend_from_slice(rest);
    packet
}

fn v4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let fields = ipv4::Fields {
        source: "192.0.2.1".parse().unwrap(),
        destination: "192.0.2.2".parse().unwrap(),
        protocol,
        ttl: 9,
        traffic_class: 0xb9,
        payload_len: payload.len(),
    };
    let mut packet = vec![0; 20];
    ipv4::write(&mut packet, &fields).unwrap();
    packet.extend_from_slice(payload);
    packet
}

/// The IP packet of a datagram, without its Ethernet header.
fn datagram(source: &str, destination: &str) -> Vec<u8> {
    let endpoints = Endpoints::new(source.parse().unwrap(), destination.parse().unwrap()).unwrap();
    let mut frame = [0; 256];
    let len = write_udp(&mut frame, &Envelope::untagged(endpoints), b"payload").unwrap();
    frame[14..len].to_vec()
}

#[test]
fn ipv4_fields_are_read_as_written() {
    let packet = v4(6, b"segment");
    let ipv4 = Ipv4::parse(&packet).unwrap();
    assert_eq!((ipv4.protocol(), ipv4.ttl(), ipv4.traffic_class()), (6, 9, 0xb9));
    assert_eq!(ipv4.payload(), b"segment");
    assert!(ipv4.checksum_is_valid() && ipv4.do_not_fragment() && !ipv4.is_fragment());
}

#[test]
fn ipv4_options_are_skipped() {
    let mut packet = v4(17, b"\x94\x04\0\0datagram");
    packet[0] = 0x46;
    let ipv4 = Ipv4::parse(&packet).unwrap();
    assert_eq!((ipv4.options(), ipv4.payload()), (&b"\x94\x04\0\0"[..], &b"datagram"[..]));
    packet[0] = 0x4f;
    assert_eq!(Ipv4::parse(&packet).unwrap_err(), DropReason::Ipv4HeaderLength);
}

#[test]
fn an_ipv4_total_length_below_the_header_is_refused() {
    let mut packet = v4(17, b"");
    packet[3] = 19;
    assert_eq!(Ipv4::parse(&packet).unwrap_err(), DropReason::IpLength);
}

#[test]
fn every_kind_of_extension_header_is_walked() {
    let hop_by_hop = [43, 0, 1, 4, 0, 0, 0, 0];
    let routing = [60, 0, 0, 0, 0, 0, 0, 0];
    let destination = [51, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let authentication = [44, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1];
    let atomic_fragment = [17, 0, 0, 0, 0, 0, 0, 7];
    let chain = [&hop_by_hop[..], &routing, &destination, &authentication, &atomic_fragment, b"datagram"];
    let packet = v6(0, &chain.concat());
    let ipv6 = Ipv6::parse(&packet).unwrap();
    assert_eq!((ipv6.protocol(), ipv6.payload()), (17, &b"datagram"[..]));
    assert_eq!(ipv6.fragment(), Some(Fragment { offset: 0, more: false, identification: 7 }));
    assert!(ipv6.has_extensions() && !Ip::V6(ipv6).is_fragment());
    assert_eq!((ipv6.traffic_class(), ipv6.flow_label(), ipv6.hop_limit()), (0xb9, 0, 9));
}

#[test]
fn the_walk_ends_at_a_later_fragment() {
    let packet = v6(44, &[0, 0, 0, 0x09, 0, 0, 0, 1, 0xff, 0xff]);
    let ipv6 = Ipv6::parse(&packet).unwrap();
    assert_eq!(ipv6.fragment(), Some(Fragment { offset: 8, more: true, identification: 1 }));
    assert_eq!(ipv6.payload(), [0xff, 0xff]);
}

#[test]
fn an_extension_header_beyond_the_packet_is_refused() {
    for rest in [&[17, 1, 0, 0, 0, 0, 0, 0][..], &[17, 0, 0, 0], &[]] {
        assert_eq!(Ipv6::parse(&v6(0, rest)).unwrap_err(), DropReason::Ipv6ExtensionMalformed);
    }
}

#[test]
fn an_endless_chain_is_given_up() {
    let chain = [[60, 0, 1, 4, 0, 0, 0, 0]; 100].concat();
    assert_eq!(Ipv6::parse(&v6(60, &chain)).unwrap_err(), DropReason::Ipv6ExtensionMalformed);
}

#[test]
fn a_tcp_header_is_read_as_written() {
    let options = [
        &[2, 4, 5, 0xb4][..],
        &[4, 2],
        &[8, 10, 0, 0, 0, 1, 0, 0, 0, 2],
        &[1, 3, 3, 20],
        &[5, 10, 0, 0, 0, 5, 0, 0, 0, 9],
        &[254, 3, 7],
        &[0, 9, 9],
    ]
    .concat();
    let fields = tcp::Fields {
        source_port: 1000,
        destination_port: 80,
        sequence_number: 0x0102_0304,
        acknowledgement_number: 0xa0b0_c0d0,
        flags: flag::SYN | flag::ACK,
        window: 0xfedc,
        urgent_pointer: 0x1234,
        options: &options,
    };
    let mut segment = vec![0; 20 + options.len()];
    segment.extend_from_slice(b"data");
    let packet = v4(protocol::TCP, &segment);
    let pseudo_header = Ipv4::parse(&packet).unwrap().pseudo_header(segment.len());
    assert_eq!(tcp::write(&mut segment, &fields, Some(pseudo_header)), Some(20 + options.len()));
    let tcp = Tcp::parse(&segment).unwrap();
    assert!(tcp.checksum_is_valid(pseudo_header));
    assert_eq!((tcp.source_port(), tcp.destination_port()), (1000, 80));
    assert_eq!((tcp.sequence_number(), tcp.acknowledgement_number()), (0x0102_0304, 0xa0b0_c0d0));
    assert_eq!((tcp.flags(), tcp.window(), tcp.urgent_pointer()), (0x12, 0xfedc, 0x1234));
    assert_eq!(tcp.payload(), b"data");
    let read: Vec<TcpOption<'_>> = tcp.options().collect();
    assert_eq!(read[0], TcpOption::MaximumSegmentSize(1460));
    assert_eq!(read[1], TcpOption::SackPermitted);
    assert_eq!(read[2], TcpOption::Timestamps { value: 1, echo_reply: 2 });
    assert_eq!(read[3], TcpOption::WindowScale(14));
    let TcpOption::Sack(blocks) = read[4] else { panic!("{read:?}") };
    assert_eq!(blocks.iter().collect::<Vec<_>>(), [(5, 9)]);
    assert_eq!(read[5..], [TcpOption::Other { kind: 254, data: &[7] }]);
}

#[test]
fn a_tcp_option_of_impossible_length_ends_the_list() {
    for bad in [[2, 0, 0, 0], [2, 1, 0, 0], [2, 5, 0, 0]] {
        let mut segment = [0; 24];
        segment[12] = 6 << 4;
        segment[20..].copy_from_slice(&bad);
        assert_eq!(Tcp::parse(&segment).unwrap().options().count(), 0);
    }
}

#[test]
fn a_tcp_data_offset_outside_the_segment_is_refused() {
    for offset in [4u8, 6] {
        let mut segment = [0; 20];
        segment[12] = offset << 4;
        assert_eq!(Tcp::parse(&segment).unwrap_err(), DropReason::TcpDataOffset);
    }
}

/// An ICMP error about `quoted`, as an IP packet.
fn icmp_error(v6_error: bool, kind: u8, code: u8, rest: u32, quoted: &[u8]) -> Vec<u8> {
    let mut message = [&[0; 8], quoted].concat();
    let wrap =
        |message: &[u8]| if v6_error { v6(protocol::ICMPV6, message) } else { v4(protocol::ICMP, message) };
    let mut packet = wrap(&message);
    let pseudo_header = match v6_error {
        true => Ipv6::parse(&packet).unwrap().pseudo_header(message.len()),
        false => Sum::ZERO,
    };
    icmp::write(&mut message, &icmp::Fields { kind, code, rest }, pseudo_header).unwrap();
    let start = packet.len() - message.len();
    packet[start..].copy_from_slice(&message);
    packet
}

fn parsed(packet: &[u8]) -> Result<IcmpError, DropReason> {
    IcmpError::parse(&Ip::parse_quoted(packet).unwrap())
}

#[test]
fn an_icmp_error_tells_the_flow_that_it_is_about() {
    let (server, client) = ("192.0.2.53:53", "198.51.100.1:4000");
    let quoted = &datagram(server, client)[..28]; // As little as RFC 792 asks for.
    let error = parsed(&icmp_error(false, 3, 4, 1400, quoted)).unwrap();
    assert_eq!(error.kind, ErrorKind::TooBig { mtu: 1400 });
    assert_eq!(error.flow.source, server.parse::<SocketAddr>().unwrap());
    assert_eq!(error.flow.destination, client.parse::<SocketAddr>().unwrap());
    assert_eq!(error.flow.protocol, protocol::UDP);
}

#[test]
fn an_icmpv6_error_tells_the_flow_that_it_is_about() {
    let (server, client) = ("[2001:db8::53]:53", "[2001:db8::9]:4000");
    let quoted = datagram(server, client);
    let error = parsed(&icmp_error(true, 2, 0, 1280, &quoted)).unwrap();
    assert_eq!(error.kind, ErrorKind::TooBig { mtu: 1280 });
    assert_eq!(error.flow.source, server.parse::<SocketAddr>().unwrap());
    let unreachable = parsed(&icmp_error(true, 1, 4, 0, &quoted)).unwrap();
    assert_eq!(unreachable.kind, ErrorKind::Unreachable { code: 4 });
}

#[test]
fn what_is_no_usable_icmp_error_is_refused_for_its_reason() {
    let quoted = datagram("192.0.2.53:53", "198.51.100.1:4000");
    let mut damaged = icmp_error(false, 3, 3, 0, &quoted);
    *damaged.last_mut().unwrap() ^= 1;
    assert_eq!(parsed(&damaged).unwrap_err(), DropReason::IcmpChecksum);
    assert_eq!(parsed(&icmp_error(false, 8, 0, 1, b"ping")).unwrap_err(), DropReason::IcmpNotAnError);
    let short = icmp_error(false, 3, 3, 0, &quoted[..27]);
    assert_eq!(parsed(&short).unwrap_err(), DropReason::IcmpQuoteTruncated);
    assert_eq!(parsed(&v4(protocol::ICMP, &[3; 7])).unwrap_err(), DropReason::IcmpTruncated);
    let other = datagram("[2001:db8::53]:53", "[2001:db8::9]:4000");
    assert_eq!(parsed(&icmp_error(false, 3, 3, 0, &other)).unwrap_err(), DropReason::IpVersion);
}
