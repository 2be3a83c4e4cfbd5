//! Descriptors that are closed while another thread's call still uses them. On Linux a call holds the socket until it is over.
//!
//! A thread that was cancelled in its call, or has left it by longjmp(3), releases what it holds when it ends.

use std::os::fd::{IntoRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use clock::Instant;

use crate::drive::On;
use crate::epoll::EpollId;
use crate::fd_table::{Entry, FdTable};
use crate::internal;
use crate::process::State;
use crate::socket::SocketId;
use crate::waiter::{self, Waiter};

/// Threads whose calls use something.
#[derive(Default)]
pub(crate) struct Callers(Vec<Arc<Waiter>>);

impl Callers {
    /// Whether there are any but the calling thread.
    fn has_others(&self) -> bool {
        self.0.iter().any(|waiter| !waiter.is_gone() && !waiter.is_own())
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|waiter| waiter.is_gone())
    }

    /// In a child, which has none of these threads.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Closed, and to be ended when no call uses it any more.
#[derive(Clone, Copy)]
pub(crate) enum Closing {
    Socket(SocketId),
    Epoll(EpollId),
}

impl State {
    /// A call of this thread gives the lock up, and is to find what it waits on when it comes back. Returns what
    /// [`State::end_call`] wants.
    pub(crate) fn begin_call(&mut self, on: On<'_>) -> Option<Arc<Waiter>> {
        let table = self.table;
        let callers = self.callers(on)?;
        let waiter = Waiter::of_this_thread(table)?;
        callers.0.retain(|other| !other.is_gone());
        callers.0.push(Arc::clone(&waiter));
        Some(waiter)
    }

    /// The call is over.
    pub(crate) fn end_call(&mut self, on: On<'_>, waiter: Option<&Arc<Waiter>>, now: Instant) {
        let Some(waiter) = waiter else { return };
        if let Some(callers) = self.callers(on) {
            waiter::remove(&mut callers.0, waiter);
        }
        if !self.closing.is_empty() {
            self.end_closed(now);
        }
    }

    fn callers(&mut self, on: On<'_>) -> Option<&mut Callers> {
        match on {
            On::Socket(id, _) => self.sockets.get_mut(id).map(|socket| &mut socket.callers),
            On::Epoll(id) => self.epolls.get_mut(id).map(|epoll| &mut epoll.callers),
            On::Many(..) => None,
        }
    }

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
        socket.set_fd(enter(self.table, copy));
        self.closing.push(Closing::Socket(id));
    }

    /// The same of an epoll instance.
    pub(crate) fn close_epoll(&mut self, id: EpollId, copy: Option<OwnedFd>) {
        let Some(epoll) = self.epolls.get_mut(id) else { return };
        if !epoll.callers.has_others() {
            return self.end_epoll(id);
        }
        epoll.set_fd(enter(self.table, copy));
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
            if fd >= 0 {
                self.table.set(fd, Entry::None);
                let _ = syscall::close(fd); // It is open: nothing to fail.
            }
        }
    }
}

/// The number of a copy, which is not the program's; none if negative.
fn enter(table: FdTable, copy: Option<OwnedFd>) -> RawFd {
    let Some(copy) = copy.map(IntoRawFd::into_raw_fd) else { return -1 };
    table.set(copy, Entry::Internal);
    copy
}
