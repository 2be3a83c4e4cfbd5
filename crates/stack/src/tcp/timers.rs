//! Deadlines of one connection, and what happens at them (RFC 9293, 3.10.8).
//!
//! The retransmission timer, the tail loss probe and RACK's reordering timer are in [`crate::recovery`].

use clock::{Duration, Instant};

use crate::recovery::TimeoutAction;
use crate::rtt::RTO_MAX_US;
use crate::tcp::connection::{Connection, Fate, Shared, State, since_micros, since_millis};
use crate::tcp::user::TcpError;
use crate::trace::TraceKind;

/// What may be due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// The SYN or SYN-ACK again.
    Handshake,
    /// A probe of a window that is closed.
    Persist,
    /// A delayed acknowledgement.
    DelayedAck,
    /// A probe of a silent peer.
    Keepalive,
    /// The end of FIN-WAIT-2 for a closed socket.
    Close,
    /// A small segment that was held back, or the pacer's next departure.
    Send,
    /// Data unacknowledged for the user's timeout (RFC 5482).
    User,
    /// The end of an idle connection's state of sending.
    Rest,
}

/// Where deadlines are kept: those of an idle connection in the connection, three of which exclude each other, the others in
/// the state of sending.
#[derive(Clone, Copy)]
enum Place {
    Connection(usize),
    Transfer(usize),
}

impl Timer {
    const fn place(self) -> Place {
        match self {
            Timer::Handshake | Timer::Persist | Timer::Close => Place::Connection(0),
            Timer::DelayedAck => Place::Connection(1),
            Timer::Keepalive => Place::Connection(2),
            Timer::Send => Place::Transfer(0),
            Timer::User => Place::Transfer(1),
            Timer::Rest => Place::Transfer(2),
        }
    }
}

/// Three deadlines; `u64::MAX` where none is set.
#[derive(Debug)]
pub(crate) struct Timers([u64; 3]);

const OFF: u64 = u64::MAX;

impl Timers {
    pub(crate) const fn new() -> Timers {
        Timers([OFF; 3])
    }

    #[inline]
    fn earliest(&self) -> u64 {
        let [first, second, third] = self.0;
        first.min(second).min(third)
    }

    /// Stops a timer that is due, and returns which one.
    #[inline]
    fn take_due(&mut self, now: Instant) -> Option<usize> {
        if self.earliest() > now.as_nanos() {
            return None;
        }
        let due = self.0.iter().position(|at| *at <= now.as_nanos())?;
        self.0[due] = OFF;
        Some(due)
    }
}

impl Connection {
    /// Sets a deadline. Those of sending exist only while something is sent.
    pub(crate) fn set_timer(&mut self, timer: Timer, at: Instant) {
        debug_assert!(self.has_place_for(timer), "{timer:?} in {:?}", self.state);
        *self.deadline_of(timer) = at.as_nanos();
    }

    pub(crate) fn stop_timer(&mut self, timer: Timer) {
        if self.has_place_for(timer) {
            *self.deadline_of(timer) = OFF;
        }
    }

    pub(crate) fn is_timer_set(&mut self, timer: Timer) -> bool {
        self.has_place_for(timer) && *self.deadline_of(timer) != OFF
    }

    /// Whether `timer` has a place: its own in this state, not that of one that excludes it; one of sending only while
    /// something is sent.
    fn has_place_for(&self, timer: Timer) -> bool {
        match timer.place() {
            Place::Connection(0) => timer == self.first_timer(),
            Place::Connection(_) => true,
            Place::Transfer(_) => self.transfer.is_some(),
        }
    }

    /// Which of three the first of the connection's deadlines is.
    fn first_timer(&self) -> Timer {
        match self.state {
            _ if !self.flags.syn_acknowledged => Timer::Handshake,
            State::FinWait2 => Timer::Close,
            _ => Timer::Persist,
        }
    }

    pub(crate) fn stop_timers(&mut self) {
        self.timers = Timers::new();
        if let Some(transfer) = &mut self.transfer {
            transfer.timers = Timers::new();
        }
    }

    fn deadline_of(&mut self, timer: Timer) -> &mut u64 {
        match (timer.place(), &mut self.transfer) {
            (Place::Connection(at), _) => &mut self.timers.0[at],
            (Place::Transfer(at), Some(transfer)) => &mut transfer.timers.0[at],
            (Place::Transfer(_), None) => {
                debug_assert!(false, "the state of sending is made before its timers are set");
                &mut self.timers.0[0]
            }
        }
    }

    /// When something is due.
    #[inline]
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let mut at = self.timers.earliest();
        if let Some(transfer) = &self.transfer {
            let recovery = self.recovery_deadline().map_or(OFF, Instant::as_nanos);
            at = at.min(transfer.timers.earliest()).min(recovery);
        }
        (at != OFF).then(|| Instant::from_nanos(at))
    }

    /// While the SYN-ACK is not acknowledged its timer is the only one: data that Fast Open sent behind it can do without.
    #[inline]
    fn recovery_deadline(&self) -> Option<Instant> {
        let transfer = self.transfer.as_ref().filter(|_| self.flags.syn_acknowledged)?;
        transfer.recovery.deadline()
    }

    /// Stops and names one timer that is due.
    fn take_due_timer(&mut self, now: Instant) -> Option<Timer> {
        if let Some(at) = self.timers.take_due(now) {
            return Some(match at {
                0 => self.first_timer(),
                1 => Timer::DelayedAck,
                _ => Timer::Keepalive,
            });
        }
        let transfer = self.transfer.as_mut()?;
        Some(match transfer.timers.take_due(now)? {
            0 => Timer::Send,
            1 => Timer::User,
            _ => Timer::Rest,
        })
    }
}

/// Longest time between two probes of a closed window (RFC 9293, 3.8.6.1 allows any; Linux has this).
const PROBE_INTERVAL_MAX: Duration = Duration::from_secs(120);

impl Connection {
    /// Does what is due at `now`.
    pub(crate) fn on_timeout(&mut self, shared: &mut Shared, now: Instant) -> Fate {
        while let Some(timer) = self.take_due_timer(now) {
            let fate = match timer {
                Timer::Handshake => self.on_handshake_timeout(shared, now),
                Timer::Persist => self.on_persist_timeout(shared, now),
                Timer::DelayedAck => self.on_delayed_ack_timeout(shared),
                Timer::Keepalive => self.on_keepalive_timeout(shared, now),
                Timer::Close => self.on_close_timeout(shared, now),
                Timer::Send => self.on_send_timeout(),
                Timer::User => self.on_user_timeout(shared, now),
                Timer::Rest => self.on_rest_timeout(shared, now),
            };
            if fate != Fate::Alive {
                return fate;
            }
        }
        if self.recovery_deadline().is_some_and(|at| at <= now) {
            return self.on_recovery_timeout(shared, now);
        }
        Fate::Alive
    }

    /// RFC 9293, 3.8.3: connecting goes on for at least three minutes; Linux's six retries take 127 s and one more backoff.
    fn on_handshake_timeout(&mut self, shared: &mut Shared, now: Instant) -> Fate {
        let retries = match self.state {
            State::SynSent => self.options.syn_retries.unwrap_or(shared.config.syn_retries),
            _ => shared.config.syn_ack_retries,
        };
        let waited = since_micros(self.handshake_sent_at, now);
        if self.handshake_timeouts >= retries
            || self.options.user_timeout.is_some_and(|limit| waited >= limit)
        {
            shared.counters.attempt_fails += 1;
            return self.fail(TcpError::TimedOut, shared, now);
        }
        shared.counters.timeouts += 1;
        self.handshake_timeouts += 1;
        self.rtt.back_off();
        self.flags.handshake_due = true;
        Fate::Alive
    }

    fn on_recovery_timeout(&mut self, shared: &mut Shared, now: Instant) -> Fate {
        let outcome = self.with_recovery(shared, now, |recovery, context| recovery.on_timeout(context));
        shared.counters.add_recovery_events(outcome.events);
        if outcome.congestion.is_some() {
            self.flags.announce_cwr = self.flags.ecn;
        }
        match outcome.action {
            TimeoutAction::Rto => self.on_retransmission_timeout(shared, now),
            TimeoutAction::SendProbe { last } => {
                self.wake(shared, now).loss_probe = Some(last);
                self.record(shared, TraceKind::LossProbe, now, |_| ());
                Fate::Alive
            }
            TimeoutAction::LossFound | TimeoutAction::None => Fate::Alive,
        }
    }

    fn on_retransmission_timeout(&mut self, shared: &mut Shared, now: Instant) -> Fate {
        self.record(shared, TraceKind::Timeout, now, |_| ());
        self.flags.lacks_room |= !self.has_send_room(); // The queue may hold less from now on.
        self.learn_path_mtu(shared, now);
        let timeouts = self.wake(shared, now).recovery.timeouts();
        if timeouts > u32::from(shared.config.retries_suspect) {
            self.suspect_black_hole(shared, now);
        }
        let limit = match self.flags.orphaned {
            true => shared.config.orphan_retries,
            false => shared.config.retries_max,
        };
        let exhausted = timeouts > u32::from(limit) && self.has_retried_for_long(limit, shared, now);
        if self.options.user_timeout.is_none() && exhausted && !self.is_held_off(now) {
            return self.give_up(shared, now);
        }
        Fate::Alive
    }

    /// Whether the retransmissions took as long as that many do when each timeout is twice the one before. They take less when
    /// SACKs end the backoff and nothing else moves, and RFC 9293, 3.8.3, counts time.
    fn has_retried_for_long(&self, retries: u8, shared: &Shared, now: Instant) -> bool {
        let since = self.transfer.as_ref().and_then(|transfer| transfer.recovery.retransmitting_since());
        let timeout = |doublings: u32| {
            let factor = 1u32.checked_shl(doublings).unwrap_or(u32::MAX);
            (shared.config.rto_min * factor).min(Duration::from_micros(RTO_MAX_US))
        };
        let expected: Duration = (1..=u32::from(retries)).map(timeout).sum();
        since.is_none_or(|since| now.since(since) >= expected)
    }

    /// Whether the peer took back its window and goes on saying so: what is sent again are probes then, and their answers keep
    /// the connection (RFC 9293, 3.8.6.1, MUST-37). As on Linux, not for a connection without socket.
    fn is_held_off(&self, now: Instant) -> bool {
        self.send.snd_wnd == 0
            && !self.flags.orphaned
            && since_millis(self.tally.last_ack_ms, now) <= 2 * PROBE_INTERVAL_MAX
    }

    /// The window is still closed, or too small for a segment worth sending.
    fn on_persist_timeout(&mut self, shared: &mut Shared, now: Instant) -> Fate {
        if !self.is_persisting() {
            return Fate::Alive;
        }
        // RFC 9293, 3.8.6.1 (MUST-37): a peer that answers keeps its zero window as long as it likes; one without socket here
        // does not.
        let limit =
            if self.flags.orphaned { shared.config.orphan_retries } else { shared.config.retries_max };
        if self.send.probes > limit {
            return self.give_up(shared, now);
        }
        if self.send.snd_wnd > 0 {
            self.flags.window_override = true;
            return Fate::Alive;
        }
        shared.counters.window_probes += 1;
        self.flags.probe_due = true;
        self.send.probes = self.send.probes.saturating_add(1);
        self.send.probe_backoff = self.send.probe_backoff.saturating_add(1);
        self.schedule_persist(now);
        Fate::Alive
    }

    /// Sets the persist timer: the retransmission timeout, doubled with each probe.
    pub(crate) fn schedule_persist(&mut self, now: Instant) {
        let doublings = u32::from(self.send.probe_backoff.min(16));
        let interval = (self.rtt.rto() * (1 << doublings)).min(PROBE_INTERVAL_MAX);
        self.set_timer(Timer::Persist, now + interval);
    }

    fn on_delayed_ack_timeout(&mut self, shared: &mut Shared) -> Fate {
        if self.receive.is_ack_pending() {
            shared.counters.delayed_acks += 1;
            self.receive.ack_now();
        }
        Fate::Alive
    }

    /// Time since anything was received.
    pub(crate) fn idle(&self, now: Instant) -> Duration {
        let received = since_millis(self.tally.last_received_ms, now);
        received.min(since_millis(self.tally.last_ack_ms, now))
    }

    /// RFC 9293, 3.8.4: probes only when nothing is in flight and nothing came for the interval.
    fn on_keepalive_timeout(&mut self, shared: &mut Shared, now: Instant) -> Fate {
        if !self.options.keepalive || !self.state.is_synchronised() {
            return Fate::Alive;
        }
        let idle = self.idle(now);
        if self.in_flight() > 0 || self.unsent_len() > 0 {
            self.set_timer(Timer::Keepalive, now + self.options.keepalive_idle);
            return Fate::Alive;
        }
        if idle < self.options.keepalive_idle && self.send.probes == 0 {
            self.set_timer(Timer::Keepalive, now + (self.options.keepalive_idle - idle));
            return Fate::Alive;
        }
        let expired = match self.options.user_timeout {
            Some(limit) => self.send.probes > 0 && idle >= limit,
            None => self.send.probes >= self.options.keepalive_probes,
        };
        if expired {
            self.flags.reset_due = true;
            shared.counters.abort_on_timeout += 1;
            self.error = Some(TcpError::TimedOut);
            return Fate::Alive;
        }
        shared.counters.keepalive_probes += 1;
        self.send.probes = self.send.probes.saturating_add(1);
        self.flags.probe_due = true;
        self.set_timer(Timer::Keepalive, now + self.options.keepalive_interval);
        Fate::Alive
    }

    fn on_close_timeout(&mut self, shared: &mut Shared, now: Instant) -> Fate {
        shared.counters.fin_wait2_timeout += u64::from(self.state == State::FinWait2);
        self.finish(shared, now)
    }

    /// What cork or `MSG_MORE` held back goes out after 200 ms, as on Linux; what the pacer held goes when its time has come.
    fn on_send_timeout(&mut self) -> Fate {
        // With something in flight nothing is held by this timer: it is the pacer's.
        if (self.options.cork || self.flags.held_for_more) && self.is_all_acknowledged() {
            self.push_held();
            self.flags.more_follows = false; // It did not come in time.
        }
        Fate::Alive
    }

    /// RFC 5482: data was unacknowledged, or the window closed, for longer than the user allows.
    fn on_user_timeout(&mut self, shared: &mut Shared, now: Instant) -> Fate {
        if self.has_unacknowledged() { self.give_up(shared, now) } else { Fate::Alive }
    }

    fn give_up(&mut self, shared: &mut Shared, now: Instant) -> Fate {
        shared.counters.abort_on_timeout += 1;
        let error = self.soft_error.unwrap_or(TcpError::TimedOut);
        self.fail(error, shared, now)
    }
}
