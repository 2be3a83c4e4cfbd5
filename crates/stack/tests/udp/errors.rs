//! ICMP errors: who hears of them, and which are believed.

use std::net::IpAddr;

use clock::Duration;
use stack::tcp::Events;
use stack::udp::{UdpError, UdpId, UdpOptions, UdpRecvError, UdpSend, UdpSendError};
use stack::{Link, Socket, Stack};
use wire::icmp::{ErrorKind, Fields};
use wire::ip::Ip;

use crate::packets::*;

fn connected(stack: &mut Stack, ends: &Ends) -> UdpId {
    let id = bind(stack, ends.server);
    stack.udp_connect(id, ends.server.ip(), ends.client, hop()).unwrap();
    id
}

fn to_client(ends: &Ends) -> UdpSend {
    UdpSend { to: Some(ends.client), hop: Some(hop()), ..UdpSend::default() }
}

/// Sends `len` octets of payload and takes the packet.
fn sent(stack: &mut Stack, id: UdpId, send: &UdpSend, len: usize) -> Vec<u8> {
    stack.udp_send_to(id, send, &vec![0; len], NOW).unwrap();
    transmit(stack).unwrap().0
}

/// The ICMP error in `packet`, sent to another address.
fn readdressed(packet: &[u8], to: IpAddr) -> Vec<u8> {
    let ip = Ip::parse_quoted(packet).unwrap();
    in_icmp(ip.source(), to, &mut ip.payload().to_vec())
}

#[test]
fn a_refusal_is_told_once_to_a_connected_socket() {
    // RFC 1122, 4.1.3.3.
    for ends in versions() {
        let mut stack = stack();
        let id = connected(&mut stack, &ends);
        let packet = sent(&mut stack, id, &UdpSend::default(), 10);
        let icmp = port_unreachable(ends.client.ip(), &packet);
        arrive(&mut stack, &icmp);
        let event = stack.poll_event().unwrap();
        assert_eq!((event.socket, event.events), (Socket::Udp(id), Events::ERROR));
        assert!(stack.udp_readiness(id).unwrap().error);
        let refused = UdpError::Refused;
        assert_eq!(stack.udp_send_to(id, &UdpSend::default(), b"", NOW), Err(UdpSendError::Failed(refused)));
        assert_eq!(stack.udp_send_to(id, &UdpSend::default(), b"", NOW), Ok(()));
        arrive(&mut stack, &icmp);
        assert_eq!(stack.udp_recv_from(id, &mut []), Err(UdpRecvError::Failed(refused)));
        arrive(&mut stack, &icmp);
        assert_eq!(stack.udp_take_error(id), Some(refused));
        assert_eq!((stack.udp_take_error(id), stack.udp_take_report(id)), (None, None));
    }
}

#[test]
fn an_unconnected_socket_hears_of_errors_only_if_it_asked() {
    for ends in versions() {
        for receive_errors in [false, true] {
            let mut stack = stack();
            let options = UdpOptions { receive_errors, ..UdpOptions::default() };
            let id = bind_with(&mut stack, ends.server, options);
            let packet = sent(&mut stack, id, &to_client(&ends), 10);
            arrive(&mut stack, &port_unreachable(ends.router, &packet));
            assert_eq!(stack.udp_readiness(id).unwrap().error, receive_errors);
            arrive(&mut stack, &port_unreachable(ends.router, &packet));
            let report = stack.udp_take_report(id);
            assert_eq!(stack.udp_take_error(id), receive_errors.then_some(UdpError::Refused));
            assert_eq!(report.is_some(), receive_errors);
            if let Some(report) = report {
                let headers_len = packet.len() - 10;
                assert_eq!(report.payload, packet[headers_len..]);
                assert_eq!((report.local, report.remote), (ends.server, ends.client));
                assert_eq!((report.reporter, report.error), (ends.router, UdpError::Refused));
                assert!(matches!(report.kind, ErrorKind::Unreachable { .. }));
                let type_and_code = if ends.server.is_ipv4() { (3, 3) } else { (1, 4) };
                assert_eq!(report.type_and_code, type_and_code);
                // The error is that of the next report (`sock_dequeue_err_skb` of Linux).
                arrive(&mut stack, &port_unreachable(ends.router, &packet));
                assert!(stack.udp_take_report(id).is_some() && stack.udp_take_report(id).is_some());
                assert_eq!(stack.udp_take_error(id), None);
            }
        }
    }
}

#[test]
fn errors_that_may_pass_are_told_only_to_who_asked() {
    // RFC 1122, 3.2.2.1: "net unreachable" is only a hint.
    for ends in versions() {
        let mut stack = stack();
        let id = connected(&mut stack, &ends);
        let packet = sent(&mut stack, id, &UdpSend::default(), 10);
        let kind = if ends.server.is_ipv4() { 3 } else { 1 };
        let icmp = icmp_error(ends.router, &packet, Fields { kind, code: 0, rest: 0 });
        arrive(&mut stack, &icmp);
        assert_eq!(stack.udp_take_error(id), None);
        stack.udp_set_options(id, UdpOptions { receive_errors: true, ..UdpOptions::default() });
        arrive(&mut stack, &icmp);
        assert_eq!(stack.udp_take_error(id), Some(UdpError::NetworkUnreachable));
    }
}

#[test]
fn reports_that_nobody_takes_have_a_bound() {
    let [ends, _] = versions();
    let mut stack = stack();
    let options = UdpOptions { receive_errors: true, ..UdpOptions::default() };
    let id = bind_with(&mut stack, ends.server, options);
    let packet = sent(&mut stack, id, &to_client(&ends), 10);
    (0..1000).for_each(|_| arrive(&mut stack, &port_unreachable(ends.router, &packet)));
    assert_eq!(std::iter::from_fn(|| stack.udp_take_report(id)).count(), 16);
}

#[test]
fn a_router_that_finds_a_packet_too_big_lowers_the_path_mtu_of_its_destination() {
    // RFC 1191, 3; RFC 8201, 4.
    for ends in versions() {
        for is_connected in [true, false] {
            let mut stack = stack();
            let id = if is_connected { connected(&mut stack, &ends) } else { bind(&mut stack, ends.server) };
            let packet = sent(&mut stack, id, &to_client(&ends), 1440);
            arrive(&mut stack, &too_big(ends.router, &packet, 1300));
            let error = is_connected.then_some(UdpError::TooLong { mtu: 1300 });
            assert_eq!(stack.udp_take_error(id), error);
            let send = to_client(&ends);
            let again = stack.udp_send_to(id, &send, &[0; 1440], NOW);
            assert_eq!(again, Err(UdpSendError::TooLong { mtu: 1300 }));
            assert_eq!(stack.udp_send_to(id, &send, &[0; 1200], NOW), Ok(()));
            let elsewhere = UdpSend { to: Some(ends.stranger), ..send };
            assert_eq!(stack.udp_send_to(id, &elsewhere, &[0; 1440], NOW), Ok(()));
            let later = NOW + Duration::from_secs(601); // RFC 1191, 6.3: it may have grown.
            assert_eq!(stack.udp_send_to(id, &send, &[0; 1440], later), Ok(()));
            assert_eq!(stack.counters().path_mtu_reductions, 1);
        }
    }
}

#[test]
fn a_router_further_on_does_not_raise_the_path_mtu() {
    // RFC 1191, 3; RFC 8201, 4: "must not increase its estimate" in response to such a message.
    for ends in versions() {
        let mut stack = stack();
        let id = connected(&mut stack, &ends);
        let packet = sent(&mut stack, id, &UdpSend::default(), 1440);
        for mtu in [1300, 1400] {
            arrive(&mut stack, &too_big(ends.router, &packet, mtu));
            assert_eq!(stack.udp_take_error(id), Some(UdpError::TooLong { mtu: 1300 }));
        }
        assert_eq!(stack.udp_path_mtu(ends.client.ip(), hop().link, NOW), 1300);
        stack.set_link(hop().link, Link { mtu: 1280, ..Link::default() }, NOW);
        assert_eq!(stack.udp_path_mtu(ends.client.ip(), hop().link, NOW), 1280, "the link's is less");
    }
}

#[test]
fn a_path_mtu_below_the_least_that_links_have_is_not_believed() {
    // RFC 8201, 4: less than 1280 is discarded; over IPv4 it is Linux's `min_pmtu` instead.
    let [v4, v6] = versions();
    for (ends, told, mtu) in [(v4, 68, 552), (v6, 1279, 1500)] {
        let mut stack = stack();
        let id = connected(&mut stack, &ends);
        let packet = sent(&mut stack, id, &UdpSend::default(), 1440);
        arrive(&mut stack, &too_big(ends.router, &packet, told));
        assert_eq!(stack.udp_path_mtu(ends.client.ip(), hop().link, NOW), mtu);
    }
}

#[test]
fn a_router_that_does_not_tell_the_mtu_gets_the_next_usual_one() {
    // RFC 1191, 5 and 7.1.
    let [ends, _] = versions();
    let mut stack = stack();
    let id = connected(&mut stack, &ends);
    let packet = sent(&mut stack, id, &UdpSend::default(), 1472);
    arrive(&mut stack, &too_big(ends.router, &packet, 0));
    assert_eq!(stack.udp_take_error(id), Some(UdpError::TooLong { mtu: 1492 }));
}

#[test]
fn errors_about_what_was_never_sent_are_counted_and_ignored() {
    // RFC 8085, 5.2: the quoted packet is to be looked at.
    for ends in versions() {
        let mut stack = stack();
        let options = UdpOptions { receive_errors: true, ..UdpOptions::default() };
        let id = bind_with(&mut stack, ends.server, options);
        let mut other_port = ends.client;
        other_port.set_port(4001);
        let packet = sent(&mut stack, id, &to_client(&ends), 1400);
        let to_another_of_ours = readdressed(&port_unreachable(ends.router, &packet), ends.other_server.ip());
        let forged = [
            port_unreachable(ends.router, &datagram(ends.server, ends.stranger, b"x")),
            port_unreachable(ends.router, &datagram(ends.server, other_port, b"x")),
            port_unreachable(ends.router, &datagram(ends.other_server, ends.client, b"x")),
            too_big(ends.router, &datagram(ends.server, ends.stranger, &[0; 1400]), 1300),
            too_big(ends.router, &datagram(ends.server, ends.client, &[0; 1401]), 1300),
            too_big(ends.router, &datagram(ends.server, ends.client, &[0; 1200]), 1300),
        ];
        for icmp in &forged {
            arrive(&mut stack, icmp);
        }
        arrive(&mut stack, &to_another_of_ours);
        assert_eq!(stack.counters().icmp_unknown, forged.len() as u64 + 1);
        assert_eq!((stack.udp_take_error(id), stack.udp_take_report(id)), (None, None));
        assert_eq!(stack.udp_path_mtu(ends.client.ip(), hop().link, NOW), 1500);
    }
}

#[test]
fn a_datagram_that_waits_while_its_links_mtu_falls_is_dropped_and_counted() {
    let [ends, _] = versions();
    let mut stack = stack();
    let id = connected(&mut stack, &ends);
    stack.udp_send_to(id, &UdpSend::default(), &[0; 1400], NOW).unwrap();
    stack.udp_send_to(id, &UdpSend::default(), &[0; 100], NOW).unwrap();
    stack.set_link(hop().link, Link { mtu: 1280, ..Link::default() }, NOW);
    assert_eq!(transmit_all(&mut stack).len(), 1);
    assert_eq!(stack.counters().udp_out_too_long, 1);
    assert_eq!(stack.buffer_memory().0, 0);
}
