//! Writes segments, and updates the state that each of them resets.

use crate::recovery::{Probe, Retransmission, Transmission};
use crate::segment::{Ecn, SegmentOptions, TIMESTAMPS_LEN, Timestamps, headers_len};
use crate::seq::{SeqNum, SeqRange};
use crate::tcp::connection::{Connection, Fate, Shared, State, millis};
use crate::tcp::segment_writer::{Outgoing, SegmentWriter};
use crate::tcp::timers::Timer;
use crate::time_wait::TimeWait;
use crate::trace::TraceKind;
use clock::Instant;
use wire::tcp::flag;

impl Connection {
    pub(super) fn transmit_new(
        &mut self,
        octets: u32,
        room: &mut [u8],
        shared: &mut Shared,
        now: Instant,
    ) -> Option<usize> {
        let (len, range) = self.write_data(self.send.snd_nxt, octets, true, room, shared, now)?;
        self.on_new_sent(range, range.len(), shared, now);
        let payload = octets.min(range.len()); // A FIN makes no packet larger.
        if payload > u32::from(self.send.mss) {
            let transfer = self.wake(shared, now);
            transfer.mtu_probe = Some(range);
            transfer.recovery.mark_mtu_probe(range);
        }
        Some(len)
    }

    pub(super) fn transmission(&self, range: SeqRange, now: Instant) -> Transmission {
        Transmission {
            range,
            timestamp_value: if self.flags.timestamps { self.timestamp_now(now) } else { 0 },
            has_control_octet: self.flags.fin_was_sent && range.end.is_after(self.fin_seq()),
        }
    }

    /// Sends octets of `range` again, as many as fit.
    pub(super) fn transmit_again(
        &mut self,
        range: SeqRange,
        room: &mut [u8],
        shared: &mut Shared,
        now: Instant,
    ) -> Option<(usize, SeqRange)> {
        self.note_probe_lost(range.start, shared);
        let fin = self.flags.fin_was_sent && range.end.is_after(self.fin_seq());
        let octets = range.len() - u32::from(fin);
        let (len, sent) = self.write_data(range.start, octets, fin, room, shared, now)?;
        let transmission = self.transmission(sent, now);
        let why = self.with_recovery(shared, now, |recovery, context| {
            recovery.on_retransmitted(&transmission, context)
        });
        match why {
            Retransmission::Fast => shared.counters.fast_retrans += 1,
            Retransmission::SlowStart => shared.counters.slow_start_retrans += 1,
            Retransmission::Other => {}
        }
        let rate = self.pacing_rate();
        self.wake(shared, now).pacer.on_sent(sent.len(), now, rate);
        self.tally.retransmits_total += 1;
        self.tally.bytes_retrans = self.tally.bytes_retrans.wrapping_add(sent.len());
        shared.counters.retrans_segs += 1;
        Some((len, sent))
    }

    /// What a loss probe is due for. There may have been no room for it when its timer expired, and what it is for may be acknowledged
    /// since, or a part of it.
    pub(super) fn due_loss_probe(&mut self) -> Option<SeqRange> {
        let last = self.transfer.as_mut()?.loss_probe.take()?;
        let in_flight = SeqRange::new(last.start.max(self.send.snd_una), last.end);
        last.end.is_after(self.send.snd_una).then_some(in_flight)
    }

    /// RFC 8985, 7.3: new data if there is some that the window takes, else the last segment again.
    pub(super) fn transmit_loss_probe(
        &mut self,
        last: SeqRange,
        room: &mut [u8],
        shared: &mut Shared,
        now: Instant,
    ) -> Option<usize> {
        shared.counters.loss_probes += 1;
        let octets = self.unsent_len().min(u32::from(self.send.mss)).min(self.usable_window());
        let (len, probe) = if octets > 0 {
            (self.transmit_new(octets, room, shared, now)?, Probe::NewData)
        } else {
            let mss = u32::from(self.send.mss);
            let start = if last.len() > mss { last.end - mss } else { last.start };
            let start = self.record_start(last.end).map_or(start, |record| record.max(start));
            let range = SeqRange::new(start, last.end);
            (self.transmit_again(range, room, shared, now)?.0, Probe::Retransmission)
        };
        let snd_nxt = self.send.snd_nxt;
        self.wake(shared, now).recovery.on_probe_sent(probe, snd_nxt);
        Some(len)
    }

    /// Writes a segment with data from `seq` on, cut to what fits beside the options, and the FIN if it follows and `with_fin`
    /// says so. Its length as a packet, and the sequence space it takes.
    pub(super) fn write_data(
        &mut self,
        seq: SeqNum,
        octets: u32,
        with_fin: bool,
        room: &mut [u8],
        shared: &mut Shared,
        now: Instant,
    ) -> Option<(usize, SeqRange)> {
        let mut outgoing = self.outgoing(seq, flag::ACK, shared, now);
        if self.is_sending_urgent() {
            self.point_to_urgent(&mut outgoing);
        }
        let payload_max = self.payload_beside(&outgoing.options, octets, room.len());
        let offset = seq.since(self.data_una()) as usize;
        // What the queue does not have would be whatever was in the frame before.
        let held = self.send.queue.len().saturating_sub(offset);
        let octets = octets.min(payload_max).min(held as u32).min(self.record_from(seq));
        let end = seq + octets;
        let fin_seq = self.fin_seq();
        let is_new = !seq.is_before(self.send.snd_nxt);
        let fits = !is_new || octets < self.usable_window();
        let fin = with_fin && fits && self.flags.write_closed && end == fin_seq;
        if fin {
            outgoing.flags |= flag::FIN;
        }
        let is_small = octets < payload_max;
        if octets > 0 && self.is_pushed(end, is_new && is_small) {
            outgoing.flags |= flag::PSH;
        }
        let ecn = self.mark_ecn(&mut outgoing, is_new && octets > 0);
        let writer = self.writer(shared, ecn);
        let (queue, buffers) = (&mut self.send.queue, &shared.buffers);
        let len = writer.write(room, &outgoing, octets as usize, |payload| {
            queue.read_at(buffers, offset, payload);
        })?;
        self.flags.fin_was_sent |= fin;
        let range = SeqRange::new(seq, end + u32::from(fin));
        if is_new && is_small {
            self.send.small_end = range.end;
        }
        self.tally.data_segs_out = self.tally.data_segs_out.wrapping_add(1);
        self.tally.last_sent_ms = millis(now);
        let kind = if is_new { TraceKind::Sent } else { TraceKind::Retransmitted };
        self.on_written(&outgoing, octets, kind, shared, now);
        Some((len, range))
    }

    /// Whether a segment up to `end` says PSH: the last one of a write, unless more was promised, or of a record, and one that was cut
    /// short.
    pub(super) fn is_pushed(&self, end: SeqNum, is_cut: bool) -> bool {
        if end == self.fin_seq() { !self.flags.more_follows } else { is_cut || self.ends_record(end) }
    }

    /// Octets of payload beside options that may have grown by SACK blocks, in a packet of up to `room` octets. More than a full
    /// segment is wanted only for a probe of the path MTU.
    pub(super) fn payload_beside(&self, options: &SegmentOptions, wanted: u32, room: usize) -> u32 {
        let timestamps = if options.timestamps.is_some() { TIMESTAMPS_LEN } else { 0 };
        let headers = usize::from(headers_len(&self.key.remote().ip())) + timestamps;
        let most = (room.saturating_sub(headers) as u32).min(wanted.max(self.send.mss.into()));
        most.saturating_sub(options.sack_len() as u32).max(1)
    }

    /// RFC 3168, 6.1: new data is ECN-capable; the first after a reduction says so.
    pub(super) fn mark_ecn(&mut self, outgoing: &mut Outgoing, new_data: bool) -> Ecn {
        if !self.flags.ecn || !new_data {
            return Ecn::NotEct;
        }
        if self.flags.announce_cwr {
            self.flags.announce_cwr = false;
            outgoing.flags |= flag::CWR;
        }
        Ecn::Ect0
    }

    /// Sends a segment without data: an acknowledgement, or a probe if `seq` is before the expected sequence number.
    pub(super) fn transmit_bare(
        &mut self,
        seq: SeqNum,
        room: &mut [u8],
        shared: &mut Shared,
        now: Instant,
    ) -> Option<usize> {
        let mut outgoing = self.outgoing(seq, flag::ACK, shared, now);
        if self.is_sending_urgent() {
            self.point_to_urgent(&mut outgoing);
        }
        let len = self.writer(shared, Ecn::NotEct).write(room, &outgoing, 0, |_| ())?;
        shared.counters.out_segs += 1;
        self.on_written(&outgoing, 0, TraceKind::Sent, shared, now);
        Some(len)
    }

    /// A reset, behind which the connection is over.
    pub(super) fn transmit_reset(
        &mut self,
        room: &mut [u8],
        shared: &mut Shared,
        now: Instant,
    ) -> Option<usize> {
        let timestamps = Timestamps { value: self.timestamp_now(now), echo: self.receive.ts_recent };
        // RFC 7323, 3.2: timestamps on a reset, too (SHOULD).
        let timestamps = self.flags.timestamps.then_some(timestamps);
        let outgoing = Outgoing {
            seq: self.send.snd_nxt,
            ack: self.receive.rcv_nxt,
            flags: flag::RST | flag::ACK,
            options: SegmentOptions { timestamps, ..SegmentOptions::default() },
            ..Outgoing::default()
        };
        let len = self.writer(shared, Ecn::NotEct).write(room, &outgoing, 0, |_| ())?;
        shared.counters.out_rsts += 1;
        if matches!(self.state, State::Established | State::CloseWait) {
            shared.counters.estab_resets += 1;
        }
        self.flags.reset_due = false;
        if self.error.is_some() {
            self.raise(crate::tcp::connection::Events::ERROR);
        }
        let _: Fate = self.finish(shared, now); // The stack sees the state after each transmission.
        Some(len)
    }

    /// Header of a segment with ACK: acknowledgement, window, timestamps, and SACK blocks if there is a reason for some.
    #[inline]
    pub(super) fn outgoing(&mut self, seq: SeqNum, flags: u8, shared: &Shared, now: Instant) -> Outgoing {
        let window = self.receive.window(!shared.is_under_pressure());
        let timestamps = Timestamps { value: self.timestamp_now(now), echo: self.receive.ts_recent };
        let mut options = SegmentOptions {
            timestamps: self.flags.timestamps.then_some(timestamps),
            ..SegmentOptions::default()
        };
        if self.flags.sack {
            options.sack = self.receive.sack_blocks();
        }
        let echo = if self.flags.echo_congestion { flag::ECE } else { 0 };
        let window = (window >> self.receive.scale).min(u32::from(u16::MAX)) as u16;
        let ack = self.receive.rcv_nxt;
        Outgoing { seq, ack, flags: flags | echo, window, urgent: 0, options }
    }

    pub(super) fn writer(&self, shared: &Shared, ecn: Ecn) -> SegmentWriter {
        SegmentWriter {
            key: self.key,
            hop_limit: self.options.hop_limit,
            traffic_class: self.options.traffic_class & !3 | ecn as u8,
            checksum_offload: shared.paths.link(self.link).tx_checksum_offload,
        }
    }

    /// What every segment sets back: the delayed acknowledgement, and the memory of what was offered.
    pub(super) fn on_written(
        &mut self,
        outgoing: &Outgoing,
        octets: u32,
        kind: TraceKind,
        shared: &mut Shared,
        now: Instant,
    ) {
        self.tally.segs_out = self.tally.segs_out.wrapping_add(1);
        self.record(shared, kind, now, |record| {
            record.seq = outgoing.seq;
            record.ack = outgoing.ack;
            record.window = outgoing.window;
            record.len = octets as u16;
            record.flags = outgoing.flags;
        });
        if outgoing.flags & flag::ACK == 0 {
            return;
        }
        self.count_acknowledgement(outgoing, shared);
        let scale = if outgoing.flags & flag::SYN != 0 { 0 } else { self.receive.scale };
        self.receive.on_ack_sent(u32::from(outgoing.window) << scale, octets > 0);
        self.stop_timer(Timer::DelayedAck);
    }

    pub(super) fn count_acknowledgement(&self, outgoing: &Outgoing, shared: &mut Shared) {
        match self.receive.pending_duplicate().filter(|_| self.flags.sack) {
            Some(true) => shared.counters.dsack_old_sent += 1,
            Some(false) => shared.counters.dsack_ofo_sent += 1,
            None => {}
        }
        let closed_before = self.receive.offered_by_last_ack() >> self.receive.scale == 0;
        let closed = outgoing.window == 0;
        shared.counters.to_zero_window += u64::from(closed && !closed_before);
        shared.counters.from_zero_window += u64::from(!closed && closed_before);
    }

    /// The acknowledgement of the peer's FIN, which TIME-WAIT will repeat if need be.
    pub(crate) fn final_ack(&mut self, shared: &Shared, now: Instant) -> Outgoing {
        self.outgoing(self.send.snd_nxt, flag::ACK, shared, now)
    }

    /// What TIME-WAIT needs. It continues to offer the `window` of the final acknowledgement.
    pub(crate) fn time_wait_entry(&self, window: u16) -> TimeWait {
        TimeWait {
            key: self.key,
            snd_nxt: self.send.snd_nxt,
            rcv_nxt: self.receive.rcv_nxt,
            window,
            ts_recent: self.flags.timestamps.then_some(self.receive.ts_recent),
        }
    }
}
