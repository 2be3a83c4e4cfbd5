//! What the kernel has of a one-shot item. Only the kernel knows which of several descriptors with the same data it has reported, and whether
//! one was modified since.

use std::os::fd::RawFd;

use crate::epoll::instance::PRIVATE;

/// Which of the kernel's items are silent until they are modified.
pub(crate) struct Silent(Vec<(RawFd, u64)>);

impl Silent {
    /// The silent items of the instance `epfd`, as far as the kernel says: there may be no /proc.
    pub(crate) fn of(epfd: RawFd) -> Option<Silent> {
        Some(Silent::read(&std::fs::read_to_string(format!("/proc/thread-self/fdinfo/{epfd}")).ok()?))
    }

    /// Reads the lines of proc_pid_fdinfo(5): `tfd: 5 events: 40000000 data: 2a pos:0 ino:1 sdev:1`, the numbers behind `tfd` in hexadecimal.
    /// Of a one-shot item that was reported, no event is left.
    fn read(fdinfo: &str) -> Silent {
        let item = |line: &str| {
            let mut words = line.strip_prefix("tfd:")?.split_whitespace();
            let fd = words.next()?.parse().ok()?;
            let mut named = |name| words.next().filter(|word| *word == name).and_then(|_| words.next());
            let events = u32::from_str_radix(named("events:")?, 16).ok()?;
            let data = u64::from_str_radix(named("data:")?, 16).ok()?;
            (events & !PRIVATE == 0).then_some((fd, data))
        };
        Silent(fdinfo.lines().filter_map(item).collect())
    }

    /// Whether the item of this descriptor is silent.
    pub(crate) fn has(&self, fd: RawFd, data: u64) -> bool {
        self.0.contains(&(fd, data))
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn what_was_reported_once_is_silent() {
        let text = "pos:\t0\nflags:\t02000002\n\
            tfd:        5 events: 40000000 data:               2a  pos:0 ino:1 sdev:1\n\
            tfd:        6 events: 4000001d data:               2a  pos:0 ino:1 sdev:1\n\
            tfd: x events:\ntfd:\n";
        let silent = Silent::read(text);
        assert!(silent.has(5, 42) && !silent.has(6, 42) && !silent.has(5, 41));
    }

    #[test]
    fn the_kernel_says_it_so() {
        let epfd = syscall::epoll_create(libc::EPOLL_CLOEXEC).unwrap();
        let fds = [(); 2].map(|()| syscall::eventfd().unwrap());
        for (data, fd) in fds.iter().enumerate() {
            let events = (libc::EPOLLIN | libc::EPOLLONESHOT) as u32;
            let event = syscall::EpollEvent { events, u64: u64::MAX - data as u64 };
            syscall::epoll_ctl(epfd, libc::EPOLL_CTL_ADD, fd.as_raw_fd(), Some(event)).unwrap();
        }
        syscall::write(fds[0].as_raw_fd(), &1u64.to_ne_bytes()).unwrap();
        let mut events = [syscall::EpollEvent { events: 0, u64: 0 }; 2];
        assert_eq!(syscall::epoll_wait(epfd, &mut events, 0).unwrap(), 1);
        let silent = Silent::of(epfd).unwrap();
        assert!(silent.has(fds[0].as_raw_fd(), u64::MAX));
        assert!(!silent.has(fds[1].as_raw_fd(), u64::MAX - 1));
        syscall::close(epfd).unwrap();
    }
}
