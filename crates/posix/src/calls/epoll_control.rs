//! epoll_ctl(2).

use std::os::fd::RawFd;

use crate::descriptors::fd_table::Entry;
use crate::epoll::instance::{ALWAYS, PRIVATE};
use crate::epoll::{Epoll, Item};
use crate::errno::{Errno, fail};
use crate::ids::{EpollId, Interest, ItemId, Target};
use crate::process::{Process, State};
use crate::request::{EpollEvent, Verdict};
use crate::socket::{Place, Role};

/// Bits that may stand beside `EPOLLEXCLUSIVE`.
const EXCLUSIVE_OK: u32 =
    (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLERR | libc::EPOLLHUP | libc::EPOLLWAKEUP | libc::EPOLLET)
        as u32
        | EXCLUSIVE;
const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;

impl Process {
    /// epoll_create1(2) returned `fd`.
    pub(crate) fn on_epoll_create(&self, fd: RawFd) {
        let mut state = self.lock();
        state.forget_stale(fd);
        if let Some(id) = state.epolls.insert_with(|_| Epoll::new(fd))
            && !self.table.set(fd, Entry::Epoll(id.index()))
        {
            state.epolls.remove(id);
        }
    }

    /// epoll_ctl(2).
    pub(crate) fn epoll_ctl(
        &self,
        epfd: RawFd,
        op: i32,
        fd: RawFd,
        event: Option<EpollEvent>,
    ) -> Verdict<()> {
        let target_is_ours = matches!(self.table.get(fd), Entry::Socket(_) | Entry::Epoll(_));
        let may_be_absent = !self.table.is_idle_epoll(epfd);
        if !matches!(self.table.get(epfd), Entry::Epoll(_)) || !target_is_ours && !may_be_absent {
            return Verdict::Kernel;
        }
        let mut state = self.lock();
        let Some(epoll) = state.epoll_of(epfd) else { return Verdict::Kernel };
        state.epolls.get_mut(epoll).into_iter().for_each(|epoll| epoll.begin_change(fd));
        let target = match self.table.get(fd) {
            Entry::Socket(_) => state.socket_of(fd).map(Target::Socket),
            _ => state.epoll_of(fd).map(Target::Epoll),
        };
        if let Some(Target::Epoll(inner)) = target {
            state.begin_use(inner); // It will be waited for where it is watched.
        }
        match target {
            Some(target) => Verdict::Done(state.control(epoll, epfd, op, (target, fd), event)),
            // A connection has become the kernel's, and is silent.
            None if state.epolls.get(epoll).is_some_and(|epoll| epoll.absent.has(fd)) => {
                Verdict::Done(state.control_in_kernel(epoll, epfd, op, fd, event))
            }
            None => Verdict::Kernel,
        }
    }
}

impl State {
    fn control(
        &mut self,
        epoll: EpollId,
        epfd: RawFd,
        op: i32,
        (target, fd): (Target, RawFd),
        event: Option<EpollEvent>,
    ) -> Result<(), Errno> {
        if op != libc::EPOLL_CTL_DEL && event.is_none() {
            return fail(libc::EFAULT);
        }
        let in_kernel = match target {
            Target::Socket(id) => self.sockets.get(id).is_some_and(|socket| socket.is_shadow()),
            Target::Epoll(_) => true,
        };
        if in_kernel {
            // The kernel has the last word on what may be.
            self.control_in_kernel(epoll, epfd, op, fd, event)?;
        }
        if let Some(epoll) = self.epolls.get_mut(epoll) {
            epoll.changes = epoll.changes.wrapping_add(1);
        }
        let existing = self.find_item(epoll, target, fd);
        match (op, existing) {
            (libc::EPOLL_CTL_ADD, Some(_)) if !in_kernel => fail(libc::EEXIST),
            (libc::EPOLL_CTL_ADD, existing) => {
                existing.into_iter().for_each(|item| self.remove_item(epoll, item));
                self.add_item(epoll, target, fd, event.unwrap_or_default(), in_kernel)
            }
            (libc::EPOLL_CTL_MOD, Some(item)) => self.modify_item(epoll, item, event.unwrap_or_default()),
            (libc::EPOLL_CTL_DEL, Some(item)) => {
                self.remove_item(epoll, item);
                Ok(())
            }
            (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, None) if !in_kernel => fail(libc::ENOENT),
            (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, None) => Ok(()),
            _ => fail(libc::EINVAL),
        }
    }

    /// The kernel's epoll_ctl(2), which answers for an absent item as if the kernel's instance had it.
    fn control_in_kernel(
        &mut self,
        id: EpollId,
        epfd: RawFd,
        op: i32,
        fd: RawFd,
        event: Option<EpollEvent>,
    ) -> Result<(), Errno> {
        let event = event.map(|event| syscall::EpollEvent { events: event.events, u64: event.data });
        let absent = self.epolls.get_mut(id).map(|epoll| &mut epoll.absent);
        let Some(absent) = absent.filter(|absent| absent.has(fd)) else {
            return Ok(syscall::epoll_ctl(epfd, op, fd, event)?);
        };
        if op == libc::EPOLL_CTL_ADD {
            return fail(libc::EEXIST);
        }
        match syscall::epoll_ctl(epfd, op, fd, event).map_err(Errno::from) {
            Err(Errno(libc::ENOENT)) if op == libc::EPOLL_CTL_MOD => {
                syscall::epoll_ctl(epfd, libc::EPOLL_CTL_ADD, fd, event)?;
            }
            Err(Errno(libc::ENOENT)) => {}
            // A process that has the instance too has armed it again.
            result => result?,
        }
        absent.forget(fd);
        Ok(())
    }

    fn find_item(&self, epoll: EpollId, target: Target, fd: RawFd) -> Option<ItemId> {
        let interests = match target {
            Target::Socket(id) => &self.sockets.get(id)?.interests,
            Target::Epoll(id) => &self.epolls.get(id)?.watchers,
        };
        let items = &self.epolls.get(epoll)?.items;
        let is_it = |item: ItemId| items.get(item).is_some_and(|item| item.fd == fd);
        interests
            .iter()
            .filter(|interest| interest.epoll == epoll)
            .map(|it| it.item)
            .find(|item| is_it(*item))
    }

    fn add_item(
        &mut self,
        id: EpollId,
        target: Target,
        fd: RawFd,
        event: EpollEvent,
        in_kernel: bool,
    ) -> Result<(), Errno> {
        let events = event.events;
        if events & EXCLUSIVE != 0 && events & !EXCLUSIVE_OK != 0 {
            return fail(libc::EINVAL);
        }
        let epoll = self.epolls.get_mut(id).ok_or(Errno(libc::EBADF))?;
        let item = Item { target, fd, events: events | ALWAYS, data: event.data, queued: false, in_kernel };
        let item = epoll.items.insert_with(|_| item).ok_or(Errno(libc::ENOSPC))?;
        if in_kernel && matches!(target, Target::Socket(_)) {
            epoll.note_shadow(item);
        }
        if !std::mem::replace(&mut epoll.is_busy, true) {
            let table = self.table;
            epoll.fds().for_each(|fd| table.set_busy(fd));
        }
        let interest = Interest { epoll: id, item };
        match target {
            Target::Socket(socket) => {
                if let Some(socket) = self.sockets.get_mut(socket) {
                    socket.interests.add(interest);
                    // A thread that waits asks the parent for it first.
                    epoll.has_news |= matches!(socket.role, Role::Stream(Place::FromParent(_)));
                }
            }
            Target::Epoll(inner) => {
                if let Some(inner) = self.epolls.get_mut(inner) {
                    inner.watchers.add(interest);
                }
            }
        }
        self.queue_if_ready(interest);
        Ok(())
    }

    fn modify_item(&mut self, id: EpollId, item_id: ItemId, event: EpollEvent) -> Result<(), Errno> {
        let epoll = self.epolls.get_mut(id).ok_or(Errno(libc::EBADF))?;
        let item = epoll.items.get_mut(item_id).ok_or(Errno(libc::ENOENT))?;
        if (item.events | event.events) & EXCLUSIVE != 0 {
            return fail(libc::EINVAL);
        }
        item.events = event.events | ALWAYS;
        item.data = event.data;
        self.queue_if_ready(Interest { epoll: id, item: item_id });
        Ok(())
    }

    /// Existing readiness is reported, also to edge-triggered items.
    fn queue_if_ready(&mut self, interest: Interest) {
        let item = self.epolls.get(interest.epoll).and_then(|epoll| epoll.items.get(interest.item)).copied();
        let Some(item) = item else { return };
        let ready = self.poll_target(item.target, 0);
        if ready & item.events & !PRIVATE != 0 {
            self.tell(interest, ready, false, 0);
        }
    }
}
