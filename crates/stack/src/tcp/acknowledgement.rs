//! Processes an acknowledgement (RFC 9293, 3.10.7.4, fifth step).

use crate::congestion::Congestion;
use crate::recovery::{AckOutcome, AckSegment};
use crate::segment::Segment;
use crate::seq::SeqNum;
use crate::tcp::connection::{Connection, Events, Fate, Shared, State, millis};
use crate::tcp::timers::Timer;
use crate::tcp::transfer::Transfer;
use clock::{Duration, Instant};
use wire::tcp::flag;

impl Connection {
    /// Fifth step: the acknowledgement, the window, and what they set in motion.
    pub(super) fn on_acknowledgement(
        &mut self,
        segment: &Segment<'_>,
        shared: &mut Shared,
        now: Instant,
    ) -> Fate {
        self.tally.last_ack_ms = millis(now);
        if segment.is_empty() || segment.ack.is_after(self.send.snd_una) {
            self.flags.held_for_more = false; // As on Linux; cork alone holds on.
        }
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
        if outcome.pause {
            self.pause_for_congestion(shared, now);
        }
        self.update_persist(now);
        self.tell_writer();
        self.note_send_limit(now);
        self.on_fin_acknowledged(shared, now)
    }

    /// RFC 9293, 3.10.7.4: the window of the newest segment counts. Of two that cannot be told apart the larger does, as either
    /// may have been overtaken, unless one closes the window; so does Linux.
    pub(super) fn update_window(&mut self, segment: &Segment<'_>) {
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

    pub(super) fn recover(
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

    /// The next new data waits as long as the retransmission timer would.
    #[cold]
    fn pause_for_congestion(&mut self, shared: &mut Shared, now: Instant) {
        let until = now + self.rtt.rto();
        self.wake(shared, now).pacer.hold_until(until);
    }

    /// Whether there is new data that nothing but the congestion window holds back.
    pub(super) fn has_sendable(&self) -> bool {
        let octets = self.unsent_len().min(self.usable_window());
        let is_held = self.options.cork || self.flags.held_for_more;
        let may_be_small = self.options.no_delay && !is_held || self.flags.push || self.flags.write_closed;
        octets >= u32::from(self.send.mss) || octets > 0 && may_be_small
    }

    pub(super) fn advance_una(&mut self, ack: SeqNum, shared: &mut Shared, now: Instant) {
        let start = self.data_una();
        let fin = self.fin_seq();
        let data_end = ack.min(fin);
        let octets = if data_end.is_after(start) { data_end.since(start) } else { 0 };
        self.send.queue.consume(&mut shared.buffers, octets as usize);
        self.tally.bytes_acked += u64::from(octets);
        self.send.snd_una = ack;
        self.forget_acknowledged_urgent(ack);
        self.forget_acknowledged_records(ack);
        self.soft_error = None;
        self.judge_mtu_probe(ack, shared, now);
        self.restart_user_timeout(shared, now);
    }

    pub(super) fn count_recovery(&mut self, outcome: &AckOutcome, shared: &mut Shared) {
        shared.counters.add_recovery_events(outcome.events);
        if let Some(congestion) = outcome.congestion {
            shared.counters.ecn_reductions += u64::from(congestion == Congestion::Ecn);
            self.flags.announce_cwr = self.flags.ecn;
        }
    }

    /// Whether data waits for a window that is closed, or too small, with nothing in flight whose acknowledgement could open
    /// it: then only a probe helps (RFC 9293, 3.8.6.1).
    pub(crate) fn is_persisting(&self) -> bool {
        let waits = self.flags.syn_acknowledged && (self.unsent_len() > 0 || self.is_fin_due());
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

    pub(super) fn tell_writer(&mut self) {
        if !self.has_send_room() {
            self.flags.lacks_room = true;
        } else if self.flags.writer_waits || self.flags.lacks_room {
            self.flags.writer_waits = false;
            self.flags.lacks_room = false;
            self.raise(Events::WRITABLE);
        }
    }

    /// Our FIN may be among what was acknowledged.
    pub(super) fn on_fin_acknowledged(&mut self, shared: &mut Shared, now: Instant) -> Fate {
        if !self.fin_acknowledged() {
            return Fate::Alive;
        }
        match self.state {
            State::FinWait1 => {
                self.set_state(State::FinWait2, shared, now);
                if self.flags.orphaned {
                    shared.counters.abort_on_data += u64::from(self.options.no_fin_wait_2);
                    self.limit_fin_wait_2(shared, now);
                }
                Fate::Alive
            }
            State::Closing => self.enter_time_wait(shared, now),
            State::LastAck => self.finish(shared, now),
            _ => Fate::Alive,
        }
    }
}
