//! Random histories: after each event the steering programs hold what claims and queues amount to.

use std::net::IpAddr;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use steering::{LocalAddress, VlanTags};

use super::*;

const LINKS: [LinkNumber; 2] = [0, 1];

/// Something that happens.
#[derive(Clone, Debug)]
enum Event {
    Connect,
    Leave(usize),
    Attach(usize),
    GiveBack(usize, LinkNumber),
    Claim { client: usize, address: u8, port: u16, purpose: Purpose, shares_port: bool },
    Release(usize),
    Drain(usize),
    ShadowGone(usize),
    Moved(u16),
    View { link: LinkNumber, queues: u16, addresses: u8 },
    Detach(LinkNumber),
    Pass(u64),
}

fn event() -> impl Strategy<Value = Event> {
    use Event::*;
    let purpose = prop_oneof![Just(Purpose::Listener), Just(Purpose::Outgoing), Just(Purpose::Udp)];
    prop_oneof![
        Just(Connect),
        (0..6usize).prop_map(Leave),
        (0..6usize).prop_map(Attach),
        (0..6usize, 0..2u16).prop_map(|(client, link)| GiveBack(client, link)),
        (0..6usize, 0..4u8, 80..83u16, purpose, any::<bool>()).prop_map(
            |(client, address, port, purpose, shares_port)| Claim {
                client,
                address,
                port,
                purpose,
                shares_port
            }
        ),
        (0..12usize).prop_map(Release),
        (0..12usize).prop_map(Drain),
        (0..12usize).prop_map(ShadowGone),
        (80..83u16).prop_map(Moved),
        (0..2u16, 0..5u16, 0..8u8).prop_map(|(link, queues, addresses)| View { link, queues, addresses }),
        (0..2u16).prop_map(Detach),
        prop_oneof![0..20u64, 90..300u64, 1000..12_000u64].prop_map(Pass),
    ]
}

/// What the world around a registry has.
#[derive(Default)]
struct World {
    registry: Registry,
    now: Instant,
    clients: Vec<ClientId>,
    claims: Vec<(ClientId, ClaimId)>,
    maps: BTreeMap<LinkNumber, BTreeMap<steering::Claim, ClaimTerms>>,
    /// Who has a socket on each queue.
    sockets: BTreeMap<(LinkNumber, u16), ClientId>,
    /// Lending fails now and then.
    lends: u64,
    looks: u64,
    looked_at: BTreeMap<u16, Instant>,
    /// When the kernel was left all new connections of a claim.
    kernel_new_since: BTreeMap<(LinkNumber, steering::Claim), Instant>,
}

fn local(address: u8, link: LinkNumber) -> LocalAddress {
    let address = match address {
        0 => IpAddr::from([192, 0, 2, link as u8 + 1]),
        1 => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, link + 1]),
        _ => IpAddr::from([198, 51, 100, 1]), // On both.
    };
    LocalAddress { address, vlan: VlanTags::default() }
}

fn scope(address: u8) -> Scope {
    match address {
        0 => Scope::Any { v4: true, v6: true },
        1 => Scope::Any { v4: true, v6: false },
        2 => Scope::One(local(0, 0).address),
        _ => Scope::One(local(2, 0).address),
    }
}

impl World {
    fn client(&self, which: usize) -> Option<ClientId> {
        self.clients.get(which % self.clients.len().max(1)).copied()
    }

    fn apply(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::Connect if self.clients.len() < 6 => self.clients.push(self.registry.add_client()),
            Event::Connect => {}
            Event::Leave(which) => {
                let Some(client) = self.client(which) else { return };
                self.clients.retain(|other| *other != client);
                self.claims.retain(|(owner, _)| *owner != client);
                self.sockets.retain(|_, owner| *owner != client);
                self.registry.remove_client(client, now);
            }
            Event::Attach(which) => {
                if let Some(client) = self.client(which) {
                    self.registry.attach(client, now);
                }
            }
            Event::GiveBack(which, link) => {
                let Some(client) = self.client(which) else { return };
                let had = self.sockets.iter().any(|((own, _), owner)| (*own, *owner) == (link, client));
                self.sockets.retain(|(own, _), owner| (*own, *owner) != (link, client));
                assert_eq!(self.registry.give_back(client, link, now).is_ok(), had);
            }
            Event::Claim { client, address, port, purpose, shares_port } => {
                let Some(client) = self.client(client) else { return };
                let transport = if purpose == Purpose::Udp { Transport::Udp } else { Transport::Tcp };
                let bound = Bound { scope: scope(address), port, device: None };
                let shadow = Shadow { transport, purpose, bound, cookie: u64::from(port), shares_port };
                if let Ok(claim) = self.registry.claim(client, shadow) {
                    self.claims.push((client, claim));
                }
            }
            Event::Release(which) if which < self.claims.len() => {
                let (client, claim) = self.claims.remove(which);
                self.registry.release(client, claim).unwrap();
                assert!(self.registry.release(client, claim).is_err(), "twice");
            }
            Event::Drain(which) if which < self.claims.len() => {
                let (client, claim) = self.claims[which];
                self.registry.drain(client, claim, now).unwrap();
            }
            Event::ShadowGone(which) if which < self.claims.len() => {
                let (client, claim) = self.claims[which];
                self.registry.on_shadow_gone(claim, now);
                let kept = self.registry.claims(client).any(|(id, ..)| id == claim);
                if !kept {
                    self.claims.remove(which);
                }
            }
            Event::Release(_) | Event::Drain(_) | Event::ShadowGone(_) => {}
            Event::Moved(port) => {
                self.registry.note_moved(SocketAddr::new(local(0, 0).address, port), now);
            }
            Event::View { link, queues, addresses } => {
                let some = (0..3u8).filter(|bit| addresses >> bit & 1 == 1).map(|bit| local(bit, link));
                let view = super::View { index: u32::from(link) + 2, queues, addresses: some.collect() };
                if let std::collections::btree_map::Entry::Vacant(entry) = self.maps.entry(link) {
                    entry.insert(BTreeMap::new());
                    self.registry.on_attached(link, view, now);
                } else {
                    self.registry.on_view(link, view);
                }
            }
            Event::Detach(link) => {
                self.maps.remove(&link);
                self.sockets.retain(|(own, _), _| *own != link);
                self.registry.on_detached(link);
            }
            Event::Pass(millis) => self.now += Duration::from_millis(millis),
        }
    }

    /// Does what the registry wants.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            let Some(action) = self.registry.poll(self.now) else { return };
            self.carry_out(action);
        }
        panic!("the registry always wants something more");
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Lend { client, link, queues } => {
                assert!(self.clients.contains(&client), "a queue for nobody");
                self.lends += 1;
                if self.lends.is_multiple_of(5) {
                    let pause = Duration::from_millis(50);
                    self.registry.on_not_lent(link, &queues, pause, self.now);
                    return;
                }
                for &queue in &queues {
                    let before = self.sockets.insert((link, queue), client);
                    assert_eq!(before, None, "a queue has one owner");
                }
                self.registry.on_ready(client, link, &queues);
            }
            Action::Withdraw { link, queues } => {
                assert!(queues.iter().all(|queue| !self.sockets.contains_key(&(link, *queue))));
            }
            Action::TellLost { .. } => {}
            Action::PutClaim { link, claim, terms } => {
                let map = self.maps.get_mut(&link).expect("only what is attached");
                let before = map.insert(claim, terms).map_or(QueueSet::NONE, |terms| terms.queues);
                if terms.queues.bits() & !before.bits() != 0 {
                    self.check_gain(link, claim);
                }
                if terms.kernel_new {
                    self.kernel_new_since.entry((link, claim)).or_insert(self.now);
                } else {
                    self.kernel_new_since.remove(&(link, claim));
                }
            }
            Action::RemoveClaim { link, claim } => {
                let map = self.maps.get_mut(&link).expect("only what is attached");
                assert!(map.remove(&claim).is_some(), "it was never put");
                self.kernel_new_since.remove(&(link, claim));
            }
            Action::Look { port } => {
                self.looks += 1;
                self.looked_at.insert(port, self.now);
                self.registry.on_looked(port, self.looks.is_multiple_of(3), self.now);
            }
        }
    }

    /// A claim takes hold of another queue: connections that the kernel has must be known by now.
    fn check_gain(&self, link: LinkNumber, claim: steering::Claim) {
        let end = SocketAddr::new(claim.local.address, claim.port);
        let is_shared = self.claims.iter().any(|(client, id)| {
            self.registry.claims(*client).any(|(own, shadow, _)| {
                own == *id
                    && shadow.transport == Transport::Tcp
                    && shadow.bound.covers(end)
                    && (shadow.purpose == Purpose::Listener || shadow.shares_port)
            })
        });
        if claim.transport == Transport::Tcp && is_shared {
            assert_eq!(self.looked_at.get(&claim.port), Some(&self.now));
            let since = self.kernel_new_since[&(link, claim)];
            assert!(since + MARKING <= self.now, "SYNs that were passed have no sockets yet");
        }
    }

    /// What the maps are to hold, said in the simplest way.
    fn expected(&self, link: LinkNumber) -> BTreeMap<steering::Claim, QueueSet> {
        let mut expected: BTreeMap<steering::Claim, u64> = BTreeMap::new();
        for (client, claim) in &self.claims {
            let (_, shadow, _) =
                self.registry.claims(*client).find(|(id, ..)| id == claim).expect("it was granted");
            for (own, local) in self.registry.places_of(*claim) {
                let claim = steering::Claim { transport: shadow.transport, local, port: shadow.bound.port };
                for ((of, queue), owner) in &self.sockets {
                    if (own, *of, *owner) == (link, link, *client) {
                        *expected.entry(claim).or_default() |= 1 << queue;
                    }
                }
            }
        }
        expected.into_iter().map(|(claim, bits)| (claim, QueueSet::from_bits(bits))).collect()
    }

    /// What is claimed when all has settled.
    fn check_settled(&self) {
        for link in LINKS {
            let map = self.maps.get(&link).cloned().unwrap_or_default();
            let queues = map.iter().map(|(claim, terms)| (*claim, terms.queues)).collect();
            assert_eq!(self.expected(link), queues, "claims of link {link}");
        }
    }

    fn check(&self) {
        for link in LINKS {
            let map = self.maps.get(&link).cloned().unwrap_or_default();
            let expected = self.expected(link);
            assert!(expected.keys().eq(map.keys()), "claims of link {link}");
            for (claim, queues) in expected {
                let terms = map[&claim];
                assert_eq!(terms.queues.bits() & !queues.bits(), 0, "somebody else's queue");
                assert!(terms.queues == queues || terms.kernel_new, "a queue was forgotten");
            }
            for (claim, terms) in &map {
                assert!(!terms.kernel_new || terms.kernel_some, "what passes is found again");
                assert!(claim.transport == Transport::Tcp || !terms.kernel_some);
                let draining = self.claims.iter().any(|(client, id)| {
                    self.registry.claims(*client).any(|(own, shadow, draining)| {
                        own == *id
                            && draining
                            && shadow.transport == claim.transport
                            && shadow.bound.covers(SocketAddr::new(claim.local.address, claim.port))
                            && shadow.purpose != Purpose::Udp
                    })
                });
                assert!(!draining || terms.kernel_new, "a drained claim takes no new connections");
            }
        }
        for ((link, queue), client) in &self.sockets {
            assert!(self.clients.contains(client), "queue {queue} of link {link} is a dead client's");
            assert!(self.registry.queues_of(*client, *link).contains(*queue));
        }
    }
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
        world.settle();
        prop_assert!(world.maps.values().all(BTreeMap::is_empty));
        prop_assert!(world.sockets.is_empty());
        prop_assert!(world.registry.claims.is_empty() && world.registry.attached.is_empty());
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
    Event::Claim { client, address: 3, port, purpose: Purpose::Listener, shares_port: false }
}

#[test]
fn a_new_listener_leaves_new_connections_to_the_kernel_until_those_that_it_has_are_known() {
    let mut world = attached(1);
    world.apply(Event::Connect);
    world.apply(Event::Attach(0));
    world.apply(listen(0, 80));
    world.settle();
    let nothing = ClaimTerms { queues: QueueSet::NONE, kernel_new: true, kernel_some: true };
    assert_eq!(terms(&world, 80), [nothing]);
    world.apply(Event::Pass(5));
    world.settle();
    let queues = QueueSet::from_bits(1);
    assert_eq!(terms(&world, 80), [ClaimTerms { queues, kernel_new: false, kernel_some: false }]);
}

#[test]
fn a_port_of_an_outgoing_connection_takes_effect_at_once() {
    let mut world = attached(1);
    world.apply(Event::Connect);
    world.apply(Event::Attach(0));
    let claim = |shares_port, port| Event::Claim {
        client: 0,
        address: 3,
        port,
        purpose: Purpose::Outgoing,
        shares_port,
    };
    world.apply(claim(false, 81));
    world.apply(claim(true, 82));
    world.settle();
    let taken = QueueSet::from_bits(1);
    assert_eq!(terms(&world, 81)[0].queues, taken, "nobody else can have the port");
    assert_eq!(terms(&world, 82)[0].queues, QueueSet::NONE, "the kernel may have connections from there");
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
    world.apply(Event::GiveBack(0, 0));
    world.settle();
    assert_eq!(terms(&world, 80).len(), 1);
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
        shares_port: true,
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
        shares_port: false,
    };
    for port in 1..=CLAIMS_MAX as u16 {
        world.registry.claim(world.clients[0], shadow(port)).unwrap();
    }
    assert_eq!(world.registry.claim(world.clients[0], shadow(50_000)), Err(Refusal::TooMany));
}
