//! Calls that are under way: each is tried again after everything that happens, until it is done.

use clock::{Duration, Instant};

use crate::pkt::ast::{Call, Event};
use crate::pkt::errno::Errno;

/// A call that was made.
pub(crate) struct Running<'a> {
    pub(crate) call: &'a Call,
    pub(crate) event: &'a Event,
    pub(crate) started: Instant,
    /// When the script expects it to return, if it expects it to block.
    pub(crate) end: Option<Instant>,
    /// When it gives up waiting, if it ever does.
    pub(crate) until: Option<Instant>,
    /// Whether its first step, which has an effect, was taken.
    pub(super) begun: bool,
    /// Whether it waits for a handshake that it began.
    pub(super) is_opening: bool,
    /// Whether it had to wait.
    pub(super) waited: bool,
    /// Octets moved so far.
    pub(super) moved: usize,
}

impl<'a> Running<'a> {
    pub(crate) fn new(
        call: &'a Call,
        event: &'a Event,
        started: Instant,
        end: Option<Instant>,
    ) -> Running<'a> {
        Running {
            call,
            event,
            started,
            end,
            until: None,
            begun: false,
            is_opening: false,
            waited: false,
            moved: 0,
        }
    }

    /// The time at which the call gives up after waiting for `limit`.
    pub(super) fn deadline(&self, limit: Option<Duration>) -> Option<Instant> {
        limit.map(|limit| self.started + limit)
    }
}

/// How far a call came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It is over.
    Done(Reply),
    /// It waits, at most until this time.
    Blocked(Option<Instant>),
}

impl Progress {
    pub(super) fn done(value: i64) -> Progress {
        Progress::Done(Ok(value))
    }

    pub(super) fn failed(errno: Errno) -> Progress {
        Progress::Done(Err(errno))
    }

    /// Waits if the call may wait, else fails with EAGAIN. A wait that is over fails with EAGAIN, too.
    pub(super) fn wait(may_block: bool, deadline: Option<Instant>, now: Instant) -> Progress {
        if may_block && deadline.is_none_or(|deadline| now < deadline) {
            return Progress::Blocked(deadline);
        }
        Progress::failed(Errno::EAGAIN)
    }
}

/// What a call returned: a value, or -1 with an error.
pub(crate) type Reply = Result<i64, Errno>;
