//! Which server is asked.
//!
//! What is known belongs to a server's *address*, whatever zone it was learned with: its smoothed time and variance, the penalty
//! for silence, whether it can do EDNS and TCP.
//!
//! 1. **A client's query goes to the best**: the smallest smoothed time plus penalty among servers that answered their last query.
//!    Servers never measured come next, silent ones last. Among servers of which none is measured, the first query goes to two at once.
//! 2. **Load spreads only beyond a rate.** Once the best has had `rate_max` queries a second, the next one within `band` of the best gets
//!    them. What annoys an operator is concentration; what costs clients time is spreading.
//! 3. **The first wait is short**: srtt + 4 variances, at least `timeout_floor`. Then the next server is asked, while the first may
//!    still answer for `patience`.
//! 4. **A loss penalises**; the penalty doubles with each further loss and halves with time. An answer that comes late takes it back.
//! 5. **Measuring is our own business.** Queries of our own (*probes*) measure servers that are new, silent, or not used for `probe_interval`,
//!    when a client's query concerns one of their zones. They are bounded in rate, and no client waits for them.
//! 6. **State ends** `expiry` after a server's last answer, so no outage is remembered for longer.
//! 7. **IPv6 as a whole** is out of favour while four of its servers in a row are silent and IPv4 works; one answer ends that. Meanwhile one of
//!    its unknown servers is probed every `probe_silent_max`, so that its return is noticed whatever else is forgotten.

mod server;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use clock::{Duration, Instant};

use crate::options::Selection;
use crate::random::Random;
use server::Server;

/// A server that may be asked, and how often it was asked the same already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) address: SocketAddr,
    pub(crate) tries: u8,
}

/// A line of the table of servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerReport {
    /// Where the server is.
    pub address: SocketAddr,
    /// Smoothed time of its answers; `None` if it never answered.
    pub srtt: Option<Duration>,
    /// How much it varies.
    pub rttvar: Option<Duration>,
    /// What silence adds to its time now.
    pub penalty: Duration,
    /// Queries in a row without an answer.
    pub silent: u32,
    /// Whether it takes EDNS, and TCP.
    pub edns: bool,
    /// See `edns`.
    pub tcp: bool,
    /// Queries for clients.
    pub queries: u64,
    /// Queries of our own.
    pub probes: u64,
    /// Answers to either.
    pub answers: u64,
    /// Queries without an answer in time.
    pub losses: u64,
    /// Since its last answer.
    pub age: Duration,
}

/// How good a server is to ask, in the order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Measured,
    Unknown,
    Silent,
}

/// Silent addresses in a row after which a family is out of favour.
const FAMILY_SILENT: usize = 4;

/// IPv4 or IPv6 as a whole.
#[derive(Debug, Default)]
struct Family {
    /// Addresses that were silent since one answered, up to [`FAMILY_SILENT`].
    silent: Vec<IpAddr>,
    /// When one of its unknown servers is probed although it is broken.
    next_probe: Instant,
}

impl Family {
    fn is_broken(&self) -> bool {
        self.silent.len() >= FAMILY_SILENT
    }

    fn on_loss(&mut self, address: IpAddr) {
        if !self.is_broken() && !self.silent.contains(&address) {
            self.silent.push(address);
        }
    }
}

/// The table of servers.
#[derive(Debug)]
pub(crate) struct Servers {
    options: Selection,
    table: BTreeMap<SocketAddr, Server>,
    /// Every address once, the one noticed or confirmed longest ago first, as far as was looked.
    by_age: VecDeque<(Instant, SocketAddr)>,
    v4: Family,
    v6: Family,
    /// Probes that may be sent now, in thousandths.
    probe_tokens: u64,
    refilled: Instant,
}

impl Servers {
    pub(crate) fn new(options: Selection, now: Instant) -> Servers {
        Servers {
            options,
            table: BTreeMap::new(),
            by_age: VecDeque::new(),
            v4: Family::default(),
            v6: Family::default(),
            probe_tokens: u64::from(options.probe_rate_max) * 1000,
            refilled: now,
        }
    }

    /// Changes the rules; what is known stays.
    pub(crate) fn set_options(&mut self, options: Selection) {
        self.options = options;
    }

    /// The servers to ask next: one, or several at once where none is known. Empty without candidates.
    pub(crate) fn choose(
        &mut self,
        candidates: &[Candidate],
        random: &mut Random,
        now: Instant,
    ) -> Vec<SocketAddr> {
        let mut ranked: Vec<_> = candidates
            .iter()
            .map(|candidate| {
                let (class, score) = self.rank(candidate.address, now);
                (candidate.tries, class, score, random.draw(), candidate.address)
            })
            .collect();
        ranked.sort_unstable();
        let Some(&(tries, class, score, _, best)) = ranked.first() else { return Vec::new() };
        let peers = || ranked.iter().take_while(|other| (other.0, other.1) == (tries, class));
        match class {
            Class::Measured if tries == 0 => {
                let band = peers().filter(|other| other.2 <= score + self.options.band).map(|other| other.4);
                let band: Vec<SocketAddr> = band.collect();
                vec![self.spread(&band, now)]
            }
            Class::Unknown if tries == 0 => {
                peers().take(usize::from(self.options.race.max(1))).map(|other| other.4).collect()
            }
            _ => vec![best],
        }
    }

    fn rank(&self, address: SocketAddr, now: Instant) -> (Class, Duration) {
        let Some(server) = self.table.get(&address) else {
            let class = if self.is_family_broken(address) { Class::Silent } else { Class::Unknown };
            return (class, self.options.timeout_unknown);
        };
        let score = server.score(&self.options, now);
        let class = match score {
            _ if server.is_silent() || self.is_family_broken(address) => Class::Silent,
            Some(_) => Class::Measured,
            None => Class::Unknown,
        };
        let penalty = server.penalty(&self.options, now);
        (class, score.unwrap_or(self.options.timeout_unknown + penalty))
    }

    fn is_family_broken(&self, address: SocketAddr) -> bool {
        address.is_ipv6() && self.v6.is_broken() && !self.v4.is_broken()
    }

    /// The first of `band`, best first, that has had fewer queries than the rate; else the one with the most room.
    fn spread(&mut self, band: &[SocketAddr], now: Instant) -> SocketAddr {
        let mut roomiest = (i64::MIN, band[0]);
        let options = self.options;
        for &address in band {
            let tokens = self.server(address, now).tokens(&options, now);
            if tokens >= 1000 {
                return address;
            }
            if tokens > roomiest.0 {
                roomiest = (tokens, address);
            }
        }
        roomiest.1
    }

    /// Those of `addresses` that a query of our own is due to, without `asked`, as far as the rate allows.
    pub(crate) fn due_probes(
        &mut self,
        addresses: &[SocketAddr],
        asked: &[SocketAddr],
        now: Instant,
    ) -> Vec<SocketAddr> {
        self.refill_probes(now);
        let is_outage = addresses.iter().all(|address| self.is_silent(*address));
        let silent_max =
            if is_outage { self.options.probe_outage_max } else { self.options.probe_silent_max };
        let mut due = Vec::new();
        for address in addresses.iter().filter(|address| !asked.contains(address)) {
            let is_due = match self.table.get(address) {
                None => !self.is_family_broken(*address) || self.may_probe_broken(*address, now),
                Some(server) => server.is_probe_due(&self.options, silent_max, now),
            };
            if is_due && self.probe_tokens >= 1000 {
                self.probe_tokens -= 1000;
                due.push(*address);
            }
        }
        due
    }

    /// Whether it is time for a probe of a family that is broken.
    fn may_probe_broken(&mut self, address: SocketAddr, now: Instant) -> bool {
        let pause = self.options.probe_silent_max;
        let family = self.family(address);
        let is_time = family.next_probe <= now;
        if is_time {
            family.next_probe = now + pause;
        }
        is_time
    }

    fn refill_probes(&mut self, now: Instant) {
        let rate = u64::from(self.options.probe_rate_max);
        let refill = now.since(self.refilled).as_micros().min(10_000_000) * rate / 1000;
        if refill > 0 {
            self.probe_tokens = (self.probe_tokens + refill).min(rate * 1000);
            self.refilled = now;
        }
    }

    /// How long to wait for a server that is asked the same for the `tries`th time, counted from 0.
    pub(crate) fn timeout(&self, address: SocketAddr, tries: u8, now: Instant) -> Duration {
        match self.table.get(&address) {
            Some(server) => server.timeout(&self.options, tries),
            None => Server::new(&self.options, now).timeout(&self.options, tries),
        }
    }

    /// A query leaves.
    pub(crate) fn on_sent(&mut self, address: SocketAddr, is_probe: bool, now: Instant) {
        let options = self.options;
        self.server(address, now).on_sent(is_probe, &options, now);
    }

    /// An answer came after `rtt`; `is_late` if it had been given up.
    pub(crate) fn on_answer(&mut self, address: SocketAddr, rtt: Duration, is_late: bool, now: Instant) {
        let options = self.options;
        self.server(address, now).on_answer(rtt, is_late, &options, now);
        self.family(address).silent.clear();
    }

    /// No answer came in time, or the network says that none will.
    pub(crate) fn on_loss(&mut self, address: SocketAddr, now: Instant) {
        let options = self.options;
        self.server(address, now).on_loss(&options, now);
        self.family(address).on_loss(address.ip());
    }

    /// The server cannot read queries with an OPT record.
    pub(crate) fn on_edns_failed(&mut self, address: SocketAddr, now: Instant) {
        self.server(address, now).on_edns_failed(now);
    }

    /// The server cannot be reached over TCP.
    pub(crate) fn on_tcp_failed(&mut self, address: SocketAddr, now: Instant) {
        self.server(address, now).on_tcp_failed(now);
    }

    /// The server has answered over TCP.
    pub(crate) fn on_tcp_answer(&mut self, address: SocketAddr, now: Instant) {
        self.server(address, now).on_tcp_answer();
    }

    /// A server has sent its part of the cookie, or none.
    pub(crate) fn on_cookie(&mut self, address: SocketAddr, cookie: Option<&[u8]>, now: Instant) {
        let server = self.server(address, now);
        if server.cookie.as_deref() != cookie {
            server.cookie = cookie.map(Into::into);
        }
    }

    /// The part of the cookie that a server has sent.
    pub(crate) fn cookie(&self, address: SocketAddr) -> Option<&[u8]> {
        self.table.get(&address)?.cookie.as_deref()
    }

    /// Whether queries to a server have an OPT record.
    pub(crate) fn takes_edns(&self, address: SocketAddr, now: Instant) -> bool {
        self.table.get(&address).is_none_or(|server| server.takes_edns(&self.options, now))
    }

    /// Whether a server may be reached over TCP.
    pub(crate) fn takes_tcp(&self, address: SocketAddr, now: Instant) -> bool {
        self.table.get(&address).is_none_or(|server| server.takes_tcp(now))
    }

    /// Whether a server did not answer its last query. One never asked is not silent.
    pub(crate) fn is_silent(&self, address: SocketAddr) -> bool {
        self.table.get(&address).is_some_and(Server::is_silent)
    }

    /// Whether a server answered its last query.
    pub(crate) fn is_proven(&self, address: SocketAddr) -> bool {
        self.table.get(&address).is_some_and(|server| server.srtt().is_some() && !server.is_silent())
    }

    /// Whether a server that was silent has answered since `instant`.
    pub(crate) fn came_back_since(&self, address: SocketAddr, instant: Instant) -> bool {
        self.table.get(&address).is_some_and(|server| !server.is_silent() && server.came_back() > instant)
    }

    /// The shortest smoothed time of those of `addresses` that are not silent.
    pub(crate) fn best_rtt(&self, addresses: &[SocketAddr]) -> Option<Duration> {
        let known = addresses.iter().filter_map(|address| self.table.get(address));
        known.filter(|server| !server.is_silent()).filter_map(Server::srtt).min()
    }

    /// All servers.
    pub(crate) fn report(&self, now: Instant) -> Vec<ServerReport> {
        let line = |(address, server): (&SocketAddr, &Server)| ServerReport {
            address: *address,
            srtt: server.srtt(),
            rttvar: server.rttvar(),
            penalty: server.penalty(&self.options, now),
            silent: server.losses(),
            edns: server.takes_edns(&self.options, now),
            tcp: server.takes_tcp(now),
            queries: server.counts.queries,
            probes: server.counts.probes,
            answers: server.counts.answers,
            losses: server.counts.losses,
            age: now.since(server.confirmed),
        };
        self.table.iter().map(line).collect()
    }

    fn family(&mut self, address: SocketAddr) -> &mut Family {
        if address.is_ipv6() { &mut self.v6 } else { &mut self.v4 }
    }

    /// The server at `address`, noted if it is new.
    fn server(&mut self, address: SocketAddr, now: Instant) -> &mut Server {
        if !self.table.contains_key(&address) {
            self.forget_old(now);
            self.by_age.push_back((now, address));
        }
        let options = &self.options;
        self.table.entry(address).or_insert_with(|| Server::new(options, now))
    }

    /// Forgets servers that have not answered for long, and the oldest while there are too many. A server that answered since it was
    /// looked at goes to the back of the row.
    fn forget_old(&mut self, now: Instant) {
        while let Some(&(confirmed, address)) = self.by_age.front() {
            let is_full = self.table.len() >= self.options.servers_max;
            if confirmed + self.options.expiry > now && !is_full {
                return;
            }
            self.by_age.pop_front();
            match self.table.get(&address).map(|server| server.confirmed) {
                Some(later) if later > confirmed => self.by_age.push_back((later, address)),
                _ => drop(self.table.remove(&address)),
            }
        }
    }

    /// Forgets servers without an answer for `expiry`. To be called now and then.
    pub(crate) fn sweep(&mut self, now: Instant) {
        self.forget_old(now);
    }
}

#[cfg(test)]
mod tests;
