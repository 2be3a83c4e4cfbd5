//! `sidestep dns zones` and `sidestep dns zone`: the zones of a running server.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, Subcommand};
use observe::protocol::{Reply, Request, ZoneAction};
use observe::report::{ZoneReport, ZoneVersion};

use super::keys::show_time;
use super::stats::{NAME, only};
use crate::observe::{Which, next_reply};
use crate::output::to_stdout;

/// Show the zones of a running server.
#[derive(Args, Clone, Debug)]
pub(crate) struct Zones {
    /// Only this zone.
    zone: Option<String>,

    /// One JSON object a line.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    which: Which,
}

/// Look at one zone of a running server, or have something done with it.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Zone {
    /// Print the zone as it is served, in the form of a zone file.
    ///
    /// Of a secondary zone that is more than its file has: what came since is in the journal. Data of less common types is written in
    /// hexadecimal (RFC 3597).
    Dump {
        /// Its name.
        zone: String,

        #[command(flatten)]
        which: Which,
    },
    /// Read the file of a zone again, and of no other one; have the primaries of a secondary zone asked.
    Reload(One),
    /// Transfer all of a secondary zone, whatever serial its primaries have: for a primary whose serial went back.
    Retransfer(One),
    /// Write all updates of a zone into its file, and refuse updates until it is thawed: the file may be changed by hand.
    Freeze(One),
    /// Read the file of a frozen zone again, and take updates.
    Thaw(One),
    /// Report what works badly in a zone as it is served: missing glue, name servers that are aliases, and others, as `dns check` does.
    Check(One),
}

/// One zone of a server.
#[derive(Args, Clone, Debug)]
pub(crate) struct One {
    /// Its name.
    zone: String,

    #[command(flatten)]
    which: Which,
}

/// Carries out a command about one zone.
pub(crate) fn one(command: &Zone) -> anyhow::Result<ExitCode> {
    match command {
        Zone::Dump { zone, which } => lines(which, Request::Zone { name: zone.clone() }),
        Zone::Reload(one) => change(one, ZoneAction::Reload),
        Zone::Retransfer(one) => change(one, ZoneAction::Retransfer),
        Zone::Freeze(one) => change(one, ZoneAction::Freeze),
        Zone::Thaw(one) => change(one, ZoneAction::Thaw),
        Zone::Check(one) => change(one, ZoneAction::Check),
    }
}

/// Only one server is to do it: which one is settled by a question that changes nothing.
fn change(one: &One, action: ZoneAction) -> anyhow::Result<ExitCode> {
    let (chosen, _) = only(one.which.ask(&Request::Counters)?, &[NAME])?;
    let which = match &one.which.control {
        Some(_) => one.which.clone(),
        None => Which { pid: Some(chosen.pid), control: None },
    };
    lines(&which, Request::ChangeZone { name: one.zone.clone(), action })
}

/// Prints an answer of lines.
fn lines(which: &Which, request: Request) -> anyhow::Result<ExitCode> {
    let (answering, mut answer) = only(which.ask(&request)?, &[NAME])?;
    to_stdout(|out| {
        while let Some(reply) = next_reply(&answering, &mut answer)? {
            match reply {
                Reply::Lines(lines) => lines.iter().try_for_each(|line| writeln!(out, "{line}"))?,
                Reply::Error(error) => bail!(error),
                _ => {}
            }
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Prints a line for each zone, in the order of the configuration.
pub(crate) fn print(options: &Zones) -> anyhow::Result<ExitCode> {
    let (answering, mut answer) = only(options.which.ask(&Request::Zones)?, &[NAME])?;
    let wanted = options.zone.as_ref().map(|zone| format!("{}.", zone.trim_end_matches('.')));
    let is_wanted =
        |zone: &ZoneReport| wanted.as_ref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(&zone.zone));
    let mut count = 0;
    to_stdout(|out| {
        if !options.json && wanted.is_none() {
            write_head(out)?;
        }
        while let Some(reply) = next_reply(&answering, &mut answer)? {
            let Reply::Zones(zones) = reply else { continue };
            for zone in zones.iter().filter(|zone| is_wanted(zone)) {
                if !options.json && wanted.is_some() && count == 0 {
                    write_head(out)?;
                }
                count += 1;
                write_zone(zone, options.json, out)?;
            }
        }
        Ok(())
    })?;
    match wanted.filter(|_| count == 0) {
        Some(wanted) => bail!("there is no zone {wanted} here"),
        None => Ok(ExitCode::SUCCESS),
    }
}

fn write_head(out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "{:<40} {:<9} {:>10} {:>10} {:>10}  {:<6} state",
        "zone", "source", "serial", "records", "names", "signed"
    )
}

fn write_zone(zone: &ZoneReport, json: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    if json {
        serde_json::to_writer(&mut *out, zone)?;
        return Ok(writeln!(out)?);
    }
    let source = match zone {
        ZoneReport { is_secondary: true, .. } => "secondary",
        ZoneReport { is_catalog: true, .. } => "catalog",
        ZoneReport { is_from_etcd: true, .. } => "etcd",
        _ => "file",
    };
    match &zone.version {
        Some(version) => {
            let signed = if version.is_signed { "yes" } else { "no" };
            let (serial, records, names) = (version.serial, version.records, version.names);
            let state = state(version, zone.problem.as_deref());
            let line = format!(
                "{:<40} {source:<9} {serial:>10} {records:>10} {names:>10}  {signed:<6} {state}",
                zone.zone
            );
            writeln!(out, "{}", line.trim_end())?;
        }
        None => {
            let problem = zone.problem.as_ref().map(|problem| format!(": {problem}")).unwrap_or_default();
            writeln!(out, "{:<40} {source:<9} no version: answered with SERVFAIL{problem}", zone.zone)?
        }
    }
    Ok(())
}

/// What else there is to know of a version.
fn state(version: &ZoneVersion, problem: Option<&str>) -> String {
    let time = |unix: u64| show_time(unix.min(u32::MAX.into()));
    let frozen = version.is_frozen.then(|| "frozen".to_owned());
    let signed = version.signed_until.map(|until| format!("signed until {}", time(until)));
    let came = version.last_transfer.map(|came| format!("transferred {}", time(came)));
    let health = version
        .health
        .as_ref()
        .map(|health| format!("{} of {} addresses up", health.addresses - health.down, health.addresses));
    let problem = problem.map(|problem| format!("not up to date: {problem}"));
    let all = problem.into_iter().chain(frozen).chain(signed).chain(came).chain(health);
    all.collect::<Vec<_>>().join(", ")
}
