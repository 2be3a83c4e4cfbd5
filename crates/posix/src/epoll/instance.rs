//! epoll(7): each instance stays a kernel instance for the kernel's descriptors, with a list of our ready sockets beside it.
//!
//! A shadow is in both: the kernel reports what it received itself. An item is queued when an event occurs that it asks for,
//! and examined when the program collects: its readiness at that moment is reported, as on Linux.
//!
//! The kernel's instance has the program's own data, and not numbers of ours: a child, the next program or a process that got the instance by
//! SCM_RIGHTS, and whoever makes system calls past the hooks, waits there as well, and would take our numbers for its pointers. They cannot be
//! exchanged when the instance is shared either, because EPOLL_CTL_MOD arms what is silent, and reports edges again. What data alone does
//! not say, the kernel is asked (`armed.rs`).

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use clock::Instant;
use stack::slab::Slab;

use crate::epoll::absent::{self, Absent};
use crate::epoll::bell::Bell;
use crate::ids::{EpollId, Interests, ItemId, OfItems, SocketId, Target};
use crate::waiter::{Callers, Waiter, readable};

/// `EPOLLET`.
pub(crate) const EDGE: u32 = libc::EPOLLET as u32;
/// `EPOLLONESHOT`.
pub(crate) const ONE_SHOT: u32 = libc::EPOLLONESHOT as u32;

/// Items of one instance at most.
const ITEMS_MAX: u32 = 1 << 24;

/// One descriptor that is watched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    pub(crate) target: Target,
    pub(crate) fd: RawFd,
    /// `EPOLL` bits as the program gave them; none are left of a one-shot item that was reported.
    pub(crate) events: u32,
    pub(crate) data: u64,
    pub(crate) queued: bool,
    /// The kernel's instance has it as well, unless it is among the `absent`.
    pub(crate) in_kernel: bool,
}

impl Item {
    /// Whether it was reported once, as it should be, and was not armed again.
    pub(crate) fn is_silent(&self) -> bool {
        self.events & !PRIVATE == 0
    }
}

/// An epoll instance.
pub(crate) struct Epoll {
    pub(crate) fd: RawFd,
    dups: Vec<RawFd>,
    pub(crate) items: Slab<Item, OfItems>,
    pub(crate) ready: VecDeque<ItemId>,
    pub(crate) waiters: Vec<Arc<Waiter>>,
    /// Threads that only look whether there is something to be collected.
    pub(crate) onlookers: Vec<Arc<Waiter>>,
    /// Threads whose calls wait here: it lives until they are over.
    pub(crate) callers: Callers,
    /// Instances that watch this one.
    pub(crate) watchers: Interests,
    /// Items of shadows that the kernel watches too.
    pub(crate) shadows: Vec<ItemId>,
    /// Silent items that the kernel's instance does not have, also those of connections that have become the kernel's.
    pub(crate) absent: Absent,
    /// Some of `shadows` has not been looked at whether it can be claimed.
    pub(crate) has_news: bool,
    /// Of the events that a call has so far, those which the kernel may tell as well: where they are, and of what.
    pub(crate) told: Vec<(usize, ItemId)>,
    pub(crate) kernel_asked_at: Instant,
    /// The last time there was more of ours than room, a place was left for the kernel.
    was_kernels_turn: bool,
    /// How often an item was added, modified or removed.
    pub(crate) changes: u32,
    /// Something of ours was added once.
    pub(crate) is_busy: bool,
    pub(crate) bell: Bell,
    pub(crate) room: Room,
    /// It was not used here since this process was forked: the kernel's instance is as the parent makes it.
    pub(crate) is_unused_since_fork: bool,
    /// What the kernel is to watch as soon as it is used here.
    to_watch: Vec<ToWatch>,
}

/// A socket that the kernel has yet to watch, told apart by its cookie from what may have the number later.
struct ToWatch {
    fd: RawFd,
    cookie: u64,
    event: syscall::EpollEvent,
}

impl Epoll {
    pub(crate) fn new(fd: RawFd) -> Epoll {
        Epoll {
            fd,
            dups: Vec::new(),
            items: Slab::new(ITEMS_MAX),
            ready: VecDeque::new(),
            waiters: Vec::new(),
            onlookers: Vec::new(),
            callers: Callers::default(),
            watchers: Interests::default(),
            shadows: Vec::new(),
            absent: Absent::default(),
            has_news: false,
            told: Vec::new(),
            kernel_asked_at: Instant::ZERO,
            was_kernels_turn: false,
            changes: 0,
            is_busy: false,
            bell: Bell::default(),
            room: Room::default(),
            is_unused_since_fork: false,
            to_watch: Vec::new(),
        }
    }

    /// All of its descriptors.
    pub(crate) fn fds(&self) -> impl Iterator<Item = RawFd> + '_ {
        std::iter::once(self.fd).chain(self.dups.iter().copied())
    }

    /// One of its descriptors.
    pub(crate) fn fd(&self) -> RawFd {
        self.fd
    }

    /// It was closed, and is known by this number from now on; none if negative.
    pub(crate) fn set_fd(&mut self, fd: RawFd) {
        self.fd = fd;
    }

    pub(crate) fn add_fd(&mut self, fd: RawFd) {
        self.dups.push(fd);
    }

    /// Takes a descriptor away; true if it was the last.
    pub(crate) fn remove_fd(&mut self, fd: RawFd) -> bool {
        if self.fd != fd {
            self.dups.retain(|dup| *dup != fd);
            return false;
        }
        match self.dups.pop() {
            Some(dup) => self.fd = dup,
            None => return true,
        }
        false
    }

    /// The kernel watches the socket of an item as well from now on.
    pub(crate) fn note_shadow(&mut self, item: ItemId) {
        self.shadows.push(item);
        self.has_news = true;
    }

    /// The kernel watches this socket from now on.
    pub(crate) fn watch_in_kernel(&mut self, fd: RawFd, event: syscall::EpollEvent) {
        if self.is_unused_since_fork {
            self.to_watch.extend(absent::cookie(fd).map(|cookie| ToWatch { fd, cookie, event }));
        } else {
            // It may be watched there already, by this number, as who shares the instance has it, too.
            let _ = syscall::epoll_ctl(self.fd, libc::EPOLL_CTL_ADD, fd, Some(event));
        }
    }

    /// A call of this process waits at the instance, which it may have from its parent.
    pub(crate) fn begin_use(&mut self) {
        self.is_unused_since_fork = false;
        self.watch_what_is_still_there(|_| true);
    }

    /// A call of this process changes what the instance has of this descriptor.
    pub(crate) fn begin_change(&mut self, fd: RawFd) {
        self.watch_what_is_still_there(|it| it.fd == fd);
    }

    fn watch_what_is_still_there(&mut self, is_meant: impl Fn(&ToWatch) -> bool) {
        for ToWatch { fd, cookie, event } in self.to_watch.extract_if(.., |it| is_meant(it)) {
            if absent::cookie(fd) == Some(cookie) {
                let _ = syscall::epoll_ctl(self.fd, libc::EPOLL_CTL_ADD, fd, Some(event)); // As above.
            }
        }
    }

    /// The kernel's instance is to keep silent of this descriptor until it is armed again.
    pub(crate) fn silence_in_kernel(&mut self, fd: RawFd, event: syscall::EpollEvent) {
        // What is no socket is an instance, which never reports what nobody asked for.
        let op = if self.absent.note(fd) { libc::EPOLL_CTL_DEL } else { libc::EPOLL_CTL_MOD };
        // Fails if the program has closed it meanwhile: then it is silent too.
        let _ = syscall::epoll_ctl(self.fd, op, fd, Some(event));
    }

    /// Instances that it watches.
    pub(crate) fn inner(&self) -> impl Iterator<Item = EpollId> + '_ {
        self.items.iter().filter_map(|(_, item)| match item.target {
            Target::Epoll(inner) => Some(inner),
            Target::Socket(_) => None,
        })
    }

    /// Sockets that the kernel watches too.
    pub(crate) fn shadow_sockets(&self) -> impl Iterator<Item = SocketId> + '_ {
        self.shadows.iter().filter_map(|item| match self.items.get(*item)?.target {
            Target::Socket(id) => Some(id),
            Target::Epoll(_) => None,
        })
    }

    pub(crate) fn queue(&mut self, id: ItemId) {
        if let Some(item) = self.items.get_mut(id)
            && !std::mem::replace(&mut item.queued, true)
        {
            self.ready.push_back(id);
        }
    }

    /// Wakes one thread that waits here, as the kernel does; false if none does.
    pub(crate) fn wake_one(&mut self) -> bool {
        while let Some(waiter) = self.waiters.pop() {
            waiter.tell();
            if !waiter.is_gone() {
                return true;
            }
        }
        false
    }
}

/// Bits beside the events themselves.
pub(crate) const PRIVATE: u32 =
    (libc::EPOLLET | libc::EPOLLONESHOT | libc::EPOLLWAKEUP | libc::EPOLLEXCLUSIVE) as u32;
/// Events that are always reported.
pub(crate) const ALWAYS: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;
/// Instances within instances, at most.
pub(crate) const NESTING_MAX: u32 = 5;

/// Events of the kernel's that are taken at once, whatever a program has room for.
const KERNEL_MAX: usize = 1 << 16;

/// Where the kernel writes events. It is kept with an instance: programs have room for thousands, and mostly get a few.
#[derive(Default)]
pub(crate) struct Room {
    events: Vec<syscall::EpollEvent>,
    /// How many are wanted.
    wanted: usize,
}

impl Room {
    /// As many as are wanted.
    pub(crate) fn events(&mut self) -> &mut [syscall::EpollEvent] {
        &mut self.events[..self.wanted]
    }
}

impl Epoll {
    /// Room for `wanted` events of the kernel's, to be given back.
    pub(crate) fn lend_room(&mut self, wanted: usize) -> Room {
        let mut room = std::mem::take(&mut self.room);
        room.wanted = wanted.min(KERNEL_MAX);
        if room.events.len() < room.wanted {
            room.events.resize(room.wanted, syscall::EpollEvent { events: 0, u64: 0 });
        }
        room
    }

    /// Whether one of as many places as are wanted is left for the kernel: it has something, and ours would fill them. Every second
    /// time, as there may be one place only.
    pub(crate) fn is_kernels_turn(&mut self, wanted: usize) -> bool {
        let was = std::mem::take(&mut self.was_kernels_turn);
        self.was_kernels_turn = !was && self.ready.len() >= wanted && is_readable(self.fd);
        self.was_kernels_turn
    }
}

/// Whether the kernel has something to tell at one of its instances.
fn is_readable(epfd: RawFd) -> bool {
    let mut fds = [readable(epfd)];
    syscall::ppoll(&mut fds, Some(Duration::ZERO), None).is_ok_and(|count| count > 0)
}
