//! The timers of a secondary zone (RFC 1034, 4.3.5): when to ask the primaries, and when the zone is too old to be served.
//!
//! Ask [`Secondary::poll`] at [`Secondary::deadline`]. When it says [`Due::Refresh`], ask the primaries, and say what came of it by
//! [`Secondary::on_confirmed`] or [`Secondary::on_failed`].

use clock::{Duration, Instant};
use dns_zone::Zone;

use dns_message::soa_numbers;

/// How long a zone without data waits after its first failure. The wait doubles with each, up to [`EMPTY_RETRY_MAX`].
const EMPTY_RETRY: Duration = Duration::from_secs(2);
const EMPTY_RETRY_MAX: Duration = Duration::from_secs(600);
/// No primary is asked more often, whatever its SOA says.
const INTERVAL_MIN: Duration = Duration::from_secs(1);

/// What the SOA of a zone says about its secondaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoaTimers {
    /// SERIAL.
    pub serial: u32,
    /// REFRESH: how long after a look the next one follows.
    pub refresh: Duration,
    /// RETRY: the same after a look that failed.
    pub retry: Duration,
    /// EXPIRE: how long the zone is served without a look that succeeded.
    pub expire: Duration,
}

impl SoaTimers {
    /// Those of a zone.
    pub fn of(zone: &Zone) -> SoaTimers {
        let numbers = zone.soa().records().next().and_then(soa_numbers);
        let [serial, refresh, retry, expire, _] = numbers.expect("the builder of a zone checks its SOA");
        let seconds = |number: u32| Duration::from_secs(number.into()).max(INTERVAL_MIN);
        SoaTimers { serial, refresh: seconds(refresh), retry: seconds(retry), expire: seconds(expire) }
    }

    /// How long after a look that succeeded the next one follows: REFRESH, or sooner if the zone would expire meanwhile, so that there is time for
    /// one more look after RETRY; but half of EXPIRE at least, as a long RETRY shall not have a primary asked all the time.
    fn next_look(&self) -> Duration {
        let nanos = self.expire.as_nanos();
        let in_time = nanos.saturating_sub(self.retry.as_nanos()).max(nanos / 2);
        self.refresh.min(Duration::from_nanos(in_time)).max(INTERVAL_MIN)
    }
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Ask the primaries for their version.
    Refresh,
    /// Serve the zone no more.
    Expire,
}

/// The timers of one zone.
#[derive(Debug)]
pub struct Secondary {
    held: Option<SoaTimers>,
    /// When to ask; meaningless while asking.
    next_refresh: Instant,
    /// When the primaries were asked last.
    asked: Option<Instant>,
    /// When the held version is too old.
    expires: Option<Instant>,
    is_asking: bool,
    /// When to ask again because a NOTIFY came while asking: what the primary said meanwhile may be older.
    ask_again: Option<Instant>,
    failures: u32,
}

impl Secondary {
    /// A zone without data: it asks at once.
    pub fn empty(now: Instant) -> Secondary {
        Secondary {
            held: None,
            next_refresh: now,
            asked: None,
            expires: None,
            is_asking: false,
            ask_again: None,
            failures: 0,
        }
    }

    /// A zone whose version a primary confirmed `age` before `now`, as far as is known. It asks at once.
    pub fn resumed(held: SoaTimers, age: Duration, now: Instant) -> Secondary {
        let left = Duration::from_nanos(held.expire.as_nanos().saturating_sub(age.as_nanos()));
        Secondary { held: Some(held), expires: Some(now + left), ..Secondary::empty(now) }
    }

    /// The version that is held, expired or not.
    pub fn held(&self) -> Option<SoaTimers> {
        self.held
    }

    /// When to call [`Secondary::poll`] next; `None` while all waits for an answer.
    pub fn deadline(&self) -> Option<Instant> {
        let refresh = (!self.is_asking).then_some(self.next_refresh);
        refresh.into_iter().chain(self.expires).min()
    }

    /// When the held version is too old to be served; `None` if there is none, or it has been too old already.
    pub fn expires(&self) -> Option<Instant> {
        self.expires
    }

    /// What is due at `now`; call it until it says nothing.
    pub fn poll(&mut self, now: Instant) -> Option<Due> {
        if self.expires.is_some_and(|expires| expires <= now) {
            self.expires = None;
            self.next_refresh = now; // Clients get SERVFAIL until it is transferred.
            return Some(Due::Expire);
        }
        if self.is_asking || self.next_refresh > now {
            return None;
        }
        self.is_asking = true;
        self.asked = Some(now);
        Some(Due::Refresh)
    }

    /// A primary says that the zone has changed (RFC 1996, 4.3), and it is sure that it does.
    pub fn on_notify(&mut self, now: Instant) {
        self.ask_at(now);
    }

    /// The same if anybody can have said so. It is followed no sooner than a second after the last look, so that whoever forges notices
    /// does not have the primaries asked all the time.
    pub fn on_unsigned_notify(&mut self, now: Instant) {
        self.ask_at(self.asked.map_or(now, |asked| now.max(asked + INTERVAL_MIN)));
    }

    fn ask_at(&mut self, at: Instant) {
        if self.is_asking {
            self.ask_again = Some(self.ask_again.map_or(at, |other| other.min(at)));
        } else {
            self.next_refresh = self.next_refresh.min(at);
        }
    }

    /// A primary has the version `held`, and so have we now. `jitter` is random: the next look comes up to a tenth earlier, so that zones
    /// do not ask all together.
    pub fn on_confirmed(&mut self, held: SoaTimers, jitter: u32, now: Instant) {
        self.held = Some(held);
        self.expires = Some(now + held.expire);
        self.failures = 0;
        self.ask_after(held.next_look(), jitter, now);
    }

    /// No primary gave an answer that can be used.
    pub fn on_failed(&mut self, jitter: u32, now: Instant) {
        let doubled = EMPTY_RETRY * (1 << self.failures.min(10));
        let wait = self.held.map_or(doubled.min(EMPTY_RETRY_MAX), |held| held.retry);
        self.failures = self.failures.saturating_add(1);
        self.ask_after(wait, jitter, now);
    }

    fn ask_after(&mut self, wait: Duration, jitter: u32, now: Instant) {
        let earlier = wait.as_nanos() / 10 * u64::from(jitter % 1024) / 1024;
        let wait = Duration::from_nanos(wait.as_nanos() - earlier);
        self.is_asking = false;
        self.next_refresh = self.ask_again.take().map_or(now + wait, |at| at.max(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    fn at(count: u64) -> Instant {
        Instant::ZERO + seconds(count)
    }

    fn timers(serial: u32) -> SoaTimers {
        SoaTimers { serial, refresh: seconds(100), retry: seconds(10), expire: seconds(1000) }
    }

    /// One that was confirmed at 0.
    fn confirmed() -> Secondary {
        let mut zone = Secondary::empty(at(0));
        assert_eq!(zone.poll(at(0)), Some(Due::Refresh));
        zone.on_confirmed(timers(1), 0, at(0));
        zone
    }

    #[test]
    fn a_zone_without_data_asks_at_once_and_then_less_and_less_often() {
        let mut zone = Secondary::empty(at(5));
        let mut waits = Vec::new();
        for _ in 0..12 {
            let now = zone.deadline().unwrap();
            assert_eq!((zone.poll(now), zone.poll(now)), (Some(Due::Refresh), None));
            assert_eq!(zone.deadline(), None);
            zone.on_failed(0, now);
            waits.push((zone.deadline().unwrap() - now).as_nanos() / 1_000_000_000);
        }
        assert_eq!(waits, [2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600, 600]);
    }

    #[test]
    fn a_zone_asks_after_refresh_and_after_a_failure_after_retry() {
        let mut zone = confirmed();
        assert_eq!((zone.deadline(), zone.poll(at(99))), (Some(at(100)), None));
        assert_eq!(zone.poll(at(100)), Some(Due::Refresh));
        zone.on_failed(0, at(101));
        assert_eq!(zone.deadline(), Some(at(111)));
    }

    #[test]
    fn a_zone_expires_once_and_goes_on_asking() {
        let mut zone = confirmed();
        for now in (100..1000).step_by(10) {
            assert_eq!(zone.poll(at(now)), Some(Due::Refresh));
            zone.on_failed(0, at(now));
        }
        assert_eq!(zone.poll(at(1000)), Some(Due::Expire));
        assert_eq!((zone.poll(at(1000)), zone.poll(at(1000))), (Some(Due::Refresh), None));
        zone.on_confirmed(timers(2), 0, at(1001));
        assert_eq!((zone.deadline(), zone.held().unwrap().serial), (Some(at(1101)), 2));
    }

    #[test]
    fn a_zone_expires_while_it_waits_for_an_answer() {
        let mut zone = confirmed();
        zone.poll(at(100));
        assert_eq!((zone.deadline(), zone.poll(at(1000))), (Some(at(1000)), Some(Due::Expire)));
    }

    #[test]
    fn a_zone_whose_refresh_is_beyond_its_expire_is_looked_at_before_it_expires() {
        let first_look = |refresh, retry, expire| {
            let mut zone = Secondary::empty(at(0));
            zone.poll(at(0));
            let [refresh, retry, expire] = [refresh, retry, expire].map(seconds);
            zone.on_confirmed(SoaTimers { serial: 1, refresh, retry, expire }, 0, at(0));
            zone.deadline().unwrap() - at(0)
        };
        assert_eq!(first_look(86_400, 10, 100), seconds(90), "RETRY before it expires");
        assert_eq!(first_look(95, 10, 100), seconds(90), "the same");
        assert_eq!(first_look(86_400, 99, 100), seconds(50), "half of EXPIRE");
        assert_eq!(first_look(86_400, 86_400, 100), seconds(50), "the same");
        assert_eq!(
            first_look(86_400, 86_400, 1),
            seconds(1),
            "nobody is asked more often than once a second"
        );
        assert_eq!(first_look(80, 10, 100), seconds(80), "REFRESH leaves time for RETRY");
    }

    #[test]
    fn a_zone_asks_when_it_expires_however_long_its_retry_is() {
        let held =
            SoaTimers { serial: 1, refresh: seconds(100), retry: seconds(86_400), expire: seconds(1000) };
        let mut zone = Secondary::empty(at(0));
        zone.poll(at(0));
        zone.on_confirmed(held, 0, at(0));
        assert_eq!(zone.poll(at(100)), Some(Due::Refresh));
        zone.on_failed(0, at(100));
        assert_eq!((zone.poll(at(999)), zone.deadline()), (None, Some(at(1000))));
        assert_eq!((zone.poll(at(1000)), zone.poll(at(1000))), (Some(Due::Expire), Some(Due::Refresh)));
        zone.on_failed(0, at(1001));
        assert_eq!(zone.deadline(), Some(at(87_401)), "RETRY counts again");
    }

    #[test]
    fn a_zone_that_was_kept_over_a_restart_goes_on_ageing() {
        let zone = |age| Secondary::resumed(timers(1), seconds(age), at(10));
        assert_eq!(zone(400).expires, Some(at(610)));
        assert_eq!(zone(5000).poll(at(10)), Some(Due::Expire));
        assert_eq!(zone(400).poll(at(10)), Some(Due::Refresh));
    }

    #[test]
    fn a_notice_is_followed_at_once_and_one_that_comes_while_asking_afterwards() {
        let mut zone = confirmed();
        zone.on_notify(at(3));
        assert_eq!(zone.poll(at(3)), Some(Due::Refresh));
        zone.on_notify(at(4));
        assert_eq!(zone.poll(at(4)), None);
        zone.on_confirmed(timers(2), 0, at(5));
        assert_eq!(zone.poll(at(5)), Some(Due::Refresh));
        zone.on_confirmed(timers(2), 0, at(6));
        assert_eq!(zone.deadline(), Some(at(106)));
    }

    #[test]
    fn notices_that_anybody_can_send_have_the_primaries_asked_once_a_second_and_the_last_one_is_never_lost() {
        let (mut zone, mut now, mut looks) = (confirmed(), at(10), Vec::new());
        let millisecond = Duration::from_nanos(1_000_000);
        while now < at(13) {
            zone.on_unsigned_notify(now);
            if zone.poll(now).is_some() {
                looks.push(now);
                zone.on_unsigned_notify(now); // While it is being asked, too.
                zone.on_confirmed(timers(1), 0, now);
            }
            now += millisecond;
        }
        assert_eq!(looks, [10, 11, 12].map(at));
        assert_eq!(zone.deadline(), Some(at(13)), "the last one waits");
        assert_eq!(zone.poll(at(13)), Some(Due::Refresh));
        zone.on_unsigned_notify(at(15));
        zone.on_failed(0, at(16));
        assert_eq!(zone.deadline(), Some(at(16)), "a look that took long puts it off no further");
    }

    #[test]
    fn a_signed_notice_does_not_wait_for_one_that_anybody_can_send() {
        let mut zone = confirmed();
        zone.on_notify(at(3));
        zone.poll(at(3));
        zone.on_unsigned_notify(at(3));
        zone.on_notify(at(3));
        zone.on_unsigned_notify(at(3));
        zone.on_confirmed(timers(1), 0, at(3));
        assert_eq!(zone.poll(at(3)), Some(Due::Refresh));
        zone.on_confirmed(timers(1), 0, at(3));
        zone.on_unsigned_notify(at(3));
        assert_eq!(zone.deadline(), Some(at(4)));
        zone.on_notify(at(3));
        assert_eq!(zone.poll(at(3)), Some(Due::Refresh));
    }

    #[test]
    fn jitter_makes_a_look_up_to_a_tenth_earlier() {
        for jitter in [0, 1, 1023, u32::MAX] {
            let mut zone = confirmed();
            zone.poll(at(100));
            zone.on_confirmed(timers(1), jitter, at(100));
            let wait = zone.deadline().unwrap() - at(100);
            assert!(wait > seconds(90) && wait <= seconds(100), "{jitter}: {wait:?}");
        }
    }
}
