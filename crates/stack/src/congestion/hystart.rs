//! HyStart++ (RFC 9406): leaves slow start when the round-trip time rises, before the queue overflows.
//!
//! ```text
//!   slow start ── RTT rose ──▶ conservative slow start ── five rounds ──▶ congestion avoidance
//!        ▲                               │
//!        └────── RTT fell again ─────────┘
//! ```

use clock::Duration;

use crate::seq::SeqNum;

// RFC 9406, 4.3: recommended constants.
const MIN_RTT_THRESH_US: u32 = 4_000;
const MAX_RTT_THRESH_US: u32 = 16_000;
const MIN_RTT_DIVISOR: u32 = 8;
const N_RTT_SAMPLE: u8 = 8;
const CSS_ROUNDS: u8 = 5;
const UNKNOWN: u32 = u32::MAX;

/// How slow start may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// By what is acknowledged.
    SlowStart,
    /// By a quarter of it.
    Conservative,
    /// Not at all: ssthresh becomes the window.
    Done,
}

/// The first slow start of a connection, in rounds. A round ends when all that was sent at its start is acknowledged.
#[derive(Clone, Copy, Debug)]
pub(super) struct HyStart {
    phase: Phase,
    in_round: bool,
    rtt_sample_count: u8,
    css_round_count: u8,
    window_end: SeqNum,
    /// Least times of the rounds, in microseconds.
    last_round_min_rtt: u32,
    current_round_min_rtt: u32,
    css_baseline_min_rtt: u32,
}

impl HyStart {
    pub(super) const fn new() -> HyStart {
        HyStart {
            phase: Phase::SlowStart,
            in_round: false,
            rtt_sample_count: 0,
            css_round_count: 0,
            window_end: SeqNum(0),
            last_round_min_rtt: UNKNOWN,
            current_round_min_rtt: UNKNOWN,
            css_baseline_min_rtt: UNKNOWN,
        }
    }

    /// Takes the round-trip sample of an acknowledgement in slow start (RFC 9406, 4.2).
    pub(super) fn on_acked(&mut self, rtt: Option<Duration>, snd_una: SeqNum, snd_nxt: SeqNum) -> Phase {
        if !self.in_round {
            self.in_round = true;
            self.window_end = snd_nxt;
        }
        if let Some(rtt) = rtt {
            self.on_sample(u32::try_from(rtt.as_micros()).unwrap_or(UNKNOWN - 1));
        }
        if snd_una.is_at_or_after(self.window_end) {
            self.end_round(snd_una, snd_nxt);
        }
        self.phase
    }

    fn on_sample(&mut self, rtt_us: u32) {
        self.current_round_min_rtt = self.current_round_min_rtt.min(rtt_us);
        self.rtt_sample_count = self.rtt_sample_count.saturating_add(1);
        if self.rtt_sample_count < N_RTT_SAMPLE {
            return;
        }
        match self.phase {
            Phase::SlowStart if self.rtt_rose() => {
                self.css_baseline_min_rtt = self.current_round_min_rtt;
                self.css_round_count = 0;
                self.phase = Phase::Conservative;
            }
            Phase::Conservative if self.current_round_min_rtt < self.css_baseline_min_rtt => {
                self.css_baseline_min_rtt = UNKNOWN;
                self.phase = Phase::SlowStart;
            }
            _ => {}
        }
    }

    fn rtt_rose(&self) -> bool {
        if self.last_round_min_rtt == UNKNOWN {
            return false;
        }
        let threshold =
            (self.last_round_min_rtt / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH_US, MAX_RTT_THRESH_US);
        self.current_round_min_rtt >= self.last_round_min_rtt.saturating_add(threshold)
    }

    /// The round in which conservative slow start began counts as one of the five. With nothing in flight the next round waits for
    /// what is sent: its end is not known yet.
    fn end_round(&mut self, snd_una: SeqNum, snd_nxt: SeqNum) {
        self.in_round = snd_una != snd_nxt;
        self.window_end = snd_nxt;
        self.last_round_min_rtt = self.current_round_min_rtt;
        self.current_round_min_rtt = UNKNOWN;
        self.rtt_sample_count = 0;
        if self.phase == Phase::Conservative {
            self.css_round_count += 1;
            if self.css_round_count >= CSS_ROUNDS {
                self.phase = Phase::Done;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Flow {
        hystart: HyStart,
        snd_nxt: SeqNum,
    }

    impl Flow {
        fn new() -> Flow {
            Flow { hystart: HyStart::new(), snd_nxt: SeqNum(u32::MAX - 7) }
        }

        /// Ends a round with `samples` acknowledgements, each with a round-trip time of `rtt_ms`.
        fn round(&mut self, samples: u32, rtt_ms: u64) -> Phase {
            let rtt = Some(Duration::from_millis(rtt_ms));
            for _ in 1..samples {
                self.hystart.on_acked(rtt, self.snd_nxt - 1, self.snd_nxt);
            }
            let snd_una = self.snd_nxt;
            self.snd_nxt += 1000;
            self.hystart.on_acked(rtt, snd_una, self.snd_nxt)
        }
    }

    /// RFC 9406, 4.2: a threshold of an eighth of the last round, at least 4 ms and at most 16 ms.
    #[test]
    fn a_rise_of_the_round_trip_time_enters_conservative_slow_start() {
        for (before_ms, after_ms, phase) in [
            (80, 89, Phase::SlowStart),
            (80, 90, Phase::Conservative),
            (8, 11, Phase::SlowStart),
            (8, 12, Phase::Conservative),
            (400, 415, Phase::SlowStart),
            (400, 416, Phase::Conservative),
        ] {
            let mut flow = Flow::new();
            assert_eq!(flow.round(10, before_ms), Phase::SlowStart);
            assert_eq!(flow.round(10, after_ms), phase, "{before_ms} to {after_ms} ms");
        }
    }

    /// RFC 9406, 4.2: N_RTT_SAMPLE.
    #[test]
    fn seven_samples_are_too_few_to_judge_by() {
        let mut flow = Flow::new();
        flow.round(10, 50);
        assert_eq!(flow.round(7, 100), Phase::SlowStart);
        assert_eq!(flow.round(8, 200), Phase::Conservative);
    }

    /// RFC 9406, 4.2: an acknowledgement of all that is in flight ends one round, and what is sent next is another.
    #[test]
    fn a_round_that_one_acknowledgement_covers_is_the_measure_of_the_next() {
        let (mut hystart, start) = (HyStart::new(), SeqNum(u32::MAX - 7));
        let millis = |ms| Some(Duration::from_millis(ms));
        assert_eq!(hystart.on_acked(millis(100), start + 1000, start + 1000), Phase::SlowStart);
        let phases = (1..=8).map(|n| hystart.on_acked(millis(140), start + 1000 + n, start + 2000));
        assert_eq!(phases.last(), Some(Phase::Conservative));
    }

    /// RFC 9406, 4.2: a partial first round counts.
    #[test]
    fn five_conservative_rounds_end_slow_start() {
        let mut flow = Flow::new();
        flow.round(10, 50);
        for _ in 0..4 {
            assert_eq!(flow.round(10, 100), Phase::Conservative);
        }
        assert_eq!(flow.round(10, 100), Phase::Done);
    }

    /// RFC 9406, 4.2: the rise was jitter.
    #[test]
    fn a_false_alarm_resumes_slow_start_and_a_second_rise_ends_it_again() {
        let mut flow = Flow::new();
        flow.round(10, 50);
        assert_eq!(flow.round(10, 100), Phase::Conservative);
        assert_eq!(flow.round(10, 51), Phase::SlowStart);
        assert_eq!(flow.round(10, 80), Phase::Conservative);
    }
}
