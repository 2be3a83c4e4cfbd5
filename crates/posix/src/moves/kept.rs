//! What belongs to a closed listener, for the moment that it stays where it is.
//!
//! Who is about to end closes its listeners, and then the connections that are idle. If these moved to the kernel in between, requests would come to them, and
//! be there unread when they are closed: their peers would be reset.

use std::os::fd::RawFd;

use clock::Instant;

use crate::address::local_of;
use crate::descriptors::fd_table::Entry;
use crate::process::State;
use crate::queue::KeptListener;
use crate::queue::ended::KEPT_AFTER_CLOSE;
use crate::socket::Role;

impl State {
    /// A listener that other processes may have is about to be closed by its last number: what begins from now on is theirs, and the rest of it follows. False if it
    /// is to end at once, as where a call waits there.
    pub(crate) fn keep_listener(&mut self, fd: RawFd, now: Instant) -> bool {
        let Some(id) = self.socket_of(fd) else { return false };
        let Some(socket) = self.sockets.get(id) else { return false };
        let is_on_stack = matches!(socket.role, Role::Listener { on_stack: Some(_), .. });
        let is_meant =
            is_on_stack && socket.is_common && socket.callers.is_empty() && socket.fds().count() == 1;
        let (Some(claim), Some(local)) = (socket.claim.filter(|_| is_meant), local_of(fd)) else {
            return false;
        };
        if self.listener_beside(id, local).is_some() {
            return false;
        }
        self.drop_interests(id);
        self.forget_stall(id);
        if let Some(attachment) = self.attachment() {
            attachment.begin_to_drain(claim);
        }
        self.move_waiting(id, now); // Into the kernel's accept queue, while we have that.
        self.table.set(fd, Entry::None);
        if let Some(socket) = self.sockets.get_mut(id) {
            socket.set_fd(-1);
        }
        let at = self.clock.now() + KEPT_AFTER_CLOSE;
        self.queue.kept_listeners.push(KeptListener { id, local, at });
        self.queue.wake_driver(); // Its sleep is to end by then.
        true
    }

    /// Those whose time is over end.
    pub(crate) fn end_listeners_due(&mut self, now: Instant) {
        self.end_listeners_if(|kept| now >= kept.at);
    }

    /// All of them do.
    pub(crate) fn end_kept_listeners(&mut self) {
        self.end_listeners_if(|_| true);
    }

    /// A port is about to be bound: what was closed there ends, and the kernel learns whose the port is.
    pub(crate) fn end_what_was_closed_at(&mut self, port: u16) {
        self.end_listeners_if(|kept| kept.local.port() == port);
        self.move_connections_of_ended(port);
    }

    fn end_listeners_if(&mut self, is_meant: impl Fn(&KeptListener) -> bool) {
        while let Some(at) = self.queue.kept_listeners.iter().position(&is_meant) {
            let KeptListener { id, local, .. } = self.queue.kept_listeners.remove(at);
            self.close_listener_at(id, Some(local), self.clock.now());
            let claim = self.sockets.remove(id).and_then(|socket| socket.claim);
            self.release_claim(claim);
        }
    }

    /// In a child, and without a broker: they are nobody's.
    pub(crate) fn forget_kept_listeners(&mut self) {
        for kept in std::mem::take(&mut self.queue.kept_listeners) {
            self.sockets.remove(kept.id);
        }
    }

    /// Connections of listeners that ended move to the kernel when it is time.
    pub(crate) fn move_ended(&mut self, now: Instant) {
        while let Some(port) = self.queue.ended.iter().find(|it| it.is_to_move(now)).map(|it| it.local.port())
        {
            self.move_connections_of_ended(port);
        }
    }

    /// Those at this port move now.
    fn move_connections_of_ended(&mut self, port: u16) {
        let mut are_any = false;
        for ended in self.queue.ended.iter_mut().filter(|ended| ended.local.port() == port) {
            are_any |= ended.moves_at.take().is_some();
        }
        if are_any {
            self.move_all(Some(port));
        }
    }
}
