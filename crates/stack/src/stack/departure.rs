//! Moving connections to another stack or the kernel, and from another stack.

use std::net::SocketAddr;

use clock::{Duration, Instant};

use super::recent_flows::RecentFlows;
use super::{ConnectionId, ListenerId, Stack};
use crate::flow_table::FlowKey;
use crate::path::Hop;
use crate::tcp::{Connection, DetachError, Detached, Fate, Origin};

/// How long segments of a flow that has left are ignored: until packets are steered to the new owner.
const IGNORED_FOR: Duration = Duration::from_secs(3);
/// Flows remembered as having left; the oldest makes room.
const DEPARTED_MAX: usize = 1 << 16;

/// Flows that have left a moment ago.
pub(super) fn departed(key: [u64; 2]) -> RecentFlows {
    RecentFlows::new(DEPARTED_MAX, IGNORED_FOR, key)
}

/// Why a connection was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachError {
    /// Its two ends are not of one IP version.
    AddressFamily,
    /// This very flow exists here.
    InUse,
    /// There are too many connections, or too little memory for its data.
    TooMany,
    /// A handshake without a listener.
    NoListener,
}

impl Stack {
    /// Takes a connection out of the stack, silently: nothing is sent, and what still comes for it is ignored for three seconds
    /// instead of being reset. Its handle is of no more use, and no event tells of it any more.
    ///
    /// For which connections that is possible: [`State::is_transferable`](transit::State::is_transferable).
    pub fn detach(&mut self, id: ConnectionId, now: Instant) -> Result<Detached, DetachError> {
        let connection = self.connections.get_mut(id).ok_or(DetachError::NotConnected)?;
        if let Some(obstacle) = connection.obstacle_to_detach() {
            return Err(obstacle);
        }
        let detached = connection.snapshot(&self.shared, now);
        if let Some(listener) = connection.listener.filter(|_| connection.flags.waits_for_accept)
            && let Some(listener) = self.listeners.get_mut(listener)
        {
            listener.remove(id);
        }
        self.forget_flow(id, now);
        self.shared.counters.detached += 1;
        Ok(detached)
    }

    /// Takes all connections that wait to be accepted out of the stack, oldest first. Those that have failed meanwhile are
    /// gone; a handshake that is not complete yet is not among them, as it is no connection yet.
    pub fn detach_accept_queue(&mut self, id: ListenerId, now: Instant) -> Vec<Detached> {
        let mut detached = Vec::new();
        let mut opening = Vec::new();
        while let Some(waiting) = self.listeners.get_mut(id).and_then(|listener| listener.pop()) {
            match self.detach(waiting, now) {
                Ok(connection) => detached.push(connection),
                Err(DetachError::Opening) => opening.push(waiting),
                Err(DetachError::Over | DetachError::NotConnected) => self.abort(waiting, now),
            }
        }
        if let Some(listener) = self.listeners.get_mut(id) {
            opening.into_iter().for_each(|waiting| listener.push(waiting)); // Fast Open: accepted before the last ACK.
        }
        detached
    }

    /// Stops listening where somebody else goes on. Who waits to be accepted is reset, but what still comes for the listener is
    /// ignored for three seconds instead: it was steered here before that other's time.
    pub fn leave_listener(&mut self, id: ListenerId, now: Instant) {
        self.left_listeners.retain(|(_, left_at)| now.since(*left_at) < IGNORED_FOR);
        if let Some(listener) = self.remove_listener(id, now) {
            self.left_listeners.push((listener, now));
        }
    }

    /// Whether another process has taken over the listener a moment ago.
    pub(super) fn has_left_listener(&self, local: SocketAddr, now: Instant) -> bool {
        let mut recent = self.left_listeners.iter().filter(|(_, left_at)| now.since(*left_at) < IGNORED_FOR);
        recent.any(|(listener, _)| listener.matches(local))
    }

    /// Handshakes at a listener whose last segment has not come.
    pub fn open_handshakes(&self, id: ListenerId) -> usize {
        let open = self.half_open.iter().map(|(_, half_open)| half_open);
        open.filter(|half_open| half_open.listener == id && half_open.acknowledged_at.is_none()).count()
    }

    /// Puts connections into the accept queue whose peers have finished the handshake, though the listener waits for data
    /// (`TCP_DEFER_ACCEPT`) or its queue was full: as if that time were over, or there were room.
    pub fn accept_acknowledged(&mut self, id: ListenerId, now: Instant) {
        let acknowledged = self
            .half_open
            .iter()
            .filter(|(_, half_open)| half_open.listener == id && half_open.acknowledged_at.is_some());
        let acknowledged: Vec<_> = acknowledged
            .map(|(place, half_open)| (place.index(), half_open.path, half_open.last_ack()))
            .collect();
        for (place, path, segment) in acknowledged {
            self.complete(place, self.shared.paths.hop(path), &segment, now);
        }
    }

    /// Goes on with a connection that another stack had; its packets leave by `hop`. The peer is sent an ACK, and an event tells
    /// what there is to be done. What it needs of the buffers is taken at once.
    pub fn attach(
        &mut self,
        detached: &Detached,
        hop: Hop,
        now: Instant,
    ) -> Result<ConnectionId, AttachError> {
        let key = FlowKey::new(detached.connection.local, detached.connection.remote)
            .ok_or(AttachError::AddressFamily)?;
        let hash = self.flows.hash_of(&key);
        if self.find_flow(hash, &key).is_some() || self.time_wait.contains(hash, &key) {
            return Err(AttachError::InUse);
        }
        let id = self.place_attached(key, detached, hop, now).ok_or(AttachError::TooMany)?;
        self.flows.insert(hash, id.index());
        self.note_begun(id);
        self.shared.counters.attached += 1;
        self.settle(id, Fate::Alive, now, true);
        Ok(id)
    }

    /// The same with a connection that waits to be accepted at this listener, behind those that wait there.
    pub fn attach_waiting(
        &mut self,
        detached: &Detached,
        (listener, hop): (ListenerId, Hop),
        now: Instant,
    ) -> Result<ConnectionId, AttachError> {
        if self.listeners.get(listener).is_none() {
            return Err(AttachError::NoListener);
        }
        let id = self.attach(detached, hop, now)?;
        if let Some(connection) = self.connections.get_mut(id) {
            connection.listener = Some(listener);
            connection.flags.waits_for_accept = true;
        }
        self.offer_to_accept(listener, id);
        Ok(id)
    }

    fn place_attached(
        &mut self,
        key: FlowKey,
        detached: &Detached,
        hop: Hop,
        now: Instant,
    ) -> Option<ConnectionId> {
        let path = self.shared.paths.acquire(hop)?;
        let options = detached.options.clone();
        let (connections, shared) = (&mut self.connections, &mut self.shared);
        let mut taken = false;
        let placed = connections.insert_with(|handle| {
            let on = (path, hop.link);
            let mut connection = Connection::new(handle, key, on, Origin::Passive, options, shared, now);
            taken = connection.resume(&detached.connection, shared, now);
            connection
        });
        let Some(id) = placed else {
            shared.paths.release(path);
            return None;
        };
        if !taken && let Some(connection) = connections.remove(id) {
            connection.release(shared);
        }
        taken.then_some(id)
    }

    /// Removes a connection with all that belongs to it, and remembers its flow for a while.
    fn forget_flow(&mut self, id: ConnectionId, now: Instant) {
        self.leave_fast_open_queue(id, now);
        self.timers.cancel(id.index());
        self.note_over(id);
        let Some(connection) = self.connections.remove(id) else {
            return;
        };
        let hash = self.flows.hash_of(&connection.key);
        self.flows.remove(hash, id.index());
        self.departed.insert(hash, connection.key, now);
        connection.release(&mut self.shared);
    }
}
