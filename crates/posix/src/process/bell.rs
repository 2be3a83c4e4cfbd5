//! Rings for threads that wait at the kernel's epoll instance (`epoll/bell.rs`).

use std::os::fd::{AsRawFd, IntoRawFd};

use crate::descriptors::fd_table::Entry;
use crate::descriptors::internal;
use crate::epoll::bell::DATA;
use crate::ids::EpollId;
use crate::process::state::State;

impl State {
    /// Has one thread come that waits at the kernel's instance; false if none does.
    pub(crate) fn ring(&mut self, id: EpollId) -> bool {
        let Some(epoll) = self.epolls.get_mut(id).filter(|epoll| epoll.bell.listeners > 0) else {
            return false;
        };
        let event = syscall::EpollEvent { events: (libc::EPOLLIN | libc::EPOLLONESHOT) as u32, u64: DATA };
        let bell = &mut epoll.bell;
        if let Some(fd) = bell.fd {
            return syscall::epoll_ctl(epoll.fd, libc::EPOLL_CTL_MOD, fd, Some(event)).is_ok();
        }
        let Some(fd) = syscall::eventfd().ok().and_then(internal::raise) else { return false };
        // It stays readable, because nothing reads it.
        let _ = syscall::write(fd.as_raw_fd(), &1u64.to_ne_bytes());
        let hung = syscall::epoll_ctl(epoll.fd, libc::EPOLL_CTL_ADD, fd.as_raw_fd(), Some(event));
        (bell.fd, bell.is_known) = (Some(fd.as_raw_fd()), true);
        self.table.set(fd.into_raw_fd(), Entry::Internal);
        hung.is_ok()
    }

    /// The instance goes.
    pub(crate) fn take_bell_down(&mut self, id: EpollId) {
        if let Some(fd) = self.epolls.get_mut(id).and_then(|epoll| epoll.bell.fd.take()) {
            self.table.set(fd, Entry::None);
            let _ = syscall::close(fd); // It is open: nothing to fail.
        }
    }

    /// In a child: the descriptor is closed by number, as all internal ones, and may ring all the same.
    pub(crate) fn forget_bell(&mut self, place: u32) {
        if let Some((_, epoll)) = self.epolls.at_mut(place) {
            (epoll.bell.fd, epoll.bell.listeners) = (None, 0);
        }
    }
}
