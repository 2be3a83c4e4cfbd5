//! Handshakes that were under way at a listener that closed. They are kept until a process with the same listener serves their
//! queue.
//!
//! A peer that has sent a SYN may need seconds for the rest on a bad path, longer than an ending process can wait. Meanwhile
//! no stack knows the connection, and the kernel would reset it. So the steering program drops its packets, which the peer sends
//! again, until the queue has its next owner. That owner learns of the handshake before it gets packets.

use std::collections::BTreeSet;

use clock::{Duration, Instant};
use steering::{QueueSet, Transport};

use super::broker::Broker;
use super::shares::{User, has_room};
use crate::protocol::{Handshake, News, Refusal, SYN_MAX};
use crate::registry::ClientId;

/// How long to wait for a process that continues a handshake.
const PATIENCE: Duration = Duration::from_secs(3);
/// How many are kept at most, of which one user has its share: see [`has_room`].
const HANDSHAKES_MAX: usize = 256;

/// Those that are kept, the oldest first.
#[derive(Default)]
pub(super) struct Handshakes(Vec<Kept>);

/// One of them.
struct Kept {
    handshake: Handshake,
    /// Whose process handed it on.
    user: User,
    /// Queues that its packets may come by.
    queues: QueueSet,
    /// The kernel's numbers of the listeners that it may have begun at.
    listeners: BTreeSet<u64>,
    since: Instant,
    /// The clients that were told: if several get the queues, it is unknown which one has the peer's.
    told: Vec<ClientId>,
}

impl Handshakes {
    fn expire(&mut self, now: Instant) {
        self.0.retain(|kept| now < kept.since + PATIENCE);
    }
}

impl Broker {
    /// Keeps a handshake of a client that is about to close its listener.
    pub(super) fn keep_handshake(
        &mut self,
        client: ClientId,
        handshake: Handshake,
        now: Instant,
    ) -> Result<(), Refusal> {
        let Handshake { local, remote, link, .. } = handshake;
        if !self.registry.covers(client, Transport::Tcp, local) {
            return Err(Refusal::NoSuchClaim);
        }
        let (queues, listeners) =
            (self.registry.queues_owned(client, link), self.registry.listeners_at(client, local));
        if queues == QueueSet::NONE || listeners.is_empty() {
            return Err(Refusal::NotYours);
        }
        self.handshakes.expire(now);
        let is_long = handshake.saved_syn.as_ref().is_some_and(|syn| syn.len() > SYN_MAX);
        let user = self.user_of(client);
        if is_long || !has_room(HANDSHAKES_MAX, self.handshakes.0.iter().map(|kept| kept.user), user) {
            return Err(Refusal::TooMany);
        }
        let epoch = self.registry.epoch(local.port());
        if self.port(link).is_some_and(|port| !port.add_awaited_flow(local, remote, epoch)) {
            return Ok(()); // The peer has sent its SYN again, and the kernel has answered that.
        }
        self.registry.await_flow(local, now + PATIENCE, now);
        self.handshakes.0.push(Kept { handshake, user, queues, listeners, since: now, told: Vec::new() });
        Ok(())
    }

    /// Tells a client of those that came by its queues, at a listener that it has too.
    pub(super) fn offer_handshakes(&mut self, client: ClientId, now: Instant) {
        self.handshakes.expire(now);
        let registry = &self.registry;
        let is_its = |kept: &Kept| {
            let Handshake { local, link, .. } = kept.handshake;
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
