//! The terms of claims in the steering programs.

use clock::Instant;
use steering::{ClaimTerms, Marks, QueueSet, Transport};

use super::claims::Likeness;
use super::interface::{Interface, Key, KeyState};
use super::ports::MARKING;
use super::{Action, Bound, ClientId, LinkNumber, Registry};
use crate::protocol::Purpose;

/// The queues of those who have claimed a key.
struct Takers {
    queues: QueueSet,
    /// Of those that get connections that begin.
    listening: QueueSet,
}

/// Nobody.
impl Default for Takers {
    fn default() -> Takers {
        Takers { queues: QueueSet::NONE, listening: QueueSet::NONE }
    }
}

impl Registry {
    /// Puts the changes of the steering program before all other actions.
    pub(super) fn settle_claims(&mut self, now: Instant) {
        for (link, key) in self.dirty.clone() {
            self.mark_gain(link, key, now);
            self.note_heard(link, key, now);
        }
        let dirty = std::mem::take(&mut self.dirty);
        let told: Vec<Action> = dirty.into_iter().filter_map(|(link, key)| self.tell(link, key)).collect();
        told.into_iter().rev().for_each(|action| self.actions.push_front(action));
    }

    /// Where a claim takes hold of a queue on which the kernel may have connections, these are looked for first.
    fn mark_gain(&mut self, link: LinkNumber, key: Key, now: Instant) {
        let wanted = self.takers(link, key).queues;
        let is_shared = self.is_shared(link, key);
        let Some(state) = self.key_mut(link, key) else { return };
        state.cleared = match is_shared {
            // What a killed broker took is taken, and the kernel's connections are known.
            true => QueueSet::from_bits((state.cleared.bits() | state.left.bits()) & wanted.bits()),
            false => wanted,
        };
        if state.cleared == wanted {
            state.marked_at = None;
        } else {
            state.marked_at.get_or_insert(now);
            self.ports.mark(key.port, now);
            self.touch_port(key.transport, key.port);
        }
    }

    /// Where somebody will listen before whom a listener of the kernel's went up to now, that has connections of which the steering program has
    /// noted the flows.
    fn note_heard(&mut self, link: LinkNumber, key: Key, now: Instant) {
        let interface = self.interfaces.get(&link);
        let told = interface.and_then(|interface| interface.keys.get(&key)?.told);
        let (Some(told), Some(next)) = (told, self.terms_for(link, key)) else { return };
        if told.deaf().bits() & next.listening.bits() != 0 && !next.kernel_some {
            self.ports.note_kernel_connections(key.port, now);
            self.touch_port(key.transport, key.port);
        }
    }

    /// Whether the kernel may have connections from the same address and port.
    fn is_shared(&self, link: LinkNumber, key: Key) -> bool {
        let listens = |user: &Likeness| user.purpose == Purpose::Listener;
        key.transport == Transport::Tcp && self.users_of(link, key).any(listens)
    }

    /// The kernel's connections on this port are known: all of what was marked for long enough.
    pub(super) fn clear(&mut self, port: u16, now: Instant) {
        let links = self.interfaces.iter();
        let keys: Vec<(LinkNumber, Key)> = links
            .flat_map(|(link, interface)| {
                interface.keys_of(Transport::Tcp, port).map(move |key| (*link, key))
            })
            .collect();
        for (link, key) in keys {
            let wanted = self.takers(link, key).queues;
            let Some(state) = self.key_mut(link, key) else { continue };
            if state.marked_at.is_some_and(|since| now >= since + MARKING) {
                state.cleared = wanted;
            }
        }
    }

    fn key_mut(&mut self, link: LinkNumber, key: Key) -> Option<&mut KeyState> {
        self.interfaces.get_mut(&link)?.keys.get_mut(&key)
    }

    /// The terms of a key, if they differ from the latest ones.
    fn tell(&mut self, link: LinkNumber, key: Key) -> Option<Action> {
        let terms = self.terms_for(link, key);
        let interface = self.interfaces.get_mut(&link)?;
        let state = interface.keys.get_mut(&key)?;
        let before = std::mem::replace(&mut state.told, terms);
        let is_awaited = key.transport == Transport::Tcp && self.ports.is_awaited(key.port);
        if state.users.is_empty() && state.left == QueueSet::NONE && !is_awaited {
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

    pub(super) fn forget_unused_port(&mut self, port: u16) {
        if !self.is_used(port) {
            self.ports.forget(port);
        }
    }

    /// Whether anything of this TCP port is claimed, or was by a killed broker's clients.
    pub(super) fn is_used(&self, port: u16) -> bool {
        let is_used = |interface: &Interface| interface.keys_of(Transport::Tcp, port).next().is_some();
        self.interfaces.values().any(is_used)
    }

    /// `None`: not to be claimed.
    fn terms_for(&self, link: LinkNumber, key: Key) -> Option<ClaimTerms> {
        let is_awaited = key.transport == Transport::Tcp && self.ports.is_awaited(key.port);
        let state = self.interfaces.get(&link)?.keys.get(&key)?;
        let takers = self.takers(link, key);
        let is_held = takers.queues != QueueSet::NONE || state.left != QueueSet::NONE;
        if !is_held && !is_awaited {
            return None;
        }
        let queues = QueueSet::from_bits(state.cleared.bits() | state.left.bits());
        if key.transport == Transport::Udp {
            let (listening, marks) = (queues, Marks::default());
            return Some(ClaimTerms { queues, listening, marks, ..ClaimTerms::default() });
        }
        let listening = queues.bits() & (takers.listening.bits() | state.left_listening.bits());
        let listening = QueueSet::from_bits(listening);
        let is_draining = |user: &Likeness| self.alike.get(user).is_some_and(|alike| alike.draining > 0);
        let is_draining = state.left_drained != QueueSet::NONE || state.users.iter().any(is_draining);
        let kernel_new = self.ports.is_marking(key.port) || is_draining;
        let kernel_some = kernel_new || is_awaited || self.ports.has_kernel_connections(key.port);
        let marks = self.ports.marks(key.port);
        Some(ClaimTerms { queues, listening, kernel_new, kernel_some, marks })
    }

    /// Who gets what comes to a key. A connection that begins, and a datagram, is for those sockets alone that match it best; a segment of a
    /// connection that there is, for any that has the port. At an address that is away nothing begins.
    fn takers(&self, link: LinkNumber, key: Key) -> Takers {
        let Some(interface) = self.interfaces.get(&link) else { return Takers::default() };
        let index = interface.view.index;
        let match_of = |bound: &Bound| bound.match_of(index, key.local);
        let listens = |user: &&Likeness| user.purpose != Purpose::Outgoing;
        let is_open =
            |user: &&Likeness| self.alike.get(*user).is_some_and(|alike| alike.count > alike.draining);
        let listeners = || self.users_of(link, key).filter(listens);
        let open = listeners().filter(is_open).filter_map(|user| match_of(&user.bound));
        let unclaimed = self.unclaimed.get(&(key.transport, key.port)).into_iter().flatten();
        let best = open.chain(unclaimed.filter_map(match_of)).max();
        let queues_of = |client: ClientId| interface.queues.served_by(client).bits();
        let is_away = interface.away.contains_key(&key.local);
        let takers = listeners().filter(|user| !is_away && match_of(&user.bound) >= best);
        let listening = takers.fold(0, |bits, user| bits | queues_of(user.client));
        let queues = match key.transport {
            Transport::Udp => listening,
            Transport::Tcp => self.users_of(link, key).fold(0, |bits, user| bits | queues_of(user.client)),
        };
        Takers { queues: QueueSet::from_bits(queues), listening: QueueSet::from_bits(listening) }
    }

    fn users_of(&self, link: LinkNumber, key: Key) -> impl Iterator<Item = &Likeness> + '_ {
        let state = self.interfaces.get(&link).and_then(|interface| interface.keys.get(&key));
        state.into_iter().flat_map(|state| &state.users)
    }

    pub(super) fn touch_client(&mut self, client: ClientId, link: LinkNumber) {
        let Some(interface) = self.interfaces.get(&link) else { return };
        let claims = self.clients.get(&client).into_iter().flatten();
        for claim in claims.filter_map(|id| self.claims.get(*id)) {
            let keys = claim.shadow.keys_on(&interface.view);
            self.dirty.extend(keys.map(|key| (link, key)));
        }
    }

    pub(super) fn touch_port(&mut self, transport: Transport, port: u16) {
        for (&link, interface) in &self.interfaces {
            let keys = interface.keys_of(transport, port);
            self.dirty.extend(keys.map(|key| (link, key)));
        }
    }
}
