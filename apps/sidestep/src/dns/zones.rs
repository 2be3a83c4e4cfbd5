//! `sidestep dns zones` and `sidestep dns zone`: the zones of a running server.

use std::io::Write;
use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, Subcommand};
use observe::protocol::{Reply, Request};
use observe::report::ZoneReport;

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

/// Look at one zone of a running server.
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
}

/// Carries out a command about one zone.
pub(crate) fn one(command: &Zone) -> anyhow::Result<ExitCode> {
    let Zone::Dump { zone, which } = command;
    let (answering, mut answer) = only(which.ask(&Request::Zone { name: zone.clone() })?, &[NAME])?;
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
        if !options.json {
            writeln!(
                out,
                "{:<40} {:<9} {:>10} {:>10} {:>10}  signed",
                "zone", "source", "serial", "records", "names"
            )?;
        }
        while let Some(reply) = next_reply(&answering, &mut answer)? {
            let Reply::Zones(zones) = reply else { continue };
            for zone in zones.iter().filter(|zone| is_wanted(zone)) {
                count += 1;
                write_zone(zone, options.json, out)?;
            }
        }
        Ok(())
    })?;
    // A zone that was asked for by its name and is not there is an error for scripts.
    Ok(if wanted.is_some() && count == 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn write_zone(zone: &ZoneReport, json: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    if json {
        serde_json::to_writer(&mut *out, zone)?;
        return Ok(writeln!(out)?);
    }
    let source = if zone.is_secondary { "secondary" } else { "file" };
    match &zone.version {
        Some(version) => {
            let signed = if version.is_signed { "yes" } else { "no" };
            let (serial, records, names) = (version.serial, version.records, version.names);
            writeln!(out, "{:<40} {source:<9} {serial:>10} {records:>10} {names:>10}  {signed}", zone.zone)?;
        }
        None => writeln!(out, "{:<40} {source:<9} no version: answered with SERVFAIL", zone.zone)?,
    }
    Ok(())
}
