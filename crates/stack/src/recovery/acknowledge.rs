//! Processes an acknowledgement.

use clock::Instant;

use super::Recovery;
use super::episodes::Report;
use super::events::Event;
use super::flight::Flight;
use super::interface::{AckOutcome, AckSegment, Context, State};
use super::news::{News, is_duplicate};
use super::sack_blocks::SackBlocks;
use crate::congestion::{Acked, Congestion};
use crate::seq::SeqNum;

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
        let has_blocks = cx.sack && !ack.sack.is_empty();
        let blocks = if has_blocks { SackBlocks::read(ack, una) } else { SackBlocks::default() };
        let mut report = Report::default();
        let news = self.take_news(ack, una, &blocks, flight, cx);
        self.take_duplicates(&news, &blocks, ack.snd_nxt, cx, &mut report);
        self.judge_probe(ack, &news, &blocks, cx, &mut report);

        self.conclude(ack, &news, flight, cx, &mut report);
        let wait_until = self.look_for_losses(&news, flight, cx, &mut report);
        if ack.ece {
            report.pause = cx.controller.cwnd() <= cx.mss;
            self.respond_to_echo(&news, flight, cx, &mut report);
        }
        self.settle_state(&news, flight);

        self.tell_controller(&news, ack.ece, report.lost, flight, cx);
        if !flight.scoreboard.is_empty() {
            self.pace(flight, news.delivered, news.has_advanced() && report.lost == 0, cx);
            self.set_timers(news.has_advanced(), wait_until, flight, cx);
        }
        AckOutcome {
            cumulative: news.cumulative,
            delivered: news.delivered,
            lost: report.lost,
            rtt: news.rtt,
            congestion: report.congestion,
            pause: report.pause,
            recovered: report.recovered,
            undone: report.undone,
            events: report.events,
        }
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
        let is_bare_duplicate = is_duplicate(ack, news.una, news.cumulative) && ack.sack.is_empty();
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

    fn tell_controller(&self, news: &News, is_echo: bool, lost: u32, flight: &Flight, cx: &mut Context<'_>) {
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
            // What must not open the window: duplicate acknowledgements (RFC 5681, 3.2, step 1), and those with ECN-echo or
            // for data sent before the window shrank by one (RFC 3168, 6.1.2).
            cwnd_limited: is_limited && news.has_advanced() && !is_echo && self.state != State::Cwr,
            in_recovery: matches!(self.state, State::Recovery | State::Loss),
            snd_una: news.una,
            snd_nxt: flight.snd_nxt(news.una),
            lost,
        });
    }
}
