//! Input of a fuzzer as a course of events: questions, responses, silence, time.

use std::net::Ipv6Addr;

use clock::{Duration, Instant};

use crate::resolver::{Transmit, Transport};
use crate::{CacheOptions, ClientId, Dns64, Limits, Options, Resolver, Trust, TrustAnchor, Zones};

/// Small bounds, so that short inputs reach them.
fn options() -> Options {
    Options {
        cache: CacheOptions { octets_max: 20_000, ..CacheOptions::default() },
        limits: Limits {
            tasks_max: 20,
            clients_max: 20,
            clients_per_question_max: 4,
            in_flight_max: 30,
            ..Limits::default()
        },
        ..Options::default()
    }
}

/// Plays `data`, without validation and with it. An event is an octet that says what happens, one that says how long its octets are, and these octets.
///
/// # Panics
///
/// If a bound is crossed, a question gets no answer or two, or something is left in the end.
pub fn fuzz_resolver(data: &[u8]) {
    let dns64 = Dns64::new(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);
    play(data, Options { dns64, ..options() }, Trust::default());
    play(data, options(), Trust { anchors: vec![TrustAnchor::root()], negative: Vec::new() });
}

fn play(mut data: &[u8], options: Options, trust: Trust) {
    let zones = Zones { trust, ..Zones::default() };
    let mut resolver = Resolver::new(options, zones, [7; 16], Instant::ZERO);
    let mut stage = Stage { now: Instant::ZERO, sent: Vec::new(), asked: 0, answered: 0, known: None };
    while let [kind, len, rest @ ..] = data {
        let (octets, tail) = rest.split_at(usize::from(*len).min(rest.len()));
        data = tail;
        stage.event(&mut resolver, *kind, octets);
        stage.collect(&mut resolver);
    }
    for _ in 0..1000 {
        stage.now += Duration::from_millis(20);
        resolver.on_timeout(stage.now);
        stage.collect(&mut resolver);
    }
    assert_eq!(resolver.load(), [0, 0, 0], "tasks, clients and queries that are left");
    assert_eq!(stage.asked, stage.answered, "questions and answers");
}

struct Stage {
    now: Instant,
    sent: Vec<Transmit>,
    asked: u64,
    answered: u64,
    /// What the client that asks now is to be answered.
    known: Option<Vec<u8>>,
}

impl Stage {
    fn event(&mut self, resolver: &mut Resolver, kind: u8, octets: &[u8]) {
        match kind % 5 {
            0 => {
                self.asked += 1;
                let transport = if kind & 0x80 == 0 { Transport::Udp } else { Transport::Tcp };
                let known = resolver.recall(octets, self.now).map(|known| known.to_octets(octets));
                self.known = known.filter(|_| transport == Transport::Udp);
                resolver.on_query(ClientId(self.asked), transport, octets, self.now);
            }
            1 => {
                if let Some(query) = self.take(kind) {
                    let response = response(&query.octets, octets);
                    resolver.on_response(query.query, query.server, &response, self.now);
                }
            }
            2 => {
                if let Some(query) = self.take(kind) {
                    resolver.on_response(query.query, query.server, octets, self.now);
                }
            }
            3 => {
                if let Some(query) = self.take(kind) {
                    resolver.on_unreachable(query.query, self.now);
                }
            }
            _ => {
                self.now += Duration::from_millis(u64::from(octets.first().copied().unwrap_or(1)) * 10);
                resolver.on_timeout(self.now);
            }
        }
    }

    /// One of the queries in flight.
    fn take(&mut self, kind: u8) -> Option<Transmit> {
        let index = usize::from(kind) / 5 % self.sent.len().max(1);
        (index < self.sent.len()).then(|| self.sent.swap_remove(index))
    }

    fn collect(&mut self, resolver: &mut Resolver) {
        while let Some(transmit) = resolver.poll_transmit() {
            self.sent.push(transmit);
        }
        while let Some(query) = resolver.poll_closed() {
            self.sent.retain(|sent| sent.query != query);
        }
        while let Some(answer) = resolver.poll_answer() {
            self.answered += 1;
            if answer.client == ClientId(self.asked) {
                let known = self.known.take();
                assert!(known.is_none_or(|known| known == answer.octets), "what is known is answered");
            }
        }
        assert!(self.known.is_none(), "what is known is answered at once");
        let [tasks, clients, queries] = resolver.load();
        assert!(tasks <= 20 && clients <= 20 && queries <= 30, "{tasks} {clients} {queries}");
        assert!(resolver.cache_usage().1 <= 20_000, "the cache's bound");
    }
}

/// A response to `query`: its ID and question; flags, counts and records are the fuzzer's.
fn response(query: &[u8], octets: &[u8]) -> Vec<u8> {
    let Some((head, records)) = octets.split_first_chunk::<5>() else { return octets.to_vec() };
    let question_end = query.len() - if query[11] == 0 { 0 } else { 11 };
    let mut response = query[..question_end].to_vec();
    (response[2], response[3]) = (0x80 | head[0] & 0x06, head[1]);
    (response[7], response[9], response[11]) = (head[2] % 8, head[3] % 8, head[4] % 8);
    response.extend_from_slice(records);
    response
}
