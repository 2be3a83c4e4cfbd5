//! A zone with several servers, each with its own time and life, and clients that ask it.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use clock::{Duration, Instant};
use dns_resolver::{ClientId, Directed, DirectedKind, Options, QueryId, Random, Resolver, Zones};
use dns_wire::Rtype;

use crate::rpl::message::{Message, name, record};

/// What a server is like at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// It answers after so many milliseconds.
    Answers(u64),
    Silent,
}

/// An answer that a client got.
#[derive(Clone, Debug)]
pub(crate) struct Got {
    pub(crate) asked: Instant,
    pub(crate) took: Duration,
    pub(crate) rcode: u16,
    pub(crate) ede: Option<u16>,
    /// The last octet of the address in it: the version of the zone.
    pub(crate) version: Option<u8>,
}

/// A query that a server received.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) at: Instant,
    pub(crate) server: usize,
    /// It was our own.
    pub(crate) is_probe: bool,
}

/// The zone `example.` at servers 1, 2, ... of 192.0.2.0/24.
pub(crate) struct World {
    pub(crate) resolver: Resolver,
    pub(crate) now: Instant,
    pub(crate) servers: Vec<Life>,
    /// What every answer has as its last octet, and its TTL.
    pub(crate) version: u8,
    pub(crate) ttl: u32,
    /// Whether names are there.
    pub(crate) has_names: bool,
    pub(crate) got: Vec<Got>,
    pub(crate) seen: Vec<Seen>,
    pub(crate) random: Random,
    /// Parts of a thousand of all messages that are lost.
    pub(crate) loss: u64,
    arrivals: BTreeMap<(Instant, u64), (QueryId, SocketAddr, Vec<u8>)>,
    /// When they asked, and what was known as a whole.
    asked: BTreeMap<ClientId, (Instant, Option<Vec<u8>>)>,
    count: u64,
}

impl World {
    pub(crate) fn new(servers: &[Life], seed: u8) -> World {
        World {
            resolver: Resolver::new(Options::default(), zones(servers.len()), [seed; 16], Instant::ZERO),
            now: Instant::ZERO,
            servers: servers.to_vec(),
            version: 1,
            ttl: 60,
            has_names: true,
            got: Vec::new(),
            seen: Vec::new(),
            random: Random::new([seed ^ 0x55; 16]),
            loss: 0,
            arrivals: BTreeMap::new(),
            asked: BTreeMap::new(),
            count: 0,
        }
    }

    /// A client asks for the address of a name.
    pub(crate) fn ask(&mut self, qname: &str) {
        self.ask_for(qname, Rtype::A);
    }

    pub(crate) fn ask_for(&mut self, qname: &str, rtype: Rtype) {
        self.count += 1;
        let client = ClientId(self.count);
        let query = Message {
            flags: vec!["RD".to_owned()],
            question: Some((name(qname), rtype)),
            has_edns: true,
            ..Message::default()
        };
        let octets = query.to_octets();
        let known = self.resolver.recall(&octets, self.now).map(|known| known.to_octets(&octets));
        self.asked.insert(client, (self.now, known));
        self.resolver.on_query(client, dns_resolver::Transport::Udp, &octets, self.now);
        self.collect();
    }

    /// Lets time pass up to `end`.
    pub(crate) fn run_until(&mut self, end: Instant) {
        loop {
            let arrival = self.arrivals.first_key_value().map(|((at, _), _)| *at);
            let timeout = self.resolver.poll_timeout();
            let Some(next) = arrival.into_iter().chain(timeout).min().filter(|next| *next <= end) else {
                break;
            };
            self.now = self.now.max(next);
            if arrival.is_some_and(|at| at <= self.now) {
                let (_, (query, from, octets)) = self.arrivals.pop_first().expect("it was seen");
                self.resolver.on_response(query, from, &octets, self.now);
            } else {
                self.resolver.on_timeout(self.now);
            }
            self.collect();
        }
        self.now = end;
    }

    fn collect(&mut self) {
        while let Some(transmit) = self.resolver.poll_transmit() {
            let query = Message::from_octets(&transmit.octets);
            let server = (0..self.servers.len()).find(|server| address(*server) == transmit.server);
            let server = server.expect("only servers of the zone are asked");
            let question = query.question.clone().expect("a question");
            self.seen.push(Seen { at: self.now, server, is_probe: question.1 == Rtype::SOA });
            let Life::Answers(millis) = self.servers[server] else { continue };
            if self.random.below(1000) < self.loss {
                continue;
            }
            self.count += 1;
            let octets = self.response(&query).to_octets();
            let at = self.now + Duration::from_millis(millis);
            self.arrivals.insert((at, self.count), (transmit.query, transmit.server, octets));
        }
        while self.resolver.poll_closed().is_some() {}
        while let Some(answer) = self.resolver.poll_answer() {
            let message = Message::from_octets(&answer.octets);
            let (asked, known) = self.asked.remove(&answer.client).expect("one answer a question");
            assert!(known.is_none_or(|known| known == answer.octets), "what is known is what is answered");
            let version = message.sections[0].last().and_then(|record| record.rdata.last().copied());
            let (rcode, ede) = (message.rcode, message.ede);
            self.got.push(Got { asked, took: self.now - asked, rcode, ede, version });
        }
    }

    fn response(&self, query: &Message) -> Message {
        let (qname, rtype) = query.question.clone().expect("a question");
        let mut response = Message { flags: vec!["QR".to_owned(), "AA".to_owned()], ..query.clone() };
        match rtype {
            Rtype::A if self.has_names => {
                let text = format!("{qname} {} IN A 192.0.2.{}", self.ttl, self.version);
                response.sections[0].push(record(&text));
            }
            _ => {
                response.rcode = if self.has_names { 0 } else { 3 };
                response.sections[1].push(record("example. 60 IN SOA a. b. 1 2 3 4 60"));
            }
        }
        response
    }
}

/// Where the zone's servers are.
pub(crate) fn zones(servers: usize) -> Zones {
    let servers = (0..servers).map(address).collect();
    let directed = Directed { zone: name("example."), kind: DirectedKind::Stub, servers };
    Zones { directed: vec![directed], ..Zones::default() }
}

pub(crate) fn address(server: usize) -> SocketAddr {
    SocketAddr::new([192, 0, 2, server as u8 + 1].into(), 53)
}

pub(crate) fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}
