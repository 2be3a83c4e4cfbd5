//! What happens to a question before it is resolved: who may ask, cookies, rates.

use std::net::IpAddr;

use clock::{Duration, Instant};
use dns_front::Via;
use dns_guard::{Beyond, COOKIE, Networks, RateLimiter, RateOptions, Secret, ServerCookies};
use dns_resolver::{Random, Refusal, Subnet, Terms, Transport};
use dns_wire::{Edns, Query};

/// How clients are treated. All of it can change while the resolver runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FrontConfig {
    pub(super) access: Networks,
    /// Whether clients get cookies.
    pub(super) cookies: bool,
    /// Secrets that other resolvers share; the first one makes cookies. None: one of our own, which changes daily.
    pub(super) secrets: Vec<Secret>,
    /// Clients that send a cookie over UDP have to send a valid one.
    pub(super) require_cookie: bool,
    pub(super) rate: RateOptions,
    pub(super) beyond: Beyond,
    /// Clients without limits of rate.
    pub(super) exempt: Networks,
    /// How long connections may be idle: over TCP, and over TLS.
    pub(super) keepalive: [Duration; 2],
    /// How many bits of IPv4 and IPv6 addresses servers may learn (RFC 7871); none are told without it.
    pub(super) subnet_bits: Option<[u8; 2]>,
}

/// The way that a question came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Udp,
    Tcp,
    Encrypted(Via),
}

impl Way {
    /// Answers that nobody may read are padded, so that their length tells little (RFC 8467, 4.1).
    pub(super) fn terms(self) -> Terms {
        const BLOCK: u16 = 468;
        match self {
            Way::Udp => Transport::Udp.into(),
            Way::Tcp => Transport::Tcp.into(),
            Way::Encrypted(_) => Terms { block: BLOCK, ..Transport::Tcp.into() },
        }
    }

    /// Whether the client may be told how long its connection lasts. HTTP and QUIC have words of their own for that (RFC 9250, 5.5.2).
    fn has_keepalive(self) -> bool {
        matches!(self, Way::Tcp | Way::Encrypted(Via::Tls))
    }
}

/// What happens to a question.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Ask(Terms),
    Refuse(Terms, Refusal),
    Drop,
}

impl Verdict {
    /// The same, with an answer of at most so many octets.
    pub(super) fn within(self, room: usize) -> Verdict {
        let bounded = |terms| Terms { limit: room, ..terms };
        match self {
            Verdict::Ask(terms) => Verdict::Ask(bounded(terms)),
            Verdict::Refuse(terms, refusal) => Verdict::Refuse(bounded(terms), refusal),
            Verdict::Drop => Verdict::Drop,
        }
    }
}

/// What was counted.
#[derive(Debug, Default)]
struct Counters {
    cookies_valid: u64,
    cookies_missing: u64,
    rate_refused: u64,
    rate_truncated: u64,
    rate_dropped: u64,
}

/// How often a secret of our own changes. The one before counts for as long again, and a cookie only for an hour.
const SECRET_LIFE: Duration = Duration::from_secs(86_400);

pub(super) struct Front {
    config: FrontConfig,
    cookies: ServerCookies,
    next_secret: Instant,
    limiter: RateLimiter,
    random: Random,
    counters: Counters,
}

impl Front {
    pub(super) fn new(config: FrontConfig, mut random: Random, now: Instant) -> Front {
        Front {
            cookies: cookies(&config, &mut random),
            next_secret: now + SECRET_LIFE,
            limiter: RateLimiter::new(config.rate, random.key()),
            random,
            counters: Counters::default(),
            config,
        }
    }

    /// Takes another configuration. What clients have used of limits that stay is remembered, and so is a secret of our own.
    pub(super) fn reconfigure(&mut self, config: FrontConfig) {
        if config.secrets != self.config.secrets {
            self.cookies = cookies(&config, &mut self.random);
        }
        if config.rate != self.config.rate {
            self.limiter = RateLimiter::new(config.rate, self.random.key());
        }
        self.config = config;
    }

    /// Time has passed.
    pub(super) fn on_time(&mut self, now: Instant) {
        if now >= self.next_secret {
            self.next_secret = now + SECRET_LIFE;
            if self.config.secrets.is_empty() {
                self.cookies.roll_over(Secret(self.random.key()));
            }
        }
    }

    pub(super) fn may_ask(&self, client: IpAddr) -> bool {
        self.config.access.contain(client)
    }

    /// Judges the question in `octets`, which may be anything.
    pub(super) fn judge(
        &mut self,
        client: IpAddr,
        way: Way,
        octets: &[u8],
        now: Instant,
        unix_secs: u64,
    ) -> Verdict {
        let mut terms = way.terms();
        if !self.may_ask(client) {
            return Verdict::Refuse(terms, Refusal::Prohibited);
        }
        let mut is_verified = way != Way::Udp;
        let query = Query::parse(octets).ok();
        let option = |code| query.as_ref().and_then(|query| query.option(octets, code));
        if let Some(data) = option(KEEPALIVE).filter(|_| way.has_keepalive()) {
            if !data.is_empty() {
                return Verdict::Refuse(terms, Refusal::Malformed); // RFC 7828, 3.2.1.
            }
            let idle = self.config.keepalive[usize::from(way != Way::Tcp)];
            push_option(&mut terms.options, KEEPALIVE, &tenths(idle).to_be_bytes());
        }
        if let Some(bits) = self.config.subnet_bits {
            let Ok(subnet) = subnet(option(Edns::CLIENT_SUBNET), client, bits, &mut terms.options) else {
                return Verdict::Refuse(terms, Refusal::Malformed);
            };
            terms.subnet = Some(subnet);
        }
        if let Some(option) = option(COOKIE).filter(|_| self.config.cookies) {
            let Ok(checked) = self.cookies.check(option, client, unix_secs as u32) else {
                return Verdict::Refuse(terms, Refusal::Malformed);
            };
            push_option(&mut terms.options, COOKIE, &checked.answer);
            let count = if checked.is_valid {
                &mut self.counters.cookies_valid
            } else {
                &mut self.counters.cookies_missing
            };
            *count += 1;
            if !checked.is_valid && !is_verified && self.config.require_cookie {
                // The answer is no longer than the question and its new cookie, so the limits do not count it.
                return Verdict::Refuse(terms, Refusal::BadCookie);
            }
            is_verified |= checked.is_valid;
        }
        if self.config.exempt.contain(client) {
            return Verdict::Ask(terms);
        }
        match self.limiter.take(client, is_verified, 0, now) {
            dns_guard::Verdict::Pass => Verdict::Ask(terms),
            verdict => self.beyond(terms, verdict == dns_guard::Verdict::Slip, is_verified),
        }
    }

    /// A truncated answer, and a refusal, are about as long as the question: they amplify nothing.
    fn beyond(&mut self, terms: Terms, is_turn: bool, is_verified: bool) -> Verdict {
        match self.config.beyond {
            Beyond::Slip if is_turn && !is_verified => {
                self.counters.rate_truncated += 1;
                Verdict::Refuse(terms, Refusal::Truncated)
            }
            Beyond::Slip if !is_verified => self.dropped(),
            Beyond::Drop => self.dropped(),
            Beyond::Slip | Beyond::Refuse => {
                self.counters.rate_refused += 1;
                Verdict::Refuse(terms, Refusal::Prohibited)
            }
        }
    }

    fn dropped(&mut self) -> Verdict {
        self.counters.rate_dropped += 1;
        Verdict::Drop
    }

    /// Name and value of each counter.
    pub(super) fn counts(&self) -> [(&'static str, u64); 5] {
        let counters = &self.counters;
        [
            ("cookies_valid", counters.cookies_valid),
            ("cookies_missing", counters.cookies_missing),
            ("rate_refused", counters.rate_refused),
            ("rate_truncated", counters.rate_truncated),
            ("rate_dropped", counters.rate_dropped),
        ]
    }
}

/// The option's code (RFC 7828, 3.1).
const KEEPALIVE: u16 = 11;

/// Where a client is, for servers: what its option says, or its address, but for the bits that nobody is to learn. Who is at an address that
/// means nothing elsewhere, or wants nobody to be told, is nowhere (RFC 7871, 7.1.2 and 11.2). The answer to an option says that it is for the network
/// that servers are told, and so for no larger one.
fn subnet(
    option: Option<&[u8]>,
    client: IpAddr,
    [v4, v6]: [u8; 2],
    answer: &mut Vec<u8>,
) -> Result<Subnet, ()> {
    let (address, length) = match option {
        Some(data) => {
            let (asked, _) = Subnet::read(data).ok_or(())?;
            let kept = asked.length().min(if asked.address().is_ipv4() { v4 } else { v6 });
            push_option(answer, Edns::CLIENT_SUBNET, &asked.write(kept));
            (asked.address(), kept)
        }
        None => {
            let client = client.to_canonical();
            (client, if client.is_ipv4() { v4 } else { v6 })
        }
    };
    let is_somewhere = length > 0 && is_global(address);
    Ok(if is_somewhere { Subnet::new(address, length) } else { Subnet::NOWHERE })
}

/// Whether an address means the same everywhere (RFC 6890).
fn is_global(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let is_shared = v4.octets()[0] == 100 && v4.octets()[1] & 0xc0 == 64; // RFC 6598.
            !(v4.is_private() || v4.is_loopback() || v4.is_link_local() || v4.is_unspecified() || is_shared)
        }
        IpAddr::V6(v6) => {
            !(v6.is_loopback() || v6.is_unspecified() || v6.is_unique_local() || v6.is_unicast_link_local())
        }
    }
}

/// A time as the option has it: tenths of a second.
fn tenths(time: Duration) -> u16 {
    u16::try_from(time.as_millis() / 100).unwrap_or(u16::MAX)
}

fn push_option(options: &mut Vec<u8>, code: u16, data: &[u8]) {
    options.extend_from_slice(&code.to_be_bytes());
    options.extend_from_slice(&(data.len() as u16).to_be_bytes()); // A few octets.
    options.extend_from_slice(data);
}

fn cookies(config: &FrontConfig, random: &mut Random) -> ServerCookies {
    match config.secrets.split_first() {
        Some((first, others)) => ServerCookies::new(*first, others.to_vec()),
        None => ServerCookies::new(Secret(random.key()), Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use dns_guard::Rate;

    use super::*;

    const NOW: u64 = 1_700_000_000;

    fn front(change: impl FnOnce(&mut FrontConfig)) -> Front {
        let rate = RateOptions {
            per_address: Some(Rate { per_second: 2, burst: 2 }),
            per_prefix: Some(Rate { per_second: 4, burst: 4 }),
            ..RateOptions::default()
        };
        let mut config = FrontConfig {
            access: Networks::new(vec!["192.0.2.0/24".parse().unwrap()]),
            cookies: true,
            secrets: Vec::new(),
            require_cookie: false,
            rate,
            beyond: Beyond::Slip,
            exempt: Networks::new(Vec::new()),
            keepalive: [Duration::from_secs(10), Duration::from_secs(20)],
            subnet_bits: None,
        };
        change(&mut config);
        Front::new(config, Random::new([7; 16]), Instant::ZERO)
    }

    /// A query for the root's A records with a COOKIE option.
    fn query(cookie: &[u8]) -> Vec<u8> {
        let mut query = b"\0\x07\x01\0\0\x01\0\0\0\0\0\x01\0\0\x01\0\x01\0\0\x29\x04\xd0\0\0\0\0".to_vec();
        query.extend_from_slice(&(cookie.len() as u16 + 4).to_be_bytes());
        query.extend_from_slice(&[0, 10]);
        query.extend_from_slice(&(cookie.len() as u16).to_be_bytes());
        query.extend_from_slice(cookie);
        query
    }

    fn ask(front: &mut Front, client: [u8; 4], way: Way, octets: &[u8]) -> Verdict {
        front.judge(client.into(), way, octets, Instant::ZERO, NOW)
    }

    fn kind(verdict: &Verdict) -> &'static str {
        match verdict {
            Verdict::Ask(_) => "ask",
            Verdict::Refuse(_, Refusal::Prohibited) => "refuse",
            Verdict::Refuse(_, Refusal::Truncated) => "truncate",
            Verdict::Refuse(_, Refusal::BadCookie) => "bad cookie",
            Verdict::Refuse(_, Refusal::Malformed) => "malformed",
            Verdict::Drop => "drop",
        }
    }

    const CLIENT: [u8; 4] = [192, 0, 2, 1];

    /// The cookie that an answer would bring.
    fn learn(front: &mut Front) -> Vec<u8> {
        match ask(front, CLIENT, Way::Tcp, &query(b"12345678")) {
            Verdict::Ask(terms) => terms.options[4..].to_vec(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_client_learns_a_cookie_that_is_asked_for_where_it_is_required() {
        let mut front = front(|config| {
            (config.require_cookie, config.rate) = (true, RateOptions::default());
        });
        let udp = |front: &mut Front, cookie: &[u8]| kind(&ask(front, CLIENT, Way::Udp, &query(cookie)));
        assert_eq!(udp(&mut front, b"12345678"), "bad cookie");
        let cookie = learn(&mut front);
        assert_eq!(udp(&mut front, &cookie), "ask");
        assert_eq!(udp(&mut front, b"1234567"), "malformed");
        let plain = &query(b"")[..17];
        assert_eq!(kind(&ask(&mut front, CLIENT, Way::Udp, plain)), "ask", "without any it is as ever");
    }

    #[test]
    fn beyond_the_limit_forgeries_are_dropped_and_the_client_gets_through_otherwise() {
        let mut front = front(|_| {});
        let cookie = learn(&mut front);
        let kinds =
            |front: &mut Front, way, octets: &[u8]| [0; 3].map(|_| kind(&ask(front, CLIENT, way, octets)));
        assert_eq!(kinds(&mut front, Way::Udp, b"?"), ["ask", "drop", "truncate"]);
        assert_eq!(kinds(&mut front, Way::Tcp, b"?"), ["refuse"; 3]);
        assert_eq!(kinds(&mut front, Way::Udp, &query(&cookie)), ["refuse"; 3]);
        let mut neighbours = (2..10).map(|host| kind(&ask(&mut front, [192, 0, 2, host], Way::Udp, b"?")));
        assert!(neighbours.any(|kind| kind != "ask"), "the network has its limit, too");
        assert_eq!(kind(&ask(&mut front, [192, 0, 2, 77], Way::Tcp, b"?")), "ask");
    }

    #[test]
    fn strangers_are_refused_and_the_exempt_have_no_limit() {
        let mut front = front(|config| config.exempt = Networks::new(vec!["192.0.2.9".parse().unwrap()]));
        assert_eq!(kind(&ask(&mut front, [198, 51, 100, 1], Way::Udp, b"?")), "refuse");
        assert!((0..100).all(|_| kind(&ask(&mut front, [192, 0, 2, 9], Way::Udp, b"?")) == "ask"));
    }

    #[test]
    fn servers_learn_no_more_bits_than_they_may_and_nothing_of_who_objects() {
        let told = |option: Option<&[u8]>, client: &str| {
            let mut answer = Vec::new();
            subnet(option, client.parse().unwrap(), [24, 56], &mut answer).map(|subnet| (subnet, answer))
        };
        let network = |text: &str, length| Subnet::new(text.parse().unwrap(), length);
        assert_eq!(told(None, "198.51.100.7"), Ok((network("198.51.100.0", 24), vec![])));
        assert_eq!(told(None, "::ffff:198.51.100.7"), Ok((network("198.51.100.0", 24), vec![])));
        assert_eq!(told(None, "2001:db8:1:2:3::4"), Ok((network("2001:db8:1::", 56), vec![])));
        for private in ["10.1.2.3", "127.0.0.1", "100.64.0.1", "192.168.1.1", "fd00::1", "fe80::1", "::1"] {
            assert_eq!(told(None, private), Ok((Subnet::NOWHERE, vec![])), "{private}");
        }
        let longer = Subnet::new("203.0.113.7".parse().unwrap(), 32).write(0);
        let answer = [&[0, 8, 0, 8][..], &[0, 1, 32, 24, 203, 0, 113, 7]].concat();
        assert_eq!(told(Some(&longer), "10.1.2.3"), Ok((network("203.0.113.0", 24), answer)));
        assert_eq!(
            told(Some(&[0, 1, 0, 0]), "198.51.100.7"),
            Ok((Subnet::NOWHERE, vec![0, 8, 0, 4, 0, 1, 0, 0]))
        );
        assert_eq!(told(Some(&[0, 1, 24, 0, 1]), "198.51.100.7"), Err(()));
    }

    #[test]
    fn a_secret_of_our_own_changes_daily_and_a_reload_keeps_it() {
        let mut front = front(|_| {});
        let cookie = learn(&mut front);
        let config = front.config.clone();
        front.reconfigure(config);
        front.on_time(Instant::ZERO + SECRET_LIFE);
        assert!(front.cookies.check(&cookie, CLIENT.into(), NOW as u32).unwrap().is_valid);
        front.on_time(Instant::ZERO + SECRET_LIFE + SECRET_LIFE);
        assert!(!front.cookies.check(&cookie, CLIENT.into(), NOW as u32).unwrap().is_valid);
    }

    #[test]
    fn a_connection_is_told_how_long_it_may_be_idle_and_padded_if_it_is_secret() {
        let mut front = front(|_| {});
        let asking = |data: &[u8]| {
            let mut query =
                b"\0\x07\x01\0\0\x01\0\0\0\0\0\x01\0\0\x01\0\x01\0\0\x29\x04\xd0\0\0\0\0\0".to_vec();
            query.extend_from_slice(&[data.len() as u8 + 4, 0, 11, 0, data.len() as u8]);
            [&query[..], data].concat()
        };
        let mut terms = |way| match ask(&mut front, CLIENT, way, &asking(b"")) {
            Verdict::Ask(terms) => (terms.block, terms.options),
            other => panic!("{other:?}"),
        };
        assert_eq!(terms(Way::Tcp), (0, vec![0, 11, 0, 2, 0, 100]));
        assert_eq!(terms(Way::Udp), (0, vec![]));
        let mut front = self::front(|_| {});
        let mut terms = |way| match ask(&mut front, CLIENT, way, &asking(b"")) {
            Verdict::Ask(terms) => (terms.block, terms.options),
            other => panic!("{other:?}"),
        };
        assert_eq!(terms(Way::Encrypted(Via::Tls)), (468, vec![0, 11, 0, 2, 0, 200]));
        assert_eq!(terms(Way::Encrypted(Via::Https)), (468, vec![]));
        let wrong = ask(&mut front, CLIENT, Way::Tcp, &asking(b"\0\x01"));
        assert_eq!(kind(&wrong), "malformed");
    }
}
