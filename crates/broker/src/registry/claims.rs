//! Claims: who has them, and where they take packets.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use clock::{Duration, Instant};
use steering::{LocalAddress, Transport};

use super::interface::{Interface, Key, View};
use super::{Bound, Claim, ClaimKey, ClientId, Former, LinkNumber, Registry, Shadow};
use crate::protocol::{ClaimId, Purpose, Refusal};

/// The port of DNS servers.
const DNS: u16 = 53;
/// Claims of one client at most.
pub(super) const CLAIMS_MAX: usize = 1 << 14;
/// Claims of one client for the same packets at most: there may be one for each thread that listens with `SO_REUSEPORT`. What all claims
/// of an address amount to is found out anew when one changes that, at the expense of everybody.
pub(super) const ALIKE_MAX: usize = 128;
/// Addresses and ports that are claimed on one interface at most; the steering program has room for some more.
const KEYS_MAX: usize = 60_000;
/// Claims of all clients at most: each second the broker looks after their sockets.
pub(super) const CLAIMS_OF_ALL_MAX: usize = 1 << 16;
/// How long a drained listener's claim lasts at least.
pub(super) const DRAINED_MIN: Duration = Duration::from_secs(60);
/// Listeners of one client that are remembered after their claims were released.
const FORMER_MAX: usize = 256;

impl Registry {
    /// A client proved that it has `shadow`, and wants its packets.
    pub fn claim(&mut self, client: ClientId, shadow: Shadow) -> Result<ClaimId, Refusal> {
        let id = ClaimId(self.last_claim + 1);
        self.admit(client, shadow, id)?;
        self.last_claim = id.0;
        Ok(id)
    }

    /// The same, by the number that a killed broker gave the claim whose place this one has taken.
    pub fn claim_again(&mut self, client: ClientId, shadow: Shadow, id: ClaimId) -> Result<ClaimId, Refusal> {
        if id.0 > self.others_claims || self.claims.get((id, client)).is_some() {
            return Err(Refusal::NoSuchClaim);
        }
        self.admit(client, shadow, id)?;
        self.on_claimed_again(client, &shadow);
        Ok(id)
    }

    fn admit(&mut self, client: ClientId, shadow: Shadow, id: ClaimId) -> Result<(), Refusal> {
        let own = self.clients.get(&client).ok_or(Refusal::NotYours)?;
        if self.left_sockets.contains(shadow.cookie) {
            return Err(Refusal::SocketLeft);
        }
        if self.interfaces.is_empty() {
            return Err(Refusal::NoInterface);
        }
        let views = || self.interfaces.values().map(|interface| &interface.view);
        if let Some(refusal) = shadow.bound.obstacle(views()) {
            return Err(refusal);
        }
        let mut claimable = views().filter(|view| shadow.may_claim_on(view)).peekable();
        if claimable.peek().is_none() || shadow.bound.obstacle(claimable).is_some() {
            return Err(Refusal::MergedDatagrams);
        }
        let has_room = |interface: &Interface| {
            interface.keys.len() + shadow.addresses_on(&interface.view).count() <= KEYS_MAX
        };
        let likeness = Likeness::of(client, &shadow);
        let alike = self.alike.get(&likeness).map_or(0, |alike| alike.count);
        let user = self.user_of(client);
        let is_too_much = own.len() >= CLAIMS_MAX || !self.shares.have_room(CLAIMS_OF_ALL_MAX, user, 1);
        if is_too_much || alike >= ALIKE_MAX || !self.interfaces.values().all(has_room) {
            return Err(Refusal::TooMany);
        }
        let id = (id, client);
        if shadow.transport == Transport::Tcp {
            let port = shadow.bound.port;
            self.ports.on_claimed(port, shadow.owner, !self.is_used(port));
        }
        self.shares.add(user, 1);
        self.claims.insert(id, Claim { client, user, shadow, draining: false });
        let alike = self.alike.entry(likeness).or_default();
        alike.count += 1;
        let changes = alike.count == 1 || alike.draining == alike.count - 1;
        self.clients.entry(client).or_default().insert(id);
        if changes {
            let links: Vec<LinkNumber> = self.interfaces.keys().copied().collect();
            links.into_iter().for_each(|link| self.place(likeness, link));
        }
        if changes && shadow.purpose != Purpose::Outgoing {
            self.interfaces.values_mut().for_each(|interface| interface.queues.on_claimed(client));
        }
        Ok(())
    }

    /// A claim is no longer needed.
    pub fn release(&mut self, client: ClientId, claim: ClaimId) -> Result<(), Refusal> {
        let id = (claim, client);
        if !self.clients.get_mut(&client).is_some_and(|claims| claims.remove(&id)) {
            return Err(Refusal::NoSuchClaim);
        }
        self.remember(id);
        self.forget_claim(id);
        Ok(())
    }

    /// A listener's claim goes; connections that waited there may come up later.
    fn remember(&mut self, id: ClaimKey) {
        let Some(claim) = self.claims.get(id).filter(|it| it.listens()) else { return };
        let former = self.former.entry(claim.client).or_default();
        let Shadow { bound, owner, cookie, .. } = claim.shadow;
        former.retain(|other| (other.bound, other.owner) != (bound, owner));
        former.push_back(Former { bound, owner, cookie });
        if former.len() > FORMER_MAX {
            former.pop_front();
        }
    }

    /// New connections of a claim are the kernel's from now on.
    pub fn drain(&mut self, client: ClientId, claim: ClaimId, now: Instant) -> Result<(), Refusal> {
        let id = (claim, client);
        self.claims.get(id).ok_or(Refusal::NoSuchClaim)?;
        self.set_draining(id, now);
        Ok(())
    }

    /// The socket of a claim is no more, and its client has not told. Whoever binds its port next must get its packets: they
    /// are the kernel's, but for connections that there are.
    pub fn on_shadow_gone(&mut self, claim: ClaimKey, now: Instant) {
        let Some(state) = self.claims.get(claim) else { return };
        match state.shadow.transport {
            Transport::Tcp => self.set_draining(claim, now),
            Transport::Udp => {
                let (number, client) = claim;
                let _ = self.release(client, number); // It has it, as was just seen.
            }
        }
    }

    /// A connection with this end moves to the kernel, and its packets must be found.
    pub fn note_moved(&mut self, local: SocketAddr, now: Instant) {
        self.ports.note_kernel_connections(local.port(), now);
        self.touch_port(Transport::Tcp, local.port());
    }

    /// The flow of a handshake that nobody has is noted as awaited: as long as it is, the steering program is to look it up, claimed or
    /// not.
    pub fn await_flow(&mut self, local: SocketAddr, until: Instant, now: Instant) {
        self.ports.await_flows(local.port(), until, now);
        self.touch_port(Transport::Tcp, local.port());
    }

    /// Whether packets to `local` are this client's by one of its claims, and not by now another user's, who listens there.
    pub fn covers(&self, client: ClientId, transport: Transport, local: SocketAddr) -> bool {
        let covering = || self.covering(transport, local).map(|(_, claim)| claim);
        let own: Vec<&Shadow> = covering().filter(|it| it.client == client).map(|it| &it.shadow).collect();
        let is_own = |other: &Shadow| own.iter().any(|own| own.owner == other.owner);
        let is_there = |other: &Shadow| own.iter().any(|own| own.bound.may_meet(other.bound));
        let is_others =
            |it: &Claim| it.client != client && !it.draining && it.listens() && is_there(&it.shadow);
        if own.is_empty() {
            let is_new_owner = |it: &Claim| it.client != client && !it.draining && it.listens();
            return self.has_left(client, transport, local) && !covering().any(is_new_owner);
        }
        !covering().filter(|it| is_others(it)).any(|it| !is_own(&it.shadow))
    }

    /// Whether another client has the very same socket, and wants what comes there.
    pub fn has_others(&self, client: ClientId, claim: ClaimId) -> Result<bool, Refusal> {
        Ok(self.others(client, claim)?.next().is_some())
    }

    /// The claims of other clients that have the very same socket, and can accept what waits there.
    pub fn others(
        &self,
        client: ClientId,
        claim: ClaimId,
    ) -> Result<impl Iterator<Item = (ClientId, ClaimId)>, Refusal> {
        let own = self.claims.get((claim, client)).ok_or(Refusal::NoSuchClaim)?.shadow;
        let is_it = move |other: &Claim| other.client != client && other.shadow.cookie == own.cookie;
        let others = self.claims.at(own.transport, own.bound.port);
        let others = others.filter(move |(_, other)| is_it(other) && self.can_accept(other));
        Ok(others.map(|((claim, client), _)| (client, claim)))
    }

    /// The kernel serves the socket of a claim for all who have it; nobody gets it any more. Returns the claims of others, whom to tell.
    pub fn leave_socket(
        &mut self,
        client: ClientId,
        claim: ClaimId,
    ) -> Result<Vec<(ClientId, ClaimId)>, Refusal> {
        let others = self.others(client, claim)?.collect();
        let cookie = self.claims.get((claim, client)).map(|claim| claim.shadow.cookie);
        cookie.into_iter().for_each(|cookie| self.left_sockets.insert(cookie));
        Ok(others)
    }

    /// Whether a claim's client can still accept what waits at its socket for others: the claim goes, but the socket may not.
    fn can_accept(&self, claim: &Claim) -> bool {
        !claim.draining || self.left_sockets.contains(claim.shadow.cookie)
    }

    /// The other clients that may have connections with this end: by the same socket, or by another at the same port.
    pub fn siblings(&self, client: ClientId, local: SocketAddr) -> BTreeSet<ClientId> {
        let claimants = self.covering(Transport::Tcp, local).map(|(_, claim)| claim.client);
        claimants.filter(|other| *other != client).collect()
    }

    /// Who else can accept a connection that waited at a listener of `from`: rather a process with the very same socket than one
    /// with another at the same port, which must be the same user's. Of several the one that asked for it last: the others may be about to close
    /// theirs.
    pub fn heir(&self, from: ClientId, local: SocketAddr) -> Option<(ClientId, ClaimId)> {
        let listeners = || self.covering(Transport::Tcp, local).filter(|(_, claim)| claim.listens());
        let own = || listeners().filter(|(_, claim)| claim.client == from);
        let cookies = self.listeners_at(from, local);
        let former = self.former_at(from, local).map(|former| former.owner);
        let owners: BTreeSet<u32> = own().map(|(_, claim)| claim.shadow.owner).chain(former).collect();
        let is_kin = |it: &Claim| cookies.contains(&it.shadow.cookie) || owners.contains(&it.shadow.owner);
        let others = listeners().filter(|(_, it)| it.client != from && is_kin(it) && self.can_accept(it));
        let best = others.max_by_key(|(id, claim)| (cookies.contains(&claim.shadow.cookie), *id));
        let (number, client) = best?.0;
        Some((client, number))
    }

    /// The kernel's numbers of a client's listeners that connections with this end may wait at, or may have waited at: others may have them,
    /// or come to have them.
    pub fn listeners_at(&self, client: ClientId, local: SocketAddr) -> BTreeSet<u64> {
        let own = self.own_listeners_at(client, local).map(|claim| claim.shadow.cookie);
        own.chain(self.former_at(client, local).map(|former| former.cookie)).collect()
    }

    /// Listeners of the client whose claims are released.
    fn former_at(&self, client: ClientId, local: SocketAddr) -> impl Iterator<Item = &Former> {
        self.former.get(&client).into_iter().flatten().filter(move |former| former.bound.covers(local))
    }

    /// The kernel's numbers of a client's listeners.
    pub(super) fn listeners_of(&self, client: ClientId) -> BTreeSet<u64> {
        let listeners = self.claims_of(client).filter(|(_, claim)| claim.listens());
        listeners.map(|(_, claim)| claim.shadow.cookie).collect()
    }

    /// Where a client's connections may have their ends, and whose its sockets there are, or were.
    pub fn tcp_bounds(&self, client: ClientId) -> Vec<(Bound, u32)> {
        let of_tcp = |(_, claim): &(ClaimKey, &Claim)| claim.shadow.transport == Transport::Tcp;
        let own = self.claims_of(client).filter(of_tcp);
        let own = own.map(|(_, claim)| (claim.shadow.bound, claim.shadow.owner));
        let former = self.former.get(&client).into_iter().flatten();
        own.chain(former.map(|former| (former.bound, former.owner))).collect()
    }

    /// Whether packets to `local` are claimed for a socket of another user's than this one.
    pub fn is_anothers(&self, local: SocketAddr, owner: u32) -> bool {
        self.covering(Transport::Tcp, local).any(|(_, claim)| claim.shadow.owner != owner)
    }

    /// Whether connections with this end may have waited at a listener of the client: one that it has claimed, or had.
    pub fn has_listened(&self, client: ClientId, local: SocketAddr) -> bool {
        self.own_listeners_at(client, local).next().is_some()
            || self.former_at(client, local).next().is_some()
    }

    /// Whether the client has claimed one of these very listeners, and still listens.
    pub fn has_listener(&self, client: ClientId, listeners: &BTreeSet<u64>, local: SocketAddr) -> bool {
        self.own_listeners_at(client, local).any(|claim| !claim.draining && claim.is_listener_of(listeners))
    }

    /// The latest client that has claimed one of these very listeners.
    pub fn claimant(&self, listeners: &BTreeSet<u64>, local: SocketAddr) -> Option<(ClientId, ClaimId)> {
        let mut latest_first = self.covering(Transport::Tcp, local).rev();
        let found = latest_first.find(|(_, claim)| !claim.draining && claim.is_listener_of(listeners));
        found.map(|((number, client), _)| (client, number))
    }

    /// Where a claim takes packets, as far as its client has queues.
    pub fn places_of(&self, claim: ClaimKey) -> Vec<(LinkNumber, LocalAddress)> {
        let Some(claim) = self.claims.get(claim) else { return Vec::new() };
        let places = self.interfaces.iter().flat_map(|(link, interface)| {
            claim.shadow.addresses_on(&interface.view).map(|local| (*link, local))
        });
        places.collect()
    }

    /// Whether anything of this kind is claimed.
    pub fn has_claims_of(&self, transport: Transport) -> bool {
        self.claims.has_any(transport)
    }

    /// So many claims at most, from the first behind `last` on, and with each what identifies its socket if its client itself keeps that: the
    /// broker looks after these.
    pub fn shadows(
        &self,
        last: Option<ClaimKey>,
        max: usize,
    ) -> impl Iterator<Item = (ClaimKey, Option<&Shadow>)> + '_ {
        let is_looked_after = |claim: &Claim| !claim.draining && claim.shadow.purpose != Purpose::Outgoing;
        let claims = self.claims.behind(last, max);
        claims.map(move |(id, claim)| (id, is_looked_after(claim).then_some(&claim.shadow)))
    }

    /// The highest number of a claim up to now.
    pub fn last_claim(&self) -> ClaimId {
        ClaimId(self.last_claim)
    }

    /// Whether anything of a port is claimed.
    pub fn is_claimed(&self, transport: Transport, port: u16) -> bool {
        self.claims.has_port(transport, port)
    }

    /// The sockets that the kernel has at a port, by their numbers and where they are bound; connected ones are not among them. Those
    /// that nobody has claimed go before claims that match a packet less well.
    pub fn note_sockets(&mut self, transport: Transport, port: u16, sockets: &[(u64, Bound)]) {
        let unclaimed = sockets.iter().filter(|(cookie, _)| !self.claims.has_socket(*cookie));
        let unclaimed: BTreeSet<Bound> = unclaimed.map(|(_, bound)| *bound).collect();
        let place = (transport, port);
        if self.unclaimed.get(&place).is_some_and(|before| *before == unclaimed) {
            return;
        }
        let before = match unclaimed.is_empty() {
            true => self.unclaimed.remove(&place),
            false => self.unclaimed.insert(place, unclaimed),
        };
        if before.is_some() || self.unclaimed.contains_key(&place) {
            self.touch_port(transport, port);
        }
    }

    /// Ports at which sockets were noted that nobody has claimed.
    pub fn ports_noted(&self, transport: Transport) -> Vec<u16> {
        let all = (transport, 0)..=(transport, u16::MAX);
        self.unclaimed.range(all).map(|((_, port), _)| *port).collect()
    }

    /// A client's claims, and whether each is drained.
    pub fn claims(&self, client: ClientId) -> impl Iterator<Item = (ClaimId, &Shadow, bool)> + '_ {
        self.claims_of(client).map(|((number, _), claim)| (number, &claim.shadow, claim.draining))
    }

    fn claims_of(&self, client: ClientId) -> impl Iterator<Item = (ClaimKey, &Claim)> + '_ {
        let ids = self.clients.get(&client).into_iter().flatten();
        ids.filter_map(|id| Some((*id, self.claims.get(*id)?)))
    }

    /// The claims that packets to `local` are for, the earliest first.
    fn covering(
        &self,
        transport: Transport,
        local: SocketAddr,
    ) -> impl DoubleEndedIterator<Item = (ClaimKey, &Claim)> + '_ {
        self.claims.at(transport, local.port()).filter(move |(_, claim)| claim.shadow.bound.covers(local))
    }

    /// A client's listeners that connections with this end wait at.
    fn own_listeners_at(&self, client: ClientId, local: SocketAddr) -> impl Iterator<Item = &Claim> + '_ {
        let own = self.covering(Transport::Tcp, local).filter(move |(_, claim)| claim.client == client);
        own.map(|(_, claim)| claim).filter(|claim| claim.listens())
    }

    fn set_draining(&mut self, claim: ClaimKey, now: Instant) {
        let is_new = self.claims.set_draining(claim);
        let Some(state) = self.claims.get(claim) else { return };
        let (transport, port) = (state.shadow.transport, state.shadow.bound.port);
        let likeness = Likeness::of(state.client, &state.shadow);
        if state.listens() {
            self.drained.insert((now + DRAINED_MIN, claim));
        }
        if let Some(alike) = self.alike.get_mut(&likeness).filter(|_| is_new) {
            alike.draining += 1;
        }
        if transport == Transport::Tcp {
            self.ports.note_kernel_connections(port, now);
        }
        self.touch_port(transport, port);
    }

    /// Forgets drained listeners of clients without queues: where nothing arrives at a client, it has no connections that the claim
    /// is kept for. Meanwhile it would leave new connections of other clients to the kernel.
    pub(super) fn expire_drained(&mut self, now: Instant) {
        while let Some((_, id)) = self.drained.first().copied().filter(|(at, _)| *at <= now) {
            self.drained.pop_first();
            let (number, client) = id;
            if self.claims.get(id).is_none() {
                continue;
            }
            if self.interfaces.keys().any(|link| self.has_queues(client, *link)) {
                self.drained.insert((now + DRAINED_MIN, id));
            } else {
                let _ = self.release(client, number); // It has it, as was just seen.
            }
        }
    }

    /// Makes claims of this kind users of their keys on one interface.
    pub(super) fn place(&mut self, likeness: Likeness, link: LinkNumber) {
        let Some(interface) = self.interfaces.get_mut(&link) else { return };
        for key in likeness.keys_on(&interface.view) {
            interface.keys.entry(key).or_default().users.insert(likeness);
            self.dirty.insert((link, key));
        }
    }

    pub(super) fn forget_claim(&mut self, id: ClaimKey) {
        let Some(claim) = self.claims.remove(id) else { return };
        self.shares.remove(claim.user, 1);
        let likeness = Likeness::of(claim.client, &claim.shadow);
        let Some(alike) = self.alike.get_mut(&likeness) else { return };
        alike.count -= 1;
        alike.draining -= usize::from(claim.draining);
        let is_last = alike.count == 0;
        let changes = claim.draining || alike.count == alike.draining;
        if is_last {
            self.alike.remove(&likeness);
        }
        if !changes {
            return;
        }
        for (link, interface) in &mut self.interfaces {
            for key in likeness.keys_on(&interface.view) {
                if let Some(state) = interface.keys.get_mut(&key) {
                    if is_last {
                        state.users.remove(&likeness);
                    }
                    self.dirty.insert((*link, key));
                }
            }
        }
    }
}

/// What two claims have in common of which one changes nothing while there is the other, and none of them is drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Likeness {
    pub(super) client: ClientId,
    pub(super) transport: Transport,
    pub(super) purpose: Purpose,
    pub(super) bound: Bound,
}

/// How many claims are alike.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Alike {
    pub(super) count: usize,
    /// How many of them are drained.
    pub(super) draining: usize,
}

impl Likeness {
    fn of(client: ClientId, shadow: &Shadow) -> Likeness {
        let Shadow { transport, purpose, bound, .. } = *shadow;
        Likeness { client, transport, purpose, bound }
    }

    /// The keys of such a claim on an interface.
    pub(super) fn keys_on<'v>(&self, view: &'v View) -> impl Iterator<Item = Key> + use<'v> {
        keys_of((self.transport, self.bound), view)
    }
}

impl Claim {
    /// Whether it is for one of these listeners.
    pub(super) fn is_listener_of(&self, cookies: &BTreeSet<u64>) -> bool {
        self.listens() && cookies.contains(&self.shadow.cookie)
    }

    fn listens(&self) -> bool {
        self.shadow.purpose == Purpose::Listener
    }
}

impl Shadow {
    /// Whether its packets can be taken from an interface.
    fn may_claim_on(&self, view: &View) -> bool {
        may_claim((self.transport, self.bound), view)
    }

    /// The addresses of an interface that its packets are taken from.
    fn addresses_on<'v>(&self, view: &'v View) -> impl Iterator<Item = LocalAddress> + use<'v> {
        self.keys_on(view).map(|key| key.local)
    }

    /// The keys of the socket on an interface.
    pub(super) fn keys_on<'v>(&self, view: &'v View) -> impl Iterator<Item = Key> + use<'v> {
        keys_of((self.transport, self.bound), view)
    }
}

/// Whether packets of a socket can be taken from an interface. Nobody sends several questions of DNS as one packet.
fn may_claim((transport, bound): (Transport, Bound), view: &View) -> bool {
    transport == Transport::Tcp || !view.merges_datagrams || bound.port == DNS
}

/// The keys of a socket on an interface.
fn keys_of((transport, bound): (Transport, Bound), view: &View) -> impl Iterator<Item = Key> + use<'_> {
    let locals = may_claim((transport, bound), view).then(|| bound.addresses_on(view)).into_iter().flatten();
    locals.map(move |local| Key { transport, port: bound.port, local })
}

#[cfg(test)]
mod tests {
    use steering::LocalAddress;

    use super::super::Scope;
    use super::*;

    const CLIENT: ClientId = ClientId(1);

    fn registry(merges_datagrams: &[bool]) -> Registry {
        let mut registry = Registry::default();
        for (link, &merges_datagrams) in (0..).zip(merges_datagrams) {
            let address = [192, 0, 2, link as u8 + 1].into();
            let addresses = [LocalAddress { address, vlan: Default::default() }].into();
            let view = View { index: u32::from(link) + 1, queues: 1, addresses, merges_datagrams };
            registry.on_attached(link, view, Instant::ZERO);
        }
        assert_eq!(registry.add_client(), CLIENT);
        registry
    }

    /// The interfaces on which a socket's packets are taken.
    fn claim(registry: &mut Registry, transport: Transport, port: u16) -> Result<Vec<LinkNumber>, Refusal> {
        claim_at(registry, Scope::Any { v4: true, v6: true }, transport, port)
    }

    fn claim_at(
        registry: &mut Registry,
        scope: Scope,
        transport: Transport,
        port: u16,
    ) -> Result<Vec<LinkNumber>, Refusal> {
        let bound = Bound { scope, port, device: None };
        let purpose = if transport == Transport::Udp { Purpose::Udp } else { Purpose::Listener };
        let shadow = Shadow { transport, purpose, bound, cookie: 5, owner: 0 };
        let id = registry.claim(CLIENT, shadow)?;
        Ok(registry.places_of((id, CLIENT)).into_iter().map(|(link, _)| link).collect())
    }

    #[test]
    fn datagrams_are_taken_where_each_comes_as_a_packet() {
        let mut one = registry(&[true]);
        assert_eq!(claim(&mut one, Transport::Udp, 443), Err(Refusal::MergedDatagrams));
        assert_eq!(claim(&mut one, Transport::Tcp, 443), Ok(vec![0]));
        assert_eq!(claim(&mut one, Transport::Udp, DNS), Ok(vec![0]), "nobody merges questions");
        let mut two = registry(&[true, false]);
        assert_eq!(claim(&mut two, Transport::Udp, 443), Ok(vec![1]), "the other one's are the kernel's");
        let at = |address: [u8; 4]| Scope::One(address.into());
        let first = claim_at(&mut two, at([192, 0, 2, 1]), Transport::Udp, 443);
        assert_eq!(first, Err(Refusal::MergedDatagrams), "there is no packet for it on the other");
        assert_eq!(claim_at(&mut two, at([192, 0, 2, 2]), Transport::Udp, 443), Ok(vec![1]));
    }
}
