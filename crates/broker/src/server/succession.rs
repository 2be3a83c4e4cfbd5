//! What a process leaves to the next one with the same listener: connections that wait to be accepted, and handshakes.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use clock::Instant;
use rustix::net::sockopt::set_socket_linger;
use steering::{QueueSet, Transport};
use transit::{Handshake, Hop, LinkId};

use super::broker::{Broker, List};
use super::handshakes::{HANDSHAKES_MAX, Kept, PATIENCE as HANDSHAKE_PATIENCE};
use super::helpers::{Passed, Theirs};
use super::orphans::{LOOK_AFTER, ORPHANS_MAX, Orphan, PATIENCE};
use super::outcome::{Outcome, done};
use super::shadow;
use crate::protocol::{ClaimId, FromBroker, News, Refusal, SYN_MAX};
use crate::registry::ClientId;
use crate::shares::has_room;

impl Broker {
    pub(super) fn examine_handed(
        &mut self,
        (client, id): (ClientId, u64),
        socket: Theirs,
        now: Instant,
    ) -> Outcome {
        let namespace = self.namespace;
        let look = move |socket: Theirs| {
            let ends = shadow::examine_connection(&socket, namespace)?;
            Ok((socket, ends))
        };
        type Found = Result<(Theirs, (SocketAddr, SocketAddr)), Refusal>;
        let then = move |broker: &mut Broker, found: Found, now: Instant| {
            let (socket, ends) = found?;
            done(broker.hand_over(client, socket, ends, now))
        };
        self.set_aside((client, id), move |_| look(socket), then, now)
    }

    /// Another program takes the connection for one that came to its listener: what is none, or came to none of the client's own, is
    /// not let through.
    fn hand_over(
        &mut self,
        client: ClientId,
        socket: Theirs,
        (local, remote): (SocketAddr, SocketAddr),
        now: Instant,
    ) -> Result<(), Refusal> {
        if !self.registry.has_listened(client, local) {
            return Err(Refusal::NoSuchClaim);
        }
        let heir = self.registry.heir(client, local).filter(|(heir, _)| self.is_patient(*heir));
        let Some((heir, claim)) = heir else {
            return self.keep_orphan(client, socket, (local, remote), now).map_err(|_| Refusal::Nobody);
        };
        let listeners = self.registry.listeners_at(client, local);
        self.give_to_heir((heir, claim), listeners, socket, (local, remote));
        Ok(())
    }

    /// The client accepts the connection as one that came to one of these listeners. It is heard again when it knows: it may be about to go, and asks whether
    /// there is anything for it yet. Clients of other users are not kept waiting.
    fn give_to_heir(
        &mut self,
        (heir, claim): (ClientId, ClaimId),
        listeners: BTreeSet<u64>,
        socket: Theirs,
        (local, remote): (SocketAddr, SocketAddr),
    ) {
        let is_of_its_user = socket.user() == self.user_of(heir);
        if is_of_its_user {
            *self.gives.entry(heir).or_default() += 1;
            self.set_interest(heir);
        }
        let news = News::Adopt { claim, local, remote };
        let message = FromBroker::AheadOfNews(news.clone());
        self.send_and_close((heir, message), socket, move |broker, unsent, now| {
            match unsent.into_iter().next() {
                // It is gone by now, or does not read what it is told.
                Some(Passed::Theirs(socket)) if !broker.is_patient(heir) => {
                    let kept = broker.keep_orphan_at(listeners, socket, (local, remote), now);
                    kept.unwrap_or_else(|socket| socket.have_done(reset));
                }
                unsent => broker.tell(heir, news, unsent.into_iter().collect(), now),
            }
            if is_of_its_user {
                broker.end_give(heir, now);
            }
        });
    }

    fn end_give(&mut self, heir: ClientId, now: Instant) {
        if let Some(count) = self.gives.get_mut(&heir) {
            *count -= 1;
            if *count == 0 {
                self.gives.remove(&heir);
                self.note(heir, Ok(()), now);
                self.read_the_rest(heir, now);
            }
        }
    }

    /// Keeps a connection for a client that comes after `from`; returns it if there cannot be one.
    pub(super) fn keep_orphan(
        &mut self,
        from: ClientId,
        socket: Theirs,
        (local, remote): (SocketAddr, SocketAddr),
        now: Instant,
    ) -> Result<(), Theirs> {
        self.keep_orphan_at(self.registry.listeners_at(from, local), socket, (local, remote), now)
    }

    /// The same for whoever has one of these listeners.
    fn keep_orphan_at(
        &mut self,
        listeners: BTreeSet<u64>,
        socket: Theirs,
        (local, remote): (SocketAddr, SocketAddr),
        now: Instant,
    ) -> Result<(), Theirs> {
        let users = self.orphans.iter().map(|orphan| orphan.socket.user());
        if listeners.is_empty() || !has_room(ORPHANS_MAX, users, socket.user()) {
            return Err(socket);
        }
        let (until, look_at) = (now + PATIENCE, Some(now + LOOK_AFTER));
        self.orphans.push(Orphan { socket, local, remote, listeners, until, look_at });
        Ok(())
    }

    /// Gives them to the clients that have come, and gives those up for which no client can come.
    pub(super) fn settle_orphans(&mut self, list: List, now: Instant) {
        let alive = self.list_for_orphans(list, now);
        for mut orphan in std::mem::take(&mut self.orphans) {
            let heir = self.registry.claimant(&orphan.listeners, orphan.local);
            if let Some((heir, claim)) = heir.filter(|(heir, _)| self.is_patient(*heir)) {
                let Orphan { socket, local, remote, listeners, .. } = orphan;
                self.give_to_heir((heir, claim), listeners, socket, (local, remote));
                continue;
            }
            let is_time = orphan.look_at.is_some_and(|at| now >= at);
            let is_lost = alive.as_ref().is_some_and(|alive| alive.is_disjoint(&orphan.listeners));
            if now >= orphan.until || is_time && is_lost {
                // As the kernel does with connections that wait at a listener when it is closed.
                orphan.socket.have_done(reset);
                continue;
            }
            orphan.look_at = orphan.look_at.filter(|_| !is_time);
            self.orphans.push(orphan);
        }
    }

    /// The listeners that there are, if it is time to look for some: once for all. If the kernel does not tell, there may be any.
    fn list_for_orphans(&self, list: List, now: Instant) -> Option<BTreeSet<u64>> {
        let is_time = |orphan: &Orphan| orphan.look_at.is_some_and(|at| now >= at);
        let alive = self.orphans.iter().any(is_time).then(list)?.ok()?;
        Some(alive.iter().map(|socket| socket.cookie).collect())
    }

    /// When to look at them though nothing happened.
    pub(super) fn orphans_due(&self) -> Option<Instant> {
        self.orphans.iter().map(|orphan| orphan.look_at.unwrap_or(orphan.until)).min()
    }

    /// Keeps a handshake of a client that is about to close its listener.
    pub(super) fn keep_handshake(
        &mut self,
        client: ClientId,
        handshake: Handshake,
        now: Instant,
    ) -> Result<(), Refusal> {
        let Handshake { local, remote, hop: Hop { link: LinkId(link), .. }, .. } = handshake;
        if !self.registry.covers(client, Transport::Tcp, local) {
            return Err(Refusal::NoSuchClaim);
        }
        let (queues, listeners) =
            (self.registry.queues_met(client, link), self.registry.listeners_at(client, local));
        if queues == QueueSet::NONE || listeners.is_empty() {
            return Err(Refusal::NotYours);
        }
        self.handshakes.expire(now);
        let is_long = handshake.saved_syn.as_ref().is_some_and(|syn| syn.len() > SYN_MAX);
        let user = self.user_of(client);
        if is_long || !has_room(HANDSHAKES_MAX, self.handshakes.0.iter().map(|kept| kept.user), user) {
            return Err(Refusal::TooMany);
        }
        let marks = self.registry.marks(local.port());
        if self.port(link).is_some_and(|port| !port.add_awaited_flow(local, remote, marks)) {
            return Ok(()); // The peer has sent its SYN again, and the kernel has answered that.
        }
        self.registry.await_flow(local, now + HANDSHAKE_PATIENCE, now);
        self.handshakes.0.push(Kept { handshake, user, queues, listeners, since: now, told: Vec::new() });
        if let Some(port) = self.port(link) {
            port.forget_shared_flow(local, remote);
        }
        // Who shares the queue gets its packets as soon as this client is gone.
        for sharer in self.registry.siblings(client, local) {
            self.offer_handshakes(sharer, now);
        }
        Ok(())
    }

    /// Tells a client of those that came by its queues, at a listener that it has too.
    pub(super) fn offer_handshakes(&mut self, client: ClientId, now: Instant) {
        self.handshakes.expire(now);
        let registry = &self.registry;
        let is_its = |kept: &Kept| {
            let Handshake { local, hop: Hop { link: LinkId(link), .. }, .. } = kept.handshake;
            let owned = registry.queues_owned(client, link).bits();
            owned & kept.queues.bits() != 0 && registry.has_listener(client, &kept.listeners, local)
        };
        let mut offered = Vec::new();
        for kept in self.handshakes.0.iter_mut().filter(|kept| !kept.told.contains(&client) && is_its(kept)) {
            kept.told.push(client);
            let waited = now.since(kept.since).as_nanos() / 1000;
            let age_us = kept.handshake.age_us.saturating_add(waited);
            offered.push(Handshake { age_us, ..kept.handshake.clone() });
        }
        for handshake in offered {
            self.tell(client, News::Handshake(handshake), Vec::new(), now);
        }
    }
}

/// Sets a socket's option under its lock, and closes it: a helper's work.
fn reset(socket: Theirs) {
    let _ = set_socket_linger(&socket, Some(std::time::Duration::ZERO)); // What is no connection any more needs none.
    socket.close();
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::super::tests::broker;
    use super::*;
    use crate::protocol::Purpose;
    use crate::registry::{Bound, Scope, Shadow};

    #[test]
    fn one_users_connections_leave_room_for_those_of_others() {
        let (mut broker, now) = (broker(), Instant::from_nanos(1));
        let (local, remote) = ("192.0.2.1:80".parse().unwrap(), "192.0.2.2:4000".parse().unwrap());
        let from = broker.registry.add_client();
        let bound = Bound { scope: Scope::Any { v4: true, v6: true }, port: 80, device: None };
        let (transport, purpose) = (steering::Transport::Tcp, Purpose::Listener);
        let shadow = Shadow { transport, purpose, bound, cookie: 7, owner: 0 };
        broker.registry.claim(from, shadow).unwrap();
        let mut is_kept = |user| {
            let socket = Theirs::new(std::fs::File::open("/dev/null").unwrap().into(), user, &broker.helpers);
            broker.keep_orphan(from, socket, (local, remote), now).is_ok()
        };
        assert_eq!((0..ORPHANS_MAX).take_while(|_| is_kept(1)).count(), ORPHANS_MAX / 2);
        assert!(is_kept(2));
    }

    #[test]
    fn the_kernel_is_asked_once_for_all_who_wait() {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        let list: List = || {
            ASKED.fetch_add(1, Relaxed);
            Ok(Vec::new())
        };
        let (mut broker, now) = (broker(), Instant::from_nanos(1));
        let (local, remote) = ("192.0.2.1:80".parse().unwrap(), "192.0.2.2:4000".parse().unwrap());
        for cookie in 0..ORPHANS_MAX as u64 {
            let socket = std::fs::File::open("/dev/null").unwrap().into();
            let socket = Theirs::new(socket, 0, &broker.helpers);
            let (until, look_at) = (now + PATIENCE, Some(now + LOOK_AFTER));
            let listeners = BTreeSet::from([cookie]);
            broker.orphans.push(Orphan { socket, local, remote, listeners, until, look_at });
        }
        broker.settle_orphans(list, now);
        assert_eq!((broker.orphans.len(), ASKED.load(Relaxed)), (ORPHANS_MAX, 0), "it is not time yet");
        broker.settle_orphans(list, now + LOOK_AFTER);
        assert_eq!((broker.orphans.len(), ASKED.load(Relaxed)), (0, 1));
    }
}
