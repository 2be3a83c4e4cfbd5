//! Sockets and epoll instances that are closed, also while another thread's call still uses them: on Linux a call holds the socket until
//! it is over. A thread that was cancelled in its call, or has left it by longjmp(3), releases what it holds when it ends.

use std::os::fd::{OwnedFd, RawFd};

use clock::Instant;

use crate::descriptors::fd_table::Entry;
use crate::descriptors::internal;
use crate::errno::Errno;
use crate::ids::{EpollId, SocketId};
use crate::moves::to_kernel::{NOT_YET, Terms};
use crate::process::{Closing, State};
use crate::socket::{Place, Role};

impl State {
    /// `fd` is about to be closed. What waits at a socket that other processes have too is theirs, if it is the last descriptor here;
    /// and if calls of other threads use that, they get a copy of what the kernel has of it. To be asked for while the number still is
    /// what it was.
    pub(crate) fn prepare_close(&mut self, fd: RawFd, now: Instant) -> Option<OwnedFd> {
        if let Some(id) = self.socket_of(fd)
            && self.sockets.get(id).is_some_and(|it| it.is_common && it.fds().count() == 1)
        {
            self.move_datagrams(id, now);
        }
        let socket = self.socket_of(fd).and_then(|id| self.sockets.get(id));
        let epoll = self.epoll_of(fd).and_then(|id| self.epolls.get(id));
        let is_wanted = socket
            .is_some_and(|it| it.callers.has_others() && it.is_shadow() && it.fds().count() == 1)
            || epoll.is_some_and(|it| it.callers.has_others() && it.fds().count() == 1);
        is_wanted.then(|| internal::copy(fd)).flatten()
    }

    /// The last descriptor of a socket is closed: the socket goes too, or when no call uses it any more, which has `copy` until then.
    pub(crate) fn close_socket(&mut self, id: SocketId, copy: Option<OwnedFd>, now: Instant) {
        let Some(socket) = self.sockets.get_mut(id) else { return };
        if !socket.callers.has_others() {
            return self.end_socket(id, now);
        }
        // The number will soon be another file's. The kernel's socket stays open under another number.
        socket.set_fd(internal::enter(self.table, copy));
        self.closing.push(Closing::Socket(id));
    }

    /// The same of an epoll instance.
    pub(crate) fn close_epoll(&mut self, id: EpollId, copy: Option<OwnedFd>) {
        let Some(epoll) = self.epolls.get_mut(id) else { return };
        if !epoll.callers.has_others() {
            return self.end_epoll(id);
        }
        epoll.set_fd(internal::enter(self.table, copy));
        self.closing.push(Closing::Epoll(id));
    }

    /// In a child, which has none of the calls: what the kernel has of what was closed goes with all internal descriptors.
    pub(crate) fn forget_closing(&mut self) {
        for closing in &self.closing {
            match closing {
                Closing::Socket(id) => self.sockets.get_mut(*id).map(|socket| socket.set_fd(-1)),
                Closing::Epoll(id) => self.epolls.get_mut(*id).map(|epoll| epoll.set_fd(-1)),
            };
        }
    }

    /// Ends what was closed, as far as no call uses it any more.
    pub(crate) fn end_closed(&mut self, now: Instant) {
        for closing in std::mem::take(&mut self.closing) {
            let (callers, fd) = match closing {
                Closing::Socket(id) => match self.sockets.get(id) {
                    Some(socket) => (&socket.callers, socket.fd()),
                    None => continue,
                },
                Closing::Epoll(id) => match self.epolls.get(id) {
                    Some(epoll) => (&epoll.callers, epoll.fd()),
                    None => continue,
                },
            };
            if !callers.is_empty() {
                self.closing.push(closing);
                continue;
            }
            match closing {
                Closing::Socket(id) => self.end_socket(id, now),
                Closing::Epoll(id) => self.end_epoll(id),
            }
            internal::close_entered(self.table, fd);
        }
    }
}

impl State {
    /// A descriptor is about to be closed: what stood behind it goes with the last one, or when the calls on it are over.
    pub(crate) fn close_descriptor(&mut self, fd: RawFd, now: Instant) {
        if self.keep_listener(fd, now) {
            return;
        }
        let copy = self.prepare_close(fd, now);
        self.close_with_copy(fd, copy, now);
    }

    /// The same of a descriptor that may be something else by now; `copy` is what [`State::prepare_close`] had of it before.
    pub(crate) fn close_with_copy(&mut self, fd: RawFd, copy: Option<OwnedFd>, now: Instant) {
        if let Some(id) = self.socket_of(fd) {
            self.table.set(fd, Entry::None);
            if self.sockets.get_mut(id).is_some_and(|socket| socket.remove_fd(fd)) {
                self.close_socket(id, copy, now);
            }
        } else if let Some(id) = self.epoll_of(fd) {
            self.table.set(fd, Entry::None);
            if self.epolls.get_mut(id).is_some_and(|epoll| epoll.remove_fd(fd)) {
                self.close_epoll(id, copy);
            }
        } else {
            self.table.set(fd, Entry::None);
        }
    }

    /// A descriptor has become something else past us, or on purpose: what stood behind it goes with the last one, whatever calls there
    /// are.
    pub(crate) fn let_go(&mut self, fd: RawFd, now: Instant) {
        if let Some(id) = self.socket_of(fd) {
            self.table.set(fd, Entry::None);
            if self.sockets.get_mut(id).is_some_and(|socket| socket.remove_fd(fd)) {
                self.end_socket(id, now);
            }
        } else if let Some(id) = self.epoll_of(fd) {
            self.table.set(fd, Entry::None);
            if self.epolls.get_mut(id).is_some_and(|epoll| epoll.remove_fd(fd)) {
                self.end_epoll(id);
            }
        } else {
            self.table.set(fd, Entry::None);
        }
    }

    pub(crate) fn end_socket(&mut self, id: SocketId, now: Instant) {
        self.drop_interests(id);
        match self.move_to_children(id, now) {
            Ok(true) => return,
            Ok(false) => {}
            Err(_) => {
                if let Some(socket) = self.sockets.get_mut(id) {
                    socket.set_fd(-1); // The number may soon be another file's.
                }
                return self.closing.push(Closing::Socket(id));
            }
        }
        if matches!(self.sockets.get(id).map(|socket| &socket.role), Some(Role::Listener { .. })) {
            self.close_listener(id, now);
        }
        self.note_sleeps(id);
        let Some(socket) = self.sockets.remove(id) else { return };
        for waiter in &socket.waiters {
            waiter.wake();
        }
        match socket.role {
            Role::Stream(Place::Stack(connection)) => {
                self.decide_on_port(socket.claim, connection, now);
                if let Some(stack) = self.queue.stack() {
                    stack.close(connection, now);
                }
                self.release_claim_of_connection(socket.claim, connection, now);
            }
            Role::Udp(udp) => {
                if let (Some(on_stack), Some(stack)) = (udp.on_stack, self.queue.stack()) {
                    stack.udp_close(on_stack);
                }
                self.release_claim(socket.claim);
            }
            _ => self.release_claim(socket.claim),
        }
    }

    /// Whether a child, or the parent, continues a connection. An error is [`NOT_YET`].
    fn move_to_children(&mut self, id: SocketId, now: Instant) -> Result<bool, Errno> {
        let Some(ends) = self.endpoints(id) else { return Ok(false) };
        let Some(socket) = self.sockets.get(id) else { return Ok(false) };
        match socket.role {
            Role::Stream(Place::FromParent(_)) => {
                self.kinship.note_let_go(ends);
                Ok(false)
            }
            // A connection that was made after the fork may have the addresses of one before it.
            Role::Stream(Place::Stack(_)) if socket.is_common && self.kinship.is_held_by_child(ends) => {
                match self.take_off_stack(id, Terms::Tried, now) {
                    Ok(kernel) => {
                        self.kinship.keep_for_children(ends, kernel);
                        let claim = self.sockets.remove(id).and_then(|socket| socket.claim);
                        self.release_claim(claim);
                        Ok(true)
                    }
                    Err(NOT_YET) => Err(NOT_YET),
                    Err(_) => Ok(false),
                }
            }
            _ => Ok(false),
        }
    }

    pub(crate) fn end_epoll(&mut self, id: crate::ids::EpollId) {
        let items: Vec<_> = self
            .epolls
            .get(id)
            .into_iter()
            .flat_map(|epoll| epoll.items.iter().map(|(item, _)| item))
            .collect();
        items.into_iter().for_each(|item| self.remove_item(id, item));
        while let Some(watcher) = self.epolls.get(id).and_then(|epoll| epoll.watchers.at(0)) {
            self.remove_item(watcher.epoll, watcher.item);
            if let Some(epoll) = self.epolls.get_mut(id) {
                epoll.watchers.remove(watcher);
            }
        }
        self.take_bell_down(id);
        self.epolls.remove(id);
    }

    /// A number was given out anew without our hearing of its end.
    pub(crate) fn forget_stale(&mut self, fd: RawFd) {
        if self.table.is_ours(fd) {
            let now = Instant::ZERO;
            self.let_go(fd, now);
        }
    }
}
