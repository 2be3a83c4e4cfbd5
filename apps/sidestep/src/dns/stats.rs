//! Counters of a running server, told through its control socket.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use arc_swap::ArcSwap;
use dns_auth::{Catalog, Counters, ServedZone};
use dns_front::CertificateInUse;
use dns_server::{Admission, Published, TransferService};
use dns_wire::{Name, NameBuf, Rtype};
use dns_zone::Zone;
use dns_zone::findings::findings;
use engine::EngineHandle;
use native::SteeringCounts;
use observe::client::{Answer, Answering};
use observe::protocol::{ExplainRequest, Request, ZoneAction};
use observe::report::{Count, PoolHealth, ZoneReport, ZoneVersion, with_labels};
use observe::{ControlSocket, Program, Subject};

use super::check::place_of;
use super::explain::{self, Asked};
use super::health::{Health, State, Target};
use super::load::{addresses_at, varies_by_line};
use super::options;
use super::orders::{Orders, SharedStates};
use super::pools::Pools;
use super::secondary::Notices;
use super::transfers::unix_time;
use super::version::write_zone_to;
use super::zone_metrics::{self, Seen};
use crate::observe::{device_lines, each_engine, whole_counters};
use crate::output::to_stdout;

/// What servers are called among the programs that can be looked at.
pub(crate) const NAME: &str = "dns";

/// Addresses whose health is counted at most: each is a metric of its own.
const HEALTH_COUNTS_MAX: usize = 1000;

/// Everything that counts.
pub(crate) struct Sources {
    /// The engines in order.
    pub(crate) engines: Vec<EngineHandle>,
    /// Of every responder, whatever its transport.
    pub(crate) responders: Vec<Arc<Counters>>,
    /// Who is connected by TCP. None when the responder is an echo.
    pub(crate) admission: Option<Arc<Admission>>,
    /// Who is connected by TLS, HTTPS and QUIC, if that is served.
    pub(crate) encrypted: Option<Arc<Admission>>,
    /// What they get as certificate.
    pub(crate) certificate: Option<CertificateInUse>,
    /// The steering program, if an interface is served.
    pub(crate) steering: Option<SteeringCounts>,
    /// What is served.
    pub(crate) published: Arc<ArcSwap<Published>>,
    /// What is known of zones besides.
    pub(crate) states: SharedStates,
    /// When the signatures of zones end.
    pub(crate) signed_until: SignedUntil,
    /// How the hosts of pools are.
    pub(crate) health: Health,
    /// Where orders for single zones go.
    pub(crate) orders: Orders,
    /// Where secondary zones are asked for.
    pub(crate) notices: Notices,
}

impl Subject for Sources {
    fn counters(&self) -> Vec<Count> {
        self.counts()
    }

    fn zones(&self) -> Vec<ZoneReport> {
        let published = self.published.load_full();
        let reports = published.catalog.zones().map(|zone| self.report(zone, &published.transfers)).collect();
        self.signed_until.forget_others(&published.catalog);
        reports
    }

    fn change_zone(&self, name: &str, action: ZoneAction) -> Result<Vec<String>, String> {
        let origin = parse_origin(name)?;
        match action {
            ZoneAction::Check => self.check(&origin),
            ZoneAction::Retransfer => self.retransfer(&origin).map(|said| vec![said]),
            action => {
                let said = self.orders.carry_out(origin, action)?;
                Ok(said.lines().map(str::to_owned).collect())
            }
        }
    }

    fn explain(&self, question: &ExplainRequest) -> Result<Vec<String>, String> {
        let published = self.published.load_full();
        let (lines, lines_problem, pools) = self.states.with(|states| {
            (Arc::clone(&states.lines), states.lines_problem.clone(), Arc::clone(&states.pools))
        });
        let pools = Pools { specs: pools, health: self.health.clone() };
        let explained = Asked::try_from(question).and_then(|asked| {
            let lines = (&*lines, lines_problem.as_deref());
            explain::explained(&asked, lines, &pools, (&published.catalog, &published.settings))
        });
        explained.map_err(|error| format!("{error:#}"))
    }

    fn write_zone(&self, name: &str, out: &mut dyn io::Write) -> Result<io::Result<()>, String> {
        let catalog = Arc::clone(&self.published.load().catalog);
        tree_of(&catalog, &parse_origin(name)?).map(|tree| write_zone_to(tree, out))
    }
}

impl Sources {
    /// What works badly in a zone as it is served.
    fn check(&self, origin: &NameBuf) -> Result<Vec<String>, String> {
        let catalog = Arc::clone(&self.published.load().catalog);
        let tree = tree_of(&catalog, origin)?;
        let found = findings(tree, unix_time() as u32);
        let found = found.map(|found| format!("{}: warning: {}", place_of(tree, &found.owner), found.kind));
        let zone = catalog.find(origin.as_name());
        let of_lines = zone.and_then(|zone| self.lines_problem(zone));
        let of_lines = of_lines.map(|problem| format!("{origin}: error: {problem}"));
        let lines: Vec<String> = of_lines.into_iter().chain(found).collect();
        let nothing = || vec![format!("zone {origin}: nothing to report")];
        Ok(if lines.is_empty() { nothing() } else { lines })
    }

    /// Has all of a secondary zone transferred.
    fn retransfer(&self, origin: &NameBuf) -> Result<String, String> {
        if !is_secondary(&self.published.load().transfers, origin) {
            return Err(format!("there is no secondary zone {origin} here"));
        }
        self.notices.retransfer(origin.clone());
        Ok(format!("zone {origin}: all of it is transferred, whatever serial its primaries have"))
    }

    fn report(&self, zone: &Arc<ServedZone>, transfers: &TransferService) -> ZoneReport {
        let origin = NameBuf::from(zone.origin());
        let (is_frozen, last_transfer) = self
            .states
            .with(|states| (states.frozen.contains(&origin), states.transfers.get(&origin).copied()));
        let version = zone.tree().ok().map(|tree| ZoneVersion {
            serial: tree.serial(),
            records: tree.record_count(),
            names: tree.name_count(),
            is_signed: tree.apex().rrsets().any(|rrset| rrset.rtype() == Rtype::DNSKEY),
            signed_until: self.signed_until.of(zone),
            is_frozen,
            last_transfer,
            health: self.health_of(zone),
        });
        let is_secondary = is_secondary(transfers, &origin);
        let problem = self.problem(zone, transfers);
        let (is_catalog, is_from_etcd) = self.states.with(|states| {
            (states.catalog.as_ref() == Some(&origin), states.etcd_problem(&origin).is_some())
        });
        let zone = origin.to_string();
        ZoneReport { zone, is_secondary, is_catalog, is_from_etcd, version, problem }
    }

    /// Why a zone is not what the configuration, its files and its keys say, or etcd, or its primaries.
    fn problem(&self, zone: &ServedZone, transfers: &TransferService) -> Option<String> {
        let origin = NameBuf::from(zone.origin());
        let is_secondary = is_secondary(transfers, &origin);
        let problem = self.states.with(|states| match states.etcd_problem(&origin) {
            Some(problem) => problem.clone(),
            None if is_secondary => states.secondaries.get(&origin)?.problem.clone(),
            None => states.problem(&origin),
        });
        let problem = problem.or_else(|| self.lines_problem(zone));
        problem.or_else(|| zone.left_out().map(ToString::to_string))
    }

    /// Why clients do not get the records of their lines in a zone where lines have some.
    fn lines_problem(&self, zone: &ServedZone) -> Option<String> {
        self.states.with(|states| states.lines_problem.clone()).filter(|_| varies_by_line(zone))
    }

    /// What is counted beside engines and devices: DNS over all cores together, the steering program, and TCP.
    fn counts(&self) -> Vec<(String, u64)> {
        let mut counts = Vec::new();
        let mut add = |prefix: &str, name: &str, value| counts.push((format!("{prefix}_{name}"), value));
        for (name, value) in sum(self.responders.iter().map(|counters| counters.named())) {
            add("dns", &name, value);
        }
        let steering = self.steering.iter().filter_map(|counts| counts.lock().ok()?.clone());
        for (name, value) in steering.flatten() {
            add("steering", name, value);
        }
        for (prefix, admission) in [("tcp", &self.admission), ("encrypted", &self.encrypted)] {
            for (name, value) in admission.iter().flat_map(|admission| admission.counters().named()) {
                add(prefix, name, value);
            }
        }
        let ends_at = self.certificate.as_ref().and_then(CertificateInUse::ends_at);
        counts.extend(ends_at.map(|at| ("encrypted_certificate_ends_at".to_owned(), at)));
        if let Some(slots) = &self.published.load().transfers.policy.slots {
            counts.push(("transfers_ended_slow".to_owned(), slots.ended_slow()));
        }
        if let Some(log) = &self.published.load().log {
            counts.push(("query_log_lost".to_owned(), log.lost()));
        }
        if let Some(link) = self.states.with(|states| states.etcd_link) {
            counts.push(("etcd_connected".to_owned(), link.is_connected.into()));
            counts.push(("etcd_revision".to_owned(), link.revision));
        }
        let lines = self.states.with(|states| (states.lines.lines.len(), states.lines_problem.is_some()));
        if let (1.., has_problem) = lines {
            counts.push(("lines_have_problem".to_owned(), has_problem.into()));
        }
        counts.push(("ready".to_owned(), self.states.with(|states| states.is_ready()).into()));
        counts.extend(self.health_counts());
        counts.extend(self.zone_counts());
        counts
    }

    /// What is known of all zones together, and of as many as are configured alone.
    ///
    /// Nothing is locked for longer than a look at one zone takes, and no publication is held: a reload waits until nobody has the old one.
    fn zone_counts(&self) -> Vec<Count> {
        let (catalog, transfers) = {
            let published = self.published.load();
            (Arc::clone(&published.catalog), Arc::clone(&published.transfers))
        };
        let queries = |counter| self.responders.iter().map(|counters| counters.of_zone(counter)).sum::<u64>();
        let zones = catalog.zones().zip(0..).map(|(zone, number)| {
            let counter = Some(catalog.counter(number)).filter(|counter| *counter != 0);
            Seen { queries: counter.map(queries), ..self.see(zone, &transfers) }
        });
        let zones: Vec<Seen> = zones.collect();
        self.signed_until.forget_others(&catalog);
        let mut counts = zone_metrics::counts(&zones, self.states.with(|states| states.zone_metrics_max));
        counts.push(("zones_queries_of_others".to_owned(), queries(0)));
        counts
    }

    fn see(&self, zone: &Arc<ServedZone>, transfers: &TransferService) -> Seen {
        let origin = NameBuf::from(zone.origin());
        let is_secondary = is_secondary(transfers, &origin);
        let expires_at = self.states.with(|states| states.secondaries.get(&origin)?.expires_at);
        Seen {
            has_problem: self.problem(zone, transfers).is_some(),
            version: zone.tree().ok().map(|tree| (tree.serial(), tree.record_count() as u64)),
            signed_until: self.signed_until.of(zone),
            expires_at: expires_at.filter(|_| is_secondary),
            is_secondary,
            queries: None,
            origin,
        }
    }

    /// Of each address that is checked, whether it is up, and what its checks have found.
    fn health_counts(&self) -> Vec<(String, u64)> {
        let of = |(target, state): (&Target, &State)| {
            let labels: [(&str, &dyn Display); 2] = [("pool", &target.pool), ("address", &target.address)];
            let counts = [
                ("up", u64::from(state.is_up)),
                ("checks", state.checks),
                ("checks_failed", state.failed),
                ("checks_impossible", state.impossible),
            ];
            counts.map(|(name, value)| (with_labels(&format!("pool_{name}"), &labels), value))
        };
        self.health.with(|states| states.iter().take(HEALTH_COUNTS_MAX).flat_map(of).collect())
    }

    /// Addresses of a zone that are checked, and how many of them are down.
    fn health_of(&self, zone: &ServedZone) -> Option<PoolHealth> {
        let data = zone.lines()?.data();
        let mut health = PoolHealth::default();
        let pools = self.states.with(|states| Arc::clone(&states.pools));
        for name in data.pools().keys() {
            let Some(pool) = pools.iter().find(|pool| pool.names.contains(name)) else { continue };
            let addresses = addresses_at(zone.tree().ok(), data, name);
            let states = addresses.into_iter().filter_map(|address| self.health.state(&pool.name, address));
            states.for_each(|state| {
                health.addresses += 1;
                health.down += usize::from(!state.is_up);
            });
        }
        (health.addresses > 0).then_some(health)
    }
}

fn is_secondary(transfers: &TransferService, origin: &NameBuf) -> bool {
    let policy = transfers.policy.zones.get(origin);
    policy.is_some_and(|policy| !policy.primaries.is_empty())
}

fn parse_origin(name: &str) -> Result<NameBuf, String> {
    let origin = NameBuf::from_text(name.as_bytes(), Some(Name::ROOT));
    origin.map_err(|error| format!("{name:?} is no name: {error}"))
}

/// The data of a zone, or why there is none.
fn tree_of<'c>(catalog: &'c Catalog, origin: &NameBuf) -> Result<&'c Zone, String> {
    let zone = catalog.find(origin.as_name()).filter(|zone| zone.origin() == origin.as_name());
    match zone.map(ServedZone::tree) {
        None => Err(format!("there is no zone {origin}")),
        Some(Err(_)) => Err(format!("zone {origin} has no version")),
        Some(Ok(tree)) => Ok(tree),
    }
}

/// When the signatures of zones end. A look at all of them takes long in a large zone, so it is remembered for a version.
#[derive(Default)]
pub(crate) struct SignedUntil(Mutex<HashMap<NameBuf, Known>>);

/// What was found in a version.
struct Known {
    version: Weak<ServedZone>,
    until: Option<u64>,
    /// When, and how long it took.
    found: Instant,
    took: Duration,
}

impl Known {
    /// A large zone that changes all the time is not looked through more than a hundredth of the time: its signatures end days ahead.
    fn is_good_for(&self, zone: &Arc<ServedZone>) -> bool {
        const LONG: Duration = Duration::from_millis(100);
        let is_same = std::ptr::eq(self.version.as_ptr(), Arc::as_ptr(zone));
        is_same || (self.took > LONG && self.found.elapsed() < self.took * 100)
    }
}

impl SignedUntil {
    /// When the first signature of a zone ends, in seconds since 1970.
    fn of(&self, zone: &Arc<ServedZone>) -> Option<u64> {
        let tree = zone.tree().ok().filter(|tree| tree.is_signed())?;
        let origin = NameBuf::from(zone.origin());
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get(&origin).filter(|known| known.is_good_for(zone)) {
            return known.until;
        }
        let (found, until) = (Instant::now(), signed_until(tree));
        let version = Arc::downgrade(zone);
        known.insert(origin, Known { version, until, found, took: found.elapsed() });
        until
    }

    /// Forgets the zones that are not in `catalog`.
    fn forget_others(&self, catalog: &Catalog) {
        let is_there = |origin: &NameBuf| {
            catalog.find(origin.as_name()).is_some_and(|zone| zone.origin() == origin.as_name())
        };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|origin, _| is_there(origin));
    }
}

/// When the first signature of a signed zone ends, in seconds since 1970.
fn signed_until(zone: &Zone) -> Option<u64> {
    let expirations = zone.nodes().flat_map(|node| {
        let sets = node.rrsets().filter(|set| set.rtype() == Rtype::RRSIG);
        sets.flat_map(|set| set.records()).filter_map(|rdata| rdata.get(8..12)?.try_into().ok())
    });
    // Times in signatures have 32 bits, which end in 2106 (RFC 4034, 3.1.5).
    expirations.map(u32::from_be_bytes).min().map(u64::from)
}

/// Adds up counts of the same name; in the order of names.
fn sum(lists: impl Iterator<Item = Vec<(String, u64)>>) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for (name, value) in lists.flatten() {
        *sums.entry(name).or_default() += value;
    }
    sums
}

/// Lets tools look at the server: at `path`, or where they look by themselves.
pub(crate) fn serve(path: Option<&Path>, sources: Sources) -> anyhow::Result<ControlSocket> {
    let program = Program::new(NAME, sources.engines.clone()).telling(sources);
    match path {
        Some(path) => {
            observe::serve_at(path, program).with_context(|| format!("control socket {}", path.display()))
        }
        None => observe::serve(program).context("control socket"),
    }
}

/// `sidestep dns stats`.
pub(crate) fn print(options: &options::Stats) -> anyhow::Result<ExitCode> {
    let answers = options.which.ask(&Request::Counters)?;
    let (answering, mut answer) = only(answers, &[NAME, super::resolve::NAME])?;
    to_stdout(|out| {
        if let Some(report) = whole_counters(&answering, &mut answer)? {
            device_lines(&report).iter().try_for_each(|line| writeln!(out, "{line}"))?;
            each_engine(&report).iter().try_for_each(|(name, value)| writeln!(out, "{name} {value}"))?;
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The answer of the only program with one of these names.
pub(crate) fn only(
    mut answers: Vec<(Answering, Answer)>,
    names: &[&str],
) -> anyhow::Result<(Answering, Answer)> {
    answers.retain(|(answering, _)| names.contains(&&*answering.name));
    let pids: Vec<String> = answers.iter().map(|(answering, _)| answering.pid.to_string()).collect();
    match answers.pop() {
        Some(answer) if answers.is_empty() => Ok(answer),
        Some(_) => bail!("several servers are running: {}; choose one with --pid", pids.join(", ")),
        None => bail!("no Sidestep DNS server is running here"),
    }
}
