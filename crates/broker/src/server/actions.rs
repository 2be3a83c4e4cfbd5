//! Carries out the registry's actions, and handles changes of the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use clock::{Duration, Instant};
use control::sock_diag::{KernelSocket, tcp_connections, tcp_listeners, udp_sockets};
use control::{Change as KernelChange, NeighbourMove, NetlinkMonitor, SegmentClamp};
use device_xdp::XdpError;
use steering::Transport;

use super::broker::{Broker, Notice, token, watch};
use super::helpers::{Passed, close_all};
use super::port::{Change, Port};
use super::requests::ADDRESSES_MAX;
use crate::protocol::{ClaimId, Grant, News};
use crate::registry::{Action, ClientId, LinkNumber, Shadow};

/// How long until a queue is lent again that could not be: its last owner's socket is gone a moment after it was closed.
const BUSY_PAUSE: Duration = Duration::from_millis(20);
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// Lists sockets of the kernel's.
pub(super) type List = fn() -> std::io::Result<Vec<KernelSocket>>;

impl Broker {
    /// Reads what the kernel told, and tells who knows ways if they may be others now. After an error of the socket itself a new one
    /// reads everything again.
    pub(super) fn read_news(&mut self, now: Instant) {
        let news: Result<Vec<KernelChange>, _> = self.monitor.on_readable();
        // There is news of neighbours all the time; moves are reported separately.
        let is_of_ways = |change: &KernelChange| !matches!(change, KernelChange::Neighbours(_));
        let ways_changed = news.as_ref().map_or(true, |changes| changes.iter().any(is_of_ways));
        if ways_changed {
            self.ports.iter_mut().for_each(Port::note_news);
            self.tell_ways_changed(now);
        }
        if news.is_err()
            && let Ok(monitor) = NetlinkMonitor::new()
        {
            self.monitor = monitor; // Closing the old one ends that it is watched.
            let flags = rustix::event::epoll::EventFlags::IN;
            let _ = watch(&self.epoll, self.monitor.fd(), token::NETLINK, flags); // Ticks remain.
        }
        self.follow_segment_clamps(ways_changed, now);
    }

    /// Tells everybody of segment sizes by route, if they are others now; `ways_changed` says whether they may be.
    pub(super) fn follow_segment_clamps(&mut self, ways_changed: bool, now: Instant) {
        let changed = self.clamps.compare(self.monitor.mirror(), ways_changed);
        if let Some(news) = changed.map(segments_clamped) {
            self.tell_all(&news, now);
        }
    }

    /// Compares the interfaces with the kernel's, and informs all clients that are concerned.
    pub(super) fn follow_interfaces(&mut self, now: Instant) {
        for place in 0..self.ports.len() {
            let paths = self.paths.as_ref();
            let changes = self.ports[place].follow(paths, self.monitor.mirror(), now);
            changes.into_iter().for_each(|change| self.on_change(place as LinkNumber, change, now));
        }
    }

    fn on_change(&mut self, link: LinkNumber, change: Change, now: Instant) {
        let Some(port) = self.ports.get(usize::from(link)) else { return };
        let interface = port.name.clone();
        let Some(open) = &port.open else {
            match change {
                Change::Detached => {
                    self.registry.on_detached(link);
                    self.notices.push(Notice::Detached { interface });
                }
                Change::Failed(error) => self.notices.push(Notice::Failed { interface, error }),
                _ => {}
            }
            return;
        };
        match change {
            Change::Attached => {
                let (view, mode) = (open.view.clone(), open.path.describe());
                self.registry.on_attached(link, view, now);
                self.notices.push(Notice::Attached { interface, mode });
            }
            Change::Queues => {
                self.registry.on_view(link, open.view.clone());
                self.tell_ways_changed(now); // Some may lead by queues of others.
            }
            Change::Addresses => {
                let addresses = open.addresses(ADDRESSES_MAX);
                self.registry.on_view(link, open.view.clone());
                self.settle_registry(now);
                self.tell_all(&News::AddressesChanged { link, addresses }, now);
            }
            Change::Outgrown => self.reopen(link, now),
            Change::Mtu => self.tell_all(&News::MtuChanged { link, mtu: open.mtu }, now),
            Change::Moved(NeighbourMove { old, new }) => {
                self.tell_all(&News::NeighbourMoved { link, old, new }, now);
            }
            Change::Sources => {
                let sources = port.sources().to_vec();
                self.tell_all(&News::SourcesChanged { link, sources }, now);
            }
            Change::Detached => self.registry.on_detached(link),
            Change::Failed(_) => {}
        }
    }

    /// Lends the queues of an interface again, with larger frames. Its program stays, and claimed TCP waits.
    fn reopen(&mut self, link: LinkNumber, now: Instant) {
        if self.registry.queues_lent(link) == 0 {
            return;
        }
        let Some(port) = self.port(link) else { return };
        let interface = port.name.clone();
        let begun = port.open.as_mut().map_or(Ok(()), |open| open.begin_reopening(now));
        self.notices.push(Notice::Outgrown { interface });
        if let Err(error) = begun {
            self.fail(link, &error);
        }
        self.registry.on_reopening(link);
        self.settle_registry(now); // Devices are given up before their MTU is another one.
    }

    fn end_reopening(&mut self, now: Instant) {
        for place in 0..self.ports.len() {
            let link = place as LinkNumber;
            let all_are_lent = !self.registry.is_reopening(link);
            let open = self.ports[place].open.as_mut();
            if let Some(Err(error)) = open.map(|open| open.end_reopening(all_are_lent, now)) {
                self.fail(link, &error);
            }
        }
    }

    /// Does all that is due.
    pub(super) fn settle(&mut self, now: Instant) {
        self.settle_registry(now);
        self.answer_routes(now);
        for question in self.questions.expire(now, None) {
            self.ask_on(question, now);
        }
        self.end_what_is_overdue(now);
        self.settle_registry(now); // Somebody may have been disconnected.
        self.end_reopening(now);
        close_all(self.doomed.drain(..));
    }

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
        let zero_copy = self.zero_copy || self.is_as_privileged(client);
        let Some(port) = self.port(link) else { return };
        let Some(open) = &mut port.open else { return };
        match open.path.lend(&queues, open.frame_size, zero_copy) {
            Ok(lent) => {
                let is_kept = open.path.is_kept();
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
                let is_busy = matches!(error, XdpError::QueueBusy { .. });
                self.registry.on_not_lent(
                    link,
                    &queues,
                    if is_busy { BUSY_PAUSE } else { FAILURE_PAUSE },
                    now,
                );
                if !is_busy {
                    self.fail(link, &error);
                }
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
            let epoch = self.registry.epoch(local.port());
            self.ports.iter_mut().for_each(|port| port.add_kernel_flow(*local, *remote, epoch));
        }
        let found = connections.map(|found| found.iter().map(|it| it.local.port()).collect::<BTreeSet<_>>());
        let is_found = |port| found.as_ref().map_or(true, |found| found.contains(port));
        let found: Vec<(u16, bool)> = local_ports.iter().map(|port| (*port, is_found(port))).collect();
        self.registry.on_looked(&found, now);
    }

    fn fail(&mut self, link: LinkNumber, error: &XdpError) {
        let Some(port) = self.port(link) else { return };
        let interface = port.name.clone();
        if let Some(error) = port.fail(error) {
            self.notices.push(Notice::Failed { interface, error });
        }
    }

    /// Finds claims whose sockets were closed, or bound elsewhere, without a message: other sockets may bind their ports now.
    pub(super) fn look_after_shadows(&mut self, now: Instant) {
        for (transport, list) in [(Transport::Tcp, tcp_listeners as List), (Transport::Udp, udp_sockets)] {
            if !self.registry.has_claims_of(transport) {
                continue;
            }
            let Ok(alive) = list() else { continue };
            let places: BTreeMap<u64, SocketAddr> =
                alive.iter().map(|socket| (socket.cookie, socket.local)).collect();
            let is_gone =
                |shadow: &Shadow| places.get(&shadow.cookie).is_none_or(|local| !shadow.bound.is_at(*local));
            let own = self.registry.shadows().filter(|(_, shadow)| shadow.transport == transport);
            let mut gone: Vec<ClaimId> =
                own.filter(|(_, shadow)| is_gone(shadow)).map(|(claim, _)| claim).collect();
            if transport == Transport::Tcp {
                let listeners: Vec<_> = alive.iter().map(|it| (it.cookie, it.local.port())).collect();
                gone.extend(self.registry.deaf_to(&listeners));
            }
            gone.into_iter().for_each(|claim| self.registry.on_shadow_gone(claim, now));
        }
    }
}

/// Segment sizes by route, for clients.
fn segments_clamped(clamps: &[SegmentClamp]) -> News {
    let told = |clamp: &SegmentClamp| (clamp.network, clamp.prefix_len, clamp.mss);
    News::SegmentsClamped { clamps: clamps.iter().map(told).collect() }
}
