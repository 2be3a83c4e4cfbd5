//! Our own descriptors, out of the program's way.

use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};

use crate::descriptors::fd_table::{Entry, FdTable};

/// Room that is left for them below the limit.
const ROOM: u64 = 96;
/// Not above this. A table of descriptors costs the kernel memory, and fork(2) time, up to the highest in use; and of a select(2) with a
/// larger count than its sets have bits, the kernel looks at and writes as many bits as the table has places: no more than a set has.
const FLOOR_MAX: u64 = libc::FD_SETSIZE as u64 - ROOM;

/// The least number that a descriptor of our own has.
pub(crate) fn floor() -> RawFd {
    let limit = syscall::descriptor_limit();
    let floor = if limit > 2 * ROOM { limit - ROOM } else { limit / 2 };
    floor.min(FLOOR_MAX) as RawFd
}

/// A copy of a descriptor of our own.
pub(crate) fn copy(fd: RawFd) -> Option<OwnedFd> {
    copy_above(fd, floor())
}

/// The same at such a number; at one in the middle, or any, where those are used up: a thread that has none cannot be woken.
fn copy_above(fd: RawFd, floor: RawFd) -> Option<OwnedFd> {
    [floor, floor / 2, 0].into_iter().find_map(|least| syscall::dup_owned(fd, least).ok())
}

/// Moves a descriptor to such a number.
pub(crate) fn raise(fd: OwnedFd) -> Option<OwnedFd> {
    let raised = copy(fd.as_raw_fd());
    close(fd);
    raised
}

/// The number of a copy, which is not the program's; none if negative.
pub(crate) fn enter(table: FdTable, copy: Option<OwnedFd>) -> RawFd {
    let Some(copy) = copy.map(IntoRawFd::into_raw_fd) else { return -1 };
    table.set(copy, Entry::Internal);
    copy
}

/// Closes what has such a number, if any.
pub(crate) fn close_entered(table: FdTable, fd: RawFd) {
    if fd >= 0 {
        table.set(fd, Entry::None);
        let _ = syscall::close(fd); // It is open: nothing to fail.
    }
}

/// Closes a descriptor past the C library's function, which is hooked.
pub(crate) fn close(fd: OwnedFd) {
    let _ = syscall::close(fd.into_raw_fd()); // An OwnedFd is open: nothing to fail.
}

/// A descriptor of our own, which does not exist to the program. It is closed with this.
#[derive(Debug)]
pub(crate) struct Hidden<T: AsRawFd + Into<OwnedFd> = OwnedFd> {
    inner: Option<T>,
    table: FdTable,
}

impl<T: AsRawFd + Into<OwnedFd>> Hidden<T> {
    pub(crate) fn new(inner: T, table: FdTable) -> Hidden<T> {
        table.set(inner.as_raw_fd(), Entry::Internal);
        Hidden { inner: Some(inner), table }
    }

    pub(crate) fn get(&self) -> &T {
        self.inner.as_ref().expect("it is there until it is dropped")
    }
}

impl<T: AsRawFd + Into<OwnedFd>> Drop for Hidden<T> {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.take() {
            self.table.set(inner.as_raw_fd(), Entry::None);
            close(inner.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_no_number_is_left_above_it_is_one_below() {
        // Nothing can be there, as where all numbers below the limit are taken.
        let limit = syscall::descriptor_limit() as RawFd;
        let event = syscall::eventfd().unwrap();
        let copy = copy_above(event.as_raw_fd(), limit).map(|copy| copy.as_raw_fd());
        assert!(copy.is_some_and(|copy| copy >= limit / 2), "{copy:?}");
        assert!(copy_above(event.as_raw_fd(), RawFd::MAX).is_some());
    }
}
