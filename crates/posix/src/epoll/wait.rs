//! epoll_wait(2).

use std::os::fd::RawFd;
use std::time::Duration;

use clock::Instant;

use super::bell::Heard;
use super::collect::ONE_SHOT;
use super::{Epoll, EpollId, Item, ItemId, PRIVATE, Target};
use crate::attachment::Purpose;
use crate::calls::{EpollEvent, SignalMask, Verdict};
use crate::drive::{On, Stop, Waiting, readable};
use crate::errno::fail;
use crate::process::{Process, State};
use crate::socket::{Place, Role, SocketId};
use crate::{Errno, batch};

/// The kernel is asked this often while there is something of ours.
const KERNEL_EVERY: clock::Duration = clock::Duration::from_micros(50);
/// Events of the kernel's that are taken at once, whatever a program has room for.
const KERNEL_MAX: usize = 1 << 16;

/// Where the kernel writes events. It is kept with an instance: programs have room for thousands, and mostly get a few.
#[derive(Default)]
pub(super) struct Room {
    events: Vec<syscall::EpollEvent>,
    /// How many are wanted.
    wanted: usize,
}

impl Room {
    /// As many as are wanted.
    pub(super) fn events(&mut self) -> &mut [syscall::EpollEvent] {
        &mut self.events[..self.wanted]
    }
}

impl Epoll {
    /// Room for `wanted` events of the kernel's, to be given back.
    pub(super) fn lend_room(&mut self, wanted: usize) -> Room {
        let mut room = std::mem::take(&mut self.room);
        room.wanted = wanted.min(KERNEL_MAX);
        if room.events.len() < room.wanted {
            room.events.resize(room.wanted, syscall::EpollEvent { events: 0, u64: 0 });
        }
        room
    }

    /// Whether one of as many places as are wanted is left for the kernel: it has something, and ours would fill them. Every second
    /// time, as there may be one place only.
    fn is_kernels_turn(&mut self, wanted: usize) -> bool {
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

impl Process {
    /// epoll_pwait2(2).
    pub(crate) fn epoll_wait(
        &self,
        epfd: RawFd,
        events: &mut [EpollEvent],
        timeout: Option<Duration>,
        mask: Option<SignalMask>,
    ) -> Verdict<usize> {
        let mut state = self.lock();
        let Some(id) = state.epoll_of(epfd).filter(|_| !events.is_empty()) else { return Verdict::Kernel };
        let now = self.now();
        if state.epolls.get(id).is_some_and(|epoll| epoll.has_news) {
            let inherited = state.inherited_among(id);
            if !inherited.is_empty() {
                drop(state);
                self.inherit_all(&inherited);
                state = self.lock();
            }
            state.claim_watched(id, now);
        }
        let deadline = timeout.map(|timeout| now + timeout.into());
        while state.is_of_kernel_only(id) {
            if state.can_leave_alone(id) {
                return Verdict::Kernel;
            }
            match self.wait_in_kernel(state, id, events, deadline, mask) {
                Heard::Over(result) => return Verdict::Done(result),
                Heard::Bell(guard) => state = guard,
            }
        }
        if state.attached {
            self.start_watchdog(&mut state);
        }
        batch::close();
        let waiting = Waiting { on: On::Epoll(id), deadline, mask, restarts: false };
        let mut told_at = now;
        let result = self.wait(state, &waiting, &mut |state, now| {
            told_at = now;
            match state.collect_all(id, events, now) {
                Ok(0) => None,
                result => Some(result),
            }
        });
        Verdict::Done(match result {
            Ok(result) => result.inspect(|count| batch::open(*count, told_at)),
            Err(Stop::TimedOut) => Ok(0),
            Err(Stop::Interrupted) => fail(libc::EINTR),
        })
    }
}

impl State {
    /// Whether there is nothing of ours at an instance, nor will be without a call of this process.
    fn is_of_kernel_only(&self, id: EpollId) -> bool {
        let Some(epoll) = self.epolls.get(id) else { return true };
        let is_silent = self.runtime.is_none() && !self.attached && epoll.ready.is_empty();
        is_silent || epoll.items.is_empty()
    }

    /// Connections of the parent's that an instance watches: only the kernel can tell parent and child of them.
    fn inherited_among(&self, id: EpollId) -> Vec<SocketId> {
        let items = self.epolls.get(id).into_iter().flat_map(|epoll| epoll.items.iter());
        let sockets = items.filter_map(|(_, item)| match item.target {
            Target::Socket(socket) => Some(socket),
            Target::Epoll(_) => None,
        });
        sockets.filter(|socket| self.is_inherited(*socket)).collect()
    }

    pub(crate) fn is_inherited(&self, id: SocketId) -> bool {
        matches!(self.sockets.get(id).map(|socket| &socket.role), Some(Role::Stream(Place::FromParent(_))))
    }

    /// Takes the listeners and UDP sockets that an instance watches from the kernel, because a thread waits for them.
    fn claim_watched(&mut self, id: EpollId, now: Instant) {
        let Some(epoll) = self.epolls.get_mut(id) else { return };
        epoll.has_news = false;
        let watched: Vec<SocketId> = epoll.shadow_sockets().collect();
        for socket in watched {
            self.claim_to_read(socket, now);
        }
        let items = self.epolls.get(id).into_iter().flat_map(|epoll| epoll.items.iter());
        let inner: Vec<EpollId> = items
            .filter_map(|(_, item)| match item.target {
                Target::Epoll(inner) => Some(inner),
                Target::Socket(_) => None,
            })
            .collect();
        for inner in inner {
            if self.epolls.get(inner).is_some_and(|inner| inner.has_news) {
                self.claim_watched(inner, now);
            }
        }
    }

    /// A thread waits for connections or datagrams at a shadow.
    pub(crate) fn claim_to_read(&mut self, id: SocketId, now: Instant) -> bool {
        match self.sockets.get(id).map(|socket| &socket.role) {
            Some(Role::Listener { .. }) => self.claim(id, Purpose::Listener, now),
            Some(Role::Udp(udp)) if udp.is_bound => self.claim(id, Purpose::Udp, now),
            _ => false,
        }
    }

    /// Our ready sockets, and from time to time the kernel's.
    fn collect_all(&mut self, id: EpollId, events: &mut [EpollEvent], now: Instant) -> Result<usize, Errno> {
        let Some(epoll) = self.epolls.get_mut(id) else { return fail(libc::EBADF) };
        let is_time = now.since(epoll.kernel_asked_at) >= KERNEL_EVERY;
        let room = events.len() - usize::from(is_time && epoll.is_kernels_turn(events.len()));
        let count = self.collect(id, &mut events[..room]);
        if count == events.len() || count > 0 && !is_time {
            return Ok(count);
        }
        if let Some(epoll) = self.epolls.get_mut(id) {
            epoll.kernel_asked_at = now;
        }
        match self.collect_kernel(id, events, count)? {
            // The place was left for the kernel, which has nothing after all.
            0 if room == 0 => Ok(self.collect(id, events)),
            count => Ok(count),
        }
    }

    /// Adds what is ready of the kernel's behind `count` events. A shadow may be among both: then it is told once. Different descriptors
    /// are told apart also if the program gave them the same data.
    fn collect_kernel(
        &mut self,
        id: EpollId,
        events: &mut [EpollEvent],
        mut count: usize,
    ) -> Result<usize, Errno> {
        let Some(epoll) = self.epolls.get_mut(id).filter(|epoll| epoll.fd() >= 0) else { return Ok(count) };
        let (epfd, mut room) = (epoll.fd(), epoll.lend_room(events.len() - count));
        let found = syscall::epoll_wait(epfd, room.events(), 0)?;
        for event in room.events()[..found].iter().filter(|event| !super::bell::is_bell(event)) {
            self.settle_one_shot(id, event);
            match self.take_told(id, event) {
                Some(place) => events[place].events |= event.events,
                None => {
                    events[count] = EpollEvent { events: event.events, data: event.u64 };
                    count += 1;
                }
            }
        }
        if let Some(epoll) = self.epolls.get_mut(id) {
            epoll.room = room;
        }
        Ok(count)
    }

    /// The position of an event that reports the same socket as the kernel's event, if there is one.
    fn take_told(&mut self, id: EpollId, event: &syscall::EpollEvent) -> Option<usize> {
        let epoll = self.epolls.get_mut(id)?;
        let items = &epoll.items;
        let is_it = |(_, item): &(usize, ItemId)| items.get(*item).is_some_and(|item| is_of(item, event));
        let at = epoll.told.iter().position(is_it)?;
        Some(epoll.told.swap_remove(at).0)
    }

    /// The kernel has reported a shadow that must be reported once.
    pub(super) fn settle_one_shot(&mut self, id: EpollId, event: &syscall::EpollEvent) {
        let Some(epoll) = self.epolls.get(id) else { return };
        let is_armed = |item: &Item| item.events & ONE_SHOT != 0 && item.events & !PRIVATE != 0;
        let is_it = |item: &Item| is_armed(item) && is_of(item, event);
        let shadow = epoll.shadows.iter().copied().find(|item| epoll.items.get(*item).is_some_and(is_it));
        if let Some(item) = shadow {
            self.disarm(id, item);
        }
    }
}

/// Whether an event of the kernel's is about this item: it has only the program's data, which others may have as well. So the kernel is
/// asked whether the item's descriptor is as the event says.
fn is_of(item: &Item, event: &syscall::EpollEvent) -> bool {
    let bits = event.events;
    if item.data != { event.u64 } {
        return false;
    }
    // The bits of poll(2) are those of epoll(7).
    let mut fds = [syscall::PollFd { fd: item.fd, events: bits as i16, revents: 0 }];
    let asked = syscall::ppoll(&mut fds, Some(Duration::ZERO), None);
    asked.is_ok() && bits & !u32::from(fds[0].revents as u16) == 0
}
