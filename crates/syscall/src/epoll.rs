//! epoll(7).

use std::io;
use std::os::fd::RawFd;

use crate::check;
use crate::poll::Timeout;
use crate::raw::raw;

/// `struct epoll_event`, as the kernel lays it out.
pub type EpollEvent = libc::epoll_event;

/// epoll_create1(2).
pub fn epoll_create(flags: i32) -> io::Result<RawFd> {
    // SAFETY: no memory is involved.
    check(unsafe { raw!(libc::SYS_epoll_create1, flags) }).map(|fd| fd as RawFd)
}

/// epoll_ctl(2).
pub fn epoll_ctl(epfd: RawFd, op: i32, fd: RawFd, event: Option<EpollEvent>) -> io::Result<()> {
    let mut event = event;
    let pointer = event.as_mut().map_or(std::ptr::null_mut(), |event| &raw mut *event);
    // SAFETY: `pointer` is null or points to an event that lives until the call returns.
    check(unsafe { raw!(libc::SYS_epoll_ctl, epfd, op, fd, pointer) }).map(drop)
}

/// epoll_wait(2) with a timeout in milliseconds; negative waits for ever. Returns the number of events.
pub fn epoll_wait(epfd: RawFd, events: &mut [EpollEvent], timeout_ms: i32) -> io::Result<usize> {
    let (room, count) = (events.as_mut_ptr(), i32::try_from(events.len()).unwrap_or(i32::MAX));
    let mask = std::ptr::null::<libc::sigset_t>();
    // SAFETY: the kernel writes at most `count` events into `events`; no mask is given.
    check(unsafe { raw!(libc::SYS_epoll_pwait, epfd, room, count, timeout_ms, mask, 8usize) })
}

/// epoll_pwait2(2): `mask` is the kernel's `sigset_t`. Returns the number of events.
pub fn epoll_pwait2(
    epfd: RawFd,
    events: &mut [EpollEvent],
    timeout: &Timeout,
    mask: Option<u64>,
) -> io::Result<usize> {
    let time = std::ptr::from_ref(timeout);
    let mask = mask.as_ref().map_or(std::ptr::null(), |mask| &raw const *mask);
    let (room, count) = (events.as_mut_ptr(), i32::try_from(events.len()).unwrap_or(i32::MAX));
    // SAFETY: the kernel writes at most `count` events into `events`; `time` has the layout of a `struct timespec`, which is only read; mask
    // is null or has the 8 octets that are told. All live until the call returns.
    check(unsafe { raw!(libc::SYS_epoll_pwait2, epfd, room, count, time, mask, 8usize) })
}
