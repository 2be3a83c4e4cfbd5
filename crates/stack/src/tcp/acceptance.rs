//! Whether a segment is acceptable: sequence number, timestamps, resets, and the answer to unacceptable segments (RFC 9293,
//! 3.10.7.4, first to fifth step; RFC 5961; RFC 7323, 5).

use crate::segment::{Segment, Timestamps};
use crate::tcp::connection::{Connection, Fate, Origin, Shared, State, millis, since_millis};
use crate::tcp::user::TcpError;
use clock::{Duration, Instant};
use wire::tcp::flag;

/// RFC 7323, 5.5: a timestamp older than this says nothing any more.
const TIMESTAMP_LIFETIME: Duration = Duration::from_secs(24 * 24 * 3600);

impl Connection {
    /// Whether it is a SYN before the expected sequence number.
    pub(super) fn is_syn_again(&self, segment: &Segment<'_>) -> bool {
        segment.has(flag::SYN) && segment.range().end.is_at_or_before(self.receive.rcv_nxt)
    }

    /// The peer's SYN came again, and ours is not acknowledged yet. A SYN-ACK acknowledges it (RFC 9293, figure 8, line 6); to a
    /// bare SYN another SYN-ACK is the answer that its sender can use. That is no retry of ours, and counts as none.
    pub(super) fn on_syn_again(&mut self, segment: &Segment<'_>, shared: &mut Shared, now: Instant) -> Fate {
        if segment.has(flag::RST) {
            return Fate::Alive;
        }
        // Whoever gets a SYN or SYN-ACK without the setup of ECN does not use it (RFC 3168, 6.1.1).
        self.flags.ecn &= segment.has(flag::ECE);
        if segment.has(flag::ACK) && self.accepts_handshake_ack(segment) {
            self.note_timestamps(segment, now);
            self.establish(segment, shared, now);
            self.receive.ack_now();
            return self.on_acknowledgement(segment, shared, now);
        }
        self.flags.handshake_due = true;
        Fate::Alive
    }

    /// RFC 7323, 5.3. RST segments are exempt (5.2). So are those that lack the option: 3.2 would have them dropped (SHOULD), but paths
    /// that strip it after the handshake exist, and Linux takes them.
    pub(super) fn passes_paws(&mut self, segment: &Segment<'_>, shared: &mut Shared, now: Instant) -> bool {
        if !self.flags.timestamps || segment.has(flag::RST) {
            return true;
        }
        let Some(Timestamps { value, .. }) = segment.options.timestamps else {
            return true;
        };
        let old = (value.wrapping_sub(self.receive.ts_recent) as i32) < 0;
        if old && !self.is_ts_recent_outdated(now) && !self.is_reordered_ack(segment) {
            shared.counters.paws_estab += 1;
            self.answer_out_of_window(segment, shared, now);
            return false;
        }
        true
    }

    /// RFC 7323, 5.5: the peer's clock may have wrapped since TS.Recent was set.
    pub(super) fn is_ts_recent_outdated(&self, now: Instant) -> bool {
        let age_s = ((now.as_nanos() / 1_000_000_000) as u32).wrapping_sub(self.receive.ts_recent_at_s);
        u64::from(age_s) >= TIMESTAMP_LIFETIME.as_secs()
    }

    /// A pure ACK that was overtaken by another is harmless; Linux lets it pass as well.
    pub(super) fn is_reordered_ack(&self, segment: &Segment<'_>) -> bool {
        segment.is_empty()
            && segment.seq == self.receive.rcv_nxt
            && segment.ack.is_at_or_before(self.send.snd_una)
    }

    /// First step: the sequence number.
    pub(super) fn is_in_window(&mut self, segment: &Segment<'_>, shared: &mut Shared, now: Instant) -> bool {
        if self.receive.is_acceptable(segment.range()) {
            return true;
        }
        if segment.has(flag::RST) {
            return self.is_reset_at_fin(segment);
        }
        shared.counters.outside_window += 1;
        if segment.has(flag::SYN) && self.state != State::SynReceived {
            shared.counters.syn_challenge += 1;
            self.challenge(shared, now);
        } else {
            self.answer_out_of_window(segment, shared, now);
        }
        false
    }

    /// Answers by an ACK: at once for data, whose sender may have missed our ACK, and seldom for anything else, lest two
    /// hosts throw ACKs at each other for ever.
    pub(super) fn answer_out_of_window(&mut self, segment: &Segment<'_>, shared: &mut Shared, now: Instant) {
        let has_data = !segment.payload.is_empty() || segment.has(flag::FIN);
        if !has_data && !self.may_answer_again(shared, now) {
            return;
        }
        if has_data && self.receive.note_duplicate(segment.payload_seq(), segment.payload.len()) {
            shared.counters.delayed_ack_lost += 1;
        }
        self.receive.ack_now();
    }

    /// Whether the last answer of this connection was long enough ago.
    pub(super) fn may_answer_again(&mut self, shared: &mut Shared, now: Instant) -> bool {
        let recently =
            since_millis(self.tally.last_answered_ms, now) < shared.config.out_of_window_ack_interval;
        if recently && self.tally.last_answered_ms != 0 && self.state != State::SynReceived {
            shared.counters.acks_skipped += 1;
            return false;
        }
        self.tally.last_answered_ms = millis(now).max(1);
        true
    }

    /// RFC 5961: an ACK that lets an honest peer correct itself, and tells an attacker nothing.
    pub(super) fn challenge(&mut self, shared: &mut Shared, now: Instant) {
        if !self.may_answer_again(shared, now) {
            return;
        }
        if shared.challenges.may_send(shared.config.challenge_acks_per_second, now) {
            shared.counters.challenge_acks += 1;
            self.receive.ack_now();
        }
    }

    /// macOS resets what it has closed by the number of its FIN, not by the one behind it; Linux takes that too
    /// (`tcp_reset_check`). Guessing it is as hard as guessing `rcv_nxt`.
    fn is_reset_at_fin(&self, segment: &Segment<'_>) -> bool {
        let has_fin = matches!(self.state, State::CloseWait | State::LastAck | State::Closing);
        has_fin && segment.seq + 1 == self.receive.rcv_nxt
    }

    /// Second step: RST. RFC 5961, 3.2: only at exactly `rcv_nxt`, else it is challenged.
    pub(super) fn on_reset(&mut self, segment: &Segment<'_>, shared: &mut Shared, now: Instant) -> Fate {
        if segment.seq != self.receive.rcv_nxt && !self.is_reset_at_fin(segment) {
            self.challenge(shared, now);
            return Fate::Alive;
        }
        let error = match self.state {
            State::SynReceived if self.origin == Origin::Active => TcpError::Refused,
            State::CloseWait => TcpError::BrokenPipe,
            _ => TcpError::Reset,
        };
        self.flags.fin_refused = self.state == State::LastAck;
        match self.state {
            State::SynReceived => shared.counters.attempt_fails += 1,
            State::Established | State::CloseWait => shared.counters.estab_resets += 1,
            _ => {}
        }
        self.fail(error, shared, now)
    }

    /// Fifth step in SYN-RECEIVED: the ACK of our SYN.
    pub(super) fn accepts_handshake_ack(&self, segment: &Segment<'_>) -> bool {
        segment.ack.is_after(self.send.iss) && segment.ack.is_at_or_before(self.send.snd_nxt)
    }

    /// RFC 5961, 5.2: not older than the largest window, not beyond what was sent. Of what is beyond, a bare acknowledgement is
    /// answered; data and FINs are dropped without a word, as on Linux.
    pub(super) fn is_ack_plausible(
        &mut self,
        segment: &Segment<'_>,
        shared: &mut Shared,
        now: Instant,
    ) -> bool {
        if segment.ack.is_after(self.send.snd_nxt) {
            if segment.is_empty() {
                self.answer_out_of_window(segment, shared, now);
            }
            return false;
        }
        let oldest = self.send.snd_una - self.send.max_window;
        if segment.ack.is_before(oldest) {
            self.challenge(shared, now);
            return false;
        }
        true
    }
}
