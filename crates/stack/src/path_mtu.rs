//! Path MTU: by ICMP (RFC 1191, 8201), by search where ICMP is lost (RFC 4821, 8899).

use core::net::IpAddr;

use clock::{Duration, Instant};
use wire::IpVersion;

use crate::flow_table::host_cache::HostCache;

/// Octets of a packet with its IP header that every IPv6 path takes (RFC 8200, 5). Over IPv4, where a search begins.
const BASE: u16 = 1280;
/// Octets below which an IPv4 path MTU is not lowered, whatever a router says: Linux's `min_pmtu`. Below, headers would take
/// most of the path, which is what forged messages want.
const FLOOR_V4: u16 = 552;
/// How long a lowered path MTU is left alone (RFC 1191, 6.3; RFC 8899, 5.1.1).
const RAISE_AFTER: Duration = Duration::from_secs(600);
/// Losses of probes of one size that show that the size does not pass (RFC 8899, 5.1.2).
const PROBES_MAX: u8 = 3;
/// A search ends when less than these octets can be won.
const GAIN_MIN: u16 = 8;

/// Sizes that links are known to have, for routers that do not tell (RFC 1191, 7.1).
const PLATEAUS: [u16; 11] = [65535, 32000, 17914, 8166, 4352, 2002, 1492, 1006, 508, 296, 68];

/// The path MTU of one connection, in octets of a packet with its IP header.
///
/// ```text
///   floor ... mtu ............ high ... link_mtu
///              ^ in use         ^ above this nothing passes
///                   ^ probe
/// ```
///
/// It begins at the link's MTU and is lowered by ICMP messages and by suspicion. From then on, at once after suspicion and
/// ten minutes later after ICMP, probes look for a larger size: the upper bound itself, then halves of the interval. A probe is
/// an ordinary segment of that size; the caller sends one when it has the data and window for it and nothing is being
/// recovered, and keeps its loss from the congestion control (RFC 4821, 7.4).
#[derive(Clone, Copy, Debug)]
pub struct PathMtu {
    /// When to look for a larger size again, while no search goes on.
    search_at: Instant,
    link_mtu: u16,
    mtu: u16,
    high: u16,
    floor: u16,
    /// The size of the probe in flight, or 0.
    probe: u16,
    probes_lost: u8,
    is_searching: bool,
    /// Whether `high` itself may pass.
    may_reach_high: bool,
}

const _: () = assert!(size_of::<PathMtu>() <= 24);

const NEVER: Instant = Instant::from_nanos(u64::MAX);

impl PathMtu {
    /// The path of a new connection over a link that takes packets of `link_mtu` octets.
    pub fn new(link_mtu: u16, version: IpVersion) -> PathMtu {
        let floor = match version {
            IpVersion::V4 => FLOOR_V4,
            IpVersion::V6 => BASE,
        };
        PathMtu::with_floor(link_mtu, floor)
    }

    /// As [`PathMtu::new`], but never lowered below `floor` octets: 1280 for IPv6, at least 68 for IPv4.
    pub fn with_floor(link_mtu: u16, floor: u16) -> PathMtu {
        PathMtu {
            search_at: NEVER,
            link_mtu,
            mtu: link_mtu,
            high: link_mtu,
            floor: floor.min(link_mtu),
            probe: 0,
            probes_lost: 0,
            is_searching: false,
            may_reach_high: true,
        }
    }

    /// Octets of the largest packet to send, probes aside.
    #[inline]
    pub fn mtu(&self) -> u16 {
        self.mtu
    }

    /// Applies what another connection to the same host found out ([`PathMtuCache::get`]), before anything is sent.
    pub fn start_at(&mut self, cached: CachedMtu) {
        let mtu = cached.mtu.max(self.floor);
        if mtu < self.mtu {
            self.lower(mtu, cached.expiry);
        }
    }

    /// Applies an ICMP message that quotes a packet of this connection, of `sent_len` octets. `reported` is the next hop's MTU,
    /// or 0 from routers that do not tell. The caller has seen that the quoted sequence number is in flight (RFC 5927,
    /// 4.1). Returns whether the MTU is lower now, so that what is in flight has to be cut anew.
    pub fn on_packet_too_big(&mut self, reported: u16, sent_len: u16, now: Instant) -> bool {
        // No size, or none that could have been the reason.
        let reported = if reported == 0 || reported >= sent_len { plateau_below(sent_len) } else { reported };
        if self.floor >= BASE && reported < BASE && self.link_mtu >= BASE {
            return false; // RFC 8201, 4: less than IPv6's minimum is discarded.
        }
        let mtu = reported.max(self.floor);
        if self.probe != 0 && sent_len == self.probe && mtu >= self.mtu {
            self.conclude_probe();
            (self.high, self.may_reach_high) = (mtu, true);
        }
        let is_lower = mtu < self.mtu;
        if is_lower {
            self.lower(mtu, now + RAISE_AFTER);
        }
        is_lower
    }

    /// Takes note that large packets seem to vanish: several retransmission timeouts in a row while small ones pass or may
    /// pass. Returns whether the MTU is lower now.
    pub fn on_black_hole_suspected(&mut self) -> bool {
        let lower = if self.mtu > BASE { BASE.max(self.floor) } else { (self.mtu / 2).max(self.floor) };
        if lower >= self.mtu {
            return false;
        }
        // It may have been an outage: the search begins with what was in use before the first suspicion.
        let (high, may_reach_high) =
            if self.is_searching { (self.high, self.may_reach_high) } else { (self.mtu, true) };
        self.mtu = lower;
        self.start_search(high);
        self.may_reach_high = may_reach_high;
        true
    }

    /// Whether [`PathMtu::next_probe`] may give a probe.
    #[inline]
    pub fn is_probe_due(&self, now: Instant) -> bool {
        self.probe == 0 && (self.is_searching || now >= self.search_at)
    }

    /// The size of a probe to send now, in octets of the packet; it counts as sent. `None` while one is in flight, and when
    /// there is nothing to find out. The peer takes packets of `packet_max` octets.
    pub fn next_probe(&mut self, now: Instant, packet_max: u16) -> Option<u16> {
        if !self.is_probe_due(now) || packet_max <= self.mtu {
            return None;
        }
        if !self.is_searching {
            self.start_search(self.link_mtu);
        }
        let gain = self.high.saturating_sub(self.mtu);
        if gain == 0 || !self.may_reach_high && gain < GAIN_MIN {
            self.is_searching = false;
            self.search_at = if self.mtu < self.link_mtu { now + RAISE_AFTER } else { NEVER };
            return None;
        }
        let probe = if self.may_reach_high { self.high } else { self.mtu + gain.div_ceil(2) };
        self.probe = probe.min(packet_max);
        Some(self.probe)
    }

    /// The size of the probe in flight.
    pub fn probe_in_flight(&self) -> Option<u16> {
        (self.probe != 0).then_some(self.probe)
    }

    /// The probe in flight was acknowledged: its size is the MTU from now on.
    pub fn on_probe_acked(&mut self) {
        if self.probe != 0 {
            self.mtu = self.probe.max(self.mtu);
            self.conclude_probe();
        }
    }

    /// The probe in flight was lost while others arrived. It goes again twice before its size counts as too large.
    pub fn on_probe_lost(&mut self) {
        let probe = core::mem::take(&mut self.probe);
        self.probes_lost += u8::from(probe != 0);
        if self.probes_lost == PROBES_MAX {
            self.conclude_probe();
            (self.high, self.may_reach_high) = (probe - 1, false);
        }
    }

    /// The route or the link's MTU has changed. Returns whether the MTU is lower now.
    pub fn on_link_mtu(&mut self, link_mtu: u16) -> bool {
        let (old, mtu) = (self.link_mtu, self.mtu);
        if link_mtu == old {
            return false;
        }
        self.link_mtu = link_mtu;
        self.floor = self.floor.min(link_mtu);
        if link_mtu <= mtu || mtu == old {
            self.mtu = link_mtu;
            self.high = link_mtu;
            self.is_searching = false;
            self.search_at = NEVER;
            self.conclude_probe();
        } else {
            self.start_search(link_mtu);
        }
        self.mtu < mtu
    }

    fn lower(&mut self, mtu: u16, search_at: Instant) {
        (self.mtu, self.high, self.search_at) = (mtu, mtu, search_at);
        self.is_searching = false;
        self.conclude_probe();
    }

    fn start_search(&mut self, high: u16) {
        (self.high, self.may_reach_high, self.is_searching) = (high, true, true);
        self.conclude_probe();
    }

    fn conclude_probe(&mut self) {
        (self.probe, self.probes_lost) = (0, 0);
    }
}

/// The largest usual size below `len`.
fn plateau_below(len: u16) -> u16 {
    PLATEAUS.into_iter().find(|plateau| *plateau < len).unwrap_or(68)
}

/// What is known about the path to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedMtu {
    /// Octets of the largest packet that passes.
    pub mtu: u16,
    /// Until when that holds.
    pub expiry: Instant,
}

/// The lowered path MTUs of the hosts heard of last, for new connections to them.
#[derive(Debug)]
pub struct PathMtuCache {
    hosts: HostCache<CachedMtu>,
}

impl PathMtuCache {
    /// An empty cache for at most `hosts_max` hosts, indexed under the secret `key`. The host used longest ago goes first.
    pub fn new(hosts_max: u32, key: [u64; 2]) -> PathMtuCache {
        PathMtuCache { hosts: HostCache::new(hosts_max, key) }
    }

    /// What is known about `remote`.
    pub fn get(&mut self, remote: IpAddr, now: Instant) -> Option<CachedMtu> {
        self.hosts.get_mut(remote).map(|cached| *cached).filter(|cached| cached.expiry > now)
    }

    /// Keeps the lowered MTU of a connection to `remote` for ten minutes.
    pub fn insert(&mut self, remote: IpAddr, mtu: u16, now: Instant) {
        let new = CachedMtu { mtu, expiry: now + RAISE_AFTER };
        if let Some(cached) = self.hosts.get_or_insert(remote, new) {
            *cached = new;
        }
    }

    /// Forgets `remote`, as a larger MTU was found or its route has changed.
    pub fn remove(&mut self, remote: IpAddr) {
        self.hosts.remove(remote);
    }
}

#[cfg(test)]
mod tests;
