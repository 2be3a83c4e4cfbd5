//! The state machine (draft-ietf-ccwg-bbr-05, 5.3), and of its states Startup, Drain and ProbeBW.
//!
//! ```text
//!   Startup ─▶ Drain ─▶ DOWN ─▶ CRUISE ─▶ REFILL ─▶ UP ─┐
//!                        ▲                              │      every state ─▶ ProbeRTT ─▶ CRUISE, or Startup
//!                        └──────────────────────────────┘
//! ```

use clock::{Duration, Instant};

use super::Bbr;
use super::bounds::BETA;
use super::control::{PROBE_RTT_CWND_GAIN, percent, saturate};
use super::path::Sample;

/// Part of the long-term bound that cruising leaves to others, in percent.
const HEADROOM: u32 = 15;
/// Rounds without growth that mean a full pipe (5.3.1.2).
const FULL_BW_COUNT: u8 = 3;
/// Rounds after which Drain ends whatever is in flight (5.3.2).
const DRAIN_ROUNDS: u64 = 3;
/// Rounds after which Reno would have filled the same path (5.3.3.5.2).
const RENO_ROUNDS_MAX: u32 = 63;

/// 5.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Startup,
    Drain,
    ProbeBwDown,
    ProbeBwCruise,
    ProbeBwRefill,
    ProbeBwUp,
    ProbeRtt,
}

impl State {
    /// Percent of the bandwidth at which to send (5.6.1).
    pub(super) const fn pacing_gain(self) -> u32 {
        match self {
            State::Startup => 277,
            State::Drain => 50,
            State::ProbeBwDown => 90,
            State::ProbeBwCruise | State::ProbeBwRefill | State::ProbeRtt => 100,
            State::ProbeBwUp => 125,
        }
    }

    /// Percent of the bandwidth-delay product that may be in flight (5.6.1).
    pub(super) const fn cwnd_gain(self) -> u32 {
        match self {
            State::ProbeBwUp => 225,
            State::ProbeRtt => PROBE_RTT_CWND_GAIN,
            _ => 200,
        }
    }

    pub(super) const fn is_probe_bw(self) -> bool {
        matches!(self, State::ProbeBwDown | State::ProbeBwCruise | State::ProbeBwRefill | State::ProbeBwUp)
    }

    pub(super) const fn is_probing_bw(self) -> bool {
        matches!(self, State::Startup | State::ProbeBwRefill | State::ProbeBwUp)
    }
}

/// Whether acknowledgements are of data that was sent to probe (5.3.3.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AckPhase {
    Init,
    Refilling,
    ProbeStarting,
    ProbeFeedback,
    ProbeStopping,
}

/// Looks for a bandwidth that no longer grows (5.3.1.2).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FullPipe {
    bw: u64,
    count: u8,
    now: bool,
    /// It was full once.
    pub(super) reached: bool,
}

impl FullPipe {
    pub(super) fn reset(&mut self) {
        *self = FullPipe { reached: self.reached, ..FullPipe::default() };
    }

    fn restart_at(&mut self, bw: u64) {
        self.reset();
        self.bw = bw;
    }

    pub(super) fn check(&mut self, sample: &Sample, round_start: bool) {
        if self.now || !round_start || sample.app_limited {
            return;
        }
        if sample.delivery_rate >= percent(self.bw, 125) {
            return self.restart_at(sample.delivery_rate);
        }
        self.count += 1;
        self.now = self.count >= FULL_BW_COUNT;
        self.reached |= self.now;
    }
}

impl Bbr {
    // 5.3.1 and 5.3.2: Startup and Drain.

    pub(super) fn check_startup_done(&mut self, sample: &Sample) {
        if self.state != State::Startup {
            return;
        }
        if self.bounds.startup_loss_is_high(sample) {
            self.end_startup_by_loss(self.bounds.inflight_latest());
        }
        if self.full_pipe.reached {
            self.state = State::Drain;
            self.drain_start_round = self.path.round_count;
        }
    }

    /// 5.3.1.3.
    fn end_startup_by_loss(&mut self, inflight: u32) {
        self.full_pipe.reached = true;
        self.bounds.inflight_longterm = self.bdp(self.bw, 100).max(inflight);
    }

    pub(super) fn check_drain_done(&mut self, sample: &Sample) {
        let drained = sample.in_flight <= self.inflight(self.bw, 100)
            || self.path.round_count > self.drain_start_round + DRAIN_ROUNDS;
        if self.state == State::Drain && drained {
            self.start_probe_bw_down(sample.now);
        }
    }

    // 5.3.3: ProbeBW.

    pub(super) fn update_probe_bw_cycle(&mut self, sample: &Sample) {
        if !self.full_pipe.reached {
            return;
        }
        self.adapt_long_term_model(sample);
        let state = self.state;
        match state {
            State::ProbeBwDown if self.is_time_to_probe_bw(sample.now) => self.start_probe_bw_refill(),
            State::ProbeBwDown if self.is_time_to_cruise(sample) => self.state = State::ProbeBwCruise,
            State::ProbeBwCruise if self.is_time_to_probe_bw(sample.now) => self.start_probe_bw_refill(),
            State::ProbeBwRefill if self.path.round_start => {
                self.bw_probe_samples = true;
                self.start_probe_bw_up(sample.delivery_rate);
            }
            State::ProbeBwUp if self.is_time_to_go_down(sample) => self.start_probe_bw_down(sample.now),
            _ => {}
        }
    }

    pub(super) fn start_probe_bw_down(&mut self, now: Instant) {
        self.bounds.reset_congestion();
        self.probe_up_cnt = u32::MAX;
        self.pick_probe_wait();
        self.cycle_stamp = now;
        self.ack_phase = AckPhase::ProbeStopping;
        self.path.start_round();
        self.state = State::ProbeBwDown;
    }

    fn start_probe_bw_refill(&mut self) {
        self.bounds.reset_short_term();
        self.bw_probe_up_rounds = 0;
        self.bw_probe_up_acks = 0;
        self.ack_phase = AckPhase::Refilling;
        self.path.start_round();
        self.state = State::ProbeBwRefill;
    }

    fn start_probe_bw_up(&mut self, delivery_rate: u64) {
        self.ack_phase = AckPhase::ProbeStarting;
        self.path.start_round();
        self.full_pipe.restart_at(delivery_rate);
        self.state = State::ProbeBwUp;
        self.raise_inflight_longterm_slope();
    }

    /// 5.3.3.5: two to three seconds, or as many rounds as Reno would take, whichever is sooner.
    fn is_time_to_probe_bw(&self, now: Instant) -> bool {
        let reno_rounds = (self.target_inflight() / self.mss).min(RENO_ROUNDS_MAX);
        now > self.cycle_stamp + self.bw_probe_wait || self.rounds_since_bw_probe >= reno_rounds
    }

    fn pick_probe_wait(&mut self) {
        self.rounds_since_bw_probe = self.next_random() >> 31;
        self.bw_probe_wait =
            Duration::from_millis(2_000 + u64::from(self.next_random() >> 16) * 1_000 / 65_536);
    }

    /// Marsaglia's xorshift; `random` is never zero.
    fn next_random(&mut self) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        self.random
    }

    fn is_time_to_cruise(&self, sample: &Sample) -> bool {
        sample.in_flight <= self.inflight_with_headroom()
            && sample.in_flight <= self.inflight(self.path.max_bw(), 100)
    }

    fn is_time_to_go_down(&mut self, sample: &Sample) -> bool {
        if sample.cwnd_limited && self.cwnd >= self.bounds.inflight_longterm {
            self.full_pipe.restart_at(sample.delivery_rate);
            return false;
        }
        self.full_pipe.now
    }

    fn target_inflight(&self) -> u32 {
        self.bdp(self.bw, 100).min(self.cwnd)
    }

    pub(super) fn inflight_with_headroom(&self) -> u32 {
        let longterm = self.bounds.inflight_longterm;
        if longterm == u32::MAX {
            return u32::MAX;
        }
        let headroom = saturate(percent(u64::from(longterm), HEADROOM)).max(self.mss);
        longterm.saturating_sub(headroom).max(self.min_pipe_cwnd())
    }

    /// 5.3.3.6. Where the draft leaves the phase at "probe stopping", this ends it: one cycle advances the filter once,
    /// as 5.5.6 says.
    fn adapt_long_term_model(&mut self, sample: &Sample) {
        match self.ack_phase {
            AckPhase::ProbeStarting if self.path.round_start => self.ack_phase = AckPhase::ProbeFeedback,
            AckPhase::ProbeStopping if self.path.round_start => {
                self.ack_phase = AckPhase::Init;
                self.bw_probe_samples = false;
                if self.state.is_probe_bw() && !sample.app_limited {
                    self.path.advance_max_bw_filter();
                }
            }
            _ => {}
        }
        if sample.inflight_is_too_high() || self.bounds.inflight_longterm == u32::MAX {
            return;
        }
        self.bounds.inflight_longterm = self.bounds.inflight_longterm.max(sample.tx_in_flight);
        if self.state == State::ProbeBwUp {
            self.probe_inflight_longterm_upward(sample);
        }
    }

    /// Growth by 1, 2, 4, ... segments in the rounds of a probe.
    fn raise_inflight_longterm_slope(&mut self) {
        let growth = u64::from(self.mss) << self.bw_probe_up_rounds;
        self.bw_probe_up_rounds = (self.bw_probe_up_rounds + 1).min(30);
        self.probe_up_cnt = saturate(u64::from(self.cwnd) / growth).max(1);
    }

    fn probe_inflight_longterm_upward(&mut self, sample: &Sample) {
        if !sample.cwnd_limited || self.cwnd < self.bounds.inflight_longterm {
            return;
        }
        self.bw_probe_up_acks += u64::from(sample.newly_acked);
        let growth = self.bw_probe_up_acks / u64::from(self.probe_up_cnt);
        self.bw_probe_up_acks -= growth * u64::from(self.probe_up_cnt);
        self.bounds.inflight_longterm = self.bounds.inflight_longterm.saturating_add(saturate(growth));
        if self.path.round_start {
            self.raise_inflight_longterm_slope();
        }
    }

    /// 5.5.10.2, BBRHandleLostPacket.
    pub(super) fn check_probe_too_high(&mut self, sample: &Sample) {
        if self.bw_probe_samples && sample.inflight_is_too_high() {
            self.handle_inflight_too_high(sample.inflight_at_loss(), sample.app_limited, sample.now);
        }
    }

    /// The network said so itself, by ECN.
    pub(super) fn on_probe_too_high(&mut self, in_flight: u32, now: Instant) {
        if self.state == State::Startup {
            self.end_startup_by_loss(in_flight);
        } else if self.bw_probe_samples {
            self.handle_inflight_too_high(in_flight, false, now);
        }
    }

    /// 5.5.10.2: answers once a probe.
    fn handle_inflight_too_high(&mut self, in_flight: u32, app_limited: bool, now: Instant) {
        self.bw_probe_samples = false;
        if !app_limited {
            let floor = saturate(percent(u64::from(self.target_inflight()), BETA));
            self.bounds.inflight_longterm = in_flight.max(floor);
        }
        if self.state == State::ProbeBwUp {
            self.start_probe_bw_down(now);
        }
    }

    /// 5.5.11.2: the spurious loss may have ended a probe.
    pub(super) fn return_to_probing(&mut self, state: State) {
        if self.state == State::ProbeRtt || self.state == state {
            return;
        }
        match state {
            State::Startup => self.state = State::Startup,
            State::ProbeBwUp => self.start_probe_bw_up(self.bounds.bw_latest()),
            _ => {}
        }
    }
}
