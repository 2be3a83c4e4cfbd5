//! The other names under which the C library exports the same functions: checked ones, which compilers make of plain ones, and
//! those with underscores.

use std::os::fd::RawFd;
use std::time::Duration;

use libc::{c_int, c_ulong, c_void, sockaddr, socklen_t};

use super::{Name, Result, checked, done, length};

unsafe extern "C" {
    fn __read_chk(fd: c_int, at: *mut c_void, len: usize, room: usize) -> isize;
    fn __recv_chk(fd: c_int, at: *mut c_void, len: usize, room: usize, flags: c_int) -> isize;
    fn __recvfrom_chk(
        fd: c_int,
        at: *mut c_void,
        len: usize,
        room: usize,
        flags: c_int,
        name: *mut sockaddr,
        name_len: *mut socklen_t,
    ) -> isize;
    fn __poll_chk(fds: *mut libc::pollfd, count: c_ulong, timeout: c_int, room: usize) -> c_int;
    fn __ppoll_chk(
        fds: *mut libc::pollfd,
        count: c_ulong,
        timeout: *const libc::timespec,
        mask: *const libc::sigset_t,
        room: usize,
    ) -> c_int;
    fn __read(fd: c_int, at: *mut c_void, len: usize) -> isize;
    fn __write(fd: c_int, at: *const c_void, len: usize) -> isize;
    fn __send(fd: c_int, at: *const c_void, len: usize, flags: c_int) -> isize;
    fn __connect(fd: c_int, name: *const sockaddr, len: socklen_t) -> c_int;
    fn __poll(fds: *mut libc::pollfd, count: c_ulong, timeout: c_int) -> c_int;
    safe fn __close(fd: c_int) -> c_int;
    safe fn __dup2(from: c_int, to: c_int) -> c_int;
    fn __fcntl(fd: c_int, command: c_int, ...) -> c_int;
    fn fcntl64(fd: c_int, command: c_int, ...) -> c_int;
    fn sendfile64(out: c_int, file: c_int, offset: *mut i64, count: usize) -> isize;
}

/// Ways to receive that are the same.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReceiveBy {
    /// `__read_chk`.
    ReadChk,
    /// `__recv_chk`.
    RecvChk,
    /// `__read`.
    Underscored,
}

/// Receives up to `room` octets.
pub(crate) fn receive_by(by: ReceiveBy, fd: RawFd, room: usize) -> Result<Vec<u8>> {
    let mut octets = vec![0u8; room];
    let at = octets.as_mut_ptr().cast();
    // SAFETY: the buffer has `room` octets.
    let len = length(unsafe {
        match by {
            ReceiveBy::ReadChk => __read_chk(fd, at, room, room),
            ReceiveBy::RecvChk => __recv_chk(fd, at, room, room, 0),
            ReceiveBy::Underscored => __read(fd, at, room),
        }
    })?;
    octets.truncate(len);
    Ok(octets)
}

/// `__recvfrom_chk`.
pub(crate) fn recvfrom_chk(fd: RawFd, room: usize) -> Result<(Vec<u8>, Name)> {
    let (mut octets, mut name) = (vec![0u8; room], vec![0u8; super::FULL]);
    let mut name_len = name.len() as socklen_t;
    let (at, name_at) = (octets.as_mut_ptr().cast(), name.as_mut_ptr().cast());
    // SAFETY: the buffers have the room that is said.
    let len = length(unsafe { __recvfrom_chk(fd, at, room, room, 0, name_at, &mut name_len) })?;
    octets.truncate(len);
    name.truncate(name_len as usize);
    Ok((octets, Name { octets: name, len: name_len as usize }))
}

/// `__write`.
pub(crate) fn underscored_write(fd: RawFd, octets: &[u8]) -> Result<usize> {
    // SAFETY: pointer and length are those of a slice.
    length(unsafe { __write(fd, octets.as_ptr().cast(), octets.len()) })
}

/// `__send`.
pub(crate) fn underscored_send(fd: RawFd, octets: &[u8]) -> Result<usize> {
    // SAFETY: pointer and length are those of a slice.
    length(unsafe { __send(fd, octets.as_ptr().cast(), octets.len(), 0) })
}

/// `__connect`.
pub(crate) fn underscored_connect(fd: RawFd, name: &[u8]) -> Result<()> {
    // SAFETY: pointer and length are those of a slice.
    done(unsafe { __connect(fd, name.as_ptr().cast(), name.len() as socklen_t) })
}

/// `__close`.
pub(crate) fn underscored_close(fd: RawFd) -> Result<()> {
    done(__close(fd))
}

/// `__dup2`.
pub(crate) fn underscored_dup2(from: RawFd, to: RawFd) -> Result<RawFd> {
    checked(__dup2(from, to))
}

/// `__fcntl` with a number.
pub(crate) fn underscored_fcntl(fd: RawFd, command: c_int, argument: libc::c_long) -> Result<c_int> {
    // SAFETY: callers use commands that take a number.
    checked(unsafe { __fcntl(fd, command, argument) })
}

/// `fcntl64` with a number.
pub(crate) fn fcntl_64(fd: RawFd, command: c_int, argument: libc::c_long) -> Result<c_int> {
    // SAFETY: callers use commands that take a number.
    checked(unsafe { fcntl64(fd, command, argument) })
}

/// `sendfile64` from the file's position.
pub(crate) fn sendfile_64(out: RawFd, file: RawFd, count: usize) -> Result<usize> {
    // SAFETY: the offset may be null.
    length(unsafe { sendfile64(out, file, std::ptr::null_mut(), count) })
}

/// Ways to poll that are the same.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PollBy {
    /// `__poll_chk`.
    Chk,
    /// `__ppoll_chk`.
    PpollChk,
    /// `__poll`.
    Underscored,
}

/// The events of one descriptor within `time`.
pub(crate) fn poll_by(by: PollBy, fd: RawFd, events: i16, time: Duration) -> Result<i16> {
    let mut polled = libc::pollfd { fd, events, revents: 0 };
    let room = size_of::<libc::pollfd>();
    let ms = time.as_millis() as c_int;
    let spec = super::event::timespec_of(time);
    // SAFETY: there is one pollfd, exclusively ours; the time is valid and the mask may be null.
    checked(unsafe {
        match by {
            PollBy::Chk => __poll_chk(&mut polled, 1, ms, room),
            PollBy::PpollChk => __ppoll_chk(&mut polled, 1, &spec, std::ptr::null(), room),
            PollBy::Underscored => __poll(&mut polled, 1, ms),
        }
    })?;
    Ok(polled.revents)
}
