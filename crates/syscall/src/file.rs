//! Descriptors of any kind.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::check;
use crate::raw::raw;

/// A descriptor that the kernel has just made for us.
pub(crate) fn owned(fd: usize) -> OwnedFd {
    // SAFETY: the kernel has just returned it, so it is open and nothing else owns it.
    unsafe { OwnedFd::from_raw_fd(fd as RawFd) }
}

/// close(2).
pub fn close(fd: RawFd) -> io::Result<()> {
    // SAFETY: no memory is involved.
    check(unsafe { raw!(libc::SYS_close, fd) }).map(drop)
}

/// close_range(2).
pub fn close_range(first: u32, last: u32, flags: u32) -> io::Result<()> {
    // SAFETY: no memory is involved.
    check(unsafe { raw!(libc::SYS_close_range, first, last, flags) }).map(drop)
}

/// dup(2).
pub fn dup(fd: RawFd) -> io::Result<RawFd> {
    // SAFETY: no memory is involved.
    check(unsafe { raw!(libc::SYS_dup, fd) }).map(|fd| fd as RawFd)
}

/// dup3(2).
pub fn dup3(from: RawFd, to: RawFd, flags: i32) -> io::Result<RawFd> {
    // SAFETY: no memory is involved.
    check(unsafe { raw!(libc::SYS_dup3, from, to, flags) }).map(|fd| fd as RawFd)
}

/// `F_DUPFD` or `F_DUPFD_CLOEXEC` of fcntl(2): the lowest free number from `least` on.
pub fn dup_from(fd: RawFd, least: RawFd, close_on_exec: bool) -> io::Result<RawFd> {
    let command = if close_on_exec { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
    fcntl(fd, command, least.into()).map(|fd| fd as RawFd)
}

/// The same descriptor at a number not below `least`, closed on exec; the old number is free again.
pub fn raise(fd: OwnedFd, least: RawFd) -> io::Result<OwnedFd> {
    let raised = owned(fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, least.into())? as usize);
    close(std::os::fd::IntoRawFd::into_raw_fd(fd))?;
    Ok(raised)
}

/// `fd` is not for the next program that this process becomes.
///
/// # Errors
/// `EBADF`.
pub fn close_on_exec(fd: RawFd) -> io::Result<()> {
    fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC.into()).map(drop)
}

/// Commands of fcntl(2) whose argument is a number.
///
/// # Errors
/// The kernel's; and `EINVAL` for commands that take a pointer.
pub fn fcntl(fd: RawFd, command: i32, argument: i64) -> io::Result<i32> {
    const F_SETSIG: i32 = 10;
    const F_GETSIG: i32 = 11;
    match command {
        libc::F_DUPFD
        | libc::F_DUPFD_CLOEXEC
        | libc::F_GETFD
        | libc::F_SETFD
        | libc::F_GETFL
        | libc::F_SETFL
        | libc::F_GETOWN
        | libc::F_SETOWN
        | libc::F_GETPIPE_SZ
        | F_GETSIG
        | F_SETSIG => {}
        _ => return Err(io::Error::from_raw_os_error(libc::EINVAL)),
    }
    // SAFETY: these commands take a number, so no memory is involved.
    check(unsafe { raw!(libc::SYS_fcntl, fd, command, argument) }).map(|value| value as i32)
}

/// Requests of ioctl(2) whose argument points to an int.
///
/// # Errors
/// The kernel's; and `ENOTTY` for requests that are not known to be such.
pub fn ioctl(fd: RawFd, request: u64, argument: &mut i32) -> io::Result<i32> {
    const SIOCATMARK: u64 = 0x8905;
    const SIOCOUTQNSD: u64 = 0x894b;
    match request {
        libc::FIONREAD | libc::FIONBIO | libc::FIOASYNC | libc::TIOCOUTQ | SIOCATMARK | SIOCOUTQNSD => {}
        _ => return Err(io::Error::from_raw_os_error(libc::ENOTTY)),
    }
    // SAFETY: these requests read or write one int, which `argument` is.
    check(unsafe { raw!(libc::SYS_ioctl, fd, request, &raw mut *argument) }).map(|value| value as i32)
}

/// read(2).
pub fn read(fd: RawFd, room: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the kernel writes at most `room.len()` octets into `room`.
    check(unsafe { raw!(libc::SYS_read, fd, room.as_mut_ptr(), room.len()) })
}

/// pread64(2).
pub fn pread(fd: RawFd, room: &mut [u8], offset: i64) -> io::Result<usize> {
    // SAFETY: the kernel writes at most `room.len()` octets into `room`.
    check(unsafe { raw!(libc::SYS_pread64, fd, room.as_mut_ptr(), room.len(), offset) })
}

/// write(2).
pub fn write(fd: RawFd, data: &[u8]) -> io::Result<usize> {
    // SAFETY: the kernel reads at most `data.len()` octets of `data`.
    check(unsafe { raw!(libc::SYS_write, fd, data.as_ptr(), data.len()) })
}

/// lseek(2).
pub fn lseek(fd: RawFd, offset: i64, whence: i32) -> io::Result<i64> {
    // SAFETY: no memory is involved.
    check(unsafe { raw!(libc::SYS_lseek, fd, offset, whence) }).map(|position| position as i64)
}

/// splice(2) between descriptors that have no position, or at it.
pub fn splice(from: RawFd, to: RawFd, count: usize, flags: u32) -> io::Result<usize> {
    let none = std::ptr::null_mut::<libc::loff_t>();
    // SAFETY: null offsets are permitted; no other memory is involved.
    check(unsafe { raw!(libc::SYS_splice, from, none, to, none, count, flags) })
}

/// eventfd2(2), non-blocking and closed on exec.
pub fn eventfd() -> io::Result<OwnedFd> {
    let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
    // SAFETY: no memory is involved.
    check(unsafe { raw!(libc::SYS_eventfd2, 0, flags) }).map(owned)
}

/// A copy of `fd` of our own, at a number not below `least`, closed on exec.
pub fn dup_owned(fd: RawFd, least: RawFd) -> io::Result<OwnedFd> {
    dup_from(fd, least, true).map(|fd| owned(fd as usize))
}

/// pipe2(2), non-blocking and closed on exec: the end to read from, and the end to write to.
pub fn pipe() -> io::Result<[OwnedFd; 2]> {
    let mut pair = [0i32; 2];
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: the kernel writes two descriptors into `pair`.
    check(unsafe { raw!(libc::SYS_pipe2, pair.as_mut_ptr(), flags) })?;
    Ok(pair.map(|fd| owned(fd as usize)))
}
