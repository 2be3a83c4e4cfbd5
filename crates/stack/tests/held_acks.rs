//! Acknowledgements that wait for the answer of an application that takes some turns for it.

mod common;

use clock::Duration;
use common::Pair;
use stack::{Config, ConnectionId};

const HOLD: Duration = Duration::from_millis(1);
/// As long as a packet is under way.
const TRIP: Duration = Duration::from_micros(500);

/// A connection whose server may hold acknowledgements.
fn connected() -> (Pair, ConnectionId, ConnectionId) {
    let mut pair = Pair::with(Config::default(), Config { ack_hold_max: HOLD, ..Config::default() });
    let (client, server) = pair.connected();
    (pair, client, server)
}

/// A connection whose server has a request and has not sent anything for it.
fn asked(request: &[u8]) -> (Pair, ConnectionId, u64) {
    let (mut pair, client, server) = connected();
    let sent = pair.server.stack.counters().out_segs;
    pair.client.stack.send(client, request, pair.now).unwrap();
    pair.run_for(TRIP);
    assert!(pair.server.recv(server, pair.now).is_ok());
    (pair, server, sent)
}

fn sent_since(pair: &Pair, before: u64) -> u64 {
    pair.server.stack.counters().out_segs - before
}

#[test]
fn it_rides_on_the_answer() {
    let (mut pair, server, before) = asked(b"request");
    assert_eq!(sent_since(&pair, before), 0);
    pair.server.stack.send(server, b"answer", pair.now).unwrap();
    pair.run();
    assert_eq!(sent_since(&pair, before), 1);
    assert_eq!(pair.client.stack.counters().retrans_segs, 0);
}

#[test]
fn it_leaves_when_there_is_no_answer_in_time() {
    let (mut pair, _, before) = asked(b"request");
    pair.run_for(HOLD - Duration::from_micros(1));
    assert_eq!(sent_since(&pair, before), 0);
    pair.run_for(Duration::from_micros(2));
    assert_eq!(sent_since(&pair, before), 1);
    pair.run();
    assert_eq!(sent_since(&pair, before), 1, "once is enough");
}

#[test]
fn it_leaves_at_once_when_the_application_has_nothing_to_send() {
    let (mut pair, _, before) = asked(b"request");
    for _ in 0..2 {
        pair.server.stack.send_held_acks(pair.now);
        pair.server.transmit(pair.now);
        assert_eq!(sent_since(&pair, before), 1, "once is enough");
    }
}

#[test]
fn two_full_segments_are_acknowledged_without_waiting() {
    let (pair, _, before) = asked(&[0; 2 * 1448]);
    assert_eq!(sent_since(&pair, before), 1);
}

#[test]
fn a_connection_that_closes_while_it_is_held_takes_it_along() {
    let (mut pair, server, before) = asked(b"request");
    pair.server.stack.close(server, pair.now);
    pair.server.transmit(pair.now);
    pair.server.stack.send_held_acks(pair.now);
    pair.run();
    assert_eq!(sent_since(&pair, before), 1, "the FIN acknowledges the request");
}

/// A client that may hold acknowledgements, and has the SYN-ACK.
fn client_with_syn_ack() -> (Pair, ConnectionId, u64) {
    let mut pair = Pair::with(Config { ack_hold_max: HOLD, ..Config::default() }, Config::default());
    let listener = pair.server.listen(common::SERVER, 8);
    let client = pair.client.connect(common::CLIENT, common::SERVER);
    pair.run_for(TRIP * 2);
    let sent = pair.client.stack.counters().out_segs;
    assert_eq!(sent, 1, "the SYN");
    assert!(pair.server.stack.tcp_accept(listener).is_none());
    (pair, client, sent)
}

#[test]
fn that_of_a_syn_ack_rides_on_the_request() {
    let (mut pair, client, before) = client_with_syn_ack();
    pair.client.stack.send(client, b"request", pair.now).unwrap();
    pair.run_for(TRIP);
    assert_eq!(pair.client.stack.counters().out_segs - before, 1);
    pair.run();
    assert_eq!(pair.server.stack.counters().retrans_segs, 0);
}

#[test]
fn that_of_a_syn_ack_leaves_when_the_client_waits_for_the_server_to_begin() {
    let (mut pair, _, before) = client_with_syn_ack();
    pair.client.stack.send_held_acks(pair.now);
    pair.client.transmit(pair.now);
    assert_eq!(pair.client.stack.counters().out_segs - before, 1);
}

#[test]
fn that_of_a_syn_ack_leaves_in_time_whatever_the_client_does() {
    let (mut pair, _, before) = client_with_syn_ack();
    pair.run_for(HOLD + TRIP);
    assert_eq!(pair.client.stack.counters().out_segs - before, 1);
}

#[test]
fn that_of_a_fin_rides_on_the_own_fin() {
    let (mut pair, client, server) = connected();
    let before = pair.server.stack.counters().out_segs;
    pair.client.stack.close(client, pair.now);
    pair.run_for(TRIP);
    assert_eq!(sent_since(&pair, before), 0);
    pair.server.stack.close(server, pair.now);
    pair.run();
    assert_eq!(sent_since(&pair, before), 1);
    assert_eq!(pair.client.stack.counters().retrans_segs, 0);
}

#[test]
fn that_of_a_fin_waits_for_nobody_who_has_said_that_he_sends_no_more() {
    let (mut pair, client, server) = connected();
    pair.server.stack.close(server, pair.now);
    pair.run();
    let before = pair.server.stack.counters().out_segs;
    pair.client.stack.close(client, pair.now);
    pair.run_for(TRIP);
    assert_eq!(sent_since(&pair, before), 1);
}
