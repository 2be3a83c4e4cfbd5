//! Urgent data between two stacks (RFC 9293, 3.8.5; RFC 6093). What goes over the wire: `specs/tcp/urgent_*.pkt`.

mod common;

use clock::Duration;
use common::Pair;
use stack::tcp::{Events, RecvError, SendError, UrgentError};
use stack::{Hop, Socket, TcpOptions};

#[test]
fn an_urgent_octet_overtakes_what_is_in_front_of_it() {
    let mut pair = Pair::new();
    let (client, server) = pair.connected();
    pair.client.stack.send(client, b"slow and steady", pair.now).unwrap();
    assert_eq!(pair.client.stack.send_urgent(client, b"look!", pair.now), Ok(5));
    pair.client.stack.send(client, b" goes on", pair.now).unwrap();
    while pair.server.stack.poll_event().is_some() {}
    pair.run();
    let event = pair.server.stack.poll_event().unwrap();
    assert_eq!(event.socket, Socket::Connection(server));
    assert!(event.events.contains(Events::URGENT | Events::READABLE));
    assert!(pair.server.stack.readiness(server).unwrap().urgent);
    assert_eq!(pair.server.stack.recv_urgent(server, true), Ok(Some(b'!')));
    assert_eq!(pair.server.stack.recv_urgent(server, false), Ok(Some(b'!')));
    assert_eq!(pair.server.stack.recv_urgent(server, false), Err(UrgentError::None));
    assert!(!pair.server.stack.readiness(server).unwrap().urgent);
    let mut room = [0; 100];
    assert_eq!(pair.server.stack.recv(server, &mut room, pair.now), Ok(19));
    assert_eq!(&room[..19], b"slow and steadylook");
    assert!(pair.server.stack.is_at_urgent_mark(server));
    assert_eq!(pair.server.stack.recv(server, &mut room, pair.now), Ok(8));
    assert_eq!(&room[..8], b" goes on");
    assert!(!pair.server.stack.is_at_urgent_mark(server));
}

#[test]
fn in_line_it_is_an_octet_like_others_with_a_mark() {
    let mut pair = Pair::new();
    let (client, server) = pair.connected();
    let options = TcpOptions { urgent_inline: true, ..TcpOptions::default() };
    pair.server.stack.set_options(server, options.into(), pair.now);
    pair.client.stack.send_urgent(client, b"look!", pair.now).unwrap();
    pair.run();
    let mut room = [0; 100];
    assert_eq!(pair.server.stack.recv(server, &mut room, pair.now), Ok(4));
    assert!(pair.server.stack.is_at_urgent_mark(server));
    assert_eq!(pair.server.stack.recv_urgent(server, false), Err(UrgentError::None));
    assert_eq!(pair.server.stack.recv(server, &mut room, pair.now), Ok(1));
    assert_eq!(room[0], b'!');
    assert_eq!(pair.server.stack.recv(server, &mut room, pair.now), Err(RecvError::WouldBlock));
}

#[test]
fn who_looks_in_place_sees_the_same_as_who_copies() {
    let mut pair = Pair::new();
    let (client, server) = pair.connected();
    pair.client.stack.send_urgent(client, b"ab!", pair.now).unwrap();
    pair.client.stack.send(client, b"cd", pair.now).unwrap();
    pair.run();
    assert_eq!(pair.server.stack.received(server), b"ab");
    pair.server.stack.consume(server, 1, pair.now);
    assert_eq!(pair.server.stack.received(server), b"b");
    pair.server.stack.consume(server, 1, pair.now);
    assert_eq!(pair.server.stack.received(server), b"cd");
    let mut room = [0; 10];
    assert_eq!(pair.server.stack.peek(server, 0, &mut room), Ok(2));
    pair.server.stack.consume(server, 2, pair.now);
    assert_eq!(pair.server.stack.received(server), b"");
    assert!(!pair.server.stack.is_at_urgent_mark(server));
}

#[test]
fn the_stream_may_end_at_the_mark_or_in_front_of_it() {
    let mut pair = Pair::new();
    let (client, server) = pair.connected();
    pair.client.stack.send_urgent(client, b"!", pair.now).unwrap();
    pair.client.stack.shutdown(client, stack::tcp::Shutdown::Write, pair.now);
    pair.run();
    assert_eq!(pair.server.stack.recv_urgent(server, true), Ok(Some(b'!')));
    let mut room = [0; 10];
    assert_eq!(pair.server.stack.recv(server, &mut room, pair.now), Ok(0), "the end, behind the octet");
    pair.server.stack.close(server, pair.now);
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.client.stack.take_error(client), None, "all was read");
}

#[test]
fn nothing_urgent_is_sent_on_a_closed_side_or_by_nobody() {
    let mut pair = Pair::new();
    let (client, _) = pair.connected();
    pair.client.stack.shutdown(client, stack::tcp::Shutdown::Write, pair.now);
    assert_eq!(pair.client.stack.send_urgent(client, b"x", pair.now), Err(SendError::Closed));
    pair.client.stack.abort(client, pair.now);
    pair.run();
    assert_eq!(pair.client.stack.send_urgent(client, b"x", pair.now), Err(SendError::NotConnected));
    assert_eq!(pair.client.stack.recv_urgent(client, false), Err(UrgentError::NotConnected));
}

#[test]
fn a_connection_that_moves_leaves_the_urgent_octet_behind() {
    let mut pair = Pair::new();
    let (client, server) = pair.connected();
    pair.client.stack.send_urgent(client, b"ab!", pair.now).unwrap();
    pair.client.stack.send(client, b"cd", pair.now).unwrap();
    pair.run();
    let detached = pair.server.stack.detach(server, pair.now).unwrap();
    assert_eq!(detached.connection.received, b"abcd");
    let moved = pair.server.stack.attach(&detached, Hop::default(), pair.now).unwrap();
    pair.client.stack.send(client, b"ef", pair.now).unwrap();
    pair.run();
    assert_eq!(pair.server.recv(moved, pair.now), Ok(b"abcdef".to_vec()));
}
