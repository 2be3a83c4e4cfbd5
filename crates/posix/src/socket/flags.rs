//! Status flags and the owner of signals, as fcntl(2) sets them.

use std::os::fd::RawFd;

use crate::errno::{Errno, fail};
use crate::socket::entry::Socket;

/// Status flags beside `O_NONBLOCK` that a socket has.
const KEPT_FLAGS: i32 = libc::O_APPEND | libc::O_ASYNC;
/// The highest number of a signal.
const SIGNAL_MAX: i32 = 64;

impl Socket {
    /// Status flags as they were set; what is not among them is forgotten.
    pub(crate) fn keep_status(&mut self, flags: i32) {
        if flags & KEPT_FLAGS != 0 || self.rare.is_some() {
            self.rare().owner.status = flags & KEPT_FLAGS;
        }
    }

    /// Status flags that were set.
    pub(crate) fn status(&self) -> i32 {
        self.rare.as_ref().map_or(0, |rare| rare.owner.status)
    }

    /// `F_SETOWN` and `F_SETSIG`.
    pub(crate) fn set_owner(&mut self, command: i32, argument: i64) -> Result<i32, Errno> {
        let argument = i32::try_from(argument).map_err(|_| Errno(libc::EINVAL))?;
        if command == F_SETSIG {
            if !(0..=SIGNAL_MAX).contains(&argument) {
                return fail(libc::EINVAL);
            }
            self.rare().owner.signal = argument;
            return Ok(0);
        }
        let nobody = Some(libc::ESRCH);
        if argument != 0 && syscall::kill(argument, 0).is_err_and(|error| error.raw_os_error() == nobody) {
            return fail(libc::ESRCH);
        }
        self.rare().owner.process = argument;
        Ok(0)
    }

    /// `F_GETOWN` and `F_GETSIG`.
    pub(crate) fn owner(&self, command: i32) -> i32 {
        let owner = self.rare.as_ref().map(|rare| &rare.owner);
        owner.map_or(0, |owner| if command == F_GETSIG { owner.signal } else { owner.process })
    }
}

impl Socket {
    /// The same owner for the kernel's socket that takes the place of this one.
    pub(crate) fn set_owner_at_kernel(&self, fd: RawFd) {
        let Some(rare) = &self.rare else { return };
        // An own descriptor; an owner that has ended is none.
        if rare.owner.process != 0 {
            let _ = syscall::fcntl(fd, libc::F_SETOWN, rare.owner.process.into());
        }
        if rare.owner.signal != 0 {
            let _ = syscall::fcntl(fd, F_SETSIG, rare.owner.signal.into());
        }
    }
}

pub(crate) const F_SETSIG: i32 = 10;
pub(crate) const F_GETSIG: i32 = 11;
