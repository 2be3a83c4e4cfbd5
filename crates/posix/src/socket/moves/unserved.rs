//! Listeners and UDP sockets that other processes have as well.
//!
//! On Linux, what arrives at such a socket goes to the first process that asks. Here it goes to the process by whose claim it was taken.
//! That is fine while this process takes it. But a process that only watches the socket (a super-server that starts a program on
//! activity, a parent that waits on its children's socket) never does. So:
//!
//! ```text
//!   something waits --20 ms, untouched--> has another process claimed this socket? --yes--> all of it moves:
//!                                                 no: checked again, ever less often         the kernel gets what waits, for all
//! ```
//!
//! A process that has taken something before gets more time. It keeps the claim of a listener, and only moves what waits:
//! so workers that serve one connection at a time help each other. A socket that moved is claimed again when the
//! process waits on it again.

use std::os::fd::{AsFd, BorrowedFd};

use clock::{Duration, Instant};
use stack::udp::{Received, UdpId, UdpRecvError};

use crate::internal;
use crate::process::State;
use crate::socket::{Role, Socket, SocketId};

/// Between two looks at what waits.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Looks that who has taken something before is given, powers of two: with a listener, of which little moves, and with a UDP
/// socket.
const PATIENCE: u32 = 2;
const PATIENCE_WITH_DATAGRAMS: u32 = 64;
/// Octets that the longest datagram has, and those that came together.
const DATAGRAM_MAX: usize = 65_535;

/// What a socket's looks have found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stall {
    /// How often the program has taken something from it.
    taken: u32,
    /// The same at the last look.
    seen: u32,
    /// Looks since then.
    looks: u32,
    is_listed: bool,
}

impl Stall {
    /// The program took something.
    pub(crate) fn note_taken(&mut self) {
        self.taken = self.taken.wrapping_add(1);
    }

    /// Something still waits; returns whether it is time to ask for other processes that would take it.
    fn look(&mut self, patience: u32) -> bool {
        if std::mem::replace(&mut self.seen, self.taken) != self.taken {
            self.looks = 0;
            return false;
        }
        self.looks = self.looks.saturating_add(1);
        let least = if self.taken == 0 { 1 } else { patience };
        self.looks >= least && self.looks.is_power_of_two()
    }

    /// What waited is gone.
    fn settle(&mut self) {
        self.looks = 0;
    }

    /// The whole socket moved, and is as new.
    fn reset(&mut self) {
        *self = Stall { is_listed: self.is_listed, ..Stall::default() };
    }
}

/// The sockets at which something waits, or did a moment ago.
#[derive(Default)]
pub(crate) struct Stalls {
    at: Vec<SocketId>,
    /// When to look at them.
    pub(crate) look_at: Option<Instant>,
}

impl State {
    /// Something came to a listener or a UDP socket of ours.
    pub(crate) fn note_arrival(&mut self, id: SocketId, now: Instant) {
        let Some(socket) = self.sockets.get_mut(id).filter(|socket| socket.is_shadow()) else { return };
        if !std::mem::replace(&mut socket.stall.is_listed, true) {
            self.stalls.at.push(id);
            self.stalls.look_at.get_or_insert(now + LOOK_EVERY);
        }
    }

    /// A listener is closed or moves: what waits there is looked after.
    pub(in crate::socket) fn forget_stall(&mut self, id: SocketId) {
        self.stalls.at.retain(|other| *other != id);
        if let Some(socket) = self.sockets.get_mut(id) {
            socket.stall.is_listed = false;
        }
    }

    /// Looks from time to time for what no thread takes.
    pub(crate) fn look_at_stalls(&mut self, now: Instant) {
        let Some(at) = self.stalls.look_at.filter(|at| now >= *at) else { return };
        if now.since(at) >= LOOK_EVERY {
            // The process has not run meanwhile, and had no time to take anything.
            self.stalls.look_at = Some(now + LOOK_EVERY);
            return;
        }
        self.stalls.look_at = None;
        for id in std::mem::take(&mut self.stalls.at) {
            let waits = self.has_waiting(id);
            let Some(socket) = self.sockets.get_mut(id) else { continue };
            if !waits {
                socket.stall = Stall { taken: socket.stall.taken, ..Stall::default() };
                continue;
            }
            self.stalls.at.push(id);
            let is_udp = matches!(socket.role, Role::Udp(_));
            let patience = if is_udp { PATIENCE_WITH_DATAGRAMS } else { PATIENCE };
            let (is_due, claim) = (socket.stall.look(patience), socket.claim);
            let shared =
                is_due && claim.is_some_and(|claim| self.attachment().is_some_and(|it| it.is_shared(claim)));
            if shared {
                self.move_unserved(id, now);
            }
        }
        if !self.stalls.at.is_empty() {
            self.stalls.look_at = Some(now + LOOK_EVERY);
        }
    }

    /// Whether something waits to be taken from the stack, or was left to us.
    fn has_waiting(&mut self, id: SocketId) -> bool {
        let Some(socket) = self.sockets.get(id).filter(|socket| socket.is_shadow()) else { return false };
        let stack = self.runtime.as_mut().map(|runtime| &*runtime.stack());
        socket.poll(stack) & crate::socket::READABLE != 0
    }

    /// Others are to have what waits at a socket.
    fn move_unserved(&mut self, id: SocketId, now: Instant) {
        let Some(socket) = self.sockets.get_mut(id) else { return };
        socket.is_common = true; // As was just found.
        match &socket.role {
            Role::Listener { .. } if socket.stall.taken > 0 => {
                socket.stall.settle();
                self.move_waiting(id, now);
                return;
            }
            Role::Listener { .. } => self.close_listener(id, now),
            Role::Udp(_) => self.move_datagrams_and_queues(id, now),
            _ => return,
        }
        if let Some(socket) = self.sockets.get_mut(id) {
            socket.stall.reset();
        }
        self.note_news(id);
    }

    /// The process goes: what came to sockets that others may have is left to them.
    pub(crate) fn move_shared_datagrams(&mut self, now: Instant) {
        let is_common = |socket: &Socket| socket.is_common && matches!(socket.role, Role::Udp(_));
        let claimed = self.sockets.iter().filter(|(_, it)| is_common(it) && it.claim.is_some());
        let claimed: Vec<SocketId> = claimed.map(|(id, _)| id).collect();
        claimed.into_iter().for_each(|id| self.move_datagrams_and_queues(id, now));
    }

    /// Datagrams that wait become the kernel's, and all that come.
    pub(in crate::socket) fn move_datagrams_and_queues(&mut self, id: SocketId, now: Instant) {
        self.move_datagrams(id, now);
        if !self.sockets.iter().any(|(_, socket)| socket.claim.is_some()) {
            self.move_all(None); // What the program has connected and closed is to be finished.
            self.give_queues_back(now);
        }
    }

    /// The same for a process that may soon want the queues again.
    pub(crate) fn move_datagrams(&mut self, id: SocketId, now: Instant) {
        let Some(socket) = self.sockets.get_mut(id) else { return };
        let fd = socket.fd();
        let Role::Udp(udp) = &mut socket.role else { return };
        let (on_stack, claim) = (udp.on_stack.take(), socket.claim.take());
        self.release_claim(claim);
        let Some(on_stack) = on_stack else { return };
        self.take_in(now); // What was taken from the kernel before: no more comes after that.
        if let Some(shadow) = internal::copy(fd) {
            let mut room = vec![0; DATAGRAM_MAX];
            while let Some(received) = self.next_datagram(on_stack, &mut room) {
                self.deliver(shadow.as_fd(), &received, &room[..received.len]);
            }
            internal::close(shadow);
        }
        if let Some(stack) = self.stack() {
            stack.udp_close(on_stack);
        }
    }

    /// Takes the oldest datagram, whole: the kernel is not to deliver a part of one. An error that ICMP told of is nobody's any more.
    fn next_datagram(&mut self, udp: UdpId, room: &mut [u8]) -> Option<Received> {
        let stack = self.stack()?;
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

    /// Connections that wait to be accepted become the kernel's, for others to accept; false if there were none.
    pub(in crate::socket) fn move_waiting(&mut self, id: SocketId, now: Instant) -> bool {
        let waiting = self.take_waiting(id, now);
        let were_any = waiting.is_some();
        waiting.into_iter().flatten().for_each(|socket| self.move_to_sibling(socket));
        were_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_never_taken_anything_is_given_one_look() {
        let mut stall = Stall::default();
        let due: Vec<bool> = (0..8).map(|_| stall.look(64)).collect();
        assert_eq!(due, [true, true, false, true, false, false, false, true], "ever less often");
    }

    #[test]
    fn who_takes_is_left_alone() {
        let mut stall = Stall::default();
        for _ in 0..100 {
            stall.note_taken();
            assert!(!stall.look(2));
        }
        let looks: Vec<u32> = (1..200).filter(|_| stall.look(64)).collect();
        assert_eq!(looks, [64, 128]);
    }
}
