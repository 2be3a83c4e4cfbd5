//! CUBIC (RFC 9438) with the slow start of RFC 9406.
//!
//! Windows are in octets; the cubic function of the RFC is in segments and seconds, so `mss` scales it:
//!
//! ```text
//!   cwnd │ w_max ┄┄┄┄┄┄┄┄┄┄┄┄┄┄___─────___┄┄┄┄┄┄┄┄╱
//!        │                _──                ──╱    W(t) = C (t - K)³ + w_max
//!        │             ╱     concave     convex
//!        │ 0.7 w_max  ╱
//!        └────────────┴──────────────┴───────────── t
//!                     0              K
//! ```
//!
//! ssthresh is taken from `cwnd`, not from the flight, as RFC 9438, 4.6, allows where an unused window does not grow:
//! a server that answers in a segment keeps the window that it has earned.

use clock::{Duration, Instant};

use super::episode::Episode;
use super::hystart::{HyStart, Phase};
use super::{Acked, Congestion, CongestionControl, MAX_WINDOW, initial_window, valid_mss, window_after_idle};

/// Segments a cubic second (RFC 9438, 5.1).
const C: f64 = 0.4;
/// What is left of the window after a congestion event (RFC 9438, 4.6).
const BETA: f64 = 0.7;
/// Growth of the Reno-friendly estimate, in segments each round trip (RFC 9438, 4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// RFC 9406, 4.3.
const CSS_GROWTH_DIVISOR: u32 = 4;

/// RFC 9438's window.
#[derive(Clone, Debug)]
pub struct Cubic {
    state: State,
    /// State before the last loss (RFC 9438, 4.9).
    undo: Option<State>,
    /// Until when the epoch's time runs: later time is excluded unless the window was used (RFC 9438, 5.8).
    counted_until: Instant,
    hystart: HyStart,
    mss: u32,
    /// Part of an octet by which the window has grown.
    cwnd_fraction: f32,
    episode: Episode,
}

/// The variables of RFC 9438, 4.1.2, by their names.
#[derive(Clone, Copy, Debug, PartialEq)]
struct State {
    cwnd: u32,
    ssthresh: u32,
    cwnd_prior: u32,
    /// Zero while undefined: before the first congestion event and after a timeout.
    w_max: u32,
    w_est: f64,
    t_epoch: Instant,
    /// Seconds.
    k: f32,
    /// A congestion avoidance stage has begun.
    in_epoch: bool,
}

impl Cubic {
    /// Starts in slow start from the initial window of RFC 6928; `mss` is in octets.
    pub fn new(mss: u32) -> Cubic {
        let mss = valid_mss(mss);
        let state = State {
            cwnd: initial_window(mss),
            ssthresh: u32::MAX,
            cwnd_prior: 0,
            w_max: 0,
            w_est: 0.0,
            t_epoch: Instant::ZERO,
            k: 0.0,
            in_epoch: false,
        };
        Cubic {
            state,
            undo: None,
            counted_until: Instant::ZERO,
            hystart: HyStart::new(),
            mss,
            cwnd_fraction: 0.0,
            episode: Episode::default(),
        }
    }

    /// RFC 9438, 4.10: HyStart++ in the first slow start, after that the one of RFC 5681.
    fn slow_start(&mut self, acked: &Acked) {
        let phase = match self.state.ssthresh {
            u32::MAX => self.hystart.on_acked(acked.rtt, acked.snd_una, acked.snd_nxt),
            _ => Phase::SlowStart,
        };
        if phase == Phase::Done {
            self.state.ssthresh = self.state.cwnd;
            self.state.cwnd_prior = self.state.cwnd;
        }
        if !acked.cwnd_limited {
            return;
        }
        let growth = match phase {
            Phase::SlowStart => self.slow_start_growth(acked.delivered),
            Phase::Conservative => self.slow_start_growth(acked.delivered) / CSS_GROWTH_DIVISOR,
            Phase::Done => 0,
        };
        let cwnd = self.state.cwnd.saturating_add(growth);
        self.state.cwnd = cwnd.min(self.state.ssthresh).min(MAX_WINDOW);
    }

    /// All that was delivered, as on Linux: RFC 9406, 4.2, has no limit for senders that pace, and eight segments for others. After a
    /// timeout one segment (RFC 3465, 2.3).
    fn slow_start_growth(&self, delivered: u32) -> u32 {
        if self.episode.after_timeout { delivered.min(self.mss) } else { delivered }
    }

    /// RFC 9438, 4.2 to 4.5. Where the RFC grows by (target - cwnd) / cwnd for each acknowledgement, this does for each
    /// segment acknowledged, so that delayed and stretched acknowledgements reach the target just as soon.
    fn avoid_congestion(&mut self, acked: &Acked) {
        if !self.state.in_epoch {
            self.begin_epoch(acked.now);
        }
        if !acked.cwnd_limited {
            return self.exclude_time(acked.now);
        }
        self.counted_until = acked.now;
        let t = acked.now.since(self.state.t_epoch).as_secs_f64();
        let cwnd = f64::from(self.state.cwnd);
        let acked_windows = (f64::from(acked.delivered) / cwnd).min(1.0);
        self.grow_reno_estimate(acked_windows);
        let next = if self.w_cubic(t) < self.state.w_est {
            self.state.w_est.max(cwnd)
        } else {
            let target = self.w_cubic(t + acked.srtt.as_secs_f64()).clamp(cwnd, 1.5 * cwnd);
            cwnd + (target - cwnd) * acked_windows
        };
        self.set_cwnd(next + f64::from(self.cwnd_fraction));
    }

    /// `w_est` of RFC 9438, 4.3: as fast as Reno once it is where the last congestion event was.
    fn grow_reno_estimate(&mut self, acked_windows: f64) {
        let alpha = if self.state.w_est >= f64::from(self.state.cwnd_prior) { 1.0 } else { ALPHA };
        let w_est = self.state.w_est + alpha * f64::from(self.mss) * acked_windows;
        self.state.w_est = w_est.min(f64::from(MAX_WINDOW));
    }

    /// The window in octets at `t` seconds (RFC 9438, figure 1).
    fn w_cubic(&self, t: f64) -> f64 {
        let from_plateau = t - f64::from(self.state.k);
        let segments = C * from_plateau * from_plateau * from_plateau;
        segments * f64::from(self.mss) + f64::from(self.state.w_max)
    }

    /// RFC 9438, figure 2. Where the window is past `w_max`, or `w_max` is undefined as after a timeout (4.8) or the
    /// first slow start (4.10), growth begins at the plateau.
    fn begin_epoch(&mut self, now: Instant) {
        let state = &mut self.state;
        state.w_max = state.w_max.max(state.cwnd);
        let segments_missing = f64::from(state.w_max - state.cwnd) / f64::from(self.mss);
        state.k = (segments_missing / C).cbrt() as f32;
        state.w_est = f64::from(state.cwnd);
        state.t_epoch = now;
        state.in_epoch = true;
        self.counted_until = now;
    }

    /// Moves the epoch by the time in which the window was not used (RFC 9438, 4.2, MUST NOT count it; 5.8).
    fn exclude_time(&mut self, now: Instant) {
        self.state.t_epoch += now - self.counted_until;
        self.counted_until = now;
    }

    fn set_cwnd(&mut self, octets: f64) {
        let octets = octets.min(f64::from(MAX_WINDOW));
        self.state.cwnd = octets as u32;
        self.cwnd_fraction = octets.fract() as f32;
    }
}

impl CongestionControl for Cubic {
    fn name(&self) -> &'static str {
        "cubic"
    }

    fn cwnd(&self) -> u32 {
        self.state.cwnd
    }

    fn ssthresh(&self) -> u32 {
        self.state.ssthresh
    }

    fn pacing_rate(&self) -> Option<u64> {
        None
    }

    fn on_sent(&mut self, _now: Instant, _in_flight: u32) {}

    fn on_acked(&mut self, acked: &Acked) {
        if !self.episode.lets_grow(acked) {
            return;
        }
        if self.state.cwnd < self.state.ssthresh {
            self.slow_start(acked);
        } else {
            self.avoid_congestion(acked);
        }
    }

    fn on_congestion(&mut self, congestion: Congestion, _flight_size: u32, _now: Instant) {
        self.cwnd_fraction = 0.0;
        if self.episode.begin(congestion) {
            self.state.cwnd = self.mss;
            return;
        }
        self.undo = (congestion != Congestion::Ecn).then_some(self.state);
        let state = &mut self.state;
        let cwnd = f64::from(state.cwnd);
        // Fast convergence (RFC 9438, 4.7): a shrinking share is given up faster.
        state.w_max =
            if state.cwnd < state.w_max { (cwnd * (1.0 + BETA) / 2.0).round() as u32 } else { state.cwnd };
        state.cwnd_prior = state.cwnd;
        state.in_epoch = false;
        // RFC 9438, figure 5, and 4.8.
        let reduced = (cwnd * BETA).round() as u32;
        state.ssthresh = reduced.max(2 * self.mss);
        state.cwnd = match congestion {
            Congestion::Loss => state.ssthresh,
            Congestion::Ecn => reduced.max(self.mss),
            Congestion::Timeout => self.mss,
        };
        if congestion == Congestion::Timeout {
            state.w_max = 0;
        }
    }

    fn on_recovered(&mut self, _now: Instant) {
        self.undo = None;
    }

    /// RFC 9438, 4.9.
    fn on_undo(&mut self, _now: Instant) {
        let Some(before) = self.undo.take() else { return };
        if self.state.cwnd < self.state.cwnd_prior {
            self.state = before;
            self.cwnd_fraction = 0.0;
        }
        self.episode.undo();
    }

    fn on_restart_after_idle(&mut self, idle: Duration, rto: Duration, now: Instant) {
        self.episode.end();
        match window_after_idle(self.cwnd(), self.ssthresh(), self.mss, idle, rto) {
            Some((cwnd, ssthresh)) => {
                self.state = State { cwnd, ssthresh, in_epoch: false, ..self.state };
            }
            None => self.exclude_time(now),
        }
    }

    fn on_handshake_loss(&mut self) {
        self.state.cwnd = self.mss;
    }

    fn resume(&mut self, cwnd: u32, ssthresh: u32) {
        self.state.cwnd = cwnd.clamp(self.mss, MAX_WINDOW);
        self.state.ssthresh = ssthresh;
    }

    fn set_mss(&mut self, mss: u32) {
        self.mss = valid_mss(mss);
        self.state.cwnd = self.state.cwnd.max(self.mss);
    }
}

#[cfg(test)]
mod tests;
