//! epoll(7).

use std::ffi::c_int;
use std::time::Duration;

use crate::asked::{self, EpollEvent, SignalMask};
use libc::{epoll_event, sigset_t, timespec};

use super::map;
use crate::answer::Asked;
use crate::memory::{self, EINVAL};

// A program's array of events is given to `posix` as it is.
const _: () = assert!(
    size_of::<EpollEvent>() == size_of::<epoll_event>()
        && align_of::<EpollEvent>() == align_of::<epoll_event>()
);

/// # Safety
/// As epoll_ctl(2).
pub(crate) unsafe fn epoll_ctl(epfd: c_int, op: c_int, fd: c_int, event: *const epoll_event) -> Asked<c_int> {
    let event = match op {
        libc::EPOLL_CTL_DEL => None,
        // SAFETY: as the caller says.
        _ => Some(unsafe { memory::copy(event.cast::<EpollEvent>())? }),
    };
    Ok(map(asked::epoll_ctl(epfd, op, fd, event), |()| 0))
}

/// # Safety
/// As epoll_pwait(2); without a mask it is epoll_wait(2).
pub(crate) unsafe fn epoll_pwait(
    epfd: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> Asked<c_int> {
    // SAFETY: as the caller says.
    unsafe { wait(epfd, events, room, memory::milliseconds(timeout), memory::signal_mask(mask)?) }
}

/// # Safety
/// As epoll_pwait2(2).
pub(crate) unsafe fn epoll_pwait2(
    epfd: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> Asked<c_int> {
    // SAFETY: as the caller says.
    unsafe { wait(epfd, events, room, memory::timeout(timeout)?, memory::signal_mask(mask)?) }
}

/// # Safety
/// `events` is null or has room for `room` events.
unsafe fn wait(
    epfd: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout: Option<Duration>,
    mask: Option<SignalMask>,
) -> Asked<c_int> {
    let room = usize::try_from(room).ok().filter(|room| *room > 0).ok_or(EINVAL)?;
    if room > c_int::MAX as usize / size_of::<epoll_event>() {
        return Err(EINVAL);
    }
    // SAFETY: as the caller says; the layouts are the same, and any octets are an event.
    let events = unsafe { memory::array_mut(events.cast::<EpollEvent>(), room)? };
    Ok(map(asked::epoll_wait(epfd, events, timeout, mask), |count| count as c_int))
}
