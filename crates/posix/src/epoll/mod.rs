//! epoll(7): each instance stays a kernel instance for the kernel's descriptors, with a list of our ready sockets beside it.
//!
//! A shadow is in both: the kernel reports what it received itself. An item is queued when an event occurs that it asks for,
//! and examined when the program collects: its readiness at that moment is reported, as on Linux.

mod bell;
mod collect;
mod control;
mod wait;

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::Arc;

use clock::Instant;
use stack::slab::{Handle, Slab};

use bell::Bell;
use wait::Room;

use crate::held::Callers;
use crate::process::State;
use crate::socket::{Interests, SocketId};
use crate::waiter::{self, Waiter};

/// Names an epoll instance.
pub(crate) type EpollId = Handle<Epoll>;
/// Names what one of them watches.
pub(crate) type ItemId = Handle<Item>;

/// Items of one instance at most.
const ITEMS_MAX: u32 = 1 << 24;

/// The epoll instances that watch a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interest {
    pub(crate) epoll: EpollId,
    pub(crate) item: ItemId,
}

/// What an item is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Socket(SocketId),
    Epoll(EpollId),
}

/// One descriptor that is watched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    pub(crate) target: Target,
    pub(crate) fd: RawFd,
    /// `EPOLL` bits as the program gave them; none are left of a one-shot item that was reported.
    pub(crate) events: u32,
    pub(crate) data: u64,
    queued: bool,
    /// The kernel's instance has it as well.
    pub(crate) in_kernel: bool,
}

/// An epoll instance.
pub(crate) struct Epoll {
    fd: RawFd,
    dups: Vec<RawFd>,
    pub(crate) items: Slab<Item>,
    ready: VecDeque<ItemId>,
    pub(crate) waiters: Vec<Arc<Waiter>>,
    /// Threads that only look whether there is something to be collected.
    pub(crate) onlookers: Vec<Arc<Waiter>>,
    /// Threads whose calls wait here: it lives until they are over.
    pub(crate) callers: Callers,
    /// Instances that watch this one.
    pub(crate) watchers: Interests,
    /// Items of shadows that the kernel watches too.
    shadows: Vec<ItemId>,
    /// Some of `shadows` has not been looked at whether it can be claimed.
    pub(crate) has_news: bool,
    /// Of the events that a call has so far, those which the kernel may tell as well: where they are, and of what.
    told: Vec<(usize, ItemId)>,
    kernel_asked_at: Instant,
    /// The last time there was more of ours than room, a place was left for the kernel.
    was_kernels_turn: bool,
    /// Something of ours was added once.
    pub(crate) is_busy: bool,
    bell: Bell,
    room: Room,
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
            has_news: false,
            told: Vec::new(),
            kernel_asked_at: Instant::ZERO,
            was_kernels_turn: false,
            is_busy: false,
            bell: Bell::default(),
            room: Room::default(),
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

    /// Sockets that the kernel watches too.
    pub(crate) fn shadow_sockets(&self) -> impl Iterator<Item = SocketId> + '_ {
        self.shadows.iter().filter_map(|item| match self.items.get(*item)?.target {
            Target::Socket(id) => Some(id),
            Target::Epoll(_) => None,
        })
    }

    fn queue(&mut self, id: ItemId) {
        if let Some(item) = self.items.get_mut(id)
            && !std::mem::replace(&mut item.queued, true)
        {
            self.ready.push_back(id);
        }
    }

    /// Wakes one thread that waits here, as the kernel does; false if none does.
    fn wake_one(&mut self) -> bool {
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
const PRIVATE: u32 = (libc::EPOLLET | libc::EPOLLONESHOT | libc::EPOLLWAKEUP | libc::EPOLLEXCLUSIVE) as u32;
/// Events that are always reported.
const ALWAYS: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;
/// Instances within instances, at most.
pub(crate) const NESTING_MAX: u32 = 5;

impl State {
    /// Something happened on a socket: wakes the threads that wait for it, and queues it in the instances that watch it.
    pub(crate) fn raise(&mut self, id: SocketId, key: u32) {
        let Some(socket) = self.sockets.get_mut(id) else { return };
        for waiter in socket.waiters.drain(..) {
            waiter.tell();
        }
        if socket.may_have_owner() {
            self.signal_owner(id, key);
        }
        let mut exclusive_done = false;
        for place in 0.. {
            let Some(interest) = self.sockets.get(id).and_then(|socket| socket.interests.at(place)) else {
                return;
            };
            exclusive_done |= self.tell(interest, key, exclusive_done, 0);
        }
    }

    /// Queues an item that asks for any of `key`; true if that woke a thread which waits exclusively.
    fn tell(&mut self, interest: Interest, key: u32, exclusive_done: bool, depth: u32) -> bool {
        let Some(epoll) = self.epolls.get_mut(interest.epoll) else { return false };
        let Some(item) = epoll.items.get(interest.item) else { return false };
        let is_exclusive = item.events & libc::EPOLLEXCLUSIVE as u32 != 0;
        if item.events & !PRIVATE & key == 0 || is_exclusive && exclusive_done {
            return false;
        }
        epoll.queue(interest.item);
        epoll.onlookers.drain(..).for_each(|onlooker| onlooker.tell());
        let woken = epoll.wake_one() || self.ring(interest.epoll);
        self.tell_watchers(interest.epoll, depth);
        woken && is_exclusive
    }

    /// Tells the instances that watch this one, which has something ready.
    fn tell_watchers(&mut self, id: EpollId, depth: u32) {
        for place in 0.. {
            let watcher = self.epolls.get(id).and_then(|epoll| epoll.watchers.at(place));
            let Some(watcher) = watcher.filter(|_| depth < NESTING_MAX) else { return };
            self.tell(watcher, crate::socket::READABLE, false, depth + 1);
        }
    }

    /// A thread sleeps until there is something to be collected at an instance, by whomever.
    pub(crate) fn look_on(&mut self, id: EpollId, waiter: &Arc<Waiter>) {
        if let Some(epoll) = self.epolls.get_mut(id) {
            epoll.onlookers.push(Arc::clone(waiter));
        }
    }

    /// It does not any more.
    pub(crate) fn stop_looking_on(&mut self, id: EpollId, waiter: &Arc<Waiter>) {
        if let Some(epoll) = self.epolls.get_mut(id) {
            waiter::remove(&mut epoll.onlookers, waiter);
        }
    }

    /// A thread no longer waits at an instance.
    pub(crate) fn stop_waiting_at(&mut self, id: EpollId, waiter: &Arc<Waiter>) {
        if let Some(epoll) = self.epolls.get_mut(id) {
            waiter::remove(&mut epoll.waiters, waiter);
        }
    }
}
