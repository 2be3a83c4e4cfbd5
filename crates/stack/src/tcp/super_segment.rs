//! Several full segments of new data as one packet, which the device cuts ([`wire::super_segment`]).
//!
//! Only its headers are written here. The payload stays in the send queue, where the device reads it: nothing is copied. For everything
//! else (the windows, recovery, pacing, counters) it is the segments that it will be cut into.

use clock::Instant;
use wire::tcp::flag;

use crate::congestion::CongestionControl;
use crate::recovery::Transmission;
use crate::segment::{Ecn, OPTIONS_LEN_MAX, headers_len};
use crate::seq::SeqRange;
use crate::tcp::connection::{Connection, Shared, millis};
use crate::tcp::timers::Timer;
use crate::trace::TraceKind;

/// A packet that a connection has written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    /// Its octets in the room: all of it, or the headers of a super-segment.
    pub(crate) len: usize,
    /// The payload of a super-segment.
    pub(crate) cut: Option<Cut>,
}

/// Payload that a device cuts into segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Where it begins in the send queue.
    pub(crate) offset: usize,
    pub(crate) len: usize,
    pub(crate) segment_size: u16,
}

impl Packet {
    pub(crate) fn whole(len: usize) -> Packet {
        Packet { len, cut: None }
    }

    /// Segments on the wire.
    pub(crate) fn segments(&self) -> u32 {
        self.cut.map_or(1, |cut| cut.segments())
    }
}

impl Cut {
    fn segments(&self) -> u32 {
        self.len.div_ceil(usize::from(self.segment_size).max(1)) as u32
    }
}

impl Connection {
    /// Octets of a super-segment that may leave now, when a segment of `first` octets may; `None` if it is that segment alone, or the
    /// device does not cut.
    pub(super) fn super_segment_octets(&mut self, first: u32, shared: &Shared, now: Instant) -> Option<u32> {
        let mss = u32::from(self.send.mss);
        let most = u32::from(shared.paths.link(self.link).tso_max);
        let unsent = self.unsent_len();
        if most == 0 || first != mss || unsent == mss || !self.is_ordinary() {
            return None;
        }
        let headers = u32::from(headers_len(&self.key.remote().ip())) + OPTIONS_LEN_MAX as u32;
        let record = self.record_from(self.send.snd_nxt).min(unsent);
        let paced = self.transfer.as_ref().map_or(0, |transfer| transfer.pacer.burst(self.pacing_rate()));
        let limits = [self.allowance(), self.usable_window(), paced, most.saturating_sub(headers)];
        let octets = limits.into_iter().fold(record, u32::min);
        let rest = octets % mss;
        let takes_rest = octets == unsent && rest > 0 && self.may_send_small(rest, rest, now);
        let octets = if takes_rest { octets } else { octets - rest };
        (octets > mss).then_some(octets)
    }

    /// Whether all segments of new data have the same header, but for what the last one says.
    fn is_ordinary(&self) -> bool {
        !self.is_sending_urgent() && !self.flags.announce_cwr
    }

    /// Writes the headers of a super-segment with `octets` of new data.
    pub(super) fn transmit_super_segment(
        &mut self,
        octets: u32,
        room: &mut [u8],
        shared: &mut Shared,
        now: Instant,
    ) -> Option<Packet> {
        let seq = self.send.snd_nxt;
        let end = seq + octets;
        let mut outgoing = self.outgoing(seq, flag::ACK, shared, now);
        let segment_size = self.payload_beside(&outgoing.options, 0, room.len());
        let is_end = end == self.fin_seq();
        let fin = is_end && self.flags.write_closed && octets < self.usable_window();
        let has_small = !octets.is_multiple_of(segment_size);
        if self.is_pushed(end, has_small) {
            outgoing.flags |= flag::PSH;
        }
        if fin {
            outgoing.flags |= flag::FIN;
        }
        let ecn = if self.flags.ecn { Ecn::Ect0 } else { Ecn::NotEct };
        let len = self.writer(shared, ecn).write_headers(room, &outgoing, octets as usize)?;
        let offset = seq.since(self.data_una()) as usize;
        let cut = Cut { offset, len: octets as usize, segment_size: segment_size as u16 };
        self.flags.fin_was_sent |= fin;
        let range = SeqRange::new(seq, end + u32::from(fin));
        if has_small {
            self.send.small_end = range.end;
        }
        let more = cut.segments() - 1;
        self.tally.data_segs_out = self.tally.data_segs_out.wrapping_add(1 + more);
        self.tally.segs_out = self.tally.segs_out.wrapping_add(more);
        self.tally.last_sent_ms = millis(now);
        shared.counters.out_segs += u64::from(more);
        self.on_written(&outgoing, octets, TraceKind::Sent, shared, now);
        self.on_new_sent(range, segment_size, shared, now);
        Some(Packet { len, cut: Some(cut) })
    }

    /// New data has left as segments of up to `segment_size` octets.
    pub(super) fn on_new_sent(
        &mut self,
        range: SeqRange,
        segment_size: u32,
        shared: &mut Shared,
        now: Instant,
    ) {
        let in_flight = self.in_flight();
        self.send.snd_nxt = range.end;
        self.flags.push &= self.unsent_len() > 0;
        self.flags.window_override = false;
        let rate = self.pacing_rate();
        let transfer = self.wake(shared, now);
        transfer.controller.on_sent(now, in_flight);
        transfer.pacer.on_sent(range.len(), now, rate); // Rates count what they sample: payload.
        let sent = self.transmission(range, now);
        self.with_recovery(shared, now, |recovery, context| {
            for part in sent.cut(segment_size) {
                recovery.on_sent(&part, context);
            }
        });
        self.stop_timer(Timer::Persist);
        self.stop_timer(Timer::Send); // What waits behind it waits for its acknowledgement, or for the pacer anew.
        shared.counters.out_segs += 1;
    }
}

impl Transmission {
    /// The segments of a super-segment. A FIN goes with the last one.
    fn cut(self, segment_size: u32) -> impl Iterator<Item = Transmission> {
        let Transmission { range, has_control_octet, .. } = self;
        let octets = range.len() - u32::from(has_control_octet);
        let size = segment_size.max(1);
        let segments = octets.div_ceil(size).max(1);
        (0..segments).map(move |n| {
            let is_last = n + 1 == segments;
            let end = if is_last { range.end } else { range.start + (n + 1) * size };
            let range = SeqRange::new(range.start + n * size, end);
            Transmission { range, has_control_octet: has_control_octet && is_last, ..self }
        })
    }
}
