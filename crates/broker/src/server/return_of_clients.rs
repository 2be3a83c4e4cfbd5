//! Clients of a killed broker, whose place this one has taken.
//!
//! The XDP programs have gone on, and the clients with them. They come back to the name of the killed broker, which is this one's now, and
//! say which queues they serve. That a queue is theirs shows the key that was noted when it was lent ([`device_xdp::QueueOwner`]).

use std::collections::BTreeSet;
use std::sync::Arc;

use clock::Instant;
use device_xdp::QueueOwner;
use steering::{Claim, ClaimTerms};

use super::actions::segments_clamped;
use super::broker::Broker;
use super::notice::Notice;
use crate::peer::Peer;
use crate::protocol::{Key, News, Options, Refusal};
use crate::registry::{ClientId, LinkNumber};

impl Broker {
    /// An interface was attached on which a killed broker left these claims, and owners of queues.
    pub(super) fn take_over_left(
        &mut self,
        link: LinkNumber,
        claims: &[(Claim, ClaimTerms)],
        owners: &[(u16, QueueOwner)],
        now: Instant,
    ) {
        if claims.is_empty() && owners.is_empty() {
            return;
        }
        let queues: Vec<u16> = owners.iter().map(|(queue, _)| *queue).collect();
        self.registry.on_left(link, claims, &queues, now);
        if let Some(succession) = self.succession.as_mut() {
            succession.note(owners.iter().map(|(_, owner)| owner.user));
        }
        let interface = self.port(link).map(|port| port.name.clone()).unwrap_or_default();
        let shared: BTreeSet<u16> =
            queues.iter().map(|number| self.registry.queue_of(link, *number)).collect();
        self.notices.push(Notice::TakenOver { interface, queues: shared.len() });
    }

    /// Finds queues whose owners have ended without coming back: nobody waits for these any more.
    pub(super) fn look_after_left(&mut self) {
        for port in &mut self.ports {
            let Some(open) = &mut port.open else { continue };
            for queue in self.registry.queues_left(port.link) {
                if open.path.is_free(queue) {
                    self.registry.on_left_gone(port.link, queue);
                }
            }
        }
    }

    /// Whether a process that does not descend from this one may be one of the killed broker's. Its parents are not known any more; its
    /// user is.
    pub(super) fn may_come_back(&self, peer: &Peer) -> bool {
        self.succession.as_ref().is_some_and(|it| peer.uid == 0 || it.knows(peer.uid))
    }

    /// A client says what it had, and has still.
    pub(super) fn take_back(
        &mut self,
        client: ClientId,
        key: Key,
        queues: &[(LinkNumber, Vec<u16>)],
        now: Instant,
    ) -> Result<(), Refusal> {
        if self.succession.is_none() || self.connections.values().any(|other| other.key == key) {
            return Err(Refusal::NotYours);
        }
        let shares = self.shared_with_anybody(key, queues, self.identify(client).is_none());
        if let Some(connection) = self.connections.get_mut(&client).filter(|_| shares) {
            connection.options = Arc::new(Options { share: true, ..Options::clone(&connection.options) });
        }
        // For memory that is lent anew: nobody comes to share what the killed broker lent.
        self.registry.set_identity(client, self.identify(client));
        let mut lost = Vec::new();
        for (link, served) in queues {
            let owners = self.port(*link).and_then(|port| port.open.as_ref()).map(|open| open.path.owners());
            let owners = owners.unwrap_or_default();
            let is_proven =
                |queue: &u16| owners.iter().any(|(it, owner)| it == queue && owner.secret == key.0);
            let is_whole = served.iter().all(is_proven)
                && self.registry.on_return(client, *link, served, now).len() == served.len();
            lost.extend((!is_whole).then_some(*link));
        }
        // A list without queues shows nothing.
        let shows = |(link, served): &(LinkNumber, Vec<u16>)| !lost.contains(link) && !served.is_empty();
        let is_proven = queues.iter().any(shows);
        let is_said = queues.iter().any(|(_, served)| !served.is_empty());
        let connection = self.connections.get_mut(&client).ok_or(Refusal::NotYours)?;
        if !is_proven && (is_said || connection.is_stranger()) {
            return Err(Refusal::NotYours);
        }
        connection.note_return(key, is_proven);
        connection.admit();
        self.bring_up_to_date(client, queues, &lost, now);
        self.show(client);
        Ok(())
    }

    /// Whether who has this key shared a queue as only `--share` lets programs do: with another user's, or as root, or as one that shares with nobody
    /// otherwise. Its own `sidestep run` would have said it, and may be gone; when the queue is opened anew, it is to share it as before.
    pub(super) fn shared_with_anybody(
        &self,
        key: Key,
        queues: &[(LinkNumber, Vec<u16>)],
        has_no_like: bool,
    ) -> bool {
        queues.iter().any(|(link, _)| {
            let port = self.ports.iter().find(|port| port.link == *link);
            let open = port.and_then(|port| port.open.as_ref());
            let owners = open.map(|open| open.path.owners()).unwrap_or_default();
            let queue_of = |number: u16| self.registry.queue_of(*link, number);
            let (own, others): (Vec<_>, Vec<_>) = owners.iter().partition(|(_, owner)| owner.secret == key.0);
            own.iter().any(|(place, owner)| {
                let mut beside = others.iter().filter(|(other, _)| queue_of(*other) == queue_of(*place));
                beside.any(|(_, other)| has_no_like || other.user != owner.user || owner.user == 0)
            })
        })
    }

    /// Tells a client that has come back what may have changed meanwhile.
    fn bring_up_to_date(
        &mut self,
        client: ClientId,
        queues: &[(LinkNumber, Vec<u16>)],
        lost: &[LinkNumber],
        now: Instant,
    ) {
        let mut news = Vec::new();
        for &(link, _) in queues {
            let port = self.ports.iter().find(|port| port.link == link);
            match port.and_then(|port| Some((port, port.open.as_ref()?))) {
                Some((port, open)) if !lost.contains(&link) => {
                    news.push(News::MtuChanged { link, mtu: open.mtu });
                    news.push(News::SourcesChanged { link, sources: port.sources().to_vec() });
                }
                _ => news.push(News::QueuesLost { link }),
            }
        }
        news.push(segments_clamped(self.clamps.clamps()));
        news.push(News::WaysChanged);
        news.into_iter().for_each(|news| self.tell(client, news, Vec::new(), now));
    }
}
