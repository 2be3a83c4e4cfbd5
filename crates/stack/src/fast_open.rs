//! TCP Fast Open cookies (RFC 7413).

use core::net::IpAddr;

use arrayvec::ArrayVec;
use clock::{Duration, Instant};

use crate::flow_table::host_cache::HostCache;
use crate::flow_table::secret_hash;

/// Octets of the cookies that we give out; others may have 4 to 16 (RFC 7413, 4.1.1).
pub const COOKIE_LEN: usize = 8;

/// What a server thinks of a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CookieVerdict {
    /// Data in the SYN may be delivered.
    Valid,
    /// It may be delivered, and the answer carries a new cookie, as the key was changed since.
    ValidUntilRotation,
    /// It may not; the answer carries the right cookie and does not acknowledge the data (RFC 7413, 4.2.2).
    Invalid,
}

/// Gives out cookies and recognises them, without memory of any client: a cookie is SipHash-2-4 of the client's address under a
/// secret, 64 bits.
#[derive(Clone, Copy)]
pub struct FastOpenServer {
    current: [u64; 2],
    previous: Option<[u64; 2]>,
}

impl FastOpenServer {
    /// A server with the secret `key`. Servers behind one address share it.
    pub const fn new(key: [u64; 2]) -> FastOpenServer {
        FastOpenServer { current: key, previous: None }
    }

    /// Changes the key. Cookies of the key before stay valid until the next change (RFC 7413, 4.1.2).
    pub fn rotate(&mut self, key: [u64; 2]) {
        self.previous = Some(core::mem::replace(&mut self.current, key));
    }

    /// The cookie for a client.
    pub fn cookie(&self, client: IpAddr) -> [u8; COOKIE_LEN] {
        cookie_under(self.current, client)
    }

    /// Judges the cookie of a SYN from `client`.
    pub fn validate(&self, client: IpAddr, cookie: &[u8]) -> CookieVerdict {
        let is_under = |key| cookie == cookie_under(key, client);
        if is_under(self.current) {
            CookieVerdict::Valid
        } else if self.previous.is_some_and(is_under) {
            CookieVerdict::ValidUntilRotation
        } else {
            CookieVerdict::Invalid
        }
    }
}

impl core::fmt::Debug for FastOpenServer {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("FastOpenServer(secret)")
    }
}

fn cookie_under(key: [u64; 2], client: IpAddr) -> [u8; COOKIE_LEN] {
    match client {
        IpAddr::V4(client) => secret_hash(key, &[&client.octets()]),
        IpAddr::V6(client) => secret_hash(key, &[&client.octets()]),
    }
    .to_be_bytes()
}

/// What a client needs to open a connection with data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedCookie {
    /// The server's cookie.
    pub cookie: ArrayVec<u8, 16>,
    /// The server's MSS, so that the data of a SYN fits (RFC 7413, 4.1.3).
    pub mss: u16,
}

/// The cookies of the servers to which we connected last, and which paths lose SYNs with data.
#[derive(Debug)]
pub struct FastOpenCache {
    servers: HostCache<Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    cached: CachedCookie,
    /// Failures in a row.
    failures: u8,
    failed_at: Instant,
}

/// How long Fast Open is not tried after a first failure; doubled by each further one, up to 64 times.
const PAUSE: Duration = Duration::from_secs(60 * 60);

impl FastOpenCache {
    /// An empty cache for at most `servers_max` servers, indexed under the secret `key`. The server used longest ago goes
    /// first.
    pub fn new(servers_max: u32, key: [u64; 2]) -> FastOpenCache {
        FastOpenCache { servers: HostCache::new(servers_max, key) }
    }

    /// The cookie for a SYN with data to `server`. Without one, or while the path is known to lose such SYNs, the SYN goes
    /// without data; it asks for a cookie unless [`FastOpenCache::is_paused`].
    pub fn get(&mut self, server: IpAddr, now: Instant) -> Option<&CachedCookie> {
        let entry = self.servers.get_mut(server)?;
        (!entry.cached.cookie.is_empty() && !entry.is_paused(now)).then_some(&entry.cached)
    }

    /// Whether the option had better be left out of a SYN to `server` (RFC 7413, 4.1.3.1).
    pub fn is_paused(&self, server: IpAddr, now: Instant) -> bool {
        self.servers.get(server).is_some_and(|entry| entry.is_paused(now))
    }

    /// Keeps the cookie of a SYN-ACK, and the server's MSS. A cookie of a wrong length is as none (RFC 7413, 4.1.1): fewer
    /// than 4 octets, more than 16, or an odd number.
    pub fn insert(&mut self, server: IpAddr, cookie: &[u8], mss: u16) {
        if !(4..=16).contains(&cookie.len()) || cookie.len() % 2 == 1 {
            return;
        }
        if let Some(entry) = self.entry(server) {
            entry.cached = CachedCookie { cookie: cookie.iter().copied().collect(), mss };
            entry.failures = 0;
        }
    }

    /// Takes note that a SYN with the option was answered only when it was sent again without, or that the connection
    /// broke at once: a middlebox on the path may drop it.
    pub fn on_failure(&mut self, server: IpAddr, now: Instant) {
        if let Some(entry) = self.entry(server) {
            entry.failures = entry.failures.saturating_add(1);
            entry.failed_at = now;
        }
    }

    /// Takes note that data in a SYN was acknowledged.
    pub fn on_success(&mut self, server: IpAddr) {
        if let Some(entry) = self.servers.get_mut(server) {
            entry.failures = 0;
        }
    }

    fn entry(&mut self, server: IpAddr) -> Option<&mut Entry> {
        let cached = CachedCookie { cookie: ArrayVec::new(), mss: 0 };
        self.servers.get_or_insert(server, Entry { cached, failures: 0, failed_at: Instant::ZERO })
    }
}

impl Entry {
    fn is_paused(&self, now: Instant) -> bool {
        let Some(doublings) = self.failures.checked_sub(1) else {
            return false;
        };
        now - self.failed_at < PAUSE * (1 << doublings.min(6))
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;

    const NOW: Instant = Instant::from_nanos(1 << 60);

    fn host(last: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, last).into()
    }

    fn cookie_in(cache: &mut FastOpenCache, last: u8, now: Instant) -> Option<Vec<u8>> {
        cache.get(host(last), now).map(|cached| cached.cookie.to_vec())
    }

    #[test]
    fn a_cookie_is_valid_for_its_client_only_rfc_7413_section_4_1_2() {
        let server = FastOpenServer::new([1, 2]);
        let cookie = server.cookie(host(1));
        assert_eq!(server.validate(host(1), &cookie), CookieVerdict::Valid);
        assert_eq!(server.validate(host(2), &cookie), CookieVerdict::Invalid);
        assert_eq!(server.validate(host(1), &cookie[..4]), CookieVerdict::Invalid);
        assert_eq!(server.validate(host(1), &[]), CookieVerdict::Invalid);
        let longer = [cookie, cookie].concat();
        assert_eq!(server.validate(host(1), &longer), CookieVerdict::Invalid);
    }

    #[test]
    fn a_cookie_outlives_one_change_of_the_key_rfc_7413_section_4_1_2() {
        let mut server = FastOpenServer::new([1, 2]);
        let cookie = server.cookie(host(1));
        server.rotate([3, 4]);
        assert_eq!(server.validate(host(1), &cookie), CookieVerdict::ValidUntilRotation);
        assert_eq!(server.validate(host(1), &server.cookie(host(1))), CookieVerdict::Valid);
        server.rotate([5, 6]);
        assert_eq!(server.validate(host(1), &cookie), CookieVerdict::Invalid);
    }

    #[test]
    fn cookies_of_wrong_length_are_not_kept_rfc_7413_section_4_1_1() {
        let mut cache = FastOpenCache::new(2, [1, 2]);
        [&[][..], &[1; 2], &[1; 5], &[1; 18]]
            .into_iter()
            .for_each(|cookie| cache.insert(host(1), cookie, 1460));
        assert_eq!(cache.get(host(1), NOW), None);
        cache.insert(host(1), &[1; 16], 1440);
        assert_eq!(cache.get(host(1), NOW).map(|cached| (cached.cookie.len(), cached.mss)), Some((16, 1440)));
    }

    #[test]
    fn a_path_that_loses_syns_with_data_is_left_alone_for_a_while_rfc_7413_section_4_1_3_1() {
        let mut cache = FastOpenCache::new(2, [1, 2]);
        cache.insert(host(1), &[1; 8], 1460);
        cache.on_failure(host(1), NOW);
        assert!(cache.is_paused(host(1), NOW) && cache.get(host(1), NOW).is_none());
        assert!(!cache.is_paused(host(2), NOW));
        let later = NOW + PAUSE;
        assert_eq!(cookie_in(&mut cache, 1, later), Some(vec![1; 8]));
        cache.on_failure(host(1), later);
        assert!(cache.is_paused(host(1), later + PAUSE) && !cache.is_paused(host(1), later + 2 * PAUSE));
        cache.on_success(host(1));
        assert!(!cache.is_paused(host(1), later));
    }

    #[test]
    fn failures_are_remembered_without_a_cookie() {
        let mut cache = FastOpenCache::new(2, [1, 2]);
        (0..300).for_each(|_| cache.on_failure(host(1), NOW));
        assert!(cache.is_paused(host(1), NOW + 63 * PAUSE) && cache.get(host(1), NOW).is_none());
        assert!(!cache.is_paused(host(1), NOW + 64 * PAUSE));
    }
}
