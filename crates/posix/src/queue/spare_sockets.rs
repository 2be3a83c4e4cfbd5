//! Sockets of the kernel that are as good as new, for the next connections.
//!
//! The descriptor of a connection from a resting port (`resting_ports.rs`) is that of a kernel socket that nothing was ever done with. To make such a socket, and
//! to close it, takes the kernel longer than all else that it does for a short connection. So it is kept for a moment, and
//! socket(2) returns a copy of its descriptor.
//!
//! A socket has what its thread had when it was made: a user, a network namespace, a cgroup. The user is compared. In other network namespaces there are no spare sockets
//! (`calls::before_other_network`). Of another cgroup a socket learns late by as long as it is kept.

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;

use clock::{Duration, Instant};

use crate::descriptors::fd_table::FdTable;
use crate::descriptors::internal::{self, Hidden};

/// How long one is kept.
const KEPT: Duration = Duration::from_secs(1);
/// So many are kept: they have numbers that other descriptors of our own need as well.
const KEPT_MAX: usize = 32;

/// A socket that is kept.
struct Spare {
    socket: Hidden,
    domain: i32,
    nonblocking: bool,
    /// Whose it is.
    user: u32,
    since: Instant,
}

/// Those of a process.
#[derive(Default)]
pub(crate) struct SpareSockets {
    /// The one that was kept last is at the end.
    kept: VecDeque<Spare>,
    /// Some thread may be in another network namespace.
    is_over: bool,
}

impl SpareSockets {
    /// Keeps the socket behind `fd`, a TCP socket that is as good as new but for `O_NONBLOCK`, if there is room.
    pub(crate) fn keep(
        &mut self,
        table: FdTable,
        fd: RawFd,
        (domain, nonblocking): (i32, bool),
        now: Instant,
    ) {
        if self.is_over || self.kept.len() >= KEPT_MAX {
            return;
        }
        // A number that the program might want is none for it.
        let copy = syscall::dup_owned(fd, internal::floor()).ok();
        let Some((socket, user)) = copy.and_then(with_owner) else { return };
        let socket = Hidden::new(socket, table);
        self.kept.push_back(Spare { socket, domain, nonblocking, user, since: now });
    }

    /// What socket(2) returns: a new descriptor of a kept one, if there is one of this thread's user. `flags` are `SOCK_CLOEXEC` and `SOCK_NONBLOCK`.
    pub(crate) fn take(&mut self, domain: i32, flags: i32, now: Instant) -> Option<RawFd> {
        self.expire(now);
        let at = self.kept.iter().rposition(|spare| spare.domain == domain)?;
        let spare = self.kept.remove(at)?;
        if spare.user != syscall::effective_user() {
            return None;
        }
        let nonblocking = flags & libc::SOCK_NONBLOCK != 0;
        let fd = spare.socket.get().as_raw_fd();
        if nonblocking != spare.nonblocking {
            syscall::fcntl(fd, libc::F_SETFL, if nonblocking { libc::O_NONBLOCK.into() } else { 0 }).ok()?;
        }
        syscall::dup_from(fd, 0, flags & libc::SOCK_CLOEXEC != 0).ok()
    }

    /// Closes those that were not wanted.
    pub(crate) fn expire(&mut self, now: Instant) {
        while self.expiry().is_some_and(|expiry| expiry <= now) {
            self.kept.pop_front();
        }
    }

    /// When [`SpareSockets::expire`] closes one.
    pub(crate) fn expiry(&self) -> Option<Instant> {
        self.kept.front().map(|spare| spare.since + KEPT)
    }

    /// Others will have their descriptors, too.
    pub(crate) fn clear(&mut self) {
        self.kept.clear();
    }

    /// There are none any more.
    pub(crate) fn end(&mut self) {
        self.clear();
        self.is_over = true;
    }
}

/// With the user that a socket belongs to.
fn with_owner(socket: OwnedFd) -> Option<(OwnedFd, u32)> {
    let file = File::from(socket);
    let user = file.metadata().map(|of| of.uid());
    let socket = OwnedFd::from(file);
    match user {
        Ok(user) => Some((socket, user)),
        Err(_) => {
            internal::close(socket);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    fn socket(domain: i32) -> OwnedFd {
        syscall::socket(domain, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0).unwrap()
    }

    fn inode(fd: RawFd) -> std::path::PathBuf {
        std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap()
    }

    fn keep(spare: &mut SpareSockets, socket: &OwnedFd, domain: i32, millis: u64) {
        spare.keep(FdTable::leaked(), socket.as_raw_fd(), (domain, true), at(millis));
    }

    #[test]
    fn the_next_socket_of_its_family_is_the_same_one_with_the_flags_that_are_wanted() {
        let mut spare = SpareSockets::default();
        let (of_inet, of_inet6) = (socket(libc::AF_INET), socket(libc::AF_INET6));
        keep(&mut spare, &of_inet, libc::AF_INET, 0);
        keep(&mut spare, &of_inet6, libc::AF_INET6, 0);
        let taken = spare.take(libc::AF_INET, libc::SOCK_CLOEXEC, at(1)).unwrap();
        assert_eq!(inode(taken), inode(of_inet.as_raw_fd()));
        assert_eq!(syscall::fcntl(taken, libc::F_GETFL, 0).unwrap() & libc::O_NONBLOCK, 0);
        assert_eq!(syscall::fcntl(taken, libc::F_GETFD, 0).unwrap(), libc::FD_CLOEXEC);
        assert_eq!(spare.take(libc::AF_INET, 0, at(1)), None, "it was the only one");
        let taken = spare.take(libc::AF_INET6, libc::SOCK_NONBLOCK, at(1)).unwrap();
        assert_ne!(syscall::fcntl(taken, libc::F_GETFL, 0).unwrap() & libc::O_NONBLOCK, 0);
        assert_eq!(syscall::fcntl(taken, libc::F_GETFD, 0).unwrap(), 0);
    }

    #[test]
    fn what_is_not_wanted_within_a_second_is_closed() {
        let mut spare = SpareSockets::default();
        let old = socket(libc::AF_INET);
        keep(&mut spare, &old, libc::AF_INET, 0);
        assert_eq!(spare.expiry(), Some(at(1000)));
        assert_eq!(spare.take(libc::AF_INET, 0, at(1000)), None);
        assert_eq!(spare.expiry(), None);
    }

    #[test]
    fn there_are_few_and_none_once_they_are_over() {
        let mut spare = SpareSockets::default();
        let one = socket(libc::AF_INET);
        for _ in 0..2 * KEPT_MAX {
            keep(&mut spare, &one, libc::AF_INET, 0);
        }
        assert_eq!(spare.kept.len(), KEPT_MAX);
        spare.end();
        keep(&mut spare, &one, libc::AF_INET, 0);
        assert_eq!(spare.take(libc::AF_INET, 0, at(0)), None);
    }

    #[test]
    fn another_users_is_not_taken() {
        let mut spare = SpareSockets::default();
        keep(&mut spare, &socket(libc::AF_INET), libc::AF_INET, 0);
        spare.kept[0].user = u32::MAX;
        assert_eq!(spare.take(libc::AF_INET, 0, at(0)), None);
    }
}
