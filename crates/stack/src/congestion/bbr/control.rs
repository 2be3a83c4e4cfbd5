//! Pacing rate and congestion window from the model (draft-ietf-ccwg-bbr-05, 5.6).

use clock::Duration;

use super::super::{MAX_WINDOW, initial_window};
use super::Bbr;
use super::cycle::State;
use super::path::{self, Sample};
use crate::pacer::burst_quantum;

/// Pacing stays this much below the bandwidth, in percent (5.6.2).
const PACING_MARGIN_PERCENT: u64 = 1;
/// Segments in flight that keep a path with delayed acknowledgements busy (5.6.4.3).
const MIN_PIPE_SEGMENTS: u32 = 4;
/// In percent of the estimated bandwidth-delay product (5.3.4).
pub(super) const PROBE_RTT_CWND_GAIN: u32 = 50;

impl Bbr {
    /// 5.6.2: until the bandwidth is known, from the initial window.
    pub(super) fn init_pacing_rate(&mut self, srtt: Duration) {
        let nominal = path::rate(u64::from(initial_window(self.mss)), srtt);
        self.pacing_rate = percent(nominal, State::Startup.pacing_gain()).max(1);
    }

    pub(super) fn set_pacing_rate(&mut self, gain: u32) {
        let rate = percent(self.bw, gain);
        let rate = (rate - rate / 100 * PACING_MARGIN_PERCENT).max(1);
        if self.full_pipe.reached || rate > self.pacing_rate {
            self.pacing_rate = rate;
        }
    }

    /// 5.6.4.6.
    pub(super) fn set_cwnd(&mut self, sample: &Sample) {
        let max_inflight = self.max_inflight();
        let grown = self.cwnd.saturating_add(sample.newly_acked);
        if self.full_pipe.reached {
            self.cwnd = grown.min(max_inflight);
        } else if self.cwnd < max_inflight || self.path.delivered < u64::from(initial_window(self.mss)) {
            self.cwnd = grown;
        }
        self.cwnd = self.cwnd.max(self.min_pipe_cwnd());
        if self.state == State::ProbeRtt {
            self.cwnd = self.cwnd.min(self.probe_rtt_cwnd());
        }
        self.bound_cwnd_for_model();
    }

    /// 5.6.4.7.
    pub(super) fn bound_cwnd_for_model(&mut self) {
        let longterm = match self.state {
            State::Startup | State::Drain => u32::MAX,
            State::ProbeBwDown | State::ProbeBwRefill | State::ProbeBwUp => self.bounds.inflight_longterm,
            State::ProbeBwCruise | State::ProbeRtt => self.inflight_with_headroom(),
        };
        let cap = longterm.min(self.bounds.inflight_shortterm).max(self.min_pipe_cwnd());
        self.cwnd = self.cwnd.min(cap).min(MAX_WINDOW);
    }

    /// 5.6.4.2.
    fn max_inflight(&self) -> u32 {
        let inflight = self.bdp(self.bw, self.state.cwnd_gain()).saturating_add(self.path.extra_acked());
        self.with_quantization_budget(inflight)
    }

    pub(super) fn inflight(&self, bw: u64, gain: u32) -> u32 {
        self.with_quantization_budget(self.bdp(bw, gain))
    }

    /// Room for three bursts: one being paced, one in flight, one being acknowledged (5.5.8.1).
    fn with_quantization_budget(&self, inflight: u32) -> u32 {
        let offload_budget = burst_quantum(self.pacing_rate, self.mss).saturating_mul(3);
        let inflight = inflight.max(offload_budget).max(self.min_pipe_cwnd());
        let probe = if self.state == State::ProbeBwUp { 2 * self.mss } else { 0 };
        inflight.saturating_add(probe)
    }

    /// `gain` percent of the bandwidth-delay product; the initial window while no round-trip time is known.
    pub(super) fn bdp(&self, bw: u64, gain: u32) -> u32 {
        match self.path.min_rtt() {
            Some(min_rtt) => saturate(percent(path::octets(bw, min_rtt), gain)),
            None => initial_window(self.mss),
        }
    }

    pub(super) fn probe_rtt_cwnd(&self) -> u32 {
        self.bdp(self.bw, PROBE_RTT_CWND_GAIN).max(self.min_pipe_cwnd())
    }

    pub(super) fn min_pipe_cwnd(&self) -> u32 {
        MIN_PIPE_SEGMENTS * self.mss
    }
}

pub(super) fn percent(value: u64, percent: u32) -> u64 {
    u64::try_from(u128::from(value) * u128::from(percent) / 100).unwrap_or(u64::MAX)
}

pub(super) fn saturate(octets: u64) -> u32 {
    u32::try_from(octets).unwrap_or(u32::MAX)
}
