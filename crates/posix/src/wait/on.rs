//! What a call waits for.

use clock::Instant;
use syscall::PollFd;

use crate::errno::Errno;
use crate::ids::{EpollId, SocketId};

/// What a call waits for.
#[derive(Clone, Copy)]
pub(crate) enum On<'a> {
    /// Something on one socket; and on its shadow, with these poll(2) bits.
    Socket(SocketId, Option<i16>),
    /// Something at an epoll instance, or its kernel's counterpart.
    Epoll(EpollId),
    /// Something on any of several.
    Many(Several<'a>),
}

/// What poll(2) waits for.
#[derive(Clone, Copy, Default)]
pub(crate) struct Several<'a> {
    pub(crate) sockets: &'a [SocketId],
    /// Something is ready there; its collector takes it.
    pub(crate) epolls: &'a [EpollId],
    /// What the kernel has of these descriptors.
    pub(crate) kernel: &'a [PollFd],
}

impl On<'_> {
    /// A caller that waits for nothing itself sleeps for others.
    pub(crate) fn is_nothing(self) -> bool {
        matches!(self, On::Many(Several { sockets: [], epolls: [], kernel: [] }))
    }
}

/// How a call waits.
#[derive(Clone, Copy)]
pub(crate) struct Waiting<'a> {
    pub(crate) on: On<'a>,
    /// `None`: for ever.
    pub(crate) deadline: Option<Instant>,
    /// Signals blocked while it sleeps.
    pub(crate) mask: Option<u64>,
    /// A handler with `SA_RESTART` does not end it.
    pub(crate) restarts: bool,
}

/// Why a call waited in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The time is over.
    TimedOut,
    /// A signal came (`EINTR`).
    Interrupted,
}

/// Internal: the socket has become the kernel's in the middle of a call, which has done nothing yet and has not given the lock up: it is the
/// kernel's, by the number that the program gave. No errno has this number.
pub(crate) const MOVED: Errno = Errno(i32::MAX);
