//! close(2) and shutdown(2).

use std::os::fd::{OwnedFd, RawFd};
use std::sync::MutexGuard;

use clock::Instant;
use stack::tcp::{Shutdown, State as TcpState};

use super::moves::IfRefused;
use super::{Place, Role, SocketId};
use crate::calls::Verdict;
use crate::drive::{On, Waiting};
use crate::errno::fail;
use crate::fd_table::Entry;
use crate::process::{Process, State};

impl Process {
    /// close(2): lets go of `fd`; the number itself is the caller's to close.
    pub(crate) fn close(&self, fd: RawFd) -> Verdict<()> {
        if self.table.get(fd) == Entry::Internal {
            return Verdict::Done(fail(libc::EBADF));
        }
        let state = self.lock();
        let mut state = match state.socket_of(fd) {
            Some(id) if state.sockets.get(id).is_some_and(|socket| socket.fds().count() == 1) => {
                self.linger(state, id)
            }
            _ => state,
        };
        let now = self.now();
        state.close_descriptor(fd, now);
        state.leave(now);
        Verdict::Kernel
    }

    /// close_range(2): closes our sockets and keeps our own descriptors open. Returns the ranges that the kernel must close.
    pub(crate) fn close_range(&self, first: u32, last: u32, flags: u32) -> Verdict<()> {
        const UNSHARE: u32 = 2;
        const CLOSE_ON_EXEC: u32 = 4;
        if first > last || flags & !(UNSHARE | CLOSE_ON_EXEC) != 0 {
            return Verdict::Kernel;
        }
        let mut state = self.lock();
        let now = self.now();
        if flags & CLOSE_ON_EXEC == 0 {
            let theirs = self.table.within(first, last).filter(|(_, entry)| *entry != Entry::Internal);
            theirs.collect::<Vec<_>>().into_iter().for_each(|(fd, _)| state.close_descriptor(fd, now));
        }
        state.leave(now);
        // Searched after that, because closing may create new descriptors of our own.
        let own = self.table.within(first, last).filter(|(_, entry)| *entry == Entry::Internal);
        let mut from = first;
        for (fd, _) in own.collect::<Vec<_>>() {
            let fd = fd as u32;
            if fd > from
                && let Err(error) = syscall::close_range(from, fd - 1, flags)
            {
                return Verdict::Done(Err(error.into()));
            }
            from = fd + 1;
        }
        let rest = if from <= last { syscall::close_range(from, last, flags) } else { Ok(()) };
        Verdict::Done(rest.map_err(Into::into))
    }

    /// shutdown(2).
    pub(crate) fn shutdown(&self, fd: RawFd, how: i32) -> Verdict<()> {
        let mut state = self.lock();
        let Some(id) = state.socket_of(fd) else { return Verdict::Kernel };
        let Some(socket) = state.sockets.get(id) else { return Verdict::Kernel };
        let how = match how {
            libc::SHUT_RD => Shutdown::Read,
            libc::SHUT_WR => Shutdown::Write,
            libc::SHUT_RDWR => Shutdown::Both,
            _ => return if socket.is_shadow() { Verdict::Kernel } else { Verdict::Done(fail(libc::EINVAL)) },
        };
        let now = self.now();
        match socket.role {
            Role::Stream(Place::Stack(connection)) => {
                let Some(stack) = state.stack() else { return Verdict::Done(fail(libc::ENOTCONN)) };
                match stack.state(connection) {
                    None | Some(TcpState::Closed | TcpState::TimeWait) => {
                        return Verdict::Done(fail(libc::ENOTCONN));
                    }
                    Some(TcpState::SynSent) => state.disconnect(id, now),
                    Some(_) => stack.shutdown(connection, how, now),
                }
                state.leave(now);
                state.raise(id, super::READABLE | super::WRITABLE | libc::EPOLLRDHUP as u32);
                Verdict::Done(Ok(()))
            }
            Role::Listener { .. } if how != Shutdown::Write => {
                state.listen_no_more(id, now);
                Verdict::Kernel
            }
            Role::Stream(Place::ToStack { .. }) => {
                state.disconnect(id, now);
                Verdict::Done(Ok(()))
            }
            Role::Stream(Place::Lost) => Verdict::Done(fail(libc::ENOTCONN)),
            Role::Stream(Place::FromParent(_)) => self.inherit_for_kernel(state, id),
            _ => Verdict::Kernel,
        }
    }

    /// With `SO_LINGER` and a time, close waits until the peer has all, or the time is over.
    fn linger<'p>(&'p self, mut state: MutexGuard<'p, State>, id: SocketId) -> MutexGuard<'p, State> {
        let Some(connection) = state.sockets.get(id).and_then(|socket| socket.connection()) else {
            return state;
        };
        let now = self.now();
        let Some(stack) = state.stack() else { return state };
        let linger =
            stack.options(connection).and_then(|options| options.linger).filter(|time| !time.is_zero());
        let unread = stack.queued(connection).is_none_or(|(unread, _)| unread > 0);
        let Some(time) = linger.filter(|_| !unread) else { return state };
        stack.shutdown(connection, Shutdown::Write, now);
        let waiting =
            Waiting { on: On::Socket(id, None), deadline: Some(now + time), mask: None, restarts: false };
        // What ends the wait does not matter: the socket is closed in any case.
        let _ = self.wait(state, &waiting, &mut |state, _| {
            let tcp = state.stack().and_then(|stack| stack.state(connection));
            let is_told = !matches!(tcp, Some(TcpState::FinWait1 | TcpState::Closing | TcpState::LastAck));
            is_told.then_some(())
        });
        self.lock()
    }
}

impl State {
    /// A listener of the stack's becomes a socket that does not listen.
    pub(super) fn listen_no_more(&mut self, id: SocketId, now: Instant) {
        if self.sockets.get(id).is_none_or(|socket| socket.claim.is_none()) {
            return;
        }
        self.close_listener(id, now);
        if let Some(socket) = self.sockets.get_mut(id) {
            socket.role = Role::Stream(Place::Kernel);
        }
        self.raise(id, super::READABLE);
    }

    /// A descriptor is about to be closed: what stood behind it goes with the last one, or when the calls on it are over.
    pub(crate) fn close_descriptor(&mut self, fd: RawFd, now: Instant) {
        let copy = self.prepare_close(fd, now);
        self.close_with_copy(fd, copy, now);
    }

    /// The same of a descriptor that may be something else by now; `copy` is what [`State::prepare_close`] had of it before.
    pub(super) fn close_with_copy(&mut self, fd: RawFd, copy: Option<OwnedFd>, now: Instant) {
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
        if self.move_to_children(id, now) {
            return;
        }
        if matches!(self.sockets.get(id).map(|socket| &socket.role), Some(Role::Listener { .. })) {
            self.close_listener(id, now);
        }
        let Some(socket) = self.sockets.remove(id) else { return };
        for waiter in &socket.waiters {
            waiter.wake();
        }
        match socket.role {
            Role::Stream(Place::Stack(connection)) => {
                self.decide_on_port(socket.claim, connection, now);
                if let Some(stack) = self.stack() {
                    stack.close(connection, now);
                }
                self.release_claim_of_connection(socket.claim, connection, now);
            }
            Role::Udp(udp) => {
                if let (Some(on_stack), Some(stack)) = (udp.on_stack, self.stack()) {
                    stack.udp_close(on_stack);
                }
                self.release_claim(socket.claim);
            }
            _ => self.release_claim(socket.claim),
        }
    }

    /// Whether a child, or the parent, continues a connection.
    fn move_to_children(&mut self, id: SocketId, now: Instant) -> bool {
        let Some(ends) = self.endpoints(id) else { return false };
        let Some(socket) = self.sockets.get(id) else { return false };
        match socket.role {
            Role::Stream(Place::FromParent(_)) => {
                self.note_let_go(ends);
                false
            }
            // A connection that was made after the fork may have the addresses of one before it.
            Role::Stream(Place::Stack(_)) if socket.is_common && self.is_held_by_child(ends) => {
                let kernel = self.take_off_stack(id, IfRefused::Lost, now);
                if let Ok(kernel) = kernel {
                    self.keep_for_children(ends, kernel);
                    let claim = self.sockets.remove(id).and_then(|socket| socket.claim);
                    self.release_claim(claim);
                    return true;
                }
                false
            }
            _ => false,
        }
    }

    pub(crate) fn end_epoll(&mut self, id: crate::epoll::EpollId) {
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
}
