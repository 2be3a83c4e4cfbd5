//! Delivery rate samples (draft-cheng-iccrg-delivery-rate-estimation, as Linux has them).

use clock::{Duration, Instant};

use super::segment::Segment;
use crate::congestion::RateSample;

/// What a connection had delivered so far; kept while nothing is in flight.
#[derive(Debug, Default)]
pub(super) struct Delivered {
    /// Octets.
    total: u64,
    /// When `total` last grew.
    at: Instant,
    /// While `total` is not beyond this, samples are limited by the application; zero if they are not.
    app_limited_until: u64,
}

/// The state of [`Delivered`] when a segment was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Snapshot {
    delivered_at: Instant,
    /// The low half of the total: less than 2^32 octets are delivered while a segment is in flight.
    delivered: u32,
    /// Time over which the flight up to this segment was sent, in microseconds; the highest bit says app-limited.
    send_elapsed: u32,
}

const APP_LIMITED: u32 = 1 << 31;

/// Picks the newest of the segments that one acknowledgement delivered.
#[derive(Debug, Default)]
pub(super) struct RateSampler {
    newest: Option<(Snapshot, Instant)>,
}

impl Delivered {
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Adds `octets`. Ends an app-limited phase whose last octets these are.
    pub(super) fn add(&mut self, octets: u32, now: Instant) {
        if octets == 0 {
            return;
        }
        self.total += u64::from(octets);
        self.at = now;
        if self.total > self.app_limited_until {
            self.app_limited_until = 0;
        }
    }

    /// Samples of what is sent from now on are limited by the application, until what is in flight now is delivered.
    pub(super) fn mark_app_limited(&mut self, in_flight: u32) {
        self.app_limited_until = (self.total + u64::from(in_flight)).max(1);
    }

    /// A flight begins at `now`: time without data in flight does not count.
    pub(super) fn restart(&mut self, now: Instant) {
        self.at = now;
    }

    /// What a segment sent at `now` remembers; `flight_start` is when the first of the segments sampled last was sent.
    pub(super) fn snapshot(&self, flight_start: Instant, now: Instant) -> Snapshot {
        let micros = now.since(flight_start).as_micros().min(u64::from(APP_LIMITED - 1)) as u32;
        let limited = if self.app_limited_until > 0 { APP_LIMITED } else { 0 };
        Snapshot { delivered_at: self.at, delivered: self.total as u32, send_elapsed: micros | limited }
    }

    /// The sample of an acknowledgement whose newest delivered segment has `snapshot`. None if it spans less than a round
    /// trip, as after a spurious retransmission.
    fn sample(&self, snapshot: Snapshot, min_rtt: Duration) -> Option<RateSample> {
        let delivered = u64::from((self.total as u32).wrapping_sub(snapshot.delivered));
        let sending = Duration::from_micros(u64::from(snapshot.send_elapsed & !APP_LIMITED));
        let interval = sending.max(self.at.since(snapshot.delivered_at));
        (interval >= min_rtt && !interval.is_zero()).then_some(RateSample {
            delivered,
            interval,
            prior_delivered: self.total - delivered,
            app_limited: snapshot.send_elapsed & APP_LIMITED != 0,
        })
    }
}

impl RateSampler {
    /// Looks at a segment that is newly delivered.
    pub(super) fn see(&mut self, segment: &Segment) {
        let is_newer = self.newest.is_none_or(|(snapshot, sent_at)| {
            let ahead = segment.snapshot.delivered.wrapping_sub(snapshot.delivered) as i32;
            ahead > 0 || (ahead == 0 && segment.sent_at > sent_at)
        });
        if is_newer {
            self.newest = Some((segment.snapshot, segment.sent_at));
        }
    }

    /// The sample, once all that the acknowledgement delivered is added to `delivered`. `flight_start` moves on.
    pub(super) fn finish(
        self,
        delivered: &Delivered,
        min_rtt: Duration,
        flight_start: &mut Instant,
    ) -> Option<RateSample> {
        let (snapshot, sent_at) = self.newest?;
        *flight_start = sent_at;
        delivered.sample(snapshot, min_rtt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn the_rate_is_what_was_delivered_over_the_longer_of_sending_and_acknowledging() {
        let mut delivered = Delivered::default();
        delivered.add(5000, at(0));
        let early = delivered.snapshot(at(0), at(0));
        let late = delivered.snapshot(at(0), at(80));
        delivered.add(3000, at(50));
        let sample = delivered.sample(early, Duration::ZERO).unwrap();
        assert_eq!((sample.delivered, sample.prior_delivered), (3000, 5000));
        assert_eq!((sample.interval, sample.app_limited), (Duration::from_millis(50), false));
        assert_eq!(delivered.sample(late, Duration::ZERO).unwrap().interval, Duration::from_millis(80));
        assert_eq!(delivered.sample(early, Duration::from_millis(51)), None);
    }

    #[test]
    fn app_limited_ends_when_what_was_in_flight_is_delivered() {
        let mut delivered = Delivered::default();
        delivered.mark_app_limited(2000);
        let is_limited = |d: &Delivered| d.snapshot(at(0), at(0)).send_elapsed & APP_LIMITED != 0;
        delivered.add(2000, at(1));
        assert!(is_limited(&delivered));
        delivered.add(1, at(2));
        assert!(!is_limited(&delivered));
    }
}
