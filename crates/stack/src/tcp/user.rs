//! Calls of the user (RFC 9293, 3.10.1 to 3.10.6), none of which waits.

use std::sync::Arc;

use clock::Instant;

use crate::config::TcpOptions;
use crate::congestion::Algorithm;
use crate::tcp::connection::{Connection, Events, Fate, Shared, State};
use crate::tcp::timers::Timer;

/// Why a connection failed; what `SO_ERROR` has on Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpError {
    /// A reset answered our SYN (`ECONNREFUSED`).
    Refused,
    /// A reset ended an established connection (`ECONNRESET`).
    Reset,
    /// A reset came after the peer had closed (`EPIPE`).
    BrokenPipe,
    /// The peer did not answer (`ETIMEDOUT`).
    TimedOut,
    /// ICMP: no route to the host (`EHOSTUNREACH`).
    HostUnreachable,
    /// ICMP: no route to its network (`ENETUNREACH`).
    NetworkUnreachable,
    /// ICMP: the host does not speak TCP (`ENOPROTOOPT`).
    ProtocolUnreachable,
    /// The application ended it (`ECONNABORTED`).
    Aborted,
}

impl std::fmt::Display for TcpError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            TcpError::Refused => "connection refused",
            TcpError::Reset => "connection reset by peer",
            TcpError::BrokenPipe => "broken pipe",
            TcpError::TimedOut => "connection timed out",
            TcpError::HostUnreachable => "no route to host",
            TcpError::NetworkUnreachable => "network is unreachable",
            TcpError::ProtocolUnreachable => "protocol not available",
            TcpError::Aborted => "connection aborted",
        })
    }
}

impl std::error::Error for TcpError {}

/// Why nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// The buffer is full (`EAGAIN`); an event reports when there is space.
    WouldBlock,
    /// The connection is not established yet (`EAGAIN` on a connecting socket).
    Connecting,
    /// Our side is closed (`EPIPE`).
    Closed,
    /// The connection failed.
    Failed(TcpError),
    /// There is no such connection (`ENOTCONN`).
    NotConnected,
}

/// Why nothing was received. The end of the stream is no error: zero octets are received there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecvError {
    /// There is no data (`EAGAIN`), perhaps because the handshake is not over; an event reports when some arrives.
    WouldBlock,
    /// The connection failed.
    Failed(TcpError),
    /// There is no such connection (`ENOTCONN`).
    NotConnected,
}

/// Why an option was not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetOptionError {
    /// There is no such connection.
    NotConnected,
}

/// Which direction to shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// Receiving: it no longer waits. What comes all the same can be read, as on Linux.
    Read,
    /// Sending has ended: a FIN follows the queue.
    Write,
    /// Both.
    Both,
}

impl Connection {
    /// Queues `data` for sending; returns how much of it found room.
    pub(crate) fn send(
        &mut self,
        data: &[u8],
        shared: &mut Shared,
        now: Instant,
    ) -> Result<usize, SendError> {
        if let Some(error) = self.error.take() {
            return Err(SendError::Failed(error));
        }
        match self.state {
            _ if self.flags.write_closed => return Err(SendError::Closed),
            State::SynSent => return Err(SendError::Connecting),
            State::SynReceived if !self.flags.fast_open_child => return Err(SendError::Connecting),
            State::SynReceived | State::Established | State::CloseWait => {}
            _ => return Err(SendError::Closed),
        }
        Ok(self.enqueue(data, shared, now)).and_then(|taken| match taken {
            0 if !data.is_empty() => Err(SendError::WouldBlock),
            taken => Ok(taken),
        })
    }

    /// The same, and the last octet that is taken is urgent (`MSG_OOB`).
    pub(crate) fn send_urgent(
        &mut self,
        data: &[u8],
        shared: &mut Shared,
        now: Instant,
    ) -> Result<usize, SendError> {
        let taken = self.send(data, shared, now)?;
        if taken > 0 {
            self.mark_last_as_urgent();
        }
        Ok(taken)
    }

    /// Puts what fits into the queue.
    pub(crate) fn enqueue(&mut self, data: &[u8], shared: &mut Shared, now: Instant) -> usize {
        let room = self.send_room();
        self.restart_after_idle(shared, now);
        let wanted = data.len().min(room);
        let granted = wanted.min(self.send.queue.room_for_writer(&shared.buffers));
        let taken = self.send.queue.push(&mut shared.buffers, &data[..granted]);
        if taken > 0 {
            (self.flags.push, self.flags.more_follows, self.flags.held_for_more) = (false, false, false);
        }
        self.flags.lacks_memory |= taken < wanted;
        if taken < data.len() {
            self.flags.writer_waits = true;
        }
        // Also of a write that was taken whole.
        self.flags.lacks_room |= !self.has_send_room();
        if matches!(self.state, State::Established | State::CloseWait) {
            self.update_persist(now);
        }
        if taken > 0 && !self.is_timer_set(Timer::User) {
            self.restart_user_timeout(shared, now);
        }
        taken
    }

    /// Whether it may write some even from the last of the buffers.
    pub(crate) fn is_modest_writer(&self) -> bool {
        self.send.queue.is_modest()
    }

    /// There are buffers again, after a write failed for lack of them.
    pub(crate) fn on_memory(&mut self) {
        self.flags.lacks_memory = false;
        self.flags.starved = false;
        self.tell_writer();
    }

    /// Whether anything, a SYN or FIN as well, is sent and not acknowledged, or is to be sent.
    pub(crate) fn has_unacknowledged(&self) -> bool {
        self.send.snd_una != self.send.snd_nxt || !self.send.queue.is_empty() || self.is_fin_due()
    }

    /// Starts the user timeout anew if anything waits to be acknowledged (RFC 5482, 3).
    pub(crate) fn restart_user_timeout(&mut self, shared: &mut Shared, now: Instant) {
        match self.options.user_timeout {
            Some(limit) if self.has_unacknowledged() => {
                self.wake(shared, now);
                self.set_timer(Timer::User, now + limit);
            }
            _ => self.stop_timer(Timer::User),
        }
    }

    /// Copies received octets out.
    pub(crate) fn recv(
        &mut self,
        out: &mut [u8],
        shared: &mut Shared,
        now: Instant,
    ) -> Result<usize, RecvError> {
        if self.rare.is_none() && !self.receive.queue.is_empty() {
            let count = self.receive.queue.read(&mut shared.buffers, out);
            self.on_read(count, shared, now);
            return Ok(count);
        }
        let found = self.peek(0, out, shared);
        match found {
            Ok(count) => self.consume(count, shared, now),
            Err(RecvError::WouldBlock) => self.pass_mark(shared),
            Err(_) => {}
        }
        found
    }

    /// Copies received octets from `offset` on without taking them.
    pub(crate) fn peek(
        &mut self,
        offset: usize,
        out: &mut [u8],
        shared: &Shared,
    ) -> Result<usize, RecvError> {
        self.may_read()?;
        let stretch = self.stretch_from(offset);
        let count = stretch.len.min(out.len());
        self.receive.queue.read_at(&shared.buffers, offset + stretch.skipped, &mut out[..count]);
        if count == 0 && !out.is_empty() && !self.is_at_end() {
            return Err(RecvError::WouldBlock);
        }
        Ok(count)
    }

    fn may_read(&mut self) -> Result<(), RecvError> {
        if !self.receive.queue.is_empty() || self.receive.is_finished() {
            return Ok(());
        }
        self.error.take().map_or(Ok(()), |error| Err(RecvError::Failed(error)))
    }

    fn is_at_end(&self) -> bool {
        self.stretch_from(0).len == 0 && self.readiness().read_closed
    }

    /// Received data that lies in one piece, up to an urgent octet.
    pub(crate) fn front<'a>(&self, shared: &'a Shared) -> &'a [u8] {
        if self.rare.is_none() {
            return self.receive.queue.front(&shared.buffers);
        }
        let stretch = self.stretch_from(0);
        let mut pieces = self.receive.queue.slices_at(&shared.buffers, stretch.skipped);
        let front = pieces.next().unwrap_or_default();
        &front[..front.len().min(stretch.len)]
    }

    /// Takes octets that were looked at, and an urgent octet in front of them; tells the peer if that opened the window far.
    pub(crate) fn consume(&mut self, octets: usize, shared: &mut Shared, now: Instant) {
        self.pass_mark(shared);
        self.receive.queue.consume(&mut shared.buffers, octets);
        self.forget_passed_mark();
        self.on_read(octets, shared, now);
    }

    fn on_read(&mut self, octets: usize, shared: &Shared, now: Instant) {
        if octets == 0 {
            return; // The end of the stream opens no window.
        }
        self.receive.on_read(octets, &self.options, self.rtt.srtt(), now);
        if self.state.may_receive() && self.receive.is_update_due(!shared.is_under_pressure()) {
            self.receive.ack_now();
        }
    }

    /// Closes one direction or both (shutdown(2)).
    pub(crate) fn shutdown(&mut self, how: Shutdown, shared: &mut Shared, now: Instant) {
        if matches!(how, Shutdown::Read | Shutdown::Both) {
            self.flags.read_closed = true;
            self.raise(Events::READABLE | Events::READ_CLOSED);
        }
        if matches!(how, Shutdown::Write | Shutdown::Both) {
            self.close_write(shared, now);
        }
    }

    /// Queues a FIN behind the data (RFC 9293, 3.10.4).
    fn close_write(&mut self, shared: &mut Shared, now: Instant) {
        if self.flags.write_closed {
            return;
        }
        match self.state {
            State::SynReceived | State::Established => self.set_state(State::FinWait1, shared, now),
            State::CloseWait => self.set_state(State::LastAck, shared, now),
            _ => return,
        }
        self.flags.write_closed = true;
        self.flags.more_follows = false;
        self.update_persist(now);
        if !self.is_timer_set(Timer::User) {
            self.restart_user_timeout(shared, now);
        }
        self.raise(Events::WRITABLE);
    }

    /// The socket is closed: there are no more reads or writes.
    ///
    /// RFC 9293, 3.10.4; RFC 2525, 2.17: with data unread the connection is reset, so that the peer knows it was lost.
    pub(crate) fn close(&mut self, shared: &mut Shared, now: Instant) -> Fate {
        self.abandon(shared);
        let unread = !self.receive.queue.is_empty();
        match self.state {
            State::Closed | State::TimeWait => return Fate::Over,
            State::SynSent => return self.finish(shared, now),
            _ if self.options.linger.is_some_and(|time| time.is_zero()) => {
                shared.counters.abort_on_linger += 1;
                return self.abort(shared, now);
            }
            _ if unread => {
                shared.counters.abort_on_close += 1;
                self.flags.reset_due = true;
                return Fate::Alive;
            }
            State::FinWait2 => {
                shared.counters.abort_on_linger += u64::from(self.options.no_fin_wait_2);
                self.limit_fin_wait_2(shared, now);
            }
            _ => {}
        }
        self.close_write(shared, now);
        if shared.orphans > shared.config.orphans_max {
            shared.counters.abort_on_memory += 1;
            return self.abort(shared, now);
        }
        Fate::Alive
    }

    /// Ends the connection with a reset (RFC 9293, 3.10.5).
    pub(crate) fn abort(&mut self, shared: &mut Shared, now: Instant) -> Fate {
        match self.state {
            State::Closed | State::TimeWait => Fate::Over,
            State::SynSent => self.finish(shared, now),
            // Both sides have said all.
            State::Closing | State::LastAck if self.flags.fin_was_sent => self.finish(shared, now),
            _ => {
                self.flags.reset_due = true;
                Fate::Alive
            }
        }
    }

    /// Nobody will read what the peer may still send: its FIN is waited for so long, if at all.
    pub(crate) fn limit_fin_wait_2(&mut self, shared: &Shared, now: Instant) {
        if self.options.no_fin_wait_2 {
            self.flags.reset_due = true;
            return;
        }
        let time = self.options.fin_timeout.unwrap_or(shared.config.fin_timeout);
        self.set_timer(Timer::Close, now + time);
    }

    /// RFC 5681, 4.1: after idling longer than a retransmission timeout the window is no longer known to be right. Configuration may
    /// have it kept.
    fn restart_after_idle(&mut self, shared: &mut Shared, now: Instant) {
        if self.transfer.is_some() && self.is_all_acknowledged() && self.send.queue.is_empty() {
            let shrinks = shared.config.slow_start_after_idle;
            self.with_recovery(shared, now, |recovery, context| {
                recovery.restart_after_idle(shrinks, context)
            });
        }
    }

    /// Changes the options; what depends on them follows.
    pub(crate) fn set_options(&mut self, options: Arc<TcpOptions>, shared: &mut Shared, now: Instant) {
        let old = std::mem::replace(&mut self.options, options);
        let new = &self.options;
        if new.congestion != old.congestion {
            self.change_controller(shared, now);
        }
        let new = &self.options;
        if let Some(limit) = new.receive_buffer.filter(|_| new.receive_buffer != old.receive_buffer) {
            self.receive.set_limit(limit);
        }
        self.receive.window_clamp = new.window_clamp.unwrap_or(u32::MAX);
        if new.receive_low_water != old.receive_low_water {
            self.follow_low_water();
            if self.has_readable() {
                self.raise(Events::READABLE);
            }
        }
        let new = &self.options;
        let has_new_mss = new.mss_max != old.mss_max;
        if new.no_delay && !old.no_delay || old.cork && !new.cork {
            self.push_held();
        }
        if has_new_mss {
            self.update_mss(shared);
        }
        if self.options.user_timeout != old.user_timeout {
            self.restart_user_timeout(shared, now);
        }
        self.tell_writer();
        let keepalive = |options: &TcpOptions| (options.keepalive, options.keepalive_idle);
        if keepalive(&self.options) != keepalive(&old) {
            self.restart_keepalive(now);
        }
    }

    /// Lets go what is held back. What is written after that is held back anew.
    pub(crate) fn push_held(&mut self) {
        self.flags.push |= self.unsent_len() > 0;
    }

    /// What was queued last is to be followed by more (`MSG_MORE`).
    pub(crate) fn expect_more(&mut self) {
        let has_unsent = self.unsent_len() > 0;
        (self.flags.more_follows, self.flags.held_for_more) = (has_unsent, has_unsent);
    }

    /// Nothing follows: what was held for more is small data like any other.
    pub(crate) fn expect_no_more(&mut self) {
        (self.flags.more_follows, self.flags.held_for_more) = (false, false);
    }

    /// Restarts the keepalive timer, if it is on, for the rest of the time that the connection may be idle.
    pub(crate) fn restart_keepalive(&mut self, now: Instant) {
        if self.options.keepalive && self.state.is_synchronised() && self.state != State::TimeWait {
            self.set_timer(Timer::Keepalive, now + (self.options.keepalive_idle - self.idle(now)));
        } else {
            self.stop_timer(Timer::Keepalive);
        }
    }

    /// Sets `TCP_QUICKACK`.
    pub(crate) fn set_quick_ack(&mut self, on: bool) {
        self.receive.set_quick_ack(on);
    }

    /// Controller in use.
    pub fn algorithm(&self) -> Algorithm {
        self.options.congestion
    }
}
