//! Sleeping until a frame comes, a command comes, or time is up.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use clock::Duration;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, write};

/// poll(2) over the descriptors of an engine's devices and an eventfd(2) for its handle.
///
/// Not epoll(7): what watches a socket all the time is called for every burst that arrives there, also while the engine is
/// busy and need not be told.
///
/// By the C library's function: under `sidestep run`, its library sees which sockets are waited for.
pub(crate) struct Sleeper {
    /// `None` for an engine that never sleeps by itself.
    wake: Option<Arc<OwnedFd>>,
}

/// Sees to it that one engine looks at its commands.
#[derive(Clone)]
pub(crate) enum Waker {
    /// Ends its sleep.
    Event(Arc<OwnedFd>),
    /// Its driver checks for commands itself.
    Nobody,
    /// Carries them out at once: see [`crate::EngineHandle::nudging`].
    Nudge(Arc<dyn Fn() + Send + Sync>),
}

impl Sleeper {
    pub(crate) fn new() -> io::Result<(Sleeper, Waker)> {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let waker = Waker::Event(Arc::clone(&wake));
        Ok((Sleeper { wake: Some(wake) }, waker))
    }

    /// For an engine that another thread drives and wakes: without a descriptor.
    pub(crate) fn none() -> (Sleeper, Waker) {
        (Sleeper { wake: None }, Waker::Nobody)
    }

    /// Sleeps until one of `fds` is readable, another thread wakes the engine, or `timeout` is over. A signal ends the sleep, too.
    pub(crate) fn sleep(&self, fds: &[BorrowedFd<'_>], timeout: Option<Duration>) {
        let timeout = timeout.map(|span| TimeSpec::from_duration(span.into()));
        let wake = self.wake.as_ref().map(AsFd::as_fd);
        let watched = wake.into_iter().chain(fds.iter().copied());
        let mut watched: Vec<PollFd<'_>> = watched.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        // An error, for instance lack of memory, ends the sleep like a signal: the engine checks its devices and comes back.
        let _ = ppoll(&mut watched, timeout, None);
        if let Some(wake) = &self.wake
            && watched[0].any() == Some(true)
        {
            // Never blocks; what it reads, a count of wake-ups, does not matter.
            let _ = read(&**wake, &mut [0; 8]);
        }
    }
}

impl Waker {
    pub(crate) fn wake(&self) {
        match self {
            Waker::Event(wake) => {
                // Only fails when the count is at its end: then the engine is awake.
                let _ = write(&**wake, &1u64.to_ne_bytes());
            }
            Waker::Nobody => {}
            Waker::Nudge(nudge) => nudge(),
        }
    }
}
