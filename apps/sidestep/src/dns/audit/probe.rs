//! `sidestep dns audit probe`: resolvers to a report.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Context;
use clap::Args;
use dns_audit::checks::Verdict;
use dns_audit::report::{self, Report};

use super::options::{Probing, Settings};
use super::{BAD, runner};
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
}

/// Audits, and prints what was found.
pub(crate) fn probe(options: &Probe) -> anyhow::Result<ExitCode> {
    let settings = Arc::new(options.probing.settings()?);
    let report = audit(&settings)?;
    if let Some(path) = &options.html {
        std::fs::write(path, report::html(&report)).with_context(|| format!("writing {}", path.display()))?;
    }
    output::to_stdout(|out| {
        if options.json {
            serde_json::to_writer_pretty(&mut *out, &report)?;
            writeln!(out)?;
        } else {
            write!(out, "{}", report::text(&report))?;
        }
        Ok(())
    })?;
    let is_bad = report.resolvers.iter().any(|resolver| resolver.count(Verdict::Bad) > 0);
    Ok(if is_bad { ExitCode::from(BAD) } else { ExitCode::SUCCESS })
}

/// Audits all resolvers once.
pub(super) fn audit(settings: &Arc<Settings>) -> anyhow::Result<Report> {
    let date = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let resolvers = runtime.block_on(runner::audit_all(settings))?;
    let zone = settings.zone.to_string();
    Ok(Report { zone, date, rate: [settings.rate, settings.total_rate], resolvers })
}
