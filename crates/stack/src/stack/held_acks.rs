//! Acknowledgements that wait for the application's answer, to leave in the same segment. Otherwise each request of a short connection
//! would cost a packet of its own, which the peer's host has to process.

use std::collections::VecDeque;

use clock::Instant;

use super::Stack;
use crate::ConnectionId;
use crate::tcp::Fate;

/// Connections, and until when each is held: all for as long, so the first is the first. Some have sent it with data meanwhile.
pub(super) type HeldAcks = VecDeque<(ConnectionId, Instant)>;

impl Stack {
    /// The application has nothing to send for now: what was to ride on its data is due by itself.
    pub fn send_held_acks(&mut self, now: Instant) {
        while let Some((id, _)) = self.held_acks.pop_front() {
            self.send_held_ack(id, now);
        }
    }

    pub(super) fn send_acks_held_too_long(&mut self, now: Instant) {
        while self.held_acks_deadline().is_some_and(|until| until <= now)
            && let Some((id, _)) = self.held_acks.pop_front()
        {
            self.send_held_ack(id, now);
        }
    }

    fn send_held_ack(&mut self, id: ConnectionId, now: Instant) {
        self.with_connection(id, now, |connection, _| {
            connection.flags.holds_ack = false;
            if connection.receive.is_ack_due_soon() {
                connection.receive.ack_now();
            }
            Fate::Alive
        });
    }

    /// When the first was held for long enough.
    pub(super) fn held_acks_deadline(&self) -> Option<Instant> {
        self.held_acks.front().map(|(_, until)| *until)
    }
}
