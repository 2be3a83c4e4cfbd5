//! Carries plans out for one resolver or ten thousand, at a bounded rate.

use std::sync::Arc;
use std::time::Duration;

use dns_audit::checks::Finding;
use dns_audit::plan::{Party, Planner, Step};
use dns_audit::probes::Probe;
use dns_audit::report::ResolverReport;
use dns_audit::transcript::{Exchange, Outcome, Transcript};
use tokio::sync::{Mutex, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::clock::{self, unix_ms};
use super::exchange::server;
use super::options::{Settings, Target};

/// After the last exchange the log may still grow: resolvers ask again, and other servers.
const LOG_WAIT: Duration = Duration::from_millis(300);

/// Leaves a time between questions.
struct Pace {
    interval: Duration,
    next: Mutex<Instant>,
    count: std::sync::atomic::AtomicU64,
}

impl Pace {
    fn new(rate: u32) -> Pace {
        let interval = Duration::from_secs(1) / rate.max(1);
        Pace { interval, next: Mutex::new(Instant::now()), count: Default::default() }
    }

    /// Returns when the next question may leave.
    async fn wait(&self) {
        let mut next = self.next.lock().await;
        let at = (*next).max(Instant::now());
        *next = at + self.interval;
        drop(next);
        self.count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        sleep_until(at).await;
    }
}

/// Audits all resolvers, so many at a time as the rate for all allows; reports are in the order of the resolvers.
pub(super) async fn audit_all(settings: &Arc<Settings>) -> anyhow::Result<Vec<ResolverReport>> {
    let offset = match settings.authorities.first() {
        Some(first) => {
            Some(clock::offset_ms(settings.askers.plain(), *first, settings.zone.as_name()).await?)
        }
        None => None,
    };
    let places = Arc::new(Semaphore::new((settings.total_rate / settings.rate).max(1) as usize));
    let mut tasks = JoinSet::new();
    for (number, target) in settings.targets.iter().cloned().enumerate() {
        let (settings, places) = (Arc::clone(settings), Arc::clone(&places));
        tasks.spawn(async move {
            let _place = places.acquire_owned().await; // Nobody closes it.
            (number, audit(&settings, &target, offset).await)
        });
    }
    let mut reports = Vec::new();
    while let Some(done) = tasks.join_next().await {
        reports.push(done?);
    }
    reports.sort_by_key(|(number, _)| *number);
    Ok(reports.into_iter().map(|(_, report)| report).collect())
}

/// Audits one resolver.
async fn audit(settings: &Arc<Settings>, target: &Target, offset: Option<i64>) -> ResolverReport {
    let pace = Arc::new(Pace::new(settings.rate));
    let offset = match offset {
        Some(offset) => offset,
        // By way of the resolver. One that does not answer is seen by the probes.
        None => clock::offset_ms(settings.askers.plain(), target.address, settings.zone.as_name())
            .await
            .unwrap_or(0),
    };
    let mut findings: Vec<(usize, Vec<Finding>)> = Vec::new();
    let mut together = JoinSet::new();
    for (number, probe) in settings.probes.iter().enumerate() {
        let (settings, target, pace) = (Arc::clone(settings), target.clone(), Arc::clone(&pace));
        let is_together = settings.is_together;
        let run = run(settings, target, pace, probe, offset);
        if is_together {
            together.spawn(async move { (number, run.await) });
        } else {
            findings.push((number, run.await));
        }
    }
    while let Some(done) = together.join_next().await {
        findings.extend(done.ok());
    }
    findings.sort_by_key(|(number, _)| *number);
    let findings = findings.into_iter().flat_map(|(_, findings)| findings).collect();
    let questions = pace.count.load(std::sync::atomic::Ordering::Relaxed);
    ResolverReport::new(show(target), findings, questions)
}

fn show(target: &Target) -> String {
    match &target.name {
        Some(name) => format!("{}#{}", target.address, name.escape_default()),
        None => target.address.to_string(),
    }
}

/// Runs one probe against one resolver.
async fn run(
    settings: Arc<Settings>,
    target: Target,
    pace: Arc<Pace>,
    probe: &'static Probe,
    offset: i64,
) -> Vec<Finding> {
    let Ok(nonce) = clock::nonce() else { return Vec::new() };
    let ahead = |ms: u64| ms.saturating_add_signed(offset);
    let (start_ms, start) = (ahead(unix_ms()), Instant::now());
    let mut planner = Planner::new(settings.zone.as_name(), target.address, &settings.plan, nonce, start_ms);
    (probe.plan)(&mut planner);
    let mut tasks = JoinSet::new();
    for step in planner.finish() {
        let (settings, target, pace) = (Arc::clone(&settings), target.clone(), Arc::clone(&pace));
        tasks.spawn(async move { carry_out(&settings, &target, &pace, step, start, start_ms).await });
    }
    let mut exchanges = Vec::new();
    while let Some(done) = tasks.join_next().await {
        exchanges.extend(done.ok());
    }
    exchanges.sort_by_key(|exchange| exchange.sent_ms);
    tokio::time::sleep(LOG_WAIT).await;
    let log = match settings.authorities.first() {
        Some(first) => clock::log(settings.askers.plain(), *first, settings.zone.as_name(), nonce).await.ok(),
        None => None,
    };
    let target = target.address;
    let (options, networks) = (&settings.plan, &settings.networks);
    (probe.judge)(&Transcript { target, start_ms, exchanges, log, options, networks })
}

/// One step of a plan, when it is time and the rate allows.
async fn carry_out(
    settings: &Settings,
    target: &Target,
    pace: &Pace,
    step: Step,
    start: Instant,
    start_ms: u64,
) -> Exchange {
    sleep_until(start + Duration::from_millis(step.at_ms)).await;
    let server = match (step.party, settings.authorities.first()) {
        (Party::Authority, Some(authority)) => server(*authority, None),
        _ => {
            pace.wait().await;
            server(target.address, target.name.clone())
        }
    };
    let sent_ms = start_ms + start.elapsed().as_millis() as u64; // Plans are short.
    let (outcome, took) = settings.askers.exchange(&step, &server).await;
    let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    let outcome = match outcome {
        Outcome::Failed(reason) => Outcome::Failed(reason.escape_default().to_string()),
        other => other,
    };
    Exchange { step, sent_ms, took_us, outcome }
}
