//! Connections come about: accept(2), connect(2), and the names of their ends.

use std::ffi::c_int;

use crate::asked::{self, Verdict};
use libc::{sockaddr, socklen_t};

use super::map;
use crate::answer::Asked;
use crate::memory::{self, NameRoom};

/// # Safety
/// As accept4(2).
pub(crate) unsafe fn accept(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> Asked<c_int> {
    // SAFETY: as the caller says.
    let mut room = unsafe { NameRoom::optional(address, len)? };
    let accepted = asked::accept(fd, room.octets.as_deref_mut(), flags);
    Ok(map(accepted, |(accepted, name_len)| {
        room.set_len(name_len);
        accepted
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
