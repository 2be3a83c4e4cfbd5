//! Status flags and the owner of signals, as fcntl(2) sets them.

use std::os::fd::RawFd;

use crate::errno::{Errno, fail};
use crate::socket::entry::Socket;

/// Status flags beside `O_NONBLOCK` that a socket has.
const KEPT_FLAGS: i32 = libc::O_APPEND | libc::O_ASYNC;

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

    /// `F_SETOWN`.
    pub(crate) fn set_owner(&mut self, process: i64) -> Result<i32, Errno> {
        let process = i32::try_from(process).map_err(|_| Errno(libc::EINVAL))?;
        let nobody = Some(libc::ESRCH);
        if process != 0 && syscall::kill(process, 0).is_err_and(|error| error.raw_os_error() == nobody) {
            return fail(libc::ESRCH);
        }
        self.rare().owner.process = process;
        Ok(0)
    }

    /// `F_GETOWN`.
    pub(crate) fn owner(&self) -> i32 {
        self.rare.as_ref().map_or(0, |rare| rare.owner.process)
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
    }
}
