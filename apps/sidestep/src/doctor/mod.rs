//! `sidestep doctor` looks at a machine, an interface and a program; `sidestep tune` changes what can be changed, and undoes it.
//!
//! The crate `doctor` judges. Here facts are read (`machine.rs`, `interface.rs`, `program.rs`), findings are shown (`text.rs`), and
//! steps are done and undone (`tune.rs`, with `settings.rs` and `state.rs`).

mod interface;
mod machine;
mod program;
mod settings;
mod state;
mod text;
mod tune;

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;

use ::doctor::{CoreList, Facts, Finding, Known, Transport, Verdict, Wishes};
use anyhow::bail;
use clap::Args;
use serde::Serialize;

use crate::{live, output};
pub(crate) use tune::{Tune, tune};

/// The exit status if something is bad, and if the command could not look.
const EXIT_BAD: u8 = 1;
const EXIT_ERROR: u8 = 2;

/// Options of `sidestep doctor`.
#[derive(Args)]
#[command(override_usage = "sidestep doctor [OPTIONS] [IF] [-- <PROGRAM>]")]
pub(crate) struct Doctor {
    /// The interface [default: that of the default route; none if a program is named].
    #[arg(value_name = "IF")]
    interface: Option<String>,
    /// Attach the steering program for a moment, without claims, to see what the driver does with it. Some drivers take the link down
    /// for a second.
    #[arg(long)]
    probe: bool,
    #[command(flatten)]
    wishes: WishOptions,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Write the findings as a picture into FILE, in SVG, instead of printing them.
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    svg: Option<PathBuf>,
    /// A program to look at: what `sidestep run` would accelerate of it.
    #[arg(last = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// What the user wants of the interface. `doctor` and `tune` have the same.
#[derive(Args)]
struct WishOptions {
    /// The servers have --busy-poll.
    #[arg(long)]
    busy_poll: bool,
    /// Huge pages of the default size that DPDK is to find.
    #[arg(long, value_name = "N")]
    huge_pages: Option<u64>,
    /// A port that is to have queues of its own, by rules of the NIC: 53/udp, or 53 for both protocols. May be repeated.
    #[arg(long = "port", value_name = "PORT[/PROTOCOL]", value_parser = ports, requires = "queues")]
    ports: Vec<Ports>,
    /// The queues of --port, such as 2-3: 1, 2, 4, 8 ... of them.
    #[arg(long, value_name = "LIST", value_parser = queues, requires = "ports")]
    queues: Option<CoreList>,
}

/// One `--port`.
type Ports = (Option<Transport>, u16);

fn ports(text: &str) -> Result<Ports, String> {
    let (port, transport) = match text.split_once('/') {
        Some((port, transport)) => (port, Some(transport.parse()?)),
        None => (text, None),
    };
    match port.parse() {
        Ok(0) | Err(_) => Err(format!("{port:?} is no port: 1 to 65535")),
        Ok(port) => Ok((transport, port)),
    }
}

fn queues(text: &str) -> Result<CoreList, String> {
    let queues: CoreList = text.parse()?;
    if queues.is_empty() { Err("no queue is named".to_owned()) } else { Ok(queues) }
}

impl WishOptions {
    fn wishes(&self) -> Wishes {
        let both = [Transport::Udp, Transport::Tcp];
        let of = |(transport, port): &Ports| {
            let wanted = both.into_iter().filter(|it| transport.is_none_or(|wanted| wanted == *it));
            wanted.map(|transport| (transport, *port)).collect::<Vec<_>>()
        };
        Wishes {
            busy_poll: self.busy_poll,
            huge_pages: self.huge_pages,
            ports: self.ports.iter().flat_map(of).collect(),
            queues: self.queues.clone().unwrap_or_default(),
        }
    }
}

/// What the JSON output holds.
#[derive(Serialize)]
struct Report<'r> {
    /// Counts changes of this format that readers notice.
    version: u32,
    sidestep: &'static str,
    host: String,
    kernel: Option<&'r str>,
    interface: Option<&'r str>,
    program: Option<&'r str>,
    summary: Summary,
    findings: &'r [Finding],
}

/// How many findings have which verdict.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Summary {
    bad: usize,
    could_be_better: usize,
    not_known: usize,
    good: usize,
}

impl Summary {
    fn of(findings: &[Finding]) -> Summary {
        let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
        Summary {
            bad: count(Verdict::Bad),
            could_be_better: count(Verdict::CouldBeBetter),
            not_known: count(Verdict::NotKnown),
            good: count(Verdict::Good),
        }
    }
}

/// Looks, and prints what it saw.
pub(crate) fn doctor(options: &Doctor) -> anyhow::Result<ExitCode> {
    Ok(examine(options).unwrap_or_else(|error| failed(&error)))
}

/// An error of these commands has an exit status of its own.
fn failed(error: &anyhow::Error) -> ExitCode {
    crate::report(&crate::explain(error));
    ExitCode::from(EXIT_ERROR)
}

fn examine(options: &Doctor) -> anyhow::Result<ExitCode> {
    if options.program.len() > 1 {
        bail!("doctor looks at a program, and not at its arguments: name the program only");
    }
    let facts = facts(options)?;
    let findings = ::doctor::examine(&facts, &options.wishes.wishes());
    let summary = Summary::of(&findings);
    if options.json {
        let report = report(&facts, summary, &findings);
        output::to_stdout(|out| Ok(writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?))?;
    } else if let Some(path) = &options.svg {
        let report = text::report(&heading(&facts), &findings, summary, false);
        live::write_text_picture(path, &text::lines(&report))?;
    } else {
        let is_coloured = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        let text = text::report(&heading(&facts), &findings, summary, is_coloured);
        output::to_stdout(|out| Ok(out.write_all(text.as_bytes())?))?;
    }
    Ok(if summary.bad > 0 { ExitCode::from(EXIT_BAD) } else { ExitCode::SUCCESS })
}

/// A program alone is looked at without the machine.
fn facts(options: &Doctor) -> anyhow::Result<Facts> {
    let program = options.program.first().map(|name| program::look(name));
    let name = match (&options.interface, &program) {
        (Some(name), _) => Some(name.clone()),
        (None, Some(_)) => return Ok(Facts { program, ..Facts::default() }),
        (None, None) => interface::default_name(),
    };
    let mut interface = name.map(|name| interface::look(&name)).transpose()?;
    if options.probe {
        match &mut interface {
            Some(interface) => interface.probe = Some(interface::probe(&interface.name)),
            None => bail!("--probe needs an interface"),
        }
    }
    Ok(Facts { machine: Some(machine::look()), interface, program })
}

fn report<'r>(facts: &'r Facts, summary: Summary, findings: &'r [Finding]) -> Report<'r> {
    let kernel = facts.machine.as_ref().and_then(|machine| machine.kernel.get());
    Report {
        version: 1,
        sidestep: env!("CARGO_PKG_VERSION"),
        host: machine::host(),
        kernel: kernel.map(String::as_str),
        interface: facts.interface.as_ref().map(|interface| interface.name.as_str()),
        program: facts.program.as_ref().map(|program| program.name.as_str()),
        summary,
        findings,
    }
}

fn heading(facts: &Facts) -> String {
    let named = [
        facts.interface.as_ref().map(|it| format!("interface {}", it.name)),
        facts.program.as_ref().map(|it| format!("program {}", it.name)),
        facts.machine.as_ref().map(|machine| match &machine.kernel {
            Known::Is(release) => format!("{} with Linux {release}", machine::host()),
            Known::Not(_) => machine::host(),
        }),
    ];
    named.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
