//! What packets look like, and which are refused.

use stack::udp::{UdpOptions, UdpSend, UdpSendError};
use stack::{Arrival, Link};
use wire::ip::Ip;
use wire::{ChecksumPolicy, DropReason};

use crate::packets::*;

fn checksum_at(packet: &[u8]) -> usize {
    if packet[0] >> 4 == 4 { 26 } else { 46 }
}

#[test]
fn a_packet_that_leaves_is_right_in_every_field() {
    // RFC 768; RFC 1122, 4.1.3.4: with a checksum; RFC 6864, 4.1: not to be fragmented, identification zero.
    for ends in versions() {
        let mut stack = stack();
        let id = bind(&mut stack, ends.server);
        stack.udp_connect(id, ends.server.ip(), ends.client, hop()).unwrap();
        stack.udp_send_to(id, &UdpSend::default(), b"odd", NOW).unwrap();
        let (packet, _) = transmit(&mut stack).unwrap();
        let ip = Ip::parse_quoted(&packet).unwrap();
        assert_eq!((ip.source(), ip.destination(), ip.protocol()), (ends.server.ip(), ends.client.ip(), 17));
        if let Ip::V4(v4) = ip {
            assert!(v4.checksum_is_valid() && v4.do_not_fragment());
            assert_eq!((v4.identification(), usize::from(v4.total_len())), (0, packet.len()));
        }
        let udp = wire::udp::Udp::parse(ip.payload()).unwrap();
        assert_eq!((udp.source_port(), udp.destination_port()), (ends.server.port(), ends.client.port()));
        assert_eq!((udp.total_len(), udp.payload()), (11, &b"odd"[..]));
        assert!(udp.checksum() != 0 && udp.checksum_is_valid(ip.pseudo_header(11)));
        assert_eq!(stack.counters().udp_out_datagrams, 1);
    }
}

#[test]
fn traffic_class_and_hop_limit_are_the_calls_else_the_sockets() {
    for ends in versions() {
        let mut stack = stack();
        let options = UdpOptions { traffic_class: 0xb8, hop_limit: 10, ..UdpOptions::default() };
        let id = bind_with(&mut stack, ends.server, options);
        stack.udp_connect(id, ends.server.ip(), ends.client, hop()).unwrap();
        let of_call = UdpSend { traffic_class: Some(2), hop_limit: Some(255), ..UdpSend::default() };
        for (send, expected) in [(UdpSend::default(), (0xb8, 10)), (of_call, (2, 255))] {
            stack.udp_send_to(id, &send, b"", NOW).unwrap();
            let (packet, _) = transmit(&mut stack).unwrap();
            let fields = match Ip::parse_quoted(&packet).unwrap() {
                Ip::V4(packet) => (packet.traffic_class(), packet.ttl()),
                Ip::V6(packet) => (packet.traffic_class(), packet.hop_limit()),
            };
            assert_eq!(fields, expected);
        }
    }
}

#[test]
fn the_checksum_is_left_to_a_device_that_fills_it_in() {
    for ends in versions() {
        let mut stack = stack();
        stack.set_link(hop().link, Link { tx_checksum_offload: true, ..Link::default() }, NOW);
        let id = bind(&mut stack, ends.server);
        stack.udp_connect(id, ends.server.ip(), ends.client, hop()).unwrap();
        stack.udp_send_to(id, &UdpSend::default(), b"x", NOW).unwrap();
        let (packet, _) = transmit(&mut stack).unwrap();
        assert_eq!(packet[checksum_at(&packet)..][..2], [0, 0]);
    }
}

#[test]
fn a_wrong_checksum_is_dropped_and_counted() {
    for ends in versions() {
        let mut stack = stack();
        let id = bind(&mut stack, ends.server);
        let mut packet = datagram(ends.client, ends.server, b"payload");
        *packet.last_mut().unwrap() ^= 1;
        assert_eq!(stack.on_packet(&packet, &arrival(), NOW), Err(DropReason::UdpChecksum));
        assert_eq!((stack.counters().udp_in_csum_errors, stack.counters().udp_in_errors), (1, 1));
        assert_eq!(recv(&mut stack, id), None);
        let verified = ChecksumPolicy { verified: true, ..ChecksumPolicy::default() };
        stack.on_packet(&packet, &Arrival { checksums: verified, ..arrival() }, NOW).unwrap();
        assert!(recv(&mut stack, id).is_some(), "what the device has verified is not looked at again");
    }
}

#[test]
fn a_checksum_that_hardware_was_to_finish_is_right_on_virtual_links() {
    for ends in versions() {
        let mut stack = stack();
        bind(&mut stack, ends.server);
        let mut packet = datagram(ends.client, ends.server, b"payload");
        let partial = Ip::parse_quoted(&packet).unwrap().pseudo_header(15).fold();
        let at = checksum_at(&packet);
        packet[at..at + 2].copy_from_slice(&partial.to_be_bytes());
        assert_eq!(stack.on_packet(&packet, &arrival(), NOW), Err(DropReason::UdpChecksum));
        let checksums = ChecksumPolicy { accept_partial: true, ..ChecksumPolicy::default() };
        assert_eq!(stack.on_packet(&packet, &Arrival { checksums, ..arrival() }, NOW), Ok(()));
    }
}

#[test]
fn no_checksum_is_right_over_ipv4_and_not_over_ipv6() {
    // RFC 768; RFC 1122, 4.1.3.4; RFC 8200, 8.1.
    for (ends, expected) in versions().into_iter().zip([Ok(()), Err(DropReason::UdpChecksumMissing)]) {
        let mut stack = stack();
        bind(&mut stack, ends.server);
        let mut packet = datagram(ends.client, ends.server, b"payload");
        let at = checksum_at(&packet);
        packet[at..at + 2].fill(0);
        assert_eq!(stack.on_packet(&packet, &arrival(), NOW), expected);
        assert_eq!(stack.counters().udp_in_csum_errors, u64::from(expected.is_err()));
    }
}

#[test]
fn nobody_receives_from_or_to_an_address_that_is_no_single_hosts() {
    // RFC 1122, 4.1.3.6.
    let [v4, v6] = versions();
    for (ends, groups) in [
        (v4, &["0.0.0.0:9", "224.0.0.1:9", "239.1.2.3:9", "255.255.255.255:9"][..]),
        (v6, &["[::]:9", "[ff02::1]:9"]),
    ] {
        let mut stack = stack();
        let id = bind(&mut stack, ends.any);
        for group in groups {
            let mut group: std::net::SocketAddr = group.parse().unwrap();
            let from_group = datagram(group, ends.server, b"x");
            assert_eq!(stack.on_packet(&from_group, &arrival(), NOW), Err(DropReason::SourceAddress));
            group.set_port(53);
            let to_group = datagram(ends.client, group, b"x");
            assert_eq!(stack.on_packet(&to_group, &arrival(), NOW), Err(DropReason::DestinationAddress));
        }
        assert_eq!(recv(&mut stack, id), None);
    }
}

#[test]
fn nobody_on_a_wire_is_this_host_but_who_comes_by_a_socket_of_the_kernels_may_be() {
    // RFC 1122, 3.2.1.3 (g).
    let server = "127.0.0.1:53".parse().unwrap();
    let packet = datagram("127.0.0.1:4000".parse().unwrap(), server, b"x");
    let mut stack = stack();
    let id = bind(&mut stack, server);
    assert_eq!(stack.on_packet(&packet, &arrival(), NOW), Err(DropReason::SourceAddress));
    assert_eq!(recv(&mut stack, id), None);
    let checksums = ChecksumPolicy { verified: true, ..ChecksumPolicy::default() };
    stack.on_packet(&packet, &Arrival { checksums, ..arrival() }, NOW).unwrap();
    assert!(recv(&mut stack, id).is_some());
}

#[test]
fn a_sender_without_port_is_heard_but_not_answered_and_port_zero_is_nobodys() {
    // RFC 768: "if not used, a value of zero is inserted".
    for ends in versions() {
        let mut stack = stack();
        let id = bind(&mut stack, ends.server);
        let (mut client, mut server) = (ends.client, ends.server);
        client.set_port(0);
        server.set_port(0);
        arrive(&mut stack, &datagram(client, ends.server, b"no answer, please"));
        let received = stack.udp_recv_from(id, &mut [0; 100]).unwrap();
        let reply = stack.udp_send_to(id, &received.reply(), b"", NOW);
        assert_eq!(reply, Err(UdpSendError::Destination));
        let to_zero = datagram(ends.client, server, b"");
        assert_eq!(stack.on_packet(&to_zero, &arrival(), NOW), Err(DropReason::DestinationPortZero));
    }
}

#[test]
fn a_length_beyond_the_packet_or_below_the_header_is_dropped() {
    for ends in versions() {
        let mut stack = stack();
        bind(&mut stack, ends.server);
        for len in [0u16, 7, 16, 65_535] {
            let mut packet = datagram(ends.client, ends.server, b"payload");
            let at = checksum_at(&packet) - 2;
            packet[at..at + 2].copy_from_slice(&len.to_be_bytes());
            assert_eq!(stack.on_packet(&packet, &arrival(), NOW), Err(DropReason::UdpLength));
        }
        assert_eq!(stack.counters().udp_in_errors, 4);
    }
}
