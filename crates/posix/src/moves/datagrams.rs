//! UDP sockets whose datagrams become the kernel's.

use std::os::fd::{AsFd, BorrowedFd};

use clock::Instant;
use stack::udp::{Received, UdpId, UdpRecvError};

use crate::descriptors::internal;
use crate::ids::SocketId;
use crate::moves::to_kernel::Terms;
use crate::process::State;
use crate::socket::udp::DATAGRAM_MAX;
use crate::socket::{Role, Socket};

impl State {
    /// The process goes: what came to sockets that others may have is left to them.
    pub(crate) fn move_shared_datagrams(&mut self, now: Instant) {
        let is_common = |socket: &Socket| socket.is_common && matches!(socket.role, Role::Udp(_));
        let claimed = self.sockets.iter().filter(|(_, it)| is_common(it) && it.claim.is_some());
        let claimed: Vec<SocketId> = claimed.map(|(id, _)| id).collect();
        claimed.into_iter().for_each(|id| self.move_datagrams_and_queues(id, now));
    }

    /// Datagrams that wait become the kernel's, and all that come.
    pub(crate) fn move_datagrams_and_queues(&mut self, id: SocketId, now: Instant) {
        self.move_datagrams(id, now);
        if !self.sockets.iter().any(|(_, socket)| socket.claim.is_some()) {
            self.move_all(None, Terms::Must); // What the program has connected and closed is to be finished.
            self.give_queues_back(now);
        }
    }

    /// The same for a process that may soon want the queues again. Whether there were any that waited.
    pub(crate) fn move_datagrams(&mut self, id: SocketId, now: Instant) -> bool {
        let Some(socket) = self.sockets.get_mut(id) else { return false };
        let fd = socket.fd();
        let Role::Udp(udp) = &mut socket.role else { return false };
        let (on_stack, claim) = (udp.on_stack.take(), socket.claim.take());
        self.release_claim(claim);
        let Some(on_stack) = on_stack else { return false };
        let mut were_any = false;
        self.take_in(now); // What was taken from the kernel before: no more comes after that.
        if let Some(shadow) = internal::copy(fd) {
            let mut room = vec![0; DATAGRAM_MAX];
            while let Some(received) = self.next_datagram(on_stack, &mut room) {
                self.deliver(shadow.as_fd(), &received, &room[..received.len]);
                were_any = true;
            }
            internal::close(shadow);
        }
        if let Some(stack) = self.queue.stack() {
            stack.udp_close(on_stack);
        }
        were_any
    }

    /// Takes the oldest datagram, whole: the kernel is not to deliver a part of one. An error that ICMP told of is nobody's any more.
    fn next_datagram(&mut self, udp: UdpId, room: &mut [u8]) -> Option<Received> {
        let stack = self.queue.stack()?;
        match stack.udp_recv_from(udp, room) {
            Err(UdpRecvError::Failed(_)) => stack.udp_recv_from(udp, room).ok(),
            received => received.ok(),
        }
    }

    /// Has the kernel deliver one datagram, or several that the stack has put together.
    fn deliver(&mut self, shadow: BorrowedFd<'_>, received: &Received, octets: &[u8]) {
        let Some(attachment) = self.attachment() else { return };
        let piece = received.segment_len.map_or(octets.len(), usize::from).max(1);
        let pieces: Vec<&[u8]> =
            if octets.is_empty() { vec![octets] } else { octets.chunks(piece).collect() };
        for piece in pieces {
            attachment.deliver(shadow, received.local, received.remote, piece);
        }
    }
}
