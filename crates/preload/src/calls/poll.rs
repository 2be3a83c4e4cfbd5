//! poll(2) and ppoll(2).

use std::ffi::c_int;
use std::time::Duration;

use crate::asked::{self, PollFd, SignalMask};
use libc::{nfds_t, pollfd, sigset_t, timespec};

use super::map;
use crate::answer::{Asked, active, ours};
use crate::memory;

// A program's array is given to `posix` as it is.
const _: () =
    assert!(size_of::<PollFd>() == size_of::<pollfd>() && align_of::<PollFd>() == align_of::<pollfd>());

/// More descriptors than a process can have: the kernel says what it thinks of such a call.
const COUNT_MAX: nfds_t = 1 << 24;

/// Whether any of `count` descriptors is ours.
///
/// # Safety
/// As poll(2).
#[inline]
pub(crate) unsafe fn any_ours(fds: *const pollfd, count: nfds_t) -> bool {
    if !active() || count > COUNT_MAX || memory::is_bad(fds.addr(), count as usize * size_of::<pollfd>()) {
        return false; // The kernel says what is wrong with it.
    }
    // SAFETY: not bad, and as the caller says.
    unsafe { std::slice::from_raw_parts(fds, count as usize) }.iter().any(|entry| ours(entry.fd))
}

/// Whether `count` descriptors fit `room` octets, the size that the C library's checking variants get; they end the program if not.
pub(crate) fn fits(count: nfds_t, room: libc::size_t) -> bool {
    room / size_of::<pollfd>() >= count as usize
}

/// # Safety
/// As poll(2).
pub(crate) unsafe fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> Asked<c_int> {
    // SAFETY: as the caller says.
    unsafe { wait(fds, count, memory::milliseconds(timeout), None) }
}

/// # Safety
/// As ppoll(2).
pub(crate) unsafe fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> Asked<c_int> {
    // SAFETY: as the caller says.
    unsafe { wait(fds, count, memory::timeout(timeout)?, memory::signal_mask(mask)?) }
}

/// # Safety
/// As poll(2).
unsafe fn wait(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: Option<Duration>,
    mask: Option<SignalMask>,
) -> Asked<c_int> {
    // SAFETY: as the caller says; the layouts are the same.
    let fds = unsafe { memory::array_mut(fds.cast::<PollFd>(), count as usize)? };
    Ok(map(asked::poll(fds, timeout, mask), |ready| ready as c_int))
}
