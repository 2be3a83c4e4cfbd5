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

use bench::report::{median, print_conditions};
use clients::Clients;
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
    print_conditions(match options.mode {
        Mode::TwoCores => "TCP over the memory device, one core for the server, one for its clients",
        Mode::InTurns => {
            "TCP over the memory device, both ends on one thread, by the processor time of one end"
        }
    });
    for scenario in &options.scenarios {
        match scenario.as_str() {
            "rr" => request_response(&options),
            "churn" => churn(&options),
            "bulk" => bulk(&options),
            _ => idle(&options),
        }
    }
    ExitCode::SUCCESS
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

fn medians(mut measure: impl FnMut() -> f64) -> f64 {
    let mut figures: Vec<f64> = (0..RUNS).map(|_| measure()).collect();
    median(&mut figures)
}

fn request_response(options: &Options) {
    for connections in [1000, 1] {
        let rate = medians(|| {
            let pair = Pair::start(server::echo(), Clients::asking(connections), options.mode);
            pair.wait_until_open(connections);
            pair.rate_of_transactions(options.span)
        });
        println!(
            "tcp_rr_64b_{connections}conn_memory: {:.3} million transactions a second, {:.2} us each",
            rate / 1e6,
            1e6 / rate
        );
    }
}

fn churn(options: &Options) {
    const UNDER_WAY: u32 = 256;
    let rate = medians(|| {
        let pair =
            Pair::start(server::answer_and_close(), Clients::coming_and_going(UNDER_WAY), options.mode);
        pair.rate_of_transactions(options.span)
    });
    println!("tcp_crr_64b_memory: {:.0} connections opened, used once and closed a second", rate);
}

fn bulk(options: &Options) {
    let rate = medians(|| {
        let pair = Pair::start(server::sink(), Clients::sending(), options.mode);
        pair.wait_until_open(1);
        pair.rate_of_octets(options.span)
    });
    println!("tcp_stream_1500_memory: {:.2} Gb/s of payload, MTU 1500, one connection", rate * 8.0 / 1e9);
}

fn idle(options: &Options) {
    let latency = |idle: u32| {
        let before = pair::resident_octets();
        let pair = Pair::start(server::echo(), Clients::mostly_idle(idle), options.mode);
        pair.wait_until_open(idle + 1);
        let each = (pair::resident_octets() - before) as f64 / f64::from(2 * idle);
        (1e6 / pair.rate_of_transactions(options.span), each)
    };
    let (few, _) = latency(1000);
    let (many, each) = latency(options.connections);
    println!(
        "tcp_idle_{}_memory: {each:.0} octets of memory a connection and end, timers and tables included",
        options.connections
    );
    println!(
        "  64 octets there and back on one more: {many:.2} us, with 1000 idle {few:.2} us: x {:.2}",
        many / few
    );
}
