//! close(2), close_range(2), shutdown(2).

use std::os::fd::RawFd;
use std::sync::MutexGuard;

use clock::Instant;
use stack::tcp::{Shutdown, State as TcpState};

use crate::descriptors::fd_table::Entry;
use crate::errno::fail;
use crate::ids::SocketId;
use crate::process::{Process, State};
use crate::request::Verdict;
use crate::socket::touched::Touched;
use crate::socket::{Place, Role};
use crate::wait::{On, Waiting};

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
        state.keep_as_spare(fd, now);
        state.close_descriptor(fd, now);
        state.hear_if_due(now);
        state.queue.leave(now);
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
        state.hear_if_due(now);
        state.queue.leave(now);
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
                let Some(stack) = state.queue.stack() else { return Verdict::Done(fail(libc::ENOTCONN)) };
                match stack.state(connection) {
                    None | Some(TcpState::Closed | TcpState::TimeWait) => {
                        return Verdict::Done(fail(libc::ENOTCONN));
                    }
                    Some(TcpState::SynSent) => state.disconnect(id, now),
                    Some(_) => stack.shutdown(connection, how, now),
                }
                state.queue.leave(now);
                state.raise(id, crate::socket::READABLE | crate::socket::WRITABLE | libc::EPOLLRDHUP as u32);
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
            _ => {
                // The kernel remembers it, also of a socket that is not connected yet.
                state.sockets.get_mut(id).into_iter().for_each(|socket| socket.touched = Touched::ANY);
                Verdict::Kernel
            }
        }
    }

    /// With `SO_LINGER` and a time, close waits until the peer has all, or the time is over.
    fn linger<'p>(&'p self, mut state: MutexGuard<'p, State>, id: SocketId) -> MutexGuard<'p, State> {
        let Some(connection) = state.sockets.get(id).and_then(|socket| socket.connection()) else {
            return state;
        };
        let now = self.now();
        let Some(stack) = state.queue.stack() else { return state };
        let linger =
            stack.options(connection).and_then(|options| options.linger).filter(|time| !time.is_zero());
        let unread = stack.queued(connection).is_none_or(|(unread, _)| unread > 0);
        let Some(time) = linger.filter(|_| !unread) else { return state };
        stack.shutdown(connection, Shutdown::Write, now);
        let waiting =
            Waiting { on: On::Socket(id, None), deadline: Some(now + time), mask: None, restarts: false };
        // What ends the wait does not matter: the socket is closed in any case.
        let _ = self.wait(state, &waiting, &mut |state, _| {
            let tcp = state.queue.stack().and_then(|stack| stack.state(connection));
            let is_told = !matches!(tcp, Some(TcpState::FinWait1 | TcpState::Closing | TcpState::LastAck));
            is_told.then_some(())
        });
        self.lock()
    }
}

impl State {
    /// `fd` is about to be closed: the next connection may have the kernel's socket behind it, if nothing was ever done with it that anybody
    /// could notice.
    fn keep_as_spare(&mut self, fd: RawFd, now: Instant) {
        let Some(socket) = self.socket_of(fd).and_then(|id| self.sockets.get(id)) else { return };
        if !socket.has_pristine_shadow() {
            return;
        }
        let (kind, touched) = ((socket.domain, socket.nonblocking), socket.touched);
        if touched
            .restore(|level, option| syscall::setsockopt(fd, level, option, &0i32.to_ne_bytes()).is_ok())
        {
            self.queue.spare_sockets.keep(self.table, fd, kind, now);
        }
    }

    /// A listener of the stack's becomes a socket that does not listen.
    pub(crate) fn listen_no_more(&mut self, id: SocketId, now: Instant) {
        if self.sockets.get(id).is_none_or(|socket| socket.claim.is_none()) {
            return;
        }
        self.close_listener(id, now);
        if let Some(socket) = self.sockets.get_mut(id) {
            socket.role = Role::Stream(Place::Kernel);
            socket.touched = Touched::ANY; // listen(2) may have given it a port.
        }
        self.raise(id, crate::socket::READABLE);
    }
}
