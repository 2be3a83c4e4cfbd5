//! Which listener a peer reaches.

mod common;

use std::net::SocketAddr;
use std::sync::Arc;

use clock::Duration;
use common::{CLIENT, Pair, SERVER};
use stack::{ListenError, ListenerId};

fn listen(pair: &mut Pair, local: &str, dual_stack: bool) -> Result<ListenerId, ListenError> {
    let local: SocketAddr = local.parse().unwrap();
    pair.server.stack.tcp_listen(local, dual_stack, 16, Arc::default())
}

/// Who gets a connection to [`SERVER`].
fn reached(pair: &mut Pair, listeners: &[ListenerId]) -> Vec<bool> {
    pair.client.connect(CLIENT, SERVER);
    pair.run();
    listeners.iter().map(|listener| pair.server.stack.tcp_accept(*listener).is_some()).collect()
}

#[test]
fn the_nearest_address_goes_first_in_whichever_order_they_came() {
    let orders = [["[::]:80", "0.0.0.0:80", "192.0.2.1:80"], ["192.0.2.1:80", "0.0.0.0:80", "[::]:80"]];
    for order in orders {
        for count in 1..=3 {
            let mut pair = Pair::new();
            // The last `count` of those from far to near.
            let wanted = ["[::]:80", "0.0.0.0:80", "192.0.2.1:80"][count - 1];
            let present: Vec<&str> = order
                .into_iter()
                .filter(|local| ["[::]:80", "0.0.0.0:80", "192.0.2.1:80"][..count].contains(local))
                .collect();
            let listeners: Vec<ListenerId> =
                present.iter().map(|local| listen(&mut pair, local, true).unwrap()).collect();
            let expected: Vec<bool> = present.iter().map(|local| *local == wanted).collect();
            assert_eq!(reached(&mut pair, &listeners), expected, "{present:?}");
        }
    }
}

#[test]
fn a_listener_for_ipv6_alone_is_not_reached_by_ipv4() {
    let mut pair = Pair::new();
    let listener = listen(&mut pair, "[::]:80", false).unwrap();
    assert_eq!(reached(&mut pair, &[listener]), [false]);
}

#[test]
fn an_address_is_free_again_when_its_listener_is_closed() {
    let mut pair = Pair::new();
    for _ in 0..3 {
        let listener = listen(&mut pair, "192.0.2.1:80", false).unwrap();
        assert_eq!(listen(&mut pair, "192.0.2.1:80", false), Err(ListenError::InUse));
        pair.server.stack.close_listener(listener, pair.now);
    }
}

/// Peers of three listeners at one address.
const PEERS: u16 = 60;

fn listen_beside(pair: &mut Pair) -> [ListenerId; 3] {
    [(); 3].map(|()| pair.server.stack.tcp_listen_beside(SERVER, false, 256, Arc::default()).unwrap())
}

fn connect_from(pair: &mut Pair, ports: std::ops::Range<u16>) {
    for port in ports {
        pair.client.connect(SocketAddr::new(CLIENT.ip(), port), SERVER);
    }
}

fn waiting(pair: &Pair, listener: ListenerId) -> u32 {
    pair.server.stack.accept_queue(listener).map_or(0, |(waiting, _)| waiting)
}

#[test]
fn of_several_listeners_beside_each_other_each_gets_a_part() {
    let mut pair = Pair::new();
    let listeners = listen_beside(&mut pair);
    connect_from(&mut pair, 5000..5000 + PEERS);
    pair.run();
    let parts = listeners.map(|listener| waiting(&pair, listener));
    assert_eq!(parts.iter().sum::<u32>(), PEERS.into());
    assert!(parts.iter().all(|part| *part > 0), "{parts:?}");
}

#[test]
fn who_waits_at_a_listener_that_is_closed_waits_at_those_beside_it() {
    for closed in 0..3 {
        let mut pair = Pair::new();
        let listeners = listen_beside(&mut pair);
        connect_from(&mut pair, 5000..5000 + PEERS);
        pair.run();
        connect_from(&mut pair, 6000..6000 + PEERS);
        pair.run_for(Duration::from_micros(600)); // Their handshakes have begun, no more.
        pair.server.stack.close_listener(listeners[closed], pair.now);
        pair.run();
        let others: Vec<u32> = listeners.iter().map(|listener| waiting(&pair, *listener)).collect();
        assert_eq!(others.iter().sum::<u32>(), 2 * u32::from(PEERS), "{closed}: {others:?}");
        assert_eq!(others[closed], 0);
        for listener in listeners.into_iter().filter(|listener| *listener != listeners[closed]) {
            assert_eq!(pair.server.stack.half_open(listener), Some(0));
            pair.server.stack.close_listener(listener, pair.now);
        }
        assert_eq!(listen(&mut pair, "192.0.2.1:80", false).map(drop), Ok(()), "the address is free");
    }
}
