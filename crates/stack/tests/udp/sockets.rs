//! Who receives what, and what comes with it.

use std::net::IpAddr;

use clock::Duration;
use stack::tcp::Events;
use stack::udp::{UdpBind, UdpBindError, UdpConnectError, UdpOptions, UdpRecvError, UdpSend, UdpSendError};
use stack::{Event, Hop, Link, LinkId, Socket, SourceFilter, Stack};
use wire::{DropReason, MacAddress};

use crate::packets::*;

#[test]
fn a_datagram_comes_with_its_ends_and_where_a_reply_leaves() {
    // RFC 1122, 4.1.3.5 and 4.1.4: the application learns of the addresses, ours too.
    for ends in versions() {
        let mut stack = stack();
        let id = bind(&mut stack, ends.any);
        arrive(&mut stack, &datagram(ends.client, ends.server, b"question"));
        let mut room = [0; 100];
        let received = stack.udp_recv_from(id, &mut room).unwrap();
        assert_eq!(&room[..received.len], b"question");
        assert_eq!((received.remote, received.local, received.hop), (ends.client, ends.server, hop()));
        assert_eq!((received.traffic_class, received.ecn() as u8, received.hop_limit), (0xb9, 1, 55));
        assert_eq!((received.at, received.segment_len, received.is_truncated()), (NOW, None, false));
        assert_eq!(stack.udp_recv_from(id, &mut room), Err(UdpRecvError::WouldBlock));
    }
}

#[test]
fn a_reply_goes_back_the_way_the_request_came() {
    for ends in versions() {
        let (mut server, mut client) = (stack(), stack());
        let (at_server, at_client) = (bind(&mut server, ends.any), bind(&mut client, ends.client));
        arrive(&mut server, &datagram(ends.client, ends.server, b"question"));
        let (received, octets) = server.udp_peek(at_server).unwrap();
        assert_eq!(octets, b"question");
        assert!(server.udp_discard(at_server) && !server.udp_discard(at_server));
        server.udp_send_to(at_server, &received.reply(), b"answer", NOW).unwrap();
        let (packet, by) = transmit(&mut server).unwrap();
        assert_eq!(by, hop());
        arrive(&mut client, &packet);
        let (answer, octets) = client.udp_peek(at_client).unwrap();
        assert_eq!((octets, answer.remote, answer.local), (&b"answer"[..], ends.server, ends.client));
    }
}

#[test]
fn a_connected_socket_goes_before_a_specific_one_and_that_before_one_for_any() {
    for ends in versions() {
        let mut stack = stack();
        let any = bind(&mut stack, ends.any);
        let specific = bind(&mut stack, ends.server);
        let connected =
            stack.udp_bind(&UdpBind { reuse_port: true, ..UdpBind::new(ends.other_server) }).unwrap();
        stack.udp_connect(connected, ends.other_server.ip(), ends.client, hop()).unwrap();
        arrive(&mut stack, &datagram(ends.client, ends.other_server, b"to the connected"));
        arrive(&mut stack, &datagram(ends.client, ends.server, b"to the specific"));
        arrive(&mut stack, &datagram(ends.stranger, ends.other_server, b"to any"));
        assert_eq!(recv(&mut stack, connected).unwrap(), b"to the connected");
        assert_eq!(recv(&mut stack, specific).unwrap(), b"to the specific");
        assert_eq!(recv(&mut stack, any).unwrap(), b"to any");
    }
}

#[test]
fn a_connected_socket_receives_from_its_peer_alone_until_it_is_disconnected() {
    for ends in versions() {
        let mut stack = stack();
        let id = bind(&mut stack, ends.any);
        stack.udp_connect(id, ends.server.ip(), ends.client, hop()).unwrap();
        assert_eq!(stack.udp_endpoints(id), Some((ends.server, Some(ends.client))));
        let foreign = datagram(ends.stranger, ends.server, b"x");
        assert_eq!(stack.on_packet(&foreign, &arrival(), NOW), Err(DropReason::NoListener));
        stack.udp_connect(id, ends.server.ip(), ends.stranger, hop()).unwrap();
        arrive(&mut stack, &foreign);
        let former = datagram(ends.client, ends.server, b"x");
        assert_eq!(stack.on_packet(&former, &arrival(), NOW), Err(DropReason::NoListener));
        stack.udp_disconnect(id).unwrap();
        arrive(&mut stack, &former);
        assert_eq!(stack.udp_endpoints(id), Some((ends.any, None)));
    }
}

#[test]
fn nobody_connects_twice_to_one_peer_or_from_an_address_that_is_not_its() {
    for ends in versions() {
        let mut stack = stack();
        let one = bind(&mut stack, ends.any);
        let other = bind(&mut stack, ends.server);
        stack.udp_connect(one, ends.server.ip(), ends.client, hop()).unwrap();
        let connect = |from, to, stack: &mut stack::Stack| stack.udp_connect(other, from, to, hop());
        let [v4, v6] = versions();
        let wrong_version = if ends.server.is_ipv4() { v6.client } else { v4.client };
        let mut nowhere = ends.client;
        nowhere.set_port(0);
        for (from, to, error) in [
            (ends.server.ip(), ends.client, UdpConnectError::InUse),
            (ends.other_server.ip(), ends.client, UdpConnectError::Source),
            (ends.server.ip(), wrong_version, UdpConnectError::AddressFamily),
            (ends.server.ip(), nowhere, UdpConnectError::Destination),
        ] {
            assert_eq!(connect(from, to, &mut stack), Err(error));
        }
    }
}

#[test]
fn a_port_that_nobody_has_is_counted_and_left_to_the_kernel() {
    // RFC 1122, 4.1.3.1: the kernel, which has the address, sends "port unreachable".
    for ends in versions() {
        let mut stack = stack();
        bind(&mut stack, ends.client);
        let packet = datagram(ends.client, ends.server, b"");
        assert_eq!(stack.on_packet(&packet, &arrival(), NOW), Err(DropReason::NoListener));
        assert_eq!(stack.counters().udp_no_ports, 1);
        assert_eq!(transmit(&mut stack), None);
    }
}

#[test]
fn one_socket_serves_both_versions_if_it_is_told_to() {
    let [v4, v6] = versions();
    for dual_stack in [true, false] {
        let mut stack = stack();
        let id = stack.udp_bind(&UdpBind { dual_stack, ..UdpBind::new(v6.any) }).unwrap();
        arrive(&mut stack, &datagram(v6.client, v6.server, b"6"));
        assert_eq!(recv(&mut stack, id).unwrap(), b"6");
        let over_v4 = stack.on_packet(&datagram(v4.client, v4.server, b"4"), &arrival(), NOW);
        assert_eq!(over_v4.is_ok(), dual_stack);
        let send = UdpSend {
            to: Some(v4.client),
            from: Some(v4.server.ip()),
            hop: Some(hop()),
            ..UdpSend::default()
        };
        let sent = stack.udp_send_to(id, &send, b"4", NOW);
        assert_eq!(sent, if dual_stack { Ok(()) } else { Err(UdpSendError::AddressFamily) });
    }
}

#[test]
fn sockets_and_engines_share_a_port_if_all_say_so() {
    for ends in versions() {
        let share = UdpBind { reuse_port: true, ..UdpBind::new(ends.server) };
        let (mut engine, mut other_engine) = (stack(), stack());
        let ids = [engine.udp_bind(&share).unwrap(), engine.udp_bind(&share).unwrap()];
        assert!(other_engine.udp_bind(&share).is_ok());
        assert_eq!(engine.udp_bind(&UdpBind::new(ends.server)), Err(UdpBindError::InUse));
        for port in 1..=100 {
            let mut client = ends.client;
            client.set_port(port);
            arrive(&mut engine, &datagram(client, ends.server, &port.to_be_bytes()));
            arrive(&mut engine, &datagram(client, ends.server, &port.to_be_bytes()));
        }
        let shares = ids.map(|id| std::iter::from_fn(|| recv(&mut engine, id)).collect::<Vec<_>>());
        assert_eq!(shares[0].len() + shares[1].len(), 200);
        assert!(shares.iter().all(|share| share.len() > 50), "both have a part");
        let is_whole =
            |share: &Vec<Vec<u8>>| share.as_chunks::<2>().0.iter().all(|[one, other]| one == other);
        assert!(shares.iter().all(is_whole), "a flow stays with one socket");
    }
}

#[test]
fn what_does_not_fit_the_readers_room_is_lost_and_said_so() {
    let [ends, _] = versions();
    let mut stack = stack();
    let id = bind(&mut stack, ends.server);
    arrive(&mut stack, &datagram(ends.client, ends.server, b"0123456789"));
    arrive(&mut stack, &datagram(ends.client, ends.server, b""));
    let mut room = [0; 4];
    for _ in 0..2 {
        let peeked = stack.udp_peek_from(id, &mut room).unwrap();
        assert_eq!((peeked.len, peeked.full_len, &room), (4, 10, b"0123"));
    }
    assert_eq!(stack.udp_queued(id).unwrap().0, 10);
    assert!(stack.udp_recv_from(id, &mut room).unwrap().is_truncated());
    let empty = stack.udp_recv_from(id, &mut room).unwrap();
    assert_eq!((empty.len, empty.full_len), (0, 0), "a datagram may be empty (RFC 768)");
    assert_eq!(stack.udp_recv_from(id, &mut room), Err(UdpRecvError::WouldBlock));
}

#[test]
fn a_full_receive_buffer_drops_and_counts_and_leaves_other_sockets_alone() {
    let [ends, _] = versions();
    let mut stack = stack();
    let options = UdpOptions { receive_buffer: 5000, ..UdpOptions::default() };
    let id = bind_with(&mut stack, ends.server, options);
    let other = bind(&mut stack, ends.other_server);
    (0..100).for_each(|_| arrive(&mut stack, &datagram(ends.client, ends.server, &[0; 1000])));
    arrive(&mut stack, &datagram(ends.client, ends.other_server, b"fine"));
    let kept = std::iter::from_fn(|| recv(&mut stack, id)).count() as u64;
    assert_eq!(kept, 4);
    let counters = stack.counters();
    assert_eq!((counters.udp_in_datagrams, counters.udp_rcvbuf_errors, counters.udp_in_errors), (5, 96, 96));
    assert_eq!(stack.udp_drops(id), Some(96));
    assert_eq!(recv(&mut stack, other).unwrap(), b"fine");
}

#[test]
fn an_event_tells_once_of_what_happened() {
    let [ends, _] = versions();
    let mut stack = stack();
    let id = stack.udp_bind(&UdpBind { token: 42, ..UdpBind::new(ends.server) }).unwrap();
    assert_eq!(stack.poll_event(), None);
    (0..3).for_each(|_| arrive(&mut stack, &datagram(ends.client, ends.server, b"x")));
    let event = Event { socket: Socket::Udp(id), events: Events::READABLE, token: 42 };
    assert_eq!((stack.poll_event(), stack.poll_event()), (Some(event), None));
    assert!(stack.udp_readiness(id).unwrap().readable);
    arrive(&mut stack, &datagram(ends.client, ends.server, b"x"));
    assert_eq!(stack.poll_event(), Some(event));
    while recv(&mut stack, id).is_some() {}
    assert!(!stack.udp_readiness(id).unwrap().readable);
}

#[test]
fn a_closed_socket_sends_what_it_has_and_receives_no_more() {
    for ends in versions() {
        let mut stack = stack();
        let id = bind(&mut stack, ends.server);
        stack.udp_connect(id, ends.server.ip(), ends.client, hop()).unwrap();
        arrive(&mut stack, &datagram(ends.client, ends.server, b"unread"));
        stack.udp_send_to(id, &UdpSend::default(), b"last words", NOW).unwrap();
        stack.udp_close(id);
        assert_eq!((stack.poll_event(), stack.udp_readiness(id)), (None, None));
        assert_eq!(stack.udp_send_to(id, &UdpSend::default(), b"", NOW), Err(UdpSendError::Closed));
        assert_eq!(stack.udp_recv_from(id, &mut []), Err(UdpRecvError::Closed));
        let late = datagram(ends.client, ends.server, b"late");
        assert_eq!(stack.on_packet(&late, &arrival(), NOW), Err(DropReason::NoListener));
        assert_eq!(transmit_all(&mut stack).len(), 1);
        assert_eq!((stack.buffer_memory().0, stack.udp_sockets().count()), (0, 0));
        assert_ne!(bind(&mut stack, ends.server), id, "the address is free again");
    }
}

#[test]
fn a_connected_socket_may_send_elsewhere_if_told_by_which_hop() {
    for ends in versions() {
        let mut stack = stack();
        let id = bind(&mut stack, ends.server);
        stack.udp_connect(id, ends.server.ip(), ends.client, hop()).unwrap();
        let to = |to| UdpSend { to: Some(to), ..UdpSend::default() };
        assert_eq!(stack.udp_send_to(id, &to(ends.client), b"x", NOW), Ok(()));
        assert_eq!(stack.udp_send_to(id, &to(ends.stranger), b"x", NOW), Err(UdpSendError::NoHop));
        let by_hop = UdpSend { hop: Some(Hop::default()), ..to(ends.stranger) };
        assert_eq!(stack.udp_send_to(id, &by_hop, b"x", NOW), Ok(()));
        let hops: Vec<_> = std::iter::from_fn(|| transmit(&mut stack)).map(|(_, hop)| hop).collect();
        assert_eq!(hops, [hop(), Hop::default()]);
    }
}

#[test]
fn a_hop_that_no_socket_uses_any_more_takes_no_place() {
    let [ends, _] = versions();
    let mut stack = stack();
    for number in 0..10_000u16 {
        let id = bind(&mut stack, ends.server);
        for link in [number, number.wrapping_add(1)] {
            let by = Hop { link: LinkId(link), ..hop() };
            stack.udp_connect(id, ends.server.ip(), ends.client, by).unwrap();
        }
        if number % 2 == 0 {
            stack.udp_disconnect(id).unwrap();
        }
        stack.udp_close(id);
    }
}

#[test]
fn sockets_that_are_closed_make_room_for_others() {
    let [ends, _] = versions();
    let mut stack = stack();
    for _ in 0..200_000 {
        let id = bind(&mut stack, ends.server);
        stack.udp_connect(id, ends.server.ip(), ends.client, hop()).unwrap();
        stack.udp_send_to(id, &UdpSend::default(), b"last words", NOW).unwrap();
        stack.udp_close(id);
        transmit_all(&mut stack);
    }
}

#[test]
fn a_connected_socket_follows_a_neighbour_that_changes_its_address() {
    let [ends, _] = versions();
    let mut stack = stack();
    let id = bind(&mut stack, ends.server);
    stack.udp_connect(id, ends.server.ip(), ends.client, hop()).unwrap();
    let (old, new) = (hop().header.destination, MacAddress([9; 6]));
    assert_eq!(stack.replace_neighbour(hop().link, old, new), 1);
    stack.udp_send_to(id, &UdpSend::default(), b"", NOW).unwrap();
    assert_eq!(transmit(&mut stack).unwrap().1.header.destination, new);
}

#[test]
fn a_send_that_cannot_be_says_why() {
    for ends in versions() {
        let mut stack = stack();
        let id = bind(&mut stack, ends.any);
        let [v4, v6] = versions();
        let wrong_version = if ends.server.is_ipv4() { v6.client } else { v4.client };
        let mut port_zero = ends.client;
        port_zero.set_port(0);
        let good = UdpSend {
            to: Some(ends.client),
            from: Some(ends.server.ip()),
            hop: Some(Hop::default()),
            ..UdpSend::default()
        };
        for (send, error) in [
            (UdpSend::default(), UdpSendError::NotConnected),
            (UdpSend { to: Some(port_zero), ..good }, UdpSendError::Destination),
            (UdpSend { to: Some(ends.any), ..good }, UdpSendError::Destination),
            (UdpSend { to: Some(wrong_version), ..good }, UdpSendError::AddressFamily),
            (UdpSend { from: None, ..good }, UdpSendError::Source),
            (UdpSend { from: Some(ends.any.ip()), ..good }, UdpSendError::Source),
            (UdpSend { hop: None, ..good }, UdpSendError::NoHop),
        ] {
            assert_eq!(stack.udp_send_to(id, &send, b"x", NOW), Err(error), "{send:?}");
        }
        assert_eq!(stack.udp_send_to(id, &good, b"x", NOW), Ok(()));
        assert_eq!(transmit_all(&mut stack).len(), 1);
    }
}

#[test]
fn what_exceeds_the_links_mtu_is_refused_not_fragmented() {
    for ends in versions() {
        let mut stack = stack();
        stack.set_link(hop().link, Link { mtu: 1400, ..Link::default() }, NOW);
        let id = bind(&mut stack, ends.server);
        stack.udp_connect(id, ends.server.ip(), ends.client, hop()).unwrap();
        let most = 1400 - if ends.server.is_ipv4() { 28 } else { 48 };
        let payload = vec![0; most + 1];
        let too_long = Err(UdpSendError::TooLong { mtu: 1400 });
        assert_eq!(stack.udp_send_to(id, &UdpSend::default(), &payload, NOW), too_long);
        assert_eq!(stack.udp_send_to(id, &UdpSend::default(), &payload[1..], NOW), Ok(()));
        assert_eq!(transmit(&mut stack).unwrap().0.len(), 1400);
        assert_eq!(stack.poll_timeout().filter(|at| *at < NOW + Duration::from_secs(1)), None);
    }
}

#[test]
fn a_datagram_from_where_nobody_is_expected_is_dropped_and_teaches_no_way() {
    let Ends { server, client, stranger, .. } = versions()[0];
    let mut stack = stack();
    let id = bind(&mut stack, server);
    let only = |ip: IpAddr| vec![ip..=ip];
    let filter = |allowed, routed| vec![SourceFilter { vlan: [0, 0], allowed, routed }];
    stack.set_sources(hop().link, filter(only(client.ip()), only(stranger.ip())));
    let arrived =
        |stack: &mut Stack, from| stack.on_packet(&datagram(from, server, b"x"), &arrival(), NOW).map(|_| ());
    assert_eq!(arrived(&mut stack, stranger), Err(DropReason::SourceUnexpected));
    assert_eq!(arrived(&mut stack, client), Ok(()));
    assert_eq!(recv(&mut stack, id), Some(b"x".to_vec()));
    assert!(!stack.leads_to(&hop(), client.ip()), "what goes there leaves by another link");
    assert!(stack.leads_to(&hop(), stranger.ip()));
}
