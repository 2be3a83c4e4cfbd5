//! Shadows that are the kernel's from now on.

use clock::Instant;

use crate::address::local_of;
use crate::ids::SocketId;
use crate::process::State;
use crate::queue::Heir;
use crate::socket::kernel_only::{REUSEPORT_PROGRAM, has_adopted};
use crate::socket::{READABLE, Role, Socket};

impl State {
    /// Has a socket without a connection be the kernel's, and releases its claim.
    pub(crate) fn keep_to_kernel(&mut self, id: SocketId, reason: &'static str, now: Instant) {
        let Some(socket) = self.sockets.get(id) else { return };
        let local = local_of(socket.fd()).filter(|_| reason == REUSEPORT_PROGRAM);
        let shares_port =
            |socket: &Socket| socket.claim.is_some() && local.is_some() && local_of(socket.fd()) == local;
        let sharing = self.sockets.iter().filter(|(_, socket)| shares_port(socket)).map(|(other, _)| other);
        let sharing: Vec<SocketId> = sharing.filter(|other| *other != id).collect();
        for id in sharing.into_iter().chain([id]) {
            if let Some(socket) = self.sockets.get_mut(id) {
                socket.kernel_only = Some(reason);
                socket.unclaimable = Some(reason.into());
                self.has_untold = true;
            }
            self.unclaim(id, now);
        }
    }

    /// What comes to a listener or a UDP socket is the kernel's from now on.
    fn unclaim(&mut self, id: SocketId, now: Instant) {
        let Some(socket) = self.sockets.get(id).filter(|socket| socket.claim.is_some()) else { return };
        match &socket.role {
            // What the program has set at it is to hold when its call returns.
            Role::Listener { .. } if socket.left.is_none() => self.leave_to_kernel_at_last(id),
            Role::Listener { .. } => self.begin_to_leave(id, Heir::Kernel, now),
            Role::Udp(_) => self.move_datagrams_and_queues(id, now),
            _ => {}
        }
        if self.sockets.get(id).is_some_and(has_adopted) {
            self.raise(id, READABLE);
        }
    }
}
