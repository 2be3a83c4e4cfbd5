//! `sidestep dns audit watch`: audits a list again and again at a low rate, keeps what it found, and says what has changed.
//!
//! | file | what it does |
//! | --- | --- |
//! | `history.rs` | the database |
//! | `changes.rs` | what differs from the last time |
//! | `webhook.rs` | tells others of changes |
//! | `page.rs` | metrics for Prometheus |

mod changes;
mod history;
mod page;
mod webhook;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use log::LevelFilter;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::options::{Probing, Settings};
use super::results::Results;
use super::{BAD, probe};
use crate::logging::LogOptions;
use crate::output;
use changes::Change;
use history::History;
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

    /// Rounds, then end: exit status 2 if something has become bad [default: no end].
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
    let history = Arc::new(Mutex::new(History::open(&options.history)?));
    if let Some(address) = options.metrics {
        page::serve(address, &history)?;
    }
    end_at_signals()?;
    let (mut is_worse, mut round) = (false, 0);
    loop {
        round += 1;
        match look(options, &settings, &history) {
            Ok(changes) => {
                is_worse |= changes.iter().any(Change::is_worse);
                tell(options, &changes)?;
                log::info!("round {round}: {} changes", changes.len());
            }
            // What is wrong in the first round is wrong with what was asked for.
            Err(error) if round == 1 => return Err(error),
            Err(error) => log::error!("round {round} failed, and the next one tries again: {error:#}"),
        }
        if options.rounds.is_some_and(|rounds| round >= rounds) {
            return Ok(if is_worse { ExitCode::from(BAD) } else { ExitCode::SUCCESS });
        }
        std::thread::sleep(Duration::from_secs(options.every));
    }
}

/// One round: what has changed since the last one.
fn look(options: &Watch, settings: &Arc<Settings>, history: &Mutex<History>) -> anyhow::Result<Vec<Change>> {
    let (report, _) = probe::audit(settings, Results::default(), None)?;
    let own = history.lock().unwrap_or_else(PoisonError::into_inner);
    let changes = changes::between(&own.last(&report)?, &report);
    own.add(&report)?;
    own.forget(options.keep)?;
    Ok(changes)
}

/// A line for each change, and a message to the webhook. One that fails is no reason to end.
fn tell(options: &Watch, changes: &[Change]) -> anyhow::Result<()> {
    output::to_stdout(|out| {
        changes.iter().try_for_each(|change| writeln!(out, "{change}")).map_err(Into::into)
    })?;
    if let Some(webhook) = options.webhook.as_ref().filter(|_| !changes.is_empty())
        && let Err(error) = webhook.post(&serde_json::to_vec(changes)?)
    {
        log::error!("webhook: {error:#}");
    }
    Ok(())
}

/// Nothing is lost at the end: the history is written in whole rounds.
fn end_at_signals() -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("handling signals")?;
    let wait = move || {
        signals.forever().next();
        std::process::exit(0);
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait).map(drop).context("starting a thread")
}
