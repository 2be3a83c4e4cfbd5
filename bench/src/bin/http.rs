//! One small page over HTTP/1.1 between two namespaces: the example `http_hello` on our own stack over AF_XDP, and nginx on the
//! kernel's, one core each, in turns; wrk asks from the other core.
//!
//! Usage: `http [ROUNDS] [SECONDS]` (default: 3 rounds of 3 seconds)
#![forbid(unsafe_code)]

use std::process::{Command, ExitCode};

use bench::processor::busy_share;
use lab::{
    Conditions, Distance, HttpPeer, Lab, LabError, Place, SERVER_V4, Wrk, WrkReport, by_place, in_one_place,
    markdown_table, median,
};

/// What a run found.
struct Outcome {
    report: WrkReport,
    /// Processor time of the server for each response, in microseconds: it suffers less from what else the machine does.
    cpu_us: f64,
    /// How much of its time the generator's core worked, in hundredths: at 100 it is wrk that is measured.
    generator: f64,
}

/// A way to ask.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    connections: u32,
    close: bool,
    /// How many times nginx's rate is wanted; for one connection it is the latency that counts.
    target: Option<f64>,
}

const CASES: [Case; 3] = [
    Case { name: "http_keepalive_64conn_xdp", connections: 64, close: false, target: Some(1.4) },
    Case { name: "http_close_64conn_xdp", connections: 64, close: true, target: Some(2.5) },
    Case { name: "http_keepalive_1conn_xdp", connections: 1, close: false, target: None },
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
    println!("# HTTP on veth\n");
    println!("{}", Conditions::here("make bench FIGURES=http"));
    println!(
        "- load: wrk on core 0, {seconds} seconds; servers on core 1, in turns; medians of {rounds} rounds"
    );
    println!("- http_hello looks for packets for 200 us before it sleeps (--spin-us 200)");
    println!("- wrk's core: how much of its time it worked; with all of it, the generator is the bound\n");
    let mut rows = Vec::new();
    for case in CASES {
        for place in places_of(case, rounds, seconds)? {
            let [nginx, hello] = &place.contenders[..] else { continue };
            rows.push(row(case, place.apart, nginx, hello));
        }
    }
    let head = [
        "scenario",
        "cores apart",
        "rounds",
        "nginx/s",
        "p50 us",
        "cpu us",
        "wrk's core",
        "http_hello/s",
        "p50 us",
        "cpu us",
        "wrk's core",
        "errors",
        "ratio",
        "target",
    ];
    println!("{}", markdown_table(&head, &rows));
    Ok(())
}

/// Both servers in turns.
fn places_of(case: Case, rounds: u32, seconds: u32) -> Result<Vec<Place<Outcome>>, LabError> {
    let mut found = vec![Vec::new(), Vec::new()];
    for round in 1..=rounds {
        for (peer, found) in [HttpPeer::Nginx, HttpPeer::Hello].into_iter().zip(&mut found) {
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
    Ok(by_place(found))
}

fn run(case: Case, peer: HttpPeer, seconds: u32) -> Result<Outcome, LabError> {
    let lab = Lab::new()?;
    let server = peer.start(&lab)?;
    let url = format!("http://{SERVER_V4}/");
    let before = server.process.cpu_time()?;
    let wrk = Wrk { url, connections: case.connections, seconds, close: case.close };
    let (report, generator) = busy_share(lab::generator_core(), || wrk.run(&lab));
    let (report, used) = (report?, server.process.cpu_time()? - before);
    let cpu_us = used.as_secs_f64() * 1e6 / (report.rate * f64::from(seconds));
    Ok(Outcome { report, cpu_us, generator })
}

/// The middle one of a figure of all rounds, to hundredths.
fn middle(outcomes: &[Outcome], figure: impl Fn(&Outcome) -> f64) -> f64 {
    let hundredths: Vec<u64> = outcomes.iter().map(|outcome| (figure(outcome) * 100.0) as u64).collect();
    median(&hundredths) as f64 / 100.0
}

fn row(case: Case, apart: (Distance, Distance), nginx: &[Outcome], hello: &[Outcome]) -> Vec<String> {
    let rate = |outcomes: &[Outcome]| middle(outcomes, |outcome| outcome.report.rate);
    let p50 = |outcomes: &[Outcome]| middle(outcomes, |outcome| outcome.report.median_us);
    let cpu = |outcomes: &[Outcome]| middle(outcomes, |outcome| outcome.cpu_us);
    let core = |outcomes: &[Outcome]| format!("{:.0} %", middle(outcomes, |outcome| outcome.generator));
    let errors: u64 = hello.iter().map(|outcome| outcome.report.errors).sum();
    let (ratio, is_met, target) = match case.target {
        Some(target) => {
            let ratio = rate(hello) / rate(nginx);
            (format!("{ratio:.2}"), ratio >= target, format!("{target:.1}"))
        }
        None => {
            let ratio = p50(hello) / p50(nginx);
            (format!("{ratio:.2} (p50)"), ratio < 1.0, "below 1 (p50)".to_owned())
        }
    };
    let verdict = match (nginx, hello) {
        ([], _) | (_, []) => "no round of the other",
        _ if is_met => "met",
        _ => "MISSED",
    };
    vec![
        case.name.to_owned(),
        format!("{} - {}", apart.0, apart.1),
        format!("{}, {}", nginx.len(), hello.len()),
        format!("{:.0}", rate(nginx)),
        format!("{:.1}", p50(nginx)),
        format!("{:.2}", cpu(nginx)),
        core(nginx),
        format!("{:.0}", rate(hello)),
        format!("{:.1}", p50(hello)),
        format!("{:.2}", cpu(hello)),
        core(hello),
        errors.to_string(),
        ratio,
        format!("{target}: {verdict}"),
    ]
}
