//! Segments that arrive (RFC 9293, 3.10.7), in the RFC's order of steps.

use crate::segment::{Ecn, Segment, Timestamps};
use crate::tcp::connection::{Connection, Events, Fate, Shared, State, millis};
use crate::tcp::receiver::Received;
use crate::tcp::timers::Timer;
use crate::tcp::user::TcpError;
use crate::trace::TraceKind;
use clock::Instant;
use wire::tcp::flag;

impl Connection {
    /// Applies a segment with a valid checksum.
    pub(crate) fn on_segment(&mut self, segment: &Segment<'_>, shared: &mut Shared, now: Instant) -> Fate {
        self.tally.segs_in = self.tally.segs_in.wrapping_add(1);
        self.record(shared, TraceKind::Received, now, |record| {
            record.seq = segment.seq;
            record.ack = segment.ack;
            record.window = segment.window;
            record.len = segment.payload.len() as u16;
            record.flags = segment.flags;
        });
        match self.state {
            State::Closed | State::TimeWait => Fate::ResetPeer,
            State::SynSent => self.on_segment_in_syn_sent(segment, shared, now),
            _ => self.on_segment_synchronised(segment, shared, now),
        }
    }

    /// RFC 9293, 3.10.7.4.
    pub(super) fn on_segment_synchronised(
        &mut self,
        segment: &Segment<'_>,
        shared: &mut Shared,
        now: Instant,
    ) -> Fate {
        if !self.flags.syn_acknowledged && self.is_syn_again(segment) {
            return self.on_syn_again(segment, shared, now);
        }
        if !self.passes_paws(segment, shared, now) || !self.is_in_window(segment, shared, now) {
            return Fate::Alive;
        }
        if segment.has(flag::RST) {
            return self.on_reset(segment, shared, now);
        }
        if segment.has(flag::SYN) {
            shared.counters.syn_challenge += 1;
            self.challenge(shared, now);
            return Fate::Alive;
        }
        if !segment.has(flag::ACK) {
            return Fate::Alive;
        }
        if !self.flags.syn_acknowledged && !self.accepts_handshake_ack(segment) {
            return Fate::ResetPeer;
        }
        if !self.is_ack_plausible(segment, shared, now) {
            return Fate::Alive;
        }
        self.note_timestamps(segment, now);
        self.note_congestion_experienced(segment, shared);
        if !self.flags.syn_acknowledged {
            self.establish(segment, shared, now);
        }
        let fate = self.on_acknowledgement(segment, shared, now);
        if fate != Fate::Alive {
            return fate;
        }
        self.on_text(segment, shared, now)
    }

    /// RFC 7323, 4.3: TS.Recent follows segments that begin at or in front of what was last acknowledged.
    pub(super) fn note_timestamps(&mut self, segment: &Segment<'_>, now: Instant) {
        let Some(Timestamps { value, .. }) = segment.options.timestamps.filter(|_| self.flags.timestamps)
        else {
            return;
        };
        let newer = value.wrapping_sub(self.receive.ts_recent) as i32 >= 0 || self.is_ts_recent_outdated(now);
        if newer && segment.seq.is_at_or_before(self.receive.last_ack_sent) {
            self.receive.ts_recent = value;
            self.receive.ts_recent_at_s = (now.as_nanos() / 1_000_000_000) as u32;
        }
    }

    /// RFC 3168, 6.1.3.
    pub(super) fn note_congestion_experienced(&mut self, segment: &Segment<'_>, shared: &mut Shared) {
        if !self.flags.ecn {
            return;
        }
        if segment.has(flag::CWR) {
            self.flags.echo_congestion = false;
        }
        if segment.ecn == Ecn::Ce {
            shared.counters.in_ce += 1;
            if !self.flags.echo_congestion {
                self.receive.ack_now();
            }
            self.flags.echo_congestion = true;
        }
    }

    /// Sixth to eighth step: the urgent pointer, the text and the FIN.
    pub(super) fn on_text(&mut self, segment: &Segment<'_>, shared: &mut Shared, now: Instant) -> Fate {
        let is_empty = segment.payload.is_empty();
        if is_empty && segment.flags & (flag::FIN | flag::URG) == 0 || !self.state.may_receive() {
            return Fate::Alive;
        }
        if segment.has(flag::URG) || self.rare.is_some() {
            self.note_urgent(segment, shared);
            if is_empty && !segment.has(flag::FIN) {
                return Fate::Alive;
            }
        }
        let end = segment.payload_seq() + segment.payload.len() as u32;
        let has_reader = !(self.flags.orphaned || self.flags.read_closed && self.flags.write_closed);
        if !has_reader && end.is_after(self.receive.rcv_nxt) {
            shared.counters.abort_on_data += 1;
            let _: Fate = self.fail(TcpError::Reset, shared, now);
            return Fate::Refused;
        }
        self.tally.last_received_ms = millis(now);
        self.tally.data_segs_in = self.tally.data_segs_in.wrapping_add(1);
        let seq = segment.payload_seq();
        let received = self.receive.accept(seq, segment.payload, segment.has(flag::FIN), &mut shared.buffers);
        self.count_received(&received, shared);
        if received.in_order > 0 && self.has_readable() {
            self.raise(Events::READABLE);
        }
        if self.receive.is_ack_due_soon() && !self.may_hold_ack(shared) {
            self.receive.ack_now();
        }
        if self.receive.is_ack_delayed() && !self.is_timer_set(Timer::DelayedAck) {
            self.set_timer(Timer::DelayedAck, now + shared.config.delayed_ack_max);
        }
        if received.finished { self.on_fin(shared, now) } else { Fate::Alive }
    }

    /// Whether an acknowledgement that is due soon may wait for what the application sends: as long as it may send.
    pub(super) fn may_hold_ack(&self, shared: &Shared) -> bool {
        !shared.config.ack_hold_max.is_zero() && !self.flags.write_closed
    }

    pub(super) fn count_received(&mut self, received: &Received, shared: &mut Shared) {
        self.tally.bytes_received += u64::from(received.in_order);
        shared.counters.ofo_pruned += u64::from(received.pruned);
        match (received.out_of_order, received.exhausted) {
            (true, true) => shared.counters.ofo_drop += 1,
            (true, false) => shared.counters.ofo_queue += 1,
            (false, true) => shared.counters.rcv_q_drop += 1,
            (false, false) => {}
        }
        if received.outside_window && self.receive.offered() == 0 {
            shared.counters.zero_window_drop += 1;
        }
    }

    /// Eighth step.
    pub(super) fn on_fin(&mut self, shared: &mut Shared, now: Instant) -> Fate {
        self.raise(Events::READABLE | Events::READ_CLOSED);
        match self.state {
            State::SynReceived | State::Established => self.set_state(State::CloseWait, shared, now),
            State::FinWait1 => self.set_state(State::Closing, shared, now),
            State::FinWait2 => return self.enter_time_wait(shared, now),
            _ => {}
        }
        Fate::Alive
    }

    pub(super) fn enter_time_wait(&mut self, shared: &mut Shared, now: Instant) -> Fate {
        self.set_state(State::TimeWait, shared, now);
        self.stop_timers();
        self.end_transfer(shared, now);
        self.raise(Events::CLOSED | Events::READABLE | Events::WRITABLE);
        Fate::Over
    }
}
