//! poll(2).

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use crate::check;
use crate::raw::raw;

/// `struct pollfd`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PollFd {
    /// The descriptor; negative: to be ignored.
    pub fd: RawFd,
    /// What is waited for.
    pub events: i16,
    /// What there is.
    pub revents: i16,
}

/// ppoll(2): `None` waits for ever, `mask` is the kernel's `sigset_t`. Returns the number of descriptors with something.
pub fn ppoll(fds: &mut [PollFd], timeout: Option<Duration>, mask: Option<u64>) -> io::Result<usize> {
    let mut time = timeout.map(|span| libc::timespec {
        tv_sec: libc::time_t::try_from(span.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: span.subsec_nanos().into(),
    });
    let time = time.as_mut().map_or(std::ptr::null_mut(), |time| &raw mut *time);
    let mask = mask.as_ref().map_or(std::ptr::null(), |mask| &raw const *mask);
    let (room, count) = (fds.as_mut_ptr(), fds.len());
    // SAFETY: `fds` has `count` elements of the kernel's layout; time and mask are null or live until the call returns, and
    // the mask has the 8 octets that are told.
    check(unsafe { raw!(libc::SYS_ppoll, room, count, time, mask, 8usize) })
}
