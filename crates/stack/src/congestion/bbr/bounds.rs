//! Bounds of the model from loss (draft-ietf-ccwg-bbr-05, 5.5.10).

use super::control::{percent, saturate};
use super::path::Sample;

/// Loss that a probe for bandwidth bears, in percent of the flight.
const LOSS_THRESH: u64 = 2;
/// What loss leaves of the short-term bounds at the least, in percent: CUBIC's factor.
pub(super) const BETA: u32 = 70;
/// Loss events in one round that end Startup (5.3.1.3).
const STARTUP_FULL_LOSS_COUNT: u8 = 6;

/// Bounds of the model; the largest number is no bound.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Octets a second, until the next probe.
    pub(super) bw_shortterm: u64,
    /// Octets, until the next probe.
    pub(super) inflight_shortterm: u32,
    /// Octets, until a probe finds more.
    pub(super) inflight_longterm: u32,
    /// The best of the running round.
    bw_latest: u64,
    inflight_latest: u64,
    loss_round_delivered: u64,
    loss_round_start: bool,
    loss_in_round: bool,
    loss_events_in_round: u8,
}

impl Bounds {
    pub(super) fn new() -> Bounds {
        Bounds {
            bw_shortterm: u64::MAX,
            inflight_shortterm: u32::MAX,
            inflight_longterm: u32::MAX,
            bw_latest: 0,
            inflight_latest: 0,
            loss_round_delivered: 0,
            loss_round_start: false,
            loss_in_round: false,
            loss_events_in_round: 0,
        }
    }

    /// 5.5.10.2, BBRNoteLoss.
    pub(super) fn note_loss(&mut self, delivered: u64) {
        if !self.loss_in_round {
            self.loss_round_delivered = delivered;
        }
        self.loss_in_round = true;
    }

    /// 5.5.10.3, BBRUpdateLatestDeliverySignals.
    pub(super) fn update_latest_delivery(&mut self, sample: &Sample, delivered: u64) {
        self.bw_latest = self.bw_latest.max(sample.delivery_rate);
        self.inflight_latest = self.inflight_latest.max(sample.delivered);
        self.loss_round_start =
            sample.prior_delivered.is_some_and(|prior| prior >= self.loss_round_delivered);
        if self.loss_round_start {
            self.loss_round_delivered = delivered;
        }
    }

    /// 5.5.10.3, BBRUpdateCongestionSignals: once a round, slows down to what was delivered, unless that was probing.
    pub(super) fn update_congestion(&mut self, is_probing_bw: bool, max_bw: u64, cwnd: u32) {
        if !self.loss_round_start {
            return;
        }
        if self.loss_in_round && !is_probing_bw {
            let (bw, inflight) = (self.bw_shortterm.min(max_bw), self.inflight_shortterm.min(cwnd));
            self.bw_shortterm = self.bw_latest.max(percent(bw, BETA));
            self.inflight_shortterm = saturate(self.inflight_latest.max(percent(u64::from(inflight), BETA)));
        }
        self.loss_in_round = false;
    }

    /// 5.5.10.3, BBRAdvanceLatestDeliverySignals.
    pub(super) fn advance_latest_delivery(&mut self, sample: &Sample) {
        if self.loss_round_start {
            self.bw_latest = sample.delivery_rate;
            self.inflight_latest = sample.delivered;
        }
    }

    /// 5.5.10.3, BBRResetCongestionSignals.
    pub(super) fn reset_congestion(&mut self) {
        self.loss_in_round = false;
        self.bw_latest = 0;
        self.inflight_latest = 0;
    }

    /// 5.5.10.3, BBRResetShortTermModel.
    pub(super) fn reset_short_term(&mut self) {
        self.bw_shortterm = u64::MAX;
        self.inflight_shortterm = u32::MAX;
    }

    /// 5.3.1.3: a round of recovery in which six acknowledgements told of loss, above the threshold.
    pub(super) fn startup_loss_is_high(&mut self, sample: &Sample) -> bool {
        if sample.newly_lost > 0 {
            self.loss_events_in_round = self.loss_events_in_round.saturating_add(1);
        }
        if !self.loss_round_start {
            return false;
        }
        let events = core::mem::take(&mut self.loss_events_in_round);
        sample.in_recovery && events >= STARTUP_FULL_LOSS_COUNT && sample.inflight_is_too_high()
    }

    /// What the last round delivered, in octets.
    pub(super) fn inflight_latest(&self) -> u32 {
        saturate(self.inflight_latest)
    }

    /// 5.5.11.2.
    pub(super) fn undo(&mut self, before: &Bounds) {
        self.loss_in_round = false;
        self.bw_shortterm = self.bw_shortterm.max(before.bw_shortterm);
        self.inflight_shortterm = self.inflight_shortterm.max(before.inflight_shortterm);
        self.inflight_longterm = self.inflight_longterm.max(before.inflight_longterm);
    }

    /// The best delivery rate of the running round.
    pub(super) fn bw_latest(&self) -> u64 {
        self.bw_latest
    }
}

impl Sample {
    /// 5.5.10.2, IsInflightTooHigh.
    pub(super) fn inflight_is_too_high(&self) -> bool {
        self.lost.saturating_mul(100) > u64::from(self.tx_in_flight) * LOSS_THRESH
    }

    /// The flight at which losses crossed the threshold (5.5.10.2, BBRInflightAtLoss): solves
    /// `(lost_prev + x) / (inflight_prev + x) = LOSS_THRESH` for `x`.
    pub(super) fn inflight_at_loss(&self) -> u32 {
        let inflight_prev = u64::from(self.tx_in_flight.saturating_sub(self.newly_lost));
        let lost_prev = self.lost.saturating_sub(u64::from(self.newly_lost));
        let missing = (inflight_prev * LOSS_THRESH).saturating_sub(lost_prev.saturating_mul(100));
        saturate(inflight_prev + missing / (100 - LOSS_THRESH))
    }
}
