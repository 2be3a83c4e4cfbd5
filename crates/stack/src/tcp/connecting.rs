//! The handshake on the connecting side, or in a simultaneous open: SYN-SENT and SYN-RECEIVED (RFC 9293, 3.10.7.3; RFC 7413).

use crate::segment::{Ecn, FastOpenCookie, Segment, SegmentOptions, Timestamps};
use crate::tcp::connection::{Connection, Events, Fate, Shared, State, micros, millis, since_micros};
use crate::tcp::segment_writer::Outgoing;
use crate::tcp::timers::Timer;
use crate::tcp::user::TcpError;
use crate::trace::TraceKind;
use clock::{Duration, Instant};
use wire::tcp::flag;

/// How soon the second SYN follows a reset of an older connection (Linux: two ticks of its clock).
const SECOND_SYN: Duration = Duration::from_millis(8);

impl Connection {
    /// RFC 9293, 3.10.7.3.
    pub(super) fn on_segment_in_syn_sent(
        &mut self,
        segment: &Segment<'_>,
        shared: &mut Shared,
        now: Instant,
    ) -> Fate {
        let acknowledges = segment.has(flag::ACK);
        if acknowledges && !self.accepts_syn_ack(segment, shared, now) {
            if segment.has(flag::RST) {
                return Fate::Alive;
            }
            self.hurry_second_syn(now);
            return Fate::ResetPeer;
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

    /// The peer has an older connection of these ports, which our reset is about to end: it is worth a second SYN soon, as on Linux. Only that one, lest
    /// forged segments make it many.
    fn hurry_second_syn(&mut self, now: Instant) {
        if self.handshakes == 1 {
            self.set_timer(Timer::Handshake, now + SECOND_SYN);
        }
    }

    pub(super) fn accepts_syn_ack(&self, segment: &Segment<'_>, shared: &mut Shared, now: Instant) -> bool {
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

    pub(super) fn refuse(&mut self, shared: &mut Shared, now: Instant) -> Fate {
        shared.counters.attempt_fails += 1;
        self.fail(TcpError::Refused, shared, now)
    }

    pub(super) fn on_syn_acknowledged(
        &mut self,
        segment: &Segment<'_>,
        shared: &mut Shared,
        now: Instant,
    ) -> Fate {
        self.flags.ecn = self.flags.ecn && segment.has(flag::ECE) && !segment.has(flag::CWR);
        self.note_syn_data(segment, shared, now);
        self.set_state(State::Established, shared, now);
        self.establish(segment, shared, now);
        self.send.snd_una = segment.ack;
        self.update_persist(now);
        match self.may_hold_ack(shared) {
            true => self.receive.ack_soon(),
            false => self.receive.ack_now(),
        }
        self.raise(Events::WRITABLE);
        self.on_text(segment, shared, now)
    }

    /// RFC 7413, 4.1.3 and 4.2: data in the SYN that was not acknowledged is sent again, as new data.
    pub(super) fn note_syn_data(&mut self, segment: &Segment<'_>, shared: &mut Shared, now: Instant) {
        let data_start = self.send.iss + 1;
        let taken = segment.ack.since(data_start);
        self.judge_fast_open(taken, shared, now);
        if self.flags.data_in_syn {
            let counters = &mut shared.counters;
            *if taken > 0 { &mut counters.fast_open_active } else { &mut counters.fast_open_active_fail } +=
                1;
        }
        self.flags.data_in_syn = taken > 0;
        self.send.queue.consume(&mut shared.buffers, taken as usize);
        self.tally.bytes_acked += u64::from(taken);
        self.send.snd_nxt = segment.ack;
    }

    /// RFC 7413, 4.1.2: the cookie of a SYN-ACK is kept for the next connection to that host.
    pub(super) fn keep_fast_open_cookie(&mut self, options: &SegmentOptions, shared: &mut Shared) {
        if let Some(cookie) =
            options.fast_open.as_ref().filter(|cookie| self.flags.fast_open_tried && !cookie.is_empty())
        {
            let mss = options.mss.unwrap_or(self.send.peer_mss);
            shared.fast_open_cache.insert(self.key.remote().ip(), cookie, mss);
        }
    }

    /// RFC 7413, 4.1.3.1: a path that loses SYNs with the option is not tried again for a while.
    pub(super) fn judge_fast_open(&mut self, taken: u32, shared: &mut Shared, now: Instant) {
        let remote = self.key.remote().ip();
        if self.flags.fast_open_tried && self.handshakes > 1 {
            shared.fast_open_cache.on_failure(remote, now);
        } else if taken > 0 {
            shared.fast_open_cache.on_success(remote);
        }
    }

    /// A simultaneous open: RFC 9293, figure 8.
    pub(super) fn on_crossed_syn(
        &mut self,
        segment: &Segment<'_>,
        shared: &mut Shared,
        now: Instant,
    ) -> Fate {
        // RFC 3168, 6.1.1: both SYNs ask for it, and ours was not repeated without.
        self.flags.ecn &= segment.has(flag::ECE) && segment.has(flag::CWR) && self.handshakes <= 1;
        self.send.snd_wnd = u32::from(segment.window);
        self.send.max_window = self.send.snd_wnd;
        self.send.snd_wl1 = segment.seq;
        self.send.snd_wl2 = self.send.snd_una;
        self.send.snd_nxt = self.send.iss + 1;
        self.set_state(State::SynReceived, shared, now);
        self.flags.handshake_due = true;
        (self.handshakes, self.handshake_timeouts) = (0, 0);
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
                self.receive.scale = self.receive.scale_to_offer(&self.options);
            }
            None => (self.send.scale, self.receive.scale) = (0, 0),
        }
        // RFC 9293, 3.7.1: without the option 536 for IPv4 and 1220 for IPv6.
        let default = if self.key.local().is_ipv4() { 536 } else { 1220 };
        self.send.peer_mss = options.mss.unwrap_or(default).max(MSS_MIN);
        self.update_mss(shared);
        self.receive.guess_segment_size(self.send.mss);
    }

    /// The handshake is complete from our side: the peer acknowledged our SYN.
    pub(crate) fn establish(&mut self, segment: &Segment<'_>, shared: &mut Shared, now: Instant) {
        self.stop_timer(Timer::Handshake); // While its place is still its own: until `snd_una` moves.
        self.flags.handshake_due = false; // Who acknowledges it needs no repetition that it asked for just before.
        if self.state == State::SynReceived {
            self.set_state(State::Established, shared, now);
            self.raise(Events::WRITABLE);
        }
        let scale = if segment.has(flag::SYN) { 0 } else { self.send.scale };
        self.send.snd_una = self.send.iss + 1;
        self.flags.syn_acknowledged = true;
        self.send.snd_wnd = u32::from(segment.window) << scale;
        self.send.max_window = self.send.snd_wnd;
        self.send.snd_wl1 = segment.seq;
        self.send.snd_wl2 = segment.ack;
        self.sample_handshake_rtt(segment, now);
        self.handshakes = 0;
        if !self.is_all_acknowledged() {
            self.with_recovery(shared, now, |recovery, context| recovery.restart_timers(context));
        }
        self.tally.last_ack_ms = millis(now);
        self.tally.last_received_ms = millis(now);
        self.restart_keepalive(now);
    }

    /// RFC 6298, 3: no sample from a SYN that was sent twice, unless timestamps tell which. RFC 6298, 5.7 and RFC 5681, 3.1:
    /// a lost SYN makes the start careful.
    pub(super) fn sample_handshake_rtt(&mut self, segment: &Segment<'_>, now: Instant) {
        let echoed = segment.options.timestamps.filter(|_| self.flags.timestamps).map(|t| t.echo);
        if self.handshakes == 1 {
            let rtt = since_micros(self.handshake_sent_at, now);
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

    /// A SYN, or the SYN-ACK to a SYN that crossed ours or brought data.
    pub(super) fn transmit_handshake(
        &mut self,
        room: &mut [u8],
        shared: &mut Shared,
        now: Instant,
    ) -> Option<usize> {
        self.flags.handshake_due = false;
        self.handshakes = self.handshakes.saturating_add(1);
        let outgoing = self.handshake_segment(shared, now);
        let is_syn = self.state == State::SynSent;
        let octets = if is_syn { self.octets_in_syn(&outgoing.options) } else { 0 };
        let writer = self.writer(shared, Ecn::NotEct);
        let (queue, buffers) = (&mut self.send.queue, &shared.buffers);
        let len = writer.write(room, &outgoing, octets as usize, |payload| {
            queue.read_at(buffers, 0, payload);
        })?;
        if octets > 0 {
            self.flags.data_in_syn = true;
        }
        self.send.snd_nxt = self.send.snd_nxt.max(self.send.iss + 1 + octets);
        if self.handshakes == 1 {
            self.handshake_sent_at = micros(now);
            shared.counters.out_segs += 1;
        } else {
            shared.counters.retrans_segs += 1;
            self.tally.retransmits_total += 1;
        }
        // RFC 9293, 3.10.1: a user timeout counts from the OPEN on.
        let age = since_micros(self.handshake_sent_at, now);
        let limit = self.options.user_timeout.map(|limit| limit - age);
        let timeout = self.rtt.rto();
        self.set_timer(Timer::Handshake, now + limit.map_or(timeout, |limit| limit.min(timeout)));
        let kind = if self.handshakes == 1 { TraceKind::Sent } else { TraceKind::Retransmitted };
        self.on_written(&outgoing, octets, kind, shared, now);
        Some(len)
    }

    pub(super) fn handshake_segment(&self, shared: &Shared, now: Instant) -> Outgoing {
        let is_syn = self.state == State::SynSent;
        let timestamps = Timestamps { value: self.timestamp_now(now), echo: self.receive.ts_recent };
        let scaling =
            if is_syn { shared.config.window_scaling } else { self.receive.scale > 0 || self.send.scale > 0 };
        let offered = if is_syn { self.receive.scale_to_offer(&self.options) } else { self.receive.scale };
        let options = SegmentOptions {
            mss: Some(self.mss_to_announce(shared)),
            window_scale: scaling.then_some(offered),
            sack_permitted: self.flags.sack,
            timestamps: self.flags.timestamps.then_some(timestamps),
            fast_open: self.fast_open_option(),
            ..SegmentOptions::default()
        };
        let ecn = match (is_syn, self.flags.ecn) {
            // RFC 3168, 6.1.1.1: a SYN that gets no answer is sent again without.
            (true, true) if self.handshakes <= 1 => flag::ECE | flag::CWR,
            (false, true) => flag::ECE,
            _ => 0,
        };
        let control = if is_syn { flag::SYN } else { flag::SYN | flag::ACK };
        let window = self.window_of_handshake();
        let (seq, ack) = (self.send.iss, self.receive.rcv_nxt);
        Outgoing { seq, ack, flags: control | ecn, window, options, ..Outgoing::default() }
    }

    /// Not again on a SYN or SYN-ACK that was lost: perhaps the option was why.
    fn fast_open_option(&self) -> Option<FastOpenCookie> {
        self.rare.as_ref().filter(|_| self.handshakes <= 1)?.fast_open.clone()
    }

    /// Window that our SYN or SYN-ACK offers: it is never scaled (RFC 7323, 2.2).
    pub(crate) fn window_of_handshake(&self) -> u16 {
        self.receive.limit.min(self.receive.window_clamp).min(u32::from(u16::MAX)) as u16
    }

    /// Data that the SYN may carry (RFC 7413, 4.1.3): with a cookie, and what fits beside the options.
    pub(super) fn octets_in_syn(&self, options: &SegmentOptions) -> u32 {
        let has_cookie = options.fast_open.as_ref().is_some_and(|cookie| !cookie.is_empty());
        if !has_cookie || self.handshakes > 1 {
            return 0;
        }
        let room = usize::from(self.send.peer_mss).saturating_sub(options.encode().len());
        self.send.queue.len().min(room) as u32
    }
}

/// The smallest segment size that is believed: less would make headers of everything.
pub(crate) const MSS_MIN: u16 = 88;
