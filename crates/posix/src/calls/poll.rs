//! poll(2), and select(2) on top of it.

use std::sync::MutexGuard;
use std::time::Duration;

use clock::Instant;

use crate::descriptors::fd_table::Entry;
use crate::errno::{Errno, fail};
use crate::ids::{EpollId, SocketId};
use crate::process::{Process, State};
use crate::request::{PollFd, SignalMask, Verdict};
use crate::socket::kernel_only::has_adopted;
use crate::wait::{MOVED, On, Several, Stop, Waiting};
use crate::{batch, inside};

/// The kernel is asked this often while the call spins.
const KERNEL_EVERY: clock::Duration = clock::Duration::from_micros(20);

/// What one of the descriptors is.
#[derive(Clone, Copy)]
enum Watched {
    Kernel,
    Socket(SocketId),
    Epoll(EpollId),
    /// A descriptor of our own, which does not exist for the program.
    Invalid,
}

/// What one call polls.
struct Polled {
    /// In the order of the program's descriptors.
    watched: Vec<Watched>,
    /// The kernel's part of it; what the kernel has nothing of is negative.
    kernel: Vec<syscall::PollFd>,
    /// `State::moves` when the kernel's part was put together.
    moves: u32,
    kernel_asked_at: Instant,
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
        let watched: Vec<Watched> = fds.iter().map(|it| state.watch(it, now)).collect();
        let has_no_queue_yet = state.attached && state.queue.runtime.is_none();
        if !has_no_queue_yet && watched.iter().all(|it| state.is_kernels_alone(*it)) {
            return Verdict::Kernel;
        }
        self.start_watchdog(&mut state);
        let kernel = watched.iter().zip(fds.iter()).map(|(it, fd)| state.kernel_part(*it, fd)).collect();
        let polled = Polled { watched, kernel, moves: state.moves, kernel_asked_at: Instant::ZERO };
        let deadline = timeout.map(|timeout| now + timeout.into());
        match self.poll_until(state, polled, fds, deadline, mask) {
            // The handler ran in the sleep that ended by the move.
            Err(MOVED) if inside::has_handled(mask.unwrap_or(0)) => Verdict::Done(fail(libc::EINTR)),
            Err(MOVED) => self.poll_again(fds, deadline, mask),
            result => Verdict::Done(result),
        }
    }

    fn poll_until(
        &self,
        state: MutexGuard<'_, State>,
        mut polled: Polled,
        fds: &mut [PollFd],
        deadline: Option<Instant>,
        mask: Option<SignalMask>,
    ) -> Result<usize, Errno> {
        batch::close();
        inside::forget_handled();
        let (sockets, epolls, kernel) = (polled.sockets(), polled.epolls(), polled.kernel.clone());
        let several = Several { sockets: &sockets, epolls: &epolls, kernel: &kernel };
        let waiting = Waiting { on: On::Many(several), deadline, mask, restarts: false };
        let mut told_at = Instant::ZERO;
        let result = self.wait(state, &waiting, &mut |state, now| {
            told_at = now;
            state.look_at_polled(&mut polled, fds, now)
        });
        match result {
            Ok(result) => result.inspect(|count| batch::open(*count, told_at)),
            Err(Stop::TimedOut) => Ok(0),
            Err(Stop::Interrupted) => fail(libc::EINTR),
        }
    }

    /// Something moved in the middle of a call, which goes on with the time that is left.
    fn poll_again(
        &self,
        fds: &mut [PollFd],
        deadline: Option<Instant>,
        mask: Option<SignalMask>,
    ) -> Verdict<usize> {
        match self.poll(fds, self.time_until(deadline), mask) {
            // The program's own call would begin with the whole time again.
            Verdict::Kernel => Verdict::Done(self.poll_kernel(fds, deadline, mask)),
            done => done,
        }
    }

    fn time_until(&self, deadline: Option<Instant>) -> Option<Duration> {
        deadline.map(|deadline| deadline.since(self.now()).into())
    }

    /// ppoll(2) on the kernel's descriptors only.
    fn poll_kernel(
        &self,
        fds: &mut [PollFd],
        deadline: Option<Instant>,
        mask: Option<SignalMask>,
    ) -> Result<usize, Errno> {
        let mut kernel: Vec<syscall::PollFd> =
            fds.iter().map(|it| syscall::PollFd { fd: it.fd, events: it.events, revents: 0 }).collect();
        let polled = loop {
            let time = self.time_until(deadline);
            match inside::sleep(time, |time| syscall::ppoll_within(&mut kernel, time, mask)) {
                Some(Ok(0)) | None if inside::has_handled(mask.unwrap_or(0)) => return fail(libc::EINTR),
                // A handler of a signal that is blocked meanwhile.
                Some(Ok(0)) | None if inside::has_handled(0) => {}
                polled => break polled.unwrap_or(Ok(0))?,
            }
        };
        for (own, fd) in kernel.iter().zip(fds) {
            fd.revents = own.revents;
        }
        Ok(polled)
    }
}

impl Polled {
    fn sockets(&self) -> Vec<SocketId> {
        let socket = |it: &Watched| if let Watched::Socket(id) = it { Some(*id) } else { None };
        self.watched.iter().filter_map(socket).collect()
    }

    fn epolls(&self) -> Vec<EpollId> {
        let epoll = |it: &Watched| if let Watched::Epoll(id) = it { Some(*id) } else { None };
        self.watched.iter().filter_map(epoll).collect()
    }
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
    /// What a descriptor is. Who polls a listener or a UDP socket for reading waits there: it is claimed.
    fn watch(&mut self, polled: &PollFd, now: Instant) -> Watched {
        let watched = match self.table.get(polled.fd) {
            Entry::None => Watched::Kernel,
            Entry::Internal => Watched::Invalid,
            Entry::Socket(_) => self.socket_of(polled.fd).map_or(Watched::Kernel, Watched::Socket),
            Entry::Epoll(_) => self.epoll_of(polled.fd).map_or(Watched::Kernel, Watched::Epoll),
        };
        if let Watched::Socket(id) = watched
            && polled.events & (libc::POLLIN | libc::POLLRDNORM) != 0
        {
            self.claim_to_read(id, now);
        }
        if let Watched::Epoll(id) = watched {
            self.begin_use(id);
        }
        watched
    }

    /// Whether the kernel knows all that there is to know of a descriptor for as long as a call sleeps.
    fn is_kernels_alone(&self, watched: Watched) -> bool {
        match watched {
            Watched::Kernel => true,
            Watched::Invalid => false,
            Watched::Socket(id) => self.sockets.get(id).is_some_and(|socket| {
                socket.is_shadow()
                    && socket.claim.is_none()
                    && !socket.is_on_stack()
                    && socket.error.is_none()
                    && !has_adopted(socket)
            }),
            // Another thread may add something of ours while the kernel sleeps, which would not hear of it.
            Watched::Epoll(id) => {
                self.epolls.get(id).is_none_or(|epoll| epoll.items.is_empty() && inside::is_alone())
            }
        }
    }

    /// What the kernel is asked about a descriptor.
    fn kernel_part(&self, watched: Watched, polled: &PollFd) -> syscall::PollFd {
        let is_in_kernel = match watched {
            Watched::Kernel | Watched::Epoll(_) => true,
            Watched::Socket(id) => self.sockets.get(id).is_some_and(|socket| socket.is_shadow()),
            Watched::Invalid => false,
        };
        let fd = if is_in_kernel { polled.fd } else { -1 };
        syscall::PollFd { fd, events: polled.events, revents: 0 }
    }

    /// What there is now: of ours, and now and then of the kernel's; `None` for nothing.
    fn look_at_polled(
        &mut self,
        polled: &mut Polled,
        fds: &mut [PollFd],
        now: Instant,
    ) -> Option<Result<usize, Errno>> {
        if self.moves != polled.moves && self.is_any_moved(&polled.watched, &polled.kernel) {
            return Some(Err(MOVED));
        }
        // Closing it wakes the threads that wait there: the kernel then looks the number up again.
        let Some(own) = self.poll_own(&polled.watched, fds) else { return Some(Err(MOVED)) };
        if own > 0 || now.since(polled.kernel_asked_at) >= KERNEL_EVERY {
            polled.kernel_asked_at = now;
            if let Err(errno) = ask_kernel(&mut polled.kernel, fds) {
                return Some(Err(errno));
            }
        }
        let count = fds.iter().filter(|it| it.revents != 0).count();
        (count > 0).then_some(Ok(count))
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
