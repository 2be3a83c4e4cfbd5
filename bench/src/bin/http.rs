//! One small page over HTTP/1.1 between two namespaces: the example `http_hello` on our own stack over AF_XDP, and nginx on the
//! kernel's, one core each, in turns; wrk asks from the other core.
//!
//! Usage: `http [ROUNDS] [SECONDS]` (default: 3 rounds of 3 seconds)
#![forbid(unsafe_code)]

use std::process::{Command, ExitCode};

use lab::{Conditions, HttpPeer, Lab, LabError, SERVER_V4, Wrk, WrkReport, markdown_table, median};

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
        "- load: wrk on core 0, {seconds} seconds; servers on core 1, in turns; medians of {rounds} rounds\n"
    );
    let mut rows = Vec::new();
    for case in CASES {
        let (mut nginx, mut hello) = (Vec::new(), Vec::new());
        for round in 1..=rounds {
            for (peer, reports) in [(HttpPeer::Nginx, &mut nginx), (HttpPeer::Hello, &mut hello)] {
                let report = run(case, peer, seconds)?;
                let (rate, p50) = (report.rate, report.median_us);
                eprintln!(
                    "round {round}: {}: {}: {rate:.0} responses/s, p50 {p50} us",
                    case.name,
                    peer.name()
                );
                reports.push(report);
            }
        }
        rows.push(row(case, &nginx, &hello));
    }
    let head = ["scenario", "nginx/s", "p50 us", "http_hello/s", "p50 us", "errors", "ratio", "target"];
    println!("{}", markdown_table(&head, &rows));
    Ok(())
}

fn run(case: Case, peer: HttpPeer, seconds: u32) -> Result<WrkReport, LabError> {
    let lab = Lab::new()?;
    let _server = peer.start(&lab)?;
    let url = format!("http://{SERVER_V4}/");
    Wrk { url, connections: case.connections, seconds, close: case.close }.run(&lab)
}

fn row(case: Case, nginx: &[WrkReport], hello: &[WrkReport]) -> Vec<String> {
    let rate = |reports: &[WrkReport]| {
        median(&reports.iter().map(|report| report.rate as u64).collect::<Vec<_>>()) as f64
    };
    let p50 = |reports: &[WrkReport]| {
        let hundredths: Vec<u64> = reports.iter().map(|report| (report.median_us * 100.0) as u64).collect();
        median(&hundredths) as f64 / 100.0
    };
    let errors: u64 = hello.iter().map(|report| report.errors).sum();
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
    let verdict = if is_met { "met" } else { "MISSED" };
    vec![
        case.name.to_owned(),
        format!("{:.0}", rate(nginx)),
        format!("{:.1}", p50(nginx)),
        format!("{:.0}", rate(hello)),
        format!("{:.1}", p50(hello)),
        errors.to_string(),
        ratio,
        format!("{target}: {verdict}"),
    ]
}
