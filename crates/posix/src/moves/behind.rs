//! What stands behind the descriptors of a socket: a kernel's socket that takes the place of ours.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::descriptors::fd_table::Entry;
use crate::descriptors::internal::{Hidden, close};
use crate::errno::Errno;
use crate::ids::{Interest, SocketId};
use crate::process::State;
use crate::socket::{Place, READABLE, Role, WRITABLE};

impl State {
    /// The descriptors of a socket. One that was closed while a call on it goes on is none: it may be something else by now.
    pub(crate) fn live_fds(&self, id: SocketId) -> Vec<RawFd> {
        let fds = self.sockets.get(id).into_iter().flat_map(|socket| socket.fds());
        fds.filter(|fd| self.socket_of(*fd) == Some(id)).collect()
    }

    /// Has the descriptors of a socket be those of `kernel`.
    pub(crate) fn put_behind(&mut self, id: SocketId, kernel: &OwnedFd) {
        for fd in self.live_fds(id) {
            let flags = syscall::fcntl(fd, libc::F_GETFD, 0).unwrap_or(0);
            let flags = if flags & libc::FD_CLOEXEC != 0 { libc::O_CLOEXEC } else { 0 };
            // An own, open descriptor: this cannot fail but for want of memory.
            let _ = syscall::dup3(kernel.as_raw_fd(), fd, flags);
        }
    }

    /// Sets the owner and the file status flags of `id` at the kernel's socket that takes its place.
    pub(crate) fn set_flags_at_kernel(&self, id: SocketId, kernel: &OwnedFd) {
        let Some(socket) = self.sockets.get(id) else { return };
        socket.set_owner_at_kernel(kernel.as_raw_fd());
        let status = socket.status() | if socket.nonblocking { libc::O_NONBLOCK } else { 0 };
        // An own, open descriptor: this cannot fail but for want of memory.
        let _ = syscall::fcntl(kernel.as_raw_fd(), libc::F_SETFL, i64::from(libc::O_RDWR | status));
    }

    /// What our epoll instances watch of a socket, the kernel's watch from now on.
    pub(crate) fn watch_at_kernel(&mut self, id: SocketId) {
        let live = self.live_fds(id);
        for place in 0.. {
            let interest = self.sockets.get(id).and_then(|socket| socket.interests.at(place));
            let Some(Interest { epoll: epoll_id, item: item_id }) = interest else { return };
            let Some(epoll) = self.epolls.get_mut(epoll_id) else { continue };
            let Some(item) = epoll.items.get_mut(item_id) else { continue };
            if !std::mem::replace(&mut item.in_kernel, true) {
                let item = *item;
                let event = syscall::EpollEvent { events: item.events, u64: item.data };
                // The number that the program has watched may be another file's by now.
                let is_live = live.contains(&item.fd);
                match if is_live { Some(item.fd) } else { live.first().copied() } {
                    // By another number the program cannot arm it again.
                    Some(fd) if item.is_silent() => _ = is_live && epoll.absent.note(fd),
                    Some(fd) => epoll.watch_in_kernel(fd, event),
                    None => {}
                }
                epoll.note_shadow(item_id);
            }
        }
    }

    /// Puts a socket of the kernel's behind the descriptors of `id`, which is forgotten.
    pub(crate) fn replace_by(&mut self, id: SocketId, kernel: OwnedFd) {
        let Some(socket) = self.sockets.get_mut(id) else { return close(kernel) };
        let claim = socket.claim.take();
        socket.role = Role::Stream(Place::Kernel);
        let callers = std::mem::take(&mut socket.callers);
        self.put_behind(id, &kernel);
        self.moves = self.moves.wrapping_add(1);
        self.watch_at_kernel(id);
        self.forget(id);
        self.forget_closed(id);
        self.release_claim(claim);
        self.moved_in_calls.enter(id, callers, Hidden::new(kernel, self.table));
    }

    /// The same of one that the program has closed while a call uses it.
    fn forget_closed(&mut self, id: SocketId) {
        self.drop_interests(id);
        let Some(socket) = self.sockets.remove(id) else { return };
        if socket.fd() >= 0 {
            self.table.set(socket.fd(), Entry::None);
            let _ = syscall::close(socket.fd()); // It is open: nothing to fail.
        }
        socket.waiters.iter().for_each(|waiter| waiter.wake());
    }

    pub(crate) fn fail_socket(&mut self, id: SocketId, errno: Errno) {
        if let Some(socket) = self.sockets.get_mut(id) {
            socket.role = Role::Stream(Place::Lost);
            socket.error = Some(errno);
        }
        self.raise(id, READABLE | WRITABLE | (libc::EPOLLERR | libc::EPOLLHUP | libc::EPOLLRDHUP) as u32);
    }

    /// A socket is the kernel's for good: what watched it here watches it there.
    pub(crate) fn keep_at_kernel(&mut self, id: SocketId) {
        self.moves = self.moves.wrapping_add(1);
        self.watch_at_kernel(id);
        self.forget(id);
    }

    /// The descriptors of a socket are the kernel's alone. The socket goes with them, unless a call still uses one that was closed.
    fn forget(&mut self, id: SocketId) {
        for fd in self.live_fds(id) {
            self.table.set(fd, Entry::None);
            if self.sockets.get_mut(id).is_some_and(|socket| socket.remove_fd(fd)) {
                self.drop_interests(id);
                let Some(socket) = self.sockets.remove(id) else { return };
                socket.waiters.iter().for_each(|waiter| waiter.wake());
                self.release_claim(socket.claim);
            }
        }
    }
}
