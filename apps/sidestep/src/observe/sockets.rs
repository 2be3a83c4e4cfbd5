//! `sidestep sockets`: like `ss -tin`, for Sidestep's sockets.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use observe::client::{Answer, Answering};
use observe::protocol::{Reply, Request};
use observe::report::EngineReport;
use serde::Serialize;

use super::sockets_text::{HEADING, engine_line, socket_lines};
use super::{Which, counters, filter_of, next_reply, print_each};
use crate::output::to_stdout;

/// The options of `sockets`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Sockets {
    #[command(flatten)]
    which: Which,

    /// Show only listeners and unconnected UDP sockets.
    #[arg(long, short)]
    listening: bool,

    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,

    /// Print counters, as `sidestep counters` does.
    #[arg(long, conflicts_with_all = ["listening", "filter"])]
    counters: bool,

    /// Show only matching sockets, such as `dst net 192.0.2.0/24 and not port 22`. `src` is the local end. See docs/observability.md.
    #[arg(value_name = "FILTER", trailing_var_arg = true)]
    filter: Vec<String>,
}

/// `sidestep sockets`.
pub(crate) fn run(options: &Sockets) -> anyhow::Result<ExitCode> {
    if options.counters {
        return counters::run(&counters::Counters::of(options.which.clone(), options.json));
    }
    let request = Request::Sockets { filter: filter_of(&options.filter)?, listening: options.listening };
    let answers = options.which.ask(&request)?;
    to_stdout(|out| {
        if !options.json {
            writeln!(out, "{HEADING}")?;
        }
        print_each(answers, out, |answering, answer, out| print(answering, answer, options.json, out))
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Prints one program's sockets as they arrive: there may be a million.
fn print(answering: &Answering, answer: &mut Answer, json: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    while let Some(reply) = next_reply(answering, answer)? {
        match reply {
            Reply::Sockets(sockets) if json => {
                for socket in sockets {
                    write_line(out, answering, "socket", &socket)?;
                }
            }
            Reply::Sockets(sockets) => {
                for socket in sockets {
                    out.write_all(socket_lines(answering, &socket).as_bytes())?;
                }
            }
            Reply::Engine(engine) if json => write_line(out, answering, "engine", &engine)?,
            Reply::Engine(engine) => print_engine(out, answering, &engine)?,
            _ => {} // Of a later version.
        }
    }
    Ok(())
}

fn print_engine(out: &mut dyn Write, answering: &Answering, engine: &EngineReport) -> anyhow::Result<()> {
    Ok(writeln!(out, "{}", engine_line(answering, engine))?)
}

/// A line of JSON: the program, the kind of object, and the object's fields.
pub(super) fn write_line<T: Serialize>(
    out: &mut dyn Write,
    answering: &Answering,
    kind: &'static str,
    value: &T,
) -> anyhow::Result<()> {
    #[derive(Serialize)]
    struct Line<'l, T> {
        kind: &'static str,
        program: &'l str,
        pid: u32,
        #[serde(flatten)]
        value: &'l T,
    }
    let line = Line { kind, program: &answering.name, pid: answering.pid, value };
    Ok(writeln!(out, "{}", serde_json::to_string(&line)?)?)
}
