//! A registry in a simulated world, and the simplest computation of its expected result: for tests and fuzzers.

mod expectations;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use clock::{Duration, Instant};
use steering::{ClaimTerms, LocalAddress, QueueSet, Transport, VlanTags};

use super::{Action, Bound, ClientId, LinkNumber, Registry, Scope, Shadow, View};
use crate::protocol::{ClaimId, Purpose};

/// The interfaces of the world.
pub(crate) const LINKS: [LinkNumber; 2] = [0, 1];
/// Clients at a time.
pub(crate) const CLIENTS_MAX: usize = 6;

/// An event. Clients and claims are named by their numbers; unused numbers have no effect.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Connect,
    Leave(usize),
    Attach(usize),
    Ready(usize, LinkNumber, Vec<u16>),
    GiveBack(usize),
    Claim {
        client: usize,
        address: u8,
        port: u16,
        purpose: Purpose,
    },
    Release(usize),
    Drain(usize),
    /// What a client says of claims that need not be its own.
    ReleaseBy(usize, ClaimId),
    DrainBy(usize, ClaimId),
    /// A connection that waited at this end moves to another client.
    HandOver(usize, SocketAddr),
    IsShared(usize, ClaimId),
    ShadowGone(usize),
    Moved(u16),
    /// A flow on this port has no owner, and gets one within three seconds.
    Awaited(u16),
    View {
        link: LinkNumber,
        queues: u16,
        addresses: u8,
    },
    Detach(LinkNumber),
    /// Devices of the link need larger frames.
    Reopen(LinkNumber),
    Pass(u64),
}

/// What the world around a registry has.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) registry: Registry,
    pub(crate) now: Instant,
    pub(crate) clients: Vec<ClientId>,
    /// Clients that want queues.
    wanting: BTreeSet<ClientId>,
    claims: Vec<(ClientId, ClaimId)>,
    /// Where clients listen, or did.
    listened: Vec<(ClientId, Bound)>,
    /// The addresses that the interfaces have.
    pub(super) addresses: BTreeMap<LinkNumber, BTreeSet<LocalAddress>>,
    /// What the steering programs hold.
    pub(crate) maps: BTreeMap<LinkNumber, BTreeMap<steering::Claim, ClaimTerms>>,
    /// The owner of each queue's socket.
    pub(crate) sockets: BTreeMap<(LinkNumber, u16), ClientId>,
    /// Queues that must be lent again, to the same clients.
    reopening: BTreeSet<(LinkNumber, u16)>,
    /// Queues that are served. Clients say so, unless they are `slow`, as soon as they have them.
    served: BTreeSet<(LinkNumber, u16)>,
    slow: bool,
    /// Lending fails now and then.
    lends: u64,
    looks: u64,
    looked_at: BTreeMap<u16, Instant>,
    awaited_until: BTreeMap<u16, Instant>,
    /// When the kernel was left all new connections of a claim.
    kernel_new_since: BTreeMap<(LinkNumber, steering::Claim), Instant>,
}

pub(crate) fn local(address: u8, link: LinkNumber) -> LocalAddress {
    let address = match address {
        0 => IpAddr::from([192, 0, 2, link as u8 + 1]),
        1 => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, link + 1]),
        _ => IpAddr::from([198, 51, 100, 1]), // On both.
    };
    LocalAddress { address, vlan: VlanTags::default() }
}

/// Where sockets are bound.
pub(crate) fn scope(address: u8) -> Scope {
    match address {
        0 => Scope::Any { v4: true, v6: true },
        1 => Scope::Any { v4: true, v6: false },
        2 => Scope::One(local(0, 0).address),
        _ => Scope::One(local(2, 0).address),
    }
}

impl World {
    /// A registry whose clients report themselves when they serve their queues.
    pub(crate) fn slow() -> World {
        World { slow: true, ..World::default() }
    }

    fn client(&self, which: usize) -> Option<ClientId> {
        self.clients.get(which % self.clients.len().max(1)).copied()
    }

    /// Has something happen. Call [`World::settle`] next.
    pub(crate) fn apply(&mut self, event: Event) {
        match event {
            Event::Connect if self.clients.len() < CLIENTS_MAX => {
                self.clients.push(self.registry.add_client())
            }
            Event::Connect => {}
            Event::Leave(which)
            | Event::Attach(which)
            | Event::Ready(which, ..)
            | Event::GiveBack(which)
            | Event::Claim { client: which, .. }
            | Event::ReleaseBy(which, _)
            | Event::DrainBy(which, _)
            | Event::HandOver(which, _)
            | Event::IsShared(which, _) => {
                if let Some(client) = self.client(which) {
                    self.apply_of_client(client, event);
                }
            }
            Event::Release(which) | Event::Drain(which) | Event::ShadowGone(which) => {
                if let Some((client, claim)) = self.claims.get(which).copied() {
                    self.apply_to_claim(which, client, claim, event);
                }
            }
            Event::Moved(port) => {
                self.registry.note_moved(SocketAddr::new(local(0, 0).address, port), self.now);
            }
            Event::Awaited(port) => {
                let until = self.now + Duration::from_secs(3);
                self.registry.await_flow(SocketAddr::new(local(0, 0).address, port), until, self.now);
                self.awaited_until.insert(port, until);
            }
            Event::View { link, queues, addresses } => self.show(link, queues, addresses),
            Event::Detach(link) => {
                self.maps.remove(&link);
                self.sockets.retain(|(own, _), _| *own != link);
                self.forget_reopening();
                self.registry.on_detached(link);
            }
            Event::Reopen(link) => {
                self.reopening.extend(self.sockets.keys().filter(|(of, _)| *of == link));
                self.registry.on_reopening(link);
            }
            Event::Pass(millis) => self.now += Duration::from_millis(millis),
        }
    }

    /// What a client does.
    fn apply_of_client(&mut self, client: ClientId, event: Event) {
        let now = self.now;
        match event {
            Event::Leave(_) => {
                self.clients.retain(|other| *other != client);
                self.claims.retain(|(owner, _)| *owner != client);
                self.listened.retain(|(owner, _)| *owner != client);
                self.give_up_queues(client);
                self.registry.remove_client(client, now);
            }
            Event::Attach(_) => {
                self.wanting.insert(client);
                self.registry.attach(client, now);
            }
            Event::Ready(_, link, queues) => {
                self.registry.on_ready(client, link, &queues);
                let own = queues.iter().filter(|queue| self.sockets.get(&(link, **queue)) == Some(&client));
                self.served.extend(own.map(|queue| (link, *queue)));
            }
            Event::GiveBack(_) => {
                self.give_up_queues(client);
                self.registry.give_back(client, now);
            }
            Event::Claim { address, port, purpose, .. } => {
                self.claim(client, (address, port), purpose);
            }
            Event::ReleaseBy(_, claim) => {
                let is_own = self.claims.contains(&(client, claim));
                assert_eq!(self.registry.release(client, claim).is_ok(), is_own);
                self.claims.retain(|own| *own != (client, claim));
            }
            Event::DrainBy(_, claim) => {
                let is_own = self.claims.contains(&(client, claim));
                assert_eq!(self.registry.drain(client, claim, now).is_ok(), is_own);
            }
            Event::HandOver(_, end) => self.hand_over(client, end),
            Event::IsShared(_, claim) => self.check_shared(client, claim),
            _ => unreachable!("it is of no client"),
        }
    }

    fn give_up_queues(&mut self, client: ClientId) {
        self.sockets.retain(|_, owner| *owner != client);
        self.forget_reopening();
        self.wanting.remove(&client);
    }

    fn claim(&mut self, client: ClientId, (address, port): (u8, u16), purpose: Purpose) {
        let transport = if purpose == Purpose::Udp { Transport::Udp } else { Transport::Tcp };
        let bound = Bound { scope: scope(address), port, device: None };
        let cookie = u64::from(port) * 2 + u64::from(transport == Transport::Udp); // One socket for each.
        let shadow = Shadow { transport, purpose, bound, cookie, owner: 0 };
        if let Ok(claim) = self.registry.claim(client, shadow) {
            self.claims.push((client, claim));
            self.listened.extend((purpose == Purpose::Listener).then_some((client, bound)));
        }
    }

    /// What becomes of the claim at this place.
    fn apply_to_claim(&mut self, which: usize, client: ClientId, claim: ClaimId, event: Event) {
        match event {
            Event::Release(_) => {
                self.claims.remove(which);
                self.registry.release(client, claim).unwrap();
                assert!(self.registry.release(client, claim).is_err(), "twice");
            }
            Event::Drain(_) => self.registry.drain(client, claim, self.now).unwrap(),
            _ => {
                self.registry.on_shadow_gone((claim, client), self.now);
                if !self.registry.claims(client).any(|(id, ..)| id == claim) {
                    self.claims.remove(which);
                }
            }
        }
    }

    fn show(&mut self, link: LinkNumber, queues: u16, addresses: u8) {
        let some = (0..3u8).filter(|bit| addresses >> bit & 1 == 1).map(|bit| local(bit, link));
        let addresses: BTreeSet<LocalAddress> = some.collect();
        self.addresses.insert(link, addresses.clone());
        let view = View { index: u32::from(link) + 2, queues, addresses, merges_datagrams: false };
        if let Entry::Vacant(entry) = self.maps.entry(link) {
            entry.insert(BTreeMap::new());
            self.registry.on_attached(link, view, self.now);
        } else {
            self.registry.on_view(link, view, self.now);
        }
    }

    /// Looks for the heir of a connection as the server does: only for who listens there, or did, and only another one who does now.
    fn hand_over(&mut self, client: ClientId, end: SocketAddr) {
        let has_listened = self.listened.iter().any(|(owner, it)| *owner == client && it.covers(end));
        assert_eq!(self.registry.has_listened(client, end), has_listened);
        if !has_listened {
            return;
        }
        let may_inherit = |registry: &Registry, other: ClientId, claim: ClaimId| {
            registry.claims(other).any(|(id, shadow, draining)| {
                let listens = shadow.purpose == Purpose::Listener && shadow.bound.covers(end);
                id == claim && listens && !draining && other != client
            })
        };
        match self.registry.heir(client, end) {
            Some((heir, claim)) => assert!(may_inherit(&self.registry, heir, claim), "it is nobody's heir"),
            None => {
                let mut claims = self.claims.iter();
                assert!(!claims.any(|(other, claim)| may_inherit(&self.registry, *other, *claim)), "an heir");
            }
        }
    }

    fn check_shared(&self, client: ClientId, claim: ClaimId) {
        let all = || {
            let clients = self.clients.iter();
            clients.flat_map(|owner| self.registry.claims(*owner).map(move |claim| (*owner, claim)))
        };
        let own = all().find(|(owner, (id, ..))| *owner == client && *id == claim);
        let expected = own.map(|(_, (_, own, _))| {
            all().any(|(owner, (_, other, draining))| {
                owner != client && other.cookie == own.cookie && !draining
            })
        });
        assert_eq!(self.registry.has_others(client, claim).ok(), expected);
    }

    /// Does what the registry wants.
    pub(crate) fn settle(&mut self) {
        for _ in 0..10_000 {
            let Some(action) = self.registry.poll(self.now) else { return self.forget_expired() };
            self.carry_out(action);
        }
        panic!("the registry always wants something more");
    }

    /// Drained claims end by themselves, but only those of clients without queues.
    fn forget_expired(&mut self) {
        let registry = &self.registry;
        let has = |client: ClientId, claim: ClaimId| registry.claims(client).any(|(id, ..)| id == claim);
        for (client, _) in self.claims.extract_if(.., |(client, claim)| !has(*client, *claim)) {
            assert!(!self.sockets.values().any(|owner| *owner == client), "a claim was lost");
        }
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Lend { client, link, queues } => {
                assert!(self.wanting.contains(&client), "a queue for who wants none");
                self.lends += 1;
                if self.lends.is_multiple_of(5) {
                    self.forget_unserved(link, &queues);
                    let pause = Duration::from_millis(50);
                    self.registry.on_not_lent(link, &queues, pause, self.now);
                    return;
                }
                for &queue in &queues {
                    let before = self.sockets.insert((link, queue), client);
                    let is_again = self.reopening.remove(&(link, queue));
                    assert_eq!(before, is_again.then_some(client), "a queue has one owner");
                    if !is_again {
                        self.served.remove(&(link, queue));
                    }
                }
                if !self.slow {
                    self.registry.on_ready(client, link, &queues);
                    self.served.extend(queues.iter().map(|queue| (link, *queue)));
                }
            }
            Action::Withdraw { link, queues } => {
                let is_gone = |queue: &u16| {
                    !self.sockets.contains_key(&(link, *queue)) || self.reopening.contains(&(link, *queue))
                };
                assert!(queues.iter().all(is_gone));
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
            Action::Look { ports } => {
                assert!(self.looked_at.values().all(|at| *at != self.now), "once for all that are due");
                for port in ports {
                    self.looks += 1;
                    self.looked_at.insert(port, self.now);
                    self.registry.on_looked(&[(port, self.looks.is_multiple_of(3))], self.now);
                }
            }
        }
    }

    /// Queues that could not be lent, and that no client serves yet, have no owner.
    fn forget_unserved(&mut self, link: LinkNumber, queues: &[u16]) {
        let is_left = |queue: &u16| !self.served.contains(&(link, *queue));
        for queue in queues.iter().filter(|queue| is_left(queue)) {
            self.sockets.remove(&(link, *queue));
        }
        self.forget_reopening();
    }

    fn forget_reopening(&mut self) {
        self.reopening.retain(|queue| self.sockets.contains_key(queue));
    }
}
