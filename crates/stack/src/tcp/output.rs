//! What is sent, and the octets of it.

use clock::{Duration, Instant};
use core::net::IpAddr;
use wire::checksum::Sum;
use wire::tcp::{self, flag};
use wire::{ipv4, ipv6, protocol};

use crate::congestion::CongestionControl;
use crate::flow_table::FlowKey;
use crate::pacer::window_rate;
use crate::recovery::{Probe, Retransmission, Transmission};
use crate::segment::{Ecn, SegmentOptions, TIMESTAMPS_LEN, Timestamps, headers_len};
use crate::seq::{SeqNum, SeqRange};
use crate::tcp::connection::{Connection, Fate, Shared, State, millis};
use crate::tcp::timers::Timer;
use crate::tcp::transfer::Transfer;
use crate::time_wait::TimeWait;
use crate::trace::TraceKind;

/// Longest time that cork and small-segment avoidance hold data back, as on Linux.
const HOLD_MAX: Duration = Duration::from_millis(200);
/// Least payload of a full segment, whatever MSS and options say.
const PAYLOAD_MIN: u16 = 36;

/// Writes segments of one flow.
pub(crate) struct SegmentWriter {
    pub(crate) key: FlowKey,
    pub(crate) hop_limit: u8,
    /// With ECN bits.
    pub(crate) traffic_class: u8,
    pub(crate) checksum_offload: bool,
}

/// Header of one segment to be written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outgoing {
    pub(crate) seq: SeqNum,
    pub(crate) ack: SeqNum,
    pub(crate) flags: u8,
    pub(crate) window: u16,
    pub(crate) options: SegmentOptions,
}

impl SegmentWriter {
    /// Writes an IP packet into the front of `room`, with `payload_len` octets that `fill` puts in. `None` if it does not fit.
    pub(crate) fn write(
        &self,
        room: &mut [u8],
        outgoing: &Outgoing,
        payload_len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Option<usize> {
        let options = outgoing.options.encode();
        let header_len = tcp::HEADER_LEN + options.len();
        let segment_len = header_len + payload_len;
        let (ip_len, pseudo_header) = self.write_ip(room, segment_len)?;
        let segment = room.get_mut(ip_len..ip_len + segment_len)?;
        fill(&mut segment[header_len..]);
        let fields = tcp::Fields {
            source_port: self.key.local().port(),
            destination_port: self.key.remote().port(),
            sequence_number: outgoing.seq.0,
            acknowledgement_number: outgoing.ack.0,
            flags: outgoing.flags,
            window: outgoing.window,
            options: &options,
        };
        tcp::write(segment, &fields, Some(pseudo_header).filter(|_| !self.checksum_offload))?;
        Some(ip_len + segment_len)
    }

    fn write_ip(&self, room: &mut [u8], payload_len: usize) -> Option<(usize, Sum)> {
        match (self.key.local().ip(), self.key.remote().ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let fields = ipv4::Fields {
                    source,
                    destination,
                    protocol: protocol::TCP,
                    ttl: self.hop_limit,
                    traffic_class: self.traffic_class,
                    payload_len,
                };
                let sum = Sum::pseudo_v4(source, destination, protocol::TCP, payload_len as u16);
                Some((ipv4::write(room, &fields)?, sum))
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let fields = ipv6::Fields {
                    source,
                    destination,
                    next_header: protocol::TCP,
                    hop_limit: self.hop_limit,
                    traffic_class: self.traffic_class,
                    payload_len,
                };
                let sum = Sum::pseudo_v6(source, destination, protocol::TCP, payload_len as u16);
                Some((ipv6::write(room, &fields)?, sum))
            }
            _ => None, // A key has two addresses of one family.
        }
    }
}

impl Connection {
    /// Whether [`Connection::poll_transmit`] would send something, as far as can be told cheaply.
    pub(crate) fn has_something_due(&self) -> bool {
        self.receive.is_ack_due()
            || self.flags.handshake_due
            || self.flags.reset_due
            || self.flags.probe_due
            || self.transfer.as_ref().is_some_and(|transfer| transfer.loss_probe.is_some())
            || self.state.may_send() && (self.unsent_len() > 0 || self.is_fin_due() || self.lost() > 0)
    }

    /// Writes one segment into `room` if one is due; its length as an IP packet.
    ///
    /// The order: what ends or begins the connection, what was lost, what is new, probes, and a bare acknowledgement if
    /// nothing carried it.
    pub(crate) fn poll_transmit(
        &mut self,
        room: &mut [u8],
        shared: &mut Shared,
        now: Instant,
    ) -> Option<usize> {
        if self.flags.reset_due {
            return self.transmit_reset(room, shared, now);
        }
        if self.flags.handshake_due {
            return self.transmit_handshake(room, shared, now);
        }
        if self.state.may_send() || self.may_send_early() {
            if let Some(probe) = self.transfer.as_mut().and_then(|transfer| transfer.loss_probe.take()) {
                return self.transmit_loss_probe(probe, room, shared, now);
            }
            if let Some(range) = self.due_retransmission() {
                return self.transmit_again(range, room, shared, now).map(|(len, _)| len);
            }
            if let Some(octets) = self.due_new_octets(shared, now) {
                return self.transmit_new(octets, room, shared, now);
            }
        }
        if self.flags.probe_due {
            self.flags.probe_due = false;
            return self.transmit_bare(self.send.snd_una - 1, room, shared, now);
        }
        if self.receive.is_ack_due() && self.state != State::SynSent {
            return self.transmit_bare(self.send.snd_nxt, room, shared, now);
        }
        None
    }

    /// RFC 7413, 4.2.2: a child made by Fast Open may answer before the handshake is complete.
    fn may_send_early(&self) -> bool {
        self.state == State::SynReceived && self.flags.fast_open_child
    }

    /// Whether a FIN is to be sent for the first time.
    pub(crate) fn is_fin_due(&self) -> bool {
        self.flags.write_closed && !self.flags.fin_was_sent && self.send.snd_una != self.send.iss
    }

    fn due_retransmission(&self) -> Option<SeqRange> {
        let Transfer { recovery, controller, .. } = self.transfer.as_deref()?;
        if recovery.lost() == 0 {
            return None;
        }
        let range = recovery.next_retransmission(u32::from(self.send.mss))?;
        (recovery.allowance(controller.cwnd()) > 0).then_some(range)
    }

    /// Octets of the peer's window that are not in use.
    pub(crate) fn usable_window(&self) -> u32 {
        let end = self.data_una() + self.send.snd_wnd;
        if end.is_after(self.send.snd_nxt) { end.since(self.send.snd_nxt) } else { 0 }
    }

    /// Octets of new data that one segment carries now; zero for a bare FIN; `None` if nothing may go out.
    fn due_new_octets(&mut self, shared: &mut Shared, now: Instant) -> Option<u32> {
        let unsent = self.unsent_len();
        if unsent == 0 {
            self.flags.push = false;
            if let Some(transfer) = &mut self.transfer {
                transfer.recovery.mark_app_limited();
            }
            return (self.is_fin_due() && self.usable_window() > 0).then_some(0);
        }
        let cwnd = self.cwnd();
        let allowance = self.wake(shared, now).recovery.allowance(cwnd);
        let usable = self.usable_window();
        let mss = u32::from(self.send.mss);
        let octets = unsent.min(mss).min(usable);
        // A window that takes a part of a segment is used only if that part is worth it.
        self.wake(shared, now).cwnd_limited = allowance < octets;
        if octets == 0 || allowance < octets {
            return None;
        }
        if octets < mss && !self.may_send_small(octets, unsent, now) {
            return None;
        }
        if !self.is_departure_due(now) {
            return None;
        }
        let probe = self.due_mtu_probe(unsent, shared, now).filter(|probe| allowance >= *probe);
        Some(probe.unwrap_or(octets))
    }

    /// RFC 9293, 3.7.4 and 3.8.6.2.1: Nagle's rule, cork, and the sender's part against silly windows.
    fn may_send_small(&mut self, octets: u32, unsent: u32, now: Instant) -> bool {
        if octets < unsent {
            // The window cuts: worth it for half of the largest window, or when the override timer says so.
            return octets >= self.send.max_window / 2 || self.flags.push;
        }
        if self.flags.write_closed || self.flags.push {
            return true;
        }
        if self.options.cork {
            if !self.is_timer_set(Timer::Send) {
                self.set_timer(Timer::Send, now + HOLD_MAX);
            }
            return false;
        }
        self.options.no_delay || !self.send.has_small_in_flight()
    }

    /// Whether the pacer lets the next segment go; if not, a timer will.
    fn is_departure_due(&mut self, now: Instant) -> bool {
        let at = self.transfer.as_ref().map_or(now, |transfer| transfer.pacer.earliest_departure(now));
        if at <= now {
            return true;
        }
        self.set_timer(Timer::Send, at);
        false
    }

    fn pacing_rate(&self) -> Option<u64> {
        let controller = &self.transfer.as_ref()?.controller;
        let Some(limit) = self.options.pacing_rate_max else {
            return controller.pacing_rate();
        };
        let wanted = controller.pacing_rate();
        let wanted =
            wanted.or_else(|| window_rate(controller.cwnd(), controller.ssthresh(), self.rtt.srtt()));
        Some(wanted.map_or(limit, |rate| rate.min(limit)))
    }

    fn transmit_new(
        &mut self,
        octets: u32,
        room: &mut [u8],
        shared: &mut Shared,
        now: Instant,
    ) -> Option<usize> {
        let seq = self.send.snd_nxt;
        let in_flight = self.in_flight();
        let (len, range) = self.write_data(seq, octets, true, room, shared, now)?;
        self.send.snd_nxt = range.end;
        if octets > u32::from(self.send.mss) {
            self.wake(shared, now).mtu_probe = Some(range);
        }
        if self.unsent_len() == 0 {
            self.flags.push = false;
        }
        let rate = self.pacing_rate();
        let transfer = self.wake(shared, now);
        transfer.controller.on_sent(now, in_flight);
        transfer.pacer.on_sent(len as u32, now, rate);
        let sent = self.transmission(range, now);
        self.with_recovery(shared, now, |recovery, context| recovery.on_sent(&sent, context));
        self.stop_timer(Timer::Persist);
        shared.counters.out_segs += 1;
        Some(len)
    }

    fn transmission(&self, range: SeqRange, now: Instant) -> Transmission {
        Transmission {
            range,
            timestamp_value: if self.flags.timestamps { self.timestamp_now(now) } else { 0 },
            has_control_octet: self.flags.fin_was_sent && range.end.is_after(self.fin_seq()),
        }
    }

    /// Sends octets of `range` again, as many as fit.
    fn transmit_again(
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
        self.wake(shared, now).pacer.on_sent(len as u32, now, rate);
        self.tally.retransmits_total += 1;
        self.tally.bytes_retrans = self.tally.bytes_retrans.wrapping_add(sent.len());
        shared.counters.retrans_segs += 1;
        Some((len, sent))
    }

    /// RFC 8985, 7.3: new data if there is some that the window takes, else the last segment again.
    fn transmit_loss_probe(
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
            let range = SeqRange::new(start, last.end);
            (self.transmit_again(range, room, shared, now)?.0, Probe::Retransmission)
        };
        let snd_nxt = self.send.snd_nxt;
        self.wake(shared, now).recovery.on_probe_sent(probe, snd_nxt);
        Some(len)
    }

    /// Writes a segment with data from `seq` on, cut to what fits beside the options, and the FIN if it follows and `with_fin`
    /// says so. Its length as a packet, and the sequence space it takes.
    fn write_data(
        &mut self,
        seq: SeqNum,
        octets: u32,
        with_fin: bool,
        room: &mut [u8],
        shared: &mut Shared,
        now: Instant,
    ) -> Option<(usize, SeqRange)> {
        let mut outgoing = self.outgoing(seq, flag::ACK, shared, now);
        let payload_max = self.payload_beside(&outgoing.options, octets);
        let octets = octets.min(payload_max);
        let end = seq + octets;
        let fin_seq = self.fin_seq();
        let is_new = !seq.is_before(self.send.snd_nxt);
        let fits = !is_new || octets < self.usable_window();
        let fin = with_fin && fits && self.flags.write_closed && end == fin_seq;
        if fin {
            outgoing.flags |= flag::FIN;
        }
        let is_small = octets < payload_max;
        if octets > 0 && (end == fin_seq || is_new && is_small) {
            outgoing.flags |= flag::PSH;
        }
        let ecn = self.mark_ecn(&mut outgoing, is_new && octets > 0);
        let offset = seq.since(self.data_una()) as usize;
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

    /// Octets of payload beside options that may have grown by SACK blocks. More than a full segment is wanted only for a
    /// probe of the path MTU.
    fn payload_beside(&self, options: &SegmentOptions, wanted: u32) -> u32 {
        let extra = options.sack_len() as u32;
        wanted.max(self.send.mss.into()).saturating_sub(extra).max(1)
    }

    /// RFC 3168, 6.1: new data is ECN-capable; the first after a reduction says so.
    fn mark_ecn(&mut self, outgoing: &mut Outgoing, new_data: bool) -> Ecn {
        if !self.flags.ecn || !new_data {
            return Ecn::NotEct;
        }
        if self.flags.announce_cwr {
            self.flags.announce_cwr = false;
            outgoing.flags |= flag::CWR;
        }
        Ecn::Ect0
    }

    /// Sends a segment without data: an acknowledgement, or a probe if `seq` is in front of what is expected.
    fn transmit_bare(
        &mut self,
        seq: SeqNum,
        room: &mut [u8],
        shared: &mut Shared,
        now: Instant,
    ) -> Option<usize> {
        let outgoing = self.outgoing(seq, flag::ACK, shared, now);
        let len = self.writer(shared, Ecn::NotEct).write(room, &outgoing, 0, |_| ())?;
        shared.counters.out_segs += 1;
        self.on_written(&outgoing, 0, TraceKind::Sent, shared, now);
        Some(len)
    }

    /// A reset, behind which the connection is over.
    fn transmit_reset(&mut self, room: &mut [u8], shared: &mut Shared, now: Instant) -> Option<usize> {
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

    /// A SYN, or the SYN-ACK to a SYN that crossed ours or brought data.
    fn transmit_handshake(&mut self, room: &mut [u8], shared: &mut Shared, now: Instant) -> Option<usize> {
        self.flags.handshake_due = false;
        self.handshakes += 1;
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
            self.handshake_sent_at = now;
            shared.counters.out_segs += 1;
        } else {
            shared.counters.retrans_segs += 1;
            self.tally.retransmits_total += 1;
        }
        self.set_timer(Timer::Handshake, now + self.rtt.rto());
        let kind = if self.handshakes == 1 { TraceKind::Sent } else { TraceKind::Retransmitted };
        self.on_written(&outgoing, octets, kind, shared, now);
        Some(len)
    }

    fn handshake_segment(&self, shared: &Shared, now: Instant) -> Outgoing {
        let is_syn = self.state == State::SynSent;
        let timestamps = Timestamps { value: self.timestamp_now(now), echo: self.receive.ts_recent };
        let scaling =
            if is_syn { shared.config.window_scaling } else { self.receive.scale > 0 || self.send.scale > 0 };
        let offered = if is_syn { self.receive.scale_to_offer() } else { self.receive.scale };
        let options = SegmentOptions {
            mss: Some(self.mss_to_announce(shared)),
            window_scale: scaling.then_some(offered),
            sack_permitted: self.flags.sack,
            timestamps: self.flags.timestamps.then_some(timestamps),
            fast_open: self.fast_open.as_deref().cloned().filter(|_| self.handshakes <= 1),
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
        Outgoing { seq: self.send.iss, ack: self.receive.rcv_nxt, flags: control | ecn, window, options }
    }

    /// Window that our SYN or SYN-ACK offers: it is never scaled (RFC 7323, 2.2).
    pub(crate) fn window_of_handshake(&self) -> u16 {
        self.receive.limit.min(self.receive.window_clamp).min(u32::from(u16::MAX)) as u16
    }

    /// Header of a segment with ACK: acknowledgement, window, timestamps, and SACK blocks if there is a reason for some.
    fn outgoing(&mut self, seq: SeqNum, flags: u8, shared: &Shared, now: Instant) -> Outgoing {
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
        Outgoing { seq, ack: self.receive.rcv_nxt, flags: flags | echo, window, options }
    }

    fn writer(&self, shared: &Shared, ecn: Ecn) -> SegmentWriter {
        SegmentWriter {
            key: self.key,
            hop_limit: self.options.hop_limit,
            traffic_class: self.options.traffic_class & !3 | ecn as u8,
            checksum_offload: shared.paths.link(self.link).tx_checksum_offload,
        }
    }

    /// What every segment sets back: the delayed acknowledgement, and the memory of what was offered.
    fn on_written(
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

    fn count_acknowledgement(&self, outgoing: &Outgoing, shared: &mut Shared) {
        match self.receive.pending_duplicate().filter(|_| self.flags.sack) {
            Some(true) => shared.counters.dsack_old_sent += 1,
            Some(false) => shared.counters.dsack_ofo_sent += 1,
            None => {}
        }
        let closed_before = self.receive.offered() == 0;
        let closed = outgoing.window == 0;
        shared.counters.to_zero_window += u64::from(closed && !closed_before);
        shared.counters.from_zero_window += u64::from(!closed && closed_before);
    }

    /// The acknowledgement of the peer's FIN, which TIME-WAIT will repeat if need be.
    pub(crate) fn final_ack(&mut self, shared: &Shared, now: Instant) -> Outgoing {
        self.outgoing(self.send.snd_nxt, flag::ACK, shared, now)
    }

    /// What TIME-WAIT has to know. It goes on offering the `window` of the final acknowledgement.
    pub(crate) fn time_wait_entry(&self, window: u16) -> TimeWait {
        TimeWait {
            key: self.key,
            snd_nxt: self.send.snd_nxt,
            rcv_nxt: self.receive.rcv_nxt,
            window,
            ts_recent: self.flags.timestamps.then_some(self.receive.ts_recent),
        }
    }

    /// Segment size to announce: what our link takes (RFC 9293, 3.7.1; RFC 6691).
    pub(crate) fn mss_to_announce(&self, shared: &Shared) -> u16 {
        mss_of_link(shared, self.link, &self.key, self.options.mss_max)
    }

    /// Works out anew how much payload a full segment carries.
    pub(crate) fn update_mss(&mut self, shared: &mut Shared) {
        let link = shared.paths.link(self.link);
        let mtu = self.path_mtu.mtu().min(link.mtu);
        let by_path = mtu.saturating_sub(headers_len(&self.key.remote().ip()));
        let options = if self.flags.timestamps { TIMESTAMPS_LEN as u16 } else { 0 };
        let by_path = by_path.saturating_sub(options);
        self.send.mss = by_path.min(self.payload_limit(shared)).max(PAYLOAD_MIN);
        if let Some(transfer) = &mut self.transfer {
            transfer.controller.set_mss(self.send.mss.into());
            transfer.pacer.set_mss(self.send.mss.into());
        }
    }

    /// Octets of payload of a full segment that the peer and the options allow, whatever the path does.
    pub(crate) fn payload_limit(&self, shared: &Shared) -> u16 {
        let clamps = [shared.paths.link(self.link).mss_clamp, self.options.mss_max];
        let mss = clamps.into_iter().flatten().fold(self.send.peer_mss, u16::min);
        let options = if self.flags.timestamps { TIMESTAMPS_LEN as u16 } else { 0 };
        mss.saturating_sub(options)
    }

    /// Data that the SYN may carry (RFC 7413, 4.1.3): with a cookie, and what fits beside the options.
    fn octets_in_syn(&self, options: &SegmentOptions) -> u32 {
        let has_cookie = options.fast_open.as_ref().is_some_and(|cookie| !cookie.is_empty());
        if !has_cookie || self.handshakes > 1 {
            return 0;
        }
        let room = usize::from(self.send.peer_mss).saturating_sub(options.encode().len());
        self.send.queue.len().min(room) as u32
    }
}

/// Segment size that `link` takes on the way to `key`'s peer.
pub(crate) fn mss_of_link(
    shared: &Shared,
    link: crate::path::LinkId,
    key: &FlowKey,
    mss_max: Option<u16>,
) -> u16 {
    let link = shared.paths.link(link);
    let by_link = link.mtu.saturating_sub(headers_len(&key.remote().ip()));
    [link.mss_clamp, mss_max].into_iter().flatten().fold(by_link, u16::min)
}
