//! Incomplete handshakes that a peer began: SYN-RECEIVED of RFC 9293, 3.3.2. They are as small as possible, because
//! anybody may begin any number of them (RFC 4987).

use clock::{Duration, Instant};
use wire::tcp::flag;

use crate::config::TcpOptions;
use crate::flow_table::FlowKey;
use crate::isn::timestamp_clock;
use crate::path::{LinkId, PathId};
use crate::segment::{Ecn, FastOpenCookie, Segment, SegmentOptions, Timestamps};
use crate::seq::SeqNum;
use crate::slab::Handle;
use crate::syn_cookie::{CookieOptions, decode_timestamp};
use crate::tcp::listener::Listener;
use crate::tcp::segment_writer::Outgoing;

/// What both sides said in SYN and SYN-ACK, as far as the connection needs it.
#[derive(Clone, Debug)]
pub(crate) struct Agreement {
    pub(crate) irs: SeqNum,
    pub(crate) iss: SeqNum,
    pub(crate) peer_mss: u16,
    /// The peer's shift and ours; `None` if it did not offer scaling.
    pub(crate) scales: Option<(u8, u8)>,
    pub(crate) sack: bool,
    pub(crate) ecn: bool,
    /// The peer's clock, if timestamps are on.
    pub(crate) ts_recent: Option<u32>,
    pub(crate) timestamp_offset: u32,
    /// Window that our SYN-ACK offered.
    pub(crate) window: u16,
}

/// A half-open connection.
#[derive(Debug)]
pub(crate) struct HalfOpen {
    pub(crate) key: FlowKey,
    pub(crate) listener: Handle<Listener>,
    pub(crate) path: PathId,
    pub(crate) link: LinkId,
    pub(crate) agreement: Agreement,
    /// SYN-ACKs sent.
    pub(crate) sent: u8,
    /// Expiries of its timer.
    pub(crate) timeouts: u8,
    /// When the ACK came though the listener wants data first (`TCP_DEFER_ACCEPT`), or its queue was full.
    pub(crate) acknowledged_at: Option<Instant>,
    /// When a segment outside the window was last answered.
    pub(crate) answered_at: Option<Instant>,
    /// In the list of handshakes whose SYN-ACK is due.
    pub(crate) queued: bool,
    pub(crate) first_sent_at: Instant,
    pub(crate) fast_open: Option<Box<FastOpenCookie>>,
    /// Headers of the SYN, if the listener wants them.
    pub(crate) saved_syn: Option<Box<[u8]>>,
}

/// What becomes of a segment for a half-open connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HalfOpenVerdict {
    /// Nothing.
    Ignore,
    /// The SYN-ACK is sent again.
    Repeat,
    /// An ACK of what has come is sent.
    Acknowledge,
    /// The connection is complete, and the segment is for it.
    Complete,
    /// The peer reset it.
    Remove,
    /// The segment is answered with a reset.
    ResetPeer,
    /// The ACK came, data did not: wait for it.
    Defer,
}

impl HalfOpen {
    /// Whether a segment acknowledges another SYN-ACK than this one's.
    pub(crate) fn is_of_another(&self, segment: &Segment<'_>) -> bool {
        segment.has(flag::ACK)
            && !segment.has(flag::SYN)
            && !segment.has(flag::RST)
            && segment.ack != self.agreement.iss + 1
    }

    /// RFC 9293, 3.10.7.4 for SYN-RECEIVED, whose windows begin at `irs + 1` and `iss + 1`.
    pub(crate) fn on_segment(&self, segment: &Segment<'_>, defer_accept: Option<u8>) -> HalfOpenVerdict {
        let rcv_nxt = self.agreement.irs + 1;
        if segment.has(flag::SYN) && !segment.has(flag::ACK) && segment.seq == self.agreement.irs {
            return HalfOpenVerdict::Repeat;
        }
        if self.is_old(segment) {
            return HalfOpenVerdict::Repeat;
        }
        let in_window = self.is_in_window(segment);
        if segment.has(flag::RST) {
            return match in_window {
                _ if segment.seq == rcv_nxt => HalfOpenVerdict::Remove,
                true => HalfOpenVerdict::Acknowledge, // RFC 5961, 3.2
                false => HalfOpenVerdict::Ignore,
            };
        }
        // A SYN in the window is not believed either (RFC 5961, 4.2): who began anew answers the ACK by a reset.
        if !in_window || segment.has(flag::SYN) {
            return HalfOpenVerdict::Acknowledge;
        }
        if !segment.has(flag::ACK) {
            return HalfOpenVerdict::Ignore;
        }
        if segment.ack != self.agreement.iss + 1 {
            return HalfOpenVerdict::ResetPeer;
        }
        if segment.is_empty() && defer_accept.is_some_and(|limit| self.timeouts < limit) {
            return HalfOpenVerdict::Defer;
        }
        HalfOpenVerdict::Complete
    }

    /// `segment` is answered by another SYN-ACK. A SYN that came again tells the peer's time, lest the echo make a round trip of
    /// all the time since the first (RFC 7323, 4.3).
    pub(crate) fn note_repetition(&mut self, segment: &Segment<'_>) {
        if segment.has(flag::SYN)
            && let (Some(recent), Some(now)) = (&mut self.agreement.ts_recent, segment.options.timestamps)
            && now.value.wrapping_sub(*recent) as i32 > 0
        {
            *recent = now.value;
        }
    }

    /// Whether any of the segment's sequence numbers are in the window that the SYN-ACK offered.
    fn is_in_window(&self, segment: &Segment<'_>) -> bool {
        let start = self.agreement.irs + 1;
        let end = start + u32::from(self.agreement.window).max(1);
        let range = segment.range();
        let reaches = range.end.is_after(start) || range.start.is_at_or_after(start);
        reaches && range.start.is_before(end)
    }

    /// Whether the SYN-ACK is sent again as the timer expires: not while the ACK is there and only data is missing, except at
    /// the end of that time, as Linux does.
    pub(crate) fn is_repetition_due(&self, defer_accept: Option<u8>) -> bool {
        self.acknowledged_at.is_none() || defer_accept.is_none_or(|limit| self.timeouts >= limit)
    }

    /// An ACK of what has come.
    pub(crate) fn bare_ack(&self, now: Instant) -> Outgoing {
        let syn_ack = self.agreement.syn_ack(0, now);
        let options = SegmentOptions { timestamps: syn_ack.options.timestamps, ..SegmentOptions::default() };
        let scale = self.agreement.scales.map_or(0, |(_, ours)| ours);
        // Rounded up: less than the SYN-ACK offered would take some of it back (RFC 9293, 3.8.6).
        let window = self.agreement.window.div_ceil(1 << scale);
        Outgoing { seq: self.agreement.iss + 1, flags: flag::ACK, window, options, ..syn_ack }
    }

    /// The ACK that arrived and was not kept. Its window is unknown: the next segment has one.
    pub(crate) fn last_ack(&self) -> Segment<'static> {
        let timestamps = self.agreement.ts_recent.map(|value| Timestamps { value, echo: 0 });
        Segment {
            seq: self.agreement.irs + 1,
            ack: self.agreement.iss + 1,
            flags: flag::ACK,
            window: 0,
            urgent: 0,
            options: SegmentOptions { timestamps, ..SegmentOptions::default() },
            ecn: Ecn::NotEct,
            payload: &[],
        }
    }

    /// PAWS (RFC 7323, 5.3).
    fn is_old(&self, segment: &Segment<'_>) -> bool {
        let Some(recent) = self.agreement.ts_recent.filter(|_| !segment.has(flag::RST)) else {
            return false;
        };
        segment.options.timestamps.is_some_and(|t| (t.value.wrapping_sub(recent) as i32) < 0)
    }

    /// The SYN-ACK.
    pub(crate) fn syn_ack(&self, mss: u16, now: Instant) -> Outgoing {
        let mut outgoing = self.agreement.syn_ack(mss, now);
        outgoing.options.fast_open = self.fast_open.as_deref().cloned();
        outgoing
    }

    /// When the next SYN-ACK is due: one second, then twice as long each time (RFC 6298, 2.1 and 5.5).
    pub(crate) fn next_timeout(&self, now: Instant) -> Instant {
        now + Duration::from_secs(1) * (1 << u32::from(self.timeouts.min(7)))
    }
}

impl Agreement {
    /// What a cookie has to bring back, in the timestamp.
    pub(crate) fn cookie_options(&self) -> CookieOptions {
        CookieOptions { window_scale: self.scales.map(|(theirs, _)| theirs), sack: self.sack, ecn: self.ecn }
    }

    /// Corrects what the ACK for a cookie alone would make of it by what the cookie brought back.
    pub(crate) fn restore_from_cookie(
        &mut self,
        irs: SeqNum,
        cookie: SeqNum,
        mss: u16,
        ack: &SegmentOptions,
        ours: u8,
    ) {
        let remembered =
            ack.timestamps.map(|timestamps| decode_timestamp(timestamps.echo)).unwrap_or_default();
        self.irs = irs;
        self.iss = cookie;
        self.peer_mss = mss;
        self.scales = remembered.window_scale.map(|theirs| (theirs, ours));
        self.sack = remembered.sack;
        self.ecn = remembered.ecn;
    }

    /// The SYN-ACK of this agreement.
    pub(crate) fn syn_ack(&self, mss: u16, now: Instant) -> Outgoing {
        let timestamps = self
            .ts_recent
            .map(|echo| Timestamps { value: timestamp_clock(now).wrapping_add(self.timestamp_offset), echo });
        let options = SegmentOptions {
            mss: Some(mss),
            window_scale: self.scales.map(|(_, ours)| ours),
            sack_permitted: self.sack,
            timestamps,
            ..SegmentOptions::default()
        };
        let ecn = if self.ecn { flag::ECE } else { 0 };
        Outgoing {
            seq: self.iss,
            ack: self.irs + 1,
            flags: flag::SYN | flag::ACK | ecn,
            window: self.window,
            options,
            ..Outgoing::default()
        }
    }
}

/// Expiries of the timer after which a half-open connection is given up: more if the listener waits for data.
pub(crate) fn retries(options: &TcpOptions, configured: u8, acknowledged: bool) -> u8 {
    let deferred = options.defer_accept.filter(|_| acknowledged);
    configured.max(deferred.unwrap_or(0))
}
