//! dup(2) and its variants.

use std::os::fd::RawFd;

use clock::Instant;

use crate::descriptors::fd_table::Entry;
use crate::descriptors::internal;
use crate::errno::{Errno, fail};
use crate::process::{Process, State};
use crate::request::Verdict;

impl Process {
    /// dup(2), dup2(2) and dup3(2).
    pub(crate) fn dup(&self, from: RawFd, to: Option<RawFd>, flags: i32) -> Verdict<RawFd> {
        if self.table.get(from) == Entry::Internal {
            return Verdict::Done(fail(libc::EBADF));
        }
        let to_is_internal = to.is_some_and(|to| self.table.get(to) == Entry::Internal);
        let from_is_ours = self.table.is_ours(from);
        if !from_is_ours && !to.is_some_and(|to| self.table.is_ours(to)) {
            return Verdict::Kernel;
        }
        let mut state = self.lock();
        let now = self.now();
        let result = match to {
            None => syscall::dup(from),
            Some(to) if to == from => return Verdict::Kernel,
            // Never happens to a program that asks for numbers which it was given.
            Some(_) if to_is_internal => return Verdict::Done(fail(libc::EBADF)),
            Some(to) => state.replace_descriptor(from, to, flags, now),
        };
        state.hear_if_due(now);
        state.queue.leave(now);
        Verdict::Done(state.enter_copy(from, result.map_err(Errno::from)))
    }

    /// `F_DUPFD` and `F_DUPFD_CLOEXEC` of fcntl(2).
    pub(crate) fn dup_from(&self, from: RawFd, least: i64, close_on_exec: bool) -> Verdict<i32> {
        let Ok(least) = i32::try_from(least) else { return Verdict::Kernel };
        let mut state = self.lock();
        let result = syscall::dup_from(from, least, close_on_exec).map_err(Errno::from);
        Verdict::Done(state.enter_copy(from, result))
    }
}

impl State {
    /// `to` becomes a copy of `from`. What it was is closed, and lives on for calls that use it.
    fn replace_descriptor(
        &mut self,
        from: RawFd,
        to: RawFd,
        flags: i32,
        now: Instant,
    ) -> std::io::Result<RawFd> {
        let kept = self.prepare_close(to, now);
        match syscall::dup3(from, to, flags) {
            Ok(copy) => {
                self.close_with_copy(to, kept, now);
                Ok(copy)
            }
            Err(error) => {
                kept.into_iter().for_each(internal::close);
                Err(error)
            }
        }
    }

    /// The kernel made a copy of `from`: it stands for the same.
    fn enter_copy(&mut self, from: RawFd, copy: Result<RawFd, Errno>) -> Result<RawFd, Errno> {
        let copy = copy?;
        self.forget_stale(copy);
        let entry = self.table.get(from);
        if !self.table.set(copy, entry) {
            return Ok(copy);
        }
        if let Some(socket) = self.socket_of(from).and_then(|id| self.sockets.get_mut(id)) {
            socket.add_fd(copy);
            socket.may_survive_exec = true;
        } else if let Some(epoll) = self.epoll_of(from).and_then(|id| self.epolls.get_mut(id)) {
            epoll.add_fd(copy);
            if epoll.is_busy {
                self.table.set_busy(copy);
            }
        }
        Ok(copy)
    }
}
