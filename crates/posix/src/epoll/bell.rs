//! Threads that wait at the kernel's epoll instance, because it had none of our sockets when they came.
//!
//! If a socket of ours becomes ready later, the kernel cannot tell them. So there is a bell: a descriptor that is always readable, and is
//! added to the instance once each time it has to ring. A thread that finds it among its events checks our sockets.

use std::os::fd::{AsRawFd, IntoRawFd, RawFd};
use std::sync::MutexGuard;

use clock::Instant;

use super::EpollId;
use crate::calls::{EpollEvent, SignalMask};
use crate::errno::fail;
use crate::fd_table::Entry;
use crate::process::{Process, State};
use crate::{Errno, inside, internal};

/// What the bell's event has for data: no pointer, and no number that a program would think of.
const DATA: u64 = 0xb3d1_9a6e_5a1d_be11;

/// The bell of one instance.
#[derive(Default)]
pub(super) struct Bell {
    fd: Option<RawFd>,
    /// It was hung up, by this process or one that this was forked from.
    is_known: bool,
    /// Threads that would hear it.
    listeners: u32,
}

/// Whether an event of the kernel's is the bell's, and not of the program.
pub(super) fn is_bell(event: &syscall::EpollEvent) -> bool {
    event.u64 == DATA
}

/// How a wait at the kernel's instance ended.
pub(super) enum Heard<'p> {
    /// The call is over.
    Over(Result<usize, Errno>),
    /// There is something of ours.
    Bell(MutexGuard<'p, State>),
}

impl State {
    /// Whether the program may wait at the kernel's instance alone: nothing can be added meanwhile, and it has no bell.
    pub(super) fn can_leave_alone(&self, id: EpollId) -> bool {
        inside::is_alone() && self.epolls.get(id).is_none_or(|epoll| !epoll.bell.is_known)
    }

    /// Has one thread come that waits at the kernel's instance; false if none does.
    pub(super) fn ring(&mut self, id: EpollId) -> bool {
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

impl Process {
    /// epoll_pwait2(2) at the kernel's instance.
    pub(super) fn wait_in_kernel<'p>(
        &'p self,
        mut state: MutexGuard<'p, State>,
        id: EpollId,
        events: &mut [EpollEvent],
        deadline: Option<Instant>,
        mask: Option<SignalMask>,
    ) -> Heard<'p> {
        let Some(epoll) = state.epolls.get_mut(id) else { return Heard::Over(fail(libc::EBADF)) };
        epoll.bell.listeners += 1;
        let (epfd, mut room) = (epoll.fd, epoll.lend_room(events.len()));
        drop(state);
        let timeout = deadline.map(|deadline| deadline.since(self.now()).into());
        let found = inside::outside(|| syscall::epoll_pwait2(epfd, room.events(), timeout, mask));
        let mut state = self.lock();
        if let Some(epoll) = state.epolls.get_mut(id) {
            epoll.bell.listeners = epoll.bell.listeners.saturating_sub(1);
        }
        let found = match found {
            None => return Heard::Over(fail(libc::EINTR)),
            Some(Err(error)) => return Heard::Over(Err(error.into())),
            Some(Ok(found)) => found,
        };
        let mut count = 0;
        for event in room.events()[..found].iter().filter(|event| !is_bell(event)) {
            events[count] = EpollEvent { events: event.events, data: event.u64 };
            state.settle_one_shot(id, event);
            count += 1;
        }
        if let Some(epoll) = state.epolls.get_mut(id) {
            epoll.room = room;
        }
        match count == 0 && found > 0 {
            true if inside::has_handled(mask.unwrap_or(0)) => Heard::Over(fail(libc::EINTR)),
            true => Heard::Bell(state),
            false => Heard::Over(Ok(count)),
        }
    }
}
