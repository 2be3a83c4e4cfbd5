//! A host that has no room to send when something becomes due, and what became of it by the time that it has.

mod common;

use clock::Instant;
use common::{CLIENT, Pair, SERVER};
use stack::{Arrival, Stack};

fn next_packet(stack: &mut Stack, now: Instant) -> Option<Vec<u8>> {
    let mut room = [0; 1500];
    let transmit = stack.poll_transmit(now, &mut room)?;
    Some(room[..transmit.len].to_vec())
}

/// A client that has sent two segments, has had no answer, and was told by its timer to probe for their loss: the pair, and the
/// segments.
fn about_to_probe() -> (Pair, Vec<Vec<u8>>) {
    let mut pair = Pair::new();
    let (client, _) = pair.connected();
    pair.client.stack.send(client, &[7; 2000], pair.now).unwrap();
    let segments: Vec<_> = std::iter::from_fn(|| next_packet(&mut pair.client.stack, pair.now)).collect();
    assert_eq!(segments.len(), 2);
    pair.now = pair.client.stack.poll_timeout().unwrap();
    pair.client.stack.on_timeout(pair.now);
    (pair, segments)
}

/// Lets the server have a segment, and the client what the server says to it.
fn deliver(pair: &mut Pair, segment: &[u8]) {
    pair.server.stack.on_packet(segment, &Arrival::default(), pair.now).unwrap();
    while let Some(answer) = next_packet(&mut pair.server.stack, pair.now) {
        pair.client.stack.on_packet(&answer, &Arrival::default(), pair.now).unwrap();
    }
}

#[test]
fn a_loss_probe_repeats_what_is_in_flight() {
    let (mut pair, segments) = about_to_probe();
    let probe = next_packet(&mut pair.client.stack, pair.now).expect("a probe is due");
    assert_eq!(pair.client.stack.counters().loss_probes, 1);
    assert_eq!(probe.len(), segments[1].len());
}

#[test]
fn a_loss_probe_is_not_sent_for_what_was_acknowledged_meanwhile() {
    let (mut pair, segments) = about_to_probe();
    segments.iter().for_each(|segment| deliver(&mut pair, segment));
    assert_eq!(next_packet(&mut pair.client.stack, pair.now), None);
    assert_eq!(pair.client.stack.counters().loss_probes, 0);
}

#[test]
fn a_handshake_is_not_repeated_for_who_completed_it_meanwhile() {
    let mut pair = Pair::new();
    pair.client.connect(CLIENT, SERVER);
    pair.server.connect(SERVER, CLIENT);
    let now = pair.now;
    let on_packet = |stack: &mut Stack, packet: &[u8]| stack.on_packet(packet, &Arrival::default(), now);
    let (client, server) = (&mut pair.client.stack, &mut pair.server.stack);
    let [syn, syn_of_the_server] = [&mut *client, server].map(|stack| next_packet(stack, now).unwrap());
    on_packet(client, &syn_of_the_server).unwrap();
    assert!(is_syn(&next_packet(client, now).unwrap()));
    on_packet(&mut pair.server.stack, &syn).unwrap();
    let syn_ack = next_packet(&mut pair.server.stack, now).unwrap();
    on_packet(client, &syn_of_the_server).unwrap();
    on_packet(client, &syn_ack).unwrap();
    let answers: Vec<_> = std::iter::from_fn(|| next_packet(client, now)).collect();
    assert!(!answers.is_empty() && !answers.iter().any(|packet| is_syn(packet)));
}

fn is_syn(packet: &[u8]) -> bool {
    packet[33] & 2 != 0
}
