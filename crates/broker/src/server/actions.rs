//! Carries out the registry's actions, and looks after the sockets behind claims.

use std::collections::{BTreeMap, BTreeSet};

use clock::{Duration, Instant};
use control::SegmentClamp;
use control::sock_diag::{KernelSocket, tcp_connections, tcp_listeners, udp_sockets};
use device_xdp::{QueueOwner, XdpError};
use steering::{QueueSet, Transport};

use super::broker::{ADDRESSES_MAX, Broker, List};
use super::helpers::Passed;
use super::look::Look;
use super::notice::Notice;
use super::shadow::bound_of;
use crate::protocol::{Grant, News};
use crate::registry::{Action, Bound, ClientId, Identity, LinkNumber};

/// How long until a queue is lent again that could not be: its last owner's socket is gone a moment after it was closed.
/// It grows by as much with each attempt, as the kernel may be slow, or the queue another program's.
const BUSY_PAUSE: Duration = Duration::from_millis(20);
/// Attempts behind which it grows no more.
const BUSY_ATTEMPTS: u32 = 50;
const FAILURE_PAUSE: Duration = Duration::from_secs(1);
/// Claims that are looked at in one turn: less than a millisecond.
const LOOKED_AT_ONCE: usize = 1 << 11;

impl Broker {
    /// Does what the registry wants.
    pub(super) fn settle_registry(&mut self, now: Instant) {
        while let Some(action) = self.registry.poll(now) {
            match action {
                Action::Lend { client, link, queues } => self.lend(client, link, queues, now),
                Action::TellLost { client, link } => {
                    self.tell(client, News::QueuesLost { link }, Vec::new(), now);
                }
                Action::Look { ports } => self.look(&ports, now),
                Action::Withdraw { .. } | Action::PutClaim { .. } | Action::RemoveClaim { .. } => {
                    self.steer(action);
                }
            }
        }
    }

    fn lend(&mut self, client: ClientId, link: LinkNumber, queues: Vec<u16>, now: Instant) {
        let Some(identity) = self.confirm_identity(client) else {
            return self.registry.on_not_lent(link, &queues, BUSY_PAUSE, now); // It was dealt to somebody else.
        };
        let zero_copy = self.zero_copy || self.is_as_privileged(client);
        let Some(connection) = self.connections.get(&client) else { return };
        let owner = QueueOwner { secret: connection.key.0, user: connection.user };
        let shared =
            queues.first().and_then(|number| Some((self.registry.shared_queue(link, *number)?, *number)));
        let Some(port) = self.port(link) else { return };
        let Some(open) = &mut port.open else { return };
        let lent = match shared {
            Some(place) => open.path.share(place, open.frame_size, zero_copy, owner, identity),
            None => open.path.lend(&queues, open.frame_size, zero_copy, owner),
        };
        let is_busy = matches!(lent, Err(XdpError::QueueBusy { .. }));
        open.attempts = if is_busy { open.attempts.saturating_add(1) } else { 0 };
        let busy_pause = BUSY_PAUSE * open.attempts.min(BUSY_ATTEMPTS);
        match lent {
            Ok(lent) => {
                let is_kept = open.path.is_kept();
                self.registry.on_lent(link, &queues);
                let Some(port) = self.ports.iter().find(|port| port.link == link) else { return };
                let Some(interface) = port.interface(ADDRESSES_MAX) else { return };
                let sources = port.sources().to_vec();
                let all_queues_yours = self.registry.has_all_queues(client, link);
                let grant =
                    Grant { interface, queues, all_queues_yours, is_kept, sources, layout: lent.layout };
                let fds = std::iter::once(lent.memory).chain(lent.sockets).map(Passed::Own).collect();
                self.tell(client, News::QueueGranted(grant), fds, now);
                if !self.clamps.clamps().is_empty() {
                    self.tell(client, segments_clamped(self.clamps.clamps()), Vec::new(), now);
                }
                // Packets of theirs come when the client has said that it is ready.
                self.offer_handshakes(client, now);
            }
            Err(error) => {
                let is_soon = is_busy && !self.registry.is_left(link, &queues);
                let pause = if is_soon { busy_pause } else { FAILURE_PAUSE };
                self.registry.on_not_lent(link, &queues, pause, now);
                // A queue that is not shared is as good as one that is taken.
                if !is_busy && !matches!(error, XdpError::NotShared { .. }) {
                    self.fail(link, &error);
                }
            }
        }
    }

    /// With whom a client may share what it is lent now; `None` if it is somebody else than when that was dealt to it. Memory that it has already
    /// was lent to who it was then: it shares no other as somebody else.
    fn confirm_identity(&mut self, client: ClientId) -> Option<Option<Identity>> {
        let (noted, identity) = (self.registry.identity(client), self.identify(client));
        if noted == identity {
            return Some(identity);
        }
        if !self.serves_queues(client) {
            self.registry.set_identity(client, identity);
            return None;
        }
        self.registry.set_identity(client, None);
        Some(None)
    }

    fn serves_queues(&self, client: ClientId) -> bool {
        self.ports.iter().any(|port| self.registry.queues_of(client, port.link) != QueueSet::NONE)
    }

    /// Finds processes that wait for a queue and have become somebody who may share one; and newcomers that are none any more.
    pub(super) fn look_after_sharers(&mut self, now: Instant) {
        let waiting: Vec<ClientId> =
            self.connections.keys().copied().filter(|client| self.registry.waits(*client)).collect();
        for client in waiting {
            self.registry.set_identity(client, self.identify(client));
        }
        for link in self.ports.iter().map(|port| port.link).collect::<Vec<_>>() {
            let open = self.port(link).and_then(|port| port.open.as_mut());
            if let Some(Err(error)) = open.map(|open| open.path.settle_sharers(now)) {
                self.fail(link, &error);
            }
        }
    }

    fn steer(&mut self, action: Action) {
        let (link, outcome) = match action {
            Action::Withdraw { link, queues } => (link, self.withdraw(link, &queues)),
            Action::PutClaim { link, claim, terms } => {
                let open = self.port(link).and_then(|port| port.open.as_mut());
                (link, open.map_or(Ok(()), |open| open.path.put_claim(claim, terms)))
            }
            Action::RemoveClaim { link, claim } => {
                let open = self.port(link).and_then(|port| port.open.as_mut());
                (link, open.map_or(Ok(()), |open| open.path.remove_claim(claim)))
            }
            Action::Lend { .. } | Action::TellLost { .. } | Action::Look { .. } => return,
        };
        if let Err(error) = outcome {
            self.fail(link, &error);
        }
    }

    fn withdraw(&mut self, link: LinkNumber, queues: &[u16]) -> Result<(), XdpError> {
        let Some(open) = self.port(link).and_then(|port| port.open.as_mut()) else { return Ok(()) };
        queues.iter().try_for_each(|queue| open.path.remove_queue(*queue))
    }

    /// Notes the connections that the kernel has on these ports.
    fn look(&mut self, local_ports: &[u16], now: Instant) {
        let connections = tcp_connections(local_ports);
        for KernelSocket { local, remote, .. } in connections.iter().flatten() {
            let marks = self.registry.marks(local.port());
            for port in &mut self.ports {
                port.add_kernel_flow(*local, *remote, marks);
            }
        }
        let found = connections.map(|found| found.iter().map(|it| it.local.port()).collect::<BTreeSet<_>>());
        let is_found = |port| found.as_ref().map_or(true, |found| found.contains(port));
        let found: Vec<(u16, bool)> = local_ports.iter().map(|port| (*port, is_found(port))).collect();
        self.registry.on_looked(&found, now);
    }

    pub(super) fn fail(&mut self, link: LinkNumber, error: &XdpError) {
        let Some(port) = self.port(link) else { return };
        let interface = port.name.clone();
        if let Some(error) = port.fail(error) {
            self.notices.push(Notice::Failed { interface, error });
        }
    }

    /// Begins to look for claims whose sockets were closed, or bound elsewhere, without a message: other sockets may bind their ports now.
    pub(super) fn look_after_shadows(&mut self) {
        if self.look.is_some() {
            return;
        }
        let mut places = BTreeMap::new();
        let mut unheard = Vec::new();
        for (transport, list) in [(Transport::Tcp, tcp_listeners as List), (Transport::Udp, udp_sockets)] {
            if !self.registry.has_claims_of(transport) {
                continue;
            }
            match list() {
                Ok(alive) => {
                    self.note_sockets(transport, &alive);
                    places.extend(alive.iter().map(|socket| (socket.cookie, socket.local)));
                }
                Err(_) => unheard.push(transport),
            }
        }
        self.look = Some(Look { places, unheard, until: self.registry.last_claim(), last: None });
    }

    /// Looks at some claims more, so that whoever wants something does not wait for all.
    pub(super) fn go_on_looking(&mut self, now: Instant) {
        let Some(mut look) = self.look.take() else { return };
        let mut gone = Vec::new();
        let mut looked_at = 0;
        for (claim, shadow) in self.registry.shadows(look.last, LOOKED_AT_ONCE) {
            if claim.0 > look.until {
                break; // Its socket may be younger than the list.
            }
            (look.last, looked_at) = (Some(claim), looked_at + 1);
            if shadow.is_some_and(|shadow| look.is_gone(shadow)) {
                gone.push(claim);
            }
        }
        gone.into_iter().for_each(|claim| self.registry.on_shadow_gone(claim, now));
        self.look = (looked_at == LOOKED_AT_ONCE).then_some(look);
    }

    /// Notes sockets of the kernel's at claimed ports.
    fn note_sockets(&mut self, transport: Transport, sockets: &[KernelSocket]) {
        let noted = self.registry.ports_noted(transport).into_iter().map(|port| (port, Vec::new()));
        let mut by_port: BTreeMap<u16, Vec<(u64, Bound)>> = noted.collect();
        let claimed = |(_, bound): &(u64, Bound)| self.registry.is_claimed(transport, bound.port);
        for (cookie, bound) in sockets.iter().filter_map(bound_of).filter(claimed) {
            by_port.entry(bound.port).or_default().push((cookie, bound));
        }
        for (port, sockets) in by_port {
            self.registry.note_sockets(transport, port, &sockets);
        }
    }
}

/// Segment sizes by route, for clients.
pub(super) fn segments_clamped(clamps: &[SegmentClamp]) -> News {
    let told = |clamp: &SegmentClamp| (clamp.network, clamp.prefix_len, clamp.mss);
    News::SegmentsClamped { clamps: clamps.iter().map(told).collect() }
}
