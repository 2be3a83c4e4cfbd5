//! Who has which claim and which queue, and what follows from that. Pure: requests and times come in, [`Action`]s come out.
//!
//! A queue belongs to one client at a time. A claim takes packets from the kernel on the queues of its client only, so a
//! listener that several workers share is claimed by each of them, and the terms in the steering program are what all of them
//! together amount to. What a client has goes with it.
//!
//! Where a claim takes hold of a queue, the kernel may have connections whose packets arrive there, and must keep them:
//!
//! ```text
//!   mark: SYNs pass, and are noted --5 ms--> look: those that the kernel has are noted ----> take the queue's packets
//!         nothing is taken there                                                             but those of noted flows
//! ```
//!
//! After each call that may change something, call [`Registry::poll`] until it returns `None`, and again at
//! [`Registry::poll_timeout`].

mod bound;
mod interface;
mod ports;
mod queues;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use clock::{Duration, Instant};
use steering::{ClaimTerms, QueueSet, Transport};

pub use bound::{Bound, Scope};
pub use interface::View;

use crate::protocol::{ClaimId, Purpose, Refusal};
use interface::{Interface, Key, KeyState};
use ports::{MARKING, PortTable};

/// Claims of one client at most.
const CLAIMS_MAX: usize = 1 << 14;
/// Addresses and ports that are claimed on one interface at most; the steering program has room for some more.
const KEYS_MAX: usize = 60_000;

/// Number of a client: a process that is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// Number of an interface, the same for as long as the broker runs.
pub type LinkNumber = u16;

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Lend queues to a client; if that fails, tell [`Registry::on_not_lent`]. It says itself when it serves them.
    Lend {
        /// To whom.
        client: ClientId,
        /// Of which interface.
        link: LinkNumber,
        /// Which.
        queues: Vec<u16>,
    },
    /// Nothing is to be delivered to the sockets of these queues any more.
    Withdraw {
        /// Of which interface.
        link: LinkNumber,
        /// Which.
        queues: Vec<u16>,
    },
    /// Tell a client that its queues are gone with their interface.
    TellLost {
        /// Whom.
        client: ClientId,
        /// Which interface.
        link: LinkNumber,
    },
    /// Take packets from the kernel, or on other terms than before.
    PutClaim {
        /// On which interface.
        link: LinkNumber,
        /// Which packets.
        claim: steering::Claim,
        /// On which queues, and with which exceptions.
        terms: ClaimTerms,
    },
    /// Leave packets to the kernel.
    RemoveClaim {
        /// On which interface.
        link: LinkNumber,
        /// Which packets.
        claim: steering::Claim,
    },
    /// Enter the kernel's connections on this local TCP port into the maps of all interfaces, then tell [`Registry::on_looked`].
    Look {
        /// Which.
        port: u16,
    },
}

/// A socket that a client proved to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shadow {
    /// UDP or TCP.
    pub transport: Transport,
    /// What for.
    pub purpose: Purpose,
    /// Where it is bound.
    pub bound: Bound,
    /// The kernel's number for it, which is never used again (SO_COOKIE).
    pub cookie: u64,
    /// Whether the kernel may have connections from the same address and port: the socket was bound so that it shares them.
    pub shares_port: bool,
}

#[derive(Debug)]
struct Claim {
    client: ClientId,
    shadow: Shadow,
    draining: bool,
}

/// See the module's page.
#[derive(Debug, Default)]
pub struct Registry {
    clients: BTreeMap<ClientId, BTreeSet<ClaimId>>,
    /// Who wants queues, in the order in which they asked.
    attached: Vec<ClientId>,
    claims: BTreeMap<ClaimId, Claim>,
    /// Interfaces that are attached, or were.
    interfaces: BTreeMap<LinkNumber, Interface>,
    ports: PortTable,
    actions: VecDeque<Action>,
    /// Keys about which the steering program may have to be told something.
    dirty: BTreeSet<(LinkNumber, Key)>,
    last_client: u64,
    last_claim: u64,
}

/// Clients.
impl Registry {
    /// A process connected.
    pub fn add_client(&mut self) -> ClientId {
        self.last_client += 1;
        let client = ClientId(self.last_client);
        self.clients.insert(client, BTreeSet::new());
        client
    }

    /// A process is gone, and with it all that it had.
    pub fn remove_client(&mut self, client: ClientId, now: Instant) {
        for claim in self.clients.remove(&client).unwrap_or_default() {
            self.forget_claim(claim);
        }
        self.attached.retain(|other| *other != client);
        let links: Vec<LinkNumber> = self.interfaces.keys().copied().collect();
        links.into_iter().for_each(|link| self.withdraw(client, link, now));
    }

    /// A client wants queues.
    pub fn attach(&mut self, client: ClientId, now: Instant) {
        if self.clients.contains_key(&client) {
            self.attached.retain(|other| *other != client);
            self.attached.push(client);
            self.interfaces.values_mut().for_each(|interface| interface.queues.attach(client, now));
        }
    }

    /// A client serves queues that were lent to it.
    pub fn on_ready(&mut self, client: ClientId, link: LinkNumber, queues: &[u16]) {
        if let Some(interface) = self.interfaces.get_mut(&link) {
            interface.queues.on_ready(client, queues);
            self.touch_client(client, link);
        }
    }

    /// A client's sockets on this interface are closed, and it wants no others.
    pub fn give_back(&mut self, client: ClientId, link: LinkNumber, now: Instant) -> Result<(), Refusal> {
        let interface = self.interfaces.get(&link).ok_or(Refusal::NotYours)?;
        if interface.queues.owned(client).next().is_none() {
            return Err(Refusal::NotYours);
        }
        self.withdraw(client, link, now);
        let mut interfaces = self.interfaces.values();
        if !interfaces.any(|interface| interface.queues.owned(client).next().is_some()) {
            self.attached.retain(|other| *other != client);
        }
        Ok(())
    }

    fn withdraw(&mut self, client: ClientId, link: LinkNumber, now: Instant) {
        let Some(interface) = self.interfaces.get_mut(&link) else { return };
        let queues = interface.queues.detach(client, now);
        if !queues.is_empty() {
            self.actions.push_back(Action::Withdraw { link, queues });
            self.touch_client(client, link);
        }
    }

    /// Whether whatever arrives at the interface arrives at this client.
    pub fn has_all_queues(&self, client: ClientId, link: LinkNumber) -> bool {
        self.interfaces.get(&link).is_some_and(|interface| interface.queues.is_whole(client))
    }

    /// Whether the client has a queue of this interface, or is about to.
    pub fn has_queues(&self, client: ClientId, link: LinkNumber) -> bool {
        let interface = self.interfaces.get(&link);
        interface.is_some_and(|interface| interface.queues.owned(client).next().is_some())
    }

    /// How many queues of an interface belong to somebody.
    pub fn queues_lent(&self, link: LinkNumber) -> u16 {
        self.interfaces.get(&link).map_or(0, |interface| interface.queues.taken())
    }

    /// The queues of an interface that the client serves.
    pub fn queues_of(&self, client: ClientId, link: LinkNumber) -> QueueSet {
        self.interfaces.get(&link).map_or(QueueSet::NONE, |interface| interface.queues.served_by(client))
    }
}

/// Claims.
impl Registry {
    /// A client proved that it has `shadow`, and wants its packets.
    pub fn claim(&mut self, client: ClientId, shadow: Shadow) -> Result<ClaimId, Refusal> {
        let own = self.clients.get(&client).ok_or(Refusal::NotYours)?;
        if self.interfaces.is_empty() {
            return Err(Refusal::NoInterface);
        }
        let views = || self.interfaces.values().map(|interface| &interface.view);
        if let Some(refusal) = shadow.bound.obstacle(views()) {
            return Err(refusal);
        }
        let has_room = |interface: &Interface| {
            interface.keys.len() + shadow.bound.addresses_on(&interface.view).count() <= KEYS_MAX
        };
        if own.len() >= CLAIMS_MAX || !self.interfaces.values().all(has_room) {
            return Err(Refusal::TooMany);
        }
        self.last_claim += 1;
        let id = ClaimId(self.last_claim);
        self.claims.insert(id, Claim { client, shadow, draining: false });
        self.clients.entry(client).or_default().insert(id);
        let links: Vec<LinkNumber> = self.interfaces.keys().copied().collect();
        links.into_iter().for_each(|link| self.place(id, link));
        Ok(id)
    }

    /// A claim is no longer needed.
    pub fn release(&mut self, client: ClientId, claim: ClaimId) -> Result<(), Refusal> {
        if !self.clients.get_mut(&client).is_some_and(|claims| claims.remove(&claim)) {
            return Err(Refusal::NoSuchClaim);
        }
        self.forget_claim(claim);
        Ok(())
    }

    /// New connections of a claim are the kernel's from now on.
    pub fn drain(&mut self, client: ClientId, claim: ClaimId, now: Instant) -> Result<(), Refusal> {
        if !self.clients.get(&client).is_some_and(|claims| claims.contains(&claim)) {
            return Err(Refusal::NoSuchClaim);
        }
        self.set_draining(claim, now);
        Ok(())
    }

    /// The socket of a claim is no more, and its client has not told. Whoever binds its port next must get its packets: they
    /// are the kernel's, but for connections that there are.
    pub fn on_shadow_gone(&mut self, claim: ClaimId, now: Instant) {
        let Some(state) = self.claims.get(&claim) else { return };
        match state.shadow.transport {
            Transport::Tcp => self.set_draining(claim, now),
            Transport::Udp => {
                let client = state.client;
                let _ = self.release(client, claim); // It has it, as was just seen.
            }
        }
    }

    /// A connection with this end becomes the kernel's, and its packets are to be looked for.
    pub fn note_moved(&mut self, local: SocketAddr, now: Instant) {
        self.ports.note_kernel_connections(local.port(), now);
        self.touch_port(local.port());
    }

    /// Whether packets to `local` are this client's by one of its claims.
    pub fn covers(&self, client: ClientId, transport: Transport, local: SocketAddr) -> bool {
        self.claims_of(client)
            .any(|(_, claim)| claim.shadow.transport == transport && claim.shadow.bound.covers(local))
    }

    /// Who else can accept a connection that waited at a listener of `from`: rather a process with the very same socket than one
    /// with another at the same port.
    pub fn heir(&self, from: ClientId, local: SocketAddr) -> Option<(ClientId, ClaimId)> {
        let listens =
            |claim: &Claim| claim.shadow.purpose == Purpose::Listener && claim.shadow.bound.covers(local);
        let own = self.claims_of(from).filter(|(_, claim)| listens(claim));
        let cookies: BTreeSet<u64> = own.map(|(_, claim)| claim.shadow.cookie).collect();
        let others = self.claims.iter();
        let others = others.filter(|(_, claim)| claim.client != from && !claim.draining && listens(claim));
        let best = others.min_by_key(|(_, claim)| !cookies.contains(&claim.shadow.cookie));
        best.map(|(id, claim)| (claim.client, *id))
    }

    /// Where a claim takes packets, as far as its client has queues.
    pub fn places_of(&self, claim: ClaimId) -> Vec<(LinkNumber, steering::LocalAddress)> {
        let Some(claim) = self.claims.get(&claim) else { return Vec::new() };
        let places = self.interfaces.iter().flat_map(|(link, interface)| {
            claim.shadow.bound.addresses_on(&interface.view).map(|local| (*link, local))
        });
        places.collect()
    }

    /// Claims whose sockets the client itself keeps, with what identifies these; the broker looks after them.
    pub fn shadows(&self) -> impl Iterator<Item = (ClaimId, &Shadow)> + '_ {
        let kept = self
            .claims
            .iter()
            .filter(|(_, claim)| !claim.draining && claim.shadow.purpose != Purpose::Outgoing);
        kept.map(|(id, claim)| (*id, &claim.shadow))
    }

    /// A client's claims, and whether each is drained.
    pub fn claims(&self, client: ClientId) -> impl Iterator<Item = (ClaimId, &Shadow, bool)> + '_ {
        self.claims_of(client).map(|(id, claim)| (id, &claim.shadow, claim.draining))
    }

    fn claims_of(&self, client: ClientId) -> impl Iterator<Item = (ClaimId, &Claim)> + '_ {
        let ids = self.clients.get(&client).into_iter().flatten();
        ids.filter_map(|id| Some((*id, self.claims.get(id)?)))
    }

    fn set_draining(&mut self, claim: ClaimId, now: Instant) {
        let Some(state) = self.claims.get_mut(&claim) else { return };
        state.draining = true;
        let (transport, port) = (state.shadow.transport, state.shadow.bound.port);
        if transport == Transport::Tcp {
            self.ports.note_kernel_connections(port, now);
            self.touch_port(port);
        }
    }

    /// Makes a claim a user of its keys on one interface.
    fn place(&mut self, id: ClaimId, link: LinkNumber) {
        let (Some(claim), Some(interface)) = (self.claims.get(&id), self.interfaces.get_mut(&link)) else {
            return;
        };
        for key in keys_of(&claim.shadow, &interface.view) {
            interface.keys.entry(key).or_default().users.insert(id);
            self.dirty.insert((link, key));
        }
    }

    fn forget_claim(&mut self, id: ClaimId) {
        let Some(claim) = self.claims.remove(&id) else { return };
        for (link, interface) in &mut self.interfaces {
            for key in keys_of(&claim.shadow, &interface.view) {
                if let Some(state) = interface.keys.get_mut(&key) {
                    state.users.remove(&id);
                    self.dirty.insert((*link, key));
                }
            }
        }
    }
}

/// Interfaces.
impl Registry {
    /// The steering program was attached to an interface, and knows no claim yet.
    pub fn on_attached(&mut self, link: LinkNumber, view: View, now: Instant) {
        let interface = self.interfaces.entry(link).or_default();
        self.attached.iter().for_each(|client| interface.queues.attach(*client, now));
        self.on_view(link, view);
    }

    /// The interface has other queues, or other addresses.
    pub fn on_view(&mut self, link: LinkNumber, view: View) {
        let Some(interface) = self.interfaces.get_mut(&link) else { return };
        interface.queues.set_count(view.queues);
        if interface.view == view {
            return;
        }
        interface.view = view;
        for (key, state) in &mut interface.keys {
            state.users.clear();
            self.dirty.insert((link, *key));
        }
        let claims: Vec<ClaimId> = self.claims.keys().copied().collect();
        claims.into_iter().for_each(|claim| self.place(claim, link));
    }

    /// The steering program is no longer attached to an interface.
    pub fn on_detached(&mut self, link: LinkNumber) {
        let Some(mut interface) = self.interfaces.remove(&link) else { return };
        self.dirty.retain(|(other, _)| *other != link);
        self.actions.retain(|action| action.link() != Some(link));
        let owners = interface.queues.clear();
        self.actions.extend(owners.into_iter().map(|client| Action::TellLost { client, link }));
    }

    /// Queues could not be lent; that is tried again after `pause`.
    pub fn on_not_lent(&mut self, link: LinkNumber, queues: &[u16], pause: Duration, now: Instant) {
        if let Some(interface) = self.interfaces.get_mut(&link) {
            interface.queues.block(queues, now + pause);
        }
    }

    /// The kernel was asked for its connections on a port. If it did not answer it has some, to be careful.
    pub fn on_looked(&mut self, port: u16, found: bool, now: Instant) {
        let is_draining = self.claims.values().any(|claim| {
            claim.draining && claim.shadow.transport == Transport::Tcp && claim.shadow.bound.port == port
        });
        self.ports.on_looked(port, found || is_draining, now);
        self.clear(port, now);
        self.touch_port(port);
        self.forget_unused_port(port);
    }
}

/// What follows.
impl Registry {
    /// What to do next.
    pub fn poll(&mut self, now: Instant) -> Option<Action> {
        if self.actions.is_empty() {
            self.deal(now);
        }
        if self.actions.is_empty() {
            self.actions.extend(self.ports.due(now).into_iter().map(|port| Action::Look { port }));
        }
        // Claims first: no packet is to wait at a socket that is about to go.
        self.settle_claims(now);
        self.actions.pop_front()
    }

    /// When to call [`Registry::poll`] again though nothing happened.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let queues = self.interfaces.values().filter_map(|interface| interface.queues.poll_timeout());
        queues.chain(self.ports.poll_timeout()).min()
    }

    fn deal(&mut self, now: Instant) {
        for (&link, interface) in &mut self.interfaces {
            let dealt = interface.queues.deal(now).into_iter();
            self.actions.extend(dealt.map(|(client, queues)| Action::Lend { client, link, queues }));
        }
    }

    /// Puts in front of all other actions what the steering program is to be told.
    fn settle_claims(&mut self, now: Instant) {
        for (link, key) in self.dirty.clone() {
            self.mark_gain(link, key, now);
        }
        let dirty = std::mem::take(&mut self.dirty);
        let told: Vec<Action> = dirty.into_iter().filter_map(|(link, key)| self.tell(link, key)).collect();
        told.into_iter().rev().for_each(|action| self.actions.push_front(action));
    }

    /// Where a claim takes hold of a queue on which the kernel may have connections, these are looked for first.
    fn mark_gain(&mut self, link: LinkNumber, key: Key, now: Instant) {
        let wanted = self.queues_for(link, key);
        let is_shared = self.is_shared(link, key);
        let Some(state) = self.key_mut(link, key) else { return };
        state.cleared = match is_shared {
            true => QueueSet::from_bits(state.cleared.bits() & wanted.bits()),
            false => wanted,
        };
        if state.cleared == wanted {
            state.marked_at = None;
        } else {
            state.marked_at.get_or_insert(now);
            self.ports.mark(key.port, now);
            self.touch_port(key.port);
        }
    }

    /// Whether the kernel may have connections from the same address and port.
    fn is_shared(&self, link: LinkNumber, key: Key) -> bool {
        let users = self.interfaces.get(&link).and_then(|interface| interface.keys.get(&key));
        let mut users = users.into_iter().flat_map(|state| &state.users).filter_map(|id| self.claims.get(id));
        let shares = |claim: &Claim| claim.shadow.purpose == Purpose::Listener || claim.shadow.shares_port;
        key.transport == Transport::Tcp && users.any(shares)
    }

    /// The kernel's connections on this port are known: all of what was marked for long enough.
    fn clear(&mut self, port: u16, now: Instant) {
        let links = self.interfaces.iter();
        let keys: Vec<(LinkNumber, Key)> = links
            .flat_map(|(link, interface)| {
                interface.keys_of(Transport::Tcp, port).map(move |key| (*link, key))
            })
            .collect();
        for (link, key) in keys {
            let wanted = self.queues_for(link, key);
            let Some(state) = self.key_mut(link, key) else { continue };
            if state.marked_at.is_some_and(|since| now >= since + MARKING) {
                state.cleared = wanted;
            }
        }
    }

    fn key_mut(&mut self, link: LinkNumber, key: Key) -> Option<&mut KeyState> {
        self.interfaces.get_mut(&link)?.keys.get_mut(&key)
    }

    /// What is to be told of a key, if it differs from what was told last.
    fn tell(&mut self, link: LinkNumber, key: Key) -> Option<Action> {
        let terms = self.terms_for(link, key);
        let interface = self.interfaces.get_mut(&link)?;
        let state = interface.keys.get_mut(&key)?;
        let before = std::mem::replace(&mut state.told, terms);
        if state.users.is_empty() {
            interface.keys.remove(&key);
            if key.transport == Transport::Tcp {
                self.forget_unused_port(key.port);
            }
        }
        match terms {
            Some(terms) if before != Some(terms) => {
                Some(Action::PutClaim { link, claim: key.claim(), terms })
            }
            None if before.is_some() => Some(Action::RemoveClaim { link, claim: key.claim() }),
            _ => None,
        }
    }

    fn forget_unused_port(&mut self, port: u16) {
        let is_used = |interface: &Interface| interface.keys_of(Transport::Tcp, port).next().is_some();
        if !self.interfaces.values().any(is_used) {
            self.ports.forget(port);
        }
    }

    /// `None`: not to be claimed.
    fn terms_for(&self, link: LinkNumber, key: Key) -> Option<ClaimTerms> {
        if self.queues_for(link, key) == QueueSet::NONE {
            return None;
        }
        let state = self.interfaces.get(&link)?.keys.get(&key)?;
        let queues = state.cleared;
        if key.transport == Transport::Udp {
            return Some(ClaimTerms { queues, kernel_new: false, kernel_some: false });
        }
        let is_draining = |id: &ClaimId| self.claims.get(id).is_some_and(|claim| claim.draining);
        let kernel_new = self.ports.is_marking(key.port) || state.users.iter().any(is_draining);
        let kernel_some = kernel_new || self.ports.has_kernel_connections(key.port);
        Some(ClaimTerms { queues, kernel_new, kernel_some })
    }

    /// The queues of all clients that claim the key.
    fn queues_for(&self, link: LinkNumber, key: Key) -> QueueSet {
        let Some(interface) = self.interfaces.get(&link) else { return QueueSet::NONE };
        let users = interface.keys.get(&key).into_iter().flat_map(|state| &state.users);
        let clients = users.filter_map(|id| self.claims.get(id)).map(|claim| claim.client);
        let bits = clients.fold(0, |bits, client| bits | interface.queues.served_by(client).bits());
        QueueSet::from_bits(bits)
    }

    fn touch_client(&mut self, client: ClientId, link: LinkNumber) {
        let Some(interface) = self.interfaces.get(&link) else { return };
        let claims = self.clients.get(&client).into_iter().flatten();
        for claim in claims.filter_map(|id| self.claims.get(id)) {
            let keys = keys_of(&claim.shadow, &interface.view);
            self.dirty.extend(keys.map(|key| (link, key)));
        }
    }

    fn touch_port(&mut self, port: u16) {
        for (&link, interface) in &self.interfaces {
            let keys = interface.keys_of(Transport::Tcp, port);
            self.dirty.extend(keys.map(|key| (link, key)));
        }
    }
}

impl Action {
    fn link(&self) -> Option<LinkNumber> {
        match self {
            Action::Lend { link, .. }
            | Action::Withdraw { link, .. }
            | Action::TellLost { link, .. }
            | Action::PutClaim { link, .. }
            | Action::RemoveClaim { link, .. } => Some(*link),
            Action::Look { .. } => None,
        }
    }
}

/// The keys of a socket on an interface.
fn keys_of<'v>(shadow: &Shadow, view: &'v View) -> impl Iterator<Item = Key> + use<'v> {
    let (transport, port) = (shadow.transport, shadow.bound.port);
    shadow.bound.addresses_on(view).map(move |local| Key { transport, port, local })
}
