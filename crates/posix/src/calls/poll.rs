//! poll(2), and select(2) on top of it.

use std::os::fd::RawFd;
use std::time::Duration;

use crate::descriptors::fd_table::Entry;
use crate::errno::{Errno, fail};
use crate::ids::{EpollId, SocketId};
use crate::process::{Process, State};
use crate::request::{PollFd, SignalMask, Verdict};
use crate::socket::Socket;
use crate::socket::kernel_only::has_adopted;
use crate::wait::{On, Several, Stop, Waiting};
use crate::{batch, inside};

/// The kernel is asked this often while the call spins.
const KERNEL_EVERY: clock::Duration = clock::Duration::from_micros(20);

/// Internal: some of the watched sockets have moved to the kernel meanwhile, or were closed. No errno has this number.
const MOVED: Errno = Errno(i32::MAX);

/// What one of the descriptors is.
#[derive(Clone, Copy)]
enum Watched {
    Kernel,
    Socket(SocketId),
    Epoll(EpollId),
    /// A descriptor of our own, which does not exist for the program.
    Invalid,
}

impl Process {
    /// ppoll(2).
    pub(crate) fn poll(
        &self,
        fds: &mut [PollFd],
        timeout: Option<Duration>,
        mask: Option<SignalMask>,
    ) -> Verdict<usize> {
        if !fds.iter().any(|it| self.table.is_ours(it.fd)) {
            return Verdict::Kernel;
        }
        let mut state = self.lock();
        let inherited = state.inherited_of(fds);
        if !inherited.is_empty() {
            drop(state);
            self.inherit_all(&inherited);
            state = self.lock();
        }
        let now = self.now();
        let (mut sockets, mut epolls) = (Vec::new(), Vec::new());
        let watched: Vec<Watched> = fds.iter().map(|it| state.watched(it.fd)).collect();
        for (it, fd) in watched.iter().zip(fds.iter()) {
            match it {
                Watched::Socket(id) => {
                    if fd.events & (libc::POLLIN | libc::POLLRDNORM) != 0 {
                        state.claim_to_read(*id, now);
                    }
                    sockets.push(*id);
                }
                Watched::Epoll(id) => epolls.push(*id),
                Watched::Kernel | Watched::Invalid => {}
            }
        }
        let only_kernel = |it: &Watched| match it {
            Watched::Kernel => true,
            Watched::Socket(id) => {
                let is_kernels = |it: &Socket| {
                    it.is_shadow()
                        && it.claim.is_none()
                        && !it.is_on_stack()
                        && it.error.is_none()
                        && !has_adopted(it)
                };
                state.sockets.get(*id).is_some_and(is_kernels)
            }
            // Another thread may add something of ours while the kernel sleeps, which would not hear of it.
            Watched::Epoll(id) => {
                state.epolls.get(*id).is_none_or(|epoll| epoll.items.is_empty() && inside::is_alone())
            }
            Watched::Invalid => false,
        };
        if watched.iter().all(only_kernel) && !(state.attached && state.queue.runtime.is_none()) {
            return Verdict::Kernel;
        }
        self.start_watchdog(&mut state);
        let mut kernel: Vec<syscall::PollFd> = Vec::with_capacity(fds.len());
        for (it, fd) in watched.iter().zip(fds.iter()) {
            let is_in_kernel = match it {
                Watched::Kernel | Watched::Epoll(_) => true,
                Watched::Socket(id) => state.sockets.get(*id).is_some_and(|socket| socket.is_shadow()),
                Watched::Invalid => false,
            };
            let number = if is_in_kernel { fd.fd } else { -1 };
            kernel.push(syscall::PollFd { fd: number, events: fd.events, revents: 0 });
        }
        batch::close();
        let deadline = timeout.map(|timeout| now + timeout.into());
        let sleeping = kernel.clone();
        let several = Several { sockets: &sockets, epolls: &epolls, kernel: &sleeping };
        let waiting = Waiting { on: On::Many(several), deadline, mask, restarts: false };
        let mut asked_at = clock::Instant::ZERO;
        let moves = state.moves;
        let mut told_at = now;
        let result = self.wait(state, &waiting, &mut |state, now| {
            if state.moves != moves && state.is_any_moved(&watched, &kernel) {
                return Some(Err(MOVED));
            }
            told_at = now;
            // Closing it wakes the threads that wait there: the kernel then looks the number up again.
            let Some(own) = state.poll_own(&watched, fds) else { return Some(Err(MOVED)) };
            let ask = own == 0 && now.since(asked_at) >= KERNEL_EVERY || own > 0;
            if ask {
                asked_at = now;
                if let Err(errno) = ask_kernel(&mut kernel, fds) {
                    return Some(Err(errno));
                }
            }
            let count = fds.iter().filter(|it| it.revents != 0).count();
            (count > 0).then_some(Ok(count))
        });
        if result == Ok(Err(MOVED)) {
            let now = self.now();
            let remaining = deadline.map(|deadline| deadline.since(now).into());
            return match self.poll(fds, remaining, mask) {
                // The program's own call would begin with the whole time again.
                Verdict::Kernel => Verdict::Done(poll_kernel(fds, remaining, mask)),
                done => done,
            };
        }
        Verdict::Done(match result {
            Ok(result) => result.inspect(|count| batch::open(*count, told_at)),
            Err(Stop::TimedOut) => Ok(0),
            Err(Stop::Interrupted) => fail(libc::EINTR),
        })
    }
}

/// ppoll(2) on the kernel's descriptors only.
fn poll_kernel(
    fds: &mut [PollFd],
    timeout: Option<Duration>,
    mask: Option<SignalMask>,
) -> Result<usize, Errno> {
    let mut kernel: Vec<syscall::PollFd> =
        fds.iter().map(|it| syscall::PollFd { fd: it.fd, events: it.events, revents: 0 }).collect();
    let polled = inside::outside(|| syscall::ppoll(&mut kernel, timeout, mask));
    for (own, fd) in kernel.iter().zip(fds) {
        fd.revents = own.revents;
    }
    polled.map_or(fail(libc::EINTR), |polled| Ok(polled?))
}

/// Adds what the kernel has.
fn ask_kernel(kernel: &mut [syscall::PollFd], fds: &mut [PollFd]) -> Result<(), Errno> {
    if kernel.iter().all(|it| it.fd < 0) {
        return Ok(());
    }
    syscall::ppoll(kernel, Some(Duration::ZERO), None)?;
    for (own, fd) in kernel.iter().zip(fds) {
        fd.revents |= own.revents;
    }
    Ok(())
}

impl State {
    fn watched(&self, fd: RawFd) -> Watched {
        match self.table.get(fd) {
            Entry::None => Watched::Kernel,
            Entry::Internal => Watched::Invalid,
            Entry::Socket(_) => self.socket_of(fd).map_or(Watched::Kernel, Watched::Socket),
            Entry::Epoll(_) => self.epoll_of(fd).map_or(Watched::Kernel, Watched::Epoll),
        }
    }

    /// Whether a watched socket moved to the kernel after the kernel got the list.
    fn is_any_moved(&self, watched: &[Watched], kernel: &[syscall::PollFd]) -> bool {
        watched.iter().zip(kernel).any(|(it, in_kernel)| match it {
            Watched::Socket(id) => {
                self.sockets.get(*id).is_some_and(|socket| socket.is_shadow() && in_kernel.fd < 0)
            }
            _ => false,
        })
    }

    /// Connections of the parent's among descriptors: only the kernel can tell parent and child of them.
    fn inherited_of(&self, fds: &[PollFd]) -> Vec<SocketId> {
        let sockets = fds.iter().filter_map(|it| self.socket_of(it.fd));
        sockets.filter(|id| self.is_inherited(*id)).collect()
    }

    /// Notes what the stack has; returns how many have something, or `None` if one of the sockets is gone.
    fn poll_own(&mut self, watched: &[Watched], fds: &mut [PollFd]) -> Option<usize> {
        let mut count = 0;
        for (it, fd) in watched.iter().zip(fds) {
            let ready = match it {
                Watched::Kernel => 0,
                Watched::Invalid => libc::POLLNVAL,
                Watched::Socket(id) => self.poll_if_open(*id)? as i16,
                Watched::Epoll(id) if self.has_ready(*id, 0) => libc::POLLIN | libc::POLLRDNORM,
                Watched::Epoll(_) => 0,
            };
            fd.revents = ready & (fd.events | libc::POLLERR | libc::POLLHUP | libc::POLLNVAL);
            count += usize::from(fd.revents != 0);
        }
        Some(count)
    }
}
