//! The C library's functions, each with safe arguments and a result. All `unsafe` of the table is here.
//!
//! They must be the C library's and not system calls: what is looked at is what a program meets that calls them.

mod aio;
mod aliases;
mod descriptor;
mod errno;
mod event;
mod message;
mod nowhere;
mod past;
mod process;
mod signal;
mod socket;
mod transfer;

pub(crate) use aio::*;
pub(crate) use aliases::*;
pub(crate) use descriptor::*;
pub(crate) use errno::{Errno, Result};
pub(crate) use event::*;
pub(crate) use message::*;
pub(crate) use nowhere::*;
pub(crate) use past::*;
pub(crate) use process::*;
pub(crate) use signal::*;
pub(crate) use socket::*;
pub(crate) use transfer::*;

use libc::{c_int, c_long};

/// -1 is an error, everything else the result.
fn checked(result: c_int) -> Result<c_int> {
    if result == -1 { Err(Errno::last()) } else { Ok(result) }
}

/// As [`checked`], where there is no result but success.
fn done(result: c_int) -> Result<()> {
    checked(result).map(drop)
}

/// As [`checked`], for lengths.
fn length(result: isize) -> Result<usize> {
    usize::try_from(result).map_err(|_| Errno::last())
}

/// As [`checked`], for syscall(2).
fn checked_long(result: c_long) -> Result<c_long> {
    if result == -1 { Err(Errno::last()) } else { Ok(result) }
}
