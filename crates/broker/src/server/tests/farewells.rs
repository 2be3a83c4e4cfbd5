//! Peers of processes that are gone.

use steering::Transport;

use super::held_up::broker_with_address;
use super::*;
use crate::protocol::Purpose;
use crate::registry::{Bound, Scope, Shadow};

#[test]
fn who_had_a_port_says_nothing_of_the_connections_of_the_next_user() {
    let Some(lab) = lab::require_root_and_xdp().then(|| lab::Lab::new().unwrap()) else { return };
    lab.inside(lab::Side::Server, || {
        let mut broker = broker_with_address().0;
        let local = SocketAddr::new(lab::SERVER_V4.parse().unwrap(), 8080);
        let remote = SocketAddr::new(lab::CLIENT_V4.parse().unwrap(), 4000);
        let listens = |owner: u32| Shadow {
            transport: Transport::Tcp,
            purpose: Purpose::Listener,
            bound: Bound { scope: Scope::Any { v4: true, v6: false }, port: local.port(), device: None },
            cookie: owner.into(),
            owner,
        };
        let (first, next) = (broker.registry.add_client(), broker.registry.add_client());
        let claim = broker.registry.claim(first, listens(1)).unwrap();
        broker.registry.release(first, claim).unwrap();
        let places = broker.registry.tcp_bounds(first);
        let told =
            |broker: &mut Broker| broker.note_ended(&[(local, remote)], &places, 9, clock::Instant::ZERO).0;
        assert_eq!(told(&mut broker), [(local, remote)]);
        broker.registry.claim(next, listens(2)).unwrap();
        assert_eq!(told(&mut broker), []);
    });
}
