//! Beginning and end of recoveries and other reductions of the window.

use super::Recovery;
use super::events::{Event, Events};
use super::flight::Flight;
use super::interface::{Context, State};
use super::prr::Delivery;
use super::rack::{DUP_THRESH, Detected};
use crate::congestion::Congestion;
use crate::seq::SeqNum;

/// What an acknowledgement or a timeout did so far.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) lost: u32,
    pub(super) congestion: Option<Congestion>,
    pub(super) pause: bool,
    pub(super) recovered: bool,
    pub(super) undone: bool,
    pub(super) events: Events,
}

/// A flight before the event that reduces the window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before {
    /// Octets between SND.UNA and SND.NXT.
    pub(super) flight_size: u32,
    /// Of those, octets selectively acknowledged, or told of by duplicate acknowledgements.
    pub(super) sacked: u32,
    /// Octets in flight.
    pub(super) in_flight: u32,
}

impl Before {
    pub(super) fn of(flight: &Flight) -> Before {
        Before {
            flight_size: flight.scoreboard.flight_size(),
            sacked: flight.scoreboard.sacked() + flight.duplicates.arrived(),
            in_flight: flight.in_flight(),
        }
    }
}

impl Recovery {
    /// Losses were found: a fast recovery begins (RFC 6675, 5, step 4; RFC 6582, 3.2, step 2).
    ///
    /// During a reduction for ECN, which the losses belong to, the window is not reduced again (RFC 3168, 6.1.2).
    pub(super) fn enter_recovery(
        &mut self,
        flight: &mut Flight,
        before: Before,
        cx: &mut Context<'_>,
        report: &mut Report,
    ) {
        if cx.sack && flight.lose_mtu_probe() {
            return;
        }
        let is_reduced = self.state == State::Cwr;
        self.state = State::Recovery;
        self.probe.cancel();
        report.events.add(if cx.sack { Event::SackRecovery } else { Event::RenoRecovery });
        let una = flight.una(self.recovery_point);
        if is_reduced {
            self.recovery_point = flight.snd_nxt(una);
            return;
        }
        self.reduce(flight, Congestion::Loss, before, cx, report);
        self.undo.start(una);
        if !flight.prr.is_active() {
            flight.force_retransmission(cx.mss);
        }
    }

    /// The peer echoed a congestion mark (RFC 3168, 6.1.2).
    pub(super) fn enter_cwr(
        &mut self,
        flight: &mut Flight,
        before: Before,
        cx: &mut Context<'_>,
        report: &mut Report,
    ) {
        self.state = State::Cwr;
        self.reduce(flight, Congestion::Ecn, before, cx, report);
        self.undo.cancel();
    }

    fn reduce(
        &mut self,
        flight: &mut Flight,
        congestion: Congestion,
        before: Before,
        cx: &mut Context<'_>,
        report: &mut Report,
    ) {
        self.stop_waiting_for_duplicates(cx);
        cx.controller.on_congestion(congestion, before.flight_size, cx.now);
        report.congestion = Some(congestion);
        self.recovery_point = flight.snd_nxt(self.recovery_point);
        if cx.controller.reduces_proportionally() {
            flight.prr.start(before.flight_size.saturating_sub(before.sacked));
        }
    }

    /// All that was sent when the reduction began is acknowledged.
    ///
    /// A peer tells of the last duplicates only now, so a controller that could still undo the reduction is told that it is
    /// final when it is.
    pub(super) fn complete(&mut self, flight: &mut Flight, cx: &mut Context<'_>, report: &mut Report) {
        if self.state != State::Cwr {
            self.reordering.on_recovered();
        }
        self.state = State::Open;
        flight.end_episode();
        report.recovered = true;
        let may_be_spurious = self.undo.complete(flight.snd_nxt(self.recovery_point));
        if !(may_be_spurious && cx.sack && cx.controller.reduces_proportionally()) {
            self.undo.cancel();
            cx.controller.on_recovered(cx.now);
        }
    }

    /// The reduction was spurious: `event` says how that was found.
    pub(super) fn take_back(
        &mut self,
        flight: &mut Flight,
        event: Event,
        cx: &mut Context<'_>,
        report: &mut Report,
    ) {
        match self.state {
            State::Loss => cx.rtt.reset_backoff(),
            State::Open | State::Disorder | State::Cwr | State::Recovery => {
                self.reordering.on_spurious_recovery();
            }
        }
        if matches!(self.state, State::Recovery | State::Loss) {
            flight.scoreboard.unmark_lost();
            flight.rack.reconsider(&flight.scoreboard);
            self.state = State::Open;
        }
        flight.end_episode();
        self.undo.cancel();
        cx.controller.on_undo(cx.now);
        report.undone = true;
        report.events.add(event);
    }

    /// What a complete recovery took is final.
    pub(super) fn stop_waiting_for_duplicates(&mut self, cx: &mut Context<'_>) {
        if self.undo.is_waiting() {
            self.undo.cancel();
            cx.controller.on_recovered(cx.now);
        }
    }

    /// Looks for lost segments: by RACK with SACK, else by the third duplicate acknowledgement.
    pub(super) fn detect_losses(&mut self, flight: &mut Flight, cx: &Context<'_>) -> Detected {
        if cx.sack && flight.rack.is_in_order(&flight.scoreboard) {
            return Detected::default();
        }
        if cx.sack {
            let is_sure = matches!(self.state, State::Recovery | State::Loss)
                || flight.scoreboard.sacked_segments() >= DUP_THRESH;
            let window = self.reordering.span(is_sure, cx.rtt.min_rtt(), cx.rtt.srtt());
            return flight.rack.detect_losses(&mut flight.scoreboard, window, cx.now);
        }
        let is_third = flight.duplicates.count() == DUP_THRESH
            && matches!(self.state, State::Open | State::Disorder | State::Cwr);
        let lost = if is_third && self.is_fast_retransmission_due(flight, cx) {
            flight.scoreboard.mark_front_lost(cx.mss)
        } else {
            0
        };
        Detected { lost, wait_until: None }
    }

    /// Whether three duplicate acknowledgements mean a loss, and not that data was sent again needlessly in the recovery
    /// before: RFC 6582, 3.2, step 2, and the heuristic of 4.1.
    fn is_fast_retransmission_due(&self, flight: &Flight, cx: &Context<'_>) -> bool {
        let una = flight.una(self.recovery_point);
        let moved = una.is_at_or_after(self.una_before).then(|| una.since(self.una_before));
        let moved_little = moved.is_some_and(|octets| octets <= 4 * cx.mss);
        una.is_after(self.recovery_point) || (cx.controller.cwnd() > cx.mss && moved_little)
    }

    /// Paces a recovery by what an acknowledgement delivered.
    pub(super) fn pace(&self, flight: &mut Flight, delivered: u32, is_safe: bool, cx: &Context<'_>) {
        if flight.prr.is_active() {
            let in_flight = flight.in_flight();
            let ssthresh = cx.controller.ssthresh().min(cx.controller.cwnd());
            flight.prr.on_delivered(Delivery { delivered, in_flight, ssthresh, is_safe, mss: cx.mss });
        }
    }
}

impl Flight {
    /// SND.NXT, or `otherwise` if nothing is in flight.
    pub(super) fn snd_nxt(&self, otherwise: SeqNum) -> SeqNum {
        self.scoreboard.back().map_or(otherwise, |back| back.range.end)
    }

    /// Whether nothing but a probe of the path MTU was lost, which is no sign of congestion (RFC 4821, 7.4).
    fn lose_mtu_probe(&mut self) -> bool {
        let Some(probe) = self.mtu_probe.take() else { return false };
        let lost = self.scoreboard.next_lost(probe.len());
        lost.is_some_and(|lost| lost.start == probe.start) && self.scoreboard.lost() <= probe.len()
    }

    /// Lets the first lost segment go out whatever the window is.
    pub(super) fn force_retransmission(&mut self, mss: u32) {
        self.forced = self.scoreboard.next_lost(mss).map_or(0, |range| range.len());
    }

    /// The controller's window holds again, and nothing waits for F-RTO.
    pub(super) fn end_episode(&mut self) {
        self.prr.stop();
        self.frto = Default::default();
        self.duplicates.clear();
    }
}
