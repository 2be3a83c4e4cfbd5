//! write(2), send(2), sendfile(2) and all between them.

use std::ffi::{c_int, c_uint, c_void};
use std::io::IoSlice;

use crate::asked::{self, Send, Verdict};
use libc::{iovec, mmsghdr, msghdr, off64_t, size_t, sockaddr, socklen_t, ssize_t};
use posix::Errno;

use super::{map, rights};
use crate::answer::{Asked, ours};
use crate::memory::{self, EINVAL, UIO_MAXIOV};

/// # Safety
/// As send(2); write(2) is that without flags.
pub(crate) unsafe fn send(fd: c_int, buffer: *const c_void, count: size_t, flags: c_int) -> Asked<ssize_t> {
    // SAFETY: as the caller says.
    let octets = unsafe { memory::bytes(buffer, count)? };
    let buffers = &[IoSlice::new(octets)];
    Ok(map(send_message(fd, &Send { buffers, name: None, control: None, flags }), octets_sent))
}

/// # Safety
/// As sendto(2).
pub(crate) unsafe fn sendto(
    fd: c_int,
    buffer: *const c_void,
    count: size_t,
    flags: c_int,
    address: *const sockaddr,
    len: socklen_t,
) -> Asked<ssize_t> {
    // SAFETY: as the caller says.
    let octets = unsafe { memory::bytes(buffer, count)? };
    let name = match address.is_null() {
        true => None,
        // SAFETY: as the caller says.
        false => Some(unsafe { memory::name(address, len)? }),
    };
    let buffers = &[IoSlice::new(octets)];
    Ok(map(send_message(fd, &Send { buffers, name, control: None, flags }), octets_sent))
}

/// # Safety
/// As pwritev2(2) at the own position. Of its `RWF_` flags only `RWF_NOWAIT` has a meaning for a socket.
pub(crate) unsafe fn writev(fd: c_int, vectors: *const iovec, count: c_int, flags: c_int) -> Asked<ssize_t> {
    let flags = if flags & libc::RWF_NOWAIT != 0 { libc::MSG_DONTWAIT } else { 0 };
    let count = usize::try_from(count).map_err(|_| EINVAL)?;
    let ask = |buffers: &[IoSlice<'_>]| {
        Ok(map(send_message(fd, &Send { buffers, name: None, control: None, flags }), octets_sent))
    };
    // SAFETY: as the caller says.
    unsafe { memory::with_buffers(vectors, count, EINVAL, ask) }
}

/// # Safety
/// As sendmsg(2).
pub(crate) unsafe fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> Asked<ssize_t> {
    // SAFETY: as the caller says.
    let message = unsafe { memory::at(message)? };
    if !ours(fd) {
        // SAFETY: as the caller says.
        unsafe { rights::move_passed(message) };
        return Ok(Verdict::Kernel);
    }
    // SAFETY: as the caller says.
    Ok(map(unsafe { send_header(message, flags, |request| send_message(fd, request))? }, octets_sent))
}

/// # Safety
/// As sendmmsg(2).
pub(crate) unsafe fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> Asked<c_int> {
    // SAFETY: as the caller says.
    let messages = unsafe { memory::array_mut(messages, (count as usize).min(UIO_MAXIOV))? };
    if !ours(fd) {
        // SAFETY: as the caller says.
        messages.iter().for_each(|message| unsafe { rights::move_passed(&message.msg_hdr) });
        return Ok(Verdict::Kernel);
    }
    let mut together = asked::datagrams(fd);
    for (index, message) in messages.iter_mut().enumerate() {
        let mut wanted = 0;
        let send = |request: &Send<'_, '_>| {
            wanted = request.buffers.iter().fold(0, |sum: usize, buffer| sum.saturating_add(buffer.len()));
            match &mut together {
                Some(datagrams) => datagrams.send(request),
                None => send_message(fd, request),
            }
        };
        // SAFETY: as the caller says.
        match unsafe { send_header(&message.msg_hdr, flags, send) } {
            Ok(Verdict::Done(Ok(sent))) => {
                message.msg_len = sent as c_uint;
                if sent < wanted {
                    return Ok(Verdict::Done(Ok(index as c_int + 1))); // What follows would leave a gap.
                }
            }
            _ if index > 0 => return Ok(Verdict::Done(Ok(index as c_int))),
            other => return Ok(map(other?, |_| 0)),
        }
    }
    Ok(Verdict::Done(Ok(messages.len() as c_int)))
}

/// # Safety
/// As sendmsg(2).
unsafe fn send_header(
    message: &msghdr,
    flags: c_int,
    send: impl FnOnce(&Send<'_, '_>) -> Verdict<usize>,
) -> Asked<usize> {
    let name = match message.msg_name.is_null() {
        true => None,
        // SAFETY: as the caller says.
        false => Some(unsafe { memory::name(message.msg_name.cast(), message.msg_namelen)? }),
    };
    // SAFETY: as the caller says.
    let control = unsafe { memory::bytes(message.msg_control, message.msg_controllen)? };
    let control = (!control.is_empty()).then_some(control);
    let ask = |buffers: &[IoSlice<'_>]| Ok(send(&Send { buffers, name, control, flags }));
    // SAFETY: as the caller says.
    unsafe { memory::with_buffers(message.msg_iov, message.msg_iovlen, Errno(libc::EMSGSIZE), ask) }
}

/// # Safety
/// As sendfile(2).
pub(crate) unsafe fn sendfile(
    out: c_int,
    file: c_int,
    offset: *mut off64_t,
    count: size_t,
) -> Asked<ssize_t> {
    // SAFETY: as the caller says.
    let offset = if offset.is_null() { None } else { Some(unsafe { memory::at_mut(offset)? }) };
    Ok(map(with_signal(out, 0, asked::sendfile(out, file, offset, count)), octets_sent))
}

/// # Safety
/// As splice(2).
pub(crate) unsafe fn splice(
    from: c_int,
    from_offset: *mut off64_t,
    to: c_int,
    to_offset: *mut off64_t,
    count: size_t,
    flags: c_uint,
) -> Asked<ssize_t> {
    if !from_offset.is_null() || !to_offset.is_null() {
        return Ok(Verdict::Kernel); // sockets and pipes have no position: the kernel knows which error that is
    }
    Ok(map(with_signal(to, 0, asked::splice(from, to, count, flags)), octets_sent))
}

fn send_message(fd: c_int, request: &Send<'_, '_>) -> Verdict<usize> {
    with_signal(fd, request.flags, asked::send(fd, request))
}

/// Raises `SIGPIPE` where the kernel does: for streams, unless told not to. The program's handler runs when our code is left.
fn with_signal(fd: c_int, flags: c_int, sent: Verdict<usize>) -> Verdict<usize> {
    let broken = matches!(sent, Verdict::Done(Err(Errno(libc::EPIPE))));
    if broken && flags & libc::MSG_NOSIGNAL == 0 && is_stream(fd) {
        // SAFETY: no memory is involved.
        unsafe { libc::raise(libc::SIGPIPE) };
    }
    sent
}

fn is_stream(fd: c_int) -> bool {
    let mut kind = [0; 4];
    match asked::getsockopt(fd, libc::SOL_SOCKET, libc::SO_TYPE, &mut kind) {
        Verdict::Done(Ok(_)) => c_int::from_ne_bytes(kind) == libc::SOCK_STREAM,
        _ => true,
    }
}

fn octets_sent(sent: usize) -> ssize_t {
    sent as ssize_t
}
