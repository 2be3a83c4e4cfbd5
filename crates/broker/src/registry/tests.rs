//! Random histories: after each event the steering programs have exactly the terms that follow from claims and queues.

use std::net::SocketAddr;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::claims::{ALIKE_MAX, CLAIMS_MAX, CLAIMS_OF_ALL_MAX};
use super::model::{Event, World, local};
use super::*;
use crate::protocol::Refusal;

fn event() -> impl Strategy<Value = Event> {
    use Event::*;
    let purpose = prop_oneof![Just(Purpose::Listener), Just(Purpose::Outgoing), Just(Purpose::Udp)];
    prop_oneof![
        Just(Connect),
        (0..6usize).prop_map(Leave),
        (0..6usize).prop_map(Attach),
        (0..6usize).prop_map(GiveBack),
        (0..6usize, 0..4u8, 80..83u16, purpose).prop_map(|(client, address, port, purpose)| Claim {
            client,
            address,
            port,
            purpose
        }),
        (0..12usize).prop_map(Release),
        (0..12usize).prop_map(Drain),
        (0..12usize).prop_map(ShadowGone),
        (0..6usize, 0..4u8, 80..83u16)
            .prop_map(|(client, address, port)| HandOver(client, (local(address, 0).address, port).into())),
        (0..6usize, 0..12u64).prop_map(|(client, claim)| IsShared(client, crate::protocol::ClaimId(claim))),
        (80..83u16).prop_map(Moved),
        (80..83u16).prop_map(Awaited),
        (0..2u16, 0..5u16, 0..8u8).prop_map(|(link, queues, addresses)| View { link, queues, addresses }),
        (0..2u16).prop_map(Detach),
        (0..2u16).prop_map(Reopen),
        prop_oneof![0..20u64, 90..300u64, 1000..12_000u64].prop_map(Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn maps_hold_what_claims_and_queues_amount_to(events in prop::collection::vec(event(), 1..80)) {
        let mut world = World::default();
        for event in events {
            world.apply(event);
            world.settle();
            world.check();
        }
        // Queues whose lending failed come back after 50 ms, and then the kernel is asked.
        for _ in 0..2 {
            world.apply(Event::Pass(90));
            world.settle();
            world.check();
        }
        world.apply(Event::Pass(5));
        world.settle();
        world.check_settled();
    }

    #[test]
    fn nothing_is_left_of_clients_that_left(events in prop::collection::vec(event(), 1..80)) {
        let mut world = World::default();
        for event in events {
            world.apply(event);
            world.settle();
        }
        while !world.clients.is_empty() {
            world.apply(Event::Leave(0));
        }
        // For three seconds a client may get the flows without an owner.
        world.apply(Event::Pass(3000));
        world.settle();
        prop_assert!(world.maps.values().all(BTreeMap::is_empty));
        prop_assert!(world.sockets.is_empty());
        prop_assert!(world.registry.claims.iter().next().is_none() && world.registry.attached.is_empty());
        prop_assert!(world.registry.former.is_empty() && world.registry.alike.is_empty());
        prop_assert!(world.registry.interfaces.values().all(|interface| interface.keys.is_empty()));
        // Ports of which the kernel has connections are looked at once more, and then forgotten.
        world.now += Duration::from_secs(20);
        world.settle();
        prop_assert_eq!(world.registry.ports.poll_timeout(), None);
    }

    #[test]
    fn nobody_waits_while_a_queue_is_free(events in prop::collection::vec(event(), 1..80)) {
        let mut world = World::default();
        for event in events {
            world.apply(event);
            world.settle();
        }
        // Lending fails every fifth time, and is tried again.
        for _ in 0..20 {
            world.now += Duration::from_secs(2);
            world.settle();
        }
        for (link, interface) in &world.registry.interfaces {
            let taken = world.sockets.keys().filter(|(own, _)| own == link).count();
            let wanted = interface.queues.is_wanted();
            prop_assert!(!wanted || taken >= usize::from(interface.view.queues), "link {}", link);
        }
    }
}

fn attached(queues: u16) -> World {
    let mut world = World::default();
    world.apply(Event::View { link: 0, queues, addresses: 0b111 });
    world
}

fn terms(world: &World, port: u16) -> Vec<ClaimTerms> {
    let map = world.maps[&0].iter();
    map.filter(|(claim, _)| claim.port == port).map(|(_, terms)| *terms).collect()
}

fn listen(client: usize, port: u16) -> Event {
    Event::Claim { client, address: 3, port, purpose: Purpose::Listener }
}

#[test]
fn a_new_listener_leaves_new_connections_to_the_kernel_until_those_that_it_has_are_known() {
    let mut world = attached(1);
    world.apply(Event::Connect);
    world.apply(Event::Attach(0));
    world.apply(listen(0, 80));
    world.settle();
    let nothing = ClaimTerms {
        queues: QueueSet::NONE,
        listening: QueueSet::NONE,
        kernel_new: true,
        kernel_some: true,
        marks: Marks::default(),
    };
    assert_eq!(terms(&world, 80), [nothing]);
    world.apply(Event::Pass(5));
    world.settle();
    let queues = QueueSet::from_bits(1);
    let some = ClaimTerms {
        queues,
        listening: queues,
        kernel_new: false,
        kernel_some: true,
        marks: Marks::default(),
    };
    assert_eq!(terms(&world, 80), [some], "SYNs that passed during the look were noted");
    world.apply(Event::Pass(20));
    world.settle();
    assert_eq!(
        terms(&world, 80),
        [ClaimTerms { kernel_some: false, marks: Marks { epoch: 1, ..some.marks }, ..some }]
    );
}

#[test]
fn the_kernel_is_asked_once_about_all_ports_that_are_due() {
    let mut world = attached(1);
    world.apply(Event::Connect);
    world.apply(Event::Attach(0));
    (80..90).for_each(|port| world.apply(listen(0, port)));
    world.settle();
    world.apply(Event::Pass(5));
    let actions: Vec<Action> = std::iter::from_fn(|| match world.registry.poll(world.now)? {
        Action::Look { ports } => {
            let found: Vec<(u16, bool)> = ports.iter().map(|port| (*port, false)).collect();
            world.registry.on_looked(&found, world.now);
            Some(Action::Look { ports })
        }
        other => Some(other),
    })
    .filter(|action| matches!(action, Action::Look { .. }))
    .collect();
    assert_eq!(actions, [Action::Look { ports: (80..90).collect() }]);
}

#[test]
fn a_port_of_an_outgoing_connection_takes_effect_at_once() {
    let mut world = attached(1);
    world.apply(Event::Connect);
    world.apply(Event::Attach(0));
    world.apply(Event::Claim { client: 0, address: 3, port: 81, purpose: Purpose::Outgoing });
    world.settle();
    assert_eq!(terms(&world, 81)[0].queues, QueueSet::from_bits(1), "nobody else can have the port");
    assert_eq!(terms(&world, 81)[0].listening, QueueSet::NONE, "so the kernel's connections are its own");
    world.apply(listen(0, 81));
    world.settle();
    world.apply(Event::Pass(5));
    world.settle();
    assert_eq!(terms(&world, 81)[0].listening, QueueSet::from_bits(1));
}

#[test]
fn who_connects_and_is_alone_has_all_queues_at_once() {
    let connecting = |others: &[Event]| {
        let mut world = attached(2);
        world.apply(Event::Connect);
        world.apply(Event::Attach(0));
        others.iter().cloned().for_each(|event| world.apply(event));
        world.settle();
        let client = world.clients[0];
        world.registry.on_connecting(client, world.now);
        world.settle();
        world.registry.has_all_queues(client, 0)
    };
    let outgoing = Event::Claim { client: 0, address: 0, port: 4000, purpose: Purpose::Outgoing };
    assert!(connecting(&[]) && connecting(&[outgoing]));
    assert!(!connecting(&[listen(0, 80)]), "its workers may be about to come");
    assert!(!connecting(&[Event::Connect, Event::Attach(1)]));
}

#[test]
fn workers_share_a_listener_each_on_its_queue() {
    let mut world = attached(2);
    for worker in 0..2 {
        world.apply(Event::Connect);
        world.apply(Event::Attach(worker));
        world.apply(listen(worker, 80));
    }
    world.settle();
    world.apply(Event::Pass(5));
    world.settle();
    assert_eq!(terms(&world, 80)[0].queues, QueueSet::from_bits(3));
    world.apply(Event::Leave(0));
    world.settle();
    assert_eq!(terms(&world, 80)[0].queues, QueueSet::from_bits(2), "the dead one's is the kernel's");
}

#[test]
fn a_worker_without_a_queue_claims_in_advance() {
    let mut world = attached(1);
    for worker in 0..2 {
        world.apply(Event::Connect);
        world.apply(Event::Attach(worker));
    }
    world.settle();
    world.apply(listen(1, 80));
    world.settle();
    assert_eq!(terms(&world, 80), [], "its owner does not listen, so the kernel serves the port");
    world.apply(Event::GiveBack(0));
    world.settle();
    assert_eq!(terms(&world, 80).len(), 1);
}

/// A listener at port 80 that this user made.
fn listener_of(owner: u32, cookie: u64) -> Shadow {
    Shadow {
        transport: Transport::Tcp,
        purpose: Purpose::Listener,
        bound: Bound { scope: Scope::Any { v4: true, v6: true }, port: 80, device: None },
        cookie,
        owner,
    }
}

#[test]
fn what_waited_at_a_users_listener_is_not_for_another_users() {
    let mut world = attached(1);
    (0..2).for_each(|_| world.apply(Event::Connect));
    let [first, second] = world.clients[..] else { panic!("two") };
    let local = SocketAddr::from(([198, 51, 100, 1], 80));
    let registry = &mut world.registry;
    let claim = registry.claim(first, listener_of(1000, 7)).unwrap();
    assert!(registry.covers(first, Transport::Tcp, local));
    let other = registry.claim(second, listener_of(1001, 8)).unwrap();
    assert_eq!(registry.heir(first, local), None);
    assert!(!registry.covers(first, Transport::Tcp, local), "the port is another's by now");
    registry.release(second, other).unwrap();
    assert!(registry.covers(first, Transport::Tcp, local));

    // The same listener may have come from another user, and the same user may have two.
    for same in [listener_of(1001, 7), listener_of(1000, 9)] {
        let other = registry.claim(second, same).unwrap();
        assert_eq!(registry.heir(first, local), Some((second, other)));
        registry.release(second, other).unwrap();
    }
    registry.release(first, claim).unwrap();
    registry.claim(second, listener_of(1001, 8)).unwrap();
    assert_eq!(registry.heir(first, local), None, "nor of one that was released");
}

#[test]
fn who_connects_from_a_port_does_not_take_what_comes_to_anothers_listener_there() {
    let mut world = attached(2);
    (0..2).for_each(|_| world.apply(Event::Connect));
    (0..2).for_each(|which| world.apply(Event::Attach(which)));
    let outgoing = |client, port| Event::Claim { client, address: 3, port, purpose: Purpose::Outgoing };
    settle_down(&mut world);
    world.apply(outgoing(0, 80));
    settle_down(&mut world);
    let queues_of = |world: &World, which: usize| world.registry.queues_of(world.clients[which], 0);
    let (own, others) = (queues_of(&world, 0), queues_of(&world, 1));
    assert!(own != QueueSet::NONE && others != QueueSet::NONE, "{own:?} {others:?}");
    let now = |world: &World| terms(world, 80)[0];
    assert_eq!(
        (now(&world).queues, now(&world).listening),
        (own, QueueSet::NONE),
        "whoever listens goes first"
    );
    world.apply(listen(1, 80));
    settle_down(&mut world);
    let both = QueueSet::from_bits(own.bits() | others.bits());
    assert_eq!(
        (now(&world).queues, now(&world).listening),
        (both, others),
        "and who listens keeps what begins"
    );
    world.apply(listen(0, 80));
    world.settle();
    assert!(now(&world).kernel_some, "the kernel may have taken connections meanwhile");
    settle_down(&mut world);
    assert_eq!((now(&world).queues, now(&world).listening), (both, both), "it is its own");
}

/// Until the kernel has been asked of all ports twice.
fn settle_down(world: &mut World) {
    for _ in 0..4 {
        world.settle();
        world.apply(Event::Pass(90));
    }
    world.settle();
}

#[test]
fn a_socket_of_one_address_goes_before_a_wildcard_of_another_process() {
    for (purpose, transport) in [(Purpose::Udp, Transport::Udp), (Purpose::Listener, Transport::Tcp)] {
        let mut world = attached(2);
        (0..2).for_each(|_| world.apply(Event::Connect));
        (0..2).for_each(|which| world.apply(Event::Attach(which)));
        let claim = |client, address| Event::Claim { client, address, port: 80, purpose };
        world.apply(claim(0, 1));
        world.apply(claim(1, 2));
        settle_down(&mut world);
        let queues = [0, 1].map(|which: usize| world.registry.queues_of(world.clients[which], 0));
        let at = |world: &World, address| {
            let claim = steering::Claim { transport, port: 80, local: local(address, 0) };
            world.maps[&0].get(&claim).map_or(QueueSet::NONE, |terms| terms.listening)
        };
        assert!(!queues.contains(&QueueSet::NONE), "{queues:?}");
        assert_eq!(at(&world, 0), queues[1], "{transport:?}: the address is its own");
        assert_eq!(at(&world, 2), queues[0], "{transport:?}: on others there is nobody else");

        // One that nobody has claimed goes before both.
        let bound = |device| Bound { scope: Scope::One(local(2, 0).address), port: 80, device };
        world.registry.note_sockets(transport, 80, &[(99, bound(Some(77)))]);
        settle_down(&mut world);
        assert_eq!(at(&world, 2), queues[0], "{transport:?}: it is another interface's");
        world.registry.note_sockets(transport, 80, &[(99, bound(None))]);
        settle_down(&mut world);
        assert_eq!(at(&world, 2), QueueSet::NONE, "{transport:?}: the kernel has a better match");
        world.registry.note_sockets(transport, 80, &[]);
        settle_down(&mut world);
        assert_eq!(at(&world, 2), queues[0], "{transport:?}: it is gone");
    }
}

#[test]
fn one_users_claims_leave_room_for_those_of_others() {
    let mut world = attached(1);
    let claims = |world: &mut World, user| {
        let client = world.registry.add_client();
        world.registry.set_user(client, user);
        let shadow = |port| Shadow { bound: Bound { port, ..listener_of(0, 1).bound }, ..listener_of(0, 1) };
        let ports = (1..=CLAIMS_MAX as u16).cycle().take(CLAIMS_MAX);
        ports.take_while(|port| world.registry.claim(client, shadow(*port)).is_ok()).count()
    };
    let own: usize = (0..4).map(|_| claims(&mut world, 7)).sum();
    assert_eq!(own, CLAIMS_OF_ALL_MAX / 2);
    assert_eq!(claims(&mut world, 8), CLAIMS_MAX);
    let first = world.registry.clients.keys().next().copied().unwrap();
    world.registry.remove_client(first, Instant::ZERO);
    assert_eq!(claims(&mut world, 7), CLAIMS_MAX, "what is gone makes room");
}

#[test]
fn who_has_the_very_same_listener_inherits_first() {
    let mut world = attached(1);
    (0..3).for_each(|_| world.apply(Event::Connect));
    let shadow = |cookie| Shadow {
        transport: Transport::Tcp,
        purpose: Purpose::Listener,
        bound: Bound { scope: Scope::Any { v4: true, v6: true }, port: 80, device: None },
        cookie,
        owner: 0,
    };
    let clients = world.clients.clone();
    let old = world.registry.claim(clients[0], shadow(7)).unwrap();
    world.registry.claim(clients[1], shadow(8)).unwrap();
    let local = SocketAddr::from(([198, 51, 100, 1], 80));
    assert_eq!(world.registry.heir(clients[0], local).map(|(client, _)| client), Some(clients[1]));
    let same = world.registry.claim(clients[2], shadow(7)).unwrap();
    world.registry.drain(clients[0], old, world.now).unwrap();
    assert_eq!(world.registry.heir(clients[0], local), Some((clients[2], same)));
    assert_eq!(world.registry.heir(clients[0], SocketAddr::from(([198, 51, 100, 1], 81))), None);
    let newest = world.registry.claim(clients[2], shadow(7)).unwrap();
    assert_eq!(world.registry.heir(clients[0], local), Some((clients[2], newest)), "the last");
}

#[test]
fn where_a_client_listened_is_remembered_for_as_long_as_it_is_there() {
    let mut world = attached(1);
    (0..2).for_each(|_| world.apply(Event::Connect));
    let clients = world.clients.clone();
    let shadow = |purpose, port| Shadow {
        transport: Transport::Tcp,
        purpose,
        bound: Bound { scope: Scope::One(local(2, 0).address), port, device: None },
        cookie: 7,
        owner: 0,
    };
    let end = |port| SocketAddr::new(local(2, 0).address, port);
    let registry = &mut world.registry;
    let listener = registry.claim(clients[0], shadow(Purpose::Listener, 80)).unwrap();
    let outgoing = registry.claim(clients[0], shadow(Purpose::Outgoing, 81)).unwrap();
    assert!(registry.has_listened(clients[0], end(80)) && !registry.has_listened(clients[1], end(80)));
    registry.release(clients[0], listener).unwrap();
    registry.release(clients[0], outgoing).unwrap();
    assert!(registry.has_listened(clients[0], end(80)), "also after the claim was released");
    assert_eq!(
        registry.listeners_at(clients[0], end(80)),
        [7].into(),
        "who comes to have it may have what waited"
    );
    assert!(!registry.has_listened(clients[0], end(81)), "nobody waits there");
    assert!(!registry.has_listened(clients[0], SocketAddr::from(([192, 0, 2, 1], 80))));
    for port in 1000..1256 {
        let claim = registry.claim(clients[0], shadow(Purpose::Listener, port)).unwrap();
        registry.release(clients[0], claim).unwrap();
    }
    assert!(registry.has_listened(clients[0], end(1000)) && !registry.has_listened(clients[0], end(80)));
    registry.remove_client(clients[0], world.now);
    assert!(!registry.has_listened(clients[0], end(1000)));
}

#[test]
fn a_socket_is_shared_while_another_process_claims_it() {
    let mut world = attached(1);
    (0..2).for_each(|_| world.apply(Event::Connect));
    let shadow = |cookie| Shadow {
        transport: Transport::Udp,
        purpose: Purpose::Udp,
        bound: Bound { scope: Scope::Any { v4: true, v6: true }, port: 53, device: None },
        cookie,
        owner: 0,
    };
    let clients = world.clients.clone();
    let registry = &mut world.registry;
    let own = registry.claim(clients[0], shadow(7)).unwrap();
    registry.claim(clients[0], shadow(7)).unwrap();
    registry.claim(clients[1], shadow(8)).unwrap();
    assert_eq!(registry.has_others(clients[0], own), Ok(false), "nobody else has this very socket");
    let other = registry.claim(clients[1], shadow(7)).unwrap();
    assert_eq!(registry.has_others(clients[0], own), Ok(true));
    assert_eq!(registry.has_others(clients[1], own), Err(Refusal::NoSuchClaim));
    registry.release(clients[1], other).unwrap();
    assert_eq!(registry.has_others(clients[0], own), Ok(false));
}

#[test]
fn who_has_a_socket_that_is_left_to_the_kernel_can_accept_what_waited_there() {
    let mut world = attached(1);
    (0..3).for_each(|_| world.apply(Event::Connect));
    let shadow = |cookie| Shadow {
        transport: Transport::Tcp,
        purpose: Purpose::Listener,
        bound: Bound { scope: Scope::Any { v4: true, v6: true }, port: 80, device: None },
        cookie,
        owner: 0,
    };
    let (clients, now) = (world.clients.clone(), world.now);
    let local = SocketAddr::from(([198, 51, 100, 1], 80));
    let registry = &mut world.registry;
    let claims: Vec<_> = (0..2).map(|client| registry.claim(clients[client], shadow(7)).unwrap()).collect();
    registry.drain(clients[1], claims[1], now).unwrap();
    assert_eq!(registry.has_others(clients[0], claims[0]), Ok(false), "the other has closed its listener");
    assert_eq!(registry.leave_socket(clients[0], claims[0]), Ok(vec![]), "and need not be told");
    assert_eq!(registry.has_others(clients[0], claims[0]), Ok(true));
    assert_eq!(registry.heir(clients[0], local), Some((clients[1], claims[1])));
    assert_eq!(registry.claim(clients[2], shadow(7)), Err(Refusal::SocketLeft));
    assert!(registry.claim(clients[2], shadow(8)).is_ok());
}

#[test]
fn a_client_claims_the_same_packets_so_often_and_no_oftener() {
    let mut world = attached(1);
    (0..2).for_each(|_| world.apply(Event::Connect));
    let clients = world.clients.clone();
    let shadow = |port, cookie| Shadow {
        transport: Transport::Tcp,
        purpose: Purpose::Listener,
        bound: Bound { scope: Scope::One(local(2, 0).address), port, device: None },
        cookie,
        owner: 0,
    };
    let registry = &mut world.registry;
    let claims: Vec<_> =
        (0..ALIKE_MAX as u64).map(|cookie| registry.claim(clients[0], shadow(80, cookie)).unwrap()).collect();
    while registry.poll(world.now).is_some() {}
    registry.release(clients[0], claims[2]).unwrap();
    registry.claim(clients[0], shadow(80, 2)).unwrap();
    assert!(registry.dirty.is_empty(), "one more or less is nothing to look through all for");
    registry.drain(clients[0], claims[1], world.now).unwrap();
    assert_eq!(registry.claim(clients[0], shadow(80, 1)), Err(Refusal::TooMany));
    assert!(
        registry.claim(clients[0], shadow(81, 1)).is_ok()
            && registry.claim(clients[1], shadow(80, 1)).is_ok()
    );
    registry.release(clients[0], claims[0]).unwrap();
    assert!(registry.claim(clients[0], shadow(80, 1)).is_ok());
    assert_eq!(registry.claim(clients[0], shadow(80, 1)), Err(Refusal::TooMany));
}

#[test]
fn a_client_has_so_many_claims_and_no_more() {
    let mut world = attached(1);
    world.apply(Event::Connect);
    let shadow = |port| Shadow {
        transport: Transport::Tcp,
        purpose: Purpose::Outgoing,
        bound: Bound { scope: Scope::One(local(2, 0).address), port, device: None },
        cookie: 0,
        owner: 0,
    };
    for port in 1..=CLAIMS_MAX as u16 {
        world.registry.claim(world.clients[0], shadow(port)).unwrap();
    }
    assert_eq!(world.registry.claim(world.clients[0], shadow(50_000)), Err(Refusal::TooMany));
}

#[test]
fn what_is_asked_about_one_port_takes_no_longer_for_claims_of_others() {
    let mut world = World::default();
    world.apply(Event::View { link: 0, queues: 1, addresses: 1 });
    let clients: Vec<ClientId> = (0..4).map(|_| world.registry.add_client()).collect();
    for port in 1..60_000 {
        let bound = Bound { scope: Scope::Any { v4: true, v6: true }, port, device: None };
        let (transport, purpose, cookie) = (Transport::Tcp, Purpose::Outgoing, u64::from(port));
        let shadow = Shadow { transport, purpose, bound, cookie, owner: 0 };
        world.registry.claim(clients[usize::from(port % 4)], shadow).unwrap();
    }
    let began = std::time::Instant::now();
    for port in 1..60_000 {
        let (client, end) = (clients[usize::from(port % 4)], SocketAddr::new(local(0, 0).address, port));
        assert!(world.registry.covers(client, Transport::Tcp, end));
        assert!(world.registry.heir(client, end).is_none() && !world.registry.has_listened(client, end));
    }
    assert!(began.elapsed() < std::time::Duration::from_secs(10), "{:?}", began.elapsed());
}

#[test]
fn a_drained_listener_is_forgotten_when_nothing_arrives_at_its_client_any_more() {
    let mut world = attached(2);
    let clients = [Event::Connect, Event::Connect, Event::Attach(0), Event::Attach(1)];
    clients.into_iter().chain([listen(0, 80), listen(1, 80)]).for_each(|event| world.apply(event));
    world.settle();
    world.apply(Event::Drain(0));
    let pass = |world: &mut World, seconds| {
        for _ in 0..seconds {
            world.apply(Event::Pass(1000));
            world.settle();
        }
        assert_eq!(terms(world, 80).len(), 1);
        terms(world, 80)[0].kernel_new
    };
    assert!(pass(&mut world, 200), "it has a queue");
    world.apply(Event::GiveBack(0));
    assert!(pass(&mut world, 1), "it may come to have one");
    assert!(!pass(&mut world, 120), "new connections are the other client's");
    world.check();
}

fn own_queue() -> QueueSet {
    QueueSet::from_bits(1)
}

/// The interface has these addresses from now on; returns the terms of what is claimed on the port.
fn show(world: &mut World, addresses: u8, port: u16) -> Vec<ClaimTerms> {
    world.apply(Event::View { link: 0, queues: 1, addresses });
    world.settle();
    world.check_settled();
    terms(world, port)
}

#[test]
fn connections_of_an_address_that_comes_back_soon_are_never_the_kernels() {
    let mut world = attached(1);
    [Event::Connect, Event::Attach(0), listen(0, 80)].into_iter().for_each(|event| world.apply(event));
    settle_down(&mut world);
    let before = terms(&world, 80);
    assert_eq!((before.len(), before[0].queues, before[0].listening), (1, own_queue(), own_queue()));
    let away = show(&mut world, 0b011, 80);
    assert_eq!((away.len(), away[0].queues, away[0].listening), (1, own_queue(), QueueSet::NONE));
    world.apply(Event::Pass(9_999));
    let back = show(&mut world, 0b111, 80);
    assert_eq!((back[0].queues, back[0].listening), (own_queue(), own_queue()));
    assert!(!back[0].kernel_new, "none of its packets passes");
    assert!(back[0].kernel_some, "what began with the kernel meanwhile stays there");
}

#[test]
fn an_address_that_stays_away_is_forgotten() {
    let mut world = attached(1);
    [Event::Connect, Event::Attach(0), listen(0, 80)].into_iter().for_each(|event| world.apply(event));
    settle_down(&mut world);
    assert_eq!(show(&mut world, 0b011, 80).len(), 1);
    world.apply(Event::Pass(6_000));
    assert_eq!(show(&mut world, 0b001, 80).len(), 1, "others come and go meanwhile");
    assert!(world.registry.poll_timeout().is_some_and(|at| at <= world.now + Duration::from_secs(4)));
    world.apply(Event::Pass(4_000));
    world.settle();
    assert_eq!(terms(&world, 80), []);
}

#[test]
fn datagrams_to_an_address_that_is_away_are_the_kernels() {
    let mut world = attached(1);
    let socket = Event::Claim { client: 0, address: 3, port: 53, purpose: Purpose::Udp };
    [Event::Connect, Event::Attach(0), socket].into_iter().for_each(|event| world.apply(event));
    settle_down(&mut world);
    assert_eq!(show(&mut world, 0b111, 53).len(), 1);
    assert_eq!(show(&mut world, 0b011, 53), []);
    assert_eq!(show(&mut world, 0b111, 53).len(), 1);
}
