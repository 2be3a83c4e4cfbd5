//! `sidestep dns flush`: the cache forgets names.

use std::process::ExitCode;

use anyhow::bail;
use observe::protocol::{Reply, Request};

use super::NAME;
use super::options::Flush;
use crate::dns::stats::only;
use crate::observe::{Which, next_reply};
use crate::output::to_stdout;

/// Has a running resolver forget, and prints how many entries it had.
pub(crate) fn flush(options: &Flush) -> anyhow::Result<ExitCode> {
    let name = options.name.clone().unwrap_or_else(|| ".".to_owned());
    let request = Request::Flush { name, below: options.below || options.all };
    // Only one resolver is to forget: which one is settled by a question that changes nothing.
    let (chosen, _) = only(options.which.ask(&Request::Counters)?, &[NAME])?;
    let which = match &options.which.control {
        Some(_) => options.which.clone(),
        None => Which { pid: Some(chosen.pid), control: None },
    };
    let (answering, mut answer) = only(which.ask(&request)?, &[NAME])?;
    let mut flushed = None;
    while let Some(reply) = next_reply(&answering, &mut answer)? {
        match reply {
            Reply::Flushed(count) => flushed = Some(count),
            Reply::Error(error) => bail!(error),
            _ => {}
        }
    }
    let Some(count) = flushed else {
        bail!("{} {}: it did not say what it did", answering.name, answering.pid)
    };
    to_stdout(|out| Ok(writeln!(out, "{count} entries dropped")?))?;
    Ok(ExitCode::SUCCESS)
}
