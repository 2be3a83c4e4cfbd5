//! Budgets, turns, and several datagrams in one call.

use std::sync::Arc;

use stack::tcp::Events;
use stack::udp::{SEGMENTS_MAX, UdpId, UdpOptions, UdpSend, UdpSendError};
use stack::{Connect, Stack};

use crate::packets::*;

fn connected(stack: &mut Stack, ends: &Ends, options: UdpOptions) -> UdpId {
    let id = bind_with(stack, ends.server, options);
    stack.udp_connect(id, ends.server.ip(), ends.client, hop()).unwrap();
    id
}

fn split_in(segment_len: u16) -> UdpSend {
    UdpSend { segment_len: Some(segment_len), ..UdpSend::default() }
}

/// Octets of UDP payload.
fn payload_of(packet: &[u8]) -> &[u8] {
    &packet[if packet[0] >> 4 == 4 { 28 } else { 48 }..]
}

#[test]
fn a_full_send_buffer_refuses_and_tells_when_there_is_room() {
    let [ends, _] = versions();
    let mut stack = stack();
    let id = connected(&mut stack, &ends, UdpOptions { send_buffer: 10_000, ..UdpOptions::default() });
    let send = |stack: &mut Stack| stack.udp_send_to(id, &UdpSend::default(), &[0; 1000], NOW);
    let taken = std::iter::from_fn(|| send(&mut stack).ok()).count();
    assert_eq!((taken, send(&mut stack)), (8, Err(UdpSendError::WouldBlock)));
    assert_eq!(stack.counters().udp_sndbuf_errors, 2);
    assert!(!stack.udp_readiness(id).unwrap().writable);
    transmit(&mut stack);
    assert_eq!(stack.poll_event(), None, "not before half of it is free");
    transmit_all(&mut stack);
    assert_eq!(stack.poll_event().unwrap().events, Events::WRITABLE);
    assert!(stack.udp_readiness(id).unwrap().writable);
    assert_eq!(stack.buffer_memory().0, 0);
}

#[test]
fn sockets_take_turns_of_eight_datagrams() {
    let [v4, v6] = versions();
    let mut stack = stack();
    let (busy, calm) = (
        connected(&mut stack, &v4, UdpOptions::default()),
        connected(&mut stack, &v6, UdpOptions::default()),
    );
    for _ in 0..100 {
        stack.udp_send_to(busy, &UdpSend::default(), b"x", NOW).unwrap();
    }
    stack.udp_send_to(calm, &UdpSend::default(), b"x", NOW).unwrap();
    let packets = transmit_all(&mut stack);
    assert_eq!((packets.len(), packets.iter().position(|packet| packet[0] >> 4 == 6)), (101, Some(8)));
}

#[test]
fn tcp_and_udp_do_not_wait_for_each_other() {
    let [ends, _] = versions();
    let mut stack = stack();
    let id = connected(&mut stack, &ends, UdpOptions::default());
    for port in 0..50 {
        let (mut local, mut remote) = (ends.server, ends.stranger);
        local.set_port(1000 + port);
        remote.set_port(80);
        let connect =
            Connect { local, remote, is_bound: false, hop: hop(), options: Arc::default(), data: b"" };
        stack.tcp_connect(&connect, NOW).unwrap();
        stack.udp_send_to(id, &UdpSend::default(), b"x", NOW).unwrap();
    }
    let packets = transmit_all(&mut stack);
    assert_eq!(packets.len(), 100);
    let udp_in = |part: &[Vec<u8>]| part.iter().filter(|packet| packet[9] == wire::protocol::UDP).count();
    assert!(packets.chunks(2).all(|pair| udp_in(pair) == 1), "every other packet");
}

#[test]
fn one_call_sends_many_datagrams_of_one_length() {
    for ends in versions() {
        let mut stack = stack();
        let id = connected(&mut stack, &ends, UdpOptions::default());
        let payload: Vec<u8> = (0..4500u32).map(|at| (at * 7) as u8).collect();
        stack.udp_send_to(id, &split_in(1200), &payload, NOW).unwrap();
        let packets = transmit_all(&mut stack);
        let parts: Vec<&[u8]> = packets.iter().map(|packet| payload_of(packet)).collect();
        assert_eq!(parts, payload.chunks(1200).collect::<Vec<_>>());
        let mut receiver = crate::packets::stack();
        let at = bind(&mut receiver, ends.client);
        packets.iter().for_each(|packet| arrive(&mut receiver, packet));
        assert_eq!(
            recv(&mut receiver, at).unwrap(),
            payload[..1200],
            "each has headers and checksum of its own"
        );
        assert_eq!(stack.counters().udp_out_datagrams, 4);
    }
}

#[test]
fn a_call_that_cannot_be_split_sends_nothing() {
    let [ends, _] = versions();
    let mut stack = stack();
    let options = UdpOptions { segment_len: 100, ..UdpOptions::default() };
    let id = connected(&mut stack, &ends, options);
    let mut send = |send: &UdpSend, len: usize| stack.udp_send_to(id, send, &vec![0; len], NOW);
    assert_eq!(send(&UdpSend::default(), 100 * SEGMENTS_MAX + 1), Err(UdpSendError::Segments));
    assert_eq!(send(&split_in(1472), 65_536), Err(UdpSendError::Segments));
    assert_eq!(send(&split_in(1473), 3000), Err(UdpSendError::TooLong { mtu: 1500 }));
    assert_eq!(send(&split_in(0), 1473), Err(UdpSendError::TooLong { mtu: 1500 }));
    assert_eq!(send(&split_in(1473), 1000), Ok(()), "one datagram, shorter than a segment");
    assert_eq!(send(&UdpSend::default(), 100 * SEGMENTS_MAX), Ok(()));
    assert_eq!(transmit_all(&mut stack).len(), 1 + SEGMENTS_MAX);
}

#[test]
fn datagrams_of_one_flow_are_received_together_if_asked() {
    for ends in versions() {
        let mut stack = stack();
        let options = UdpOptions { receive_coalesced: true, ..UdpOptions::default() };
        let id = bind_with(&mut stack, ends.server, options);
        for (from, len) in [
            (ends.client, 1200),
            (ends.client, 1200),
            (ends.client, 700),
            (ends.client, 700),
            (ends.stranger, 700),
        ] {
            arrive(&mut stack, &datagram(from, ends.server, &vec![1; len]));
        }
        let mut room = vec![0; 65_535];
        let got: Vec<_> = std::iter::from_fn(|| stack.udp_recv_from(id, &mut room).ok())
            .map(|it| (it.len, it.segment_len))
            .collect();
        assert_eq!(got, [(3100, Some(1200)), (700, None), (700, None)]);
        assert_eq!(stack.counters().udp_in_datagrams, 5);
    }
}
