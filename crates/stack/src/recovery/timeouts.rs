//! Deadlines, and what happens at them (RFC 6298, 5; RFC 8985, 6.3 and 7).

use clock::{Duration, Instant};

use super::Recovery;
use super::episodes::{Before, Report};
use super::events::Event;
use super::flight::{EarlyTimer, Flight};
use super::forward_rto::ForwardRto;
use super::interface::{Context, State, TimeoutAction, TimeoutOutcome};
use super::segment::{Segment, Standing};
use super::tail_loss_probe::probe_timeout;
use crate::congestion::Congestion;
use crate::seq::SeqRange;

/// Least time for a peer that seems to have dropped what it had selectively acknowledged to show otherwise (as Linux).
const RENEGING_PATIENCE: Duration = Duration::from_millis(10);

impl Recovery {
    /// The deadline passed.
    pub fn on_timeout(&mut self, cx: &mut Context<'_>) -> TimeoutOutcome {
        let mut report = Report::default();
        let action = match self.flight.take() {
            Some(mut flight) => {
                flight.mss = cx.mss;
                let action = self.expire(&mut flight, cx, &mut report);
                self.flight = Some(flight);
                action
            }
            None => TimeoutAction::None,
        };
        TimeoutOutcome { action, lost: report.lost, congestion: report.congestion, events: report.events }
    }

    fn expire(&mut self, flight: &mut Flight, cx: &mut Context<'_>, report: &mut Report) -> TimeoutAction {
        match flight.early {
            Some(EarlyTimer::Reordering(at)) if at <= cx.now => {
                self.end_wait_for_reordered(flight, cx, report)
            }
            Some(EarlyTimer::Probe(at)) if at <= cx.now => {
                flight.early = None;
                flight.rto_at = cx.now + cx.rtt.rto(); // RFC 8985, 7.3
                match flight.scoreboard.back() {
                    Some(back) => TimeoutAction::SendProbe { last: tail(back, cx.mss) },
                    None => TimeoutAction::None,
                }
            }
            _ if flight.rto_at <= cx.now => {
                self.on_retransmission_timeout(flight, cx, report);
                TimeoutAction::Rto
            }
            _ => TimeoutAction::None,
        }
    }

    /// What RACK waited for did not come (RFC 8985, 6.2, step 5).
    fn end_wait_for_reordered(
        &mut self,
        flight: &mut Flight,
        cx: &mut Context<'_>,
        report: &mut Report,
    ) -> TimeoutAction {
        let before = Before::of(flight);
        let detected = self.detect_losses(flight, cx);
        flight.early = detected.wait_until.map(EarlyTimer::Reordering);
        report.lost = detected.lost;
        if detected.lost == 0 {
            return TimeoutAction::None;
        }
        if !matches!(self.state, State::Recovery | State::Loss) {
            self.enter_recovery(flight, before, cx, report);
        }
        self.pace(flight, 0, false, cx);
        TimeoutAction::LossFound
    }

    /// RFC 6298, 5.4 to 5.6, with RFC 8985, 6.3 and RFC 5682, 2.1, step 1.
    fn on_retransmission_timeout(&mut self, flight: &mut Flight, cx: &mut Context<'_>, report: &mut Report) {
        let flight_size = flight.scoreboard.flight_size();
        let is_reneging = flight.is_front_sacked();
        if is_reneging {
            flight.scoreboard.unmark_sacked();
            report.events.add(Event::SackReneging);
        }
        report.events.add(Event::Timeout);
        report.congestion = Some(Congestion::Timeout);
        self.stop_waiting_for_duplicates(cx);
        cx.controller.on_congestion(Congestion::Timeout, flight_size, cx.now);
        if flight.timeouts == 0 {
            self.undo.start(flight.una(self.recovery_point));
        }
        report.lost = self.mark_lost_after_timeout(flight, is_reneging, cx);

        flight.end_episode();
        self.probe.cancel();
        if self.state != State::Recovery && !is_reneging {
            flight.frto = ForwardRto::AwaitFirst;
        }
        self.state = State::Loss;
        self.recovery_point = flight.snd_nxt(self.recovery_point);
        flight.timeouts = flight.timeouts.saturating_add(1);
        flight.early = None;
        cx.rtt.back_off();
        flight.rto_at = cx.now + cx.rtt.rto();
        flight.force_retransmission(cx.mss);
    }

    /// With SACK, what was sent so lately that it may still arrive is not marked (RFC 8985, 6.3).
    fn mark_lost_after_timeout(&self, flight: &mut Flight, is_reneging: bool, cx: &Context<'_>) -> u32 {
        let Flight { scoreboard, rack, .. } = flight;
        if !cx.sack || is_reneging {
            return scoreboard.mark_lost_where(|_| true);
        }
        let window = self.reordering.span(true, cx.rtt.min_rtt(), cx.rtt.srtt());
        let una = scoreboard.front().map(|front| front.range.start);
        scoreboard.mark_lost_where(|segment| {
            Some(segment.range.start) == una || rack.is_late(segment, cx.rtt.srtt(), window, cx.now)
        })
    }

    /// After an acknowledgement: the retransmission timer starts anew if it moved SND.UNA (RFC 6298, 5.3).
    pub(super) fn set_timers(
        &self,
        has_advanced: bool,
        wait_until: Option<Instant>,
        flight: &mut Flight,
        cx: &Context<'_>,
    ) {
        if has_advanced {
            flight.rto_at = cx.now + cx.rtt.rto();
            flight.timeouts = 0;
            flight.retransmitting_since = None;
        }
        if flight.scoreboard.waiting() == 0 {
            flight.forced = 0;
        }
        if flight.is_front_sacked() {
            // No honest peer acknowledges up to here and not what it has behind (RFC 2018, 8).
            flight.rto_at = flight.rto_at.min(cx.now + (cx.rtt.srtt() / 2).max(RENEGING_PATIENCE));
        }
        flight.early = match (wait_until, flight.early) {
            (Some(at), _) => Some(EarlyTimer::Reordering(at)),
            (None, Some(EarlyTimer::Probe(at))) if !has_advanced && self.may_probe(flight, cx) => {
                Some(EarlyTimer::Probe(at))
            }
            (None, _) if has_advanced => self.probe_timer(flight, cx),
            (None, _) => None,
        };
    }

    /// After new data was sent: the probe is due some time after the last of it (RFC 8985, 7.2).
    pub(super) fn arm_probe(&mut self, cx: &Context<'_>) {
        let Some(mut flight) = self.flight.take() else { return };
        if !matches!(flight.early, Some(EarlyTimer::Reordering(_))) {
            flight.early = self.probe_timer(&flight, cx);
        }
        self.flight = Some(flight);
    }

    fn probe_timer(&self, flight: &Flight, cx: &Context<'_>) -> Option<EarlyTimer> {
        if !self.may_probe(flight, cx) {
            return None;
        }
        let is_one_segment = flight.scoreboard.get(1).is_none();
        let at = cx.now + probe_timeout(cx.rtt, is_one_segment);
        Some(EarlyTimer::Probe(at.min(flight.rto_at)))
    }

    /// RFC 8985, 7.2: SACK is used, nothing is selectively acknowledged, no recovery goes on and no probe is out.
    fn may_probe(&self, flight: &Flight, cx: &Context<'_>) -> bool {
        cx.sack
            && !flight.scoreboard.is_empty()
            && flight.scoreboard.sacked() == 0
            && matches!(self.state, State::Open | State::Cwr)
            && !self.probe.is_outstanding()
    }
}

impl Flight {
    fn is_front_sacked(&self) -> bool {
        self.scoreboard.front().is_some_and(|front| front.standing == Standing::Sacked)
    }
}

/// The last octets of `back` that a segment may have.
fn tail(back: &Segment, mss: u32) -> SeqRange {
    let len = back.len().min(back.len_max(mss));
    SeqRange::new(back.range.end - len, back.range.end)
}
