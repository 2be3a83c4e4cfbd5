//! Moving connections to another stack or the kernel, and from another stack.

use std::collections::VecDeque;
use std::net::SocketAddr;

use clock::{Duration, Instant};

use super::{ConnectionId, ListenerId, Stack};
use crate::flow_table::{FlowKey, FlowTable};
use crate::path::Hop;
use crate::tcp::{Connection, DetachError, Detached, Fate, Origin};

/// How long segments of a flow that has left are ignored: until packets are steered to the new owner.
const IGNORED_FOR: Duration = Duration::from_secs(3);
/// Flows remembered as having left; the oldest makes room.
const DEPARTED_MAX: usize = 1 << 16;

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

    /// Handshakes at a listener whose last segment is missing.
    pub fn open_handshakes(&self, id: ListenerId) -> usize {
        let open = self.half_open.iter().map(|(_, half_open)| half_open);
        open.filter(|half_open| half_open.listener == id && half_open.acknowledged_at.is_none()).count()
    }

    /// Puts connections into the accept queue whose peers have finished the handshake and sent nothing yet, though the listener
    /// waits for data (`TCP_DEFER_ACCEPT`): as if that time were over.
    pub fn accept_deferred(&mut self, id: ListenerId, now: Instant) {
        let deferred = self
            .half_open
            .iter()
            .filter(|(_, half_open)| half_open.listener == id && half_open.acknowledged_at.is_some());
        let deferred: Vec<_> = deferred
            .map(|(place, half_open)| (place.index(), half_open.path, half_open.last_ack()))
            .collect();
        for (place, path, segment) in deferred {
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
        self.shared.counters.attached += 1;
        self.settle(id, Fate::Alive, now, true);
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
        let Some(connection) = self.connections.remove(id) else {
            return;
        };
        let hash = self.flows.hash_of(&connection.key);
        self.flows.remove(hash, id.index());
        self.departed.insert(hash, connection.key, now);
        connection.release(&mut self.shared);
    }
}

/// Flows that have left a moment ago, in the order in which they did.
#[derive(Debug)]
pub(super) struct Departed {
    /// From a flow to how many left before it, modulo 2^32.
    index: FlowTable,
    flows: VecDeque<(FlowKey, Instant)>,
    /// How many have been forgotten.
    forgotten: u32,
}

impl Departed {
    /// `key` is that of the table that makes the hashes passed in.
    pub(super) fn new(key: [u64; 2]) -> Departed {
        Departed { index: FlowTable::new(0, key), flows: VecDeque::new(), forgotten: 0 }
    }

    fn insert(&mut self, hash: u64, flow: FlowKey, now: Instant) {
        self.expire(now);
        if self.flows.len() >= DEPARTED_MAX {
            self.forget_oldest();
        }
        self.index.insert(hash, self.forgotten.wrapping_add(self.flows.len() as u32));
        self.flows.push_back((flow, now));
    }

    /// Whether the flow left so short a time ago that its packets may still come here.
    pub(super) fn contains(&mut self, hash: u64, flow: &FlowKey, now: Instant) -> bool {
        if self.flows.is_empty() {
            return false;
        }
        self.expire(now);
        let (flows, forgotten) = (&self.flows, self.forgotten);
        let is_it =
            |number: u32| flows.get(number.wrapping_sub(forgotten) as usize).is_some_and(|it| it.0 == *flow);
        self.index.find(hash, is_it).is_some()
    }

    fn expire(&mut self, now: Instant) {
        while self.flows.front().is_some_and(|(_, left_at)| now.since(*left_at) >= IGNORED_FOR) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((flow, _)) = self.flows.pop_front() {
            self.index.remove(self.index.hash_of(&flow), self.forgotten);
            self.forgotten = self.forgotten.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const KEY: [u64; 2] = [1, 2];

    fn flow(number: u32) -> FlowKey {
        let [a, b, c, d] = number.to_be_bytes();
        FlowKey::v4(
            (Ipv4Addr::new(192, 0, 2, 1), 80),
            (Ipv4Addr::new(198, 51, a, b), u16::from_be_bytes([c, d])),
        )
    }

    struct Table(Departed);

    impl Table {
        fn insert(&mut self, number: u32, now: Instant) {
            let hash = self.0.index.hash_of(&flow(number));
            self.0.insert(hash, flow(number), now);
        }

        fn contains(&mut self, number: u32, now: Instant) -> bool {
            let hash = self.0.index.hash_of(&flow(number));
            self.0.contains(hash, &flow(number), now)
        }
    }

    #[test]
    fn a_flow_is_remembered_for_three_seconds() {
        let mut table = Table(Departed::new(KEY));
        let start = Instant::from_nanos(1);
        table.insert(1, start);
        table.insert(2, start + Duration::from_secs(2));
        assert!(table.contains(1, start + Duration::from_millis(2999)));
        assert!(!table.contains(1, start + Duration::from_secs(3)));
        assert!(table.contains(2, start + Duration::from_secs(3)));
        assert!(!table.contains(3, start));
        assert!(!table.contains(2, start + Duration::from_secs(5)));
        assert!(table.0.index.is_empty() && table.0.flows.is_empty());
    }

    #[test]
    fn the_oldest_makes_room() {
        let mut table = Table(Departed::new(KEY));
        let now = Instant::from_nanos(1);
        table.0.forgotten = u32::MAX - 5; // Numbers wrap.
        for number in 0..=DEPARTED_MAX as u32 {
            table.insert(number, now);
        }
        assert!(!table.contains(0, now));
        assert!(table.contains(1, now) && table.contains(DEPARTED_MAX as u32, now));
        assert_eq!(table.0.index.len(), DEPARTED_MAX);
    }

    #[test]
    fn a_flow_that_left_twice_is_remembered_since_the_second_time() {
        let mut table = Table(Departed::new(KEY));
        let start = Instant::from_nanos(1);
        table.insert(1, start);
        table.insert(1, start + Duration::from_secs(2));
        assert!(table.contains(1, start + Duration::from_secs(4)));
        assert!(!table.contains(1, start + Duration::from_secs(6)));
    }
}
