//! `sidestep dns audit probe`: resolvers to a report.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Context;
use clap::Args;
use dns_audit::checks::Verdict;
use dns_audit::report::{self, Report};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tokio::sync::oneshot;

use super::options::{Probing, Settings};
use super::results::Results;
use super::{BAD, INTERRUPTED, runner};
use crate::output;

/// The options of `audit probe`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Probe {
    #[command(flatten)]
    probing: Probing,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    /// File to write a page of HTML to, which needs nothing else.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// File to which each resolver's findings are added as a line of JSON, as soon as it is done.
    #[arg(long, value_name = "FILE")]
    lines: Option<PathBuf>,
}

/// Audits, and prints what was found, also if SIGINT or SIGTERM ends it early.
pub(crate) fn probe(options: &Probe) -> anyhow::Result<ExitCode> {
    let settings = Arc::new(options.probing.settings()?);
    let results = options.lines.as_deref().map(Results::with_lines).transpose()?.unwrap_or_default();
    let page = options.html.as_deref().map(Page::open).transpose()?;
    let (report, is_whole) = audit(&settings, results, Some(signal()?))?;
    output::to_stdout(|out| {
        if options.json {
            serde_json::to_writer_pretty(&mut *out, &report)?;
            writeln!(out)?;
        } else {
            write!(out, "{}", report::text(&report))?;
        }
        Ok(())
    })?;
    if let Some(page) = page {
        page.write(&report)?;
    }
    if !is_whole {
        let (seen, all) = (report.resolvers.len(), settings.targets.len());
        output::complain!("ended early: the report has what was found of {seen} of {all} resolvers");
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let is_bad = report.resolvers.iter().any(|resolver| resolver.count(Verdict::Bad) > 0);
    Ok(if is_bad { ExitCode::from(BAD) } else { ExitCode::SUCCESS })
}

/// A file for the page of HTML. What it had stays until there is a new page.
struct Page<'a>(&'a Path, File);

impl<'a> Page<'a> {
    /// Opens the file before anything is asked: a wrong path is to cost no audit.
    fn open(path: &'a Path) -> anyhow::Result<Page<'a>> {
        let file = File::options().write(true).create(true).truncate(false).open(path);
        Ok(Page(path, file.with_context(|| format!("html {}", path.display()))?))
    }

    fn write(self, report: &Report) -> anyhow::Result<()> {
        let Page(path, mut file) = self;
        let page = report::html(report);
        // Pipes and terminals have no length.
        let is_cut = if file.metadata()?.is_file() { file.set_len(0) } else { Ok(()) };
        is_cut
            .and_then(|()| file.write_all(page.as_bytes()))
            .with_context(|| format!("writing {}", path.display()))
    }
}

/// Audits all resolvers once, or until `end`; the report, and whether it is whole.
pub(super) fn audit(
    settings: &Arc<Settings>,
    results: Results,
    end: Option<oneshot::Receiver<()>>,
) -> anyhow::Result<(Report, bool)> {
    let date = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let results = Arc::new(results);
    let is_whole = runtime.block_on(async {
        let end = async {
            match end {
                Some(end) => drop(end.await), // Whoever sends nothing is gone, as the process is.
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            done = runner::audit_all(settings, &results) => done.map(|()| true),
            () = end => Ok(false),
        }
    })?;
    let (zone, rate) = (settings.zone.to_string(), [settings.rate, settings.total_rate]);
    Ok((Report { zone, date, rate, resolvers: results.reports(settings) }, is_whole))
}

/// Tells when SIGINT or SIGTERM has come.
fn signal() -> anyhow::Result<oneshot::Receiver<()>> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("handling signals")?;
    let (sender, receiver) = oneshot::channel();
    let wait = move || {
        signals.forever().next();
        let _ = sender.send(()); // The audit may have ended.
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait).context("starting a thread")?;
    Ok(receiver)
}
