//! Collects our ready sockets for epoll_wait(2).

use std::os::fd::RawFd;

use crate::epoll::instance::{ALWAYS, EDGE, NESTING_MAX, ONE_SHOT, PRIVATE};
use crate::ids::{EpollId, ItemId, Target};
use crate::process::state::State;
use crate::request::EpollEvent;

impl State {
    /// Reports our ready sockets, as far as there is space. Level-triggered items stay in the list, at its
    /// end; what does not fit stays at its front.
    pub(crate) fn collect(&mut self, id: EpollId, events: &mut [EpollEvent]) -> usize {
        let Some(epoll) = self.epolls.get_mut(id) else { return 0 };
        epoll.told.clear();
        let listed = epoll.ready.len();
        let mut count = 0;
        for _ in 0..listed {
            if count == events.len() {
                break;
            }
            let Some(item_id) = self.epolls.get_mut(id).and_then(|epoll| epoll.ready.pop_front()) else {
                break;
            };
            if let Some((event, in_kernel)) = self.look_at(id, item_id) {
                events[count] = event;
                if in_kernel && let Some(epoll) = self.epolls.get_mut(id) {
                    epoll.told.push((count, item_id));
                }
                count += 1;
            }
        }
        // What remains, or is level-triggered, is for the next caller.
        if let Some(epoll) = self.epolls.get_mut(id).filter(|epoll| count > 0 && !epoll.ready.is_empty()) {
            epoll.wake_one();
        }
        count
    }

    /// What an item that was queued is ready for, and whether the kernel watches it as well. It is queued again if it is watched by level.
    fn look_at(&mut self, id: EpollId, item_id: ItemId) -> Option<(EpollEvent, bool)> {
        let item = self.epolls.get_mut(id)?.items.get_mut(item_id)?;
        item.queued = false;
        let item = *item;
        let ready = self.poll_target(item.target, 0) & (item.events & !PRIVATE);
        if ready == 0 {
            return None;
        }
        if item.events & ONE_SHOT != 0 {
            self.disarm(id, item_id);
        } else if item.events & EDGE == 0
            && let Some(epoll) = self.epolls.get_mut(id)
        {
            epoll.queue(item_id);
        }
        Some((EpollEvent { events: ready, data: item.data }, item.in_kernel))
    }

    /// A one-shot item was reported: it is silent until it is modified, in the kernel as well.
    fn disarm(&mut self, id: EpollId, item_id: ItemId) {
        let Some(item) = self.epolls.get_mut(id).and_then(|epoll| epoll.items.get_mut(item_id)) else {
            return;
        };
        item.events &= PRIVATE;
        let item = *item;
        if item.in_kernel
            && self.is_still(item.fd, item.target)
            && let Some(epoll) = self.epolls.get_mut(id)
        {
            let silent = syscall::EpollEvent { events: item.events, u64: item.data };
            epoll.silence_in_kernel(item.fd, silent);
        }
    }

    /// Whether a number that was watched has not become another file's.
    fn is_still(&self, fd: RawFd, target: Target) -> bool {
        match target {
            Target::Socket(id) => self.socket_of(fd) == Some(id),
            Target::Epoll(id) => self.epoll_of(fd) == Some(id),
        }
    }

    /// What the target of an item is ready for.
    pub(crate) fn poll_target(&mut self, target: Target, depth: u32) -> u32 {
        match target {
            Target::Socket(id) => self.poll_socket(id),
            Target::Epoll(id) if depth < NESTING_MAX && self.has_ready(id, depth) => crate::socket::READABLE,
            Target::Epoll(_) => 0,
        }
    }

    /// What a socket is ready for, as far as the stack goes.
    pub(crate) fn poll_socket(&mut self, id: crate::ids::SocketId) -> u32 {
        self.poll_if_open(id).unwrap_or(0)
    }

    /// The same; `None` if there is no such socket any more.
    pub(crate) fn poll_if_open(&mut self, id: crate::ids::SocketId) -> Option<u32> {
        let stack = self.queue.runtime.as_mut().map(|runtime| &*runtime.stack());
        self.sockets.get(id).map(|socket| socket.poll(stack))
    }

    /// Whether an instance has something of ours to tell.
    pub(crate) fn has_ready(&mut self, id: EpollId, depth: u32) -> bool {
        let listed = self.epolls.get(id).map_or(0, |epoll| epoll.ready.len());
        (0..listed).any(|place| {
            let item =
                self.epolls.get(id).and_then(|epoll| epoll.items.get(*epoll.ready.get(place)?)).copied();
            item.is_some_and(|item| {
                self.poll_target(item.target, depth + 1) & (item.events & !PRIVATE | ALWAYS) != 0
            })
        })
    }
}
