//! Round-trip time and the retransmission timeout (RFC 6298).
//!
//! Timestamps give a sample with almost every acknowledgement (RFC 7323, appendix G warns that the gains of RFC 6298 then
//! forget too fast). As Linux does, the deviation that sets the timeout rises at once with any sample but falls only once a
//! round trip, by the largest deviation seen in that round. Times are kept in microseconds, a sample is at least one.

use clock::{Duration, Instant};

/// Timeout before the first sample (RFC 6298, 2.1).
const RTO_INITIAL_US: u64 = 1_000_000;

/// Timeout at the start of data transfer if the SYN had to be sent again (RFC 6298, 5.7).
const RTO_AFTER_SYN_LOSS_US: u64 = 3_000_000;

/// Longest timeout, backed off or not (RFC 6298, 2.5 allows no less than a minute).
pub(crate) const RTO_MAX_US: u64 = 120_000_000;

/// Least allowance for variance, as in Linux; RFC 6298, 2.4 would have a second.
const RTO_MIN: Duration = Duration::from_millis(200);

/// The least round-trip time is forgotten after two of these (300 s in all, RFC 8985, 6.2 step 1 and Linux).
const MIN_RTT_BUCKET: Duration = Duration::from_secs(150);

/// Doublings after which every timeout is at [`RTO_MAX_US`].
const BACKOFF_MAX: u8 = 16;

/// Estimates the round-trip time of one connection and computes its retransmission timeout.
#[derive(Clone, Debug)]
pub struct RttEstimator {
    /// Smoothed round-trip time in 1/8 us; zero before the first sample.
    srtt_eighths: u32,
    /// Smoothed mean deviation in 1/4 us.
    deviation_quarters: u32,
    /// Largest `deviation_quarters` of this round.
    deviation_max: u32,
    /// Four times RFC 6298's RTTVAR in us: what is added to `srtt`.
    variance_term: u32,
    /// Floor of `variance_term` in us.
    variance_term_min: u32,
    /// Least sample of the bucket before this one in us; `u32::MAX` if there was none.
    min_rtt_before: u32,
    /// Least sample of this bucket in us; `u32::MAX` if there was none.
    min_rtt_now: u32,
    backoff: u8,
    syn_was_lost: bool,
    /// When the bucket of `min_rtt_now` began.
    bucket_start: BucketTime,
    /// When the deviation may fall again.
    round_end: RoundTime,
}

impl Default for RttEstimator {
    fn default() -> RttEstimator {
        RttEstimator::new(RTO_MIN)
    }
}

impl RttEstimator {
    /// An estimator without samples. The timeout is never less than `srtt` and `rto_min` together.
    pub fn new(rto_min: Duration) -> RttEstimator {
        RttEstimator {
            srtt_eighths: 0,
            deviation_quarters: 0,
            deviation_max: 0,
            variance_term: 0,
            variance_term_min: micros(rto_min),
            min_rtt_before: u32::MAX,
            min_rtt_now: u32::MAX,
            backoff: 0,
            syn_was_lost: false,
            bucket_start: BucketTime::default(),
            round_end: RoundTime::default(),
        }
    }

    /// Takes a sample of a segment that was sent once (Karn's rule, RFC 6298, 3). Ends any backoff.
    pub fn on_sample(&mut self, rtt: Duration, now: Instant) {
        self.on_min_rtt(rtt, now);
        self.sample(micros(rtt).max(1), now);
    }

    /// Takes a sample that timestamps of milliseconds gave: too coarse for the least round-trip time. Ends any backoff.
    pub fn on_timestamp_sample(&mut self, rtt: Duration, now: Instant) {
        self.sample(micros(rtt).max(1000), now);
    }

    fn sample(&mut self, sample: u32, now: Instant) {
        self.backoff = 0;
        if self.srtt_eighths == 0 {
            self.srtt_eighths = sample * 8;
            self.deviation_quarters = sample * 2;
            self.start_round(now);
            self.deviation_max = self.deviation_quarters.max(self.variance_term_min);
            self.variance_term = self.deviation_max;
            return;
        }
        self.smooth(sample);
        self.deviation_max = self.deviation_max.max(self.deviation_quarters);
        self.variance_term = self.variance_term.max(self.deviation_max);
        if !self.round_end.is_ahead(now) {
            let fall = self.variance_term.saturating_sub(self.deviation_max).div_ceil(4);
            self.variance_term -= fall;
            self.start_round(now);
        }
    }

    /// Takes a sample that is good for the least round-trip time only.
    pub fn on_min_rtt(&mut self, rtt: Duration, now: Instant) {
        let age = self.bucket_start.age(now);
        if age >= MIN_RTT_BUCKET {
            self.min_rtt_before = if age < 2 * MIN_RTT_BUCKET { self.min_rtt_now } else { u32::MAX };
            self.min_rtt_now = u32::MAX;
            self.bucket_start = BucketTime::of(now);
        }
        self.min_rtt_now = self.min_rtt_now.min(micros(rtt).max(1));
    }

    /// The SYN was sent more than once: without a sample, data starts with three seconds (RFC 6298, 5.7).
    pub fn on_syn_retransmitted(&mut self) {
        self.syn_was_lost = true;
        self.backoff = 0; // The three seconds are the timeout, not what is doubled.
    }

    /// The timer expired: the next timeout is twice as long (RFC 6298, 5.5).
    pub fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(BACKOFF_MAX);
    }

    /// The path proved to work, such as by a spurious timeout: the next timeout is the plain one.
    pub fn reset_backoff(&mut self) {
        self.backoff = 0;
    }

    /// Doublings in effect.
    pub fn backoff(&self) -> u8 {
        self.backoff
    }

    /// Whether there has been a sample.
    pub fn has_sample(&self) -> bool {
        self.srtt_eighths != 0
    }

    /// Smoothed round-trip time; zero before the first sample.
    pub fn srtt(&self) -> Duration {
        Duration::from_nanos(u64::from(self.srtt_eighths) * 125)
    }

    /// Smoothed deviation of the samples: what RTTVAR would be without its least value, and falls with it later.
    pub fn deviation(&self) -> Duration {
        Duration::from_nanos(u64::from(self.deviation_quarters) * 250)
    }

    /// RFC 6298's RTTVAR, as the timeout uses it.
    pub fn rttvar(&self) -> Duration {
        Duration::from_nanos(u64::from(self.variance_term) * 250)
    }

    /// Least sample of the last 150 to 300 seconds; zero before the first.
    pub fn min_rtt(&self) -> Duration {
        match self.min_rtt_now.min(self.min_rtt_before) {
            u32::MAX => Duration::ZERO,
            least => Duration::from_micros(u64::from(least)),
        }
    }

    /// The retransmission timeout with its backoff (RFC 6298, 2 and 5.5).
    pub fn rto(&self) -> Duration {
        let micros = match (self.has_sample(), self.syn_was_lost) {
            (true, _) => u64::from(self.srtt_eighths / 8) + u64::from(self.variance_term),
            (false, true) => RTO_AFTER_SYN_LOSS_US,
            (false, false) => RTO_INITIAL_US,
        };
        Duration::from_micros((micros << self.backoff).min(RTO_MAX_US))
    }

    /// Moves the averages by RFC 6298, 2.3; a sample below the average that widens the deviation counts an eighth, so that
    /// a falling round-trip time does not raise the timeout (Linux).
    fn smooth(&mut self, sample: u32) {
        let error = i64::from(sample) - i64::from(self.srtt_eighths / 8);
        self.srtt_eighths = u32::try_from(i64::from(self.srtt_eighths) + error).unwrap_or(1).max(1);
        let mut widening = error.abs() - i64::from(self.deviation_quarters / 4);
        if error < 0 && widening > 0 {
            widening /= 8;
        }
        self.deviation_quarters = u32::try_from(i64::from(self.deviation_quarters) + widening).unwrap_or(0);
    }

    fn start_round(&mut self, now: Instant) {
        self.deviation_max = self.variance_term_min;
        self.round_end = RoundTime::of(now + self.srtt());
    }
}

/// A time in milliseconds, modulo 49 days: of two that are farther apart one looks younger than it is.
#[derive(Clone, Copy, Debug, Default)]
struct BucketTime(u32);

impl BucketTime {
    fn of(at: Instant) -> BucketTime {
        BucketTime((at.as_nanos() / 1_000_000) as u32)
    }

    fn age(self, now: Instant) -> Duration {
        Duration::from_millis(u64::from(BucketTime::of(now).0.wrapping_sub(self.0)))
    }
}

/// A time in microseconds, modulo 71 minutes, which is less than a minute ahead, or past.
#[derive(Clone, Copy, Debug, Default)]
struct RoundTime(u32);

impl RoundTime {
    /// A round is no longer than [`micros`] makes a sample; what seems to be farther ahead is long past.
    const AHEAD_MAX: u32 = 61_000_000;

    /// The first microsecond that is not before `at`.
    fn of(at: Instant) -> RoundTime {
        RoundTime(at.as_nanos().div_ceil(1000) as u32)
    }

    fn is_ahead(self, now: Instant) -> bool {
        let ahead = self.0.wrapping_sub((now.as_nanos() / 1000) as u32);
        ahead != 0 && ahead <= RoundTime::AHEAD_MAX
    }
}

/// Microseconds of `span`, at most a minute's: eight times as much still fits.
fn micros(span: Duration) -> u32 {
    span.as_micros().min(60_000_000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_over_at_its_end_and_long_behind_it() {
        let at = |micros: u64| Instant::from_nanos(micros * 1000);
        let end = RoundTime::of(at(u64::from(u32::MAX) + 10));
        assert!(end.is_ahead(at(u64::from(u32::MAX) + 9)));
        for past in [0, 1, 60_000_000, 1 << 31, 3_600_000_000] {
            assert!(!end.is_ahead(at(u64::from(u32::MAX) + 10 + past)), "{past} microseconds later");
        }
    }

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn it_is_small() {
        assert!(size_of::<RttEstimator>() <= 48);
    }

    #[test]
    fn the_first_timeout_is_a_second_and_three_after_a_lost_syn_rfc6298_2_1_and_5_7() {
        let mut rtt = RttEstimator::default();
        assert_eq!(rtt.rto(), 1000 * MS);
        assert_eq!((rtt.srtt(), rtt.min_rtt()), (Duration::ZERO, Duration::ZERO));
        rtt.back_off();
        rtt.on_syn_retransmitted();
        assert_eq!(rtt.rto(), 3000 * MS);
        rtt.on_sample(100 * MS, at(1000));
        assert_eq!(rtt.rto(), 300 * MS);
    }

    #[test]
    fn the_first_sample_gives_half_of_itself_as_variance_rfc6298_2_2() {
        let mut rtt = RttEstimator::default();
        rtt.on_sample(400 * MS, at(400));
        assert_eq!((rtt.srtt(), rtt.rttvar(), rtt.rto()), (400 * MS, 200 * MS, 1200 * MS));
        assert_eq!(rtt.deviation(), 200 * MS);
    }

    #[test]
    fn later_samples_move_the_averages_by_an_eighth_and_a_quarter_rfc6298_2_3() {
        let mut rtt = RttEstimator::default();
        rtt.on_sample(400 * MS, at(400));
        rtt.on_sample(800 * MS, at(800));
        // SRTT = 7/8 * 400 + 1/8 * 800; RTTVAR = 3/4 * 200 + 1/4 * |400 - 800|
        assert_eq!((rtt.srtt(), rtt.rttvar()), (450 * MS, 250 * MS));
    }

    #[test]
    fn expiry_doubles_the_timeout_up_to_two_minutes_until_a_sample_rfc6298_5_5() {
        let mut rtt = RttEstimator::default();
        let mut seen = Vec::new();
        for _ in 0..9 {
            seen.push(rtt.rto().as_secs());
            rtt.back_off();
        }
        assert_eq!(seen, [1, 2, 4, 8, 16, 32, 64, 120, 120]);
        for _ in 0..300 {
            rtt.back_off();
        }
        assert_eq!(rtt.rto(), 120_000 * MS);
        rtt.on_sample(100 * MS, at(0));
        assert_eq!((rtt.rto(), rtt.backoff()), (300 * MS, 0));
    }

    #[test]
    fn the_timeout_keeps_its_distance_from_a_steady_round_trip_time() {
        let mut rtt = RttEstimator::default();
        for round in 1..1000 {
            rtt.on_sample(50 * MS, at(50 * round));
        }
        assert_eq!((rtt.srtt(), rtt.rto()), (50 * MS, 250 * MS));
        let mut quick = RttEstimator::new(5 * MS);
        for round in 1..1000 {
            quick.on_sample(50 * MS, at(50 * round));
        }
        assert_eq!(quick.rto(), 55 * MS);
    }

    #[test]
    fn many_samples_in_a_round_do_not_shrink_the_variance_faster_rfc7323_g() {
        let (mut dense, mut sparse) = (RttEstimator::default(), RttEstimator::default());
        for ms in 0..2000 {
            let now = at(1000 + ms);
            dense.on_sample(1000 * MS, now);
            if ms % 1000 == 0 {
                sparse.on_sample(1000 * MS, now);
            }
        }
        assert!(dense.rto() + 500 * MS >= sparse.rto(), "{dense:?} {sparse:?}");
    }

    #[test]
    fn the_least_round_trip_time_is_forgotten_after_five_minutes_rfc8985_6_2() {
        let mut rtt = RttEstimator::default();
        rtt.on_sample(10 * MS, at(0));
        rtt.on_sample(30 * MS, at(149_000));
        assert_eq!(rtt.min_rtt(), 10 * MS);
        rtt.on_sample(30 * MS, at(160_000));
        assert_eq!(rtt.min_rtt(), 10 * MS);
        rtt.on_sample(30 * MS, at(310_000));
        assert_eq!(rtt.min_rtt(), 30 * MS);
    }

    #[test]
    fn timestamps_do_not_lower_the_least_round_trip_time() {
        let mut rtt = RttEstimator::default();
        rtt.on_timestamp_sample(Duration::ZERO, at(1));
        assert_eq!((rtt.srtt(), rtt.min_rtt()), (MS, Duration::ZERO));
    }

    #[test]
    fn absurd_samples_do_not_overflow() {
        let mut rtt = RttEstimator::default();
        for sample in [Duration::MAX, Duration::ZERO, Duration::MAX, Duration::from_nanos(1)] {
            rtt.on_sample(sample, at(1));
            assert!(rtt.rto() <= 120_000 * MS && rtt.rto() >= Duration::from_millis(200));
        }
    }
}
