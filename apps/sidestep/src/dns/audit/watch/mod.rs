//! `sidestep dns audit watch`: audits a list again and again at a low rate, keeps what it found, and says what has changed.
//!
//! | file | what it does |
//! | --- | --- |
//! | `state.rs` | what is known of the resolvers |
//! | `history.rs` | the same in a database |
//! | `changes.rs` | what differs from the last time |
//! | `webhook.rs` | tells others of changes |
//! | `page.rs` | metrics for Prometheus |

mod changes;
mod history;
mod page;
mod state;
mod webhook;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use dns_audit::report::Report;
use log::LevelFilter;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::clock::unix_ms;
use super::options::{Probing, Settings};
use super::results::Results;
use super::{BAD, probe};
use crate::logging::LogOptions;
use crate::output;
use changes::{Change, Outbox};
use history::History;
use state::{Alarm, State};
use webhook::Webhook;

/// The options of `audit watch`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Watch {
    #[command(flatten)]
    probing: Probing,

    /// File with the history (SQLite); it is made if there is none.
    #[arg(long, value_name = "FILE")]
    history: PathBuf,

    /// Seconds from the end of one round to the start of the next.
    #[arg(long, value_name = "SECONDS", default_value_t = 900, value_parser = clap::value_parser!(u64).range(1..=604_800))]
    every: u64,

    /// Rounds, then end: exit status 2 if something has become bad, 1 if a round failed or is not in the history [default: no end].
    #[arg(long, value_name = "COUNT")]
    rounds: Option<u64>,

    /// Days for which the history is kept.
    #[arg(long, value_name = "DAYS", default_value_t = 400)]
    keep: u32,

    /// Serve /metrics and /health for Prometheus at this address.
    #[arg(long, value_name = "ADDR:PORT")]
    metrics: Option<SocketAddr>,

    /// URL (http) to which changes are posted as JSON.
    #[arg(long, value_name = "URL")]
    webhook: Option<Webhook>,

    #[command(flatten)]
    log: LogOptions,
}

/// Watches until SIGTERM or SIGINT, or for so many rounds.
pub(crate) fn watch(options: &Watch) -> anyhow::Result<ExitCode> {
    options.log.start(LevelFilter::Info);
    let settings = Arc::new(options.probing.settings()?);
    let history = History::open(&options.history)?;
    let mut state = State { is_written: true, ..State::default() };
    for target in &settings.targets {
        let name = target.show();
        let known = history.known(&name).context("reading the history")?;
        state.resolvers.insert(name, known);
    }
    let state = Arc::new(Mutex::new(state));
    if let Some(address) = options.metrics {
        page::serve(address, &state)?;
    }
    end_at_signals(Arc::clone(&state))?;
    Watcher { options, settings, state, history, history_alarm: Alarm::default(), outbox: Outbox::default() }
        .run()
}

/// A watch under way.
struct Watcher<'o> {
    options: &'o Watch,
    settings: Arc<Settings>,
    state: Arc<Mutex<State>>,
    history: History,
    history_alarm: Alarm,
    outbox: Outbox,
}

impl Watcher<'_> {
    fn run(mut self) -> anyhow::Result<ExitCode> {
        let (mut is_worse, mut round, mut alarm) = (false, 0, Alarm::default());
        loop {
            round += 1;
            match probe::audit(&self.settings, Results::default(), None) {
                Ok((report, _)) => {
                    alarm.ends();
                    is_worse |= self.take(&report, round)?;
                }
                // What is wrong in the first round is wrong with what was asked for.
                Err(error) if round == 1 => return Err(error),
                Err(error) => {
                    self.state().failed += 1;
                    let reason = format!("{error:#}");
                    if alarm.is_due(&reason, Instant::now()) {
                        log::error!("round {round} failed, and the next ones try again: {reason}");
                    }
                }
            }
            if self.options.rounds.is_some_and(|rounds| round >= rounds) {
                return Ok(match (is_worse, self.state().is_whole()) {
                    (true, _) => ExitCode::from(BAD),
                    (false, true) => ExitCode::SUCCESS,
                    (false, false) => ExitCode::FAILURE,
                });
            }
            std::thread::sleep(Duration::from_secs(self.options.every));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what a round has found, and tells what has changed; whether something has become bad.
    fn take(&mut self, report: &Report, round: u64) -> anyhow::Result<bool> {
        let changes = self.state().update(report, unix_ms() / 1000);
        self.keep(report);
        self.tell(&changes)?;
        let all = report.resolvers.len();
        let untested = report.resolvers.iter().filter(|own| own.score.points.is_none()).count();
        log::info!(
            "round {round}: {} changes; {untested} of {all} resolvers could not be tested",
            changes.len()
        );
        Ok(changes.iter().any(Change::is_worse))
    }

    /// Adds a round to the history. If that fails the watch goes on, and says so: here, in its metrics, and by its exit status.
    fn keep(&mut self, report: &Report) {
        let path = self.options.history.display();
        let is_lost = self.history.replace_if_lost();
        if matches!(is_lost, Ok(true)) {
            log::error!(
                "history {path}: the file was deleted or replaced; what it had is lost, and this round goes to the file there is now"
            );
            self.state().unwritten += 1;
        }
        let kept = is_lost
            .context("the file was deleted or replaced, and no new one can be made")
            .and_then(|_| self.history.add(report, self.options.keep));
        self.state().is_written = kept.is_ok();
        match kept {
            Ok(()) if self.history_alarm.ends() => log::info!("history {path}: rounds are written again"),
            Ok(()) => {}
            Err(error) => {
                self.state().unwritten += 1;
                let reason = format!("{error:#}");
                if self.history_alarm.is_due(&reason, Instant::now()) {
                    log::error!("{reason}: this round is not in the history, and the next ones try again");
                }
            }
        }
    }

    /// A line for each change, and a message to the webhook. What it does not take is posted with the next round's changes.
    fn tell(&mut self, changes: &[Change]) -> anyhow::Result<()> {
        output::to_stdout(|out| {
            changes.iter().try_for_each(|change| writeln!(out, "{change}")).map_err(Into::into)
        })?;
        let Some(webhook) = &self.options.webhook else { return Ok(()) };
        self.outbox.add(changes);
        let waiting = self.outbox.waiting();
        if waiting.is_empty() {
            return Ok(());
        }
        match webhook.post(&serde_json::to_vec(&waiting)?) {
            Ok(()) => self.outbox.clear(),
            Err(error) => {
                log::error!("webhook: {error:#}: {} changes wait for the next round", waiting.len())
            }
        }
        Ok(())
    }
}

/// Nothing is lost at the end: the history is written in whole rounds. The exit status says whether all rounds are in it.
fn end_at_signals(state: Arc<Mutex<State>>) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("handling signals")?;
    let wait = move || {
        signals.forever().next();
        let is_whole = state.lock().unwrap_or_else(PoisonError::into_inner).is_whole();
        std::process::exit(i32::from(!is_whole));
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait).map(drop).context("starting a thread")
}
