//! Answers a second over TLS, HTTPS and QUIC between two namespaces: one core serves, `sidestep gun dns` asks from the other, in turns.
//!
//! Usage: `encrypted [ROUNDS]` (default: 3 rounds)
#![forbid(unsafe_code)]

mod servers;

use std::process::ExitCode;

use bench::gun::{Knee, knee};
use bench::record::{Figure, Run};
use lab::{
    Conditions, Directory, Lab, LabError, Placed, Questions, VETH, Workload, all_places, in_one_place,
    make_certificate, markdown_table,
};
use servers::{Secret, Server};

/// Connections, and questions under way on each.
const CONNECTIONS: &str = "64";
const PIPELINE: &str = "16";

/// What questions go over, and who takes them there.
struct Case {
    transport: &'static str,
    servers: &'static [Server],
}

const CASES: [Case; 3] = [
    Case { transport: "tls", servers: &[Server::Nsd, Server::Bind, Server::Sidestep] },
    Case { transport: "https", servers: &[Server::Bind, Server::Sidestep] },
    Case { transport: "quic", servers: &[Server::Sidestep] },
];

fn main() -> ExitCode {
    if !lab::require_root_and_xdp() {
        return ExitCode::SUCCESS;
    }
    let rounds = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(3);
    match measure(rounds) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("encrypted: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(rounds: u32) -> Result<(), LabError> {
    let offered = format!(
        "sidestep gun dns --find-knee on core 0, {CONNECTIONS} connections with {PIPELINE} questions under way, 1 s at each load"
    );
    let conditions = Conditions::here("make bench FIGURES=encrypted", VETH, &offered).with_peers();
    println!("# DNS over TLS, HTTPS and QUIC on veth\n\n{conditions}");
    println!(
        "- servers: core 1, one worker, kernel sockets; the largest load of which 98 % are answered within 100 ms; medians of {rounds} rounds\n"
    );
    let directory = Directory::new()?;
    make_certificate(&directory, "ns.test");
    let questions = Workload::Address.prepare(&directory)?;
    let secret = Secret::in_directory(&directory);
    let (mut rows, mut figures) = (Vec::new(), Vec::new());
    for case in CASES {
        let measured = rounds_of(&case, rounds, &questions, &secret)?;
        let measured = all_places(&measured);
        let of_case = case.servers.iter().zip(&measured).filter_map(|(server, found)| {
            let rates: Vec<f64> = found.iter().map(|found| found.rate).collect();
            Some((Figure::of(case.transport, &server.name(), "answers/s", &rates)?, found))
        });
        let of_case: Vec<(Figure, _)> = of_case.collect();
        rows.extend(of_case.iter().map(|(figure, found)| row(figure, &of_case[0].0, found)));
        figures.extend(of_case.into_iter().map(|(figure, _)| figure));
    }
    let head = ["transport", "server", "rounds", "answers/s", "lowest and highest", "limits", "ratio"];
    println!("{}", markdown_table(&head, &rows));
    let against = [Server::Nsd.name(), Server::Bind.name()];
    let against = against.each_ref().map(String::as_str);
    Run { name: "encrypted", conditions: &conditions, figures, against: &against }.keep()
}

fn row(figure: &Figure, first: &Figure, found: &[Knee]) -> Vec<String> {
    let limits: Vec<&str> = found.iter().map(|found| &found.limit[..]).collect();
    vec![
        figure.case.clone(),
        figure.subject.clone(),
        figure.rounds.to_string(),
        format!("{:.0}", figure.value),
        format!("{:.0} - {:.0}", figure.lowest, figure.highest),
        limits.join(", "),
        format!("{:.2}", figure.value / first.value),
    ]
}

/// All servers in turns.
fn rounds_of(
    case: &Case,
    rounds: u32,
    questions: &Questions,
    secret: &Secret,
) -> Result<Vec<Vec<Placed<Knee>>>, LabError> {
    let mut all = vec![Vec::new(); case.servers.len()];
    for round in 1..=rounds {
        for (server, found) in case.servers.iter().zip(&mut all) {
            let placed = in_one_place(|| run(case.transport, *server, questions, secret))?;
            let Knee { rate, limit } = &placed.found;
            eprintln!(
                "round {round}: {}: {}: {rate:.0} answers/s, limit: {limit}, cores {} apart",
                case.transport,
                server.name(),
                placed.apart
            );
            found.push(placed);
        }
    }
    Ok(all)
}

fn run(transport: &str, server: Server, questions: &Questions, secret: &Secret) -> Result<Knee, LabError> {
    let lab = Lab::for_figures()?;
    let _server = server.start(&lab, &questions.zone, secret)?;
    let over = ["--transport", transport, "--insecure", "--rate", "2k"];
    knee(&lab, questions, &[&over[..], &["--ports", CONNECTIONS, "--pipeline", PIPELINE]].concat())
}
