//! Counters of a running server, told through its control socket.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use arc_swap::ArcSwap;
use dns_auth::{Counters, ServedZone};
use dns_server::{Admission, Published};
use dns_wire::{Name, NameBuf, Rtype};
use engine::EngineHandle;
use native::SteeringCounts;
use observe::client::{Answer, Answering};
use observe::protocol::{Reply, Request};
use observe::report::{Count, ZoneReport, ZoneVersion};
use observe::{ControlSocket, Program, Subject};

use super::options;
use super::version::write_zone_to;
use crate::observe::{device_lines, each_engine, next_reply};
use crate::output::to_stdout;

/// What servers are called among the programs that can be looked at.
pub(crate) const NAME: &str = "dns";

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
    /// The steering program, if an interface is served.
    pub(crate) steering: Option<SteeringCounts>,
    /// What is served.
    pub(crate) published: Arc<ArcSwap<Published>>,
}

impl Subject for Sources {
    fn counters(&self) -> Vec<Count> {
        self.counts()
    }

    fn zones(&self) -> Vec<ZoneReport> {
        let published = self.published.load_full();
        published.catalog.zones().iter().map(|zone| report(zone, &published)).collect()
    }

    fn write_zone(&self, name: &str, out: &mut dyn io::Write) -> Result<io::Result<()>, String> {
        let name = NameBuf::from_text(name.as_bytes(), Some(Name::ROOT))
            .map_err(|error| format!("{name:?} is no name: {error}"))?;
        let catalog = Arc::clone(&self.published.load().catalog);
        let zone = catalog.find(name.as_name()).filter(|zone| zone.origin() == name.as_name());
        match zone.map(ServedZone::tree) {
            None => Err(format!("there is no zone {name}")),
            Some(Err(_)) => Err(format!("zone {name} has no version")),
            Some(Ok(tree)) => Ok(write_zone_to(tree, out)),
        }
    }
}

impl Sources {
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
        counts
    }
}

fn report(zone: &ServedZone, published: &Published) -> ZoneReport {
    let origin = zone.origin();
    let version = zone.tree().ok().map(|tree| ZoneVersion {
        serial: tree.serial(),
        records: tree.record_count(),
        names: tree.node_count(),
        is_signed: tree.apex().rrsets().any(|rrset| rrset.rtype() == Rtype::DNSKEY),
    });
    let policy = published.transfers.policy.zones.get(&NameBuf::from(origin));
    let is_secondary = policy.is_some_and(|policy| !policy.primaries.is_empty());
    ZoneReport { zone: origin.to_string(), is_secondary, version }
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
        while let Some(reply) = next_reply(&answering, &mut answer)? {
            let Reply::Counters(report) = reply else { continue };
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
