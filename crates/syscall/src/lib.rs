//! System calls on descriptors that belong to the program: one safe function for each, past the C library.
//!
//! Within the preloaded library a C function such as `close` is our own hook; these calls go to the kernel whatever is hooked.
//! They take descriptors as numbers, as a program has them: a wrong number is the kernel's `EBADF`, and never memory unsafe.

use std::io;
use std::os::fd::RawFd;

/// What a system call returned, as `io::Result`.
fn check(returned: libc::c_long) -> io::Result<usize> {
    usize::try_from(returned).map_err(|_| io::Error::last_os_error())
}

/// close(2).
pub fn close(fd: RawFd) -> io::Result<()> {
    // SAFETY: no memory is involved.
    check(unsafe { libc::syscall(libc::SYS_close, fd) }).map(drop)
}
