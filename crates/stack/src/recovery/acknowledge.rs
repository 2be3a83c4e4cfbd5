//! What an acknowledgement does.

use clock::Instant;

use super::Recovery;
use super::delivery_rate::RateSampler;
use super::episodes::{Before, Report};
use super::events::Event;
use super::flight::Flight;
use super::forward_rto::Evidence;
use super::interface::{AckOutcome, AckSegment, Context, State};
use super::rack::{Arrival, Rack, ReorderingWindow};
use super::sack_blocks::SackBlocks;
use super::segment::{Segment, Standing};
use crate::congestion::{Acked, Congestion, RateSample};
use crate::seq::SeqNum;

/// What one acknowledgement tells.
#[derive(Debug)]
struct News {
    una: SeqNum,
    before: Before,
    cumulative: u32,
    delivered: u32,
    evidence: Evidence,
    rtt: Option<clock::Duration>,
    rate: Option<RateSample>,
}

impl News {
    fn has_advanced(&self) -> bool {
        self.cumulative > 0
    }
}

impl Recovery {
    /// Applies an acknowledgement; one that is after `snd_nxt` does nothing.
    pub fn on_ack(&mut self, ack: &AckSegment<'_>, cx: &mut Context<'_>) -> AckOutcome {
        if ack.ack.is_after(ack.snd_nxt) {
            return AckOutcome::default();
        }
        let has_flight = self.flight.is_some();
        if !has_flight && ack.sack.is_empty() && !ack.ece && !self.probe.is_outstanding() {
            return AckOutcome::default();
        }
        let mut flight = self.flight.take().unwrap_or_else(|| cx.pool.take(ack.snd_nxt));
        let outcome = self.apply(ack, &mut flight, cx);
        if flight.scoreboard.is_empty() {
            cx.pool.give_back(flight);
        } else {
            self.flight = Some(flight);
        }
        outcome
    }

    /// Takes the news, then moves from state to state, then sets window and timers.
    fn apply(&mut self, ack: &AckSegment<'_>, flight: &mut Flight, cx: &mut Context<'_>) -> AckOutcome {
        flight.mss = cx.mss;
        let una = ack.ack.max(flight.una(ack.snd_nxt));
        let blocks = if cx.sack { SackBlocks::read(ack, una) } else { SackBlocks::default() };
        let mut report = Report::default();
        let news = self.take_news(ack, una, &blocks, flight, cx);
        self.take_duplicates(&news, &blocks, ack.snd_nxt, cx, &mut report);
        self.judge_probe(ack, &news, &blocks, cx, &mut report);

        self.conclude(ack, &news, flight, cx, &mut report);
        let wait_until = self.look_for_losses(&news, flight, cx, &mut report);
        if ack.ece {
            self.respond_to_echo(&news, flight, cx, &mut report);
        }
        self.settle_state(&news, flight);

        self.tell_controller(&news, report.lost, flight, cx);
        self.pace(flight, news.delivered, news.has_advanced() && report.lost == 0, cx);
        self.set_timers(news.has_advanced(), wait_until, flight, cx);
        AckOutcome {
            cumulative: news.cumulative,
            delivered: news.delivered,
            lost: report.lost,
            rtt: news.rtt,
            congestion: report.congestion,
            recovered: report.recovered,
            undone: report.undone,
            events: report.events,
        }
    }

    /// Marks the scoreboard and takes samples.
    fn take_news(
        &mut self,
        ack: &AckSegment<'_>,
        una: SeqNum,
        blocks: &SackBlocks,
        flight: &mut Flight,
        cx: &mut Context<'_>,
    ) -> News {
        let before = Before::of(flight);
        let una_before = flight.una(una);
        let arrival = Arrival { now: cx.now, min_rtt: cx.rtt.min_rtt(), echoed: ack.echoed };
        let mut harvest = Harvest::new(&mut flight.rack, &mut self.reordering, arrival, self.recovery_point);
        flight.scoreboard.advance(una, |segment| harvest.see_acknowledged(segment));
        let (cumulative, acknowledged) = (harvest.cumulative, harvest.delivered);
        for &block in &blocks.blocks {
            flight.scoreboard.sack(block, cx.mss, |segment| harvest.see(segment));
        }
        let Harvest { mut delivered, sampler, times, .. } = harvest;
        let has_sacked = delivered > acknowledged;
        let original_arrived = times.original_arrived && (cx.sack || !times.retransmission_arrived);
        if cumulative > 0 {
            self.una_before = una_before;
        }
        let is_duplicate = cumulative == 0
            && ack.ack == una
            && !flight.scoreboard.is_empty()
            && !ack.has_payload
            && !ack.window_changed;
        if !cx.sack {
            delivered = self.count_duplicates(is_duplicate, cumulative, flight, cx);
        }
        self.delivered.add(delivered, cx.now);
        let evidence = Evidence {
            original_arrived,
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
        if !is_duplicate || self.state == State::Loss {
            return 0;
        }
        let hole = flight.scoreboard.lost().max(cx.mss);
        flight.duplicates.on_duplicate(cx.mss, flight.scoreboard.flight_size().saturating_sub(hole))
    }

    /// Learns from what the peer got twice (RFC 2883; RFC 8985, 6.2, step 4).
    fn take_duplicates(
        &mut self,
        news: &News,
        blocks: &SackBlocks,
        snd_nxt: SeqNum,
        cx: &Context<'_>,
        report: &mut Report,
    ) {
        if blocks.has_invalid {
            report.events.add(Event::SackDiscarded);
        }
        if let Some(dsack) = blocks.dsack {
            report.events.add(Event::DsackReceived);
            self.undo.on_dsack(dsack);
        }
        if cx.sack {
            self.reordering.on_ack(news.una, snd_nxt, blocks.dsack.is_some());
        }
    }

    /// A probe that repaired a loss hid it from fast recovery, but the window must still shrink (RFC 8985, 7.4.2).
    fn judge_probe(
        &mut self,
        ack: &AckSegment<'_>,
        news: &News,
        blocks: &SackBlocks,
        cx: &mut Context<'_>,
        report: &mut Report,
    ) {
        let is_bare_duplicate = news.cumulative == 0
            && ack.ack == ack.snd_una
            && !ack.has_payload
            && !ack.window_changed
            && ack.sack.is_empty();
        let has_repaired = self.probe.on_ack(news.una, blocks.dsack, is_bare_duplicate);
        if has_repaired && matches!(self.state, State::Open | State::Disorder) {
            report.events.add(Event::LossProbeRecovery);
            report.congestion = Some(Congestion::Loss);
            self.stop_waiting_for_duplicates(cx);
            cx.controller.on_congestion(Congestion::Loss, news.before.flight_size, cx.now);
            cx.controller.on_recovered(cx.now);
            self.recovery_point = ack.snd_nxt;
        }
    }

    /// Ends the recovery that is going on if this acknowledgement completes it or shows it to be spurious.
    fn conclude(
        &mut self,
        ack: &AckSegment<'_>,
        news: &News,
        flight: &mut Flight,
        cx: &mut Context<'_>,
        report: &mut Report,
    ) {
        if ack.ece {
            self.stop_waiting_for_duplicates(cx);
            self.undo.cancel(); // the path is congested, whatever became of the segments
        }
        let is_complete = news.una.is_at_or_after(self.recovery_point);
        match self.state {
            State::Open | State::Disorder if self.undo.was_all_duplicate() => {
                self.take_back(flight, Event::DsackUndo, cx, report);
            }
            State::Open | State::Disorder => {
                if self.undo.expire(news.una) {
                    cx.controller.on_recovered(cx.now);
                }
            }
            State::Cwr if is_complete => self.complete(flight, cx, report),
            State::Cwr => {}
            State::Recovery => self.conclude_recovery(ack, news, is_complete, flight, cx, report),
            State::Loss => self.conclude_loss(ack, news, is_complete, flight, cx, report),
        }
    }

    fn conclude_recovery(
        &mut self,
        ack: &AckSegment<'_>,
        news: &News,
        is_complete: bool,
        flight: &mut Flight,
        cx: &mut Context<'_>,
        report: &mut Report,
    ) {
        if news.has_advanced() && self.undo.was_original_acknowledged(ack.echoed) {
            let event = if is_complete { Event::FullUndo } else { Event::PartialUndo };
            self.take_back(flight, event, cx, report);
        } else if self.undo.was_all_duplicate() {
            self.take_back(flight, Event::DsackUndo, cx, report);
        } else if is_complete {
            self.complete(flight, cx, report);
        } else if !cx.sack && news.has_advanced() {
            // A partial acknowledgement: the next hole is lost too (RFC 6582, 3.2, step 3).
            report.lost += flight.scoreboard.mark_front_lost(cx.mss);
            flight.force_retransmission(cx.mss);
        }
    }

    fn conclude_loss(
        &mut self,
        ack: &AckSegment<'_>,
        news: &News,
        is_complete: bool,
        flight: &mut Flight,
        cx: &mut Context<'_>,
        report: &mut Report,
    ) {
        let was_original = news.has_advanced() && self.undo.was_original_acknowledged(ack.echoed);
        if was_original || self.undo.was_all_duplicate() {
            self.take_back(flight, Event::LossUndo, cx, report);
        } else if flight.frto.on_ack(news.evidence, cx.sack) {
            report.events.add(Event::SpuriousTimeout);
            self.take_back(flight, Event::LossUndo, cx, report);
        } else if is_complete {
            self.complete(flight, cx, report);
        }
    }

    /// Finds losses; the first ones begin a fast recovery. Until when RACK waits for others.
    fn look_for_losses(
        &mut self,
        news: &News,
        flight: &mut Flight,
        cx: &mut Context<'_>,
        report: &mut Report,
    ) -> Option<Instant> {
        if report.undone {
            return None; // what was taken for lost gets the time until the next acknowledgement
        }
        let detected = self.detect_losses(flight, cx);
        report.lost += detected.lost;
        let left_over = report.recovered && flight.scoreboard.lost() > 0;
        if (detected.lost > 0 || left_over) && !matches!(self.state, State::Recovery | State::Loss) {
            self.enter_recovery(flight, news.before, cx, report);
        }
        detected.wait_until
    }

    /// Reduces the window for ECN-echo, once for what was in flight then (RFC 3168, 6.1.2).
    fn respond_to_echo(
        &mut self,
        news: &News,
        flight: &mut Flight,
        cx: &mut Context<'_>,
        report: &mut Report,
    ) {
        let is_new = news.una.is_after(self.recovery_point);
        if is_new && matches!(self.state, State::Open | State::Disorder) {
            self.enter_cwr(flight, news.before, cx, report);
            if flight.scoreboard.is_empty() {
                self.recovery_point = news.una;
                self.complete(flight, cx, report);
            }
        }
    }

    fn settle_state(&mut self, news: &News, flight: &mut Flight) {
        if !matches!(self.state, State::Open | State::Disorder) {
            return;
        }
        let is_disordered = flight.scoreboard.sacked() > 0
            || flight.scoreboard.retransmitted() > 0
            || flight.duplicates.count() > 0;
        self.state = if is_disordered { State::Disorder } else { State::Open };
        if news.una.is_after(self.recovery_point) {
            self.recovery_point = news.una - 1; // so that it never is half the sequence space behind
        }
    }

    fn tell_controller(&self, news: &News, lost: u32, flight: &Flight, cx: &mut Context<'_>) {
        if news.before.flight_size == 0 {
            return;
        }
        let is_limited = flight.usage.is_limited(cx.controller.cwnd(), cx.controller.ssthresh());
        cx.controller.on_acked(&Acked {
            now: cx.now,
            delivered: news.delivered,
            cumulative: news.cumulative,
            prior_in_flight: news.before.in_flight,
            in_flight: flight.in_flight(),
            rtt: news.rtt,
            srtt: cx.rtt.srtt(),
            min_rtt: cx.rtt.min_rtt(),
            rate: news.rate,
            // Duplicate acknowledgements must not open the window (RFC 5681, 3.2, step 1).
            cwnd_limited: is_limited && news.has_advanced(),
            in_recovery: matches!(self.state, State::Recovery | State::Loss),
            snd_una: news.una,
            snd_nxt: flight.snd_nxt(news.una),
            lost,
        });
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

impl<'a> Harvest<'a> {
    fn new(
        rack: &'a mut Rack,
        reordering: &'a mut ReorderingWindow,
        arrival: Arrival,
        recovery_point: SeqNum,
    ) -> Harvest<'a> {
        Harvest {
            rack,
            reordering,
            arrival,
            recovery_point,
            cumulative: 0,
            delivered: 0,
            sampler: RateSampler::default(),
            times: Times::default(),
        }
    }

    fn see_acknowledged(&mut self, segment: &Segment) {
        self.cumulative += segment.len();
        self.times.retransmission_arrived |= segment.was_retransmitted();
        if segment.standing != Standing::Sacked {
            self.see(segment);
        }
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

/// Gives the estimator its samples. The timeout follows the segment that waited longest, as it must outlast the peer's
/// delayed acknowledgements; the controller gets the one that waited least.
fn take_rtt(
    times: &Times,
    ack: &AckSegment<'_>,
    has_advanced: bool,
    cx: &mut Context<'_>,
) -> Option<clock::Duration> {
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
