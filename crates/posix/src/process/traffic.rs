//! Packets in and out: what the engine has taken in is told to sockets, what is queued leaves.

use clock::Instant;
use stack::tcp::Events;

use crate::ids::SocketId;
use crate::process::state::State;
use crate::queue::stalls::LOOK_EVERY;
use crate::socket::{READABLE, Role, WRITABLE};

impl State {
    /// Takes in what has arrived, and no more; safe in the middle of other work.
    pub(crate) fn take_in(&mut self, now: Instant) -> usize {
        let Some(runtime) = &mut self.queue.runtime else { return 0 };
        let done = runtime.engine.poll(now);
        let spare = std::mem::take(&mut runtime.spare);
        let mut events = std::mem::replace(&mut runtime.engine.application().0, spare);
        for event in events.drain(..) {
            if let Some((id, _)) =
                self.sockets.at(event.token as u32).filter(|it| it.0.to_bits() == event.token)
            {
                self.raise(id, key_of(event.events));
                self.note_arrival(id, now);
            }
        }
        if let Some(runtime) = &mut self.queue.runtime {
            runtime.spare = events;
        }
        done
    }

    /// Something came to a listener or a UDP socket of ours.
    pub(crate) fn note_arrival(&mut self, id: SocketId, now: Instant) {
        let Some(socket) = self.sockets.get_mut(id).filter(|socket| socket.is_shadow()) else { return };
        if !std::mem::replace(&mut socket.stall.is_listed, true) {
            self.queue.stalls.at.push(id);
            self.queue.stalls.look_at.get_or_insert(now + LOOK_EVERY);
        }
        if let Role::Listener { queueing, on_stack: Some(_), .. } = &mut socket.role {
            queueing.note_waiting(now);
        }
    }
}

/// What the stack calls an event, as poll(2) bits.
fn key_of(events: Events) -> u32 {
    let parts = [
        (Events::READABLE, READABLE),
        (Events::WRITABLE, WRITABLE),
        (Events::READ_CLOSED, READABLE | libc::EPOLLRDHUP as u32),
        (Events::CLOSED, (libc::EPOLLHUP | libc::EPOLLRDHUP) as u32),
        (Events::ERROR, libc::EPOLLERR as u32),
        (Events::URGENT, libc::EPOLLPRI as u32),
    ];
    parts.into_iter().filter(|(event, _)| events.contains(*event)).fold(0, |all, (_, bits)| all | bits)
}
