//! Queries to servers: sent, waited for, answered.
//!
//! A response counts only if it comes from the server's address, with the ID, name, type and (with 0x20) the case of its query
//! (RFC 5452, 9.1), and with our cookie if it has one. Others are forgeries; after a few of them the query is repeated over TCP, as it is at once
//! if only the case is lost, or the cookie of a server that has sent one before. A query lives for `patience`, also when the next server has been asked: what comes late still measures its server. Tasks that ask a server
//! the same share one query.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use clock::{Duration, Instant};
use dns_guard::{CLIENT_COOKIE_LEN, COOKIE, COOKIE_MAX, client_cookie};
use dns_wire::header::flag::{OPCODE, QR, TC};
use dns_wire::{NameBuf, Rcode, Rtype};

use super::finish::WAITS_MAX;
use super::task::{Mode, Step, Task, TaskId, Waiter};
use crate::message::{CLIENT_SUBNET, Ede, Message, Question, UpstreamQuery, option, write_query};
use crate::resolver::{QueryId, Resolver, Timer, Transmit, Transport};
use crate::subnet::Subnet;

/// The task and the number of its step that a query is for.
type Asker = (TaskId, u64);

/// What makes two queries identical: server, transport, whether recursion is wanted, and the question in lower case.
type SameKey = (SocketAddr, Transport, bool, Question);

/// Identical queries in flight, the oldest first, at most [`SAME_MAX`] of each kind.
#[derive(Debug, Default)]
pub(crate) struct SameQueries {
    queries: BTreeMap<SameKey, Vec<QueryId>>,
    /// How many there are to each server.
    counts: BTreeMap<SocketAddr, usize>,
}

/// What a query is sent for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// A task's step.
    Asked,
    /// The same, to a server that seems not to understand EDNS.
    WithoutEdns,
    /// To measure the server.
    Probe,
}

/// Whoever guesses answers has a chance with each copy of a query that is open (the birthday attack): one that is waited for, and one
/// that may still answer late.
const SAME_MAX: usize = 2;

/// A query in flight.
#[derive(Debug)]
pub(crate) struct Upstream {
    /// Whom it is for; nobody if it measures the server.
    askers: Vec<Asker>,
    pub(crate) server: SocketAddr,
    transport: Transport,
    recursion: bool,
    id: u16,
    /// In the case in which it was sent.
    name: NameBuf,
    rtype: Rtype,
    pub(super) had_edns: bool,
    /// The cookie that was sent: our part, and the server's if it was known.
    cookie: Option<Vec<u8>>,
    /// Where those who ask are; the server was told if the query had EDNS.
    subnet: Option<Subnet>,
    sent: Instant,
    /// When the next server is asked.
    pub(crate) wait_until: Instant,
    /// When a response is no longer taken.
    pub(crate) patience_until: Instant,
    /// The wait is over.
    is_late: bool,
    forgeries: u8,
}

/// Whether octets are the answer to a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Judgement {
    Genuine,
    /// All is right but the case of the name.
    CaseLost,
    /// All is right, but the server sent cookies before.
    CookieLost,
    Forged,
}

/// FORMERR, SERVFAIL, NOTIMP, REFUSED and BADVERS: servers send them without a question. None of them says anything about a name.
const ERRORS_WITHOUT_QUESTION: [u16; 5] = [1, 2, 4, 5, 16];
/// A connection takes a round trip more, and its first packet is repeated only after a second (RFC 6298, 2.1).
const TCP_WAIT_MIN: Duration = Duration::from_millis(1500);

impl Resolver {
    /// Sends the question of a task's step to `server`, or joins the query of another task that asks the same. False if a bound is
    /// reached.
    pub(crate) fn ask(&mut self, id: TaskId, server: SocketAddr, transport: Transport, now: Instant) -> bool {
        let Some(task) = self.tasks.get(&id) else { return false };
        let Some(step) = &task.step else { return false };
        let (asker, tries) = ((id, step.number), step.tries_of(server));
        let subnet = self.subnet_for(task, step, server);
        let question = Question { subnet, ..Question::new(step.qname.as_name(), step.rtype) };
        let key = (server, transport, step.zone.mode == Mode::Forward, question);
        let without_edns = step.without_edns.contains(&server);
        let joined = self.in_flight_for(&key).filter(|_| !without_edns);
        let is_full = joined.is_none() && !self.has_room(server);
        if is_full || !task.account.take() {
            self.note_bound(id, is_full);
            return false;
        }
        let query = match joined {
            Some(query) => query,
            None => self.send_for_step(key, tries, without_edns, now),
        };
        self.in_flight.get_mut(&query).expect("it was just found or sent").askers.push(asker);
        let step = self.tasks.get_mut(&id).and_then(|task| task.step.as_mut());
        step.expect("it is there").on_sent(server, query, now);
        true
    }

    /// Where those who ask are, if a server of the step is told: of zones that the user names, about the whole name, and not about what is the
    /// same for all (RFC 7871, 7.2.1 and 11.1).
    fn subnet_for(&self, task: &Task, step: &Step, server: SocketAddr) -> Option<Subnet> {
        let is_for_all = matches!(step.rtype, Rtype::NS | Rtype::SOA | Rtype::DS | Rtype::DNSKEY);
        if is_for_all || step.is_minimised || step.without_edns.contains(&server) {
            return None;
        }
        let is_told = |zone: &NameBuf| step.qname.as_name().ends_with(zone.as_name());
        task.question.subnet.filter(|_| self.zones.by_network.iter().any(is_told))
    }

    /// The query like `key` whose wait is not over.
    fn in_flight_for(&self, key: &SameKey) -> Option<QueryId> {
        let newest = *self.same.like(key).last()?;
        self.in_flight.get(&newest).filter(|upstream| !upstream.is_late).map(|_| newest)
    }

    /// Whether one more query may be in flight to a server. One that has not answered its last query, or none yet, gets few: else the questions
    /// for one dead zone would take the places of all others.
    pub(super) fn has_room(&self, server: SocketAddr) -> bool {
        let limits = &self.options.limits;
        let is_proven = self.servers.is_proven(server);
        let max = if is_proven { limits.in_flight_per_server_max } else { limits.in_flight_to_silent_max };
        self.in_flight.len() < limits.in_flight_max && self.same.count_to(server) < max
    }

    /// Sends a query like `key`. If as many as may be are in flight, the newest of them gives way: the oldest may come from a slow server.
    fn send_for_step(&mut self, key: SameKey, tries: u8, without_edns: bool, now: Instant) -> QueryId {
        if let Some(newest) = self.same.like(&key).get(SAME_MAX - 1) {
            self.close(*newest);
        }
        let why = if without_edns { Why::WithoutEdns } else { Why::Asked };
        let query = self.send(&key, tries, why, now);
        self.same.add(query, key);
        query
    }

    /// Measures those of `addresses` that it is time for, apart from those that are asked anyway: by a question for the zone's SOA.
    pub(crate) fn probe(
        &mut self,
        zone: &NameBuf,
        addresses: &[SocketAddr],
        asked: &[SocketAddr],
        now: Instant,
    ) {
        for server in self.servers.due_probes(addresses, asked, now) {
            if self.in_flight.len() >= self.options.limits.in_flight_max {
                return;
            }
            self.counters.probes += 1;
            let question = Question::new(zone.as_name(), Rtype::SOA);
            self.send(&(server, Transport::Udp, false, question), 0, Why::Probe, now);
        }
    }

    fn send(&mut self, key: &SameKey, tries: u8, why: Why, now: Instant) -> QueryId {
        let &(server, transport, recursion, Question { ref name, rtype, subnet, .. }) = key;
        let mut name = name.clone();
        if self.options.mixed_case {
            name = self.mix_case(&name);
        }
        let id = self.random.draw() as u16;
        let had_edns = why != Why::WithoutEdns && self.servers.takes_edns(server, now);
        let payload = had_edns.then_some(self.options.udp_payload_max);
        let cookie = (had_edns && self.options.cookies).then(|| self.cookie(server));
        let mut options = cookie.as_ref().map_or(Vec::new(), |cookie| option(COOKIE, cookie));
        if let Some(subnet) = subnet.filter(|_| had_edns) {
            options.extend(option(CLIENT_SUBNET, &subnet.write(0)));
            self.counters.upstream_subnets += 1;
        }
        let dnssec_ok = self.zones.trust.is_on();
        let octets = write_query(&UpstreamQuery {
            id,
            name: name.as_name().as_bytes(),
            rtype,
            recursion,
            payload,
            dnssec_ok,
            options: &options,
        });
        let mut wait = self.servers.timeout(server, tries, now);
        if transport == Transport::Tcp {
            wait = TCP_WAIT_MIN.max(wait * 3);
            self.counters.upstream_tcp += 1;
        }
        let query = QueryId(self.new_id());
        let (wait_until, patience_until) = (now + wait, now + self.options.selection.patience.max(wait));
        self.timers.set(wait_until, Timer::Wait(query));
        self.timers.set(patience_until, Timer::Patience(query));
        self.servers.on_sent(server, why == Why::Probe, now);
        self.counters.upstream_queries += 1;
        let upstream = Upstream {
            askers: Vec::new(),
            server,
            transport,
            recursion,
            id,
            name,
            rtype,
            had_edns,
            cookie,
            subnet,
            sent: now,
            wait_until,
            patience_until,
            is_late: false,
            forgeries: 0,
        };
        self.in_flight.insert(query, upstream);
        self.transmit(Transmit { query, server, transport, octets });
        query
    }

    /// The cookie for a server: our part, and its own if it has sent one (RFC 7873, 5.1).
    fn cookie(&self, server: SocketAddr) -> Vec<u8> {
        let ours = client_cookie(self.cookie_secret, server.ip());
        [&ours[..], self.servers.cookie(server).unwrap_or_default()].concat()
    }

    /// Random case for every letter, one bit each.
    fn mix_case(&mut self, name: &NameBuf) -> NameBuf {
        let mut wire = name.as_name().as_bytes().to_vec();
        let (mut bits, mut left) = (0, 0);
        for octet in &mut wire {
            if left == 0 {
                (bits, left) = (self.random.draw(), 64);
            }
            if octet.is_ascii_alphabetic() && bits & 1 == 1 {
                *octet ^= 0x20; // Length octets are below 64 and so never letters.
            }
            (bits, left) = (bits >> 1, left - 1);
        }
        dns_wire::Name::from_wire(&wire).map_or_else(|_| name.clone(), NameBuf::from)
    }

    /// The wait for a query's answer is over: the server counts as silent, and the task goes on with another one.
    pub(crate) fn on_wait_over(&mut self, query: QueryId, now: Instant) {
        let Some(upstream) = self.in_flight.get_mut(&query) else { return };
        self.counters.timeouts += 1;
        match upstream.transport {
            Transport::Udp => self.servers.on_loss(upstream.server, now),
            Transport::Tcp => self.servers.on_tcp_failed(upstream.server, now),
        }
        self.end_wait(query, now);
    }

    /// The tasks of a query go on with another server.
    fn end_wait(&mut self, query: QueryId, now: Instant) {
        let Some(upstream) = self.in_flight.get_mut(&query) else { return };
        upstream.is_late = true;
        let askers = upstream.askers.clone();
        for (id, number) in askers {
            let Some(step) = self.current_step(id, number) else { continue };
            step.waiting.retain(|other| *other != query);
            step.losses += 1;
            self.pursue(id, now);
            self.check_hope(id, 0, now);
        }
    }

    /// A query could not be sent, for a want of this host: that says nothing about its server.
    pub fn on_not_sent(&mut self, query: QueryId, now: Instant) {
        self.end_wait(query, now);
        self.close(query);
        self.run_ready(now);
    }

    /// The network, or the server's host, says that a query cannot arrive.
    pub fn on_unreachable(&mut self, query: QueryId, now: Instant) {
        if self.in_flight.get(&query).is_some_and(|upstream| !upstream.is_late) {
            self.on_wait_over(query, now);
        }
        self.close(query);
        self.run_ready(now);
    }

    /// Serves expired data to clients of a task, and of those that wait for it, whose time has come.
    fn check_hope(&mut self, id: TaskId, depth: u8, now: Instant) {
        self.serve_stale_if_hopeless(id, now);
        let Some(task) = self.tasks.get(&id) else { return };
        let parents = task.waiters.iter().filter_map(|waiter| match waiter {
            Waiter::Task(parent) => Some(*parent),
            Waiter::Client(_) => None,
        });
        for parent in parents.collect::<Vec<_>>() {
            if depth < WAITS_MAX {
                self.check_hope(parent, depth + 1, now);
            }
        }
    }

    /// Octets came for a query, from `from`. Anything may come.
    pub fn on_response(&mut self, query: QueryId, from: SocketAddr, octets: &[u8], now: Instant) {
        let Some(upstream) = self.in_flight.get_mut(&query) else { return };
        let message = Message::parse(octets);
        match upstream.judge(from, octets, message.as_ref(), self.options.mixed_case) {
            Judgement::Genuine => {}
            Judgement::CaseLost => return self.repeat_over_tcp(query, now),
            Judgement::CookieLost => {
                self.counters.cookies_lost += 1;
                return self.repeat_over_tcp(query, now);
            }
            Judgement::Forged => {
                upstream.forgeries = upstream.forgeries.saturating_add(1);
                self.counters.forgeries += 1;
                if upstream.forgeries == self.options.limits.forgeries_max {
                    self.repeat_over_tcp(query, now);
                }
                return;
            }
        }
        let (server, transport, is_late) = (upstream.server, upstream.transport, upstream.is_late);
        let (askers, had_edns) = (std::mem::take(&mut upstream.askers), upstream.had_edns);
        let had_cookie = upstream.cookie.take();
        let scope = upstream
            .subnet
            .filter(|_| had_edns)
            .zip(message.as_ref())
            .and_then(|(subnet, message)| scope(subnet, message));
        let round_trips = if transport == Transport::Tcp { 2 } else { 1 };
        let rtt = now.since(upstream.sent) / round_trips;
        self.servers.on_answer(server, rtt, is_late, now);
        if transport == Transport::Tcp {
            self.servers.on_tcp_answer(server, now);
        }
        if had_cookie.is_some()
            && let Some(message) = &message
        {
            self.servers.on_cookie(server, message.cookie.as_deref().and_then(server_part), now);
        }
        self.close(query);
        let is_bad_cookie = had_cookie.is_some() && message.as_ref().is_some_and(is_bad_cookie);
        let is_truncated = octets.get(2).is_some_and(|high| u16::from(*high) << 8 & TC != 0);
        for (id, number) in askers {
            let Some(step) = self.current_step(id, number) else { continue };
            step.waiting.retain(|other| *other != query);
            if self.tasks[&id].checking.is_some() {
                continue; // Another server's response is being validated.
            }
            match &message {
                _ if is_truncated && transport == Transport::Udp => self.go_to_tcp(id, server, now),
                _ if is_bad_cookie && transport == Transport::Udp => self.on_bad_cookie(id, server, now),
                Some(message) => self.on_message(id, server, message, (had_edns, scope), now),
                None => self.on_useless(id, server, Ede::INVALID_DATA, now),
            }
        }
        self.run_ready(now);
    }

    /// A server wants the cookie that it has just sent. One that is not content with that gets no third try: over TCP it needs none
    /// (RFC 7873, 5.3).
    fn on_bad_cookie(&mut self, id: TaskId, server: SocketAddr, now: Instant) {
        let tries = self.tasks.get(&id).and_then(|task| task.step.as_ref()).map(|step| step.tries_of(server));
        if tries.is_none_or(|tries| tries > 1) || !self.ask(id, server, Transport::Udp, now) {
            self.go_to_tcp(id, server, now);
        }
    }

    /// Somebody may be guessing: over TCP they would have to guess sequence numbers, too.
    fn repeat_over_tcp(&mut self, query: QueryId, now: Instant) {
        let Some(upstream) = self.in_flight.get_mut(&query) else { return };
        let (server, transport) = (upstream.server, upstream.transport);
        let askers = std::mem::take(&mut upstream.askers);
        self.close(query);
        for (id, number) in askers {
            let Some(step) = self.current_step(id, number) else { continue };
            step.waiting.retain(|other| *other != query);
            match transport {
                Transport::Udp => self.go_to_tcp(id, server, now),
                Transport::Tcp => self.on_useless(id, server, Ede::INVALID_DATA, now),
            }
        }
        self.run_ready(now);
    }

    /// The answer does not fit a datagram (RFC 7766, 5). A server that failed over TCP is asked all the same if there is no other.
    fn go_to_tcp(&mut self, id: TaskId, server: SocketAddr, now: Instant) {
        let candidates = self.tasks.get(&id).and_then(|task| task.step.as_ref()).map(Step::candidates);
        let has_other = candidates.is_some_and(|all| all.iter().any(|other| other.address != server));
        let is_worthwhile = !has_other || self.servers.takes_tcp(server, now);
        if !is_worthwhile || !self.ask(id, server, Transport::Tcp, now) {
            self.on_useless(id, server, Ede::NO_REACHABLE_AUTHORITY, now);
        }
    }

    /// The step of a task, if it is still the one of that number.
    pub(super) fn current_step(&mut self, id: TaskId, number: u64) -> Option<&mut Step> {
        let step = self.tasks.get_mut(&id)?.step.as_mut()?;
        (step.number == number).then_some(step)
    }
}

impl SameQueries {
    /// A query is no longer in flight.
    pub(crate) fn remove(&mut self, query: QueryId, upstream: &Upstream) {
        let question =
            Question { subnet: upstream.subnet, ..Question::new(upstream.name.as_name(), upstream.rtype) };
        let key = (upstream.server, upstream.transport, upstream.recursion, question);
        let Some(copies) = self.queries.get_mut(&key) else { return };
        let before = copies.len();
        copies.retain(|other| *other != query);
        let removed = before - copies.len();
        if copies.is_empty() {
            self.queries.remove(&key);
        }
        if let Some(count) = self.counts.get_mut(&upstream.server) {
            *count -= removed;
            if *count == 0 {
                self.counts.remove(&upstream.server);
            }
        }
    }

    fn add(&mut self, query: QueryId, key: SameKey) {
        *self.counts.entry(key.0).or_default() += 1;
        self.queries.entry(key).or_default().push(query);
    }

    fn like(&self, key: &SameKey) -> &[QueryId] {
        self.queries.get(key).map_or(&[], Vec::as_slice)
    }

    fn count_to(&self, server: SocketAddr) -> usize {
        self.counts.get(&server).copied().unwrap_or(0)
    }
}

impl Upstream {
    /// Judges octets by who sent them and what they repeat of this query. Those that cannot be read are genuine if the ID is right: the
    /// server sends nonsense.
    fn judge(
        &self,
        from: SocketAddr,
        octets: &[u8],
        message: Option<&Message>,
        exact_case: bool,
    ) -> Judgement {
        let id = octets.first_chunk::<2>().map(|id| u16::from_be_bytes(*id));
        let flags = octets.get(2..4).map_or(0, |flags| u16::from_be_bytes([flags[0], flags[1]]));
        if from != self.server || id != Some(self.id) || flags & (QR | OPCODE) != QR {
            return Judgement::Forged;
        }
        let Some(message) = message else { return Judgement::Genuine };
        let Some(question) = &message.question else {
            let may_lack_it = ERRORS_WITHOUT_QUESTION.contains(&message.rcode);
            return if may_lack_it { Judgement::Genuine } else { Judgement::Forged };
        };
        let same_case = question.name.as_name().as_bytes() == self.name.as_name().as_bytes();
        if question.rtype != self.rtype || question.name != self.name {
            Judgement::Forged
        } else if exact_case && !same_case && self.transport == Transport::Udp {
            Judgement::CaseLost
        } else if self.is_for_another_network(message) {
            Judgement::Forged
        } else {
            self.judge_cookie(message)
        }
    }

    /// RFC 7871, 7.3: an answer repeats the network of its query.
    fn is_for_another_network(&self, message: &Message) -> bool {
        let Some((sent, data)) = self.subnet.filter(|_| self.had_edns).zip(message.subnet.as_deref()) else {
            return false;
        };
        Subnet::read(data).is_none_or(|(subnet, _)| subnet != sent)
    }

    /// RFC 7873, 5.3: an answer with another client's cookie is a forgery, and so may be one without a cookie of a server that has them.
    fn judge_cookie(&self, message: &Message) -> Judgement {
        let Some((ours, theirs)) =
            self.cookie.as_ref().and_then(|sent| sent.split_at_checked(CLIENT_COOKIE_LEN))
        else {
            return Judgement::Genuine;
        };
        match &message.cookie {
            Some(cookie) if !cookie.starts_with(ours) || cookie.len() > COOKIE_MAX => Judgement::Forged,
            None if !theirs.is_empty() && self.transport == Transport::Udp => Judgement::CookieLost,
            _ => Judgement::Genuine,
        }
    }
}

/// The network that a response is for, to a query that told `sent`: none if it is for all. What the server says of a smaller one, we do not know
/// to be in it (RFC 7871, 7.3.1).
fn scope(sent: Subnet, message: &Message) -> Option<Subnet> {
    if sent == Subnet::NOWHERE {
        return Some(sent);
    }
    let (_, scope) = Subnet::read(message.subnet.as_deref()?)?;
    (scope > 0).then(|| Subnet::new(sent.address(), scope.min(sent.length())))
}

/// The server's part of a cookie, which has 8 to 32 octets.
fn server_part(cookie: &[u8]) -> Option<&[u8]> {
    cookie.get(CLIENT_COOKIE_LEN..).filter(|part| part.len() >= 8)
}

fn is_bad_cookie(message: &Message) -> bool {
    message.rcode == Rcode::BadCookie as u16 && message.cookie.as_deref().and_then(server_part).is_some()
}
