//! Acknowledgements that wait for the answer of an application that takes some turns for it.

mod common;

use clock::Duration;
use common::Pair;
use stack::{Config, ConnectionId};

const HOLD: Duration = Duration::from_millis(1);
/// As long as a packet is under way.
const TRIP: Duration = Duration::from_micros(500);

/// A connection whose server has a request and has not sent anything for it.
fn asked(request: &[u8]) -> (Pair, ConnectionId, u64) {
    let mut pair = Pair::with(Config::default(), Config { ack_hold_max: HOLD, ..Config::default() });
    let (client, server) = pair.connected();
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
