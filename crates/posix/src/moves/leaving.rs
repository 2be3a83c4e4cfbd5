//! Listeners that leave the stack: closed ones, and those that are better off with others or the kernel. `listener.rs` has the steps.
//!
//! Each step is taken as far as the broker goes along. If it has stopped, the listener and its connections go on, and the rest is done later. Who is about
//! to end waits for it, as do calls that others rely on (`driving.rs`): for a minute at most.
//!
//! A closed listener stays for a moment first. Who is about to end closes its listeners, and then the connections that are idle. If these moved to the
//! kernel in between, requests would come to them, and be there unread when they are closed: their peers would be reset.

use std::net::SocketAddr;
use std::os::fd::RawFd;

use clock::Instant;

use crate::address::local_of;
use crate::broker_side::ClaimId;
use crate::descriptors::fd_table::Entry;
use crate::descriptors::internal::{close_entered, copy, enter};
use crate::ids::SocketId;
use crate::moves::listener::heir_of_closed;
use crate::moves::to_kernel::{TRIED_AGAIN_AFTER, Terms};
use crate::process::State;
use crate::queue::ended::KEPT_AFTER_CLOSE;
use crate::queue::{Heir, Leaving};
use crate::socket::{Role, Socket};

impl State {
    /// A listener that other processes may have is about to be closed by its last number: what begins from now on is theirs, and the rest of it follows. False if it
    /// is to end at once, as where a call waits there.
    pub(crate) fn keep_listener(&mut self, fd: RawFd, now: Instant) -> bool {
        let Some(id) = self.socket_of(fd) else { return false };
        let Some(socket) = self.sockets.get(id) else { return false };
        let is_on_stack = matches!(socket.role, Role::Listener { on_stack: Some(_), .. });
        let is_meant = is_on_stack && socket.callers.is_empty() && socket.fds().count() == 1;
        let Some(claim) = socket.claim.filter(|_| is_meant) else { return false };
        let (Some(heir), Some(local)) = (heir_of_closed(socket), local_of(fd)) else { return false };
        if self.listener_beside(id, local).is_some() {
            return false;
        }
        self.take_from_kernel(id); // Its file stays open.
        self.drop_interests(id);
        self.forget_stall(id);
        let mut leaving = self.queue.take_leaving(id).unwrap_or_else(|| Leaving::new(id, claim, local));
        leaving.heir = heir;
        self.ask_to_drain(&mut leaving, now);
        let _ = self.leave_waiting(id, heir, Terms::Tried, now); // Into the kernel's accept queue, while we have that.
        // If the broker has stopped, who comes has to wait here, and can go to the listener's accept queue later only if that stays open.
        let copy = (heir == Heir::Others && !self.is_drained(&mut leaving)).then(|| copy(fd)).flatten();
        self.table.set(fd, Entry::None);
        if let Some(socket) = self.sockets.get_mut(id) {
            socket.set_fd(enter(self.table, copy));
        }
        leaving.is_closed = true;
        leaving.at = self.clock.now() + KEPT_AFTER_CLOSE;
        self.queue.leaving.push(leaving);
        self.queue.wake_driver(); // Its sleep is to end by then.
        true
    }

    /// A listener that stays open leaves, as far as the broker goes along now, and the rest of it soon.
    pub(crate) fn begin_to_leave(&mut self, id: SocketId, heir: Heir, now: Instant) {
        let Some((claim, local)) = self.claimed_at(id).filter(|_| !self.queue.is_leaving(id)) else { return };
        if heir == Heir::Others
            && let Some(beside) = self.listener_beside(id, local)
        {
            return self.leave_to_beside(id, beside, claim, now);
        }
        self.forget_stall(id);
        self.leave_on(Leaving { heir, ..Leaving::new(id, claim, local) });
        self.queue.wake_driver(); // There may be more to do soon.
    }

    /// It leaves before this returns.
    pub(crate) fn leave_to_kernel_at_last(&mut self, id: SocketId) {
        let Some((claim, local)) = self.claimed_at(id) else { return };
        self.forget_stall(id);
        let leaving = self.queue.take_leaving(id).unwrap_or_else(|| Leaving::new(id, claim, local));
        self.leave_at_last(Leaving { heir: Heir::Kernel, ..leaving });
    }

    /// Those whose time has come get on with it.
    pub(crate) fn go_on_leaving(&mut self, now: Instant) {
        let due: Vec<Leaving> = self.queue.leaving.extract_if(.., |leaving| now >= leaving.at).collect();
        due.into_iter().for_each(|leaving| _ = self.leave_on(leaving));
    }

    /// All that leave do so before this returns.
    pub(crate) fn end_leaving(&mut self) {
        self.end_leaving_if(|_| true);
    }

    /// A port is about to be bound: what was closed there ends, and the kernel learns whose the port is.
    pub(crate) fn end_what_was_closed_at(&mut self, port: u16) {
        self.end_leaving_if(|leaving| leaving.local.port() == port);
        self.move_connections_of_ended(port, Terms::Must);
    }

    fn end_leaving_if(&mut self, is_meant: impl Fn(&Leaving) -> bool) {
        while let Some(at) = self.queue.leaving.iter().position(&is_meant) {
            let leaving = self.queue.leaving.remove(at);
            self.leave_at_last(leaving);
        }
    }

    /// Without a broker: those that were closed are nobody's.
    pub(crate) fn drop_leaving(&mut self) {
        for leaving in &self.queue.leaving {
            let closed = self.sockets.get(leaving.id).filter(|_| leaving.is_closed);
            closed.into_iter().for_each(|socket| close_entered(self.table, socket.fd()));
        }
        self.forget_leaving();
    }

    /// The same in a child, where our descriptors are closed by number.
    pub(crate) fn forget_leaving(&mut self) {
        for leaving in std::mem::take(&mut self.queue.leaving).into_iter().filter(|it| it.is_closed) {
            self.sockets.remove(leaving.id);
        }
    }

    /// What a socket has claimed, and where.
    fn claimed_at(&self, id: SocketId) -> Option<(ClaimId, SocketAddr)> {
        let socket: &Socket = self.sockets.get(id)?;
        Some((socket.claim?, local_of(socket.fd())?))
    }

    /// Connections of listeners that ended move to the kernel when it is time.
    pub(crate) fn move_ended(&mut self, now: Instant) {
        let due = self.queue.ended.iter().filter(|it| it.is_to_move(now)).map(|it| it.local.port());
        for port in due.collect::<Vec<_>>() {
            self.move_connections_of_ended(port, Terms::Tried);
        }
    }

    /// Those at this port move now, and those that are not taken soon.
    fn move_connections_of_ended(&mut self, port: u16, terms: Terms) {
        let mut are_any = false;
        for ended in self.queue.ended.iter_mut().filter(|ended| ended.local.port() == port) {
            are_any |= ended.moves_at.take().is_some();
        }
        if are_any && !self.move_all(Some(port), terms) {
            let at = self.clock.now() + TRIED_AGAIN_AFTER;
            let ended = self.queue.ended.iter_mut().filter(|ended| ended.local.port() == port);
            ended.for_each(|ended| ended.moves_at = Some(at));
        }
    }
}
