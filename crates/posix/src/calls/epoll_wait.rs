//! epoll_wait(2).

use std::os::fd::RawFd;
use std::time::Duration;

use clock::Instant;

use crate::batch;
use crate::calls::epoll_kernel::Heard;
use crate::epoll::Epoll;
use crate::errno::fail;
use crate::ids::{EpollId, SocketId, Target};
use crate::process::{Process, State};
use crate::request::{EpollEvent, SignalMask, Verdict};
use crate::wait::{On, Stop, Waiting};

impl Process {
    /// epoll_pwait2(2).
    pub(crate) fn epoll_wait(
        &self,
        epfd: RawFd,
        events: &mut [EpollEvent],
        timeout: Option<Duration>,
        mask: Option<SignalMask>,
    ) -> Verdict<usize> {
        let mut state = self.lock();
        let Some(id) = state.epoll_of(epfd).filter(|_| !events.is_empty()) else { return Verdict::Kernel };
        let now = self.now();
        state.begin_use(id);
        if state.epolls.get(id).is_some_and(|epoll| epoll.has_news) {
            let inherited = state.inherited_among(id);
            if !inherited.is_empty() {
                drop(state);
                self.inherit_all(&inherited);
                state = self.lock();
            }
            state.claim_watched(id, now);
        }
        let deadline = timeout.map(|timeout| now + timeout.into());
        while state.is_of_kernel_only(id) {
            if state.can_leave_alone(id) {
                return Verdict::Kernel;
            }
            match self.wait_in_kernel(state, id, events, deadline, mask) {
                Heard::Over(result) => return Verdict::Done(result),
                Heard::Bell(guard) => state = guard,
            }
        }
        if state.attached {
            self.start_watchdog(&mut state);
        }
        batch::close();
        let waiting = Waiting { on: On::Epoll(id), deadline, mask, restarts: false };
        let mut told_at = now;
        let result = self.wait(state, &waiting, &mut |state, now| {
            told_at = now;
            match state.collect_all(id, events, now) {
                Ok(0) => None,
                result => Some(result),
            }
        });
        Verdict::Done(match result {
            Ok(result) => result.inspect(|count| batch::open(*count, told_at)),
            Err(Stop::TimedOut) => Ok(0),
            Err(Stop::Interrupted) => fail(libc::EINTR),
        })
    }
}

impl State {
    /// Whether there is nothing of ours at an instance, nor will be without a call of this process.
    fn is_of_kernel_only(&self, id: EpollId) -> bool {
        let Some(epoll) = self.epolls.get(id) else { return true };
        let is_silent = self.queue.runtime.is_none() && !self.attached && epoll.ready.is_empty();
        is_silent || epoll.items.is_empty()
    }

    /// Connections of the parent's that an instance watches: only the kernel can tell parent and child of them.
    fn inherited_among(&self, id: EpollId) -> Vec<SocketId> {
        let items = self.epolls.get(id).into_iter().flat_map(|epoll| epoll.items.iter());
        let sockets = items.filter_map(|(_, item)| match item.target {
            Target::Socket(socket) => Some(socket),
            Target::Epoll(_) => None,
        });
        sockets.filter(|socket| self.is_inherited(*socket)).collect()
    }

    /// Takes the listeners and UDP sockets that an instance watches from the kernel, because a thread waits for them.
    fn claim_watched(&mut self, id: EpollId, now: Instant) {
        let Some(epoll) = self.epolls.get_mut(id) else { return };
        epoll.has_news = false;
        let watched: Vec<SocketId> = epoll.shadow_sockets().collect();
        for socket in watched {
            self.claim_to_read(socket, now);
        }
        let inner: Vec<EpollId> = self.epolls.get(id).into_iter().flat_map(Epoll::inner).collect();
        for inner in inner {
            if self.epolls.get(inner).is_some_and(|inner| inner.has_news) {
                self.claim_watched(inner, now);
            }
        }
    }
}
