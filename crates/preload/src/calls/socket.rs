//! accept(2), connect(2), and the addresses of connections.

use std::ffi::c_int;

use crate::asked::{self, Verdict};
use libc::{sockaddr, socklen_t};
use posix::Errno;

use super::map;
use crate::answer::Asked;
use crate::hooks::next;
use crate::memory::{self, NameRoom};

pub(crate) fn socket(domain: c_int, kind: c_int, protocol: c_int) -> Asked<c_int> {
    Ok(asked::socket(domain, kind, protocol))
}

/// # Safety
/// As accept4(2).
pub(crate) unsafe fn accept(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> Asked<c_int> {
    // SAFETY: as the caller says.
    let mut room = match unsafe { NameRoom::optional(address, len) } {
        Ok(room) => room,
        Err(refusal) => return Ok(accept_in_vain(fd, flags, refusal)),
    };
    let accepted = asked::accept(fd, room.octets.as_deref_mut(), flags);
    Ok(map(accepted, |(accepted, name_len)| {
        room.set_len(name_len);
        accepted
    }))
}

/// The kernel finds that a name has no room when it has the connection, which is lost then.
fn accept_in_vain(fd: c_int, flags: c_int, refusal: Errno) -> Verdict<c_int> {
    let accepted = match asked::accept(fd, None, flags) {
        Verdict::Kernel => return Verdict::Kernel,
        Verdict::Done(accepted) => accepted,
    };
    Verdict::Done(accepted.and_then(|(accepted, _)| {
        if let Verdict::Kernel = asked::close(accepted) {
            // SAFETY: the number is new, and the program does not know it yet.
            unsafe { next::close(accepted) };
        }
        Err(refusal)
    }))
}

/// # Safety
/// As bind(2).
pub(crate) unsafe fn may_bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> Asked<c_int> {
    // SAFETY: as the caller says.
    let name = unsafe { memory::name(address, len)? };
    Ok(map(asked::may_bind(fd, name), |()| 0))
}

pub(crate) fn may_listen(fd: c_int) -> Asked<c_int> {
    Ok(map(asked::may_bind(fd, &[]), |()| 0))
}

/// # Safety
/// As connect(2).
pub(crate) unsafe fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> Asked<c_int> {
    // SAFETY: as the caller says.
    let name = unsafe { memory::name(address, len)? };
    Ok(map(asked::connect(fd, name), |()| 0))
}

/// # Safety
/// As getsockname(2).
pub(crate) unsafe fn getsockname(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> Asked<c_int> {
    // SAFETY: as the caller says.
    unsafe { own_name(address, len, |name| asked::getsockname(fd, name)) }
}

/// # Safety
/// As getpeername(2).
pub(crate) unsafe fn getpeername(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> Asked<c_int> {
    // SAFETY: as the caller says.
    unsafe { own_name(address, len, |name| asked::getpeername(fd, name)) }
}

/// # Safety
/// As getsockname(2).
unsafe fn own_name(
    address: *mut sockaddr,
    len: *mut socklen_t,
    ask: impl FnOnce(&mut [u8]) -> Verdict<usize>,
) -> Asked<c_int> {
    // SAFETY: as the caller says.
    let mut room = unsafe { NameRoom::needed(address, len)? };
    let named = ask(room.octets.as_deref_mut().unwrap_or_default());
    Ok(map(named, |name_len| {
        room.set_len(name_len);
        0
    }))
}

pub(crate) fn shutdown(fd: c_int, how: c_int) -> Asked<c_int> {
    Ok(map(asked::shutdown(fd, how), |()| 0))
}
