//! Observing running programs: `sidestep sockets`, `counters`, `metrics`, `trace`, `capture`.

mod capture;
mod capture_output;
mod capture_text;
mod counters;
mod metrics;
mod sockets;
mod sockets_text;
mod time_of_day;
mod trace;

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use observe::Filter;
use observe::client::{Answer, Answering, ClientError, Connection, Wanted, connect};
use observe::protocol::{Message, Reply, Request};
use observe::report::CountersReport;

use crate::explain;
use crate::output::complain;

pub(crate) use capture::{Capture, run as capture};
pub(crate) use counters::{Counters, device_lines, each_engine, run as counters};
pub(crate) use metrics::{Exposition, serve as serve_metrics};
pub(crate) use metrics::{Metrics, run as metrics};
pub(crate) use sockets::{Sockets, run as sockets};
pub(crate) use trace::{Trace, run as trace};

/// Which programs a tool asks: all of this user's, or the one that is named.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Which {
    /// Ask only this process.
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,

    /// Ask the program with this control socket.
    #[arg(long, value_name = "PATH", conflicts_with = "pid")]
    pub(crate) control: Option<PathBuf>,
}

impl Which {
    fn wanted(&self) -> Wanted {
        match (&self.control, self.pid) {
            (Some(path), _) => Wanted::At(path.clone()),
            (None, Some(pid)) => Wanted::Process(pid),
            (None, None) => Wanted::All,
        }
    }

    /// Asks them all. Reports each program that does not answer; an error if none does.
    pub(crate) fn ask(&self, request: &Request) -> anyhow::Result<Vec<(Answering, Answer)>> {
        let asked = self.connections()?.into_iter().map(|connection| {
            let place = connection.path().display().to_string();
            connection.ask(request).context(place)
        });
        those_that_went_well(asked)
    }

    /// A connection to each; an error if there is none.
    pub(crate) fn connections(&self) -> Result<Vec<Connection>, ClientError> {
        connect(&self.wanted())
    }
}

/// Reports errors on stderr and returns what succeeded. If nothing did, the last error is returned.
fn those_that_went_well<T>(outcomes: impl Iterator<Item = anyhow::Result<T>>) -> anyhow::Result<Vec<T>> {
    let (mut well, mut failed) = (Vec::new(), Vec::new());
    for outcome in outcomes {
        match outcome {
            Ok(it) => well.push(it),
            Err(error) => failed.push(error),
        }
    }
    match failed.pop() {
        Some(error) if well.is_empty() => Err(error),
        last => {
            failed.into_iter().chain(last).for_each(|error| complain!("sidestep: {}", explain(&error)));
            Ok(well)
        }
    }
}

/// The words of a filter on the command line as one text, checked to be a filter.
pub(crate) fn filter_of(words: &[String]) -> anyhow::Result<String> {
    let text = words.join(" ");
    text.parse::<Filter>()?;
    Ok(text)
}

/// Prints what each program answers. A program that stops in the middle does not keep the others from being printed.
pub(crate) fn print_each(
    answers: Vec<(Answering, Answer)>,
    out: &mut dyn Write,
    mut print: impl FnMut(&Answering, &mut Answer, &mut dyn Write) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut outcomes = Vec::new();
    for (answering, mut answer) in answers {
        match print(&answering, &mut answer, out) {
            Err(error) if !error.is::<ClientError>() => return Err(error),
            outcome => outcomes.push(outcome),
        }
    }
    those_that_went_well(outcomes.into_iter()).map(drop)
}

/// The next reply. A packet here is an error.
pub(crate) fn next_reply(answering: &Answering, answer: &mut Answer) -> anyhow::Result<Option<Reply>> {
    let message = answer.next_message().with_context(|| format!("{} {}", answering.name, answering.pid))?;
    match message {
        Some(Message::Reply(reply)) => Ok(Some(reply)),
        Some(Message::Packet(..)) => anyhow::bail!("the program sent a packet instead of a reply"),
        None => Ok(None),
    }
}

/// All counters that a program tells; `None` if it tells none.
pub(crate) fn whole_counters(
    answering: &Answering,
    answer: &mut Answer,
) -> anyhow::Result<Option<CountersReport>> {
    let mut whole = None::<CountersReport>;
    while let Some(reply) = next_reply(answering, answer)? {
        match (reply, &mut whole) {
            (Reply::Counters(report), _) => whole = Some(report),
            (Reply::MoreCounts(more), Some(whole)) => whole.own.extend(more),
            _ => {}
        }
    }
    Ok(whole)
}
