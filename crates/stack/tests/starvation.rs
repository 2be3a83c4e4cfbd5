//! Writers on a host whose buffers are full.

mod common;

use clock::Duration;
use common::{CLIENT, Pair, SERVER};
use stack::tcp::{Events, SendError};
use stack::{Config, ConnectionId, Socket, Stack};

/// A client whose buffers are full of what two connections send to readers that do not read: the pair, the two, their other ends, and a
/// third connection, which has written as much as everybody may.
fn full() -> (Pair, [ConnectionId; 2], [ConnectionId; 2], ConnectionId) {
    let mut pair = Pair::with(Config { buffer_memory: 128 << 10, ..Config::default() }, Config::default());
    let listener = pair.server.listen(SERVER, 16);
    let mut connect = |port| {
        let client = pair.client.connect((CLIENT.ip(), port).into(), SERVER);
        pair.run();
        (client, pair.server.stack.tcp_accept(listener).expect("the handshake is complete"))
    };
    let ((first, first_reader), (second, second_reader)) = (connect(4001), connect(4002));
    let (starved, _) = connect(4003);
    for greedy in [first, second] {
        while pair.client.stack.send(greedy, &[7; 10_000], pair.now).is_ok() {
            // Nothing is sent, so that nothing is acknowledged.
        }
    }
    assert_eq!(pair.client.stack.send(starved, &[7; 10_000], pair.now).ok(), Some(2 * 2048));
    (pair, [first, second], [first_reader, second_reader], starved)
}

fn becomes_writable(stack: &mut Stack, id: ConnectionId) -> bool {
    let mut events = std::iter::from_fn(|| stack.poll_event());
    events.any(|event| event.socket == Socket::Connection(id) && event.events.contains(Events::WRITABLE))
}

#[test]
fn a_writer_refused_for_want_of_memory_is_not_told_to_write() {
    let (mut pair, _, _, starved) = full();
    becomes_writable(&mut pair.client.stack, starved);
    assert!(matches!(pair.client.stack.send(starved, b"request", pair.now), Err(SendError::WouldBlock)));
    assert!(!pair.client.stack.readiness(starved).unwrap().writable, "it would try for ever");
}

#[test]
fn it_is_told_when_another_connection_has_freed_some() {
    let (mut pair, [greedy, _], readers, starved) = full();
    becomes_writable(&mut pair.client.stack, starved);
    assert!(!pair.client.stack.readiness(greedy).unwrap().writable);
    pair.client.stack.send(starved, b"request", pair.now).unwrap_err();
    for _ in 0..10 {
        pair.run_for(Duration::from_millis(20));
        for reader in readers {
            let _ = pair.server.recv(reader, pair.now);
        }
    }
    assert!(becomes_writable(&mut pair.client.stack, starved));
    assert!(pair.client.stack.readiness(starved).unwrap().writable);
    assert_eq!(pair.client.stack.send(starved, b"request", pair.now).ok(), Some(7));
    assert!(pair.client.stack.readiness(greedy).unwrap().writable);
}

#[test]
fn readers_who_do_not_read_leave_memory_for_others() {
    // Half of the reserve is for writers with little to send: these four may hold that, and no more.
    let mut pair = Pair::with(Config::default(), Config { buffer_memory: 256 << 10, ..Config::default() });
    let listener = pair.server.listen(SERVER, 16);
    let connect = |pair: &mut Pair, port| {
        let client = pair.client.connect((CLIENT.ip(), port).into(), SERVER);
        pair.run();
        (client, pair.server.stack.tcp_accept(listener).expect("the handshake is complete"))
    };
    let downloads: Vec<_> = (4001..4005).map(|port| connect(&mut pair, port).1).collect();
    // What fits into the windows of those who do not read is acknowledged.
    for _ in 0..10 {
        for &download in &downloads {
            while pair.server.stack.send(download, &[7; 10_000], pair.now).is_ok() {}
        }
        pair.run();
    }
    for port in [4005, 4006, 4007] {
        let (client, server) = connect(&mut pair, port);
        assert_eq!(pair.client.stack.send(client, &[1; 3000], pair.now).ok(), Some(3000));
        pair.run();
        assert_eq!(pair.server.recv(server, pair.now).unwrap().len(), 3000);
        assert_eq!(pair.server.stack.send(server, &[2; 3000], pair.now).ok(), Some(3000));
        pair.run();
        assert_eq!(pair.client.recv(client, pair.now).unwrap().len(), 3000);
    }
}

#[test]
fn a_writer_whose_last_write_was_taken_whole_is_told_of_room() {
    let mut pair = Pair::new();
    let listener = pair.server.listen(SERVER, 16);
    let writer = pair.client.connect((CLIENT.ip(), 4001).into(), SERVER);
    pair.run();
    let reader = pair.server.stack.tcp_accept(listener).expect("the handshake is complete");
    becomes_writable(&mut pair.client.stack, writer);
    while pair.client.stack.readiness(writer).unwrap().writable {
        assert_eq!(pair.client.stack.send(writer, &[7; 1000], pair.now).ok(), Some(1000));
    }
    for _ in 0..10 {
        pair.run_for(Duration::from_millis(20));
        let _ = pair.server.recv(reader, pair.now);
    }
    assert!(pair.client.stack.readiness(writer).unwrap().writable);
    assert!(becomes_writable(&mut pair.client.stack, writer));
}

#[test]
fn who_ends_while_it_waits_is_forgotten() {
    let (mut pair, [first, second], _, starved) = full();
    pair.client.stack.send(starved, b"request", pair.now).unwrap_err();
    for id in [starved, first, second] {
        pair.client.stack.abort(id, pair.now);
    }
    pair.run();
    assert_eq!(pair.client.stack.poll_timeout(), None);
}
