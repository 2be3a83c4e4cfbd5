//! Queries to servers: sent, waited for, answered.
//!
//! A response counts only if it comes from the server's address, with the ID, name, type and (with 0x20) the case of its query
//! (RFC 5452, 9.1). Others are forgeries; after a few of them the query is repeated over TCP, as it is at once if only the case is lost. A
//! query lives for `patience`, also when the next server has been asked: what comes late still measures its server.

use std::net::SocketAddr;

use clock::{Duration, Instant};
use dns_wire::header::flag::{OPCODE, QR, TC};
use dns_wire::{NameBuf, Rtype};

use super::task::{Mode, TaskId, Waiter};
use crate::message::{Ede, Message, UpstreamQuery, write_query};
use crate::resolver::{QueryId, Resolver, Timer, Transmit, Transport};

/// What a query is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// A step of a task.
    Step(TaskId, u64),
    /// To measure the server.
    Probe,
}

/// A query in flight.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(super) purpose: Use,
    pub(crate) server: SocketAddr,
    transport: Transport,
    id: u16,
    /// In the case in which it was sent.
    name: NameBuf,
    rtype: Rtype,
    pub(super) had_edns: bool,
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
    Forged,
}

/// A connection takes a round trip more, and a server's backlog some time.
const TCP_WAIT_MIN: Duration = Duration::from_millis(500);

impl Resolver {
    /// Sends the question of a task's step to `server`. False if a bound is reached.
    pub(crate) fn ask(&mut self, id: TaskId, server: SocketAddr, transport: Transport, now: Instant) -> bool {
        let Some(task) = self.tasks.get(&id) else { return false };
        let Some(step) = &task.step else { return false };
        if self.in_flight.len() >= self.options.limits.in_flight_max || !task.account.take() {
            return false;
        }
        let (name, rtype, recursion) = (step.qname.clone(), step.rtype, step.zone.mode == Mode::Forward);
        let (purpose, tries) = (Use::Step(id, step.number), step.tries_of(server));
        let query = self.send(purpose, server, transport, (name, rtype, recursion), tries, now);
        let step = self.tasks.get_mut(&id).and_then(|task| task.step.as_mut());
        step.expect("it is there").on_sent(server, query, now);
        true
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
            self.send(Use::Probe, server, Transport::Udp, (zone.clone(), Rtype::SOA, false), 0, now);
        }
    }

    fn send(
        &mut self,
        purpose: Use,
        server: SocketAddr,
        transport: Transport,
        (mut name, rtype, recursion): (NameBuf, Rtype, bool),
        tries: u8,
        now: Instant,
    ) -> QueryId {
        if self.options.mixed_case {
            name = self.mix_case(&name);
        }
        let id = self.random.draw() as u16;
        let had_edns = self.servers.takes_edns(server, now);
        let payload = had_edns.then_some(self.options.udp_payload_max);
        let octets =
            write_query(&UpstreamQuery { id, name: name.as_name().as_bytes(), rtype, recursion, payload });
        let mut wait = self.servers.timeout(server, tries, now);
        if transport == Transport::Tcp {
            wait = TCP_WAIT_MIN.max(wait * 3);
            self.counters.upstream_tcp += 1;
        }
        let query = QueryId(self.new_id());
        let (wait_until, patience_until) = (now + wait, now + self.options.selection.patience.max(wait));
        self.timers.set(wait_until, Timer::Wait(query));
        self.timers.set(patience_until, Timer::Patience(query));
        self.servers.on_sent(server, purpose == Use::Probe, now);
        self.counters.upstream_queries += 1;
        let upstream = Upstream {
            purpose,
            server,
            transport,
            id,
            name,
            rtype,
            had_edns,
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
        upstream.is_late = true;
        let (server, transport, purpose) = (upstream.server, upstream.transport, upstream.purpose);
        self.counters.timeouts += 1;
        match transport {
            Transport::Udp => self.servers.on_loss(server, now),
            Transport::Tcp => self.servers.on_tcp_failed(server, now),
        }
        let Use::Step(id, number) = purpose else { return };
        let Some(step) = self.current_step(id, number) else { return };
        step.waiting.retain(|other| *other != query);
        step.losses += 1;
        self.pursue(id, now);
        self.check_hope(id, 0, now);
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
            if depth < self.options.limits.depth_max {
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
        let (purpose, had_edns) = (upstream.purpose, upstream.had_edns);
        let round_trips = if transport == Transport::Tcp { 2 } else { 1 };
        let rtt = now.since(upstream.sent) / round_trips;
        self.servers.on_answer(server, rtt, is_late, now);
        self.close(query);
        if let Use::Step(id, number) = purpose
            && let Some(step) = self.current_step(id, number)
        {
            step.waiting.retain(|other| *other != query);
            let is_truncated = message.as_ref().is_some_and(|message| message.flags & TC != 0);
            match message {
                Some(_) if is_truncated && transport == Transport::Udp => self.go_to_tcp(id, server, now),
                Some(message) => self.on_message(id, server, &message, had_edns, now),
                None => self.on_useless(id, server, Ede::INVALID_DATA, now),
            }
        }
        self.run_ready(now);
    }

    /// Somebody may be guessing: over TCP they would have to guess sequence numbers, too.
    fn repeat_over_tcp(&mut self, query: QueryId, now: Instant) {
        let Some(upstream) = self.in_flight.get(&query) else { return };
        let (purpose, server, transport) = (upstream.purpose, upstream.server, upstream.transport);
        self.close(query);
        if let Use::Step(id, number) = purpose
            && let Some(step) = self.current_step(id, number)
        {
            step.waiting.retain(|other| *other != query);
            match transport {
                Transport::Udp => self.go_to_tcp(id, server, now),
                Transport::Tcp => self.on_useless(id, server, Ede::INVALID_DATA, now),
            }
        }
        self.run_ready(now);
    }

    /// The answer does not fit a datagram (RFC 7766, 5).
    fn go_to_tcp(&mut self, id: TaskId, server: SocketAddr, now: Instant) {
        if !self.servers.takes_tcp(server, now) || !self.ask(id, server, Transport::Tcp, now) {
            self.on_useless(id, server, Ede::NO_REACHABLE_AUTHORITY, now);
        }
    }

    /// The step of a task, if it is still the one of that number.
    pub(super) fn current_step(&mut self, id: TaskId, number: u64) -> Option<&mut super::task::Step> {
        let step = self.tasks.get_mut(&id)?.step.as_mut()?;
        (step.number == number).then_some(step)
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
            // Some errors repeat no question.
            return if flags & 0xf != 0 { Judgement::Genuine } else { Judgement::Forged };
        };
        let same_case = question.name.as_name().as_bytes() == self.name.as_name().as_bytes();
        if question.rtype != self.rtype || question.name != self.name {
            Judgement::Forged
        } else if exact_case && !same_case && self.transport == Transport::Udp {
            Judgement::CaseLost
        } else {
            Judgement::Genuine
        }
    }
}
