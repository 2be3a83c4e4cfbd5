//! What an acknowledgement reports about the segments in flight.

use clock::{Duration, Instant};

use super::Recovery;
use super::delivery_rate::RateSampler;
use super::episodes::Before;
use super::flight::Flight;
use super::forward_rto::Evidence;
use super::interface::{AckSegment, Context, State};
use super::rack::{Arrival, Rack, ReorderingWindow};
use super::sack_blocks::SackBlocks;
use super::segment::{Segment, Standing};
use crate::congestion::RateSample;
use crate::seq::SeqNum;

/// The content of one acknowledgement.
#[derive(Debug)]
pub(super) struct News {
    /// SND.UNA with it.
    pub(super) una: SeqNum,
    pub(super) before: Before,
    /// Octets that SND.UNA moved over.
    pub(super) cumulative: u32,
    /// Octets that newly are known to have arrived.
    pub(super) delivered: u32,
    pub(super) evidence: Evidence,
    pub(super) rtt: Option<Duration>,
    pub(super) rate: Option<RateSample>,
}

impl News {
    pub(super) fn has_advanced(&self) -> bool {
        self.cumulative > 0
    }
}

impl Recovery {
    /// Marks the scoreboard and takes samples.
    pub(super) fn take_news(
        &mut self,
        ack: &AckSegment<'_>,
        una: SeqNum,
        blocks: &SackBlocks,
        flight: &mut Flight,
        cx: &mut Context<'_>,
    ) -> News {
        let before = Before::of(flight);
        let una_before = flight.una(una);
        let harvest = self.gather(ack, una, blocks, flight, cx);
        let Harvest { cumulative, mut delivered, has_sacked, sampler, times, .. } = harvest;
        if cumulative > 0 {
            self.una_before = una_before;
        }
        let is_duplicate = is_duplicate(ack, una, cumulative) && !flight.scoreboard.is_empty();
        if !cx.sack {
            delivered = self.count_duplicates(is_duplicate, cumulative, flight, cx);
        }
        self.delivered.add(delivered, cx.now);
        let evidence = Evidence {
            // What a retransmission filled the hole before may have been there for long.
            original_arrived: times.original_arrived && !times.retransmission_arrived,
            has_advanced: cumulative > 0,
            has_sacked,
            is_duplicate,
            has_unsent: ack.has_unsent,
        };
        News {
            una,
            before,
            cumulative,
            delivered,
            evidence,
            rtt: take_rtt(&times, ack, cumulative > 0, cx),
            rate: sampler.finish(&self.delivered, cx.rtt.min_rtt(), &mut flight.rate_start),
        }
    }

    /// Marks the scoreboard and looks at what is newly delivered.
    fn gather<'a>(
        &'a mut self,
        ack: &AckSegment<'_>,
        una: SeqNum,
        blocks: &SackBlocks,
        flight: &'a mut Flight,
        cx: &Context<'_>,
    ) -> Harvest<'a> {
        let mut harvest = Harvest {
            rack: &mut flight.rack,
            reordering: &mut self.reordering,
            arrival: Arrival { now: cx.now, min_rtt: cx.rtt.min_rtt(), echoed: ack.echoed },
            recovery_point: self.recovery_point,
            cumulative: 0,
            delivered: 0,
            has_sacked: false,
            sampler: RateSampler::default(),
            times: Times::default(),
        };
        flight.scoreboard.advance(una, |segment| harvest.see_acknowledged(segment));
        for &block in &blocks.blocks {
            flight.scoreboard.sack(block, cx.mss, |segment| harvest.see_sacked(segment));
        }
        harvest
    }

    /// Without SACK: octets delivered, duplicate acknowledgements taken for arrived segments.
    fn count_duplicates(
        &self,
        is_duplicate: bool,
        cumulative: u32,
        flight: &mut Flight,
        cx: &Context<'_>,
    ) -> u32 {
        if cumulative > 0 {
            let delivered = flight.duplicates.on_advance(cumulative, cx.mss);
            if matches!(self.state, State::Open | State::Disorder | State::Loss) {
                flight.duplicates.clear();
            }
            return delivered;
        }
        // After a timeout a duplicate tells of an arrival only if F-RTO has sent new data: what was sent before is lost
        // (RFC 5682, 2.1, step 3a: such an arrival clocks out what is to be sent again).
        let may_have_arrived = || {
            let una = flight.una(self.recovery_point);
            self.state != State::Loss || flight.snd_nxt(una).is_after(self.recovery_point)
        };
        if !is_duplicate || !may_have_arrived() {
            return 0;
        }
        let hole = flight.scoreboard.lost().max(cx.mss);
        flight.duplicates.on_duplicate(cx.mss, flight.scoreboard.flight_size().saturating_sub(hole))
    }
}

/// Gathers what the newly delivered segments of one acknowledgement tell.
struct Harvest<'a> {
    rack: &'a mut Rack,
    reordering: &'a mut ReorderingWindow,
    arrival: Arrival,
    recovery_point: SeqNum,
    cumulative: u32,
    delivered: u32,
    has_sacked: bool,
    sampler: RateSampler,
    times: Times,
}

/// When newly delivered segments were sent.
#[derive(Debug, Default)]
struct Times {
    /// First and last of those sent once.
    first: Option<Instant>,
    last: Option<Instant>,
    /// One sent once, before the recovery point, arrived.
    original_arrived: bool,
    /// One sent again is acknowledged.
    retransmission_arrived: bool,
}

impl Harvest<'_> {
    fn see_acknowledged(&mut self, segment: &Segment) {
        self.cumulative += segment.len();
        self.times.retransmission_arrived |= segment.was_retransmitted();
        if segment.standing != Standing::Sacked {
            self.see(segment);
        }
    }

    fn see_sacked(&mut self, segment: &Segment) {
        self.has_sacked = true;
        self.see(segment);
    }

    fn see(&mut self, segment: &Segment) {
        self.delivered += segment.len();
        self.rack.on_delivered(segment, self.arrival, self.reordering);
        self.sampler.see(segment);
        if !segment.was_retransmitted() {
            let times = &mut self.times;
            times.first = Some(times.first.map_or(segment.sent_at, |first| first.min(segment.sent_at)));
            times.last = times.last.max(Some(segment.sent_at));
            times.original_arrived |= segment.range.end.is_at_or_before(self.recovery_point);
        }
    }
}

/// Whether `ack`, with which SND.UNA is `una`, is a duplicate acknowledgement as far as the segment tells (RFC 5681, 2).
pub(super) fn is_duplicate(ack: &AckSegment<'_>, una: SeqNum, cumulative: u32) -> bool {
    cumulative == 0 && ack.ack == una && !ack.has_payload && !ack.window_changed
}

/// Gives the estimator its samples. The timeout follows the segment that waited longest, as it must outlast the peer's
/// delayed acknowledgements; the controller gets the one that waited least.
fn take_rtt(
    times: &Times,
    ack: &AckSegment<'_>,
    has_advanced: bool,
    cx: &mut Context<'_>,
) -> Option<Duration> {
    let (Some(first), Some(last), false) = (times.first, times.last, times.retransmission_arrived) else {
        // Karn's rule: only a timestamp tells which transmission this acknowledges (RFC 6298, 3; RFC 7323, 4.1).
        let rtt = ack.timestamp_rtt.filter(|_| has_advanced)?;
        cx.rtt.on_timestamp_sample(rtt, cx.now);
        return Some(rtt);
    };
    let rtt = cx.now.since(last);
    cx.rtt.on_sample(cx.now.since(first), cx.now);
    cx.rtt.on_min_rtt(rtt, cx.now);
    Some(rtt)
}
