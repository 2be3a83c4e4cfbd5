//! A turn: takes in what has arrived, and does what is due.

use clock::{Duration, Instant};

use crate::ids::SocketId;
use crate::process::{Process, State};

/// How often a process that never sleeps listens to the broker.
const HEAR_EVERY: Duration = Duration::from_millis(10);

impl State {
    /// One turn of the engine; what it brought about is noted with the sockets. Returns how much was done.
    pub(crate) fn turn(&mut self, mut now: Instant) -> usize {
        if self.has_incident() {
            self.hear(now);
            // That may have taken milliseconds and turns of its own, which must not be followed by an earlier time.
            now = self.clock.now();
        }
        if self.queue.runtime.is_none() {
            self.attend(now);
            return 0;
        }
        let done = self.take_in(now);
        self.pass_on_late();
        self.ask_about_strays(now);
        if !self.queue.stamped.is_empty() {
            self.look_at_send_times(now);
        }
        self.release_ports(now);
        self.look_after_unanswered(now);
        self.look_after_routes(now);
        self.go_on_leaving(now);
        self.move_ended(now);
        self.release_ended(now);
        self.look_after_children(now);
        self.look_at_stalls(now);
        self.attend(now);
        if !self.attached {
            self.drop_unused_stack();
        }
        done
    }

    /// Periodic work, with a queue or without.
    pub(crate) fn attend(&mut self, mut now: Instant) {
        if now >= self.heard_at + HEAR_EVERY || self.hears_soon {
            self.hear(now);
            now = self.clock.now();
        }
        if !self.closing.is_empty() {
            self.end_closed(now);
        }
        if !self.moved_in_calls.is_empty() {
            self.moved_in_calls.end_over();
        }
    }
}

impl Process {
    /// A turn for a call that does not wait.
    pub(crate) fn turn_in_passing(&self, state: &mut State, now: Instant) {
        state.turn(now);
        self.note_turn();
        state.queue.hurry_driver(now);
        state.queue.rest_with_driver();
    }

    /// Whether a call found nothing for the second time since the last turn: who polls like that drives the engine.
    pub(crate) fn asks_again(&self, state: &mut State, id: SocketId) -> bool {
        let turn = self.turns.load(std::sync::atomic::Ordering::Relaxed);
        let socket = state.sockets.get_mut(id);
        socket.is_some_and(|socket| std::mem::replace(&mut socket.blocked_in_turn, turn) == turn)
    }
}
