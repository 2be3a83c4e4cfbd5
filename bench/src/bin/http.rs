//! One small page over HTTP/1.1 between two namespaces: the example `http_hello` on our own stack over AF_XDP, and nginx on the
//! kernel's, one core each, in turns; wrk asks from the other core. And the generators beside each other: wrk and `sidestep gun http`.
//!
//! Usage: `http [ROUNDS] [SECONDS]` (default: 3 rounds of 3 seconds)
#![forbid(unsafe_code)]

use std::process::{Command, ExitCode};

use bench::processor::{Shares, busy_shares};
use bench::record::{Figure, Run};
use lab::programs::Network;
use lab::{
    Conditions, Distance, HttpPeer, Lab, LabError, Place, Placed, SERVER_V4, Side, VETH, Wrk, WrkReport,
    all_places, all_then_by_place, in_one_place, markdown_table, median, sidestep_binary,
};

/// What a run found.
#[derive(Clone)]
struct Outcome {
    report: WrkReport,
    /// Processor time of the server for each response, in microseconds: it suffers less from what else the machine does.
    cpu_us: f64,
    busy: Shares,
}

/// A way to ask.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    connections: u32,
    close: bool,
    /// wrk is on our stack as well, by `sidestep run`.
    by_sidestep: bool,
    /// How many times nginx's rate is wanted; for one connection it is the latency that counts.
    target: Option<f64>,
}

const PEERS: [HttpPeer; 3] = [HttpPeer::Nginx, HttpPeer::Hello, HttpPeer::HelloAsleep];

const CASES: [Case; 4] = [
    Case {
        name: "http_keepalive_64conn_xdp",
        connections: 64,
        close: false,
        by_sidestep: false,
        target: Some(1.4),
    },
    Case {
        name: "http_keepalive_64conn_xdp, wrk by sidestep run",
        connections: 64,
        close: false,
        by_sidestep: true,
        target: Some(1.4),
    },
    Case {
        name: "http_close_64conn_xdp",
        connections: 64,
        close: true,
        by_sidestep: false,
        target: Some(2.5),
    },
    Case { name: "http_keepalive_1conn_xdp", connections: 1, close: false, by_sidestep: false, target: None },
];

fn main() -> ExitCode {
    if !lab::require_root_and_xdp() {
        return ExitCode::SUCCESS;
    }
    for program in ["wrk", "nginx"] {
        if Command::new(program).arg("-v").output().is_err() {
            eprintln!("http: {program} is missing: make setup");
            return ExitCode::FAILURE;
        }
    }
    let number = |at: usize| std::env::args().nth(at).and_then(|word| word.parse().ok()).unwrap_or(3);
    match measure(number(1), number(2)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("http: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(rounds: u32, seconds: u32) -> Result<(), LabError> {
    let offered = format!("wrk on core 0 with one thread, as much as it can, {seconds} s");
    let conditions = Conditions::here("make bench FIGURES=http", VETH, &offered);
    println!("# HTTP on veth\n\n{conditions}");
    println!(
        "- servers on core 1, in turns; medians of {rounds} rounds, and where the cores moved, those of each place too"
    );
    println!(
        "- http_hello looks for packets for 200 us before it sleeps, but for the lines with \"sleeping\""
    );
    println!(
        "- wrk's core, server's core: how much of their time they worked; with all of wrk's, the generator is the bound\n"
    );
    let (mut rows, mut figures) = (Vec::new(), Vec::new());
    for case in CASES {
        let measured = rounds_of(case, rounds, seconds)?;
        figures.extend(figures_of(case, &all_places(&measured)));
        for place in all_then_by_place(measured) {
            rows.extend(rows_in(case, &place));
        }
    }
    let head = [
        "scenario",
        "cores apart",
        "server",
        "rounds",
        "responses/s",
        "lowest and highest",
        "p50 us",
        "cpu us",
        "wrk's core",
        "server's core",
        "errors",
        "ratio",
        "target",
    ];
    println!("{}", markdown_table(&head, &rows));
    Run { name: "http", conditions: &conditions, figures, against: &[HttpPeer::Nginx.name()] }.keep()?;
    generators(rounds, seconds, &conditions)
}

/// wrk and `sidestep gun http` in turns, the latter by our own stack as well, each as much as it can: against nginx, and against a faster server, which is
/// not the bound as soon.
fn generators(rounds: u32, seconds: u32, conditions: &Conditions) -> Result<(), LabError> {
    let cases = CASES.into_iter().filter(|case| !case.by_sidestep);
    let pairs = cases.flat_map(|case| [HttpPeer::Nginx, HttpPeer::Hello].map(|peer| (case, peer)));
    let (mut rows, mut figures) = (Vec::new(), Vec::new());
    for (case, peer) in pairs {
        let found = generators_of(case, peer, rounds, seconds)?;
        rows.push(generators_row(case, peer, &found));
        let scenario = format!("{}, {}", case.name, peer.name());
        let of = |(name, rates): (&str, &[f64])| Figure::of(&scenario, name, "responses/s", rates);
        figures.extend(GENERATORS.into_iter().zip(found.iter().map(Vec::as_slice)).filter_map(of));
    }
    println!("\nThe generators beside each other; medians of {rounds} rounds\n");
    let head =
        ["scenario", "server", "wrk, responses/s", "gun http", "ratio", "gun http by sidestep run", "ratio"];
    println!("{}", markdown_table(&head, &rows));
    Run { name: "generators", conditions, figures, against: &[GENERATORS[0]] }.keep()
}

/// What asks.
const GENERATORS: [&str; 3] = ["wrk", "gun http, kernel sockets", "gun http, own stack (sidestep run)"];

/// The rates of [`GENERATORS`], round by round.
fn generators_of(case: Case, peer: HttpPeer, rounds: u32, seconds: u32) -> Result<[Vec<f64>; 3], LabError> {
    let mut found = [const { Vec::new() }; 3];
    let own_stack = Network::sidestep_of_client(&["--spin-us", "200"]);
    for _ in 0..rounds {
        let round = in_one_place(|| -> Result<[f64; 3], LabError> {
            let by_wrk = run(case, peer, seconds)?.report.rate;
            let by_gun = gun_rate(case, peer, &Network::Kernel, seconds)?;
            Ok([by_wrk, by_gun as f64, gun_rate(case, peer, &own_stack, seconds)? as f64])
        })?;
        found.iter_mut().zip(round.found).for_each(|(rates, rate)| rates.push(rate));
    }
    Ok(found)
}

fn generators_row(case: Case, peer: HttpPeer, found: &[Vec<f64>; 3]) -> Vec<String> {
    let [wrk, gun, own] = found.clone().map(|mut rates| bench::report::median(&mut rates));
    let ratio = |rate: f64| format!("{:.2}", rate / wrk.max(1.0));
    let whole = |rate: f64| format!("{rate:.0}");
    let (name, server) = (case.name.to_owned(), peer.name().to_owned());
    vec![name, server, whole(wrk), whole(gun), ratio(gun), whole(own), ratio(own)]
}

/// Answers a second of a run of `sidestep gun http`.
fn gun_rate(case: Case, peer: HttpPeer, network: &Network, seconds: u32) -> Result<u64, LabError> {
    let lab = Lab::for_figures()?;
    let _server = peer.start(&lab)?;
    let (url, connections, duration) =
        (format!("http://{SERVER_V4}/"), case.connections.to_string(), format!("{seconds}s"));
    let program = sidestep_binary().display().to_string();
    let mut words =
        vec![&program[..], "gun", "http", &url, "--connections", &connections, "--duration", &duration];
    if case.close {
        words.push("--close");
    }
    let report = network.run(&lab, Side::Client, &words)?;
    let line = report.lines().find_map(|line| line.strip_prefix("answered "));
    let answered = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    let answered = answered.ok_or_else(|| LabError::Report { field: "answered", report: report.clone() })?;
    Ok(answered / u64::from(seconds.max(1)))
}

/// Of each server: the rate, or for one connection the latency.
fn figures_of(case: Case, measured: &[Vec<Outcome>]) -> Vec<Figure> {
    let figure = |(peer, outcomes): (HttpPeer, &Vec<Outcome>)| {
        let (unit, value): (_, fn(&Outcome) -> f64) = match case.target {
            Some(_) => ("responses/s", |outcome| outcome.report.rate),
            None => ("us, p50", |outcome| outcome.report.median_us),
        };
        let values: Vec<f64> = outcomes.iter().map(value).collect();
        Figure::of(case.name, peer.name(), unit, &values)
    };
    PEERS.into_iter().zip(measured).filter_map(figure).collect()
}

/// All servers in turns.
fn rounds_of(case: Case, rounds: u32, seconds: u32) -> Result<Vec<Vec<Placed<Outcome>>>, LabError> {
    let mut found = PEERS.map(|_| Vec::new());
    for round in 1..=rounds {
        for (peer, found) in PEERS.into_iter().zip(&mut found) {
            let outcome = in_one_place(|| run(case, peer, seconds))?;
            let WrkReport { rate, median_us, .. } = outcome.found.report;
            eprintln!(
                "round {round}: {}: {}: {rate:.0} responses/s, p50 {median_us} us, cores {} apart",
                case.name,
                peer.name(),
                outcome.apart
            );
            found.push(outcome);
        }
    }
    Ok(found.into())
}

fn run(case: Case, peer: HttpPeer, seconds: u32) -> Result<Outcome, LabError> {
    let lab = Lab::for_figures()?;
    let server = peer.start(&lab)?;
    let url = format!("http://{SERVER_V4}/");
    let before = server.process.cpu_time()?;
    let wrk = Wrk { url, connections: case.connections, seconds, close: case.close };
    let network =
        if case.by_sidestep { Network::sidestep_of_client(&["--spin-us", "200"]) } else { Network::Kernel };
    let (report, busy) = busy_shares(|| wrk.run_on(&lab, &network));
    let (report, used) = (report?, server.process.cpu_time()? - before);
    let cpu_us = used.as_secs_f64() * 1e6 / (report.rate * f64::from(seconds));
    Ok(Outcome { report, cpu_us, busy })
}

/// The middle one of a figure of all rounds, to hundredths.
fn middle(outcomes: &[Outcome], figure: impl Fn(&Outcome) -> f64) -> f64 {
    let hundredths: Vec<u64> = outcomes.iter().map(|outcome| (figure(outcome) * 100.0) as u64).collect();
    median(&hundredths) as f64 / 100.0
}

/// A row for each server that had a round in this place.
fn rows_in(case: Case, place: &Place<Outcome>) -> Vec<Vec<String>> {
    let servers = PEERS.into_iter().zip(&place.contenders).filter(|(_, outcomes)| !outcomes.is_empty());
    let nginx = &place.contenders[0];
    servers.map(|(peer, outcomes)| row(case, place.apart, peer, outcomes, nginx)).collect()
}

fn row(
    case: Case,
    apart: (Distance, Distance),
    peer: HttpPeer,
    outcomes: &[Outcome],
    nginx: &[Outcome],
) -> Vec<String> {
    let rates = || outcomes.iter().map(|outcome| outcome.report.rate);
    let (lowest, highest) = (rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max));
    let errors: u64 = outcomes.iter().map(|outcome| outcome.report.errors).sum();
    let (ratio, verdict) = match (peer, nginx) {
        (HttpPeer::Nginx, _) | (_, []) => Default::default(),
        _ => judge(case, peer, outcomes, nginx),
    };
    vec![
        case.name.to_owned(),
        format!("{} - {}", apart.0, apart.1),
        peer.name().to_owned(),
        outcomes.len().to_string(),
        format!("{:.0}", rate(outcomes)),
        format!("{lowest:.0} - {highest:.0}"),
        format!("{:.1}", p50(outcomes)),
        format!("{:.2}", middle(outcomes, |outcome| outcome.cpu_us)),
        format!("{:.0} %", middle(outcomes, |outcome| outcome.busy.client)),
        format!("{:.0} %", middle(outcomes, |outcome| outcome.busy.server)),
        errors.to_string(),
        ratio,
        verdict,
    ]
}

/// The ratio to nginx's figure, and whether it is as wanted of `peer`.
fn judge(case: Case, peer: HttpPeer, outcomes: &[Outcome], nginx: &[Outcome]) -> (String, String) {
    let (ratio, is_met, target) = match case.target {
        Some(target) => {
            let ratio = rate(outcomes) / rate(nginx);
            (format!("{ratio:.2}"), ratio >= target, format!("{target:.1}"))
        }
        None => {
            let ratio = p50(outcomes) / p50(nginx);
            (format!("{ratio:.2} (p50)"), ratio < 1.0, "below 1 (p50)".to_owned())
        }
    };
    let verdict = if is_met { "met" } else { "MISSED" };
    match peer {
        HttpPeer::HelloAsleep => (ratio, "none".to_owned()),
        _ => (ratio, format!("{target}: {verdict}")),
    }
}

fn rate(outcomes: &[Outcome]) -> f64 {
    middle(outcomes, |outcome| outcome.report.rate)
}

fn p50(outcomes: &[Outcome]) -> f64 {
    middle(outcomes, |outcome| outcome.report.median_us)
}
