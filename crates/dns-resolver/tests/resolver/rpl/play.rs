//! The stage: servers that answer by the ranges, clients, and time.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use clock::{Duration, Instant};
use dns_resolver::{ClientId, QueryId, Resolver, Transmit, Transport};

use super::entry::Entry;
use super::message::Message;
use super::parse::{Action, Range, Scenario};

/// A scenario whose answer has not come by then fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// Something that arrives at the resolver.
#[derive(Debug)]
enum Arrival {
    Response(QueryId, SocketAddr, Vec<u8>),
    Unreachable(QueryId),
}

struct Stage<'a> {
    scenario: &'a Scenario,
    resolver: Resolver,
    now: Instant,
    step: u64,
    /// By time, and the order in which they left.
    arrivals: BTreeMap<(Instant, u64), Arrival>,
    sent: u64,
    sent_to: BTreeMap<SocketAddr, u64>,
    answers: VecDeque<(Message, Duration)>,
    asked: BTreeMap<ClientId, Instant>,
    last_time: Duration,
}

/// Plays a scenario; `key` is all that is left to chance.
pub(crate) fn play(scenario: &Scenario, key: [u8; 16]) -> Result<(), String> {
    let config = &scenario.config;
    let resolver = Resolver::new(config.options.clone(), config.zones(), key, Instant::ZERO);
    let mut stage = Stage {
        scenario,
        resolver,
        now: Instant::ZERO,
        step: 0,
        arrivals: BTreeMap::new(),
        sent: 0,
        sent_to: BTreeMap::new(),
        answers: VecDeque::new(),
        asked: BTreeMap::new(),
        last_time: Duration::ZERO,
    };
    for (step, action) in &scenario.steps {
        stage.step = *step;
        stage.act(action).map_err(|complaint| format!("step {step}: {complaint}"))?;
    }
    stage.run(Duration::from_secs(10), |_| false);
    match stage.answers.front() {
        Some((answer, _)) => Err(format!("an answer that nobody checks: {answer:#?}")),
        None if stage.resolver.load() != [0, 0, 0] => {
            Err(format!("something is left at the end: {:?}", stage.resolver.load()))
        }
        None => Ok(()),
    }
}

impl Stage<'_> {
    fn act(&mut self, action: &Action) -> Result<(), String> {
        match action {
            Action::Query(entry) => self.ask(entry),
            Action::CheckAnswer(entry) => return self.check_answer(entry),
            Action::TimePasses(span) => self.run(*span, |_| false),
            Action::CheckSent(whom, least, most) => {
                let count = match whom {
                    Some(whom) => self.sent_to.remove(whom).unwrap_or(0),
                    None => std::mem::take(&mut self.sent_to).values().sum(),
                };
                if !(*least..=*most).contains(&count) {
                    return Err(format!("{count} queries were sent to {whom:?}"));
                }
            }
            Action::CheckTime(least, most) => {
                let took = self.last_time.as_millis();
                if !(*least..=*most).contains(&took) {
                    return Err(format!("the answer took {took} ms"));
                }
            }
            Action::Reload => {
                let config = &self.scenario.config;
                self.resolver.reconfigure(config.options.clone(), config.zones());
            }
        }
        Ok(())
    }

    fn ask(&mut self, entry: &Entry) {
        let client = ClientId(self.step);
        let octets = Message { id: self.step as u16, ..entry.message.clone() }.to_octets();
        self.asked.insert(client, self.now);
        let transport =
            if entry.matches.iter().any(|word| word == "TCP") { Transport::Tcp } else { Transport::Udp };
        let known = self.resolver.recall(&octets, self.now).map(|known| known.to_octets(&octets));
        self.resolver.on_query(client, transport, &octets, self.now);
        self.collect();
        if let Some(known) = known.filter(|_| transport == Transport::Udp) {
            let (answer, _) = self.answers.back().expect("what is known is answered at once");
            assert_eq!(Message::from_octets(&known), *answer, "what is known is answered");
        }
    }

    fn check_answer(&mut self, entry: &Entry) -> Result<(), String> {
        let is_silence = entry.matches.iter().any(|word| word == "noanswer");
        let patience = if is_silence { Duration::from_millis(100) } else { PATIENCE };
        self.run(patience, |stage| !stage.answers.is_empty());
        match self.answers.pop_front() {
            Some(_) if is_silence => Err("there is an answer".to_owned()),
            None if is_silence => Ok(()),
            None => Err("there is no answer".to_owned()),
            Some((answer, time)) => {
                self.last_time = time;
                entry.complaint(&answer).map_or(Ok(()), Err)
            }
        }
    }

    /// Lets time pass, up to `span` or until `is_enough`.
    fn run(&mut self, span: Duration, is_enough: impl Fn(&Self) -> bool) {
        let end = self.now + span;
        self.collect();
        while !is_enough(self) {
            let arrival = self.arrivals.first_key_value().map(|((at, _), _)| *at);
            let timeout = self.resolver.poll_timeout();
            let Some(next) = arrival.into_iter().chain(timeout).min().filter(|next| *next <= end) else {
                self.now = end;
                return;
            };
            self.now = self.now.max(next);
            match arrival.filter(|at| *at <= self.now) {
                Some(_) => self.arrive(),
                None => self.resolver.on_timeout(self.now),
            }
            self.collect();
        }
    }

    fn arrive(&mut self) {
        match self.arrivals.pop_first() {
            Some((_, Arrival::Response(query, from, octets))) => {
                self.resolver.on_response(query, from, &octets, self.now);
            }
            Some((_, Arrival::Unreachable(query))) => self.resolver.on_unreachable(query, self.now),
            None => {}
        }
    }

    /// Takes all that the resolver has.
    fn collect(&mut self) {
        while let Some(transmit) = self.resolver.poll_transmit() {
            self.serve(&transmit);
        }
        while self.resolver.poll_closed().is_some() {}
        while let Some(answer) = self.resolver.poll_answer() {
            let time = self.asked.remove(&answer.client).map_or(Duration::ZERO, |asked| self.now - asked);
            let message = Message::from_octets(&answer.octets);
            assert_eq!(u64::from(message.id), answer.client.0, "the ID is that of the question");
            self.answers.push_back((message, time));
        }
    }

    /// What the servers of this step make of a query.
    fn serve(&mut self, transmit: &Transmit) {
        *self.sent_to.entry(transmit.server).or_default() += 1;
        let query = Message::from_octets(&transmit.octets);
        let is_tcp = transmit.transport == Transport::Tcp;
        let step = self.step;
        let is_here = |range: &&Range| {
            range.addresses.contains(&transmit.server) && (range.steps.0..=range.steps.1).contains(&step)
        };
        let ranges: Vec<&Range> = self.scenario.ranges.iter().filter(is_here).collect();
        for range in ranges {
            if range.is_unreachable {
                return self.deliver(range.delay, Arrival::Unreachable(transmit.query));
            }
            let Some(entry) = range.entries.iter().find(|entry| entry.matches_query(&query, is_tcp)) else {
                continue;
            };
            return self.answer(entry, &query, transmit, range.delay * if is_tcp { 2 } else { 1 });
        }
    }

    fn answer(&mut self, entry: &Entry, query: &Message, transmit: &Transmit, delay: Duration) {
        let answer = entry.answer(query);
        let delay = delay + Duration::from_millis(entry.adjustment("delay").unwrap_or(0));
        let from = match entry.adjustment("port") {
            Some(port) => SocketAddr::new(transmit.server.ip(), port as u16),
            None => transmit.server,
        };
        let mut octets = answer.to_octets();
        if entry.adjust.iter().any(|word| word == "garbage") {
            octets.truncate(octets.len() - 3);
        }
        if let Some(copies) = entry.adjustment("forge") {
            octets[0] ^= 0xff;
            for _ in 1..copies {
                self.deliver(delay, Arrival::Response(transmit.query, from, octets.clone()));
            }
        }
        self.deliver(delay, Arrival::Response(transmit.query, from, octets));
    }

    fn deliver(&mut self, delay: Duration, arrival: Arrival) {
        self.sent += 1;
        self.arrivals.insert((self.now + delay, self.sent), arrival);
    }
}
