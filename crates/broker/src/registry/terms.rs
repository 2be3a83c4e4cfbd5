//! The terms of claims in the steering programs.

use clock::Instant;
use steering::{ClaimTerms, Marks, QueueSet, Transport};

use super::claims::keys_of;
use super::interface::{Interface, Key, KeyState};
use super::ports::MARKING;
use super::{Action, Claim, ClaimKey, ClientId, LinkNumber, Registry};
use crate::protocol::Purpose;

impl Registry {
    /// Puts the changes of the steering program before all other actions.
    pub(super) fn settle_claims(&mut self, now: Instant) {
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
            // What a killed broker took is taken, and the kernel's connections are known.
            true => QueueSet::from_bits((state.cleared.bits() | state.left.bits()) & wanted.bits()),
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
        let mut users =
            users.into_iter().flat_map(|state| &state.users).filter_map(|id| self.claims.get(*id));
        let shares = |claim: &Claim| claim.shadow.purpose == Purpose::Listener || claim.shadow.shares_port;
        key.transport == Transport::Tcp && users.any(shares)
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
        let is_held = self.queues_for(link, key) != QueueSet::NONE || state.left != QueueSet::NONE;
        if !is_held && !is_awaited {
            return None;
        }
        let queues = QueueSet::from_bits(state.cleared.bits() | state.left.bits());
        if key.transport == Transport::Udp {
            return Some(ClaimTerms {
                queues,
                kernel_new: false,
                kernel_some: false,
                marks: Marks::default(),
            });
        }
        let is_draining = |id: &ClaimKey| self.claims.get(*id).is_some_and(|claim| claim.draining);
        let is_draining = state.left_drained != QueueSet::NONE || state.users.iter().any(is_draining);
        let kernel_new = self.ports.is_marking(key.port) || is_draining;
        let kernel_some = kernel_new || is_awaited || self.ports.has_kernel_connections(key.port);
        Some(ClaimTerms { queues, kernel_new, kernel_some, marks: self.ports.marks(key.port) })
    }

    /// The queues of all clients that claim the key.
    fn queues_for(&self, link: LinkNumber, key: Key) -> QueueSet {
        let Some(interface) = self.interfaces.get(&link) else { return QueueSet::NONE };
        let users = interface.keys.get(&key).into_iter().flat_map(|state| &state.users);
        let clients = users.filter_map(|id| self.claims.get(*id)).map(|claim| claim.client);
        let bits = clients.fold(0, |bits, client| bits | interface.queues.served_by(client).bits());
        QueueSet::from_bits(bits)
    }

    pub(super) fn touch_client(&mut self, client: ClientId, link: LinkNumber) {
        let Some(interface) = self.interfaces.get(&link) else { return };
        let claims = self.clients.get(&client).into_iter().flatten();
        for claim in claims.filter_map(|id| self.claims.get(*id)) {
            let keys = keys_of(&claim.shadow, &interface.view);
            self.dirty.extend(keys.map(|key| (link, key)));
        }
    }

    pub(super) fn touch_port(&mut self, port: u16) {
        for (&link, interface) in &self.interfaces {
            let keys = interface.keys_of(Transport::Tcp, port);
            self.dirty.extend(keys.map(|key| (link, key)));
        }
    }
}
