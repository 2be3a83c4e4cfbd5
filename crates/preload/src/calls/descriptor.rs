//! Descriptors as numbers: close(2), dup(2), fcntl(2), ioctl(2).

use std::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};

use super::map;
use crate::answer::{Asked, ours};
use crate::asked::{self, Verdict};
use crate::memory;

/// The last of the descriptors that the C library's own streams write to, past all hooks.
const LAST_OF_STDIO: c_int = libc::STDERR_FILENO;

pub(crate) fn close(fd: c_int) -> Asked<c_int> {
    Ok(map(asked::close(fd), |()| 0))
}

pub(crate) fn close_range(first: c_uint, last: c_uint, flags: c_int) -> Asked<c_int> {
    Ok(map(asked::close_range(first, last, flags as u32), |()| 0))
}

pub(crate) fn closefrom(first: c_int) -> Asked<()> {
    Ok(asked::close_range(first.max(0) as u32, u32::MAX, 0))
}

pub(crate) fn dup(from: c_int) -> Asked<c_int> {
    Ok(printed_to(from, asked::dup(from, None, 0)))
}

/// What became of a copy: a connection that standard output, or input, is now, may be printed to.
fn printed_to(from: c_int, copied: Verdict<c_int>) -> Verdict<c_int> {
    if matches!(copied, Verdict::Done(Ok(..=LAST_OF_STDIO))) {
        asked::move_to_kernel(from);
    }
    copied
}

/// dup3(2), and dup2(2) between different descriptors. What becomes standard output may be printed to.
pub(crate) fn dup3(from: c_int, to: c_int, flags: c_int) -> Asked<c_int> {
    if to <= LAST_OF_STDIO && ours(from) {
        asked::move_to_kernel(from);
    }
    Ok(asked::dup(from, Some(to), flags))
}

/// fstat(2).
pub(crate) fn fstat(fd: c_int) -> Asked<c_int> {
    asked::before_identity(fd);
    Ok(Verdict::Kernel)
}

/// Whether fstatat(2) and statx(2) are asked for the descriptor itself.
///
/// # Safety
/// `path` is as for fstatat(2).
pub(crate) unsafe fn is_itself(fd: c_int, path: *const c_char, flags: c_int) -> bool {
    // SAFETY: as the caller says. One that cannot be read is the kernel's to refuse.
    let is_empty = || path.is_null() || unsafe { memory::at(path) }.is_ok_and(|first| *first == 0);
    ours(fd) && flags & libc::AT_EMPTY_PATH != 0 && is_empty() // Since Linux 6.11 NULL is as good as "".
}

pub(crate) fn fcntl(fd: c_int, command: c_int, argument: c_long) -> Asked<c_int> {
    let answer = asked::fcntl(fd, command, argument);
    let copies = matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC);
    Ok(if copies { printed_to(fd, answer) } else { answer })
}

/// Of a socket's requests `posix` handles those whose argument is an int. All others go to the kernel.
///
/// # Safety
/// As ioctl(2).
pub(crate) unsafe fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> Asked<c_int> {
    if request == libc::FIONCLEX {
        return Ok(asked::ioctl(fd, request, &mut 0)); // It has no argument.
    }
    if !INT_REQUESTS.contains(&request) {
        return Ok(Verdict::Kernel);
    }
    // SAFETY: these requests have an int to read or to write, says ioctl_list(2).
    let argument = unsafe { memory::at_mut(argument.cast::<c_int>())? };
    Ok(asked::ioctl(fd, request, argument))
}

pub(crate) fn sockatmark(fd: c_int) -> Asked<c_int> {
    let mut at_mark = 0;
    Ok(map(asked::ioctl(fd, SIOCATMARK, &mut at_mark), |_| c_int::from(at_mark != 0)))
}

const FIOSETOWN: c_ulong = 0x8901;
const SIOCSPGRP: c_ulong = 0x8902;
const FIOGETOWN: c_ulong = 0x8903;
const SIOCGPGRP: c_ulong = 0x8904;
const SIOCATMARK: c_ulong = 0x8905;
const SIOCOUTQNSD: c_ulong = 0x894b;

const INT_REQUESTS: [c_ulong; 10] = [
    libc::FIONREAD,
    libc::FIONBIO,
    libc::FIOASYNC,
    libc::TIOCOUTQ,
    SIOCOUTQNSD,
    SIOCATMARK,
    SIOCGPGRP,
    SIOCSPGRP,
    FIOGETOWN,
    FIOSETOWN,
];
