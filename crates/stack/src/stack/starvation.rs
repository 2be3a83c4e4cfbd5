//! Writers that wait for free buffers, not for their own queue. Any connection may free the buffers, so no event of their own
//! would wake them.

use std::collections::VecDeque;

use clock::{Duration, Instant};

use super::Stack;
use crate::ConnectionId;
use crate::tcp::Fate;

/// How long until it is looked whether there is room.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Chunks that must be free for each writer that is woken.
const CHUNKS_EACH: u32 = 8;

/// Those that wait, each once, longest first.
#[derive(Debug, Default)]
pub(super) struct Starved {
    waiting: VecDeque<ConnectionId>,
    look_at: Option<Instant>,
}

impl Starved {
    pub(super) fn add(&mut self, id: ConnectionId, now: Instant) {
        self.waiting.push_back(id);
        self.look_at.get_or_insert(now + LOOK_EVERY);
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.look_at
    }
}

impl Stack {
    /// Tells as many as the free buffers allow, if it is time to look.
    pub(super) fn feed_starved(&mut self, now: Instant) {
        if self.starved.look_at.is_none_or(|at| now < at) {
            return;
        }
        self.starved.waiting.retain(|id| self.connections.get(*id).is_some());
        let mut plenty = self.shared.buffers.available_above_reserve() / CHUNKS_EACH;
        let mut little = self.shared.buffers.available() / CHUNKS_EACH;
        for _ in 0..self.starved.waiting.len() {
            let id = self.starved.waiting.pop_front().expect("no more than there are");
            let is_modest = self.connections.get(id).is_some_and(|connection| connection.is_modest_writer());
            if plenty == 0 && !(is_modest && little > 0) {
                self.starved.waiting.push_back(id);
                continue;
            }
            plenty = plenty.saturating_sub(1);
            little = little.saturating_sub(1);
            self.with_connection(id, now, |connection, _| {
                connection.on_memory();
                Fate::Alive
            });
        }
        self.starved.look_at = (!self.starved.waiting.is_empty()).then(|| now + LOOK_EVERY);
    }
}
