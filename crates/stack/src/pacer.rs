//! Pacing: when the next burst may leave.
//!
//! A burst is about a millisecond of data and at least two segments, as Linux sizes its segmentation bursts, so that
//! a timer fires once a burst and not once a packet:
//!
//! ```text
//!   ■■■■ burst            ■■■■                  ■■■■
//!   ├──── octets / rate ──┼──── octets / rate ──┤         time ▶
//! ```

use clock::{Duration, Instant};

const NANOS_PER_SECOND: u64 = 1_000_000_000;
/// Bursts a second.
const BURSTS_PER_SECOND: u64 = 1_000;
/// Octets that a burst has at most, however high the rate.
const BURST_MAX: u32 = 65_536;

/// The ledger of one connection's departures.
///
/// Before sending, ask [`may_send`](Pacer::may_send), and wait until [`earliest_departure`](Pacer::earliest_departure)
/// if it says no; report each transmission to [`on_sent`](Pacer::on_sent).
#[derive(Clone, Copy, Debug)]
pub struct Pacer {
    /// When all that was sent will have left at the rate that it was sent at.
    next_departure: Instant,
    /// Octets that the running burst may still send at once.
    burst_left: u32,
    mss: u32,
}

impl Pacer {
    /// A pacer that lets the first burst go at once; `mss` is in octets.
    pub fn new(mss: u32) -> Pacer {
        Pacer { next_departure: Instant::ZERO, burst_left: 0, mss }
    }

    /// Whether a segment may leave at `now`.
    pub fn may_send(&self, now: Instant) -> bool {
        self.burst_left > 0 || now >= self.next_departure
    }

    /// When the next segment may leave: `now`, or the end of the gap after the last burst.
    pub fn earliest_departure(&self, now: Instant) -> Instant {
        if self.may_send(now) { now } else { self.next_departure }
    }

    /// Octets that may leave at once at `rate`, once [`Pacer::may_send`].
    pub fn burst(&self, rate: Option<u64>) -> u32 {
        match rate.filter(|rate| *rate > 0) {
            None => u32::MAX,
            Some(_) if self.burst_left > 0 => self.burst_left,
            Some(rate) => burst_quantum(rate, self.mss),
        }
    }

    /// Nothing leaves before `at`.
    pub fn hold_until(&mut self, at: Instant) {
        self.next_departure = self.next_departure.max(at);
        self.burst_left = 0;
    }

    /// Notes that a segment of `octets` left at `now` while `rate` held, in octets a second; `None` or 0 is unpaced.
    ///
    /// A burst that starts late gets back half of its own time at most, so that late timers cost no throughput and
    /// silence earns no large burst. The caller has asked `may_send`; a segment that left without is counted all the same.
    pub fn on_sent(&mut self, octets: u32, now: Instant, rate: Option<u64>) {
        let Some(rate) = rate.filter(|rate| *rate > 0) else {
            self.next_departure = now;
            self.burst_left = 0;
            return;
        };
        let quantum = burst_quantum(rate, self.mss);
        let credit = (time_to_send(quantum, rate) / 2).as_nanos();
        let earliest = Instant::from_nanos(now.as_nanos().saturating_sub(credit));
        self.next_departure = self.next_departure.max(earliest);
        if self.burst_left == 0 {
            self.burst_left = quantum;
        }
        self.burst_left = self.burst_left.saturating_sub(octets);
        self.next_departure += time_to_send(octets, rate);
    }

    /// The segment size changed.
    pub fn set_mss(&mut self, mss: u32) {
        self.mss = mss;
    }
}

/// Octets sent at once at `rate` octets a second: a millisecond's worth, at least two segments, at most 64 KiB.
pub fn burst_quantum(rate: u64, mss: u32) -> u32 {
    let millisecond = u32::try_from(rate / BURSTS_PER_SECOND).unwrap_or(u32::MAX);
    millisecond.min(BURST_MAX).max(mss.saturating_mul(2))
}

/// Rate in octets a second at which a controller without a rate of its own is paced, as Linux does: twice the window
/// each round trip while the window is under half of `ssthresh`, so that slow start can double it, then 1.2 times.
///
/// `None` while `srtt` is unknown.
pub fn window_rate(cwnd: u32, ssthresh: u32, srtt: Duration) -> Option<u64> {
    let percent = if cwnd < ssthresh / 2 { 200 } else { 120 };
    let octets = u128::from(cwnd) * u128::from(NANOS_PER_SECOND) * percent / 100;
    let rate = octets.checked_div(srtt.as_nanos().into())?;
    Some(u64::try_from(rate).unwrap_or(u64::MAX).max(1))
}

fn time_to_send(octets: u32, rate: u64) -> Duration {
    Duration::from_nanos(u64::from(octets) * NANOS_PER_SECOND / rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1_000;
    const START: Instant = Instant::from_nanos(NANOS_PER_SECOND);

    /// Sends for `span` whenever the pacer lets it; returns octets sent and how often it had to wait.
    fn send_for(span: Duration, rate: u64, timer_lateness: Duration) -> (u64, u32) {
        let mut pacer = Pacer::new(MSS);
        let (mut now, mut sent, mut waits) = (START, 0, 0);
        while now < START + span {
            if pacer.may_send(now) {
                pacer.on_sent(MSS, now, Some(rate));
                sent += u64::from(MSS);
            } else {
                now = pacer.earliest_departure(now) + timer_lateness;
                waits += 1;
            }
        }
        (sent, waits)
    }

    #[test]
    fn the_ledger_is_small() {
        assert!(size_of::<Pacer>() <= 24);
    }

    #[test]
    fn a_second_carries_what_the_rate_says() {
        for rate in [50_000, 1_000_000, 123_456_789] {
            let (sent, _) = send_for(Duration::from_secs(1), rate, Duration::ZERO);
            let burst = u64::from(burst_quantum(rate, MSS) + MSS);
            assert!(sent.abs_diff(rate) <= 2 * burst, "{sent} octets at {rate}");
        }
    }

    #[test]
    fn timers_fire_once_a_millisecond_at_most() {
        let (_, waits) = send_for(Duration::from_secs(1), 10_000_000, Duration::ZERO);
        assert!((900..=1_001).contains(&waits), "{waits} waits");
    }

    #[test]
    fn late_timers_cost_no_throughput() {
        let (sent, _) = send_for(Duration::from_secs(1), 10_000_000, Duration::from_micros(300));
        assert!(sent > 9_900_000, "{sent} octets");
    }

    #[test]
    fn silence_earns_half_a_burst() {
        let mut pacer = Pacer::new(MSS);
        let later = START + Duration::from_secs(60);
        pacer.on_sent(MSS, START, Some(1_000_000));
        let mut sent = 0;
        while pacer.may_send(later) {
            pacer.on_sent(MSS, later, Some(1_000_000));
            sent += MSS;
        }
        assert_eq!(sent, 3 * MSS);
        assert_eq!(pacer.earliest_departure(later), later + Duration::from_millis(2));
    }

    #[test]
    fn without_a_rate_everything_may_go() {
        let mut pacer = Pacer::new(MSS);
        for rate in [None, Some(0)] {
            pacer.on_sent(u32::MAX, START, rate);
            assert!(pacer.may_send(START));
        }
    }

    #[test]
    fn no_rate_and_no_size_overflows() {
        let mut pacer = Pacer::new(u32::MAX);
        for rate in [1, u64::MAX] {
            pacer.on_sent(u32::MAX, Instant::from_nanos(u64::MAX), Some(rate));
            pacer.on_sent(u32::MAX, Instant::ZERO, Some(rate));
        }
    }

    #[test]
    fn a_window_is_paced_at_twice_its_rate_in_slow_start_and_at_six_fifths_after() {
        let srtt = Duration::from_millis(100);
        assert_eq!(window_rate(10_000, u32::MAX, srtt), Some(200_000));
        assert_eq!(window_rate(10_000, 20_002, srtt), Some(200_000));
        assert_eq!(window_rate(10_000, 20_000, srtt), Some(120_000));
        assert_eq!(window_rate(10_000, 20_000, Duration::ZERO), None);
        assert_eq!(
            window_rate(u32::MAX, u32::MAX, Duration::from_nanos(1)),
            Some(5_153_960_754 * NANOS_PER_SECOND)
        );
    }
}
