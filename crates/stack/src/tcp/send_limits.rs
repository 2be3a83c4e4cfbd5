//! What keeps a connection from sending more, and for how long (`tcpi_busy_time` and what follows it, as Linux counts them).

use clock::{Duration, Instant};

use crate::tcp::connection::Connection;

/// What limits sending now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Limit {
    /// Nothing is queued.
    #[default]
    Idle,
    /// The network, or the application that may write more.
    Network,
    /// The peer's window.
    ReceiveWindow,
    /// The send buffer: all is sent, and a writer waits.
    SendBuffer,
}

/// Times that a connection spent sending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SendTimes {
    /// With data queued.
    pub(crate) busy: Duration,
    /// The part of it in which the peer's window was the limit.
    pub(crate) rwnd_limited: Duration,
    /// The part of it in which the send buffer was.
    pub(crate) sndbuf_limited: Duration,
}

impl SendTimes {
    /// As a connection keeps them while it rests: in milliseconds, busy, by the peer's window, by the send buffer.
    pub(crate) fn to_millis(self) -> [u32; 3] {
        [self.busy, self.rwnd_limited, self.sndbuf_limited].map(|time| time.as_millis() as u32)
    }

    /// What [`SendTimes::to_millis`] kept.
    pub(crate) fn of_millis(millis: [u32; 3]) -> SendTimes {
        let [busy, rwnd_limited, sndbuf_limited] = millis.map(|time| Duration::from_millis(time.into()));
        SendTimes { busy, rwnd_limited, sndbuf_limited }
    }
}

/// Adds up [`SendTimes`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SendLimits {
    limit: Limit,
    since: Instant,
    before: SendTimes,
}

impl SendLimits {
    /// Goes on from what was spent before.
    pub(crate) fn resume(before: SendTimes, now: Instant) -> SendLimits {
        SendLimits { limit: Limit::Idle, since: now, before }
    }

    #[inline]
    fn enter(&mut self, limit: Limit, now: Instant) {
        if limit != self.limit {
            *self = SendLimits { limit, since: now, before: self.times(now) };
        }
    }

    /// What was spent up to `now`.
    pub(crate) fn times(&self, now: Instant) -> SendTimes {
        let span = |is_spent: bool| if is_spent { now.since(self.since) } else { Duration::ZERO };
        SendTimes {
            busy: self.before.busy + span(self.limit != Limit::Idle),
            rwnd_limited: self.before.rwnd_limited + span(self.limit == Limit::ReceiveWindow),
            sndbuf_limited: self.before.sndbuf_limited + span(self.limit == Limit::SendBuffer),
        }
    }
}

impl Connection {
    /// Notes what limits sending from `now` on.
    #[inline]
    pub(super) fn note_send_limit(&mut self, now: Instant) {
        let limit = self.send_limit_now();
        if let Some(transfer) = &mut self.transfer {
            transfer.limits.enter(limit, now);
        }
    }

    fn send_limit_now(&self) -> Limit {
        let unsent = self.unsent_len();
        let wanted = unsent.min(self.send.mss.into());
        if self.send.queue.is_empty() && self.is_all_acknowledged() {
            Limit::Idle
        } else if unsent > 0 && self.allowance() >= wanted && self.usable_window() < wanted {
            Limit::ReceiveWindow
        } else if unsent == 0 && self.flags.writer_waits && self.allowance() > 0 {
            Limit::SendBuffer
        } else {
            Limit::Network
        }
    }

    /// Times that were spent sending up to `now`.
    pub(crate) fn send_times(&self, now: Instant) -> SendTimes {
        let rested = || SendTimes::of_millis(self.rest.times_ms);
        self.transfer.as_ref().map_or_else(rested, |transfer| transfer.limits.times(now))
    }
}
