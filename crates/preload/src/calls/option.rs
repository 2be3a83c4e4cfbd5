//! getsockopt(2) and setsockopt(2).

use std::ffi::{c_int, c_void};

use crate::asked;
use libc::socklen_t;

use super::map;
use crate::answer::Asked;
use crate::memory::{self, EINVAL};

/// # Safety
/// As getsockopt(2).
pub(crate) unsafe fn getsockopt(
    fd: c_int,
    level: c_int,
    option: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> Asked<c_int> {
    // SAFETY: as the caller says.
    let len = unsafe { memory::at_mut(len)? };
    let room = usize::try_from(*len as c_int).map_err(|_| EINVAL)?;
    // SAFETY: as the caller says.
    let value = unsafe { memory::bytes_mut(value, room)? };
    Ok(map(asked::getsockopt(fd, level, option, value), |written| {
        *len = written as socklen_t;
        0
    }))
}

/// # Safety
/// As setsockopt(2).
pub(crate) unsafe fn setsockopt(
    fd: c_int,
    level: c_int,
    option: c_int,
    value: *const c_void,
    len: socklen_t,
) -> Asked<c_int> {
    let len = usize::try_from(len as c_int).map_err(|_| EINVAL)?;
    // SAFETY: as the caller says.
    let value = unsafe { memory::bytes(value, len)? };
    Ok(map(asked::setsockopt(fd, level, option, value), |()| 0))
}
