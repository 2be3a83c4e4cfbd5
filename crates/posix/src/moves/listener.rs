//! Closing a listener, and with the last one giving our queues to the next process, without losing a connection.
//!
//! A worker that is replaced closes its listeners while peers connect. These are the steps, and where packets find their connection
//! meanwhile:
//!
//! ```text
//!   drain      The broker passes SYNs to the kernel's listener, and marks their flows as the kernel's.
//!     |        Everything else still comes to us.
//!   settle     Handshakes that we began are completed if their last segment is in our ring or about to arrive.
//!     |
//!   move       Connections that wait for `accept` move to the kernel, and wait at another process with the same listener.
//!     |        Accepted connections move to the kernel behind their descriptors. Each flow is marked as the kernel's before
//!     |        the kernel sends; packets of it that still arrive at us are passed on to the kernel.
//!   pass on    Handshakes of slower peers go to the next process. Until then their packets are dropped, as if they were
//!     |        lost on the way.
//!   give back  The device is closed, and the queue has no owner: its packets go to the kernel, which knows all connections now.
//!     |
//!   the next   The broker lends the queue to the next process, passes the handshakes to it, and takes packets from the kernel again
//!              by the steps on the page of its registry. Packets of the kernel's connections stay with the kernel.
//! ```
//!
//! After close(2) the first step begins at once, and the others some milliseconds later. While the broker has stopped, what has not left goes on
//! where it is (`leaving.rs`).
//!
//! The kernel answers a segment of an unknown connection with a reset. So nothing may be given back while a peer may have a connection
//! that only our stack knows.

use std::net::SocketAddr;

use clock::{Duration, Instant};
use stack::Handshake;

use crate::broker_side::ClaimId;
use crate::descriptors::internal::close_entered;
use crate::ids::SocketId;
use crate::moves::to_kernel::{TRIED_AGAIN_AFTER, TRIED_FOR, Terms, WaitsAgain};
use crate::process::State;
use crate::queue::ended::KEPT_AFTER_CLOSE;
use crate::queue::{Ended, Heir, Leaving};
use crate::socket::{READABLE, Role, Socket};

/// How long after SYNs were left to the kernel one may still come to us: the steering program decides for a whole burst at a
/// time, and a core may be busy with another.
const QUIET: Duration = Duration::from_millis(1);

/// How long near peers have to finish handshakes if another process continues the others.
const NEAR: Duration = Duration::from_millis(10);
/// How long all peers have if no other process does. Most take a round trip; some never answer.
const HANDSHAKES_MAX: Duration = Duration::from_millis(200);
/// How long it is waited at most for a moment in which nothing comes.
const BUSY_MAX: Duration = Duration::from_millis(100);

/// Handshakes that are passed on at most: of more the latest, the others belong to peers that are not there.
const PASSED_ON_MAX: usize = 256;

/// Who has a listener that is closed, if anybody may.
pub(super) fn heir_of_closed(listener: &Socket) -> Option<Heir> {
    if listener.is_common {
        return Some(Heir::Others);
    }
    let mut value = [0; 4];
    let read = syscall::getsockopt(listener.fd(), libc::SOL_SOCKET, libc::SO_REUSEPORT, &mut value);
    (read.is_ok() && i32::from_ne_bytes(value) != 0).then_some(Heir::AtPort)
}

impl Heir {
    /// How long peers have to finish handshakes.
    fn patience(self) -> Duration {
        match self {
            Heir::Others | Heir::AtPort => NEAR,
            Heir::Kernel => HANDSHAKES_MAX,
        }
    }
}

impl State {
    /// A listener goes. If others of ours share its port, they go on. If another process may have it: see the page. If not, those who
    /// wait there are reset, as on Linux, and its connections become the kernel's soon.
    pub(crate) fn close_listener(&mut self, id: SocketId, now: Instant) {
        let local = self.sockets.get(id).and_then(|socket| crate::address::local_of(socket.fd()));
        let now = self.settle_begun(now);
        self.queue.take_leaving(id);
        let claim = self.sockets.get(id).and_then(|socket| socket.claim);
        let (Some(claim), Some(local)) = (claim, local) else { return self.take_off_listener(id, now) };
        if let Some(beside) = self.listener_beside(id, local) {
            return self.leave_to_beside(id, beside, claim, now);
        }
        self.forget_stall(id);
        if let Some(heir) = self.sockets.get(id).and_then(heir_of_closed) {
            return self.leave_at_last(Leaving { heir, ..Leaving::new(id, claim, local) });
        }
        if let Some(attachment) = self.attachment() {
            attachment.drain(claim);
        }
        self.take_off_listener(id, now);
        self.end_claim(id, claim, local, Some(now + KEPT_AFTER_CLOSE));
    }

    /// A listener's claim is of use to its connections only.
    fn end_claim(&mut self, id: SocketId, claim: ClaimId, local: SocketAddr, moves_at: Option<Instant>) {
        let now = self.clock.now();
        if let Some(socket) = self.sockets.get_mut(id) {
            socket.claim = None;
        }
        if self.queue.runtime.is_some() {
            return self.queue.ended.push(Ended { claim, local, at: now, moves_at });
        }
        // It has none, and no one else would check again.
        self.release_claim(Some(claim));
        if !self.has_claims() {
            self.give_queues_back(now);
        }
    }

    /// Another listener of ours at the same address and port (`SO_REUSEPORT`), which goes on.
    pub(super) fn listener_beside(&self, id: SocketId, local: SocketAddr) -> Option<SocketId> {
        let goes_on = |it: &Socket| {
            it.claim.is_some()
                && matches!(it.role, Role::Listener { on_stack: Some(_), .. })
                && crate::address::local_of(it.fd()) == Some(local)
        };
        let mut others =
            self.sockets.iter().filter(|(other, _)| *other != id && !self.queue.is_leaving(*other));
        others.find(|(_, it)| goes_on(it)).map(|(other, _)| other)
    }

    /// A listener goes, and those beside it have who waits there. Connections stay where they are.
    pub(super) fn leave_to_beside(&mut self, id: SocketId, beside: SocketId, claim: ClaimId, now: Instant) {
        self.forget_stall(id);
        let Some(socket) = self.sockets.get_mut(id) else { return };
        socket.claim = None;
        let Role::Listener { on_stack, adopted, .. } = &mut socket.role else { return };
        let (on_stack, waiting) = (on_stack.take(), std::mem::take(adopted));
        if let (Some(listener), Some(stack)) = (on_stack, self.queue.stack()) {
            stack.close_listener(listener, now);
        }
        if let Some(Role::Listener { adopted, .. }) = self.sockets.get_mut(beside).map(|it| &mut it.role) {
            adopted.extend(waiting);
            self.raise(beside, READABLE);
        }
        self.release_claim(Some(claim));
        self.take_in(now); // Their threads learn of it.
    }

    /// Takes the steps of the page; false if the broker has not gone along with all of them, and the listener goes on until they are tried again.
    fn leave(&mut self, leaving: &mut Leaving, terms: Terms) -> bool {
        let (id, heir) = (leaving.id, leaving.heir);
        let Some(drained_at) = self.drain(leaving, terms) else { return false };
        let since = self.clock.now().since(drained_at);
        self.finish_handshakes(id, heir.patience() - since);
        let is_last = heir != Heir::Kernel
            && !self.sockets.iter().any(|(other, socket)| other != id && socket.claim.is_some());
        // With the last one all that is there leaves, also what belongs to listeners that ended before.
        let port = Some(leaving.local.port()).filter(|_| !is_last);
        if !self.leave_all_waiting(id, heir, terms) || !self.move_all(port, terms) {
            return false;
        }
        // All that took its time, in which some more were finished.
        self.finish_handshakes(id, Duration::ZERO);
        // What comes in while connections are moved may finish more of them. From the round on that finds none nothing is taken in.
        if !self.leave_all_waiting(id, heir, terms) {
            return false;
        }
        match heir {
            Heir::Kernel => {
                self.leave_listener(id);
                self.end_claim(id, leaving.claim, leaving.local, None);
            }
            Heir::Others | Heir::AtPort => self.leave_to_others(id, leaving.claim, is_last),
        }
        self.note_news(id); // Who waits there again may claim it again.
        self.remove_closed(leaving);
        true
    }

    /// The same; if it has not left, it gets on with it later.
    pub(super) fn leave_on(&mut self, mut leaving: Leaving) -> bool {
        let has_left = self.leave(&mut leaving, Terms::Tried);
        if !has_left {
            leaving.at = self.clock.now() + TRIED_AGAIN_AFTER;
            self.queue.leaving.push(leaving);
        }
        has_left
    }

    /// The same before this returns. The broker is waited for, a minute at most, and what is left then is lost.
    pub(super) fn leave_at_last(&mut self, leaving: Leaving) {
        let id = leaving.id;
        self.queue.leaving.push(leaving);
        self.drive_until(|state| {
            state.hear_of_begun();
            state.queue.take_leaving(id).is_none_or(|leaving| state.leave_on(leaving))
        });
        if let Some(mut leaving) = self.queue.take_leaving(id) {
            self.settle_begun(self.clock.now());
            self.leave(&mut leaving, Terms::Must);
        }
    }

    /// The last steps, with nothing left that could stay.
    fn leave_to_others(&mut self, id: SocketId, claim: ClaimId, is_last: bool) {
        self.move_handshakes(id);
        if let Some(socket) = self.sockets.get_mut(id) {
            socket.claim = None;
        }
        if is_last {
            self.give_queues_back(self.clock.now());
        }
        self.release_claim(Some(claim));
        self.hears_soon = true; // What other processes left to us until now goes to the next process.
    }

    /// A socket that was closed goes with its listener.
    fn remove_closed(&mut self, leaving: &Leaving) {
        let Some(socket) = self.sockets.get(leaving.id).filter(|_| leaving.is_closed) else { return };
        close_entered(self.table, socket.fd());
        let claim = self.sockets.remove(leaving.id).and_then(|socket| socket.claim);
        self.release_claim(claim);
    }

    /// Since when new connections are the kernel's, if they are.
    fn drain(&mut self, leaving: &mut Leaving, terms: Terms) -> Option<Instant> {
        let is_drained = match terms {
            _ if self.queue.runtime.is_none() => true, // It has nothing that could stay.
            _ if leaving.drained_at.is_some() => terms == Terms::Must || !self.stands_still(),
            // A kernel that has the queue back serves who comes. Without a broker it has it when the device is closed.
            _ if terms == Terms::Must || self.is_left_alone() => {
                self.attachment().into_iter().for_each(|attachment| attachment.drain(leaving.claim));
                true
            }
            _ => !self.stands_still() && self.is_drained(leaving),
        };
        is_drained.then(|| *leaving.drained_at.get_or_insert(self.clock.now()))
    }

    /// Whether the broker has passed new connections to the kernel, or does so in a moment.
    pub(super) fn is_drained(&mut self, leaving: &mut Leaving) -> bool {
        let now = self.clock.now();
        self.ask_to_drain(leaving, now);
        let (Some((request, asked_at)), Some(attachment)) = (leaving.asked, self.attachment()) else {
            return false;
        };
        attachment.is_drained(request, TRIED_FOR - now.since(asked_at))
    }

    /// Whether there is no broker, nor about to be one.
    fn is_left_alone(&mut self) -> bool {
        self.attachment().is_none_or(|attachment| attachment.has_given_up())
    }

    /// Whether nothing is to be asked of the broker that may wait.
    fn stands_still(&mut self) -> bool {
        !self.is_left_alone() && self.attachment().is_none_or(|attachment| attachment.stands_still())
    }

    /// Begins with that, unless it has begun.
    pub(super) fn ask_to_drain(&mut self, leaving: &mut Leaving, now: Instant) {
        let attachment = self.attachment().filter(|_| leaving.asked.is_none());
        let request = attachment.and_then(|attachment| attachment.begin_to_drain(leaving.claim));
        leaving.asked = leaving.asked.or(request.map(|request| (request, now)));
    }

    /// All that wait to be accepted leave; false if some wait on.
    fn leave_all_waiting(&mut self, id: SocketId, heir: Heir, terms: Terms) -> bool {
        loop {
            match self.leave_waiting(id, heir, terms, self.clock.now()) {
                Ok(true) => {}
                Ok(false) => return true,
                Err(WaitsAgain) => return false,
            }
        }
    }

    /// The process ends, or becomes another program: so do its listeners, as far as they are ours.
    pub(crate) fn close_listeners(&mut self, now: Instant) {
        let listens = |role: &Role| matches!(role, Role::Listener { .. });
        let claimed = self.sockets.iter().filter(|(_, it)| it.claim.is_some() && listens(&it.role));
        let mut ids: Vec<SocketId> = claimed.map(|(id, _)| id).collect();
        // The last one of a group has who waits at any of them, and others may have it.
        ids.sort_by_key(|id| self.sockets.get(*id).is_some_and(|socket| socket.is_common));
        ids.into_iter().for_each(|id| self.close_listener(id, now));
    }

    /// Stops listening on the stack; connections that wait there are reset.
    fn take_off_listener(&mut self, id: SocketId, now: Instant) {
        let Some(Role::Listener { on_stack, adopted, .. }) =
            self.sockets.get_mut(id).map(|socket| &mut socket.role)
        else {
            return;
        };
        let (on_stack, adopted) = (on_stack.take(), std::mem::take(adopted));
        if let (Some(listener), Some(stack)) = (on_stack, self.queue.stack()) {
            stack.close_listener(listener, now);
        }
        adopted.into_iter().for_each(|socket| self.move_to_sibling(socket));
    }

    /// Drives the engine until all connections that peers have begun at a listener are there, or have been waited for long enough, and
    /// nothing is in the rings.
    fn finish_handshakes(&mut self, id: SocketId, patience: Duration) {
        let began = self.clock.now();
        loop {
            let now = self.clock.now();
            let Some(listener) = self.listener_on_stack(id) else { return };
            let done = self.take_in(now);
            self.pass_on_late();
            let open = self.queue.stack().map_or(0, |stack| stack.open_handshakes(listener));
            let waited = now.since(began);
            let is_over = open == 0 && waited >= QUIET || waited >= patience;
            if done == 0 && is_over || waited >= patience + BUSY_MAX {
                return self.accept_acknowledged(id, now);
            }
            if done == 0 {
                self.await_packets(now, QUIET);
            }
        }
    }

    /// Connections at a listener that waits for data, or has a full queue, count as they are.
    fn accept_acknowledged(&mut self, id: SocketId, now: Instant) {
        if let Some(listener) = self.listener_on_stack(id)
            && let Some(stack) = self.queue.stack()
        {
            stack.accept_acknowledged(listener, now);
        }
    }

    /// Takes the listener off the stack, with the handshakes that are not finished: others go on with them.
    fn move_handshakes(&mut self, id: SocketId) {
        let now = self.clock.now();
        let Some(listener) = self.listener_on_stack(id) else { return };
        let Some(stack) = self.queue.stack() else { return };
        let mut open = stack.detach_handshakes(listener, now);
        open.sort_by_key(|handshake| handshake.age_us);
        self.leave_listener(id);
        let Some(attachment) = self.attachment() else { return };
        open.into_iter().take(PASSED_ON_MAX).for_each(|handshake| attachment.move_handshake(handshake));
    }

    /// Takes the listener off the stack. A SYN that was under way for longer than we waited is not to be reset: others listen. The
    /// peer sends it again.
    fn leave_listener(&mut self, id: SocketId) {
        let now = self.clock.now();
        let Some(Role::Listener { on_stack, .. }) = self.sockets.get_mut(id).map(|socket| &mut socket.role)
        else {
            return;
        };
        let listener = on_stack.take();
        if let (Some(listener), Some(stack)) = (listener, self.queue.stack()) {
            stack.leave_listener(listener, now);
        }
    }

    /// Goes on with a handshake of another process. One that no listener of ours can take is forgotten.
    pub(crate) fn on_handshake(&mut self, handshake: &Handshake, now: Instant) {
        if let Some(stack) = self.queue.stack() {
            let _ = stack.attach_handshake(handshake, now);
        }
    }

    /// A listener is closed or moves: what waits there is looked after.
    pub(crate) fn forget_stall(&mut self, id: SocketId) {
        self.queue.stalls.at.retain(|other| *other != id);
        if let Some(socket) = self.sockets.get_mut(id) {
            socket.stall.is_listed = false;
        }
    }
}
