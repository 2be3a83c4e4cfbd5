//! `sidestep status`: the programs under `sidestep run`, which sockets are accelerated, and why the others
//! are not.

mod process;
mod socket;
mod text;

use std::io::Write;
use std::process::ExitCode;

use broker::server::StatusReport;
use clap::Args;
use serde::Serialize;

use crate::output::{complain, to_stdout};

use process::Process;
pub(crate) use socket::{Answers, Socket, StatusSocket, Told, ask, find, serve};

/// The options of `status`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Status {
    /// Show only the `sidestep run` with this process id.
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,

    /// Print one JSON object a line for each `sidestep run`.
    #[arg(long)]
    json: bool,
}

/// `sidestep status`.
pub(crate) fn run(options: &Status) -> anyhow::Result<ExitCode> {
    let answers = ask(&find(options.pid), socket::PATIENCE).unless_none(options.pid)?;
    answers.complaints().for_each(|failure| complain!("sidestep: {failure}"));
    to_stdout(|out| {
        for Told { process, report, .. } in &answers.reports {
            if options.json {
                write_line(out, *process, report)?;
            } else {
                out.write_all(text::report(*process, report, &Process::of).as_bytes())?;
            }
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

fn write_line(out: &mut dyn Write, pid: u32, report: &StatusReport) -> anyhow::Result<()> {
    #[derive(Serialize)]
    struct Line<'r> {
        pid: u32,
        #[serde(flatten)]
        report: &'r StatusReport,
    }
    Ok(writeln!(out, "{}", serde_json::to_string(&Line { pid, report })?)?)
}
