//! Connections that the kernel serves better leave, as `socket/usage.rs` finds them.

use clock::Instant;

use crate::ids::SocketId;
use crate::moves::to_kernel::NOT_YET;
use crate::process::State;
use crate::socket::usage::Unsuited;
use crate::socket::{Happening, Step};

impl State {
    /// Whether the use of a connection does not suit the stack.
    pub(crate) fn is_unsuited(&self, id: SocketId) -> bool {
        self.sockets.get(id).is_some_and(|socket| socket.usage.unsuited().is_some())
    }

    /// Leaves such a connection to the kernel; whether it has left. One that cannot leave now may after as much use again.
    pub(crate) fn leave_unsuited(&mut self, id: SocketId, now: Instant) -> bool {
        let Some(socket) = self.sockets.get_mut(id) else { return false };
        let unsuited = std::mem::take(&mut socket.usage).unsuited();
        if !self.may_leave(id) || !self.attachment().is_some_and(|it| it.leaves_unsuited()) {
            return false;
        }
        let step = self.step(id, Happening::Unsuited);
        if step != Step::Offer {
            return false;
        }
        let moved = self.carry_out(id, step, now); // The call itself tells of a connection that was lost.
        let has_left = self.sockets.get(id).is_none();
        match unsuited {
            Some(Unsuited::Threads) => self.left_to_kernel.threads += u64::from(has_left),
            _ => self.left_to_kernel.bulk += u64::from(has_left),
        }
        if let Some(socket) = self.sockets.get_mut(id) {
            socket.usage.stays = moved != Err(NOT_YET);
        }
        has_left
    }

    /// Whether nothing of a connection would stay behind: an octet that is urgent, what the program is to be told of its sends. Nor may
    /// another thread's call wait: a connection that the kernel refuses comes back with another id, and the call has the old one.
    fn may_leave(&mut self, id: SocketId) -> bool {
        let Some(socket) = self.sockets.get(id) else { return false };
        let is_bare = socket.callers.is_empty() && socket.rare.is_none();
        let Some(connection) = socket.connection().filter(|_| is_bare) else { return false };
        let ready = self.queue.stack().and_then(|stack| stack.readiness(connection));
        ready.is_some_and(|ready| !ready.urgent)
    }
}
