//! Questions of clients, and their answers.

use std::sync::Arc;

use clock::{Duration, Instant};
use dns_wire::query::QueryError;
use dns_wire::{Class, Name, NameBuf, Query, Rcode, Rtype, header};

use super::timers::Timer;
use super::{ClientId, Known, Refusal, Resolver, Terms, Transport};
use crate::cache::{Content, Failure, Kind, Source};
use crate::dns64::Translation;
use crate::dnssec::Security;
use crate::iterator::task::{Outcome, Purpose, TaskId, Waiter};
use crate::local_zones::LocalAnswer;
use crate::message::{
    AnswerHead, Ede, Question, Rdatas, Rrset, Section, Written, flag, write_answer, write_error,
};
use crate::stale;
use crate::subnet::Subnet;

/// A client that waits.
#[derive(Debug)]
pub(crate) struct Client {
    to: Addressee,
    /// What is resolved for it.
    question: Question,
    pub(crate) task: TaskId,
    /// When expired data is considered; `None` if there is none.
    stale_at: Option<Instant>,
    /// That time has come.
    pub(crate) timer_passed: bool,
}

/// How a client is answered.
#[derive(Debug)]
struct Addressee {
    head: AnswerHead,
    translation: Translation,
}

/// What a client is answered.
struct Reply {
    outcome: Outcome,
    is_stale: bool,
    /// The shortest-lived part is near its end.
    is_ending: bool,
    /// What each set comes from, if all come from one entry each.
    sources: Option<Vec<Source>>,
}

/// How often hope is looked for again once the client timer has passed.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// The largest message over TCP.
pub(super) const TCP_MAX: usize = 65_535;
/// What a client without EDNS takes over UDP (RFC 1035, 4.2.1).
const UDP_MIN: usize = 512;

impl Resolver {
    /// A client asks. The answer comes from [`Resolver::poll_answer`], now or later; it is empty for octets that are no query.
    pub fn on_query(&mut self, client: ClientId, terms: impl Into<Terms>, octets: &[u8], now: Instant) {
        self.counters.client_queries += 1;
        let terms = terms.into();
        match Query::parse(octets) {
            Ok(query) => {
                let to_keep = Some(octets).filter(|_| terms.are_plain() && self.options.dns64.is_none());
                let subnet = terms.subnet.filter(|_| !self.zones.by_network.is_empty());
                let head = self.head(terms, octets, Some(&query));
                self.on_question(client, &query, octets, (head, subnet), to_keep, now);
            }
            Err(QueryError::Short | QueryError::Response) => self.drop_client(client),
            Err(error) => {
                self.counters.malformed += 1;
                let query = Query::parse_malformed(octets);
                let head = self.head(terms, octets, query.as_ref());
                let rcode = if error == QueryError::Opcode { Rcode::NotImp } else { Rcode::FormErr };
                self.answer(client, write_error(&head, rcode, None));
            }
        }
        self.run_ready(now);
    }

    /// Answers a client without a look at what it asks.
    pub fn refuse(&mut self, client: ClientId, terms: impl Into<Terms>, octets: &[u8], refusal: Refusal) {
        self.counters.refused += 1;
        let Ok(query) = Query::parse(octets) else { return self.drop_client(client) };
        let mut head = self.head(terms.into(), octets, Some(&query));
        let (rcode, ede) = match refusal {
            Refusal::Prohibited => (Rcode::Refused, Some(Ede::PROHIBITED)),
            Refusal::BadCookie => (Rcode::BadCookie, None),
            Refusal::Malformed => (Rcode::FormErr, None),
            Refusal::Truncated => {
                head.flags |= header::flag::TC;
                (Rcode::NoError, None)
            }
        };
        self.answer(client, write_error(&head, rcode, ede));
    }

    fn head(&self, terms: Terms, octets: &[u8], query: Option<&Query>) -> AnswerHead {
        let ours = self.options.udp_payload_max;
        let theirs = query.and_then(|query| query.edns).map_or(0, |edns| usize::from(edns.payload_size));
        let limit = match terms.transport {
            Transport::Udp => theirs.clamp(UDP_MIN, usize::from(ours).max(UDP_MIN)),
            Transport::Tcp => TCP_MAX,
        };
        let head = AnswerHead::new(octets, query, limit.min(terms.limit), ours);
        AnswerHead { options: terms.options, block: terms.block.into(), ..head }
    }

    fn on_question(
        &mut self,
        client: ClientId,
        query: &Query,
        octets: &[u8],
        (head, subnet): (AnswerHead, Option<Subnet>),
        to_keep: Option<&[u8]>,
        now: Instant,
    ) {
        if let Some((rcode, ede)) = refusal(query) {
            self.counters.refused += 1;
            return self.answer(client, write_error(&head, rcode, ede));
        }
        let name = query.qname(octets);
        if query.qtype == Rtype::ANY {
            return self.answer(client, minimal_any(&head, name));
        }
        let is_unchecked = head.checking_disabled() && self.zones.trust.is_on();
        let question = Question { is_unchecked, subnet, ..Question::new(name, query.qtype) };
        let reverse = self.options.dns64.and_then(|dns64| dns64.reverse(&question));
        let (question, translation) = reverse.unwrap_or((question, Translation::None));
        self.answer_or_resolve(client, Addressee { head, translation }, question, to_keep, now);
    }

    /// Answers by what is known here, or lets the client wait. An answer by the cache is kept for the query `to_keep`.
    fn answer_or_resolve(
        &mut self,
        client: ClientId,
        to: Addressee,
        question: Question,
        to_keep: Option<&[u8]>,
        now: Instant,
    ) {
        if let Some(answer) = self.local.answer(question.name.as_name(), question.rtype) {
            let outcome = match answer {
                LocalAnswer::Records(set) => Outcome::Answer(vec![*set]),
                LocalAnswer::NoData(soa) => Outcome::NoData(Vec::new(), Some(soa)),
                LocalAnswer::NoName(soa) => Outcome::NoName(Vec::new(), Some(soa)),
            };
            return self.tell(client, to, &question, &outcome, false, now);
        }
        if let Some(reply) = self.known_reply(&question, false, now) {
            self.counters.cache_hits += 1;
            if reply.is_ending {
                self.prefetch(&question, now);
            } else if let Some((query, sources)) = to_keep.zip(reply.sources) {
                let written = self.write_reply(&to.head, &reply.outcome, false);
                self.keep_answer(query, &written, sources);
                return self.answer(client, written.octets);
            }
            return self.tell(client, to, &question, &reply.outcome, false, now);
        }
        match self.known_failure(&question, now) {
            Some(failure) => self.answer_failure(client, to, &question, &failure, now),
            None => self.resolve(client, to, question, now),
        }
    }

    /// Answers with `outcome`, or goes on with the question that takes its place.
    fn tell(
        &mut self,
        client: ClientId,
        to: Addressee,
        question: &Question,
        outcome: &Outcome,
        is_stale: bool,
        now: Instant,
    ) {
        let Some(dns64) = self.options.dns64 else {
            return self.send_reply(client, &to.head, outcome, is_stale);
        };
        if let Some((question, translation)) = dns64.fall_back(question, outcome) {
            return self.answer_or_resolve(client, Addressee { translation, ..to }, question, None, now);
        }
        self.send_reply(client, &to.head, &dns64.apply(&to.translation, outcome), is_stale);
    }

    /// Lets a client wait for the resolution of its question, which others may wait for already.
    fn resolve(&mut self, client: ClientId, to: Addressee, question: Question, now: Instant) {
        if self.clients.len() >= self.options.limits.clients_max {
            return self.answer(client, write_error(&to.head, Rcode::ServFail, Some(Ede::OTHER)));
        }
        let Some(task) = self.start_task(&question, Purpose::Asked, None, now) else {
            return self.answer(client, write_error(&to.head, Rcode::ServFail, Some(Ede::OTHER)));
        };
        let limit = self.options.limits.clients_per_question_max;
        let waiters = &mut self.tasks.get_mut(&task).expect("it was just started").waiters;
        if waiters.len() >= limit {
            return self.drop_client(client); // Enough of them will ask again.
        }
        waiters.push(Waiter::Client(client));
        let stale_at = self.stale_at(&question, now);
        if let Some(at) = stale_at {
            self.timers.set(at, Timer::Client(client));
        }
        self.clients.insert(client, Client { to, question, task, stale_at, timer_passed: false });
    }

    /// When a client may get expired data, if there is any.
    fn stale_at(&mut self, question: &Question, now: Instant) -> Option<Instant> {
        if !self.options.stale.enabled {
            return None;
        }
        self.known_reply(question, true, now)?;
        let zone = self.find_zone(question.name.as_name(), question.rtype, now);
        let best = self.servers.best_rtt(&zone.addresses);
        Some(now + stale::client_timer(&self.options.stale, best))
    }

    /// A client has waited for long: all servers that are left are asked, and if that is hopeless, it gets expired data.
    pub(super) fn on_client_timer(&mut self, id: ClientId, now: Instant) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        (client.timer_passed, client.stale_at) = (true, None);
        let task = client.task;
        self.hurry(task, now);
        self.serve_stale_if_hopeless(task, now);
        if self.clients.contains_key(&id) {
            self.set_look_again(task, now);
        }
    }

    /// Hope is looked for again, for all clients of a task whose time has come.
    pub(super) fn on_look_again(&mut self, id: TaskId, now: Instant) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        task.look_again = None;
        self.serve_stale_if_hopeless(id, now);
        self.set_look_again(id, now);
    }

    fn set_look_again(&mut self, id: TaskId, now: Instant) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        if task.look_again.is_none() && !task.waiters.is_empty() {
            task.look_again = Some(now + LOOK_AGAIN);
            self.timers.set(now + LOOK_AGAIN, Timer::LookAgain(id));
        }
    }

    /// Answers with expired data those clients of a task whose time has come, if nothing better is to be expected.
    pub(crate) fn serve_stale_if_hopeless(&mut self, task: TaskId, now: Instant) {
        if !self.is_hopeless(task, 0, now) {
            return;
        }
        let Some(waiters) = self.tasks.get(&task).map(|task| &task.waiters) else { return };
        let due = |waiter: &Waiter| match waiter {
            Waiter::Client(id) => self.clients.get(id).filter(|client| client.timer_passed).map(|_| *id),
            Waiter::Task(_) => None,
        };
        let due: Vec<ClientId> = waiters.iter().filter_map(due).collect();
        for id in due {
            let question = self.clients[&id].question.clone();
            if let Some(reply) = self.known_reply(&question, true, now) {
                self.finish_client(id, &reply.outcome, reply.is_stale, now);
            }
        }
        let clients = &self.clients;
        // Some have been answered, and some wait for another task now.
        let waits = |id: &ClientId| clients.get(id).is_some_and(|client| client.task == task);
        if let Some(task) = self.tasks.get_mut(&task) {
            task.waiters.retain(|waiter| match waiter {
                Waiter::Client(id) => waits(id),
                Waiter::Task(_) => true,
            });
        }
    }

    /// The question of a client is resolved, or has failed: then expired data is the answer, if there is any.
    pub(crate) fn on_resolved(&mut self, id: ClientId, outcome: &Outcome, now: Instant) {
        let Some(client) = self.clients.get(&id) else { return };
        let question = client.question.clone();
        if matches!(outcome, Outcome::Failed(ede) if !ede.is_bogus())
            && self.options.stale.enabled
            && let Some(reply) = self.known_reply(&question, true, now)
        {
            return self.finish_client(id, &reply.outcome, reply.is_stale, now);
        }
        self.finish_client(id, outcome, false, now);
    }

    fn finish_client(&mut self, id: ClientId, outcome: &Outcome, is_stale: bool, now: Instant) {
        let Some(client) = self.clients.remove(&id) else { return };
        if let Some(at) = client.stale_at {
            self.timers.cancel(at, Timer::Client(id));
        }
        self.tell(id, client.to, &client.question, outcome, is_stale, now);
    }

    /// A remembered failure, as long as none of the servers that caused it has come back.
    pub(crate) fn known_failure(&mut self, question: &Question, now: Instant) -> Option<Arc<Failure>> {
        let name = question.name.as_name();
        let found = self.cache.get_fresh(name, Kind::Failure(question.rtype), now)?;
        let Content::Failure(failure) = found.content else { return None };
        if failure.ede.is_bogus() && question.is_unchecked {
            return None;
        }
        let zone = self.find_zone(failure.zone.as_name(), Rtype::NS, now);
        let came_back = |address: &_| self.servers.came_back_since(*address, found.stored);
        if zone.name != failure.zone || zone.addresses.iter().any(came_back) {
            return None;
        }
        self.probe(&zone.name, &zone.addresses, &[], now);
        Some(failure)
    }

    fn answer_failure(
        &mut self,
        client: ClientId,
        to: Addressee,
        question: &Question,
        failure: &Failure,
        now: Instant,
    ) {
        if self.options.stale.enabled
            && !failure.ede.is_bogus()
            && let Some(reply) = self.known_reply(question, true, now)
        {
            return self.tell(client, to, question, &reply.outcome, reply.is_stale, now);
        }
        let says_why = failure.ede == Ede::OTHER || failure.ede.is_bogus();
        let ede = if says_why { failure.ede } else { Ede::CACHED_ERROR };
        self.tell(client, to, question, &Outcome::Failed(ede), false, now);
    }

    /// The answer that the cache has, along aliases to its end.
    fn known_reply(&mut self, question: &Question, stale_too: bool, now: Instant) -> Option<Reply> {
        let mut name = question.name.clone();
        let mut chain = Vec::new();
        let mut sources = Some(Vec::new());
        let (mut is_stale, mut is_ending) = (false, false);
        for _ in 0..=self.options.limits.aliases_max {
            let knowledge = self.look_up_for(question, name.as_name(), stale_too, now)?;
            is_stale |= knowledge.is_stale;
            match (&mut sources, knowledge.source) {
                (Some(sources), Some(source)) if !self.by_network.has(name.as_name(), question.rtype) => {
                    sources.push(source)
                }
                _ => sources = None,
            }
            let part = self.options.cache.prefetch_part;
            is_ending |= part > 0 && knowledge.left < knowledge.whole / part;
            let outcome = match knowledge.known {
                Known::Alias(sets, target) => {
                    chain.extend(sets);
                    name = target;
                    continue;
                }
                Known::Records(set) => {
                    chain.push(set);
                    Outcome::Answer(chain)
                }
                Known::NoData(soa) => Outcome::NoData(chain, Some(soa)),
                Known::NoName(soa) => Outcome::NoName(chain, Some(soa)),
            };
            return Some(Reply { outcome, is_stale, is_ending, sources });
        }
        None
    }

    /// Renews an entry that is in use and about to end.
    fn prefetch(&mut self, question: &Question, now: Instant) {
        if self.tasks.len() >= self.options.limits.tasks_max / 2 || self.by_question.contains_key(question) {
            return;
        }
        if let Some(task) = self.start_task(question, Purpose::Background, None, now) {
            self.counters.prefetches += 1;
            self.tasks.get_mut(&task).expect("it was just started").is_refresh = true;
        }
    }

    fn send_reply(&mut self, client: ClientId, head: &AnswerHead, outcome: &Outcome, is_stale: bool) {
        let written = self.write_reply(head, outcome, is_stale);
        self.answer(client, written.octets);
    }

    fn write_reply(&mut self, head: &AnswerHead, outcome: &Outcome, is_stale: bool) -> Written {
        let (rcode, chain, soa) = match outcome {
            Outcome::Answer(chain) => (Rcode::NoError, chain, None),
            Outcome::NoData(chain, soa) => (Rcode::NoError, chain, soa.as_deref()),
            Outcome::NoName(chain, soa) => (Rcode::NxDomain, chain, soa.as_deref()),
            Outcome::TooLong(chain) => (Rcode::YxDomain, chain, None),
            Outcome::Failed(ede) => {
                self.counters.failures += 1;
                return write_answer(head, Rcode::ServFail, &[], false, Some(*ede));
            }
        };
        let ede = match rcode {
            _ if !is_stale => chain.iter().chain(soa).find_map(reason_for_insecurity),
            Rcode::NxDomain => Some(Ede::STALE_NXDOMAIN),
            _ => Some(Ede::STALE_ANSWER),
        };
        self.counters.stale_answers += u64::from(is_stale);
        let answers = chain.iter().map(|set| (Section::Answer, set));
        let sets: Vec<_> = answers.chain(soa.map(|soa| (Section::Authority, soa))).collect();
        // A denial without SOA record, and a name that became too long, were not validated; expired data was, once.
        let is_denied = !matches!(outcome, Outcome::Answer(_));
        let was_validated = !is_stale && (!is_denied || soa.is_some());
        write_answer(head, rcode, &sets, was_validated, ede)
    }
}

/// Why a set of a signed zone is insecure all the same.
fn reason_for_insecurity(set: &Rrset) -> Option<Ede> {
    match set.security {
        Security::Insecure(reason) => reason,
        Security::Unchecked | Security::Secure => None,
    }
}

/// Questions that are never resolved.
fn refusal(query: &Query) -> Option<(Rcode, Option<Ede>)> {
    if query.edns.is_some_and(|edns| edns.version != 0) {
        return Some((Rcode::BadVers, None));
    }
    if query.flags & flag::RD == 0 {
        return Some((Rcode::Refused, Some(Ede::NOT_AUTHORITATIVE)));
    }
    let is_meta = query.qtype.is_meta() && query.qtype != Rtype::ANY;
    // Signatures come with what they sign; by themselves they could not be validated.
    let is_resolvable = query.qclass == Class::IN && !is_meta && query.qtype != Rtype::RRSIG;
    (!is_resolvable).then_some((Rcode::Refused, Some(Ede::NOT_SUPPORTED)))
}

/// The answer to a question for everything: next to nothing (RFC 8482, 4.2).
fn minimal_any(head: &AnswerHead, name: Name<'_>) -> Vec<u8> {
    const TTL: u32 = 3600;
    let rdatas = Rdatas::pack([&b"\x07RFC8482\0"[..]]);
    let set = Rrset::unsigned(NameBuf::from(name), Rtype::HINFO, TTL, rdatas);
    write_answer(head, Rcode::NoError, &[(Section::Answer, &set)], false, None).octets
}
