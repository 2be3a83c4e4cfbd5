//! Connections that a process shares with its parent and its children: who is told, and what is kept for whom.

use std::os::fd::{AsRawFd, OwnedFd};

use clock::Instant;

use crate::descriptors::internal;
use crate::ids::SocketId;
use crate::kinship::Ends;
use crate::process::State;
use crate::socket::{Inherited, Place, Role};

impl State {
    /// The process is a child: what it has of a connection is the parent's.
    pub(crate) fn leave_to_parent(&mut self, id: SocketId) {
        let ends = self.endpoints(id);
        let Some(socket) = self.sockets.get_mut(id) else { return };
        socket.role = Role::Stream(match ends {
            Some((local, remote)) => Place::FromParent(Box::new(Inherited { local, remote, request: None })),
            None => Place::Lost,
        });
    }

    /// A connection has become the kernel's: children that hold it as well are to have it from us.
    pub(crate) fn share_with_children(&mut self, id: SocketId, ends: Ends, kernel: &OwnedFd) {
        // A connection that was made after the fork may have the addresses of one before it.
        let is_common = self.sockets.get(id).is_some_and(|socket| socket.is_common);
        if is_common
            && self.kinship.is_held_by_child(ends)
            && let Some(copy) = internal::copy(kernel.as_raw_fd())
        {
            self.kinship.keep_for_children(ends, copy);
        }
    }

    /// About to fork: the child will have what connections there are, and may hold what we have of our ancestors'.
    pub(crate) fn tie_cords(&mut self) {
        for place in 0..self.sockets.places() {
            if let Some((_, socket)) = self.sockets.at_mut(place) {
                socket.is_common = true;
            }
        }
        let has_own = self.sockets.iter().any(|(_, socket)| socket.connection().is_some());
        let inherits =
            self.sockets.iter().any(|(_, socket)| matches!(socket.role, Role::Stream(Place::FromParent(_))));
        self.kinship.tie_cords(has_own, inherits);
    }

    /// In the parent: notes what the child has.
    pub(crate) fn become_parent(&mut self) {
        let stack = self.queue.runtime.as_mut().map(|runtime| &*runtime.stack());
        let connections = self.sockets.iter().filter_map(|(_, socket)| socket.connection());
        let holds = || connections.filter_map(|id| stack?.endpoints(id)).collect();
        if self.kinship.enter_child(holds) {
            self.queue.wake_driver();
        }
    }

    /// A child that never runs; it ends when the returned value is dropped.
    #[cfg(test)]
    pub(crate) fn bear(&mut self) -> OwnedFd {
        self.tie_cords();
        let of_child = self.kinship.end_of_child();
        self.become_parent();
        of_child
    }

    /// A child gets a connection that is the kernel's by now; false if there is none for it.
    pub(crate) fn move_to_child(&mut self, token: u64, ends: Ends) -> bool {
        let Some(kernel) = self.kinship.kept_for_children(ends) else { return false };
        let Some(attachment) = &mut self.attachment else { return false };
        attachment.give_to_child(token, kernel);
        self.kinship.release_sole_holder(ends);
        true
    }

    /// The kernel's socket of an inherited connection whose owner has ended.
    pub(crate) fn take_legacy(&mut self, id: SocketId) -> Option<OwnedFd> {
        let ends = self.endpoints(id)?;
        self.kinship.take_legacy(ends)
    }

    /// Reads what children have closed, from time to time.
    pub(crate) fn look_after_children(&mut self, now: Instant) {
        if self.kinship.is_due(now) {
            self.read_notes();
        }
    }

    /// Reads what children have closed or got, and which children they have made.
    pub(crate) fn read_notes(&mut self) {
        if self.kinship.read_notes() {
            self.queue.wake_driver(); // It sleeps on the notes of others only.
        }
    }
}
