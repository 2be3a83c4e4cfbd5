//! Segments of connections that another stack may have, which serves the same port by other queues.

mod common;

use clock::Duration;
use common::{CLIENT, Pair, SERVER};
use stack::tcp::{RecvError, Shutdown, TcpError};
use stack::{Arrival, Config, ConnectionId, Stack, Stray};

const ASKING: usize = 2;

/// A connection whose packets come to another stack of the server from now on, which listens at the same port.
fn strayed() -> (Pair, ConnectionId) {
    let config = || Config { strays_max: ASKING, ..Config::default() };
    let mut pair = Pair::with(Config::default(), config());
    let (client, _) = pair.connected();
    pair.server.stack = Stack::new(config(), [9; 32], pair.now);
    pair.server.listen(SERVER, 16);
    (pair, client)
}

/// The client sends something, and the first copies of it reach the server.
fn send(pair: &mut Pair, client: ConnectionId) -> Option<Stray> {
    pair.client.stack.send(client, b"where are you", pair.now).unwrap();
    pair.run_for(Duration::from_millis(2));
    pair.server.stack.next_stray()
}

fn is_reset(pair: &mut Pair, client: ConnectionId) -> bool {
    pair.client.recv(client, pair.now) == Err(RecvError::Failed(TcpError::Reset))
}

#[test]
fn a_stray_is_shown_whole_and_its_sender_hears_nothing() {
    let (mut pair, client) = strayed();
    let ends = pair.client.stack.endpoints(client).unwrap();
    let stray = send(&mut pair, client).unwrap();
    assert_eq!((stray.remote, stray.local), ends);
    assert!(stray.octets.ends_with(b"where are you") && stray.octets.len() > 20 + 13, "with its TCP header");
    pair.run_for(Duration::from_millis(50));
    assert!(!is_reset(&mut pair, client));
    assert!(pair.server.stack.next_stray().is_none(), "once");
}

#[test]
fn what_follows_a_stray_at_once_is_ignored() {
    let (mut pair, client) = strayed();
    send(&mut pair, client).unwrap();
    pair.client.stack.shutdown(client, Shutdown::Write, pair.now);
    pair.run_for(Duration::from_millis(2));
    assert!(pair.server.stack.next_stray().is_none() && !is_reset(&mut pair, client));
    assert_eq!(pair.server.stack.counters().strays_ignored, 1);
}

#[test]
fn a_peer_whom_nobody_knows_is_reset_at_once() {
    let (mut pair, client) = strayed();
    let stray = send(&mut pair, client).unwrap();
    pair.server.stack.reset_stray(stray);
    pair.run_for(Duration::from_millis(2));
    assert!(is_reset(&mut pair, client));
}

#[test]
fn what_is_sent_again_is_shown_again() {
    let (mut pair, client) = strayed();
    send(&mut pair, client).unwrap();
    pair.run_for(Duration::from_millis(250)); // The retransmission timeout is 200 ms.
    assert!(pair.server.stack.next_stray().is_some() && !is_reset(&mut pair, client));
}

#[test]
fn resets_stray_too_and_are_not_answered() {
    let (mut pair, client) = strayed();
    pair.client.stack.abort(client, pair.now);
    pair.run_for(Duration::from_millis(2));
    let stray = pair.server.stack.next_stray().unwrap();
    pair.server.stack.reset_stray(stray);
    pair.run_for(Duration::from_millis(2));
    assert_eq!(pair.server.stack.counters().out_rsts, 0);
}

/// Connections of another stack, more than are asked about at a time: none is reset for want of room.
#[test]
fn of_a_flood_few_are_asked_about_at_a_time_and_the_others_have_their_turn() {
    let (mut pair, client) = strayed();
    let mut others = vec![client];
    for port in 1..=3 {
        let local = std::net::SocketAddr::new(common::CLIENT.ip(), 50_000 + port);
        others.push(pair.client.connect(local, SERVER));
    }
    pair.run();
    let config = Config { strays_max: ASKING, ..Config::default() };
    pair.server.stack = Stack::new(config, [10; 32], pair.now);
    pair.server.listen(SERVER, 16);
    let asked: Vec<Stray> = others.iter().filter_map(|id| send(&mut pair, *id)).collect();
    assert_eq!(asked.len(), ASKING);
    assert_eq!(pair.server.stack.counters().strays_ignored, (others.len() - ASKING) as u64);
    assert!(others.iter().all(|id| !is_reset(&mut pair, *id)));
    asked.into_iter().for_each(|stray| pair.server.stack.reset_stray(stray));
    // The others send again, after 200 ms and then 400 ms.
    for _ in 0..10 {
        pair.run_for(Duration::from_millis(200));
        while let Some(stray) = pair.server.stack.next_stray() {
            pair.server.stack.reset_stray(stray);
        }
    }
    assert!(others.iter().all(|id| is_reset(&mut pair, *id)), "nobody has them");
}

/// A process that did not run finds a SYN in its ring, which its sender sent again meanwhile, to another process.
#[test]
fn a_connection_that_another_process_has_is_not_reset_by_who_has_an_older_syn_of_it() {
    let config = || Config { strays_max: ASKING, ..Config::default() };
    let mut pair = Pair::with(Config::default(), config());
    let listener = pair.server.listen(SERVER, 16);
    let client = pair.client.connect(CLIENT, SERVER);
    let mut syn = [0; 1500];
    let len = pair.client.stack.poll_transmit(pair.now, &mut syn[..]).expect("a SYN").len;
    let mut late = Stack::new(config(), [9; 32], pair.now);
    std::mem::swap(&mut pair.server.stack, &mut late);
    pair.server.listen(SERVER, 16);
    for stack in [&mut pair.server.stack, &mut late] {
        stack.on_packet(&syn[..len], &Arrival::default(), pair.now).unwrap();
    }
    std::mem::swap(&mut pair.server.stack, &mut late);
    pair.run();
    assert!(pair.server.stack.tcp_accept(listener).is_some());
    // Its packets come to the other one from now on.
    std::mem::swap(&mut pair.server.stack, &mut late);
    let stray = send(&mut pair, client).unwrap();
    pair.run_for(Duration::from_millis(50));
    assert!(!is_reset(&mut pair, client));
    let ends = (stray.local, stray.remote);
    assert!(late.on_stray(ends.0, ends.1, &stray.octets, pair.now), "the owner has it");
    let (local, remote) =
        pair.client.stack.endpoints(client).map(|(client, server)| (server, client)).unwrap();
    assert_eq!(ends, (local, remote));
    // Nor does who has an older SYN say that others' segments are its own.
    assert!(!pair.server.stack.on_stray(local, remote, &stray.octets, pair.now));
}
