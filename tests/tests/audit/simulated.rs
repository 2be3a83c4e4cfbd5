//! Carries plans out against the liar in simulated time.

use std::net::IpAddr;

use dns_audit::authority::{Log, Nonce, Zone};
use dns_audit::checks::Finding;
use dns_audit::networks::{Network, Networks};
use dns_audit::plan::{Options, Planner};
use dns_audit::probes::Probe;
use dns_audit::transcript::{Exchange, Outcome, Transcript};
use dns_sign::{KeySet, Role, Times};
use dns_wire::NameBuf;
use tests::{EGRESS, Fault, Liar, Upstream};

/// When all plans begin: some time in 2026.
const START_MS: u64 = 1_795_632_000_000;
/// Servers of the audit zone.
const SERVERS: usize = 3;

/// One of the liar's addresses is at home, the other one is not.
struct Countries;

impl Networks for Countries {
    fn look_up(&self, address: IpAddr) -> Network {
        let country =
            EGRESS.iter().position(|own| *own == address).map(|place| ["DE", "US"][place].to_owned());
        Network { country, ..Network::default() }
    }
}

pub(crate) fn options() -> Options {
    Options {
        servers: SERVERS,
        is_signed: true,
        country: Some("DE".to_owned()),
        encrypted: false,
        ..Options::default()
    }
}

/// A signed audit zone.
fn upstream() -> Upstream {
    let origin = NameBuf::from_text(b"probe.example.", None).unwrap();
    let files = dns_sign::KeyFiles::generate(origin.as_name(), Role::KeySigning, Times::default()).unwrap();
    let key = dns_sign::Key::read(origin.as_name(), &files.public, &files.private).unwrap();
    let servers = (1..=SERVERS as u8).map(|number| IpAddr::from([192, 0, 2, number])).collect();
    Upstream { zone: Zone::new(origin, servers, KeySet::new(vec![key])), log: Log::new(10_000) }
}

/// What a probe finds at a resolver with this fault.
pub(crate) fn findings(probe: &Probe, fault: Option<Fault>) -> Vec<Finding> {
    let (options, mut upstream, mut liar) = (options(), upstream(), Liar::new(fault, SERVERS));
    let origin = NameBuf::from(upstream.zone.origin());
    let nonce = Nonce(0x0123_4567_89ab_cdef);
    let target = ([192, 0, 2, 53], 53).into();
    let mut planner = Planner::new(origin.as_name(), target, &options, nonce, START_MS);
    (probe.plan)(&mut planner);
    let mut exchanges = Vec::new();
    for (number, step) in planner.finish().into_iter().enumerate() {
        let sent_ms = START_MS + step.at_ms;
        let mut answer = None;
        for attempt in 0..u64::from(step.tries) {
            let message = step.question.message(number as u16);
            answer = liar.ask(&message, step.via, &mut upstream, sent_ms + attempt * step.patience_ms);
            if answer.is_some() {
                break;
            }
        }
        let answer = answer.filter(|(_, took_ms)| *took_ms < step.patience_ms);
        let (outcome, took_ms) = match answer {
            Some((octets, took_ms)) => (Outcome::Answer(octets), took_ms),
            None => (Outcome::Silence, step.patience_ms),
        };
        exchanges.push(Exchange { step, sent_ms, took_us: took_ms * 1000, outcome });
    }
    let log = Some(upstream.log.of(nonce, 0).cloned().collect());
    (probe.judge)(&Transcript {
        target,
        start_ms: START_MS,
        exchanges,
        log,
        options: &options,
        networks: &Countries,
    })
}
