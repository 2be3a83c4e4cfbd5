//! BBR, version 3: draft-ietf-ccwg-bbr-05.
//!
//! A model of the path, of its bandwidth and minimum round-trip time, determines the sending rate and the amount in
//! flight. Loss bounds the model instead of the window: permanently if the sender was probing for more (5.5.10.2),
//! until the next probe if it was not (5.5.10.3). Each file implements a part of the draft:
//!
//! - here: the order of steps (5.2), recovery and undo (5.5.11, 5.6.4.4), restart after idleness (5.4);
//! - `cycle` and `probe_rtt`: the state machine (5.3);
//! - `path`: rounds, bandwidth, round-trip time, aggregation (5.5.1 to 5.5.9);
//! - `bounds`: reaction to loss (5.5.10);
//! - `control`: window and rate (5.6).
//!
//! Differences from the draft: ECN-echo counts as loss above the threshold, because RFC 3168, 6.1.2, asks for the reaction to
//! loss and the draft is silent. The amount in flight when a segment left is kept for sixteen points of the last
//! windows, not with each segment, and the losses of one acknowledgement count as one lost packet of the draft. The
//! connection is assumed to have selective acknowledgements.

mod bounds;
mod control;
mod cycle;
mod path;
mod probe_rtt;

use clock::{Duration, Instant};

use self::bounds::Bounds;
use self::cycle::{AckPhase, FullPipe, State};
use self::path::{Path, Sample};
use super::{Acked, Congestion, CongestionControl, initial_window, valid_mss};

/// The draft's window, rate and model. Gains are in percent.
#[derive(Clone, Debug)]
pub struct Bbr {
    mss: u32,
    cwnd: u32,
    /// Octets a second.
    pacing_rate: u64,
    /// Whether `pacing_rate` is built on a round-trip time and not on the guess of a millisecond.
    rtt_seen: bool,
    state: State,
    path: Path,
    bounds: Bounds,
    full_pipe: FullPipe,
    /// The bandwidth to send at: the path's, bounded by recent loss.
    bw: u64,

    /// The last window that neither recovery nor ProbeRTT had reduced.
    prior_cwnd: u32,
    in_recovery: bool,
    idle_restart: bool,
    undo: Option<Undo>,

    ack_phase: AckPhase,
    /// Acknowledged data was sent while probing, and its loss was not yet answered.
    bw_probe_samples: bool,
    cycle_stamp: Instant,
    bw_probe_wait: Duration,
    rounds_since_bw_probe: u32,
    bw_probe_up_rounds: u32,
    bw_probe_up_acks: u64,
    probe_up_cnt: u32,
    drain_start_round: u64,
    probe_rtt_done_stamp: Option<Instant>,
    probe_rtt_round_done: bool,
    random: u32,
}

/// What a spurious recovery may have changed (5.5.11.1).
#[derive(Clone, Copy, Debug)]
struct Undo {
    state: State,
    bounds: Bounds,
}

impl Bbr {
    /// Starts in Startup from the initial window of RFC 6928. `mss` is in octets; `seed` sets the times apart at which
    /// connections probe.
    pub fn new(mss: u32, seed: u32, now: Instant) -> Bbr {
        let mss = valid_mss(mss);
        let mut bbr = Bbr {
            mss,
            cwnd: initial_window(mss),
            pacing_rate: 0,
            rtt_seen: false,
            state: State::Startup,
            path: Path::new(now),
            bounds: Bounds::new(),
            full_pipe: FullPipe::default(),
            bw: 0,
            prior_cwnd: 0,
            in_recovery: false,
            idle_restart: false,
            undo: None,
            ack_phase: AckPhase::Init,
            bw_probe_samples: false,
            cycle_stamp: now,
            bw_probe_wait: Duration::ZERO,
            rounds_since_bw_probe: 0,
            bw_probe_up_rounds: 0,
            bw_probe_up_acks: 0,
            probe_up_cnt: u32::MAX,
            drain_start_round: 0,
            probe_rtt_done_stamp: None,
            probe_rtt_round_done: false,
            random: seed | 1,
        };
        bbr.init_pacing_rate(Duration::from_millis(1));
        bbr
    }

    /// 5.2.3, in its order; each step is a method of the name that the draft gives it.
    fn update_model_and_state(&mut self, sample: &Sample) {
        if self.path.update_round(sample) {
            self.rounds_since_bw_probe = self.rounds_since_bw_probe.saturating_add(1);
        }
        self.path.update_max_bw(sample);
        self.bounds.update_latest_delivery(sample, self.path.delivered);
        self.bounds.update_congestion(self.state.is_probing_bw(), self.path.max_bw(), self.cwnd);
        self.path.update_ack_aggregation(sample, self.bw, self.cwnd, self.full_pipe.reached);
        self.full_pipe.check(sample, self.path.round_start);
        self.check_startup_done(sample);
        self.check_drain_done(sample);
        self.update_probe_bw_cycle(sample);
        self.path.update_min_rtt(sample);
        self.check_probe_rtt(sample);
        self.bounds.advance_latest_delivery(sample);
        self.bw = self.path.max_bw().min(self.bounds.bw_shortterm);
    }

    // 5.6.4.4: recovery.

    fn save_cwnd(&mut self) {
        let reduced = self.in_recovery || self.state == State::ProbeRtt;
        self.prior_cwnd = if reduced { self.prior_cwnd.max(self.cwnd) } else { self.cwnd };
    }

    fn restore_cwnd(&mut self) {
        self.cwnd = self.cwnd.max(self.prior_cwnd);
    }

    fn begin_recovery(&mut self) {
        self.save_cwnd();
        if !self.in_recovery {
            self.undo = Some(Undo { state: self.state, bounds: self.bounds });
        }
        self.in_recovery = true;
        self.bounds.note_loss(self.path.delivered);
    }
}

impl CongestionControl for Bbr {
    fn name(&self) -> &'static str {
        "bbr"
    }

    fn cwnd(&self) -> u32 {
        self.cwnd
    }

    /// BBR has no threshold.
    fn ssthresh(&self) -> u32 {
        u32::MAX
    }

    fn pacing_rate(&self) -> Option<u64> {
        Some(self.pacing_rate)
    }

    fn reduces_proportionally(&self) -> bool {
        false
    }

    fn on_sent(&mut self, _now: Instant, in_flight: u32) {
        let in_flight = in_flight.saturating_add(self.mss);
        self.path.note_flight(in_flight, self.cwnd / 8);
    }

    /// BBRInitPacingRate, once there is a round-trip time: draft-ietf-ccwg-bbr, 5.6.2.
    fn on_handshake_rtt(&mut self, srtt: Duration) {
        if !self.rtt_seen && !srtt.is_zero() {
            self.rtt_seen = true;
            self.init_pacing_rate(srtt);
        }
    }

    fn on_acked(&mut self, acked: &Acked) {
        let sample = self.path.sample(acked);
        self.on_handshake_rtt(acked.srtt);
        if acked.lost > 0 {
            self.bounds.note_loss(self.path.delivered);
            self.check_probe_too_high(&sample);
        }
        self.update_model_and_state(&sample);
        self.set_pacing_rate(self.state.pacing_gain());
        self.set_cwnd(&sample);
    }

    fn on_congestion(&mut self, congestion: Congestion, flight_size: u32, now: Instant) {
        match congestion {
            Congestion::Loss => self.begin_recovery(),
            Congestion::Timeout => {
                self.begin_recovery();
                self.cwnd = self.mss;
            }
            Congestion::Ecn => {
                self.bounds.note_loss(self.path.delivered);
                self.on_probe_too_high(flight_size, now);
            }
        }
    }

    fn on_recovered(&mut self, _now: Instant) {
        self.in_recovery = false;
        self.undo = None;
        self.restore_cwnd();
    }

    /// 5.5.11.2.
    fn on_undo(&mut self, _now: Instant) {
        let Some(undo) = self.undo.take() else { return };
        self.in_recovery = false;
        self.restore_cwnd();
        self.full_pipe.reset();
        self.bounds.undo(&undo.bounds);
        self.return_to_probing(undo.state);
    }

    /// 5.4.1: the model is kept, whatever the idleness; the path's rate paces what comes.
    fn on_restart_after_idle(&mut self, _idle: Duration, _rto: Duration, now: Instant) {
        self.idle_restart = true;
        self.path.restart_ack_aggregation(now);
        if self.state.is_probe_bw() {
            self.set_pacing_rate(100);
        } else if self.state == State::ProbeRtt {
            self.check_probe_rtt_done(now);
        }
    }

    fn on_handshake_loss(&mut self) {
        self.cwnd = self.mss;
    }

    /// The model is gone with the rest: only the window is taken over.
    fn resume(&mut self, cwnd: u32, _ssthresh: u32) {
        self.cwnd = cwnd.max(self.mss);
    }

    fn set_mss(&mut self, mss: u32) {
        self.mss = valid_mss(mss);
        self.cwnd = self.cwnd.max(self.mss);
    }
}

#[cfg(test)]
mod tests;
