//! Measures the path: rounds, bandwidth, round-trip time and aggregation (draft-ietf-ccwg-bbr-05, 5.5.1 to 5.5.9).

use clock::{Duration, Instant};

use super::super::Acked;
use super::control::saturate;

/// How long a least round-trip time holds (5.5.7.2).
const MIN_RTT_FILTER_LEN: Duration = Duration::from_secs(10);
/// How often ProbeRTT looks for a lower one (5.3.4).
const PROBE_RTT_INTERVAL: Duration = Duration::from_secs(5);
/// Rounds that each half of the aggregation filter holds: ten together (5.5.9).
const EXTRA_ACKED_ROUNDS: u64 = 5;
/// Points at which the flight is remembered; an eighth of a window apart, so two windows.
const FLIGHTS: usize = 16;

/// What one acknowledgement says of the path: the draft's RS (4.1.2.1.3).
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) now: Instant,
    pub(super) newly_acked: u32,
    pub(super) newly_lost: u32,
    pub(super) in_flight: u32,
    pub(super) cwnd_limited: bool,
    pub(super) in_recovery: bool,
    pub(super) rtt: Option<Duration>,
    /// Octets a second; zero without a sample.
    pub(super) delivery_rate: u64,
    /// Octets delivered since the newest acknowledged segment left.
    pub(super) delivered: u64,
    /// Octets that were delivered when it left; `None` without a sample.
    pub(super) prior_delivered: Option<u64>,
    pub(super) app_limited: bool,
    /// Octets in flight when it left, itself included.
    pub(super) tx_in_flight: u32,
    /// Octets lost since it left.
    pub(super) lost: u64,
}

/// The measurements.
#[derive(Clone, Debug)]
pub(super) struct Path {
    /// Octets delivered on the connection.
    pub(super) delivered: u64,
    lost: u64,
    flights: [Flight; FLIGHTS],
    newest_flight: usize,

    next_round_delivered: u64,
    pub(super) round_count: u64,
    /// The last acknowledgement began a round.
    pub(super) round_start: bool,

    /// Of the cycle before and of this one.
    max_bw: [u64; 2],

    min_rtt: Option<Duration>,
    min_rtt_stamp: Instant,
    probe_rtt_min_delay: Option<Duration>,
    pub(super) probe_rtt_min_stamp: Instant,
    pub(super) probe_rtt_expired: bool,

    /// Of the five rounds before and of these.
    extra_acked: [u32; 2],
    extra_acked_round: u64,
    extra_acked_delivered: u64,
    extra_acked_interval_start: Instant,

    /// Samples of segments that left before this much was delivered are held down by ProbeRTT.
    held_down_until: u64,
}

/// The connection when a segment left.
#[derive(Clone, Copy, Debug, Default)]
struct Flight {
    delivered: u64,
    lost: u64,
    in_flight: u32,
}

impl Path {
    pub(super) fn new(now: Instant) -> Path {
        Path {
            delivered: 0,
            lost: 0,
            flights: [Flight::default(); FLIGHTS],
            newest_flight: 0,
            next_round_delivered: 0,
            round_count: 0,
            round_start: false,
            max_bw: [0; 2],
            min_rtt: None,
            min_rtt_stamp: now,
            probe_rtt_min_delay: None,
            probe_rtt_min_stamp: now,
            probe_rtt_expired: false,
            extra_acked: [0; 2],
            extra_acked_round: 0,
            extra_acked_delivered: 0,
            extra_acked_interval_start: now,
            held_down_until: 0,
        }
    }

    /// Notes that a segment leaves and `in_flight` octets are then out; flights less than `spacing` octets apart are one.
    pub(super) fn note_flight(&mut self, in_flight: u32, spacing: u32) {
        let newest = &mut self.flights[self.newest_flight];
        if self.delivered < newest.delivered.saturating_add(u64::from(spacing)) {
            newest.in_flight = newest.in_flight.max(in_flight);
            return;
        }
        self.newest_flight = (self.newest_flight + 1) % FLIGHTS;
        self.flights[self.newest_flight] = Flight { delivered: self.delivered, lost: self.lost, in_flight };
    }

    /// The flight in which a segment left when `delivered` octets were; the oldest one known if it was before.
    fn flight_at(&self, delivered: u64) -> Flight {
        let newest_first =
            (0..FLIGHTS).map(|age| self.flights[(self.newest_flight + FLIGHTS - age) % FLIGHTS]);
        let mut oldest = Flight::default();
        for flight in newest_first {
            oldest = flight;
            if flight.delivered <= delivered {
                break;
            }
        }
        oldest
    }

    /// Counts what the acknowledgement delivered and lost.
    pub(super) fn sample(&mut self, acked: &Acked) -> Sample {
        self.lost = self.lost.saturating_add(u64::from(acked.lost));
        self.delivered = match acked.rate {
            Some(rate) => rate.prior_delivered.saturating_add(rate.delivered),
            None => self.delivered.saturating_add(u64::from(acked.delivered)),
        };
        let prior_delivered = acked.rate.map(|rate| rate.prior_delivered);
        let flight = self.flight_at(prior_delivered.unwrap_or(self.delivered));
        let held_down = prior_delivered.is_none_or(|prior| prior < self.held_down_until);
        Sample {
            now: acked.now,
            newly_acked: acked.delivered,
            newly_lost: acked.lost,
            in_flight: acked.in_flight,
            cwnd_limited: acked.cwnd_limited,
            in_recovery: acked.in_recovery,
            rtt: acked.rtt,
            delivery_rate: acked.rate.map_or(0, |sample| rate(sample.delivered, sample.interval)),
            delivered: acked.rate.map_or(0, |sample| sample.delivered),
            prior_delivered,
            app_limited: held_down || acked.rate.is_none_or(|sample| sample.app_limited),
            tx_in_flight: flight.in_flight,
            lost: self.lost.saturating_sub(flight.lost),
        }
    }

    /// What is in flight now says little of the bandwidth (5.3.4.3, MarkConnectionAppLimited).
    pub(super) fn hold_down(&mut self, in_flight: u32) {
        self.held_down_until = self.delivered.saturating_add(u64::from(in_flight).max(1));
    }

    /// 5.5.1; says whether a round begins.
    pub(super) fn update_round(&mut self, sample: &Sample) -> bool {
        self.round_start = sample.prior_delivered.is_some_and(|prior| prior >= self.next_round_delivered);
        if self.round_start {
            self.start_round();
            self.round_count += 1;
        }
        self.round_start
    }

    pub(super) fn start_round(&mut self) {
        self.next_round_delivered = self.delivered;
    }

    /// The largest delivery rate of this cycle and the one before, in octets a second (5.5.3).
    pub(super) fn max_bw(&self) -> u64 {
        self.max_bw[0].max(self.max_bw[1])
    }

    /// 5.5.5: a sample that the application held down counts only if it raises the estimate.
    pub(super) fn update_max_bw(&mut self, sample: &Sample) {
        if sample.delivery_rate >= self.max_bw() || !sample.app_limited {
            self.max_bw[1] = self.max_bw[1].max(sample.delivery_rate);
        }
    }

    /// 5.5.6; a cycle without samples keeps those of the one before.
    pub(super) fn advance_max_bw_filter(&mut self) {
        if self.max_bw[1] > 0 {
            self.max_bw = [self.max_bw[1], 0];
        }
    }

    /// `None` before the first sample.
    pub(super) fn min_rtt(&self) -> Option<Duration> {
        self.min_rtt
    }

    /// 5.3.4.3.
    pub(super) fn update_min_rtt(&mut self, sample: &Sample) {
        self.probe_rtt_expired = sample.now > self.probe_rtt_min_stamp + PROBE_RTT_INTERVAL;
        if let Some(rtt) = sample.rtt
            && (self.probe_rtt_expired || self.probe_rtt_min_delay.is_none_or(|least| rtt < least))
        {
            self.probe_rtt_min_delay = Some(rtt);
            self.probe_rtt_min_stamp = sample.now;
        }
        let min_rtt_expired = sample.now > self.min_rtt_stamp + MIN_RTT_FILTER_LEN;
        let lower = match (self.probe_rtt_min_delay, self.min_rtt) {
            (Some(least), Some(min_rtt)) => least < min_rtt,
            (least, None) => least.is_some(),
            (None, Some(_)) => false,
        };
        if lower || min_rtt_expired {
            self.min_rtt = self.probe_rtt_min_delay;
            self.min_rtt_stamp = self.probe_rtt_min_stamp;
        }
    }

    /// Octets acknowledged in one go beyond what the bandwidth explains (5.5.9).
    pub(super) fn extra_acked(&self) -> u32 {
        self.extra_acked[0].max(self.extra_acked[1])
    }

    /// 5.5.9; in Startup one round is remembered.
    pub(super) fn update_ack_aggregation(
        &mut self,
        sample: &Sample,
        bw: u64,
        cwnd: u32,
        full_bw_reached: bool,
    ) {
        let window = if full_bw_reached { EXTRA_ACKED_ROUNDS } else { 1 };
        if self.round_count >= self.extra_acked_round.saturating_add(window) {
            self.extra_acked_round = self.round_count;
            self.extra_acked = [self.extra_acked[1], 0];
        }
        let mut expected = octets(bw, sample.now - self.extra_acked_interval_start);
        if self.extra_acked_delivered <= expected {
            self.restart_ack_aggregation(sample.now);
            expected = 0;
        }
        self.extra_acked_delivered = self.extra_acked_delivered.saturating_add(u64::from(sample.newly_acked));
        let extra = saturate(self.extra_acked_delivered.saturating_sub(expected)).min(cwnd);
        self.extra_acked[1] = self.extra_acked[1].max(extra);
    }

    pub(super) fn restart_ack_aggregation(&mut self, now: Instant) {
        self.extra_acked_delivered = 0;
        self.extra_acked_interval_start = now;
    }
}

/// Octets a second, if `octets` take `interval`; zero if that is zero.
pub(super) fn rate(octets: u64, interval: Duration) -> u64 {
    let per_second =
        (u128::from(octets) * 1_000_000_000).checked_div(interval.as_nanos().into()).unwrap_or(0);
    u64::try_from(per_second).unwrap_or(u64::MAX)
}

/// Octets that `rate` octets a second make in `span`.
pub(super) fn octets(rate: u64, span: Duration) -> u64 {
    u64::try_from(u128::from(rate) * u128::from(span.as_nanos()) / 1_000_000_000).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::super::RateSample;
    use super::super::super::tests::{MSS, ack};
    use super::*;

    /// A sample of 10 ms in which `octets` were delivered.
    fn sample(path: &mut Path, octets: u64, app_limited: bool) -> Sample {
        let interval = Duration::from_millis(10);
        let prior_delivered = path.delivered;
        let rate = RateSample { delivered: octets, interval, prior_delivered, app_limited };
        path.sample(&Acked { rate: Some(rate), ..ack(MSS) })
    }

    /// 5.5.4, and 5.5.6: a cycle without other samples keeps the bandwidth of the one before.
    #[test]
    fn samples_that_the_application_held_down_raise_the_bandwidth_but_never_lower_it() {
        let mut path = Path::new(Instant::ZERO);
        let mut max_bw_after_cycle = |octets, app_limited| {
            let sample = sample(&mut path, octets, app_limited);
            path.update_max_bw(&sample);
            path.advance_max_bw_filter();
            path.max_bw()
        };
        assert_eq!(max_bw_after_cycle(10_000, true), 1_000_000);
        assert_eq!(max_bw_after_cycle(20_000, true), 2_000_000);
        assert_eq!(max_bw_after_cycle(1_000, true), 2_000_000);
        assert_eq!(max_bw_after_cycle(9_000, false), 900_000);
    }

    /// 5.3.4.3.
    #[test]
    fn what_was_in_flight_in_probe_rtt_counts_as_held_down() {
        let mut path = Path::new(Instant::ZERO);
        path.hold_down(2_000);
        assert!(sample(&mut path, 2_000, false).app_limited);
        assert!(!sample(&mut path, 2_000, false).app_limited);
    }

    /// 5.5.9.
    #[test]
    fn acknowledgements_in_bursts_add_their_excess_for_ten_rounds() {
        let mut path = Path::new(Instant::ZERO);
        let at = |millis| Instant::ZERO + Duration::from_millis(millis);
        for (millis, extra) in [(0, 10_000), (5, 15_000), (100, 15_000), (101, 19_000)] {
            let sample = Sample { now: at(millis), newly_acked: 10_000, ..sample(&mut path, 0, false) };
            path.update_ack_aggregation(&sample, 1_000_000, u32::MAX, true);
            assert_eq!(path.extra_acked(), extra);
        }
        let steady = Sample { now: at(200), newly_acked: 0, ..sample(&mut path, 0, false) };
        for rounds in [EXTRA_ACKED_ROUNDS, 2 * EXTRA_ACKED_ROUNDS] {
            path.round_count = rounds;
            path.update_ack_aggregation(&steady, 1_000_000, u32::MAX, true);
        }
        assert_eq!(path.extra_acked(), 0);
    }

    /// 4.1.2.2: P.tx_in_flight, to an eighth of a window.
    #[test]
    fn the_flight_at_a_departure_is_remembered_for_two_windows() {
        let mut path = Path::new(Instant::ZERO);
        for round in 1..=40 {
            path.note_flight(round * MSS, MSS);
            path.delivered += u64::from(MSS);
        }
        assert_eq!(path.flight_at(39 * u64::from(MSS)).in_flight, 40 * MSS);
        assert_eq!(path.flight_at(30 * u64::from(MSS) + 1).in_flight, 31 * MSS);
        assert_eq!(path.flight_at(0).in_flight, 25 * MSS);
    }
}
