//! Several segments as one packet, for a device that cuts them.
#![allow(unreachable_pub, missing_docs)]

mod common;

use std::sync::Arc;

use clock::Duration;
use common::{Pair, pattern};
use stack::TcpOptions;
use stack::tcp::Shutdown;
use wire::tcp::{Tcp, flag};

/// Payload of a full segment: 1500 less the headers of IPv4 and TCP, and timestamps.
const FULL: usize = 1448;
/// More than what fits any packet.
const LONG: usize = 1 << 20;

/// A connection whose client's link cuts, and whose window has grown.
fn warm(tso_max: u16) -> (Pair, stack::ConnectionId, stack::ConnectionId) {
    let mut pair = Pair::new();
    pair.client.cut(tso_max);
    let (client, server) = pair.connected();
    pair.exchange(client, server, &pattern(LONG, 1), b"");
    pair.run();
    pair.client.super_segments.clear();
    (pair, client, server)
}

fn flags(headers: &[u8]) -> u8 {
    Tcp::parse(&headers[20..]).unwrap().flags()
}

#[test]
fn what_is_sent_in_super_segments_arrives() {
    let (mut pair, client, server) = warm(u16::MAX);
    let sent = pattern(LONG, 2);
    let (arrived, _) = pair.exchange(client, server, &sent, b"");
    assert_eq!(arrived, sent);
    let most = pair.client.super_segments.iter().map(|(_, len, _)| *len).max();
    assert!(most > Some(40 * FULL), "the largest has {most:?} octets");
}

#[test]
fn all_segments_but_the_last_of_all_data_are_full() {
    let (mut pair, client, _) = warm(u16::MAX);
    let count = pair.client.stack.send(client, &[7; 10 * FULL + 100], pair.now).unwrap();
    pair.run();
    let sizes: Vec<_> = pair.client.super_segments.iter().map(|(_, len, size)| (*len, *size)).collect();
    assert_eq!(sizes, [(count, FULL as u16)]);
    assert!(flags(&pair.client.super_segments[0].0) & flag::PSH != 0);
}

#[test]
fn a_device_gets_no_more_than_it_takes() {
    let (mut pair, client, server) = warm(10_000);
    pair.exchange(client, server, &pattern(LONG, 3), b"");
    assert!(!pair.client.super_segments.is_empty());
    for (headers, len, _) in &pair.client.super_segments {
        assert!(headers.len() + len <= 10_000);
    }
}

#[test]
fn a_device_that_does_not_cut_gets_none() {
    let (mut pair, client, server) = warm(0);
    let (arrived, _) = pair.exchange(client, server, &pattern(LONG, 4), b"");
    assert_eq!((arrived.len(), pair.client.super_segments.len()), (LONG, 0));
}

#[test]
fn the_fin_goes_with_the_last_segment() {
    let (mut pair, client, server) = warm(u16::MAX);
    pair.client.stack.send(client, &[7; 5 * FULL], pair.now).unwrap();
    pair.client.stack.shutdown(client, Shutdown::Write, pair.now);
    pair.run();
    let [(headers, 7240, _)] = &pair.client.super_segments[..] else {
        panic!("{:?}", pair.client.super_segments);
    };
    assert!(flags(headers) & flag::FIN != 0);
    assert_eq!(pair.server.recv(server, pair.now).unwrap().len(), 5 * FULL);
    assert!(pair.server.recv(server, pair.now).is_ok_and(|rest| rest.is_empty()), "the end follows");
}

#[test]
fn each_segment_counts() {
    let (mut pair, client, _) = warm(u16::MAX);
    let before = pair.client.stack.counters().out_segs;
    let info = pair.client.stack.info(client, pair.now).unwrap().data_segs_out;
    pair.client.stack.send(client, &[7; 5 * FULL], pair.now).unwrap();
    pair.client.transmit(pair.now);
    assert_eq!(pair.client.stack.counters().out_segs - before, 5);
    assert_eq!(pair.client.stack.info(client, pair.now).unwrap().data_segs_out - info, 5);
}

#[test]
fn a_paced_connection_sends_a_millisecond_at_once() {
    let (mut pair, client, _) = warm(u16::MAX);
    let rate = 10 << 20;
    let options = TcpOptions { pacing_rate_max: Some(rate), ..TcpOptions::default() };
    pair.client.stack.set_options(client, Arc::new(options), pair.now);
    pair.client.stack.send(client, &[7; 100_000], pair.now).unwrap();
    pair.run_for(Duration::from_millis(20));
    let most = pair.client.super_segments.iter().map(|(_, len, _)| *len).max().unwrap();
    assert!(most <= rate as usize / 1000, "{most} octets at once");
}

#[test]
fn what_is_lost_of_one_is_sent_again_and_no_more() {
    let (mut pair, client, server) = warm(u16::MAX);
    let sent = pattern(30 * FULL, 5);
    pair.client.stack.send(client, &sent, pair.now).unwrap();
    pair.lose_next(10..12);
    pair.run();
    assert_eq!(pair.server.recv(server, pair.now).unwrap(), sent);
    assert_eq!(pair.client.stack.counters().retrans_segs, 2);
}
