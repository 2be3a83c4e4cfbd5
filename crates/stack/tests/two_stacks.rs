//! Two stacks and a wire without faults between them: what a connection is for. Faults are `simnet`'s matter.

mod common;

use std::sync::Arc;

use common::{CLIENT, Pair, SERVER, pattern};
use stack::tcp::{RecvError, SendError, Shutdown, State, TcpError};
use stack::{Config, Connect, ConnectError, Hop, TcpOptions};

#[test]
fn a_connection_is_established_and_accepted_with_both_ends_named() {
    let mut pair = Pair::new();
    let listener = pair.server.listen(SERVER, 16);
    let client = pair.client.connect(CLIENT, SERVER);
    pair.run();
    let accepted = pair.server.stack.tcp_accept(listener).expect("the handshake is complete");
    assert_eq!(pair.client.stack.state(client), Some(State::Established));
    assert_eq!(pair.server.stack.state(accepted), Some(State::Established));
    assert_eq!(pair.server.stack.endpoints(accepted), Some((SERVER, CLIENT)));
    assert_eq!(pair.client.stack.endpoints(client), Some((CLIENT, SERVER)));
}

#[test]
fn data_arrives_once_in_order_and_intact_both_ways() {
    let mut pair = Pair::new();
    let (client, server) = pair.connected();
    let request = pattern(100_000, 1);
    let response = pattern(300_000, 2);
    let (sent, received) = pair.exchange(client, server, &request, &response);
    assert!(sent == request, "what the client sent is what the server got");
    assert!(received == response, "what the server sent is what the client got");
}

#[test]
fn a_segment_that_does_not_fit_the_room_is_cut_to_it() {
    let mut pair = Pair::new();
    let (client, server) = pair.connected();
    pair.server.room = 700;
    let (request, response) = (pattern(100, 1), pattern(100_000, 2));
    let (_, received) = pair.exchange(client, server, &request, &response);
    assert!(received == response, "{} of {} octets arrived", received.len(), response.len());
}

#[test]
fn close_on_both_sides_frees_both_and_leaves_time_wait_to_who_closed_first() {
    let mut pair = Pair::new();
    let (client, server) = pair.connected();
    pair.client.stack.close(client, pair.now);
    pair.run();
    assert_eq!(pair.server.stack.state(server), Some(State::CloseWait));
    assert_eq!(pair.server.recv(server, pair.now), Ok(Vec::new()));
    pair.server.stack.close(server, pair.now);
    pair.run();
    assert_eq!(pair.client.stack.population(), (0, 0, 1));
    assert_eq!(pair.server.stack.population(), (0, 0, 0));
}

/// Such a peer may have missed our FIN, and wait for it: Linux answers a SYN by a reset then.
#[test]
fn a_flow_whose_last_fin_was_refused_is_not_begun_again_for_a_minute() {
    for (is_refused, after, expected) in
        [(true, 1, Err(ConnectError::InUse)), (true, 61, Ok(())), (false, 1, Ok(()))]
    {
        let mut pair = Pair::new();
        let (client, server) = pair.connected();
        pair.server.stack.close(server, pair.now);
        pair.run();
        if is_refused {
            pair.forget_server();
        }
        pair.client.stack.close(client, pair.now);
        pair.run();
        assert_eq!(pair.client.stack.population(), (0, 0, 0), "it was last to close, and has no TIME-WAIT");
        pair.run_for(clock::Duration::from_secs(after));
        let connect = |is_bound| Connect {
            local: CLIENT,
            remote: SERVER,
            is_bound,
            hop: Hop::default(),
            options: Arc::default(),
            data: b"",
        };
        let again = pair.client.stack.tcp_connect(&connect(false), pair.now).map(drop);
        assert_eq!(again, expected, "refused: {is_refused}, after {after} s");
        if again.is_err() {
            pair.client.stack.tcp_connect(&connect(true), pair.now).expect("the program has chosen the port");
        }
    }
}

/// RFC 4821, 7.2: a probe has more payload than other segments. A FIN takes sequence space only.
#[test]
fn a_last_full_segment_with_a_fin_is_no_probe_of_the_path_mtu() {
    let mut pair = Pair::new();
    let (client, server) = pair.connected();
    let mss = pair.client.stack.info(client, pair.now).unwrap().snd_mss as usize;
    let data = pattern(2 * mss, 1);
    pair.client.stack.send(client, &data, pair.now).unwrap();
    pair.client.stack.shutdown(client, Shutdown::Write, pair.now);
    pair.run();
    assert!(pair.server.recv(server, pair.now) == Ok(data));
    let counters = pair.client.stack.counters();
    assert_eq!((counters.mtu_probe_success, counters.mtu_probe_fail), (0, 0));
}

#[test]
fn half_close_lets_the_other_direction_go_on() {
    let mut pair = Pair::new();
    let (client, server) = pair.connected();
    pair.client.stack.shutdown(client, Shutdown::Write, pair.now);
    pair.run();
    assert_eq!(pair.server.recv(server, pair.now), Ok(Vec::new()));
    assert_eq!(pair.server.stack.send(server, b"later", pair.now), Ok(5));
    pair.run();
    assert_eq!(pair.client.recv(client, pair.now), Ok(b"later".to_vec()));
    assert_eq!(pair.client.stack.send(client, b"x", pair.now), Err(SendError::Closed));
}

#[test]
fn shutdown_while_syns_cross_lets_the_data_go_first() {
    // RFC 9293, 3.10.4, SYN-RECEIVED.
    for data in [&b"hello"[..], b""] {
        let mut pair = Pair::new();
        let connect = |local, remote, now, stack: &mut stack::Stack| {
            let options = std::sync::Arc::default();
            let connect =
                stack::Connect { local, remote, is_bound: false, hop: stack::Hop::default(), options, data };
            stack.tcp_connect(&connect, now).unwrap()
        };
        let client = connect(CLIENT, SERVER, pair.now, &mut pair.client.stack);
        let server = connect(SERVER, CLIENT, pair.now, &mut pair.server.stack);
        pair.run_for(clock::Duration::from_micros(700)); // The SYNs are there, what answers them is not.
        assert_eq!(pair.client.stack.state(client), Some(State::SynReceived));
        assert_eq!(pair.server.stack.state(server), Some(State::SynReceived));
        pair.client.stack.shutdown(client, Shutdown::Write, pair.now);
        pair.run();
        assert_eq!(pair.server.recv(server, pair.now), Ok(data.to_vec()));
        assert_eq!(pair.server.stack.state(server), Some(State::CloseWait));
        pair.server.stack.shutdown(server, Shutdown::Write, pair.now);
        pair.run();
        assert_eq!(pair.client.recv(client, pair.now), Ok(data.to_vec()));
        pair.client.stack.close(client, pair.now);
        pair.server.stack.close(server, pair.now);
        assert_eq!(pair.client.stack.population(), (0, 0, 1));
        assert_eq!(pair.server.stack.population(), (0, 0, 0));
    }
}

#[test]
fn a_port_without_listener_refuses() {
    let mut pair = Pair::new();
    let client = pair.client.connect(CLIENT, SERVER);
    pair.run();
    assert_eq!(pair.client.stack.state(client), Some(State::Closed));
    assert_eq!(pair.client.stack.take_error(client), Some(TcpError::Refused));
}

#[test]
fn an_abort_is_a_reset_to_the_peer() {
    let mut pair = Pair::new();
    let (client, server) = pair.connected();
    pair.client.stack.abort(client, pair.now);
    pair.run();
    assert_eq!(pair.server.recv(server, pair.now), Err(RecvError::Failed(TcpError::Reset)));
    assert_eq!(pair.client.stack.population(), (0, 0, 0));
}

#[test]
fn closing_with_unread_data_resets() {
    // RFC 2525, 2.17; RFC 1122, 4.2.2.13.
    let mut pair = Pair::new();
    let (client, server) = pair.connected();
    pair.client.stack.send(client, b"unread", pair.now).unwrap();
    pair.run();
    pair.server.stack.close(server, pair.now);
    pair.run();
    assert_eq!(pair.client.stack.take_error(client), Some(TcpError::Reset));
    assert_eq!(pair.server.stack.population(), (0, 0, 0));
}

#[test]
fn all_buffers_are_free_when_all_connections_are_gone() {
    let mut pair = Pair::new();
    let (client, server) = pair.connected();
    pair.exchange(client, server, &pattern(50_000, 3), &pattern(50_000, 4));
    pair.client.stack.close(client, pair.now);
    pair.server.stack.close(server, pair.now);
    pair.run();
    assert_eq!(pair.client.stack.buffer_memory().0, 0);
    assert_eq!(pair.server.stack.buffer_memory().0, 0);
}

#[test]
fn a_million_idle_connections_fit_512_octets_each() {
    let size = size_of::<stack::tcp::Connection>();
    assert!(
        size <= 464,
        "a connection takes {size} octets; its place, timer and table entry take some 40 more"
    );
}

#[test]
fn syn_cookies_open_a_connection_without_memory_of_the_syn() {
    let config = Config { syn_cookies: stack::config::SynCookies::Always, ..Config::default() };
    let mut pair = Pair::with(Config::default(), config);
    let (client, server) = pair.connected();
    let (sent, _) = pair.exchange(client, server, &pattern(200_000, 5), b"");
    assert!(sent == pattern(200_000, 5));
    assert_eq!(pair.server.stack.counters().syncookies_recv, 1);
    let info = pair.server.stack.info(server, pair.now).unwrap();
    assert!(info.sack && info.window_scaling, "options came back in the timestamp");
}

#[test]
fn the_accept_queue_is_one_longer_than_the_backlog() {
    let mut pair = Pair::new();
    pair.server.listen(SERVER, 2);
    for port in 0..5 {
        let mut local = CLIENT;
        local.set_port(CLIENT.port() + port);
        pair.client.connect(local, SERVER);
    }
    pair.run_for(clock::Duration::from_millis(100));
    assert_eq!(pair.server.stack.population().0, 3);
    let counters = pair.server.stack.counters();
    assert!(counters.listen_overflows > 0 && counters.listen_drops >= counters.listen_overflows);
}

#[test]
fn nagle_holds_a_small_segment_while_another_is_in_flight() {
    // RFC 9293, 3.7.4.
    for (no_delay, segments) in [(false, 2), (true, 10)] {
        let mut pair = Pair::new();
        let (client, server) = pair.connected();
        let options = TcpOptions { no_delay, ..TcpOptions::default() };
        pair.client.stack.set_options(client, options.into(), pair.now);
        let before = pair.client.stack.info(client, pair.now).unwrap().data_segs_out;
        for _ in 0..10 {
            pair.client.stack.send(client, b"ten octets", pair.now).unwrap();
            pair.client.transmit(pair.now);
        }
        pair.run();
        let sent = pair.client.stack.info(client, pair.now).unwrap().data_segs_out - before;
        assert_eq!(sent, segments, "with TCP_NODELAY {no_delay}");
        assert_eq!(pair.server.recv(server, pair.now).unwrap().len(), 100);
    }
}

#[test]
fn a_window_that_closes_opens_again_when_the_reader_reads() {
    let mut pair = Pair::new();
    let (client, server) = pair.connected();
    let data = pattern(1_000_000, 6);
    let mut sent = 0;
    while let Ok(count) = pair.client.stack.send(client, &data[sent..], pair.now) {
        sent += count;
        pair.run();
    }
    assert_eq!(pair.client.stack.info(client, pair.now).unwrap().snd_wnd, 0);
    let mut received = pair.server.recv(server, pair.now).unwrap();
    while received.len() < sent {
        pair.run();
        received.extend(pair.server.recv(server, pair.now).unwrap_or_default());
    }
    assert!(received == data[..sent]);
    let counters = pair.server.stack.counters();
    assert!(counters.to_zero_window > 0, "the closed window is counted as on Linux");
    assert_eq!(counters.from_zero_window, counters.to_zero_window, "and each that opens, once");
}

#[test]
fn a_refused_writer_gets_in_again_when_a_third_of_its_buffer_is_free() {
    let mut pair = Pair::new();
    let (client, server) = pair.connected();
    let options = TcpOptions { send_buffer: Some(300_000), ..TcpOptions::default() };
    pair.client.stack.set_options(client, options.into(), pair.now);
    assert_eq!(pair.client.stack.send(client, &pattern(400_000, 7), pair.now), Ok(300_000));
    pair.run();
    // The peer's window took some of it, less than a third.
    let queued = |pair: &Pair| pair.client.stack.queued(client).unwrap().1;
    assert!((200_000..300_000).contains(&queued(&pair)), "{}", queued(&pair));
    assert_eq!(pair.client.stack.send(client, b"x", pair.now), Err(SendError::WouldBlock));
    pair.server.recv(server, pair.now).unwrap();
    pair.run();
    assert!(queued(&pair) < 200_000);
    assert_eq!(pair.client.stack.send(client, b"x", pair.now), Ok(1));
}

#[test]
fn a_reader_of_a_connection_that_is_being_made_waits() {
    let mut pair = Pair::new();
    let client = pair.client.connect(CLIENT, SERVER);
    assert_eq!(pair.client.recv(client, pair.now), Err(RecvError::WouldBlock));
    pair.run();
    assert_eq!(pair.client.recv(client, pair.now), Err(RecvError::Failed(TcpError::Refused)));
}
