//! Checks of hosts, on a thread of their own, and what they have found.
//!
//! | file | what it does |
//! | --- | --- |
//! | `probe.rs` | one check: a connection, a request, an echo |

mod probe;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::Context;
use clock::{Duration, Instant};
use dns_health::{Policy, Watches};
use engine::Clock;
use mio::{Events, Poll, Token, Waker};

use self::probe::{Outcome, Probe};
use super::events::Event;
use super::pools::CheckSpec;
use super::transfers::unix_time;

pub(crate) use probe::ping_problem;

/// Checks at once.
const RUNNING_MAX: usize = 256;
/// Between the begins of two checks: no more than 2000 a second.
const GAP: Duration = Duration::from_micros(500);
/// Addresses that are checked at most.
const TARGETS_MAX: usize = 10_000;

/// An address of a pool.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Target {
    pub(crate) pool: Arc<str>,
    pub(crate) address: IpAddr,
}

/// What is known of an address.
#[derive(Clone, Debug)]
pub(crate) struct State {
    /// Whether it is to be given. That is so until a check says something else.
    pub(crate) is_up: bool,
    /// Since when, in seconds since 1970.
    pub(crate) since: u64,
    /// What the last check has found, in words; empty before the first one.
    pub(crate) last: String,
    /// Checks that were carried out, and those of them that failed.
    pub(crate) checks: u64,
    pub(crate) failed: u64,
    /// Checks that this host could not carry out.
    pub(crate) impossible: u64,
}

/// What is known of all addresses that are checked; a copy knows the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Health(Arc<Mutex<BTreeMap<Target, State>>>);

impl Health {
    /// Looks at what is known, or changes it.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut BTreeMap<Target, State>) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The addresses of a pool that are not to be given.
    pub(crate) fn down_of(&self, pool: &Arc<str>) -> BTreeSet<IpAddr> {
        let down = |(target, state): (&Target, &State)| {
            (target.pool == *pool && !state.is_up).then_some(target.address)
        };
        self.with(|states| states.iter().filter_map(down).collect())
    }

    /// What is known of an address.
    pub(crate) fn state(&self, pool: &Arc<str>, address: IpAddr) -> Option<State> {
        self.with(|states| states.get(&Target { pool: Arc::clone(pool), address }).cloned())
    }
}

/// What is to be checked.
type Targets = BTreeMap<Target, CheckSpec>;

/// The thread that checks.
pub(crate) struct Checker {
    wanted: Arc<Mutex<Targets>>,
    waker: Option<Waker>,
    health: Health,
    events: Sender<Event>,
}

impl Checker {
    /// One that has nothing to check, and no thread yet. It says on `events` that the health of an address has changed.
    pub(crate) fn new(health: Health, events: Sender<Event>) -> Checker {
        Checker { wanted: Arc::default(), waker: None, health, events }
    }

    /// Checks these from now on, and no others.
    pub(crate) fn check(&mut self, mut targets: Targets) {
        if targets.len() > TARGETS_MAX {
            log::error!(
                "pools have {} addresses to check, and only {TARGETS_MAX} are: the others count as up",
                targets.len()
            );
            targets = targets.into_iter().take(TARGETS_MAX).collect();
        }
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        if *wanted == targets {
            return;
        }
        *wanted = targets;
        drop(wanted);
        let woken = match &self.waker {
            Some(waker) => waker.wake().context("waking the thread"),
            None => self.start(),
        };
        if let Err(error) = woken {
            log::error!("hosts are not checked: {error:#}");
        }
    }

    fn start(&mut self) -> anyhow::Result<()> {
        let poll = Poll::new()?;
        self.waker = Some(Waker::new(poll.registry(), WAKER)?);
        let checks = Checks {
            poll,
            wanted: Arc::clone(&self.wanted),
            targets: Targets::new(),
            watches: Watches::new(RUNNING_MAX, GAP),
            probes: BTreeMap::new(),
            next_token: 0,
            clock: Clock::start(),
            health: self.health.clone(),
            events: self.events.clone(),
        };
        thread::Builder::new().name("health".to_owned()).spawn(move || checks.run())?;
        Ok(())
    }
}

const WAKER: Token = Token(usize::MAX);

/// A check that runs.
struct Running {
    target: Target,
    probe: Probe,
    ends: Instant,
    timeout: Duration,
}

struct Checks {
    poll: Poll,
    wanted: Arc<Mutex<Targets>>,
    targets: Targets,
    watches: Watches<Target>,
    /// By their tokens.
    probes: BTreeMap<usize, Running>,
    next_token: usize,
    clock: Clock,
    health: Health,
    events: Sender<Event>,
}

impl Checks {
    fn run(mut self) {
        let mut events = Events::with_capacity(RUNNING_MAX);
        let mut is_told = true;
        loop {
            if is_told {
                self.take_wanted();
            }
            self.begin();
            let deadlines = self.probes.values().map(|running| running.ends).chain(self.watches.deadline());
            let now = self.clock.now();
            // A millisecond is as fine as a poll waits.
            let wait = deadlines.min().map(|at| (at.since(now) + Duration::from_millis(1)).into());
            if let Err(error) = self.poll.poll(&mut events, wait)
                && error.kind() != io::ErrorKind::Interrupted
            {
                log::error!("hosts are not checked any more: {error}");
                return;
            }
            is_told = events.iter().any(|event| event.token() == WAKER);
            for event in events.iter().filter(|event| event.token() != WAKER) {
                let Token(token) = event.token();
                if let Some(outcome) = self.probes.get_mut(&token).and_then(|running| running.probe.go_on()) {
                    self.end(token, outcome);
                }
            }
            self.end_late();
        }
    }

    /// Takes over what is to be checked. Another check of the same host begins without anything known.
    fn take_wanted(&mut self) {
        let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if wanted == self.targets {
            return;
        }
        let now = self.clock.now();
        let mut same = self.targets.clone();
        same.retain(|target, spec| wanted.get(target) == Some(spec));
        let policies =
            |targets: &Targets| targets.iter().map(|(target, spec)| (target.clone(), policy(spec))).collect();
        self.watches.set(&policies(&same), now);
        self.watches.set(&policies(&wanted), now);
        self.probes.retain(|_, running| same.contains_key(&running.target));
        let unknown = State {
            is_up: true,
            since: unix_time(),
            last: String::new(),
            checks: 0,
            failed: 0,
            impossible: 0,
        };
        self.health.with(|states| {
            states.retain(|target, _| same.contains_key(target));
            let new = wanted.keys().filter(|target| !same.contains_key(*target));
            states.extend(new.map(|target| (target.clone(), unknown.clone())));
        });
        self.targets = wanted;
        let _ = self.events.send(Event::Health); // What was down may count as up again.
    }

    fn begin(&mut self) {
        while let Some(target) = self.watches.poll(self.clock.now()) {
            let Some(spec) = self.targets.get(&target) else { continue };
            let (token, timeout) = (self.next_token, spec.timeout);
            self.next_token = (token + 1) % WAKER.0;
            let begun = Probe::begin(&spec.kind, target.address, token, self.poll.registry());
            let ends = self.clock.now() + timeout;
            match begun {
                Ok(probe) => drop(self.probes.insert(token, Running { target, probe, ends, timeout })),
                Err(outcome) => self.note(&target, outcome),
            }
        }
    }

    fn end(&mut self, token: usize, outcome: Outcome) {
        if let Some(Running { target, mut probe, .. }) = self.probes.remove(&token) {
            probe.end(self.poll.registry());
            self.note(&target, outcome);
        }
    }

    /// Ends checks that have taken as long as they may.
    fn end_late(&mut self) {
        let now = self.clock.now();
        let late = self.probes.iter().filter(|(_, running)| running.ends <= now);
        let late: Vec<(usize, Duration)> = late.map(|(token, running)| (*token, running.timeout)).collect();
        for (token, timeout) in late {
            let millis = timeout.as_nanos() / 1_000_000;
            self.end(token, Outcome::Failed(format!("no answer within {millis} ms")));
        }
    }

    /// Counts what came of a check.
    fn note(&mut self, target: &Target, outcome: Outcome) {
        let known = self.watches.is_up(target).unwrap_or(true);
        let is_impossible = matches!(outcome, Outcome::Impossible(_));
        let (is_good, last) = match outcome {
            Outcome::Good(what) => (true, what),
            Outcome::Failed(what) => (false, what),
            // That says nothing of the host.
            Outcome::Impossible(what) => (known, format!("cannot be checked: {what}")),
        };
        let news = self.watches.on_checked(target, is_good, self.clock.now());
        let is_new = self.health.with(|states| {
            let Some(state) = states.get_mut(target) else { return false };
            if is_impossible {
                state.impossible += 1;
            } else {
                state.checks += 1;
                state.failed += u64::from(!is_good);
            }
            if let Some(is_up) = news {
                (state.is_up, state.since) = (is_up, unix_time());
            }
            std::mem::replace(&mut state.last, last.clone()) != last
        });
        let Target { pool, address } = target;
        match news {
            Some(true) => log::info!("pool {pool}: {address} is up: {last}"),
            Some(false) => {
                log::warn!("pool {pool}: {address} is down: {last}");
                let is_any_up = |states: &mut BTreeMap<Target, State>| {
                    states.iter().any(|(other, state)| other.pool == *pool && state.is_up)
                };
                if !self.health.with(is_any_up) {
                    log::error!("pool {pool}: none of its addresses is up, so all of them are given");
                }
            }
            None if is_new && last.starts_with("cannot") => log::error!("pool {pool}: {address} {last}"),
            None => {}
        }
        if news.is_some() {
            let _ = self.events.send(Event::Health); // A server that ends needs none.
        }
    }
}

fn policy(spec: &CheckSpec) -> Policy {
    Policy { interval: spec.interval, rise: spec.rise, fall: spec.fall }
}
