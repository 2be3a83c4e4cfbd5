//! `sidestep gun`: a load generator that says when it was itself the bottleneck.
//!
//! | file | what it does |
//! | --- | --- |
//! | `options.rs` | the command line |
//! | `target.rs` | where a load may go |
//! | `kernel.rs`, `interface.rs` | the device and the ways to the server: kernel sockets, or an interface by AF_XDP |
//! | `load.rs` | one load: the loop around `gun::Gun` |
//! | `report.rs`, `text.rs`, `html.rs` | what came of it, as JSON, for the terminal, and as a page |

mod html;
mod interface;
mod kernel;
mod load;
mod options;
mod report;
mod target;
mod text;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use clap::Subcommand;
use gun::Questions;
use gun::knee::{Knee, Rates};

use crate::output;
use load::Range;
use options::{Compare, Dns};
use report::{Found, Report};

/// How near the two sides of a knee have to be.
const PRECISION: f64 = 1.05;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Ask a DNS server over UDP, at a fixed rate or to find the largest rate that it carries.
    ///
    /// Questions are sent when they are due, whatever the server does, and the time of an answer counts from then: a server that stalls
    /// cannot hide the questions that it kept from being asked. Each answer is matched to its question. The report says whether the
    /// generator was the bottleneck itself. Ctrl-C ends the load and prints what was measured.
    #[command(verbatim_doc_comment)]
    Dns(Box<Dns>),
    /// Show two reports (`--json`) side by side.
    Compare(Compare),
}

pub(crate) fn run(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Dns(options) => dns(options),
        Command::Compare(options) => compare(options),
    }
}

fn dns(options: &Dns) -> anyhow::Result<ExitCode> {
    target::check(options.server.ip(), options.yes_i_own_it)?;
    let questions = options.questions()?;
    let stop = Arc::<AtomicBool>::default();
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let mut range = match &options.device {
        Some(interface) => interface::open(interface, options.server, options.ports)?,
        None => kernel::open(options.server, options.ports)?,
    };
    range.stop = stop;
    let mut report = Report::begin(options, &range.description, questions.len());
    text::begin(&report);
    if options.find_knee {
        report.knee = Some(find_knee(options, &questions, &mut range, &mut report)?);
    } else {
        let (rate, length) = (options.rate, options.length());
        report.loads.push(range.fire(
            &questions,
            (rate, length, options.patience()),
            text::Live::new(rate),
        )?);
    }
    save(&report, options)?;
    let is_taken = [&options.json, &options.html].into_iter().flatten().any(|path| path == Path::new("-"));
    if !is_taken {
        output::to_stdout(|out| text::end(&report, out))?;
    }
    let answered = report.loads.iter().any(|load| load.counts.answered > 0);
    if !answered {
        output::complain!("sidestep gun: {} answered nothing", options.server);
    }
    Ok(if answered { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn find_knee(
    options: &Dns,
    questions: &Questions,
    range: &mut Range,
    report: &mut Report,
) -> anyhow::Result<Found> {
    let mut knee = Knee::search(options.rate, PRECISION);
    while let Some(rate) = knee.next_load().filter(|_| !range.is_stopped()) {
        let load = (rate, options.step(), options.patience());
        let summary = range.fire(questions, load, text::Live::silent())?;
        let rates = Rates { sent: summary.sent_rate() as u64, answered: summary.answered_rate() as u64 };
        let verdict = knee.on_run(rates);
        text::step(&summary, verdict);
        report.loads.push(summary);
    }
    Ok(Found { carried: knee.carried(), limit: knee.limit().to_string() })
}

fn save(report: &Report, options: &Dns) -> anyhow::Result<()> {
    if let Some(path) = &options.json {
        write_file(path, &serde_json::to_string_pretty(report)?)?;
    }
    if let Some(path) = &options.html {
        write_file(path, &html::page(&[report]))?;
    }
    Ok(())
}

fn compare(options: &Compare) -> anyhow::Result<ExitCode> {
    let read = |path: &Path| -> anyhow::Result<Report> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        serde_json::from_str(&text).with_context(|| format!("{}: this is no report of `gun`", path.display()))
    };
    let (first, second) = (read(&options.first)?, read(&options.second)?);
    if let Some(path) = &options.html {
        write_file(path, &html::page(&[&first, &second]))?;
    }
    output::to_stdout(|out| text::compare(&first, &second, out))?;
    Ok(ExitCode::SUCCESS)
}

fn write_file(path: &Path, text: &str) -> anyhow::Result<()> {
    if path == Path::new("-") {
        output::to_stdout(|out| Ok(writeln!(out, "{text}")?))?;
        return Ok(());
    }
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}
