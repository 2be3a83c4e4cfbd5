//! Carries plans out against the liar in simulated time, by a way that may lose datagrams, and at a rate that may be low.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{IpAddr, Ipv4Addr};

use dns_audit::authority::{Condition, Log, Nonce, Via, Zone};
use dns_audit::checks::Finding;
use dns_audit::networks::{Network, Networks};
use dns_audit::plan::{Given, Options, Planner, REPEAT_MS, Step};
use dns_audit::presence::Presence;
use dns_audit::probes::Probe;
use dns_audit::transcript::{Exchange, Outcome, Transcript};
use dns_sign::{KeySet, Role, Times};
use dns_wire::NameBuf;
use tests::{EGRESS, Fault, Liar, Upstream, WORLD};

/// When all plans begin: some time in 2026.
const START_MS: u64 = 1_795_632_000_000;
/// How long the authority is watched: longer than any plan lasts.
const WATCHED_MS: u64 = 600_000;
/// This host.
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 18, 77, 77));
/// Servers of the audit zone.
const SERVERS: usize = 3;

/// Under which conditions a plan is carried out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Conditions {
    pub(crate) fault: Option<Fault>,
    /// Of a hundred datagrams between this host and the resolver, how many are lost on each way.
    pub(crate) loss: u64,
    /// What is lost.
    pub(crate) seed: u64,
    /// Milliseconds between two questions at least.
    pub(crate) interval_ms: u64,
    /// This host is not among the resolver's clients.
    pub(crate) is_outside: bool,
    /// Of the audit zone's servers, if they are not those where nothing is said.
    pub(crate) servers: Option<[Condition; SERVERS]>,
    /// How long the way to the resolver and back takes, in milliseconds.
    pub(crate) delay_ms: u64,
    /// Seconds that names of the probes of time are good for, if not the default.
    pub(crate) ttl_s: Option<u32>,
    /// When the authority dies, in milliseconds since the start, and whether its address is known.
    pub(crate) death: Option<(u64, bool)>,
    /// The address of the authority is not known.
    pub(crate) is_unseen: bool,
    /// When the authority's clock is set, in milliseconds since the start, and by how much it is ahead then.
    pub(crate) clock: Option<(u64, i64)>,
}

/// One of the liar's addresses is at home, the other one is not.
struct Countries;

impl Networks for Countries {
    fn look_up(&self, address: IpAddr) -> Network {
        let country =
            EGRESS.iter().position(|own| *own == address).map(|place| ["DE", "US"][place].to_owned());
        Network { country, ..Network::default() }
    }
}

fn options(conditions: &Conditions) -> Options {
    let expected = dns_guard::Networks::new(vec!["198.51.100.0/24".parse().unwrap()]);
    let name = NameBuf::from_text(WORLD.0.as_bytes(), None).unwrap();
    Options {
        conditions: conditions.servers.map_or_else(|| Condition::of_servers(SERVERS), Vec::from),
        is_signed: true,
        ttl_s: conditions.ttl_s.unwrap_or(Options::default().ttl_s),
        is_outside: conditions.is_outside,
        country: Some("DE".to_owned()),
        names: vec![Given { name, expected: Some(expected) }],
        ..Options::default()
    }
}

/// A signed audit zone.
fn upstream(conditions: Vec<Condition>) -> Upstream {
    let origin = NameBuf::from_text(b"probe.example.", None).unwrap();
    let files = dns_sign::KeyFiles::generate(origin.as_name(), Role::KeySigning, Times::default()).unwrap();
    let key = dns_sign::Key::read(origin.as_name(), &files.public, &files.private).unwrap();
    let servers = (1..=SERVERS as u8).map(|number| IpAddr::from([192, 0, 2, number])).collect();
    Upstream {
        zone: Zone::new(origin, servers, KeySet::new(vec![key])).with_conditions(conditions),
        log: Log::new(10_000),
        is_dead: false,
        ahead_ms: 0,
    }
}

/// What a probe finds at a resolver with this fault.
pub(crate) fn findings(probe: &Probe, fault: Option<Fault>) -> Vec<Finding> {
    findings_under(probe, &Conditions { fault, ..Conditions::default() })
}

/// What a probe finds under these conditions.
pub(crate) fn findings_under(probe: &Probe, conditions: &Conditions) -> Vec<Finding> {
    let options = options(conditions);
    let mut upstream = upstream(options.conditions.clone());
    let mut liar = Liar::new(conditions.fault, SERVERS);
    let origin = NameBuf::from(upstream.zone.origin());
    let nonce = Nonce(0x0123_4567_89ab_cdef);
    let target = ([192, 0, 2, 53], 53).into();
    let mut planner = Planner::new(origin.as_name(), target, &options, nonce, START_MS);
    probe.plan(&mut planner);
    let exchanges = carry_out(planner.finish(), conditions, |message, via, now_ms| {
        if conditions.death.is_some_and(|(after_ms, _)| now_ms >= START_MS + after_ms) {
            upstream.die();
        }
        upstream.set_clock(
            conditions.clock.filter(|(after_ms, _)| now_ms >= START_MS + after_ms).map_or(0, |(_, by)| by),
        );
        liar.ask(message, via, &mut upstream, now_ms)
    });
    let log = match conditions.death {
        None if conditions.is_unseen => Err("nobody was asked".to_owned()),
        None => Ok(upstream.log.of(nonce, 0).cloned().collect()),
        Some((_, true)) => Err("it is dead".to_owned()),
        Some((_, false)) => Err("nobody was asked".to_owned()),
    };
    let (start_ms, options, networks, presence) = (START_MS, &options, &Countries, presence(conditions));
    let client = Some(CLIENT);
    probe.findings(&Transcript { target, client, start_ms, exchanges, log, presence, options, networks })
}

/// What the authority itself has shown, asked once a second.
fn presence(conditions: &Conditions) -> Presence {
    let mut presence = Presence::default();
    let (end_ms, is_seen) = conditions.death.unwrap_or((WATCHED_MS, !conditions.is_unseen));
    if is_seen {
        (0..=end_ms).step_by(1000).for_each(|after_ms| presence.add_sign(START_MS + after_ms));
        presence.add_absence(START_MS + end_ms, u64::MAX, false);
    }
    presence
}

/// A question under way.
struct UnderWay {
    step: Step,
    first_ms: Option<u64>,
    sends: u32,
    /// The answer that comes first: when, and its octets.
    answer: Option<(u64, Vec<u8>)>,
}

/// Sends each question when it is its turn, again while no answer has come, and takes the first answer.
fn carry_out(
    steps: Vec<Step>,
    conditions: &Conditions,
    mut ask: impl FnMut(&[u8], Via, u64) -> Option<(Vec<u8>, u64)>,
) -> Vec<Exchange> {
    let mut events: BinaryHeap<Reverse<(u64, usize)>> =
        steps.iter().enumerate().map(|(number, step)| Reverse((START_MS + step.at_ms, number))).collect();
    let mut all: Vec<UnderWay> =
        steps.into_iter().map(|step| UnderWay { step, first_ms: None, sends: 0, answer: None }).collect();
    let (mut way, mut free_ms) = (Way { loss: conditions.loss, state: conditions.seed | 1 << 40 }, 0);
    while let Some(Reverse((at_ms, number))) = events.pop() {
        let own = &mut all[number];
        if own.answer.as_ref().is_some_and(|(came_ms, ..)| *came_ms <= at_ms) {
            continue;
        }
        if at_ms < free_ms {
            events.push(Reverse((free_ms, number)));
            continue;
        }
        free_ms = at_ms + conditions.interval_ms;
        own.sends += 1;
        let first_ms = *own.first_ms.get_or_insert(at_ms);
        let message = own.step.question.message(way.random() as u16);
        let (via, patience_ms) = (own.step.via, own.step.patience_ms);
        if !way.loses(via)
            && let Some((octets, took_ms)) = ask(&message, via, at_ms + conditions.delay_ms / 2)
            && let took_ms = took_ms + conditions.delay_ms
            && !way.loses(via)
            && at_ms + took_ms < first_ms + patience_ms
            && own.answer.as_ref().is_none_or(|(came_ms, ..)| at_ms + took_ms < *came_ms)
        {
            own.answer = Some((at_ms + took_ms, octets));
        }
        let next_ms = at_ms + REPEAT_MS;
        if via == Via::Udp && own.sends < own.step.tries && next_ms < first_ms + patience_ms {
            events.push(Reverse((next_ms, number)));
        }
    }
    let mut exchanges: Vec<Exchange> = all.into_iter().map(UnderWay::done).collect();
    exchanges.sort_by_key(|exchange| exchange.sent_ms);
    exchanges
}

impl UnderWay {
    fn done(self) -> Exchange {
        let UnderWay { step, first_ms, sends, answer } = self;
        let sent_ms = first_ms.unwrap_or(START_MS);
        let (took_ms, outcome) = match answer {
            Some((came_ms, octets)) => (came_ms - sent_ms, Outcome::Answer(octets)),
            None => (step.patience_ms, Outcome::Silence),
        };
        Exchange { step, sent_ms, took_us: took_ms * 1000, sends, outcome }
    }
}

/// The way between this host and the resolver.
struct Way {
    loss: u64,
    state: u64,
}

impl Way {
    fn random(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    fn loses(&mut self, via: Via) -> bool {
        via == Via::Udp && self.random() % 100 < self.loss
    }
}
