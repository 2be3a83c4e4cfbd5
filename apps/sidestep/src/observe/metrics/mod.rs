//! `sidestep metrics`: the counters of all running programs for Prometheus.
//!
//! | file | what it does |
//! | --- | --- |
//! | `exposition.rs` | counters as Prometheus' text format |
//! | `http.rs` | the few pages, over HTTP/1.1 |

mod exposition;
mod http;

use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::thread;

use anyhow::{Context, bail};
use clap::Args;
use log::LevelFilter;
use observe::client::{Answering, Connection};
use observe::protocol::Request;
use observe::report::CountersReport;

use super::{Which, whole_counters};
use crate::logging::LogOptions;
pub(crate) use exposition::Exposition;
pub(crate) use http::serve;

/// The options of `metrics`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Metrics {
    /// Address to serve.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:9753")]
    listen: SocketAddr,

    #[command(flatten)]
    which: Which,

    #[command(flatten)]
    log: LogOptions,
}

/// Serves until it is ended by a signal.
pub(crate) fn run(options: &Metrics) -> anyhow::Result<ExitCode> {
    options.log.start(LevelFilter::Info);
    let which = options.which.clone();
    let serve = || http::serve(TcpListener::bind(options.listen)?, move || read(&which));
    serve().with_context(|| format!("{}", options.listen))?;
    Ok(ExitCode::SUCCESS)
}

/// The counters of the programs that answer; an error if none does. Those that do not are counted: a line in the log at each scrape
/// would say nothing new. All are asked at once, as one that is stopped takes seconds to be given up.
fn read(which: &Which) -> anyhow::Result<Exposition> {
    let connections = which.connections()?;
    let outcomes: Vec<_> = thread::scope(|scope| {
        let asked: Vec<_> =
            connections.into_iter().map(|connection| scope.spawn(|| counters(connection))).collect();
        asked
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| bail!("it could not be asked")))
            .collect()
    });
    let (well, silent): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    let (count, last) = (silent.len(), silent.into_iter().last());
    if let Some(Err(error)) = last.filter(|_| well.is_empty()) {
        return Err(error);
    }
    let mut exposition = Exposition::new(count);
    for (answering, report) in well.into_iter().flatten() {
        exposition.add(&answering.name, answering.pid, &report);
    }
    Ok(exposition)
}

fn counters(connection: Connection) -> anyhow::Result<(Answering, CountersReport)> {
    let (answering, mut answer) = connection.ask(&Request::Counters)?;
    match whole_counters(&answering, &mut answer)? {
        Some(report) => Ok((answering, report)),
        None => bail!("{} {} tells no counters", answering.name, answering.pid),
    }
}
