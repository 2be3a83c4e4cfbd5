//! One-shot items that were reported by us, and are silent until the program arms them again. The kernel's instance does not have them
//! meanwhile: whatever is added or modified there reports EPOLLERR and EPOLLHUP at least (`do_epoll_ctl`), and only what the kernel has
//! reported itself is silent.

use std::collections::BTreeMap;
use std::os::fd::RawFd;

/// The sockets that an instance keeps silent so, each with its cookie: it tells whether the number still is that socket's, also of a
/// connection that has become the kernel's, of whose end we do not hear.
#[derive(Default)]
pub(crate) struct Absent(BTreeMap<RawFd, u64>);

impl Absent {
    /// The socket of this descriptor is absent from now on. False of what is no socket.
    pub(crate) fn note(&mut self, fd: RawFd) -> bool {
        cookie(fd).is_some_and(|cookie| {
            self.0.insert(fd, cookie);
            true
        })
    }

    /// Whether the socket of this descriptor is.
    pub(crate) fn has(&self, fd: RawFd) -> bool {
        self.0.get(&fd).is_some_and(|noted| cookie(fd) == Some(*noted))
    }

    /// It is not, or there is no such item any more.
    pub(crate) fn forget(&mut self, fd: RawFd) {
        self.0.remove(&fd);
    }
}

/// What the kernel tells a socket apart from all others by.
pub(crate) fn cookie(fd: RawFd) -> Option<u64> {
    let mut cookie = [0; 8];
    syscall::getsockopt(fd, libc::SOL_SOCKET, libc::SO_COOKIE, &mut cookie).ok()?;
    Some(u64::from_ne_bytes(cookie))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn another_socket_with_the_number_is_not_meant() {
        let [one, other] = syscall::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0).unwrap();
        let fd = one.as_raw_fd();
        let mut absent = Absent::default();
        assert!(!absent.has(fd));
        assert!(absent.note(fd));
        assert!(absent.has(fd) && !absent.has(other.as_raw_fd()));
        syscall::dup3(other.as_raw_fd(), fd, 0).unwrap();
        assert!(!absent.has(fd));
        assert!(absent.note(fd));
        absent.forget(fd);
        assert!(!absent.has(fd));
    }

    #[test]
    fn what_is_no_socket_is_not_noted() {
        let event = syscall::eventfd().unwrap();
        let mut absent = Absent::default();
        assert!(!absent.note(event.as_raw_fd()) && !absent.has(event.as_raw_fd()));
    }
}
