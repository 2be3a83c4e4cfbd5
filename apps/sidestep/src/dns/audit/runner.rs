//! Carries plans out for one resolver or ten thousand, at a bounded rate.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, anyhow};
use dns_audit::authority::{Condition, Entry, Nonce};
use dns_audit::checks::Finding;
use dns_audit::plan::{self, Planner, Step};
use dns_audit::probes::{self, Probe};
use dns_audit::transcript::{Exchange, Outcome, Transcript};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::clock;
use super::exchange::server;
use super::options::{Settings, Target};
use super::pace::{Pace, Turns};
use super::presence::{self, Authority, Clock, Sightings};
use super::results::Results;
use crate::output;

/// After the last exchange the log may still grow: resolvers ask again, and other servers.
const LOG_WAIT: Duration = Duration::from_millis(300);

/// What the audits of all resolvers share.
struct Shared {
    settings: Arc<Settings>,
    /// Of the settings, with what the authority says.
    plan: plan::Options,
    results: Arc<Results>,
    /// Of all questions.
    all: Pace,
    /// Of those to the audit zone's own server: for signs of life, and for all else.
    authority_paces: [Pace; 2],
    /// If its address was given.
    authority: Option<Authority>,
    /// When it was there.
    sightings: Sightings,
    /// Which resolver was the first to ask it from an address.
    egress: Mutex<BTreeMap<IpAddr, Egress>>,
}

/// Who asks the authority from an address.
struct Egress {
    /// The resolver's number.
    first: usize,
    /// That another one does, too, was said.
    is_told: bool,
}

/// Addresses that ask the authority of which something is remembered.
const EGRESS_MAX: usize = 100_000;

/// The audit of one resolver.
struct Audit {
    shared: Arc<Shared>,
    number: usize,
    target: Target,
    pace: Pace,
    /// The authority's, as this resolver's answers show it; of no use where the authority itself can be asked.
    clock: Clock,
    /// No question of a probe was answered: there is no use in asking more.
    is_silent: AtomicBool,
}

/// Audits all resolvers, so many at a time as the rate for all allows.
pub(super) async fn audit_all(settings: &Arc<Settings>, results: &Arc<Results>) -> anyhow::Result<()> {
    let mut shared = Shared {
        settings: Arc::clone(settings),
        plan: settings.plan.clone(),
        results: Arc::clone(results),
        all: Pace::new(settings.total_rate),
        authority_paces: presence::paces(settings.rate),
        authority: None,
        sightings: Sightings::default(),
        egress: Mutex::default(),
    };
    if !settings.authorities.is_empty() {
        let (address, offset, conditions) = shared.meet_authority().await?;
        shared.authority = Some(Authority { address, clock: Clock::new(offset) });
        shared.plan.conditions = conditions;
    }
    let shared = Arc::new(shared);
    let places = Arc::new(Semaphore::new((settings.total_rate / settings.rate).max(1) as usize));
    let mut tasks = JoinSet::new();
    for (number, target) in settings.targets.iter().cloned().enumerate() {
        let (shared, places) = (Arc::clone(&shared), Arc::clone(&places));
        tasks.spawn(async move {
            let _place = places.acquire_owned().await; // Nobody closes it.
            let audit = Audit::begin(shared, number, target).await;
            Arc::new(audit).run().await;
        });
    }
    let all = async {
        while let Some(done) = tasks.join_next().await {
            done?;
        }
        Ok(())
    };
    tokio::select! {
        done = all => done,
        () = shared.watch_authority() => Ok(()), // It has no end.
    }
}

impl Shared {
    /// Asks the authority itself as long as the audit lasts.
    async fn watch_authority(&self) {
        if let Some(authority) = &self.authority {
            let (askers, zone) = (self.settings.askers.apart(), self.settings.zone.as_name());
            let turns = Turns { own: &self.authority_paces[0], all: &self.all, is_patient: false };
            authority.watch(&self.sightings, &askers, zone, &turns).await;
        }
        std::future::pending().await
    }

    fn authority_turns(&self) -> Turns<'_> {
        Turns { own: &self.authority_paces[1], all: &self.all, is_patient: true }
    }

    /// The first of the authority's addresses that answers, by how much its clock is ahead, and how the zone's servers differ.
    async fn meet_authority(&self) -> anyhow::Result<(SocketAddr, i64, Vec<Condition>)> {
        let (asker, zone) = (self.settings.askers.plain(), self.settings.zone.as_name());
        let turns = self.authority_turns();
        let mut last = None;
        for address in &self.settings.authorities {
            match clock::offset_ms(asker, *address, zone, &turns).await {
                Ok(offset) => {
                    let conditions = clock::conditions(asker, *address, zone, &turns).await;
                    return Ok((*address, offset, conditions.context("reading the servers' conditions")?));
                }
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| anyhow!("no authority is given")))
    }
}

impl Audit {
    async fn begin(shared: Arc<Shared>, number: usize, target: Target) -> Audit {
        let pace = Pace::new(shared.settings.rate);
        let (clock, is_silent) = (Clock::default(), AtomicBool::new(false));
        let audit = Audit { shared, number, target, pace, clock, is_silent };
        if audit.shared.authority.is_none() {
            audit.read_clock().await;
        }
        audit
    }

    fn clock(&self) -> &Clock {
        self.shared.authority.as_ref().map_or(&self.clock, |authority| &authority.clock)
    }

    /// Reads the authority's clock, by way of the resolver if need be; whether it was set. One that does not answer is seen by the probes.
    async fn read_clock(&self) -> bool {
        let settings = &self.shared.settings;
        let (address, turns) = match &self.shared.authority {
            Some(authority) => (authority.address, self.shared.authority_turns()),
            None => (self.target.address, self.turns()),
        };
        let (asker, zone) = (settings.askers.plain(), settings.zone.as_name());
        let read = clock::offset_ms(asker, address, zone, &turns).await;
        read.is_ok_and(|offset| self.clock().set(offset))
    }

    fn turns(&self) -> Turns<'_> {
        Turns { own: &self.pace, all: &self.shared.all, is_patient: true }
    }

    /// Runs the probes together, or one after the other: first those that leave nothing behind.
    async fn run(self: Arc<Audit>) {
        let settings = Arc::clone(&self.shared.settings);
        let mut together = JoinSet::new();
        let mut probes: Vec<_> = settings.probes.iter().enumerate().collect();
        probes.sort_by_key(|(_, probe)| probe.harm(&self.shared.plan));
        for (place, probe) in probes {
            let run = Arc::clone(&self).run_and_keep(place, probe);
            if settings.is_together {
                together.spawn(run);
            } else {
                run.await;
            }
        }
        while together.join_next().await.is_some() {}
        self.shared.results.finish(&settings, self.number);
    }

    async fn run_and_keep(self: Arc<Audit>, place: usize, probe: &'static Probe) {
        let findings = Arc::clone(&self).run_probe(probe).await;
        self.shared.results.add(self.number, place, findings, self.pace.count());
    }

    async fn run_probe(self: Arc<Audit>, probe: &'static Probe) -> Vec<Finding> {
        let Ok(nonce) = clock::nonce() else { return Vec::new() };
        let settings = &self.shared.settings;
        let (zone, address) = (settings.zone.as_name(), self.target.address);
        let (start_ms, start) = (self.clock().now_ms(), Instant::now());
        let mut planner = Planner::new(zone, address, &self.shared.plan, nonce, start_ms);
        probe.plan(&mut planner);
        let mut tasks = JoinSet::new();
        for step in planner.finish() {
            let audit = Arc::clone(&self);
            tasks.spawn(async move { audit.carry_out(step, start, start_ms).await });
        }
        let mut exchanges: Vec<Exchange> = Vec::new();
        while let Some(done) = tasks.join_next().await {
            exchanges.extend(done.ok());
        }
        exchanges.sort_by_key(|exchange| exchange.sent_ms);
        self.leave_out_unsent(probe.name, &mut exchanges);
        let is_answered = |exchange: &Exchange| matches!(exchange.outcome, Outcome::Answer(_));
        if !exchanges.is_empty() && !exchanges.iter().any(is_answered) {
            self.is_silent.store(true, Ordering::Relaxed);
        }
        tokio::time::sleep(LOG_WAIT).await;
        let log = self.log(nonce).await;
        self.tell_of_shared_backend(log.as_deref().unwrap_or_default());
        let presence = self.shared.sightings.so_far();
        let (target, options, networks) = (address, &self.shared.plan, &settings.networks);
        let client = settings.askers.address_for(address);
        let (findings, is_clock_set) = {
            let transcript =
                Transcript { target, client, start_ms, exchanges, log, presence, options, networks };
            (probe.findings(&transcript), probes::is_clock_set(&transcript))
        };
        if is_clock_set && self.read_clock().await {
            self.shared.sightings.forget();
        }
        findings
    }

    /// What the authority has logged of a run. It was there when it said so.
    async fn log(&self, nonce: Nonce) -> Result<Vec<Entry>, String> {
        let Some(authority) = &self.shared.authority else {
            return Err("name its addresses by --authority".to_owned());
        };
        let (settings, turns) = (&self.shared.settings, self.shared.authority_turns());
        let asked_ms = authority.clock.now_ms();
        let (asker, zone) = (settings.askers.plain(), settings.zone.as_name());
        let log = clock::log(asker, authority.address, zone, nonce, &turns).await;
        log.inspect(|_| self.shared.sightings.add_sign(asked_ms)).map_err(|error| format!("{error:#}"))
    }

    /// Resolvers that ask from one address share a server, whose state one audit leaves to the other.
    fn tell_of_shared_backend(&self, log: &[Entry]) {
        let settings = &self.shared.settings;
        if settings.total_rate / settings.rate < 2 {
            return; // They are audited one after the other.
        }
        let sources: BTreeSet<IpAddr> = log.iter().map(|entry| entry.source.ip()).collect();
        let mut egress = self.shared.egress.lock().unwrap_or_else(PoisonError::into_inner);
        for source in sources {
            let is_full = egress.len() >= EGRESS_MAX;
            match egress.get_mut(&source) {
                None if is_full => {}
                None => drop(egress.insert(source, Egress { first: self.number, is_told: false })),
                Some(own) if own.first == self.number || own.is_told => {}
                Some(own) => {
                    own.is_told = true;
                    let (one, other) = (settings.targets[own.first].show(), self.target.show());
                    output::complain!(
                        "resolvers {one} and {other} both ask the authority from {source}: audited at the same time they change what is found of each other; \
                         --total-rate {} audits one after the other",
                        settings.rate
                    );
                }
            }
        }
    }

    /// What this host could not ask says nothing of the resolver.
    fn leave_out_unsent(&self, probe: &str, exchanges: &mut Vec<Exchange>) {
        let mut reason = None;
        let all = exchanges.len();
        exchanges.retain(|exchange| match &exchange.outcome {
            Outcome::Unsent(own) => {
                reason.get_or_insert_with(|| own.clone());
                false
            }
            _ => true,
        });
        if let Some(reason) = reason {
            let (resolver, left_out) = (self.target.show(), all - exchanges.len());
            output::complain!(
                "resolver {resolver}: {left_out} of {all} questions of {probe} were not asked: {reason}"
            );
        }
    }

    /// One step of a plan, when it is time and the rate allows.
    async fn carry_out(&self, step: Step, start: Instant, start_ms: u64) -> Exchange {
        if self.is_silent.load(Ordering::Relaxed) {
            let (sent_ms, outcome) = (start_ms + step.at_ms, Outcome::Silence);
            return Exchange { step, sent_ms, took_us: 0, sends: 0, outcome };
        }
        sleep_until(start + Duration::from_millis(step.at_ms)).await;
        let server = server(self.target.address, self.target.name.clone());
        let asked = self.shared.settings.askers.exchange(&step, &server, &self.turns()).await;
        let sent_ms = start_ms + (asked.sent - start).as_millis() as u64; // Plans are short.
        let took_us = u64::try_from(asked.took.as_micros()).unwrap_or(u64::MAX);
        let exchange = Exchange { step, sent_ms, took_us, sends: asked.sends, outcome: asked.outcome };
        if let Some(at_ms) = exchange.authority_seen_ms() {
            self.shared.sightings.add_sign(at_ms);
        }
        exchange
    }
}
