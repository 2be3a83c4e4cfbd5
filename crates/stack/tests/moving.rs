//! Connections that leave their stack as values and go on in another one. Under loss: `simnet`.

mod common;

use std::net::SocketAddr;
use std::sync::Arc;

use clock::Duration;
use common::{CLIENT, Pair, SERVER, pattern};
use stack::tcp::{RecvError, SendError, Shutdown, State, TcpError};
use stack::{
    AttachError, Config, ConnectionId, DetachError, Detached, Handshake, Hop, ListenerId, Stack, TcpOptions,
};

/// Moves the server's connection to a stack of its own; what it was as a value.
fn move_server(pair: &mut Pair, server: ConnectionId) -> (ConnectionId, Detached) {
    let detached = pair.server.stack.detach(server, pair.now).unwrap();
    pair.server.stack = Stack::new(Config::default(), [7; 32], pair.now);
    let moved = pair.server.stack.attach(&detached, Hop::default(), pair.now).unwrap();
    (moved, detached)
}

#[test]
fn a_transfer_both_ways_goes_on_where_it_was() {
    let mut pair = Pair::new();
    let (client, server) = pair.connected();
    let (request, response) = (pattern(200_000, 1), pattern(300_000, 2));
    let (mut at_server, mut at_client) = (Vec::new(), Vec::new());
    let (mut sent, mut answered) = (0, 0);
    let mut server = server;
    for round in 0..4000 {
        sent += pair.client.stack.send(client, &request[sent..], pair.now).unwrap_or(0);
        answered += pair.server.stack.send(server, &response[answered..], pair.now).unwrap_or(0);
        pair.run_for(Duration::from_micros(300));
        if round % 3 == 0 {
            at_server.extend(pair.server.recv(server, pair.now).unwrap_or_default());
            at_client.extend(pair.client.recv(client, pair.now).unwrap_or_default());
        }
        if round % 10 == 9 {
            (server, _) = move_server(&mut pair, server);
        }
    }
    assert!(at_server == request, "what the client sent is what the server got");
    assert!(at_client == response, "what the server sent is what the client got");
    assert_eq!(pair.client.stack.counters().estab_resets, 0);
}

#[test]
fn the_value_tells_where_both_directions_are() {
    let mut pair = Pair::new();
    let (client, server) = pair.connected();
    pair.client.stack.send(client, b"unread", pair.now).unwrap();
    pair.run();
    pair.server.stack.send(server, b"acknowledged", pair.now).unwrap();
    pair.run();
    let before = pair.server.stack.info(server, pair.now).unwrap();
    // Nagle's rule sends the first and holds the second.
    pair.server.stack.send(server, b"sent", pair.now).unwrap();
    pair.server.transmit(pair.now);
    pair.server.stack.send(server, b"unsent", pair.now).unwrap();
    pair.server.transmit(pair.now);
    let detached = pair.server.stack.detach(server, pair.now).unwrap();
    assert_eq!(
        (detached.connection.local, detached.connection.remote, detached.connection.state),
        (SERVER, CLIENT, State::Established)
    );
    assert_eq!(
        (&*detached.connection.received, &*detached.connection.unacked, &*detached.connection.unsent),
        (&b"unread"[..], &b"sent"[..], &b"unsent"[..])
    );
    assert_eq!(detached.connection.snd_una + 4, detached.connection.snd_nxt());
    assert_eq!(detached.connection.rcv_wup, detached.connection.rcv_nxt, "all that came is acknowledged");
    assert_eq!((detached.connection.snd_wnd, detached.connection.rcv_wnd), (before.snd_wnd, before.rcv_wnd));
    assert_eq!(
        (detached.connection.snd_wscale, detached.connection.rcv_wscale),
        (before.snd_wscale, before.rcv_wscale)
    );
    assert_eq!(detached.connection.peer_mss, 1460);
    assert!(detached.connection.sack_permitted && detached.connection.timestamps.is_some());
    let flags = [
        detached.connection.fin_sent,
        detached.connection.state.has_fin_received(),
        detached.connection.state.is_write_closed(),
        detached.connection.read_closed,
        detached.connection.orphaned,
    ];
    assert_eq!(flags, [false; 5]);
}

#[test]
fn leaving_is_silent_and_what_still_comes_is_ignored() {
    let mut pair = Pair::new();
    let (client, server) = pair.connected();
    let detached = pair.server.stack.detach(server, pair.now).unwrap();
    assert_eq!(pair.server.stack.population(), (0, 0, 0));
    assert_eq!(pair.server.stack.buffer_memory().0, 0);
    assert_eq!(pair.server.stack.state(server), None);
    pair.client.stack.send(client, b"where are you", pair.now).unwrap();
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.client.stack.state(client), Some(State::Established));
    assert!(pair.server.stack.counters().departed_ignored > 0);
    let moved = pair.server.stack.attach(&detached, Hop::default(), pair.now).unwrap();
    pair.run_for(Duration::from_secs(3));
    assert_eq!(pair.server.recv(moved, pair.now), Ok(b"where are you".to_vec()));
}

#[test]
fn what_still_comes_is_kept_for_who_has_the_connection_now() {
    let server = Config { late_segments_max: 1, ..Config::default() };
    let mut pair = Pair::with(Config::default(), server);
    let (client, server) = pair.connected();
    let detached = pair.server.stack.detach(server, pair.now).unwrap();
    pair.client.stack.send(client, b"where are you", pair.now).unwrap();
    pair.run_for(Duration::from_secs(1));
    let stack = &mut pair.server.stack;
    let late = stack.next_late_segment().unwrap();
    assert_eq!((late.local, late.remote), (SERVER, CLIENT));
    let header = wire::tcp::Tcp::parse(&late.octets).unwrap();
    assert_eq!(
        (header.sequence_number(), header.payload()),
        (detached.connection.rcv_nxt.0, &b"where are you"[..])
    );
    assert_eq!(stack.next_late_segment(), None, "there was room for one");
    assert_eq!(stack.counters().departed_late, 1);
    assert!(stack.counters().departed_ignored > 0, "it was sent again");
}

#[test]
fn a_new_connection_with_the_ends_of_one_that_left_is_not_given_away() {
    let server = Config { late_segments_max: 10, ..Config::default() };
    let mut pair = Pair::with(Config::default(), server);
    let (_, server) = pair.connected();
    pair.server.stack.detach(server, pair.now).unwrap();
    pair.client = Pair::new().client;
    pair.client.connect(CLIENT, SERVER);
    pair.run_for(Duration::from_millis(5));
    assert_eq!(pair.server.stack.next_late_segment(), None);
    assert_eq!(pair.server.stack.counters().departed_ignored, 1);
}

#[test]
fn who_comes_late_to_a_listener_that_was_left_to_others_is_not_reset() {
    let mut pair = Pair::new();
    let listener = pair.server.listen(SERVER, 16);
    pair.server.stack.leave_listener(listener, pair.now);
    let client = pair.client.connect(CLIENT, SERVER);
    pair.run_for(Duration::from_millis(2500));
    assert_eq!(pair.client.stack.state(client), Some(State::SynSent), "it goes on asking");
    assert!(pair.server.stack.counters().departed_ignored > 0);
    pair.run_for(Duration::from_secs(10));
    assert_eq!(pair.client.stack.take_error(client), Some(TcpError::Refused), "after a while it is told");
}

#[test]
fn who_never_comes_back_is_reset_after_a_while() {
    let mut pair = Pair::new();
    let (client, server) = pair.connected();
    pair.server.stack.detach(server, pair.now).unwrap();
    pair.client.stack.send(client, b"where are you", pair.now).unwrap();
    pair.run_for(Duration::from_secs(10));
    assert_eq!(pair.client.stack.take_error(client), Some(TcpError::Reset));
}

#[test]
fn every_half_closed_state_goes_on_and_ends_well() {
    // The server moves after each of these was done at one end, or both: then both finish.
    for (client_finishes, server_finishes, in_flight) in [
        (true, false, false), // CLOSE-WAIT
        (false, true, true),  // FIN-WAIT-1
        (false, true, false), // FIN-WAIT-2
        (true, true, true),   // CLOSING or LAST-ACK
    ] {
        let mut pair = Pair::new();
        let (client, server) = pair.connected();
        if client_finishes && !in_flight {
            pair.client.stack.shutdown(client, Shutdown::Write, pair.now);
            pair.run();
        }
        if server_finishes {
            pair.server.stack.send(server, b"last words", pair.now).unwrap();
            pair.server.stack.shutdown(server, Shutdown::Write, pair.now);
            if client_finishes {
                pair.client.stack.shutdown(client, Shutdown::Write, pair.now);
            }
            pair.run_for(if in_flight { Duration::from_micros(700) } else { Duration::from_secs(1) });
        }
        let state = pair.server.stack.state(server).unwrap();
        let (server, detached) = move_server(&mut pair, server);
        assert_eq!(pair.server.stack.state(server), Some(state));
        assert_eq!(detached.connection.fin_sent, server_finishes, "{state:?}");
        assert_eq!(detached.connection.state.has_fin_received(), client_finishes, "{state:?}");
        pair.run();
        pair.client.stack.shutdown(client, Shutdown::Write, pair.now);
        pair.server.stack.shutdown(server, Shutdown::Write, pair.now);
        pair.run();
        let said = if server_finishes { b"last words".to_vec() } else { Vec::new() };
        assert_eq!(pair.client.recv(client, pair.now), Ok(said), "{state:?}");
        assert_eq!(pair.server.recv(server, pair.now), Ok(Vec::new()), "{state:?}");
        pair.client.stack.close(client, pair.now);
        pair.server.stack.close(server, pair.now);
        pair.run();
        let left = [pair.client.stack.population().0, pair.server.stack.population().0];
        assert_eq!(left, [0, 0], "{state:?}");
        assert_eq!(
            pair.client.stack.counters().out_rsts + pair.server.stack.counters().out_rsts,
            0,
            "{state:?}"
        );
    }
}

#[test]
fn a_closed_socket_delivers_what_it_had_to_say_from_where_it_is_now() {
    let mut pair = Pair::new();
    let (client, server) = pair.connected();
    let said = pattern(50_000, 3);
    let taken = pair.server.stack.send(server, &said, pair.now).unwrap();
    pair.server.stack.close(server, pair.now);
    pair.run_for(Duration::from_micros(700));
    let (_, detached) = move_server(&mut pair, server);
    assert!(
        detached.connection.orphaned
            && detached.connection.state.is_write_closed()
            && !detached.connection.fin_sent
    );
    let mut heard = Vec::new();
    for _ in 0..100 {
        pair.run_for(Duration::from_millis(10));
        heard.extend(pair.client.recv(client, pair.now).unwrap_or_default());
    }
    assert!(heard == said[..taken]);
    pair.client.stack.close(client, pair.now);
    pair.run();
    assert_eq!(pair.server.stack.population(), (0, 0, 1));
}

#[test]
fn a_closed_window_is_probed_after_the_move() {
    let mut pair = Pair::new();
    let (client, server) = pair.connected();
    let said = pattern(300_000, 4);
    let mut sent = 0;
    for _ in 0..100 {
        sent += pair.server.stack.send(server, &said[sent..], pair.now).unwrap_or(0);
        pair.run_for(Duration::from_millis(10));
    }
    let (server, detached) = move_server(&mut pair, server);
    assert!(
        detached.connection.unacked.is_empty() && !detached.connection.unsent.is_empty(),
        "the window is closed"
    );
    let mut heard = Vec::new();
    for _ in 0..3000 {
        pair.run_for(Duration::from_millis(10));
        heard.extend(pair.client.recv(client, pair.now).unwrap_or_default());
        sent += pair.server.stack.send(server, &said[sent..], pair.now).unwrap_or(0);
    }
    assert!(heard == said);
}

#[test]
fn only_what_is_established_and_not_over_can_leave() {
    let mut pair = Pair::new();
    pair.server.listen(SERVER, 16);
    let client = pair.client.connect(CLIENT, SERVER);
    assert_eq!(pair.client.stack.detach(client, pair.now), Err(DetachError::Opening));
    pair.run();
    pair.client.stack.abort(client, pair.now);
    assert_eq!(pair.client.stack.detach(client, pair.now), Err(DetachError::Over), "a reset is due");
    pair.run();
    assert_eq!(pair.client.stack.detach(client, pair.now), Err(DetachError::NotConnected));
}

#[test]
fn who_waits_to_be_accepted_can_leave_all_together_and_one_by_one() {
    let mut pair = Pair::new();
    let listener = pair.server.listen(SERVER, 16);
    let mut clients = Vec::new();
    for port in 0..5 {
        let mut local = CLIENT;
        local.set_port(CLIENT.port() + port);
        clients.push(pair.client.connect(local, SERVER));
    }
    pair.run();
    pair.client.stack.abort(clients[1], pair.now);
    pair.run();
    let third: Vec<ConnectionId> = pair.server.stack.connections().collect();
    let third =
        third.into_iter().find(|id| pair.server.stack.endpoints(*id).unwrap().1.port() == CLIENT.port() + 2);
    pair.server.stack.detach(third.unwrap(), pair.now).unwrap();
    assert_eq!(pair.server.stack.accept_queue(listener), Some((4, 16)));
    let detached = pair.server.stack.detach_accept_queue(listener, pair.now);
    let ports: Vec<u16> = detached.iter().map(|it| it.connection.remote.port() - CLIENT.port()).collect();
    assert_eq!(ports, [0, 3, 4], "the second was reset, the third is gone");
    assert_eq!(pair.server.stack.accept_queue(listener), Some((0, 16)));
    assert_eq!(pair.server.stack.population(), (0, 0, 0));
    assert_eq!(pair.server.stack.tcp_accept(listener), None);
}

#[test]
fn who_was_to_leave_the_accept_queue_waits_there_again() {
    let mut pair = Pair::new();
    let listener = pair.server.listen(SERVER, 16);
    let client = pair.client.connect(CLIENT, SERVER);
    pair.run();
    let detached = pair.server.stack.detach_accept_queue(listener, pair.now);
    let later = pair.client.connect(SocketAddr::new(CLIENT.ip(), CLIENT.port() + 1), SERVER);
    pair.client.stack.send(client, b"request", pair.now).unwrap();
    pair.run_for(Duration::from_millis(50));
    let place = (listener, detached[0].hop);
    pair.server.stack.attach_waiting(&detached[0], place, pair.now).unwrap();
    assert_eq!(pair.server.stack.accept_queue(listener), Some((2, 16)));
    pair.run();
    let [second, first] = [(); 2].map(|()| pair.server.stack.tcp_accept(listener).unwrap());
    assert_eq!(pair.server.recv(first, pair.now), Ok(b"request".to_vec()), "sent again");
    pair.server.stack.send(second, b"hello", pair.now).unwrap();
    pair.run();
    assert_eq!(pair.client.recv(later, pair.now), Ok(b"hello".to_vec()));

    pair.server.stack.close_listener(listener, pair.now);
    let detached = pair.server.stack.detach(second, pair.now).unwrap();
    let refused = pair.server.stack.attach_waiting(&detached, (listener, detached.hop), pair.now);
    assert_eq!(refused, Err(AttachError::NoListener));
}

#[test]
fn who_finished_the_handshake_and_was_left_waiting_for_data_can_leave_too() {
    let mut pair = Pair::new();
    let listener = pair.server.listen(SERVER, 16);
    let deferring = TcpOptions { defer_accept: Some(3), ..TcpOptions::default() };
    pair.server.stack.set_listener_options(listener, Arc::new(deferring));
    let client = pair.client.connect(CLIENT, SERVER);
    pair.run_for(Duration::from_micros(600));
    assert_eq!(pair.server.stack.open_handshakes(listener), 1, "the SYN-ACK is on its way");
    pair.server.stack.accept_acknowledged(listener, pair.now);
    assert_eq!(pair.server.stack.open_handshakes(listener), 1, "nothing says that the peer is there");
    pair.run();
    assert_eq!(pair.server.stack.open_handshakes(listener), 0);
    assert_eq!(pair.server.stack.accept_queue(listener), Some((0, 16)));
    pair.server.stack.accept_acknowledged(listener, pair.now);
    let detached = pair.server.stack.detach_accept_queue(listener, pair.now);
    assert_eq!(detached.len(), 1);
    let moved = pair.server.stack.attach(&detached[0], Hop::default(), pair.now).unwrap();
    pair.server.stack.send(moved, b"first", pair.now).unwrap();
    pair.client.stack.send(client, b"request", pair.now).unwrap();
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.server.recv(moved, pair.now), Ok(b"request".to_vec()));
    assert_eq!(pair.client.recv(client, pair.now), Ok(b"first".to_vec()));
}

#[test]
fn who_finished_the_handshake_while_the_accept_queue_was_full_can_leave_too() {
    let mut pair = Pair::with(Config::default(), Config { half_open_min: 16, ..Config::default() });
    let listener = pair.server.listen(SERVER, 2);
    for port in 0..9 {
        pair.client.connect(SocketAddr::new(CLIENT.ip(), CLIENT.port() + port), SERVER);
    }
    pair.run();
    assert_eq!(pair.server.stack.accept_queue(listener), Some((3, 2)));
    pair.server.stack.accept_acknowledged(listener, pair.now);
    let waiting = pair.server.stack.detach_accept_queue(listener, pair.now).len();
    assert_eq!(waiting, 9);
    assert_eq!(pair.server.stack.population().1, 0, "no peer that believes itself connected is left");
}

/// A server that has answered a SYN by a SYN-ACK, which is on its way, and then moved its listener to a new stack; the client's
/// connection, and what left.
fn moved_handshake(pair: &mut Pair) -> (ConnectionId, Handshake) {
    let listener = pair.server.listen(SERVER, 16);
    let client = pair.client.connect(CLIENT, SERVER);
    pair.run_for(Duration::from_micros(600));
    let mut handshakes = pair.server.stack.detach_handshakes(listener, pair.now);
    assert_eq!((handshakes.len(), pair.server.stack.open_handshakes(listener)), (1, 0));
    assert_eq!(pair.server.stack.population(), (0, 0, 0));
    pair.server.stack = Stack::new(Config::default(), [9; 32], pair.now);
    pair.server.listen(SERVER, 16);
    (client, handshakes.remove(0))
}

/// Both sides send, and it arrives.
fn assert_talks(pair: &mut Pair, client: ConnectionId, listener: ListenerId) {
    let server = pair.server.stack.tcp_accept(listener).expect("the handshake is complete");
    let (request, response) = (pattern(100_000, 1), pattern(100_000, 2));
    let arrived = pair.exchange(client, server, &request, &response);
    assert!(arrived == (request, response));
    let info = pair.server.stack.info(server, pair.now).unwrap();
    assert!(info.timestamps && info.sack && info.snd_wscale > 0, "what was agreed holds");
    assert_eq!(pair.client.stack.counters().estab_resets + pair.server.stack.counters().estab_resets, 0);
}

#[test]
fn a_handshake_is_finished_by_another_stack() {
    let mut pair = Pair::new();
    let (client, handshake) = moved_handshake(&mut pair);
    assert_eq!((handshake.local, handshake.remote, handshake.syn_acks), (SERVER, CLIENT, 1));
    pair.server.stack.attach_handshake(&handshake, pair.now).unwrap();
    let again = pair.server.stack.attach_handshake(&handshake, pair.now);
    assert_eq!(again, Err(AttachError::InUse));
    pair.run();
    let listener = pair.server.stack.listeners().next().unwrap();
    assert_talks(&mut pair, client, listener);
}

#[test]
fn a_handshake_whose_ack_is_lost_while_it_moves_is_finished_by_the_next_syn_ack() {
    let mut pair = Pair::new();
    let (client, handshake) = moved_handshake(&mut pair);
    let listener = pair.server.stack.listeners().next().unwrap();
    pair.server.stack.leave_listener(listener, pair.now);
    pair.run_for(Duration::from_millis(100));
    assert_eq!(pair.client.stack.state(client), Some(State::Established), "its ACK came to nobody");
    let listener = pair.server.listen(SERVER, 16);
    pair.server.stack.attach_handshake(&handshake, pair.now).unwrap();
    pair.run_for(Duration::from_millis(1500));
    assert_talks(&mut pair, client, listener);
}

#[test]
fn a_handshake_that_was_not_answered_yet_is_answered_by_the_other_stack() {
    let mut pair = Pair::new();
    let (_, handshake) = moved_handshake(&mut pair);
    let mut room = [0; 1500];
    let stack = &mut pair.server.stack;
    stack.attach_handshake(&Handshake { syn_acks: 0, ..handshake }, pair.now).unwrap();
    assert!(stack.poll_transmit(pair.now, &mut room).is_some(), "at once");
    assert!(stack.poll_transmit(pair.now, &mut room).is_none(), "and once");
}

#[test]
fn a_handshake_that_nobody_wants_is_refused() {
    let mut pair = Pair::new();
    let (_, handshake) = moved_handshake(&mut pair);
    let attach = |pair: &mut Pair, it: &Handshake| pair.server.stack.attach_handshake(it, pair.now);
    let elsewhere = Handshake { local: CLIENT, ..handshake.clone() };
    assert_eq!(attach(&mut pair, &elsewhere), Err(AttachError::NoListener));
    let mixed = Handshake { remote: "[2001:db8::1]:1".parse().unwrap(), ..handshake.clone() };
    assert_eq!(attach(&mut pair, &mixed), Err(AttachError::AddressFamily));
    let crowd = (1..=16).map(|port| Handshake { remote: (CLIENT.ip(), port).into(), ..handshake.clone() });
    assert!(crowd.map(|it| attach(&mut pair, &it)).all(|outcome| outcome == Ok(())));
    assert_eq!(attach(&mut pair, &handshake), Err(AttachError::TooMany), "the backlog is full");
}

#[test]
fn a_handshake_that_nobody_can_have_begun_does_no_harm() {
    for (shift, mss, age_us, count) in [(255, 0, u64::MAX, 1), (255, 0, u64::MAX, 255), (14, u16::MAX, 0, 0)]
    {
        let mut pair = Pair::new();
        let (_, handshake) = moved_handshake(&mut pair);
        let listener = pair.server.stack.listeners().next().unwrap();
        let mad = Handshake {
            window_scales: Some((shift, shift)),
            peer_mss: mss,
            age_us,
            syn_acks: count,
            timeouts: count,
            window: mss,
            ..handshake
        };
        pair.server.stack.attach_handshake(&mad, pair.now).unwrap();
        pair.run_for(Duration::from_secs(1));
        let server = pair.server.stack.tcp_accept(listener).expect("the peer goes on with it");
        assert_eq!(pair.server.stack.info(server, pair.now).unwrap().snd_wscale, 14);
        pair.server.stack.send(server, b"something", pair.now).unwrap();
        pair.run_for(Duration::from_secs(400));
    }
}

#[test]
fn a_flow_is_attached_once() {
    let mut pair = Pair::new();
    let (_, server) = pair.connected();
    let detached = pair.server.stack.detach(server, pair.now).unwrap();
    pair.server.stack.attach(&detached, Hop::default(), pair.now).unwrap();
    assert_eq!(pair.server.stack.attach(&detached, Hop::default(), pair.now), Err(AttachError::InUse));
}

#[test]
fn without_room_for_its_data_a_connection_is_not_taken() {
    let mut pair = Pair::new();
    let (_, server) = pair.connected();
    let mut detached = pair.server.stack.detach(server, pair.now).unwrap();
    detached.connection.received = vec![0; 1 << 20];
    let small = Config { buffer_memory: 1 << 18, ..Config::default() };
    pair.server.stack = Stack::new(small, [7; 32], pair.now);
    assert_eq!(pair.server.stack.attach(&detached, Hop::default(), pair.now), Err(AttachError::TooMany));
    assert_eq!(pair.server.stack.population(), (0, 0, 0));
    assert_eq!(pair.server.stack.buffer_memory().0, 0);
}

#[test]
fn a_reader_and_a_writer_hear_of_what_there_is() {
    let mut pair = Pair::new();
    let (client, server) = pair.connected();
    pair.client.stack.send(client, b"unread", pair.now).unwrap();
    pair.client.stack.shutdown(client, Shutdown::Write, pair.now);
    pair.run();
    let (server, _) = move_server(&mut pair, server);
    let event = pair.server.stack.poll_event().unwrap();
    assert_eq!(event.socket, stack::Socket::Connection(server));
    use stack::tcp::Events;
    assert_eq!(event.events, Events::READABLE | Events::WRITABLE | Events::READ_CLOSED);
    assert_eq!(pair.server.recv(server, pair.now), Ok(b"unread".to_vec()));
    assert_eq!(pair.server.stack.send(server, b"answer", pair.now), Ok(6));
    pair.run();
    assert_eq!(pair.client.recv(client, pair.now), Ok(b"answer".to_vec()));
    assert_eq!(pair.client.recv(client, pair.now), Err(RecvError::WouldBlock));
    assert_eq!(pair.client.stack.send(client, b"x", pair.now), Err(SendError::Closed));
}
