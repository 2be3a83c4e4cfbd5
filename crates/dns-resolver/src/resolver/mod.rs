//! The calls, and what waits for what.

mod answers;
mod clients;
mod known;
mod timers;

use std::collections::{BTreeMap, VecDeque};
use std::hash::Hasher;
use std::io::{self, Write};
use std::net::SocketAddr;

use clock::{Duration, Instant};
use dns_guard::Secret;
use dns_wire::{Name, NameBuf};

use crate::cache::{Cache, NotRestored, Occasion, Scope};
use crate::dnssec::anchors::Trust;
use crate::dnssec::gaps::Gaps;
use crate::hints::Hints;
use crate::iterator::lame::LameServers;
use crate::iterator::task::{Task, TaskId};
use crate::iterator::{SameQueries, Upstream};
use crate::local_zones::LocalZones;
use crate::message::Question;
use crate::options::Options;
use crate::random::Random;
use crate::servers::{ServerReport, Servers};
use crate::subnet::{ByNetwork, Subnet};
use answers::Answers;
pub use answers::KnownAnswer;
use clients::{Client, TCP_MAX};
pub(crate) use known::Known;
use siphasher::sip::SipHasher13;
pub(crate) use timers::Timer;
use timers::Timers;

/// Names a client's question. The caller chooses it, and uses none twice at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// Names a query to a server, from [`Resolver::poll_transmit`] to [`Resolver::poll_closed`]. None is used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueryId(pub u64);

/// How a message travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    /// One datagram.
    Udp,
    /// A stream, where a length of two octets stands before each message; it is not part of the octets here.
    Tcp,
}

/// How a question came, and what its answer carries beside what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The way there and back.
    pub transport: Transport,
    /// EDNS options for the answer, in wire form: code, length, data. They are left out where the question has no OPT record.
    pub options: Vec<u8>,
    /// Octets of the blocks that the answer is padded to (RFC 8467, 4.1); 0 for none.
    pub block: u16,
    /// Octets of the longest answer that the way takes, whatever the client takes.
    pub limit: usize,
    /// Where the client is, for the servers of [`Zones::by_network`].
    pub subnet: Option<Subnet>,
}

impl Terms {
    /// Whether the answer is that of any client that asks so over UDP.
    #[must_use]
    pub fn are_plain(&self) -> bool {
        self.transport == Transport::Udp && self.options.is_empty() && self.block == 0
    }
}

impl From<Transport> for Terms {
    fn from(transport: Transport) -> Terms {
        Terms { transport, options: Vec::new(), block: 0, limit: TCP_MAX, subnet: None }
    }
}

/// Why a question is not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The client may not ask, or not so much: REFUSED, with EDE 18.
    Prohibited,
    /// The client shall ask again with the cookie of this answer (RFC 7873, 5.2.3).
    BadCookie,
    /// The client shall ask again over TCP.
    Truncated,
    /// The question carries an option that cannot be read: FORMERR.
    Malformed,
}

/// A query to send. Each has a socket of its own, at a port that nobody can guess (RFC 5452, 9.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Its name.
    pub query: QueryId,
    /// Whom to send it to.
    pub server: SocketAddr,
    /// How.
    pub transport: Transport,
    /// The message.
    pub octets: Vec<u8>,
}

/// An answer for a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whose it is.
    pub client: ClientId,
    /// The message; empty if the client gets none.
    pub octets: Vec<u8>,
}

/// Whether servers of a zone that the user names resolve for us, or are its authorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectedKind {
    /// They are asked for recursion, and believed.
    Forward,
    /// They are authorities, which no delegation leads to.
    Stub,
}

/// A zone whose servers the user names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directed {
    /// It, and all below it.
    pub zone: NameBuf,
    /// See [`DirectedKind`].
    pub kind: DirectedKind,
    /// Where its servers are.
    pub servers: Vec<SocketAddr>,
}

/// Where resolution starts.
#[derive(Clone, Debug, Default)]
pub struct Zones {
    /// The root's servers.
    pub hints: Hints,
    /// Zones that are asked for elsewhere.
    pub directed: Vec<Directed>,
    /// What is validated.
    pub trust: Trust,
    /// Zones whose servers, and those of zones below them, are told where clients are (RFC 7871).
    pub by_network: Vec<NameBuf>,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Counters {
    pub client_queries: u64,
    pub cache_hits: u64,
    pub stale_answers: u64,
    pub failures: u64,
    pub refused: u64,
    pub malformed: u64,
    pub dropped: u64,
    pub upstream_queries: u64,
    pub upstream_tcp: u64,
    pub probes: u64,
    pub timeouts: u64,
    pub forgeries: u64,
    pub prefetches: u64,
    pub bogus: u64,
    pub synthesised: u64,
    pub cookies_lost: u64,
    pub upstream_subnets: u64,
}

impl Counters {
    /// Name and value of each.
    #[must_use]
    pub fn named(&self) -> [(&'static str, u64); 17] {
        [
            ("client_queries", self.client_queries),
            ("cache_hits", self.cache_hits),
            ("stale_answers", self.stale_answers),
            ("failures", self.failures),
            ("refused", self.refused),
            ("malformed", self.malformed),
            ("dropped", self.dropped),
            ("upstream_queries", self.upstream_queries),
            ("upstream_tcp", self.upstream_tcp),
            ("probes", self.probes),
            ("timeouts", self.timeouts),
            ("forgeries", self.forgeries),
            ("prefetches", self.prefetches),
            ("bogus", self.bogus),
            ("synthesised", self.synthesised),
            ("cookies_lost", self.cookies_lost),
            ("upstream_subnets", self.upstream_subnets),
        ]
    }
}

/// A recursive resolver.
///
/// Order of calls: hand in what happened ([`Resolver::on_query`], [`Resolver::on_response`], [`Resolver::on_unreachable`]), or that
/// time passed ([`Resolver::on_timeout`]). Then take everything from [`Resolver::poll_transmit`], [`Resolver::poll_answer`] and
/// [`Resolver::poll_closed`], and ask [`Resolver::poll_timeout`] when to call again. `now` never goes backwards.
#[derive(Debug)]
pub struct Resolver {
    pub(crate) options: Options,
    pub(crate) zones: Zones,
    pub(crate) local: LocalZones,
    pub(crate) random: Random,
    /// What our part of cookies is made with.
    pub(crate) cookie_secret: Secret,
    pub(crate) cache: Cache,
    answers: Answers,
    pub(crate) gaps: Gaps,
    pub(crate) by_network: ByNetwork,
    pub(crate) servers: Servers,
    pub(crate) lame: LameServers,
    pub(crate) tasks: BTreeMap<TaskId, Task>,
    pub(crate) by_question: BTreeMap<Question, TaskId>,
    pub(crate) in_flight: BTreeMap<QueryId, Upstream>,
    /// Those of them that are for tasks.
    pub(crate) same: SameQueries,
    pub(crate) clients: BTreeMap<ClientId, Client>,
    pub(crate) timers: Timers,
    /// Tasks that can go on.
    pub(crate) ready: VecDeque<TaskId>,
    pub(crate) counters: Counters,
    pub(crate) next_id: u64,
    /// When it was how late, in seconds since 1970.
    wall_clock: (Instant, u64),
    /// Background look-ups of addresses that may start now, in thousandths, and since when.
    pub(crate) fetch_tokens: (u64, Instant),
    transmits: VecDeque<Transmit>,
    ready_answers: VecDeque<Answer>,
    closed: VecDeque<QueryId>,
}

/// How often old state is looked for.
const SWEEP: Duration = Duration::from_secs(10);

impl Resolver {
    /// One that knows nothing yet. `key` comes from the operating system's generator; the same key gives the same run.
    #[must_use]
    pub fn new(options: Options, zones: Zones, key: [u8; 16], now: Instant) -> Resolver {
        let mut random = Random::new(key);
        let seed = random.draw();
        let fetch_rate = options.limits.address_fetch_rate_max;
        let mut timers = Timers::default();
        timers.set(now + SWEEP, Timer::Sweep);
        Resolver {
            cache: Cache::new(options.cache, options.stale.keep, seed),
            answers: Answers::new(options.cache.octets_max, random.draw()),
            gaps: Gaps::default(),
            by_network: ByNetwork::default(),
            servers: Servers::new(options.selection, now),
            local: local_zones(&options, &zones),
            lame: LameServers::default(),
            options,
            zones,
            cookie_secret: Secret(random.key()),
            random,
            tasks: BTreeMap::new(),
            by_question: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            same: SameQueries::default(),
            clients: BTreeMap::new(),
            timers,
            ready: VecDeque::new(),
            counters: Counters::default(),
            next_id: 0,
            wall_clock: (now, 0),
            fetch_tokens: (u64::from(fetch_rate) * 1000, now),
            transmits: VecDeque::new(),
            ready_answers: VecDeque::new(),
            closed: VecDeque::new(),
        }
    }

    /// Takes other options and zones. Cache and servers stay; the size of the cache does, too. What the cache has about zones that are
    /// sent elsewhere than before goes.
    pub fn reconfigure(&mut self, options: Options, zones: Zones) {
        self.servers.set_options(options.selection);
        self.local = local_zones(&options, &zones);
        if zones.hints != self.zones.hints {
            self.cache.forget(Name::ROOT, crate::cache::Kind::Zone);
        }
        let (old, new) = (&self.zones.directed, &zones.directed);
        let only_old = old.iter().filter(|directed| !new.contains(directed));
        let only_new = new.iter().filter(|directed| !old.contains(directed));
        for changed in only_old.chain(only_new) {
            self.cache.flush(changed.zone.as_name(), Scope::Subtree);
        }
        // What was for all may differ by network.
        for zone in zones.by_network.iter().filter(|zone| !self.zones.by_network.contains(zone)) {
            self.cache.flush(zone.as_name(), Scope::Subtree);
        }
        self.gaps.clear();
        self.by_network.clear();
        self.answers.clear();
        // What counts as true has changed.
        if zones.trust != self.zones.trust || options.dnssec != self.options.dnssec {
            self.cache.flush(Name::ROOT, Scope::Subtree);
        }
        (self.options, self.zones) = (options, zones);
    }

    /// It is `unix_secs` seconds since 1970. Signatures are judged by that (RFC 4034, 3.1.5): without it, none is valid yet. To be called at
    /// the start, and from time to time, since clocks are set.
    pub fn on_wall_clock(&mut self, unix_secs: u64, now: Instant) {
        self.wall_clock = (now, unix_secs);
    }

    pub(crate) fn wall_secs(&self, now: Instant) -> u64 {
        let (at, secs) = self.wall_clock;
        secs + now.since(at).as_secs()
    }

    /// A deadline has come. To be called when [`Resolver::poll_timeout`] says so; too early does no harm.
    pub fn on_timeout(&mut self, now: Instant) {
        while let Some(timer) = self.timers.pop_due(now) {
            match timer {
                Timer::Wait(query) => self.on_wait_over(query, now),
                Timer::Patience(query) => self.close(query),
                Timer::Client(client) => self.on_client_timer(client, now),
                Timer::LookAgain(task) => self.on_look_again(task, now),
                Timer::Task(task) => self.on_task_deadline(task, now),
                Timer::Sweep => {
                    self.servers.sweep(now);
                    self.timers.set(now + SWEEP, Timer::Sweep);
                }
            }
            self.run_ready(now);
        }
    }

    /// When [`Resolver::on_timeout`] is to be called next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// The next query to send.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// The next answer for a client. Every question gets one, be it empty.
    pub fn poll_answer(&mut self) -> Option<Answer> {
        self.ready_answers.pop_front()
    }

    /// The next query that no response is wanted for any more: its socket may go.
    pub fn poll_closed(&mut self) -> Option<QueryId> {
        self.closed.pop_front()
    }

    /// The table of servers.
    #[must_use]
    pub fn servers(&self, now: Instant) -> Vec<ServerReport> {
        self.servers.report(now)
    }

    /// What was counted.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Entries of the cache, their octets, and how many left for want of room.
    #[must_use]
    pub fn cache_usage(&self) -> (usize, usize, u64) {
        self.cache.usage()
    }

    /// Questions being resolved, clients that wait, queries in flight.
    #[must_use]
    pub fn load(&self) -> [usize; 3] {
        [self.tasks.len(), self.clients.len(), self.in_flight.len()]
    }

    /// Writes answers and denials of the cache, for [`Resolver::restore`]; returns how many entries that were.
    pub fn save(&self, now: Instant, to: &mut impl Write) -> io::Result<usize> {
        self.cache.save(self.occasion(now), to)
    }

    /// Takes in what [`Resolver::save`] wrote; returns how many entries are still of use. The time that has passed is that of
    /// [`Resolver::on_wall_clock`]. `now` has to be later than the start of its clock by as much as entries may be old: older ones are left
    /// out.
    pub fn restore(&mut self, saved: &[u8], now: Instant) -> Result<usize, NotRestored> {
        self.cache.restore(saved, self.occasion(now))
    }

    fn occasion(&self, now: Instant) -> Occasion {
        Occasion { terms: self.terms(), unix_secs: self.wall_secs(now), now }
    }

    /// Stands for all that [`Resolver::reconfigure`] forgets entries for.
    fn terms(&self) -> u64 {
        let terms = (&self.options.dnssec, &self.zones.directed, &self.zones.trust);
        let mut hasher = SipHasher13::new();
        hasher.write(format!("{terms:?}").as_bytes());
        hasher.finish()
    }

    /// Drops what the cache has about `name`, or also below it, and every proof that names do not exist; returns how many entries that were.
    pub fn flush(&mut self, name: &NameBuf, scope: Scope) -> usize {
        self.gaps.clear();
        self.by_network.clear();
        self.cache.flush(name.as_name(), scope)
    }

    pub(crate) fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub(crate) fn transmit(&mut self, transmit: Transmit) {
        self.transmits.push_back(transmit);
    }

    /// Lets a query's socket go.
    pub(crate) fn close(&mut self, query: QueryId) {
        if let Some(upstream) = self.in_flight.remove(&query) {
            self.same.remove(query, &upstream);
            self.timers.cancel(upstream.wait_until, Timer::Wait(query));
            self.timers.cancel(upstream.patience_until, Timer::Patience(query));
            self.closed.push_back(query);
        }
    }

    /// Gives a client no answer.
    fn drop_client(&mut self, client: ClientId) {
        self.counters.dropped += 1;
        self.answer(client, Vec::new());
    }

    fn answer(&mut self, client: ClientId, octets: Vec<u8>) {
        self.ready_answers.push_back(Answer { client, octets });
    }
}

fn local_zones(options: &Options, zones: &Zones) -> LocalZones {
    if !options.local_zones {
        return LocalZones::default();
    }
    LocalZones::new(zones.directed.iter().map(|directed| directed.zone.as_name()))
}

#[cfg(test)]
mod saved_tests;
