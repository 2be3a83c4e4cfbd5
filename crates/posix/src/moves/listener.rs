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
//! After close(2) the first step begins at once, and the others some milliseconds later (`kept.rs`).
//!
//! The kernel answers a segment of an unknown connection with a reset. So nothing may be given back while a peer may have a connection
//! that only our stack knows.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use clock::{Duration, Instant};
use stack::Handshake;

use crate::broker_side::ClaimId;
use crate::ids::SocketId;
use crate::process::State;
use crate::queue::Ended;
use crate::queue::ended::KEPT_AFTER_CLOSE;
use crate::socket::{READABLE, Role, Socket};
use crate::waiter::readable;

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

impl State {
    /// A listener goes. If others of ours share its port, they go on. If another process may have it: see the page. If not, those who
    /// wait there are reset, as on Linux, and its connections become the kernel's soon.
    pub(crate) fn close_listener(&mut self, id: SocketId, now: Instant) {
        let local = self.sockets.get(id).and_then(|socket| crate::address::local_of(socket.fd()));
        self.close_listener_at(id, local, now);
    }

    /// The same of one that is bound there.
    pub(super) fn close_listener_at(&mut self, id: SocketId, local: Option<SocketAddr>, now: Instant) {
        let now = self.settle_begun(now);
        let claim = self.sockets.get(id).and_then(|socket| socket.claim);
        let (Some(claim), Some(local)) = (claim, local) else { return self.take_off_listener(id, now) };
        if let Some(beside) = self.listener_beside(id, local) {
            return self.leave_to_beside(id, beside, claim, now);
        }
        let is_common = self.sockets.get(id).is_some_and(|socket| socket.is_common);
        self.forget_stall(id);
        if let Some(attachment) = self.attachment() {
            attachment.drain(claim);
        }
        if is_common {
            self.move_listener(id, claim, local, now);
        } else {
            self.take_off_listener(id, now);
            self.end_claim(id, claim, local, Some(now + KEPT_AFTER_CLOSE));
        }
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
        let mut others = self.sockets.iter().filter(|(other, _)| *other != id);
        others.find(|(_, it)| goes_on(it)).map(|(other, _)| other)
    }

    /// A listener goes, and those beside it have who waits there. Connections stay where they are.
    fn leave_to_beside(&mut self, id: SocketId, beside: SocketId, claim: ClaimId, now: Instant) {
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

    fn move_listener(&mut self, id: SocketId, claim: ClaimId, local: SocketAddr, now: Instant) {
        self.finish_handshakes(id, NEAR);
        self.move_waiting(id, self.clock.now());
        self.move_all(Some(local.port()));
        // All that took its time, in which some more were finished.
        self.finish_handshakes(id, Duration::ZERO);
        // What comes in while connections are moved may finish more of them. From the round on that finds none nothing is taken in.
        while self.move_waiting(id, self.clock.now()) {}
        self.move_handshakes(id);
        if let Some(socket) = self.sockets.get_mut(id) {
            socket.claim = None;
        }
        if !self.has_claims() {
            // What is there belongs to listeners that ended before.
            self.move_all(None);
            self.give_queues_back(now);
        }
        self.release_claim(Some(claim));
        self.hears_soon = true; // What other processes left to us until now goes to the next process.
    }

    /// A listener goes on as the kernel's. Those who wait there are accepted all the same, and its connections become the kernel's: what
    /// comes to the port is the kernel's from now on.
    pub(crate) fn move_listener_to_kernel(&mut self, id: SocketId) {
        self.settle_begun(self.clock.now());
        let Some(socket) = self.sockets.get(id) else { return };
        let (Some(claim), Some(local)) = (socket.claim, crate::address::local_of(socket.fd())) else {
            return;
        };
        self.forget_stall(id);
        if let Some(attachment) = self.attachment() {
            attachment.drain(claim);
        }
        self.finish_handshakes(id, HANDSHAKES_MAX);
        let rounds = std::iter::from_fn(|| self.take_waiting(id, self.clock.now()));
        let waiting: Vec<OwnedFd> = rounds.flatten().collect();
        self.leave_listener(id);
        if let Some(Role::Listener { adopted, .. }) = self.sockets.get_mut(id).map(|socket| &mut socket.role)
        {
            adopted.extend(waiting);
        }
        self.move_all(Some(local.port()));
        self.end_claim(id, claim, local, None);
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
                self.await_packets(now);
            }
        }
    }

    /// Sleeps a moment while holding all locks: the time is short, and no other thread could do anything about it.
    fn await_packets(&mut self, now: Instant) {
        let Some(runtime) = &mut self.queue.runtime else { return };
        let mut devices = Vec::new();
        let quiet = match runtime.engine.prepare_sleep(now, &mut devices) {
            engine::Sleep::Busy => return,
            engine::Sleep::Until(at) => QUIET.min(at.since(now)),
            engine::Sleep::Descriptors | engine::Sleep::Unknown => QUIET,
        };
        let mut fds: Vec<_> = devices.into_iter().map(readable).collect();
        // A signal ends it early, which does no harm.
        let _ = syscall::ppoll(&mut fds, Some(quiet.into()), None);
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
