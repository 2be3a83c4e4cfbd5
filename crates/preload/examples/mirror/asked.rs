//! `posix::calls`, as the kernel answers.

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(crate) use posix::calls::{EpollEvent, PollFd, Receive, Received, Send, SignalMask, Verdict};
use posix::{Errno, inside};

/// What is known of a descriptor without a system call: whether it is an epoll's.
static EPOLLS: [AtomicBool; 4096] = [const { AtomicBool::new(false) }; 4096];

pub(crate) fn start(_broker: &str) -> bool {
    true
}

/// Whether the program has chosen its system calls: then nothing is asked any more.
static CONFINED: AtomicBool = AtomicBool::new(false);

pub(crate) fn is_ours(fd: RawFd) -> bool {
    !CONFINED.load(Ordering::Relaxed) && (is_epoll(fd) || is_socket(fd))
}

pub(crate) fn before_unshare() {}

pub(crate) fn before_other_network() {}

pub(crate) fn before_main_thread_ends() {}

pub(crate) fn before_confinement() -> bool {
    CONFINED.store(true, Ordering::Relaxed);
    true
}

pub(crate) fn is_idle_epoll(_fd: RawFd) -> bool {
    false
}

fn is_epoll(fd: RawFd) -> bool {
    usize::try_from(fd).ok().and_then(|fd| EPOLLS.get(fd)).is_some_and(|epoll| epoll.load(Ordering::Relaxed))
}

fn is_socket(fd: RawFd) -> bool {
    let mut kind = [0; 4];
    fd >= 0 && syscall::getsockopt(fd, libc::SOL_SOCKET, libc::SO_TYPE, &mut kind).is_ok()
}

pub(crate) fn on_received(_fd: RawFd) {}

pub(crate) fn socket(_domain: i32, _kind: i32, _protocol: i32) -> Verdict<RawFd> {
    Verdict::Kernel
}

pub(crate) fn on_socket(_fd: RawFd, _domain: i32, _kind: i32, _protocol: i32) {}

pub(crate) fn may_bind(_fd: RawFd, _name: &[u8]) -> Verdict<()> {
    Verdict::Kernel
}

pub(crate) fn on_listen(_fd: RawFd, _backlog: i32) {}

pub(crate) fn on_bind(_fd: RawFd) {}

pub(crate) fn accept(fd: RawFd, mut name: Option<&mut [u8]>, flags: i32) -> Verdict<(RawFd, usize)> {
    sleep(|| syscall::accept(fd, name.as_deref_mut(), flags))
}

pub(crate) fn connect(fd: RawFd, name: &[u8]) -> Verdict<()> {
    sleep(|| syscall::connect(fd, name))
}

pub(crate) fn shutdown(fd: RawFd, how: i32) -> Verdict<()> {
    done(syscall::shutdown(fd, how))
}

pub(crate) fn close(fd: RawFd) -> Verdict<()> {
    forget_epolls(fd..=fd);
    Verdict::Kernel
}

pub(crate) fn close_range(first: u32, last: u32, flags: u32) -> Verdict<()> {
    if flags & libc::CLOSE_RANGE_CLOEXEC == 0 && first <= last {
        forget_epolls(first as RawFd..=last.min(EPOLLS.len() as u32) as RawFd);
    }
    Verdict::Kernel
}

pub(crate) fn receive(fd: RawFd, request: &mut Receive<'_, '_>) -> Verdict<Received> {
    let flags = request.flags;
    let received = sleep(|| {
        let name = request.name.as_deref_mut();
        let control = request.control.as_deref_mut();
        let mut message = syscall::MessageMut { buffers: &mut *request.buffers, name, control };
        syscall::receive_message(fd, &mut message, flags)
    });
    match received {
        Verdict::Done(Ok(received)) => Verdict::Done(Ok(Received {
            len: received.len,
            name_len: received.name_len,
            control_len: received.control_len,
            flags: received.flags,
        })),
        Verdict::Done(Err(error)) => Verdict::Done(Err(error)),
        Verdict::Kernel => Verdict::Kernel,
    }
}

pub(crate) fn send(fd: RawFd, request: &Send<'_, '_>) -> Verdict<usize> {
    let message = syscall::Message { buffers: request.buffers, name: request.name, control: request.control };
    sleep(|| syscall::send_message(fd, &message, request.flags | libc::MSG_NOSIGNAL))
}

pub(crate) fn sendfile(out: RawFd, file: RawFd, offset: Option<&mut i64>, count: usize) -> Verdict<usize> {
    // By hand, as no safe call takes the offset: it is the hook that is looked at here.
    let mut octets = vec![0; count.min(1 << 16)];
    let read = match &offset {
        Some(offset) => syscall::pread(file, &mut octets, **offset),
        None => syscall::read(file, &mut octets),
    };
    let read = match read {
        Ok(read) => read,
        Err(error) => return done(Err(error)),
    };
    let buffers = &[io::IoSlice::new(&octets[..read])];
    let sent = send(out, &Send { buffers, name: None, control: None, flags: 0 });
    if let (Some(offset), Verdict::Done(Ok(sent))) = (offset, &sent) {
        *offset += *sent as i64;
    }
    sent
}

pub(crate) fn splice(from: RawFd, to: RawFd, count: usize, flags: u32) -> Verdict<usize> {
    sleep(|| syscall::splice(from, to, count, flags))
}

pub(crate) fn on_epoll_create(fd: RawFd) {
    if let Some(epoll) = EPOLLS.get(fd as usize) {
        epoll.store(true, Ordering::Relaxed);
    }
}

pub(crate) fn epoll_ctl(epfd: RawFd, op: i32, fd: RawFd, event: Option<EpollEvent>) -> Verdict<()> {
    let event = event.map(|event| syscall::EpollEvent { events: event.events, u64: event.data });
    done(syscall::epoll_ctl(epfd, op, fd, event))
}

pub(crate) fn epoll_wait(
    epfd: RawFd,
    events: &mut [EpollEvent],
    timeout: Option<Duration>,
    mask: Option<SignalMask>,
) -> Verdict<usize> {
    let mut room = vec![syscall::EpollEvent { events: 0, u64: 0 }; events.len().min(1 << 16)];
    let first = syscall::epoll_wait(epfd, &mut room, 0);
    let found = match first {
        Ok(0) => {
            let mut watched = [syscall::PollFd { fd: epfd, events: libc::POLLIN, revents: 0 }];
            match wait(&mut watched, timeout, mask) {
                Ok(0) => Ok(0),
                Ok(_) => syscall::epoll_wait(epfd, &mut room, 0),
                Err(error) => Err(error),
            }
        }
        other => other,
    };
    for (event, found) in events.iter_mut().zip(&room[..found.as_ref().map_or(0, |count| *count)]) {
        *event = EpollEvent { events: found.events, data: found.u64 };
    }
    done(found)
}

pub(crate) fn poll(
    fds: &mut [PollFd],
    timeout: Option<Duration>,
    mask: Option<SignalMask>,
) -> Verdict<usize> {
    let watch = |entry: &PollFd| syscall::PollFd { fd: entry.fd, events: entry.events, revents: 0 };
    let mut watched: Vec<_> = fds.iter().map(watch).collect();
    let ready = wait(&mut watched, timeout, mask);
    if ready.is_ok() {
        fds.iter_mut().zip(&watched).for_each(|(entry, watched)| entry.revents = watched.revents);
    }
    done(ready)
}

pub(crate) fn getsockname(fd: RawFd, name: &mut [u8]) -> Verdict<usize> {
    done(syscall::getsockname(fd, name))
}

pub(crate) fn getpeername(fd: RawFd, name: &mut [u8]) -> Verdict<usize> {
    done(syscall::getpeername(fd, name))
}

pub(crate) fn getsockopt(fd: RawFd, level: i32, option: i32, value: &mut [u8]) -> Verdict<usize> {
    done(syscall::getsockopt(fd, level, option, value))
}

pub(crate) fn setsockopt(fd: RawFd, level: i32, option: i32, value: &[u8]) -> Verdict<()> {
    done(syscall::setsockopt(fd, level, option, value))
}

pub(crate) fn fcntl(fd: RawFd, command: i32, argument: i64) -> Verdict<i32> {
    match command {
        libc::F_GETFD | libc::F_SETFD | libc::F_GETFL | libc::F_SETFL => {
            done(syscall::fcntl(fd, command, argument))
        }
        _ => Verdict::Kernel,
    }
}

pub(crate) fn ioctl(fd: RawFd, request: u64, argument: &mut i32) -> Verdict<i32> {
    match syscall::ioctl(fd, request, argument) {
        Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => Verdict::Kernel,
        other => done(other),
    }
}

pub(crate) fn dup(from: RawFd, to: Option<RawFd>, flags: i32) -> Verdict<RawFd> {
    let copy = match to {
        Some(to) => syscall::dup3(from, to, flags),
        None => syscall::dup(from),
    };
    if let Ok(copy) = &copy {
        forget_epolls(*copy..=*copy);
        if is_epoll(from) {
            on_epoll_create(*copy);
        }
    }
    done(copy)
}

/// There are none that leave together.
pub(crate) enum Datagrams {}

impl Datagrams {
    pub(crate) fn send(&mut self, _: &Send<'_, '_>) -> Verdict<usize> {
        match *self {}
    }
}

pub(crate) fn datagrams(_fd: RawFd) -> Option<Datagrams> {
    None
}

pub(crate) fn move_to_kernel(_fd: RawFd) {}

pub(crate) fn before_identity(_fd: RawFd) {}

pub(crate) fn on_accept(_fd: RawFd) {}

pub(crate) fn before_cancel() {
    inside::expect_cancellation();
}

pub(crate) fn before_fork() {}

pub(crate) fn after_fork_in_parent() {}

pub(crate) fn after_fork_in_child() {}

pub(crate) fn before_exec() {}

pub(crate) fn before_spawn() {}

pub(crate) fn before_exit() {}

pub(crate) fn before_end() {}

fn forget_epolls(range: std::ops::RangeInclusive<RawFd>) {
    for epoll in range.filter_map(|fd| EPOLLS.get(fd as usize)) {
        epoll.store(false, Ordering::Relaxed);
    }
}

fn done<T>(result: io::Result<T>) -> Verdict<T> {
    Verdict::Done(result.map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EIO))))
}

/// Calls `call`, which may block, outside: the kernel restarts it after handlers, as it would for the program.
fn sleep<T>(mut call: impl FnMut() -> io::Result<T>) -> Verdict<T> {
    loop {
        match inside::outside(&mut call) {
            Some(result) => return done(result),
            None if inside::interrupted() => return Verdict::Done(Err(Errno(libc::EINTR))),
            None => {}
        }
    }
}

/// ppoll(2), never restarted.
fn wait(
    fds: &mut [syscall::PollFd],
    timeout: Option<Duration>,
    mask: Option<SignalMask>,
) -> io::Result<usize> {
    inside::outside(|| syscall::ppoll(fds, timeout, mask))
        .unwrap_or_else(|| Err(io::Error::from_raw_os_error(libc::EINTR)))
}
