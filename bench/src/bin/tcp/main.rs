//! TCP over the memory device, end to end: an engine for the server on core 1, an engine for its clients on core 0. Checksums are
//! computed and checked on both sides, as on a wire.
//!
//! Usage: `tcp [SCENARIO...] [--seconds N] [--connections N] [--in-turns]`; scenarios: rr, churn, bulk, idle (default: all)
//!
//! `--in-turns` runs both engines on one thread and tells what one end could do with all of a core's time: for machines that
//! do other work too.
//!
//! - `rr`: 64 octets there and back, on 1000 connections, each with one request under way; and on one connection.
//! - `churn`: connections opened, used for 64 octets each way, and closed by the server.
//! - `bulk`: one connection that sends as much as it can.
//! - `idle`: a million connections that do nothing: octets of each; and 64 octets there and back on one more.
#![forbid(unsafe_code)]

mod clients;
mod pair;
mod server;

use std::process::ExitCode;
use std::time::Duration;

use bench::record::{Figure, Run};
use clients::Clients;
use lab::Conditions;
use pair::{Mode, Pair};

/// Octets of a request, and of its response.
const MESSAGE: usize = 64;

struct Options {
    scenarios: Vec<String>,
    span: Duration,
    connections: u32,
    mode: Mode,
}

fn main() -> ExitCode {
    let Some(options) = parse(std::env::args().skip(1)) else {
        eprintln!("usage: tcp [rr|churn|bulk|idle]... [--seconds N] [--connections N] [--in-turns]");
        return ExitCode::FAILURE;
    };
    let offered = match options.mode {
        Mode::TwoCores => "as much as the clients can, one core for the server, one for them",
        Mode::InTurns => {
            "as much as the clients can, both ends on one thread, by the processor time of one end"
        }
    };
    let conditions = Conditions::here("make bench FIGURES=tcp", "memory device", offered);
    println!("# TCP over the memory device\n\n{conditions}\n");
    let mut figures = Vec::new();
    for scenario in &options.scenarios {
        figures.extend(match scenario.as_str() {
            "rr" => request_response(&options),
            "churn" => churn(&options),
            "bulk" => bulk(&options),
            _ => idle(&options),
        });
    }
    let run = Run { name: "tcp", conditions: &conditions, figures, against: &[] };
    match run.keep() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tcp: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Option<Options> {
    const ALL: [&str; 4] = ["rr", "churn", "bulk", "idle"];
    let mut options = Options {
        scenarios: Vec::new(),
        span: Duration::from_secs(2),
        connections: 1_000_000,
        mode: Mode::TwoCores,
    };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--seconds" => options.span = Duration::from_secs(words.next()?.parse().ok()?),
            "--in-turns" => options.mode = Mode::InTurns,
            "--connections" => options.connections = words.next()?.parse().ok()?,
            name if ALL.contains(&name) => options.scenarios.push(word),
            _ => return None,
        }
    }
    if options.scenarios.is_empty() {
        options.scenarios = ALL.map(str::to_owned).to_vec();
    }
    Some(options)
}

/// Runs of each figure; the median counts.
const RUNS: usize = 3;

/// The figure of some runs, printed.
fn figure(case: &str, unit: &str, mut measure: impl FnMut() -> f64) -> Option<Figure> {
    let values: Vec<f64> = (0..RUNS).map(|_| measure()).collect();
    let figure = Figure::of(case, "stack", unit, &values);
    figure.iter().for_each(|figure| println!("{case}: {:.3} {unit}", figure.value));
    figure
}

fn request_response(options: &Options) -> Vec<Figure> {
    let figure = |connections| {
        figure(&format!("tcp_rr_64b_{connections}conn_memory"), "million transactions/s", || {
            let pair = Pair::start(server::echo(), Clients::asking(connections), options.mode);
            pair.wait_until_open(connections);
            pair.rate_of_transactions(options.span) / 1e6
        })
    };
    [1000, 1].into_iter().filter_map(figure).collect()
}

fn churn(options: &Options) -> Vec<Figure> {
    const UNDER_WAY: u32 = 256;
    let figure = figure("tcp_crr_64b_memory", "million connections opened, used once and closed/s", || {
        let pair =
            Pair::start(server::answer_and_close(), Clients::coming_and_going(UNDER_WAY), options.mode);
        pair.rate_of_transactions(options.span) / 1e6
    });
    figure.into_iter().collect()
}

fn bulk(options: &Options) -> Vec<Figure> {
    let figure = figure("tcp_stream_1500_memory", "Gb/s of payload", || {
        let pair = Pair::start(server::sink(), Clients::sending(), options.mode);
        pair.wait_until_open(1);
        pair.rate_of_octets(options.span) * 8.0 / 1e9
    });
    figure.into_iter().collect()
}

fn idle(options: &Options) -> Vec<Figure> {
    let latency = |idle: u32| {
        let before = pair::resident_octets();
        let pair = Pair::start(server::echo(), Clients::mostly_idle(idle), options.mode);
        pair.wait_until_open(idle + 1);
        let each = (pair::resident_octets() - before) as f64 / f64::from(2 * idle);
        (1e6 / pair.rate_of_transactions(options.span), each)
    };
    let (few, _) = latency(1000);
    let (many, each) = latency(options.connections);
    let case = format!("tcp_idle_{}_memory", options.connections);
    println!("{case}: {each:.0} octets of memory a connection and end, timers and tables included");
    println!(
        "  64 octets there and back on one more: {many:.2} us, with 1000 idle {few:.2} us: x {:.2}",
        many / few
    );
    let figures = [
        Figure::of(&case, "memory", "octets a connection and end", &[each]),
        Figure::of(
            &case,
            "one more connection, relative to beside 1000 idle ones",
            "round trips",
            &[many / few],
        ),
    ];
    figures.into_iter().flatten().collect()
}
