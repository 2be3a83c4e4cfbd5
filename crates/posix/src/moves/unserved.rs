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
//!
//! What waited at a listener waits in the kernel's accept queue from then on, where whoever asks first has it. Where the kernel has no way to that,
//! one of the others gets it.
//!
//! A process may take each in time, and others wait nevertheless, as it serves few at a time (`socket/queueing.rs`). Then the listener is the kernel's, too.
//!
//! Each of these moves costs the peer 20 ms and more. Where they are many, as with workers that take turns at `accept` by a lock of their
//! own, the socket is the kernel's for good; so it is at the second one where the kernel has no such way.

use clock::{Duration, Instant};

use crate::broker_side::ClaimId;
use crate::ids::SocketId;
use crate::moves::to_kernel::Terms;
use crate::process::State;
use crate::queue::Heir;
use crate::queue::stalls::LOOK_EVERY;
use crate::socket::{Happening, Role, Socket};

/// Looks that who has taken something before is given, powers of two: with a listener, of which little moves, and with a UDP
/// socket.
const PATIENCE: u32 = 2;
const PATIENCE_WITH_DATAGRAMS: u32 = 64;
const FEW_AT_A_TIME: &str = "connections wait there while few are served at a time";
const OFTEN_UNSERVED: &str = "what waits there is often not taken by the process that it came to";
const FOUND_BY_ANOTHER: &str = "one of the processes that have it found that the kernel serves it better";

impl State {
    /// Looks from time to time for what no thread takes.
    pub(crate) fn look_at_stalls(&mut self, now: Instant) {
        let Some(at) = self.queue.stalls.look_at.filter(|at| now >= *at) else { return };
        if now.since(at) >= LOOK_EVERY || !self.queue.begun.is_empty() {
            // The process has not run meanwhile, and had no time to take anything; or the broker is in the middle of what it was last asked.
            self.queue.stalls.look_at = Some(now + LOOK_EVERY);
            return;
        }
        self.queue.stalls.look_at = None;
        for id in std::mem::take(&mut self.queue.stalls.at) {
            if self.queue.is_leaving(id) {
                self.queue.stalls.at.push(id); // What waits there afterwards is looked at then.
                continue;
            }
            if self.leave_if_few(id, now) {
                continue;
            }
            let waits = self.has_waiting(id);
            let Some(socket) = self.sockets.get_mut(id) else { continue };
            if !waits {
                socket.stall.unlist();
                if let Role::Listener { queueing, .. } = &mut socket.role {
                    queueing.note_none();
                }
                continue;
            }
            self.queue.stalls.at.push(id);
            let is_udp = matches!(socket.role, Role::Udp(_));
            let patience = if is_udp { PATIENCE_WITH_DATAGRAMS } else { PATIENCE };
            let (is_due, claim) = (socket.stall.look(patience, now), socket.claim.or(socket.left));
            let shared =
                is_due && claim.is_some_and(|claim| self.attachment().is_some_and(|it| it.is_shared(claim)));
            if shared {
                self.move_unserved(id, now);
            }
        }
        if !self.queue.stalls.at.is_empty() {
            self.queue.stalls.look_at = Some(now + LOOK_EVERY);
        }
    }

    /// Leaves a listener to the kernel at which others wait while the program takes few at a time; whether it did.
    fn leave_if_few(&mut self, id: SocketId, now: Instant) -> bool {
        let Some(socket) = self.sockets.get_mut(id) else { return false };
        let Some(claim) = socket.claim else { return false };
        let Role::Listener { queueing, .. } = &mut socket.role else { return false };
        queueing.look(awake, now);
        let leaves = queueing.is_found()
            && self.attachment().is_some_and(|it| it.leaves_unsuited() && it.is_shared(claim));
        leaves && self.leave_socket((id, claim), FEW_AT_A_TIME, now)
    }

    /// Whether something waits to be taken from the stack, or was left to us.
    fn has_waiting(&mut self, id: SocketId) -> bool {
        let Some(socket) = self.sockets.get(id).filter(|socket| socket.is_shadow()) else { return false };
        let stack = self.queue.runtime.as_mut().map(|runtime| &*runtime.stack());
        socket.poll(stack) & crate::socket::READABLE != 0
    }

    /// Others are to have what waits at a socket.
    fn move_unserved(&mut self, id: SocketId, now: Instant) {
        let is_pushed = self.queue.stalls.is_pushed; // Before this time.
        let is_offered = self.leave_waiting(id, Heir::Others, Terms::Tried, now).is_ok();
        let Some(socket) = self.sockets.get_mut(id) else { return };
        socket.is_common = true; // As was just found.
        if !is_offered {
            return; // The program may yet take it.
        }
        if socket.left.is_some() {
            socket.stall.settle();
            return;
        }
        let is_often = socket.stall.note_unserved() || is_pushed;
        let leaves = is_often && self.attachment().is_some_and(|it| it.leaves_unsuited());
        let Some(socket) = self.sockets.get_mut(id) else { return };
        if let Some(claim) = socket.claim.filter(|_| leaves && socket.stall.has_taken()) {
            self.leave_socket((id, claim), OFTEN_UNSERVED, now);
            return;
        }
        match &socket.role {
            Role::Listener { .. } if socket.stall.taken > 0 => {
                socket.stall.settle();
                return;
            }
            Role::Listener { .. } => self.begin_to_leave(id, Heir::Others, now),
            Role::Udp(_) => self.move_datagrams_and_queues(id, now),
            _ => return,
        }
        if let Some(socket) = self.sockets.get_mut(id) {
            socket.stall.reset();
        }
        if leaves {
            self.leave_unserved(id, OFTEN_UNSERVED, now);
        }
        self.note_news(id);
    }

    /// A socket is the kernel's from now on, for all who have it: who left it alone would wait for a turn that others have. Whether the broker went along.
    pub(crate) fn leave_socket(
        &mut self,
        (id, claim): (SocketId, ClaimId),
        why: &'static str,
        now: Instant,
    ) -> bool {
        // While others can take it.
        if self.leave_waiting(id, Heir::Others, Terms::Tried, now).is_err() {
            return false;
        }
        if let Some(attachment) = self.attachment() {
            attachment.leave_socket(claim);
        }
        self.leave_unserved(id, why, now);
        self.note_news(id);
        true
    }

    /// What waits at listeners that others have, and what comes there, is the others'; until this process waits there again.
    pub(crate) fn leave_common_listeners(&mut self, now: Instant) {
        self.end_leaving();
        let listens = |socket: &Socket| matches!(socket.role, Role::Listener { .. });
        let claimed = self.sockets.iter().filter(|(_, socket)| listens(socket));
        let claimed = claimed.filter_map(|(id, socket)| Some((id, socket.claim?, socket.is_common)));
        for (id, claim, is_common) in claimed.collect::<Vec<_>>() {
            // Others may have it that have not claimed it yet.
            if !is_common && !self.attachment().is_some_and(|it| it.is_shared(claim)) {
                continue;
            }
            if let Some(socket) = self.sockets.get_mut(id) {
                socket.is_common = true;
                socket.stall.reset();
            }
            self.close_listener(id, now);
        }
    }

    /// Another process has found that the kernel serves a socket better.
    pub(crate) fn on_socket_left(&mut self, claim: ClaimId, now: Instant) {
        let of_claim = self.sockets.iter().find(|(_, socket)| socket.claim == Some(claim));
        if let Some((id, _)) = of_claim {
            self.leave_unserved(id, FOUND_BY_ANOTHER, now);
            self.note_news(id);
        }
    }

    /// What waits there is passed on until it comes to a process that accepts.
    fn leave_unserved(&mut self, id: SocketId, why: &'static str, now: Instant) {
        let Some(socket) = self.sockets.get_mut(id) else { return };
        socket.left = socket.claim;
        let step = self.step(id, Happening::KernelOnly(why));
        let _ = self.carry_out(id, step, now); // A listener or a UDP socket is not lost.
        self.note_arrival(id, now);
    }
}

/// For how long this process has used processors, or its thread that accepts has waited for one.
fn awake(acceptor: i32) -> Option<Duration> {
    Some(Duration::from(syscall::processor_time()) + run_delay(acceptor)?)
}

/// For how long a thread of this process has waited for processors.
pub(crate) fn run_delay(thread: i32) -> Option<Duration> {
    let schedstat = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).ok()?;
    schedstat.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}
