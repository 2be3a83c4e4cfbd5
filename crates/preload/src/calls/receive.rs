//! read(2), recv(2) and all between them, through `calls::receive`.

use std::ffi::{c_int, c_uint, c_void};
use std::io::IoSliceMut;
use std::time::{Duration, Instant};

use crate::asked::{self, Receive, Received, Verdict};
use libc::{iovec, mmsghdr, msghdr, off64_t, size_t, sockaddr, socklen_t, ssize_t, timespec};
use posix::Errno;

use super::map;
use crate::answer::Asked;
use crate::memory::{self, EINVAL, NameRoom, UIO_MAXIOV};

/// preadv2(2): where a socket can be read.
pub(crate) const OWN_POSITION: off64_t = -1;

/// # Safety
/// As read(2).
pub(crate) unsafe fn read(fd: c_int, buffer: *mut c_void, count: size_t) -> Asked<ssize_t> {
    if count == 0 {
        return Ok(Verdict::Done(Ok(0))); // sockets read nothing without looking (sock_read_iter), unlike recv(2)
    }
    // SAFETY: as the caller says.
    unsafe { recv(fd, buffer, count, 0) }
}

/// # Safety
/// As recv(2).
pub(crate) unsafe fn recv(fd: c_int, buffer: *mut c_void, count: size_t, flags: c_int) -> Asked<ssize_t> {
    if buffer.is_null() && discards(fd, flags) {
        return Ok(discard(fd, count, flags));
    }
    // SAFETY: as the caller says.
    let octets = unsafe { memory::bytes_mut(buffer, count)? };
    let buffers = &mut [IoSliceMut::new(octets)];
    let received = asked::receive(fd, &mut Receive { buffers, name: None, control: None, flags });
    Ok(map(received, octets_received))
}

/// Whether octets that are received go nowhere: `MSG_TRUNC` on a stream, which asks for no memory then (tcp(7)).
fn discards(fd: c_int, flags: c_int) -> bool {
    let mut kind = [0; 4];
    flags & (libc::MSG_TRUNC | libc::MSG_PEEK) == libc::MSG_TRUNC
        && matches!(asked::getsockopt(fd, libc::SOL_SOCKET, libc::SO_TYPE, &mut kind), Verdict::Done(Ok(4)))
        && c_int::from_ne_bytes(kind) == libc::SOCK_STREAM
}

/// Receives `count` octets and discards them, piece by piece. Waits only for the first piece, unless all are wanted.
fn discard(fd: c_int, count: size_t, flags: c_int) -> Verdict<ssize_t> {
    const PIECE: usize = 4096;
    let mut nowhere = [0; PIECE];
    let mut done = 0;
    loop {
        let piece = PIECE.min(count - done);
        let is_first = done == 0;
        let patience = if is_first || flags & libc::MSG_WAITALL != 0 { 0 } else { libc::MSG_DONTWAIT };
        let buffers = &mut [IoSliceMut::new(&mut nowhere[..piece])];
        let request = &mut Receive { buffers, name: None, control: None, flags: flags | patience };
        match asked::receive(fd, request) {
            Verdict::Done(Ok(received)) => {
                done += received.len;
                if received.len < piece || done == count {
                    return Verdict::Done(Ok(done as ssize_t));
                }
            }
            other if is_first => return map(other, octets_received),
            _ => return Verdict::Done(Ok(done as ssize_t)),
        }
    }
}

/// # Safety
/// As recvfrom(2).
pub(crate) unsafe fn recvfrom(
    fd: c_int,
    buffer: *mut c_void,
    count: size_t,
    flags: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> Asked<ssize_t> {
    if buffer.is_null() && address.is_null() && discards(fd, flags) {
        return Ok(discard(fd, count, flags));
    }
    // SAFETY: as the caller says.
    let (octets, mut room) =
        unsafe { (memory::bytes_mut(buffer, count)?, NameRoom::optional(address, len)?) };
    let buffers = &mut [IoSliceMut::new(octets)];
    let name = room.octets.as_deref_mut();
    let received = asked::receive(fd, &mut Receive { buffers, name, control: None, flags });
    Ok(map(received, |received| {
        room.set_len(received.name_len);
        octets_received(received)
    }))
}

/// # Safety
/// As preadv2(2) at [`OWN_POSITION`]. Of its `RWF_` flags only `RWF_NOWAIT` has a meaning for a socket.
pub(crate) unsafe fn readv(fd: c_int, vectors: *const iovec, count: c_int, flags: c_int) -> Asked<ssize_t> {
    let flags = if flags & libc::RWF_NOWAIT != 0 { libc::MSG_DONTWAIT } else { 0 };
    let count = usize::try_from(count).map_err(|_| EINVAL)?;
    let ask = |buffers: &mut [IoSliceMut<'_>]| {
        if buffers.iter().all(|buffer| buffer.is_empty()) {
            return Ok(Verdict::Done(Ok(0)));
        }
        let received = asked::receive(fd, &mut Receive { buffers, name: None, control: None, flags });
        Ok(map(received, octets_received))
    };
    // SAFETY: as the caller says.
    unsafe { memory::with_buffers_mut(vectors, count, EINVAL, ask) }
}

/// # Safety
/// As recvmsg(2).
pub(crate) unsafe fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> Asked<ssize_t> {
    // SAFETY: as the caller says.
    let message = unsafe { memory::at_mut(message)? };
    // SAFETY: as the caller says.
    let received = unsafe { receive_message(fd, message, flags)? };
    Ok(map(received, octets_received))
}

/// # Safety
/// As recvmsg(2).
unsafe fn receive_message(fd: c_int, message: &mut msghdr, flags: c_int) -> Asked<Received> {
    let room = usize::try_from(message.msg_namelen as c_int).map_err(|_| EINVAL)?;
    let has_name = !message.msg_name.is_null();
    let room = if has_name { room } else { 0 };
    // SAFETY: as the caller says.
    let name = unsafe { memory::bytes_mut(message.msg_name, room)? };
    let has_control = !message.msg_control.is_null();
    let control_room = if has_control { message.msg_controllen } else { 0 };
    // SAFETY: as the caller says.
    let control = unsafe { memory::bytes_mut(message.msg_control, control_room)? };
    let ask = |buffers: &mut [IoSliceMut<'_>]| {
        let (name, control) = (has_name.then_some(name), has_control.then_some(control));
        Ok(asked::receive(fd, &mut Receive { buffers, name, control, flags }))
    };
    let too_many = Errno(libc::EMSGSIZE);
    // SAFETY: as the caller says.
    let received = unsafe { memory::with_buffers_mut(message.msg_iov, message.msg_iovlen, too_many, ask)? };
    if let Verdict::Done(Ok(received)) = &received {
        if has_name {
            message.msg_namelen = received.name_len as socklen_t;
        }
        message.msg_controllen = received.control_len;
        message.msg_flags = received.flags;
    }
    Ok(received)
}

/// # Safety
/// As recvmmsg(2).
pub(crate) unsafe fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> Asked<c_int> {
    // SAFETY: as the caller says.
    let deadline = unsafe { memory::timeout(timeout)? }.map(|span| (Instant::now(), span));
    // SAFETY: as the caller says.
    let messages = unsafe { memory::array_mut(messages, (count as usize).min(UIO_MAXIOV))? };
    // SAFETY: as the caller says.
    let received = unsafe { receive_messages(fd, messages, flags, deadline)? };
    if let (Some((start, span)), Verdict::Done(Ok(1..))) = (deadline, &received) {
        let left = span.saturating_sub(start.elapsed());
        let left = timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos().into() };
        // SAFETY: there is a deadline, so the pointer is not null; the kernel writes it too.
        unsafe { *timeout = left };
    }
    Ok(received)
}

/// As many messages as come until the deadline, which is looked at after each message only, as Linux does (recvmmsg(2), BUGS).
///
/// # Safety
/// As recvmmsg(2).
unsafe fn receive_messages(
    fd: c_int,
    messages: &mut [mmsghdr],
    mut flags: c_int,
    deadline: Option<(Instant, Duration)>,
) -> Asked<c_int> {
    let wait_for_one = flags & libc::MSG_WAITFORONE != 0;
    flags &= !libc::MSG_WAITFORONE;
    for (index, message) in messages.iter_mut().enumerate() {
        // SAFETY: as the caller says.
        let received = match unsafe { receive_message(fd, &mut message.msg_hdr, flags) } {
            Ok(Verdict::Done(Ok(received))) => received,
            _ if index > 0 => return Ok(Verdict::Done(Ok(index as c_int))),
            other => return Ok(map(other?, |_| 0)),
        };
        message.msg_len = received.len as c_uint;
        if wait_for_one {
            flags |= libc::MSG_DONTWAIT;
        }
        let late = deadline.is_some_and(|(start, span)| start.elapsed() >= span);
        if late || received.flags & libc::MSG_OOB != 0 {
            return Ok(Verdict::Done(Ok(index as c_int + 1)));
        }
    }
    Ok(Verdict::Done(Ok(messages.len() as c_int)))
}

fn octets_received(received: Received) -> ssize_t {
    received.len as ssize_t
}
