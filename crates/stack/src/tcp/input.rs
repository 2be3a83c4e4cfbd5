//! Segments that arrive (RFC 9293, 3.10.7), in the RFC's order of steps.

use clock::{Duration, Instant};
use wire::tcp::flag;

use crate::congestion::Congestion;
use crate::recovery::{AckOutcome, AckSegment};
use crate::segment::{Ecn, Segment, SegmentOptions, Timestamps};
use crate::seq::SeqNum;
use crate::tcp::connection::{Connection, Events, Fate, Origin, Shared, State, millis, since_millis};
use crate::tcp::receiver::Received;
use crate::tcp::timers::Timer;
use crate::tcp::transfer::Transfer;
use crate::tcp::user::TcpError;
use crate::trace::TraceKind;

/// RFC 7323, 5.5: a timestamp older than this says nothing any more.
const TIMESTAMP_LIFETIME: Duration = Duration::from_secs(24 * 24 * 3600);

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
    fn on_segment_synchronised(&mut self, segment: &Segment<'_>, shared: &mut Shared, now: Instant) -> Fate {
        if self.send.snd_una == self.send.iss && self.is_syn_again(segment) {
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
        if self.send.snd_una == self.send.iss && !self.accepts_handshake_ack(segment) {
            return Fate::ResetPeer;
        }
        if !self.is_ack_plausible(segment, shared, now) {
            return Fate::Alive;
        }
        self.note_timestamps(segment, now);
        self.note_congestion_experienced(segment, shared);
        if self.send.snd_una == self.send.iss {
            self.establish(segment, shared, now);
        }
        let fate = self.on_acknowledgement(segment, shared, now);
        if fate != Fate::Alive {
            return fate;
        }
        self.on_text(segment, shared, now)
    }

    /// Whether it is a SYN in front of what is expected.
    fn is_syn_again(&self, segment: &Segment<'_>) -> bool {
        segment.has(flag::SYN) && segment.range().end.is_at_or_before(self.receive.rcv_nxt)
    }

    /// The peer's SYN came again, and ours is not acknowledged yet. A SYN-ACK acknowledges it (RFC 9293, figure 8, line 6); to a
    /// bare SYN another SYN-ACK is the answer that its sender can use. That is no retry of ours, and counts as none.
    fn on_syn_again(&mut self, segment: &Segment<'_>, shared: &mut Shared, now: Instant) -> Fate {
        if segment.has(flag::RST) {
            return Fate::Alive;
        }
        if segment.has(flag::ACK) && self.accepts_handshake_ack(segment) {
            self.note_timestamps(segment, now);
            self.establish(segment, shared, now);
            self.receive.ack_now();
            return self.on_acknowledgement(segment, shared, now);
        }
        self.handshakes = self.handshakes.saturating_sub(1).max(1);
        self.flags.handshake_due = true;
        Fate::Alive
    }

    /// RFC 7323, 5.3. RST segments are exempt (5.2); those that lack the option are dropped (3.2).
    fn passes_paws(&mut self, segment: &Segment<'_>, shared: &mut Shared, now: Instant) -> bool {
        if !self.flags.timestamps || segment.has(flag::RST) {
            return true;
        }
        let Some(Timestamps { value, .. }) = segment.options.timestamps else {
            return false;
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
    fn is_ts_recent_outdated(&self, now: Instant) -> bool {
        let age_s = ((now.as_nanos() / 1_000_000_000) as u32).wrapping_sub(self.receive.ts_recent_at_s);
        u64::from(age_s) >= TIMESTAMP_LIFETIME.as_secs()
    }

    /// A pure ACK that was overtaken by another is harmless; Linux lets it pass as well.
    fn is_reordered_ack(&self, segment: &Segment<'_>) -> bool {
        segment.is_empty()
            && segment.seq == self.receive.rcv_nxt
            && segment.ack.is_at_or_before(self.send.snd_una)
    }

    /// First step: the sequence number.
    fn is_in_window(&mut self, segment: &Segment<'_>, shared: &mut Shared, now: Instant) -> bool {
        if self.receive.is_acceptable(segment.range()) {
            return true;
        }
        if segment.has(flag::RST) {
            return false;
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
    fn answer_out_of_window(&mut self, segment: &Segment<'_>, shared: &mut Shared, now: Instant) {
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
    fn may_answer_again(&mut self, shared: &mut Shared, now: Instant) -> bool {
        let recently =
            since_millis(self.tally.last_answered_ms, now) < shared.config.out_of_window_ack_interval;
        if recently && self.tally.last_answered_ms != 0 && self.state != State::SynReceived {
            shared.counters.acks_skipped += 1;
            return false;
        }
        self.tally.last_answered_ms = millis(now).max(1);
        true
    }

    /// RFC 5961: an ACK that lets an honest peer correct itself, and tells a liar nothing.
    fn challenge(&mut self, shared: &mut Shared, now: Instant) {
        if !self.may_answer_again(shared, now) {
            return;
        }
        if shared.challenges.may_send(shared.config.challenge_acks_per_second, now) {
            shared.counters.challenge_acks += 1;
            self.receive.ack_now();
        }
    }

    /// Second step: RST. RFC 5961, 3.2: only at exactly `rcv_nxt`, else it is challenged.
    fn on_reset(&mut self, segment: &Segment<'_>, shared: &mut Shared, now: Instant) -> Fate {
        if segment.seq != self.receive.rcv_nxt {
            self.challenge(shared, now);
            return Fate::Alive;
        }
        let error = match self.state {
            State::SynReceived if self.origin == Origin::Active => TcpError::Refused,
            State::CloseWait => TcpError::BrokenPipe,
            _ => TcpError::Reset,
        };
        match self.state {
            State::SynReceived => shared.counters.attempt_fails += 1,
            State::Established | State::CloseWait => shared.counters.estab_resets += 1,
            _ => {}
        }
        self.fail(error, shared, now)
    }

    /// Fifth step in SYN-RECEIVED: the ACK of our SYN.
    fn accepts_handshake_ack(&self, segment: &Segment<'_>) -> bool {
        segment.ack.is_after(self.send.iss) && segment.ack.is_at_or_before(self.send.snd_nxt)
    }

    /// RFC 5961, 5.2: not older than the largest window, not beyond what was sent.
    fn is_ack_plausible(&mut self, segment: &Segment<'_>, shared: &mut Shared, now: Instant) -> bool {
        if segment.ack.is_after(self.send.snd_nxt) {
            self.answer_out_of_window(segment, shared, now);
            return false;
        }
        let oldest = self.send.snd_una - self.send.max_window;
        if segment.ack.is_before(oldest) {
            self.challenge(shared, now);
            return false;
        }
        true
    }

    /// RFC 7323, 4.3: TS.Recent follows segments that begin at or in front of what was last acknowledged.
    fn note_timestamps(&mut self, segment: &Segment<'_>, now: Instant) {
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
    fn note_congestion_experienced(&mut self, segment: &Segment<'_>, shared: &mut Shared) {
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

    /// Fifth step: the acknowledgement, the window, and what they set in motion.
    fn on_acknowledgement(&mut self, segment: &Segment<'_>, shared: &mut Shared, now: Instant) -> Fate {
        self.tally.last_ack_ms = millis(now);
        if !self.flags.orphaned {
            self.send.probes = 0;
        }
        let window_before = self.send.snd_wnd;
        self.update_window(segment);
        let outcome = self.recover(segment, self.send.snd_wnd != window_before, shared, now);
        if segment.ack.is_after(self.send.snd_una) {
            self.advance_una(segment.ack, shared, now);
        } else if segment.is_empty() && segment.ack.is_before(self.send.snd_una) {
            shared.counters.old_acks += 1;
        }
        self.count_recovery(&outcome, shared);
        self.update_persist(now);
        self.tell_writer();
        self.on_fin_acknowledged(shared, now)
    }

    /// RFC 9293, 3.10.7.4: the window of the newest segment counts. Of two that cannot be told apart the larger does, as either
    /// may have been overtaken, unless one closes the window; so does Linux.
    fn update_window(&mut self, segment: &Segment<'_>) {
        let scale = if segment.has(flag::SYN) { 0 } else { self.send.scale };
        let window = u32::from(segment.window) << scale;
        let is_newer = segment.seq.is_after(self.send.snd_wl1)
            || segment.seq == self.send.snd_wl1
                && (segment.ack.is_after(self.send.snd_wl2)
                    || segment.ack == self.send.snd_wl2 && (window > self.send.snd_wnd || window == 0));
        if segment.ack.is_at_or_after(self.send.snd_una) && is_newer
            || segment.ack.is_after(self.send.snd_una)
        {
            self.send.snd_wnd = window;
            self.send.max_window = self.send.max_window.max(window);
            self.send.snd_wl1 = segment.seq;
            self.send.snd_wl2 = segment.ack;
        }
    }

    fn recover(
        &mut self,
        segment: &Segment<'_>,
        window_changed: bool,
        shared: &mut Shared,
        now: Instant,
    ) -> AckOutcome {
        let is_plain = segment.options.sack.is_empty() && !segment.has(flag::ECE);
        let is_quiet = |transfer: &Transfer| is_plain && transfer.recovery.is_quiet();
        if self.transfer.as_deref().is_none_or(is_quiet) {
            return AckOutcome::default(); // There is nothing of which it could tell.
        }
        let timestamps = segment.options.timestamps.filter(|_| self.flags.timestamps);
        let echoed = timestamps.map(|timestamps| timestamps.echo);
        let elapsed = echoed.map(|echo| self.timestamp_now(now).wrapping_sub(echo));
        let ack = AckSegment {
            ack: segment.ack,
            snd_una: self.data_una(),
            snd_nxt: self.send.snd_nxt,
            sack: if self.flags.sack { &segment.options.sack } else { &[] },
            ece: self.flags.ecn && segment.has(flag::ECE),
            echoed,
            timestamp_rtt: elapsed.filter(|ms| *ms < 1 << 24).map(|ms| Duration::from_millis(ms.into())),
            has_payload: !segment.payload.is_empty() || segment.has(flag::FIN),
            window_changed,
            has_unsent: self.has_sendable(),
        };
        self.with_recovery(shared, now, |recovery, context| recovery.on_ack(&ack, context))
    }

    /// Whether there is new data that nothing but the congestion window holds back.
    fn has_sendable(&self) -> bool {
        let octets = self.unsent_len().min(self.usable_window());
        let may_be_small =
            self.options.no_delay && !self.options.cork || self.flags.push || self.flags.write_closed;
        octets >= u32::from(self.send.mss) || octets > 0 && may_be_small
    }

    fn advance_una(&mut self, ack: SeqNum, shared: &mut Shared, now: Instant) {
        let start = self.data_una();
        let fin = self.fin_seq();
        let data_end = ack.min(fin);
        let octets = if data_end.is_after(start) { data_end.since(start) } else { 0 };
        self.send.queue.consume(&mut shared.buffers, octets as usize);
        self.tally.bytes_acked += u64::from(octets);
        self.send.snd_una = ack;
        self.soft_error = None;
        self.judge_mtu_probe(ack, shared, now);
        self.restart_user_timeout(shared, now);
    }

    fn count_recovery(&mut self, outcome: &AckOutcome, shared: &mut Shared) {
        shared.counters.add_recovery_events(outcome.events);
        if let Some(congestion) = outcome.congestion {
            shared.counters.ecn_reductions += u64::from(congestion == Congestion::Ecn);
            self.flags.announce_cwr = self.flags.ecn;
        }
    }

    /// Whether data waits for a window that is closed, or too small, with nothing in flight whose acknowledgement could open
    /// it: then only a probe helps (RFC 9293, 3.8.6.1).
    pub(crate) fn is_persisting(&self) -> bool {
        let waits = self.unsent_len() > 0 && self.send.snd_una != self.send.iss || self.is_fin_due();
        waits
            && self.is_all_acknowledged()
            && self.state.may_send()
            && self.usable_window() < self.unsent_len().max(1)
    }

    pub(crate) fn update_persist(&mut self, now: Instant) {
        if !self.is_persisting() {
            self.stop_timer(Timer::Persist);
            self.send.probe_backoff = 0;
            self.send.probes = 0; // The window opened: probes of the next time it closes are counted anew.
        } else if !self.is_timer_set(Timer::Persist) {
            self.schedule_persist(now);
        }
    }

    fn tell_writer(&mut self) {
        if self.flags.writer_waits && self.has_send_room() {
            self.flags.writer_waits = false;
            self.raise(Events::WRITABLE);
        }
    }

    /// Our FIN may be among what was acknowledged.
    fn on_fin_acknowledged(&mut self, shared: &mut Shared, now: Instant) -> Fate {
        if !self.fin_acknowledged() {
            return Fate::Alive;
        }
        match self.state {
            State::FinWait1 => {
                self.set_state(State::FinWait2, shared, now);
                if self.flags.orphaned {
                    self.start_fin_wait2_timer(shared, now);
                }
                Fate::Alive
            }
            State::Closing => self.enter_time_wait(shared, now),
            State::LastAck => self.finish(shared, now),
            _ => Fate::Alive,
        }
    }

    /// Sixth to eighth step: the urgent pointer, which changes nothing here (data is delivered in line; RFC 6093), the text
    /// and the FIN.
    fn on_text(&mut self, segment: &Segment<'_>, shared: &mut Shared, now: Instant) -> Fate {
        if segment.payload.is_empty() && !segment.has(flag::FIN) || !self.state.may_receive() {
            return Fate::Alive;
        }
        let end = segment.payload_seq() + segment.payload.len() as u32;
        let has_reader = !(self.flags.orphaned || self.flags.read_closed && self.flags.write_closed);
        if !has_reader && end.is_after(self.receive.rcv_nxt) {
            shared.counters.abort_on_data += 1;
            self.error = Some(TcpError::Reset);
            self.flags.reset_due = true;
            return Fate::Alive;
        }
        self.tally.last_received_ms = millis(now);
        self.tally.data_segs_in = self.tally.data_segs_in.wrapping_add(1);
        let seq = segment.payload_seq();
        let received = self.receive.accept(seq, segment.payload, segment.has(flag::FIN), &mut shared.buffers);
        self.count_received(&received, shared);
        if received.in_order > 0 {
            self.raise(Events::READABLE);
        }
        if self.receive.is_ack_pending()
            && !self.receive.is_ack_due()
            && !self.is_timer_set(Timer::DelayedAck)
        {
            self.set_timer(Timer::DelayedAck, now + shared.config.delayed_ack_max);
        }
        if received.finished { self.on_fin(shared, now) } else { Fate::Alive }
    }

    fn count_received(&mut self, received: &Received, shared: &mut Shared) {
        self.tally.bytes_received += u64::from(received.in_order);
        shared.counters.ofo_queue += u64::from(received.out_of_order);
        if received.exhausted {
            let in_gap = self.receive.has_gaps();
            *if in_gap { &mut shared.counters.ofo_drop } else { &mut shared.counters.rcv_q_drop } += 1;
        }
        if received.outside_window && self.receive.offered() == 0 {
            shared.counters.zero_window_drop += 1;
        }
    }

    /// Eighth step.
    fn on_fin(&mut self, shared: &mut Shared, now: Instant) -> Fate {
        self.raise(Events::READABLE | Events::READ_CLOSED);
        match self.state {
            State::SynReceived | State::Established => self.set_state(State::CloseWait, shared, now),
            State::FinWait1 => self.set_state(State::Closing, shared, now),
            State::FinWait2 => return self.enter_time_wait(shared, now),
            _ => {}
        }
        Fate::Alive
    }

    fn enter_time_wait(&mut self, shared: &mut Shared, now: Instant) -> Fate {
        self.set_state(State::TimeWait, shared, now);
        self.stop_timers();
        self.end_transfer(shared);
        self.raise(Events::CLOSED | Events::READABLE | Events::WRITABLE);
        Fate::Over
    }

    /// RFC 9293, 3.10.7.3.
    fn on_segment_in_syn_sent(&mut self, segment: &Segment<'_>, shared: &mut Shared, now: Instant) -> Fate {
        let acknowledges = segment.has(flag::ACK);
        if acknowledges && !self.accepts_syn_ack(segment, shared, now) {
            return if segment.has(flag::RST) { Fate::Alive } else { Fate::ResetPeer };
        }
        if segment.has(flag::RST) {
            // RFC 5961 leaves this as it is: the reset must acknowledge our SYN.
            return if acknowledges { self.refuse(shared, now) } else { Fate::Alive };
        }
        if !segment.has(flag::SYN) {
            return Fate::Alive;
        }
        let offered = self.window_of_handshake();
        self.receive.on_syn(segment.seq, offered);
        self.keep_fast_open_cookie(&segment.options, shared);
        self.negotiate(&segment.options, shared, now);
        if acknowledges {
            self.on_syn_acknowledged(segment, shared, now)
        } else {
            self.on_crossed_syn(segment, shared, now)
        }
    }

    fn accepts_syn_ack(&self, segment: &Segment<'_>, shared: &mut Shared, now: Instant) -> bool {
        if !self.accepts_handshake_ack(segment) {
            return false;
        }
        // The echo must lie between our first SYN and now.
        let Some(Timestamps { echo, .. }) = segment.options.timestamps.filter(|_| self.flags.timestamps)
        else {
            return true;
        };
        let age = self.timestamp_now(now).wrapping_sub(echo);
        let possible = echo == 0 || age < 1 << 24;
        shared.counters.paws_active += u64::from(!possible);
        possible
    }

    fn refuse(&mut self, shared: &mut Shared, now: Instant) -> Fate {
        shared.counters.attempt_fails += 1;
        self.fail(TcpError::Refused, shared, now)
    }

    fn on_syn_acknowledged(&mut self, segment: &Segment<'_>, shared: &mut Shared, now: Instant) -> Fate {
        self.flags.ecn = self.flags.ecn && segment.has(flag::ECE) && !segment.has(flag::CWR);
        self.note_syn_data(segment, shared, now);
        self.set_state(State::Established, shared, now);
        self.establish(segment, shared, now);
        self.send.snd_una = segment.ack;
        self.update_persist(now);
        self.receive.ack_now();
        self.raise(Events::WRITABLE);
        self.on_text(segment, shared, now)
    }

    /// RFC 7413, 4.1.3 and 4.2: data in the SYN that was not acknowledged is sent again, as new data.
    fn note_syn_data(&mut self, segment: &Segment<'_>, shared: &mut Shared, now: Instant) {
        let data_start = self.send.iss + 1;
        let taken = segment.ack.since(data_start);
        self.judge_fast_open(taken, shared, now);
        if self.flags.data_in_syn {
            let counters = &mut shared.counters;
            *if taken > 0 { &mut counters.fast_open_active } else { &mut counters.fast_open_active_fail } +=
                1;
        }
        self.send.queue.consume(&mut shared.buffers, taken as usize);
        self.tally.bytes_acked += u64::from(taken);
        self.send.snd_nxt = segment.ack;
    }

    /// RFC 7413, 4.1.2: the cookie of a SYN-ACK is kept for the next connection to that host.
    fn keep_fast_open_cookie(&mut self, options: &SegmentOptions, shared: &mut Shared) {
        if let Some(cookie) =
            options.fast_open.as_ref().filter(|cookie| self.flags.fast_open_tried && !cookie.is_empty())
        {
            let mss = options.mss.unwrap_or(self.send.peer_mss);
            shared.fast_open_cache.insert(self.key.remote().ip(), cookie, mss);
        }
    }

    /// RFC 7413, 4.1.3.1: a path that loses SYNs with the option is not tried again for a while.
    fn judge_fast_open(&mut self, taken: u32, shared: &mut Shared, now: Instant) {
        let remote = self.key.remote().ip();
        if self.flags.fast_open_tried && self.handshakes > 1 {
            shared.fast_open_cache.on_failure(remote, now);
        } else if taken > 0 {
            shared.fast_open_cache.on_success(remote);
        }
    }

    /// A simultaneous open: RFC 9293, figure 8.
    fn on_crossed_syn(&mut self, segment: &Segment<'_>, shared: &mut Shared, now: Instant) -> Fate {
        self.flags.ecn = false;
        self.send.snd_wnd = u32::from(segment.window);
        self.send.max_window = self.send.snd_wnd;
        self.send.snd_wl1 = segment.seq;
        self.send.snd_wl2 = self.send.snd_una;
        self.send.snd_nxt = self.send.iss + 1;
        self.set_state(State::SynReceived, shared, now);
        self.flags.handshake_due = true;
        self.handshakes = 0;
        Fate::Alive
    }

    /// What the peer's SYN offered, against what ours does (RFC 7323, 2.2 and 3.2; RFC 2018, 2).
    pub(crate) fn negotiate(&mut self, options: &SegmentOptions, shared: &mut Shared, now: Instant) {
        self.flags.timestamps &= options.timestamps.is_some();
        if let Some(Timestamps { value, .. }) = options.timestamps {
            self.receive.ts_recent = value;
            self.receive.ts_recent_at_s = (now.as_nanos() / 1_000_000_000) as u32;
        }
        self.flags.sack &= options.sack_permitted;
        match options.window_scale.filter(|_| shared.config.window_scaling) {
            Some(shift) => {
                self.send.scale = shift;
                self.receive.scale = self.receive.scale_to_offer();
            }
            None => (self.send.scale, self.receive.scale) = (0, 0),
        }
        // RFC 9293, 3.7.1: without the option 536 for IPv4 and 1220 for IPv6.
        let default = if self.key.local().is_ipv4() { 536 } else { 1220 };
        self.send.peer_mss = options.mss.unwrap_or(default).max(MSS_MIN);
        self.update_mss(shared);
    }

    /// The handshake is complete from our side: the peer acknowledged our SYN.
    pub(crate) fn establish(&mut self, segment: &Segment<'_>, shared: &mut Shared, now: Instant) {
        self.stop_timer(Timer::Handshake); // While its place is still its own: until `snd_una` moves.
        if self.state == State::SynReceived {
            self.set_state(State::Established, shared, now);
            self.raise(Events::WRITABLE);
        }
        let scale = if segment.has(flag::SYN) { 0 } else { self.send.scale };
        self.send.snd_una = self.send.iss + 1;
        self.send.snd_wnd = u32::from(segment.window) << scale;
        self.send.max_window = self.send.snd_wnd;
        self.send.snd_wl1 = segment.seq;
        self.send.snd_wl2 = segment.ack;
        self.sample_handshake_rtt(segment, now);
        self.handshakes = 0;
        self.tally.last_ack_ms = millis(now);
        self.tally.last_received_ms = millis(now);
        self.restart_keepalive(now);
    }

    /// RFC 6298, 3: no sample from a SYN that was sent twice, unless timestamps tell which. RFC 6298, 5.7 and RFC 5681, 3.1:
    /// a lost SYN makes the start careful.
    fn sample_handshake_rtt(&mut self, segment: &Segment<'_>, now: Instant) {
        let echoed = segment.options.timestamps.filter(|_| self.flags.timestamps).map(|t| t.echo);
        if self.handshakes == 1 {
            let rtt = now.since(self.handshake_sent_at);
            self.rtt.on_sample(rtt, now);
        } else if self.handshakes > 1 {
            self.rtt.on_syn_retransmitted();
            if let Some(echo) = echoed.filter(|echo| *echo != 0) {
                let elapsed = self.timestamp_now(now).wrapping_sub(echo);
                self.rtt.on_sample(Duration::from_millis(elapsed.into()), now);
            }
            self.start_carefully();
        }
    }
}

/// The smallest segment size that is believed: less would make headers of everything.
pub(crate) const MSS_MIN: u16 = 88;
