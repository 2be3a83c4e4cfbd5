//! Moving handshakes to another stack with the same listener, and from one.

use clock::Instant;

use super::{AttachError, HALF_OPEN, ListenerId, Stack};
use crate::flow_table::FlowKey;
use crate::tcp::{HalfOpen, Handshake};

impl Stack {
    /// Takes all handshakes that wait for the peer's ACK out of the stack, silently. What still comes for them is a stranger's to the
    /// listener: leave that as well ([`Stack::leave_listener`]), lest the peers be reset. Those begun by Fast Open stay, as they are
    /// connections already.
    pub fn detach_handshakes(&mut self, id: ListenerId, now: Instant) -> Vec<Handshake> {
        let of_it = self.half_open.iter().filter(|(_, half_open)| half_open.listener == id);
        let places: Vec<u32> = of_it.map(|(place, _)| place.index()).collect();
        let mut detached = Vec::with_capacity(places.len());
        for place in places {
            let Some((_, half_open)) = self.half_open.at(place) else { continue };
            let hop = self.shared.paths.hop(half_open.path);
            detached.extend(self.forget_half_open(place).map(|it| it.detach(hop, now)));
        }
        self.shared.counters.detached += detached.len() as u64;
        detached
    }

    /// Goes on with a handshake that another stack had. Its SYN-ACK is sent once more when its time comes.
    pub fn attach_handshake(&mut self, handshake: &Handshake, now: Instant) -> Result<(), AttachError> {
        let key = FlowKey::new(handshake.local, handshake.remote).ok_or(AttachError::AddressFamily)?;
        let hash = self.flows.hash_of(&key);
        if self.find_flow(hash, &key).is_some() {
            return Err(AttachError::InUse);
        }
        let listener_id = self.find_listener(&key).ok_or(AttachError::NoListener)?;
        let listener = self.listeners.get_mut(listener_id).ok_or(AttachError::NoListener)?;
        if listener.is_half_open_full(self.shared.config.half_open_min) || self.half_open.is_full() {
            return Err(AttachError::TooMany);
        }
        let path = self.shared.paths.acquire(handshake.hop).ok_or(AttachError::TooMany)?;
        let half_open = HalfOpen::resume(handshake, key, listener_id, path, now);
        let due = (half_open.sent > 0).then(|| half_open.next_timeout(now));
        let place = self.half_open.insert_with(|_| half_open).ok_or(AttachError::TooMany)?.index();
        listener.half_open += 1;
        self.flows.insert(hash, place | HALF_OPEN);
        self.shared.counters.attached += 1;
        match due {
            Some(due) => self.timers.schedule(self.shared.config.connections_max + place, due),
            None => self.repeat_syn_ack(place), // It never left.
        }
        Ok(())
    }
}
