//! Descriptors of our own, out of the program's way.

use std::os::fd::{IntoRawFd, OwnedFd, RawFd};

/// Room that is left for them below the limit.
const ROOM: u64 = 96;
/// Not above this: a table of descriptors costs the kernel memory, and fork(2) time, up to the highest in use.
const FLOOR_MAX: u64 = 8192;

/// The least number that a descriptor of our own has.
pub(crate) fn floor() -> RawFd {
    let limit = syscall::descriptor_limit();
    let floor = if limit > 2 * ROOM { limit - ROOM } else { limit / 2 };
    floor.min(FLOOR_MAX) as RawFd
}

/// Moves a descriptor to such a number.
pub(crate) fn raise(fd: OwnedFd) -> Option<OwnedFd> {
    syscall::raise(fd, floor()).ok()
}

/// Closes a descriptor past the C library's function, which is hooked.
pub(crate) fn close(fd: OwnedFd) {
    let _ = syscall::close(fd.into_raw_fd()); // An OwnedFd is open: nothing to fail.
}
