//! Everything leaves: all connections of a port or of the process, and then its queues.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use clock::Instant;
use stack::ConnectionId;
use stack::tcp::Detached;
use transit::SocketKind;

use crate::descriptors::fd_table::Entry;
use crate::descriptors::internal::close;
use crate::ids::SocketId;
use crate::kinship::Ends;
use crate::moves::to_kernel::{NOT_YET, Terms, WaitsAgain};
use crate::process::State;
use crate::queue::ended::LISTENS_ANEW;
use crate::queue::{Ended, Runtime};
use crate::socket::place::{Happening, Step};
use crate::socket::settings::Settings;

/// Bursts that leave at most before a device is closed.
const FLUSHES_MAX: usize = 64;

impl State {
    pub(crate) fn has_claims(&self) -> bool {
        self.sockets.iter().any(|(_, socket)| socket.claim.is_some())
    }

    /// Somebody listens where a listener ended: connections of that one are claimed by the new claim too.
    pub(crate) fn supersede_ended(&mut self, local: SocketAddr) {
        let superseded: Vec<Ended> = self.queue.ended.extract_if(.., |ended| ended.local == local).collect();
        superseded.into_iter().for_each(|ended| self.release_claim(Some(ended.claim)));
    }

    /// Releases claims of listeners that ended once their connections have; with the last claim our queues go, after a time in which
    /// the program may listen anew.
    pub(crate) fn release_ended(&mut self, now: Instant) {
        if self.queue.ended.iter().all(|ended| now < ended.at + LISTENS_ANEW) {
            return;
        }
        let connections = self.queue.runtime.as_mut().map(|runtime| &*runtime.stack());
        let ports: BTreeSet<u16> = connections
            .into_iter()
            .flat_map(|stack| stack.connections().filter_map(|id| stack.endpoints(id)))
            .map(|(local, _)| local.port())
            .collect();
        let is_over =
            |ended: &mut Ended| now >= ended.at + LISTENS_ANEW && !ports.contains(&ended.local.port());
        let over: Vec<Ended> = self.queue.ended.extract_if(.., is_over).collect();
        if over.is_empty() {
            self.queue.ended.iter_mut().for_each(|ended| ended.at = now); // Looked at again later.
        }
        over.into_iter().for_each(|ended| self.release_claim(Some(ended.claim)));
        if self.queue.ended.is_empty() && !self.has_claims() && self.queue.kept_ports.is_empty() {
            self.give_queues_back(now);
        }
    }

    /// Moves connections to the kernel, those at one port of ours or all, also those that the program has closed and that are not
    /// done yet. False if some go on here, as nobody takes them at once. Those that must are tried for a minute first, while their peers are served.
    pub(crate) fn move_all(&mut self, port: Option<u16>, terms: Terms) -> bool {
        if terms == Terms::Must && self.drive_until(|state| state.move_all(port, Terms::Tried)) {
            return true;
        }
        let is_meant = |local: SocketAddr| port.is_none_or(|port| local.port() == port);
        let held: Vec<SocketId> = self
            .sockets
            .iter()
            .filter(|(_, socket)| socket.connection().is_some())
            .map(|(id, _)| id)
            .collect();
        for id in held {
            if self.endpoints(id).is_some_and(|(local, _)| is_meant(local)) {
                let now = self.clock.now();
                // One that is not established yet stays, and ends with the process.
                if self.move_to_kernel(id, terms, now) == Err(NOT_YET) {
                    return false;
                }
            }
        }
        self.move_closed(|(local, _)| is_meant(local), terms, self.clock.now())
    }

    /// Connections that the program has closed: the kernel finishes them. False as above.
    pub(crate) fn move_closed(
        &mut self,
        is_meant: impl Fn(Ends) -> bool,
        terms: Terms,
        now: Instant,
    ) -> bool {
        let Some(stack) = self.queue.stack() else { return true };
        let meant = |id: &_| stack.endpoints(*id).is_some_and(&is_meant);
        let closed: Vec<_> = stack.connections().filter(|id| stack.is_orphan(*id)).filter(meant).collect();
        let has_moved = |state: &mut State, id| state.move_closed_one(id, terms, now).is_ok();
        let all_have = closed.iter().all(|id| has_moved(self, *id));
        self.follow_moved();
        all_have
    }

    fn move_closed_one(&mut self, id: ConnectionId, terms: Terms, now: Instant) -> Result<(), WaitsAgain> {
        let Some(stack) = self.queue.stack() else { return Ok(()) };
        let Ok(detached) = stack.detach(id, now) else { return Ok(()) };
        // It has only its port left, and a listener with SO_REUSEADDR may want that.
        let kind = SocketKind { is_ipv6: detached.connection.local.is_ipv6(), reuse_address: true };
        match self.move_detached(&detached, &(kind, Settings::default()), terms) {
            Ok(kernel) => {
                kernel.into_iter().for_each(close);
                self.release_kept_ports(|kept| kept.connection == id);
                Ok(())
            }
            Err(WaitsAgain) => {
                self.put_closed_back(id, &detached, now);
                Err(WaitsAgain)
            }
        }
    }

    /// A closed connection goes on here, by another number.
    fn put_closed_back(&mut self, id: ConnectionId, detached: &Detached, now: Instant) {
        let Some(stack) = self.queue.stack() else { return };
        let Ok(back) = stack.attach(detached, detached.hop, now) else { return };
        stack.set_token(back, u64::MAX); // What happens to it is nobody's business.
        let kept = self.queue.kept_ports.iter_mut().filter(|kept| kept.connection == id);
        kept.for_each(|kept| kept.connection = back);
    }

    pub(crate) fn give_queues_back(&mut self, now: Instant) {
        self.follow_moved();
        self.lose_what_stays(now);
        self.queue.flush(now);
        (0..FLUSHES_MAX).for_each(|_| self.queue.flush_what_is_due(now));
        let descriptors = self.queue.runtime.as_mut().map(Runtime::remove_devices).unwrap_or_default();
        self.queue.wake_driver(); // It sleeps on what is closed.
        for fd in descriptors {
            self.table.set(fd, Entry::None);
        }
        // Also without a queue: it is not to get one any more.
        if let Some(attachment) = self.attachment.as_mut().filter(|_| self.attached) {
            attachment.give_back();
        }
        for ended in std::mem::take(&mut self.queue.ended) {
            self.release_claim(Some(ended.claim));
        }
        self.release_kept_ports(|_| true);
        self.give_back_resting_ports();
        self.attached = false;
        self.drop_unused_stack();
    }

    /// What could not move has no way to its peer without queues.
    fn lose_what_stays(&mut self, now: Instant) {
        let ids: Vec<SocketId> = self.sockets.iter().map(|(id, _)| id).collect();
        for id in ids {
            if self.step(id, Happening::QueuesGo) == Step::Lose {
                self.lose(id, now);
            }
        }
    }

    /// The stack of a process that has no queues and wants none goes, unless the program has yet to be told of connections which ended
    /// there, and to read what is left of them.
    pub(crate) fn drop_unused_stack(&mut self) {
        if !self.attached && !self.sockets.iter().any(|(_, socket)| socket.connection().is_some()) {
            self.queue.drop_runtime();
        }
    }
}
