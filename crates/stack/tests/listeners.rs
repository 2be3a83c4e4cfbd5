//! Which listener a peer reaches.

mod common;

use std::net::SocketAddr;
use std::sync::Arc;

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
