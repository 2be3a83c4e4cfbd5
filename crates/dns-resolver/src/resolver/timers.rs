//! Deadlines in their order.

use std::collections::BTreeSet;

use clock::Instant;

use super::{ClientId, QueryId};
use crate::iterator::task::TaskId;

/// What a deadline is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// A server is given up for now, and the next one asked.
    Wait(QueryId),
    /// Its answer is no longer taken.
    Patience(QueryId),
    /// A client may get expired data.
    Client(ClientId),
    /// Clients of a question whose time has come may get expired data now.
    LookAgain(TaskId),
    /// A question takes too long.
    Task(TaskId),
    /// Old state is looked for.
    Sweep,
}

/// The deadlines. Those that have no meaning any more are taken out, so there are at most a few for each client and query.
#[derive(Debug, Default)]
pub(crate) struct Timers(BTreeSet<(Instant, Timer)>);

impl Timers {
    pub(crate) fn set(&mut self, at: Instant, timer: Timer) {
        self.0.insert((at, timer));
    }

    pub(crate) fn cancel(&mut self, at: Instant, timer: Timer) {
        self.0.remove(&(at, timer));
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.0.first().map(|(at, _)| *at)
    }

    pub(super) fn pop_due(&mut self, now: Instant) -> Option<Timer> {
        if self.next()? > now {
            return None;
        }
        self.0.pop_first().map(|(_, timer)| timer)
    }
}
