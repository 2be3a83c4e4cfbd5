//! What the kernel's epoll instance has: for a call that waits there alone, and beside our ready sockets.

use std::sync::MutexGuard;
use std::time::Duration;

use clock::Instant;

use crate::epoll::Item;
use crate::epoll::armed::Silent;
use crate::epoll::bell::is_bell;
use crate::epoll::instance::{ONE_SHOT, PRIVATE};
use crate::errno::{Errno, fail};
use crate::ids::{EpollId, ItemId};
use crate::inside;
use crate::process::{Process, State};
use crate::request::{EpollEvent, SignalMask};

/// How a wait at the kernel's instance ended.
pub(crate) enum Heard<'p> {
    /// The call is over.
    Over(Result<usize, Errno>),
    /// There is something of ours.
    Bell(MutexGuard<'p, State>),
}

impl State {
    /// Whether the program may wait at the kernel's instance alone: nothing can be added meanwhile, and it has no bell.
    pub(crate) fn can_leave_alone(&self, id: EpollId) -> bool {
        inside::is_alone() && self.epolls.get(id).is_none_or(|epoll| !epoll.bell.is_known)
    }
}

impl Process {
    /// epoll_pwait2(2) at the kernel's instance.
    pub(crate) fn wait_in_kernel<'p>(
        &'p self,
        mut state: MutexGuard<'p, State>,
        id: EpollId,
        events: &mut [EpollEvent],
        deadline: Option<Instant>,
        mask: Option<SignalMask>,
    ) -> Heard<'p> {
        let Some(epoll) = state.epolls.get_mut(id) else { return Heard::Over(fail(libc::EBADF)) };
        epoll.bell.listeners += 1;
        let (epfd, mut room, changes) = (epoll.fd, epoll.lend_room(events.len()), epoll.changes);
        drop(state);
        let timeout = deadline.map(|deadline| deadline.since(self.now()).into());
        let found = inside::sleep(timeout, |time| syscall::epoll_pwait2(epfd, room.events(), time, mask));
        let mut state = self.lock();
        if let Some(epoll) = state.epolls.get_mut(id) {
            epoll.bell.listeners = epoll.bell.listeners.saturating_sub(1);
        }
        let found = match found {
            None => return Heard::Over(fail(libc::EINTR)),
            Some(Err(error)) => return Heard::Over(Err(error.into())),
            Some(Ok(found)) => found,
        };
        let is_unchanged = state.epolls.get(id).is_none_or(|epoll| epoll.changes == changes);
        let mut count = 0;
        for event in room.events()[..found].iter().filter(|event| !is_bell(event)) {
            events[count] = EpollEvent { events: event.events, data: event.u64 };
            state.settle_one_shot(id, event, is_unchanged);
            count += 1;
        }
        if let Some(epoll) = state.epolls.get_mut(id) {
            epoll.room = room;
        }
        // Nothing but the bell was heard, or a handler ran in the last moment.
        match count == 0 && (found > 0 || inside::has_handled(0)) {
            true if inside::has_handled(mask.unwrap_or(0)) => Heard::Over(fail(libc::EINTR)),
            true => Heard::Bell(state),
            false => Heard::Over(Ok(count)),
        }
    }
}

/// The kernel is asked this often while there is something of ours.
const KERNEL_EVERY: clock::Duration = clock::Duration::from_micros(50);

impl State {
    /// Our ready sockets, and from time to time the kernel's.
    pub(crate) fn collect_all(
        &mut self,
        id: EpollId,
        events: &mut [EpollEvent],
        now: Instant,
    ) -> Result<usize, Errno> {
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
        for event in room.events()[..found].iter().filter(|event| !is_bell(event)) {
            self.settle_one_shot(id, event, true);
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

    /// The kernel has reported something, which may be a shadow that must be reported once. With one that may be it, and is as the event says, it
    /// is that one, unless items have changed since. Else the kernel is asked which ones it keeps silent.
    fn settle_one_shot(&mut self, id: EpollId, event: &syscall::EpollEvent, is_unchanged: bool) {
        let Some(epoll) = self.epolls.get(id) else { return };
        let is_armed = |item: &Item| item.events & ONE_SHOT != 0 && !item.is_silent();
        let armed = epoll.shadows.iter().filter_map(|at| Some((*at, *epoll.items.get(*at)?)));
        let alike: Vec<(ItemId, Item)> =
            armed.filter(|(_, item)| is_armed(item) && item.data == { event.u64 }).collect();
        let reported = match alike[..] {
            [] => return,
            [(only, item)] if is_unchanged && is_of(&item, event) => vec![only],
            _ => match Silent::of(epoll.fd()) {
                Some(silent) => alike
                    .iter()
                    .filter(|(_, item)| silent.has(item.fd, item.data))
                    .map(|(at, _)| *at)
                    .collect(),
                None => {
                    alike.iter().filter(|(_, item)| is_of(item, event)).map(|(at, _)| *at).take(1).collect()
                }
            },
        };
        let Some(epoll) = self.epolls.get_mut(id) else { return };
        for item in reported {
            if let Some(item) = epoll.items.get_mut(item) {
                item.events &= PRIVATE;
            }
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
