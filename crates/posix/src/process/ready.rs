//! Something happened on a socket: tells threads, epoll instances and the owner of signals.

use crate::epoll::instance::{NESTING_MAX, PRIVATE};
use crate::ids::{EpollId, Interest, SocketId};
use crate::process::state::State;

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
    pub(crate) fn tell(&mut self, interest: Interest, key: u32, exclusive_done: bool, depth: u32) -> bool {
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

    /// There is news of a socket: signals its owner, if it wants that.
    pub(crate) fn signal_owner(&self, id: SocketId, key: u32) {
        let Some(rare) = self.sockets.get(id).and_then(|socket| socket.rare.as_ref()) else { return };
        let owner = &rare.owner;
        if owner.process == 0 || key == 0 {
            return;
        }
        // An owner that no longer exists gets no signal.
        if key & libc::EPOLLPRI as u32 != 0 {
            let _ = syscall::kill(owner.process, libc::SIGURG);
        }
        if owner.status & libc::O_ASYNC != 0 {
            let _ = syscall::kill(owner.process, libc::SIGIO);
        }
    }
}
