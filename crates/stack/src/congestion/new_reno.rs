//! NewReno: slow start and congestion avoidance of RFC 5681, counting octets as RFC 3465 does.
//!
//! The window is in octets. RFC 6582 and RFC 6675 say which segments a recovery sends; that is
//! [`crate::recovery`]'s. Here a recovery begins with `cwnd = ssthresh` and leaves the window alone until it ends.

use clock::{Duration, Instant};

use super::episode::Episode;
use super::{Acked, Congestion, CongestionControl, MAX_WINDOW, initial_window, valid_mss, window_after_idle};

/// Segments by which one acknowledgement may grow the window in slow start: RFC 3465's L, at most 2 (2.2).
const SLOW_START_SEGMENTS: u32 = 2;

/// RFC 5681's window.
#[derive(Clone, Debug)]
pub struct NewReno {
    mss: u32,
    window: Window,
    /// Octets acknowledged towards the next increase in congestion avoidance.
    acked_in_avoidance: u32,
    /// What the last loss took.
    undo: Option<Window>,
    episode: Episode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    cwnd: u32,
    ssthresh: u32,
}

impl NewReno {
    /// Starts in slow start from the initial window of RFC 6928; `mss` is in octets.
    pub fn new(mss: u32) -> NewReno {
        let mss = valid_mss(mss);
        NewReno {
            mss,
            window: Window { cwnd: initial_window(mss), ssthresh: u32::MAX },
            acked_in_avoidance: 0,
            undo: None,
            episode: Episode::default(),
        }
    }

    /// RFC 5681, 3.1, equation 2, with RFC 3465's L: 1 in slow start after a timeout (RFC 3465, 2.3).
    fn slow_start(&mut self, delivered: u32) {
        let segments = if self.episode.after_timeout { 1 } else { SLOW_START_SEGMENTS };
        let growth = delivered.min(self.mss.saturating_mul(segments));
        self.window.cwnd = self.window.cwnd.saturating_add(growth).min(self.window.ssthresh).min(MAX_WINDOW);
    }

    /// One segment for each window acknowledged: RFC 5681, 3.1, and RFC 3465, 2.1.
    fn avoid_congestion(&mut self, delivered: u32) {
        let cwnd = self.window.cwnd;
        self.acked_in_avoidance = self.acked_in_avoidance.saturating_add(delivered);
        if self.acked_in_avoidance >= cwnd {
            self.acked_in_avoidance = (self.acked_in_avoidance - cwnd).min(cwnd);
            self.window.cwnd = cwnd.saturating_add(self.mss).min(MAX_WINDOW);
        }
    }
}

impl CongestionControl for NewReno {
    fn name(&self) -> &'static str {
        "reno"
    }

    fn cwnd(&self) -> u32 {
        self.window.cwnd
    }

    fn ssthresh(&self) -> u32 {
        self.window.ssthresh
    }

    fn pacing_rate(&self) -> Option<u64> {
        None
    }

    fn on_sent(&mut self, _now: Instant, _in_flight: u32) {}

    fn on_acked(&mut self, acked: &Acked) {
        if !self.episode.lets_grow(acked) || !acked.cwnd_limited {
            return;
        }
        if self.window.cwnd < self.window.ssthresh {
            self.slow_start(acked.delivered);
        } else {
            self.avoid_congestion(acked.delivered);
        }
    }

    fn on_congestion(&mut self, congestion: Congestion, flight_size: u32, _now: Instant) {
        self.acked_in_avoidance = 0;
        if self.episode.begin(congestion) {
            self.window.cwnd = self.mss;
            return;
        }
        self.undo = (congestion != Congestion::Ecn).then_some(self.window);
        // What limited transmit sent beyond the window does not count (RFC 5681, 3.2, step 2).
        let half = flight_size.min(self.window.cwnd) / 2;
        let ssthresh = half.max(2 * self.mss); // RFC 5681, equation 4
        self.window.ssthresh = ssthresh;
        self.window.cwnd = match congestion {
            Congestion::Loss => ssthresh,
            Congestion::Ecn => half.max(self.mss), // down to one segment: RFC 3168, 6.1.2
            Congestion::Timeout => self.mss,       // the loss window: RFC 5681, 3.1
        };
    }

    fn on_recovered(&mut self, _now: Instant) {
        self.undo = None;
    }

    fn on_undo(&mut self, _now: Instant) {
        let Some(before) = self.undo.take() else { return };
        self.window.cwnd = self.window.cwnd.max(before.cwnd);
        self.window.ssthresh = self.window.ssthresh.max(before.ssthresh);
        self.episode.undo();
    }

    fn on_restart_after_idle(&mut self, idle: Duration, rto: Duration, _now: Instant) {
        self.episode.end();
        if let Some((cwnd, ssthresh)) = window_after_idle(self.cwnd(), self.ssthresh(), self.mss, idle, rto) {
            self.window = Window { cwnd, ssthresh };
        }
    }

    fn on_handshake_loss(&mut self) {
        self.window.cwnd = self.mss;
    }

    fn resume(&mut self, cwnd: u32, ssthresh: u32) {
        self.window = Window { cwnd: cwnd.clamp(self.mss, MAX_WINDOW), ssthresh };
    }

    fn set_mss(&mut self, mss: u32) {
        self.mss = valid_mss(mss);
        self.window.cwnd = self.window.cwnd.max(self.mss);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{MSS, ack, ack_in_recovery, acknowledge_window};
    use super::*;

    fn in_avoidance(segments: u32) -> NewReno {
        let window = Window { cwnd: segments * MSS, ssthresh: segments * MSS };
        NewReno { window, ..NewReno::new(MSS) }
    }

    /// RFC 6928, 2.
    #[test]
    fn the_initial_window_is_ten_segments_and_at_most_14600_octets_for_large_ones() {
        assert_eq!(NewReno::new(1460).cwnd(), 14_600);
        assert_eq!(NewReno::new(536).cwnd(), 5_360);
        assert_eq!(NewReno::new(8_960).cwnd(), 17_920);
        assert_eq!(NewReno::new(MSS).ssthresh(), u32::MAX);
    }

    /// RFC 5681, 3.1 (MUST: no more than what is acknowledged), with RFC 3465's L = 2 for delayed acknowledgements.
    #[test]
    fn slow_start_doubles_the_window_each_round() {
        let mut reno = NewReno::new(MSS);
        for rounds in 1..5 {
            acknowledge_window(&mut reno, 2);
            assert_eq!(reno.cwnd(), (10 << rounds) * MSS);
        }
    }

    /// RFC 3465, 2.2 (MUST NOT exceed L = 2).
    #[test]
    fn a_stretch_acknowledgement_grows_slow_start_by_two_segments_at_most() {
        let mut reno = NewReno::new(MSS);
        reno.on_acked(&ack(8 * MSS));
        assert_eq!(reno.cwnd(), 12 * MSS);
    }

    /// RFC 5681, 3.1 (MUST NOT grow by more than one segment each round trip).
    #[test]
    fn congestion_avoidance_grows_by_one_segment_each_round() {
        let mut reno = in_avoidance(20);
        for rounds in 1..5 {
            acknowledge_window(&mut reno, 2);
            assert_eq!(reno.cwnd(), (20 + rounds) * MSS);
        }
    }

    /// RFC 5681, 3.1, equation 4 (MUST), and 3.2, step 2 (limited transmit MUST NOT count).
    #[test]
    fn loss_halves_the_flight_and_never_counts_more_than_the_window() {
        let mut reno = in_avoidance(20);
        reno.on_congestion(Congestion::Loss, 22 * MSS, Instant::ZERO);
        assert_eq!((reno.cwnd(), reno.ssthresh()), (10 * MSS, 10 * MSS));
        let mut reno = in_avoidance(20);
        reno.on_congestion(Congestion::Loss, 3 * MSS, Instant::ZERO);
        assert_eq!((reno.cwnd(), reno.ssthresh()), (2 * MSS, 2 * MSS));
    }

    #[test]
    fn fast_recovery_leaves_the_window_and_avoidance_follows() {
        let mut reno = in_avoidance(20);
        reno.on_congestion(Congestion::Loss, 20 * MSS, Instant::ZERO);
        reno.on_acked(&ack_in_recovery(15 * MSS));
        assert_eq!(reno.cwnd(), 10 * MSS);
        reno.on_recovered(Instant::ZERO);
        acknowledge_window(&mut reno, 1);
        assert_eq!(reno.cwnd(), 11 * MSS);
    }

    /// RFC 5681, 3.1: the loss window is one segment (MUST), slow start up to the new ssthresh; RFC 3465, 2.3: L = 1.
    #[test]
    fn a_timeout_restarts_from_one_segment_in_slow_start() {
        let mut reno = in_avoidance(20);
        reno.on_congestion(Congestion::Timeout, 20 * MSS, Instant::ZERO);
        assert_eq!((reno.cwnd(), reno.ssthresh()), (MSS, 10 * MSS));
        reno.on_acked(&ack_in_recovery(4 * MSS));
        assert_eq!(reno.cwnd(), 2 * MSS);
    }

    /// RFC 5681, 3.1: ssthresh is held while the same segment times out again.
    #[test]
    fn a_second_timeout_of_the_same_segment_holds_ssthresh() {
        let mut reno = in_avoidance(20);
        reno.on_congestion(Congestion::Timeout, 20 * MSS, Instant::ZERO);
        reno.on_congestion(Congestion::Timeout, MSS, Instant::ZERO);
        assert_eq!(reno.ssthresh(), 10 * MSS);
        reno.on_acked(&ack_in_recovery(MSS));
        reno.on_congestion(Congestion::Timeout, 8 * MSS, Instant::ZERO);
        assert_eq!(reno.ssthresh(), 2 * MSS);
    }

    /// RFC 3168, 6.1.2: as for a loss, and to one segment at the least.
    #[test]
    fn ecn_echoes_halve_the_window_down_to_one_segment() {
        let mut reno = in_avoidance(8);
        for segments in [4, 2, 1, 1] {
            reno.on_congestion(Congestion::Ecn, reno.cwnd(), Instant::ZERO);
            assert_eq!(reno.cwnd(), segments * MSS);
        }
        assert_eq!(reno.ssthresh(), 2 * MSS);
    }

    #[test]
    fn undo_gives_back_what_a_spurious_timeout_took_and_only_once() {
        let mut reno = in_avoidance(20);
        let before = reno.window;
        reno.on_congestion(Congestion::Timeout, 20 * MSS, Instant::ZERO);
        reno.on_congestion(Congestion::Timeout, MSS, Instant::ZERO);
        reno.on_undo(Instant::ZERO);
        assert_eq!(reno.window, before);
        reno.on_congestion(Congestion::Loss, 20 * MSS, Instant::ZERO);
        reno.on_recovered(Instant::ZERO);
        reno.on_undo(Instant::ZERO);
        assert_eq!(reno.cwnd(), 10 * MSS);
    }

    /// RFC 2861, 3.1, as on Linux; RFC 7661, 4.4, keeps three quarters of the window in ssthresh.
    #[test]
    fn each_timeout_of_idleness_halves_the_window_down_to_the_initial_one() {
        let rto = Duration::from_millis(300);
        for (timeouts, segments) in [(1, 40), (2, 20), (3, 10), (9, 10), (1000, 10)] {
            let mut reno = in_avoidance(40);
            reno.window.ssthresh = 20 * MSS;
            reno.on_restart_after_idle(rto * timeouts, rto, Instant::ZERO);
            let ssthresh = if timeouts == 1 { 20 } else { 30 };
            assert_eq!((reno.cwnd(), reno.ssthresh()), (segments * MSS, ssthresh * MSS), "{timeouts}");
        }
    }

    #[test]
    fn a_window_that_the_application_leaves_unused_does_not_grow() {
        let mut reno = NewReno::new(MSS);
        reno.on_acked(&Acked { cwnd_limited: false, ..ack(2 * MSS) });
        assert_eq!(reno.cwnd(), 10 * MSS);
    }
}
