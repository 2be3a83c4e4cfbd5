//! Descriptors: numbers, flags, and what is not a socket.

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{FromRawFd, RawFd};

use libc::{c_int, c_long, c_ulong};

use super::{Result, checked, checked_long, done};

/// close(2).
pub(crate) fn close(fd: RawFd) -> Result<()> {
    // SAFETY: the table's descriptors are plain numbers; nobody relies on one being open.
    done(unsafe { libc::close(fd) })
}

/// close_range(2).
pub(crate) fn close_range(first: u32, last: u32, flags: u32) -> Result<()> {
    // SAFETY: as for `close`.
    done(unsafe { libc::close_range(first, last, flags as c_int) })
}

/// closefrom(3).
pub(crate) fn closefrom(first: RawFd) {
    unsafe extern "C" {
        safe fn closefrom(first: c_int);
    }
    closefrom(first);
}

/// dup(2).
pub(crate) fn dup(fd: RawFd) -> Result<RawFd> {
    // SAFETY: no pointers.
    checked(unsafe { libc::dup(fd) })
}

/// dup2(2).
pub(crate) fn dup2(from: RawFd, to: RawFd) -> Result<RawFd> {
    // SAFETY: as for `close`, which it may do to `to`.
    checked(unsafe { libc::dup2(from, to) })
}

/// dup3(2).
pub(crate) fn dup3(from: RawFd, to: RawFd, flags: c_int) -> Result<RawFd> {
    // SAFETY: as for `close`, which it may do to `to`.
    checked(unsafe { libc::dup3(from, to, flags) })
}

/// fcntl(2) with a number, or with nothing, which is then ignored.
pub(crate) fn fcntl(fd: RawFd, command: c_int, argument: c_long) -> Result<c_int> {
    // SAFETY: callers use commands that take a number.
    checked(unsafe { libc::fcntl(fd, command, argument) })
}

/// `F_SETOWN_EX` of the calling thread.
pub(crate) fn own_by_this_thread(fd: RawFd) -> Result<c_int> {
    const F_SETOWN_EX: c_int = 15;
    const F_OWNER_TID: c_int = 0;
    // SAFETY: the command takes a pointer to `struct f_owner_ex`, which are two ints.
    checked(unsafe { libc::fcntl(fd, F_SETOWN_EX, [F_OWNER_TID, libc::gettid()].as_ptr()) })
}

/// ioctl(2) with a pointer to an int; gives the result and what the int has become.
pub(crate) fn ioctl(fd: RawFd, request: c_ulong, argument: c_int) -> Result<(c_int, c_int)> {
    // Some requests are larger than an int.
    let mut room = [argument; 64];
    // SAFETY: no request of the table writes more than the room, 256 octets.
    let result = checked(unsafe { libc::ioctl(fd, request as _, room.as_mut_ptr()) })?;
    Ok((result, room[0]))
}

/// pipe2(2): where to read, where to write.
pub(crate) fn pipe(flags: c_int) -> Result<[RawFd; 2]> {
    let mut fds = [-1; 2];
    // SAFETY: `fds` has room for two descriptors.
    done(unsafe { libc::pipe2(fds.as_mut_ptr(), flags) })?;
    Ok(fds)
}

/// A file in memory that holds `octets`, with its position at the start.
pub(crate) fn file(octets: &[u8]) -> Result<RawFd> {
    // SAFETY: the name is a C string.
    let fd = checked(unsafe { libc::memfd_create(c"table".as_ptr(), 0) })?;
    super::write(fd, octets)?;
    super::lseek(fd, 0)?;
    Ok(fd)
}

/// eventfd(2).
pub(crate) fn eventfd(value: u32, flags: c_int) -> Result<RawFd> {
    // SAFETY: no pointers.
    checked(unsafe { libc::eventfd(value, flags) })
}

/// fstat(2).
fn fstat(fd: RawFd) -> Result<libc::stat> {
    // SAFETY: a zeroed stat is valid, and is overwritten.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is exclusively ours.
    done(unsafe { libc::fstat(fd, &mut stat) })?;
    Ok(stat)
}

/// The type bits of fstat(2)'s mode.
pub(crate) fn file_type(fd: RawFd) -> Result<u32> {
    Ok(fstat(fd)?.st_mode & libc::S_IFMT)
}

/// The number that fstat(2) tells a file from others by.
pub(crate) fn inode(fd: RawFd) -> Result<u64> {
    Ok(fstat(fd)?.st_ino)
}

/// fsync(2).
pub(crate) fn fsync(fd: RawFd) -> Result<()> {
    // SAFETY: no pointers.
    done(unsafe { libc::fsync(fd) })
}

/// ftruncate(2).
pub(crate) fn ftruncate(fd: RawFd, len: i64) -> Result<()> {
    // SAFETY: no pointers.
    done(unsafe { libc::ftruncate(fd, len) })
}

/// isatty(3).
pub(crate) fn isatty(fd: RawFd) -> Result<()> {
    // SAFETY: no pointers. It says 0 for no.
    let yes = unsafe { libc::isatty(fd) } == 1;
    if yes { Ok(()) } else { Err(super::Errno::last()) }
}

/// What the symbolic link `/proc/self/fd/N` says.
pub(crate) fn link_of(fd: RawFd) -> Result<String> {
    let path = format!("/proc/self/fd/{fd}");
    let link =
        std::fs::read_link(path).map_err(|error| super::Errno(error.raw_os_error().unwrap_or_default()))?;
    Ok(link.display().to_string())
}

/// Sets the largest number of descriptors; gives the one before.
pub(crate) fn set_descriptors_max(max: u64) -> Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is exclusively ours.
    done(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) })?;
    let before = limit.rlim_cur;
    limit.rlim_cur = max;
    // SAFETY: `limit` is valid.
    done(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) })?;
    Ok(before)
}

/// `dprintf(fd, "%s", text)`, which writes inside of the C library.
pub(crate) fn dprintf(fd: RawFd, text: &CStr) -> Result<c_int> {
    unsafe extern "C" {
        fn dprintf(fd: c_int, format: *const libc::c_char, ...) -> c_int;
    }
    // SAFETY: format and argument are C strings and fit each other.
    checked(unsafe { dprintf(fd, c"%s".as_ptr(), text.as_ptr()) })
}

/// puts(3) and fflush(3): to standard output, inside of the C library.
pub(crate) fn print(line: &CStr) -> Result<()> {
    // SAFETY: the text ends with a zero.
    done(unsafe { libc::puts(line.as_ptr()) })?;
    // SAFETY: null is all streams.
    done(unsafe { libc::fflush(std::ptr::null_mut()) })
}

/// fdopen(3), fputs(3) and fflush(3), which write inside of the C library.
pub(crate) fn write_by_stream(fd: RawFd, text: &CStr) -> Result<()> {
    // SAFETY: both are C strings.
    let stream = unsafe { libc::fdopen(fd, c"w".as_ptr()) };
    if stream.is_null() {
        return Err(super::Errno::last());
    }
    // SAFETY: the stream is open, the text a C string.
    done(unsafe { libc::fputs(text.as_ptr(), stream) })?;
    // SAFETY: the stream is open.
    done(unsafe { libc::fflush(stream) })
}

/// fdopen(3) and fgets(3), which read inside of the C library.
pub(crate) fn read_line_by_stream(fd: RawFd) -> Result<String> {
    // SAFETY: the mode is a C string.
    let stream = unsafe { libc::fdopen(fd, c"r".as_ptr()) };
    if stream.is_null() {
        return Err(super::Errno::last());
    }
    let mut line = [0u8; 256];
    // SAFETY: the buffer has as many octets as is said, the stream is open.
    let got = unsafe { libc::fgets(line.as_mut_ptr().cast(), line.len() as c_int, stream) };
    if got.is_null() {
        return Err(super::Errno::last());
    }
    let text = CStr::from_bytes_until_nul(&line).unwrap_or_default();
    Ok(text.to_string_lossy().trim_end().to_owned())
}

/// A descriptor of the process `pid`, ready to read when it has ended: pidfd_open(2).
pub(crate) fn pidfd_open(pid: libc::pid_t) -> Result<RawFd> {
    // SAFETY: no pointers.
    checked_long(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) }).map(|fd| fd as RawFd)
}

/// A descriptor that nobody else uses as a file that closes it.
pub(crate) fn own(fd: RawFd) -> File {
    // SAFETY: by the condition above.
    unsafe { File::from_raw_fd(fd) }
}

/// flock(2).
pub(crate) fn flock(fd: RawFd, operation: c_int) -> Result<()> {
    // SAFETY: no pointers.
    done(unsafe { libc::flock(fd, operation) })
}
