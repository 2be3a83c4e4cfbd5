//! ProbeRTT: every five seconds the queue is drained, to measure the path's own round-trip time
//! (draft-ietf-ccwg-bbr-05, 5.3.4).

use clock::{Duration, Instant};

use super::Bbr;
use super::cycle::{AckPhase, State};
use super::path::Sample;

/// How long little is in flight, and a round at least.
const PROBE_RTT_DURATION: Duration = Duration::from_millis(200);

impl Bbr {
    pub(super) fn check_probe_rtt(&mut self, sample: &Sample) {
        if self.state != State::ProbeRtt && self.path.probe_rtt_expired && !self.idle_restart {
            self.save_cwnd();
            self.state = State::ProbeRtt;
            self.probe_rtt_done_stamp = None;
            self.ack_phase = AckPhase::ProbeStopping;
            self.path.start_round();
        }
        if self.state == State::ProbeRtt {
            self.handle_probe_rtt(sample);
        }
        if sample.delivered > 0 {
            self.idle_restart = false;
        }
    }

    fn handle_probe_rtt(&mut self, sample: &Sample) {
        self.path.hold_down(sample.in_flight);
        if self.probe_rtt_done_stamp.is_some() {
            self.probe_rtt_round_done |= self.path.round_start;
            if self.probe_rtt_round_done {
                self.check_probe_rtt_done(sample.now);
            }
        } else if sample.in_flight <= self.probe_rtt_cwnd() {
            self.probe_rtt_done_stamp = Some(sample.now + PROBE_RTT_DURATION);
            self.probe_rtt_round_done = false;
            self.path.start_round();
        }
    }

    pub(super) fn check_probe_rtt_done(&mut self, now: Instant) {
        if self.probe_rtt_done_stamp.is_some_and(|done| now > done) {
            self.path.probe_rtt_min_stamp = now;
            self.restore_cwnd();
            self.exit_probe_rtt(now);
        }
    }

    /// 5.3.4.4.
    fn exit_probe_rtt(&mut self, now: Instant) {
        self.bounds.reset_short_term();
        if self.full_pipe.reached {
            self.start_probe_bw_down(now);
            self.state = State::ProbeBwCruise;
        } else {
            self.state = State::Startup;
        }
    }
}
