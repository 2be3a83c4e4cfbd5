//! How much one client, and one network of clients, may ask for.

use std::hash::Hasher;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use clock::{Duration, Instant};
use siphasher::sip::SipHasher13;

/// Answers a second, and how many may come at once after a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Answers a second.
    pub per_second: u32,
    /// Answers at once.
    pub burst: u32,
}

/// Bits of an address that make its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefixes {
    /// Of IPv4, up to 32.
    pub v4: u8,
    /// Of IPv6, up to 128.
    pub v6: u8,
}

/// What a [`RateLimiter`] allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateOptions {
    /// For one address; `None` for any number.
    pub per_address: Option<Rate>,
    /// For one network together; `None` for any number.
    pub per_prefix: Option<Rate>,
    /// What a network is.
    pub prefixes: Prefixes,
    /// One in so many questions beyond a limit is truncated instead of dropped, so that a client whose address others forge gets its answer
    /// over TCP. 1 truncates all, 0 none.
    pub slip: u32,
    /// Buckets that are kept, 24 octets each.
    pub buckets: usize,
}

impl Default for RateOptions {
    /// No limits. The smallest networks that are given to one customer (/24 stands for a neighbourhood); every second truncated, as others do;
    /// 1.5 MiB.
    fn default() -> RateOptions {
        RateOptions {
            per_address: None,
            per_prefix: None,
            prefixes: Prefixes { v4: 24, v6: 56 },
            slip: 2,
            buckets: 1 << 16,
        }
    }
}

/// What happens to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is answered.
    Pass,
    /// It is beyond a limit, and the turn of a truncated answer.
    Slip,
    /// It is beyond a limit.
    Drop,
}

/// What happens to questions beyond a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Beyond {
    /// Some are truncated, the others dropped.
    #[default]
    Slip,
    /// They are refused.
    Refuse,
    /// They are dropped.
    Drop,
}

/// A bucket. One that is full stands for a client that nothing is known about.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// Keyed hash of what it is for; 0 for nothing.
    hash: u64,
    filled: Instant,
    /// Thousandths of an answer.
    tokens: u32,
}

/// Buckets that one hash may lie in.
const WAYS: usize = 8;

/// Token buckets for addresses and networks, in a table whose size never changes. Where it is full, the fullest bucket gives way: a flood from
/// many forged addresses forgets those who asked least, and not those who are held back.
#[derive(Clone, Debug)]
pub struct RateLimiter {
    options: RateOptions,
    key: (u64, u64),
    buckets: Box<[[Bucket; WAYS]]>,
    beyond: u64,
}

impl RateLimiter {
    /// One that knows nobody yet. Nobody else knows `key`, so nobody can choose addresses whose buckets collide.
    #[must_use]
    pub fn new(options: RateOptions, key: [u8; 16]) -> RateLimiter {
        let key = u128::from_le_bytes(key);
        let is_needed = options.per_address.is_some() || options.per_prefix.is_some();
        let sets = if is_needed { options.buckets.div_ceil(WAYS).max(1) } else { 0 };
        let empty = Bucket { hash: 0, filled: Instant::ZERO, tokens: 0 };
        RateLimiter {
            options,
            key: (key as u64, (key >> 64) as u64),
            buckets: vec![[empty; WAYS]; sets].into(),
            beyond: 0,
        }
    }

    /// What it allows.
    #[must_use]
    pub fn options(&self) -> &RateOptions {
        &self.options
    }

    /// Counts a question of `client`. `kind` tells apart what is counted by itself: 0 for all alike, or a hash of the answer's name and
    /// type where answers are limited. Who `is_verified`, by a connection or a cookie, pays by the address only: nobody else can
    /// have used it, and the neighbours' floods are not the client's.
    pub fn take(&mut self, client: IpAddr, is_verified: bool, kind: u64, now: Instant) -> Verdict {
        let client = client.to_canonical();
        let network = self.options.prefixes.network_of(client);
        let per_prefix = self.options.per_prefix.filter(|_| !is_verified);
        let limits = [(self.options.per_address, client, 0), (per_prefix, network, 1)];
        let mut charged = [None; 2];
        for ((limit, address, scope), charge) in limits.into_iter().zip(&mut charged) {
            let Some(rate) = limit else { continue };
            let place = self.find(self.hash(address, scope, kind), rate, now);
            if self.bucket(place).tokens < 1000 {
                return self.beyond();
            }
            *charge = Some(place);
        }
        charged.into_iter().flatten().for_each(|place| self.bucket(place).tokens -= 1000);
        Verdict::Pass
    }

    fn beyond(&mut self) -> Verdict {
        self.beyond = self.beyond.wrapping_add(1);
        let slip = u64::from(self.options.slip);
        if slip > 0 && self.beyond.is_multiple_of(slip) { Verdict::Slip } else { Verdict::Drop }
    }

    fn hash(&self, address: IpAddr, scope: u8, kind: u64) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.key.0, self.key.1);
        hasher.write_u8(scope);
        hasher.write_u64(kind);
        match address {
            IpAddr::V4(address) => hasher.write(&address.octets()),
            IpAddr::V6(address) => hasher.write(&address.octets()),
        }
        hasher.finish().max(1)
    }

    fn bucket(&mut self, (set, way): (usize, usize)) -> &mut Bucket {
        &mut self.buckets[set][way]
    }

    /// Where the bucket for `hash` is, filled up to `now`; a new one is full, and takes the place of the fullest of its set.
    fn find(&mut self, hash: u64, rate: Rate, now: Instant) -> (usize, usize) {
        let set = (hash % self.buckets.len() as u64) as usize;
        let buckets = &mut self.buckets[set];
        if let Some(way) = buckets.iter().position(|bucket| bucket.hash == hash) {
            buckets[way].fill(rate, now);
            return (set, way);
        }
        let filled = |bucket: &Bucket| if bucket.hash == 0 { u64::MAX } else { bucket.tokens_at(rate, now) };
        let way = (0..WAYS).max_by_key(|way| filled(&buckets[*way])).unwrap_or(0);
        buckets[way] = Bucket { hash, filled: now, tokens: rate.burst.max(1).saturating_mul(1000) };
        (set, way)
    }
}

impl Bucket {
    fn tokens_at(&self, rate: Rate, now: Instant) -> u64 {
        let micros = now.since(self.filled).as_micros().min(MINUTE.as_micros());
        u64::from(self.tokens) + micros * u64::from(rate.per_second) / 1000
    }

    fn fill(&mut self, rate: Rate, now: Instant) {
        let tokens = self.tokens_at(rate, now);
        // What came in since is less than a thousandth: it is not lost.
        if tokens == u64::from(self.tokens) && now.since(self.filled) < MINUTE {
            return;
        }
        let room = u64::from(rate.burst.max(1).saturating_mul(1000));
        (self.tokens, self.filled) = (tokens.min(room) as u32, now);
    }
}

/// After which a bucket counts as if it had been left alone for just as long.
const MINUTE: Duration = Duration::from_secs(60);

impl Prefixes {
    /// The first address of the network that an address lies in.
    #[must_use]
    pub fn network_of(self, address: IpAddr) -> IpAddr {
        match address {
            IpAddr::V4(address) => {
                let host = u32::MAX.checked_shr(self.v4.into()).unwrap_or(0);
                Ipv4Addr::from_bits(address.to_bits() & !host).into()
            }
            IpAddr::V6(address) => {
                let host = u128::MAX.checked_shr(self.v6.into()).unwrap_or(0);
                Ipv6Addr::from_bits(address.to_bits() & !host).into()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn limiter(per_address: u32, per_prefix: u32) -> RateLimiter {
        let rate = |per_second| (per_second > 0).then_some(Rate { per_second, burst: per_second });
        let (per_address, per_prefix) = (rate(per_address), rate(per_prefix));
        RateLimiter::new(RateOptions { per_address, per_prefix, ..RateOptions::default() }, [7; 16])
    }

    fn passed(
        limiter: &mut RateLimiter,
        client: &str,
        is_verified: bool,
        count: usize,
        now: Instant,
    ) -> usize {
        let client: IpAddr = client.parse().unwrap();
        (0..count).filter(|_| limiter.take(client, is_verified, 0, now) == Verdict::Pass).count()
    }

    #[test]
    fn without_limits_everything_passes() {
        assert_eq!(passed(&mut limiter(0, 0), "192.0.2.1", false, 1000, at(0)), 1000);
    }

    #[test]
    fn an_address_gets_its_burst_and_then_its_rate() {
        let mut limiter = limiter(10, 0);
        assert_eq!(passed(&mut limiter, "192.0.2.1", false, 100, at(1)), 10);
        assert_eq!(passed(&mut limiter, "192.0.2.2", false, 100, at(1)), 10, "the other one's are its own");
        let each_millisecond: usize =
            (2..=2001).map(|ms| passed(&mut limiter, "192.0.2.1", false, 1, at(ms))).sum();
        assert_eq!(each_millisecond, 20);
        assert_eq!(passed(&mut limiter, "192.0.2.1", false, 100, at(3_600_000)), 10, "no more are saved");
    }

    #[test]
    fn a_network_shares_its_rate() {
        let mut limiter = limiter(0, 10);
        let count = |limiter: &mut RateLimiter, client: &str| passed(limiter, client, false, 6, at(1));
        assert_eq!([count(&mut limiter, "192.0.2.1"), count(&mut limiter, "192.0.2.255")], [6, 4]);
        assert_eq!(count(&mut limiter, "192.0.3.1"), 6);
        assert_eq!([count(&mut limiter, "2001:db8::1"), count(&mut limiter, "2001:db8:0:ff::1")], [6, 4]);
        assert_eq!(count(&mut limiter, "2001:db8:0:100::1"), 6);
    }

    #[test]
    fn who_is_verified_does_not_pay_for_the_neighbours() {
        let mut limiter = limiter(5, 10);
        assert_eq!(passed(&mut limiter, "192.0.2.1", false, 20, at(1)), 5);
        assert_eq!(passed(&mut limiter, "192.0.2.2", false, 20, at(1)), 5);
        assert_eq!(passed(&mut limiter, "192.0.2.3", false, 20, at(1)), 0);
        assert_eq!(passed(&mut limiter, "192.0.2.3", true, 20, at(1)), 5);
    }

    #[test]
    fn what_is_beyond_is_truncated_now_and_then() {
        let client = IpAddr::from([192, 0, 2, 1]);
        let beyond = |slip| {
            let options = RateOptions { slip, ..limiter(1, 0).options };
            let mut limiter = RateLimiter::new(options, [7; 16]);
            (0..5).map(|_| limiter.take(client, false, 0, at(1))).collect::<Vec<_>>()
        };
        use Verdict::{Drop, Pass, Slip};
        assert_eq!(beyond(2), [Pass, Drop, Slip, Drop, Slip]);
        assert_eq!(beyond(1), [Pass, Slip, Slip, Slip, Slip]);
        assert_eq!(beyond(0), [Pass, Drop, Drop, Drop, Drop]);
    }

    #[test]
    fn a_flood_of_forged_addresses_frees_nobody_who_is_held_back() {
        let options = RateOptions { buckets: 64, ..limiter(100, 0).options };
        let mut limiter = RateLimiter::new(options, [7; 16]);
        assert_eq!(passed(&mut limiter, "192.0.2.1", false, 1000, at(1)), 100);
        for number in 0..100_000 {
            let forged = IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + number));
            assert_eq!(limiter.take(forged, false, 0, at(1)), Verdict::Pass);
        }
        assert_eq!(passed(&mut limiter, "192.0.2.1", false, 1000, at(1)), 0);
        assert_eq!(limiter.buckets.len() * WAYS, 64);
    }

    #[test]
    fn kinds_are_counted_apart() {
        let mut limiter = limiter(1, 0);
        let client = IpAddr::from([192, 0, 2, 1]);
        let verdicts = [0, 1, 0, 1].map(|kind| limiter.take(client, false, kind, at(1)));
        assert_eq!(verdicts, [Verdict::Pass, Verdict::Pass, Verdict::Drop, Verdict::Slip]);
    }
}
