//! Answers a second over TLS, HTTPS and QUIC between two namespaces: one core serves, `sidestep gun dns` asks from the other, in turns.
//!
//! Usage: `encrypted [ROUNDS]` (default: 3 rounds)
#![forbid(unsafe_code)]

mod servers;

use std::process::ExitCode;

use bench::gun::{Knee, knee};
use bench::knees::{Knees, run_rounds};
use bench::record::Run;
use lab::{Conditions, Directory, Lab, LabError, Questions, VETH, Workload, make_certificate};
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
    run_rounds("encrypted", measure)
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
    let mut knees = Knees::default();
    for case in CASES {
        let names: Vec<String> = case.servers.iter().map(|server| server.name()).collect();
        let run = |number: usize| run(case.transport, case.servers[number], &questions, &secret);
        knees.measure(case.transport, &names, rounds, run)?;
    }
    println!("{}", knees.table("transport"));
    let against = [Server::Nsd.name(), Server::Bind.name()];
    let against = against.each_ref().map(String::as_str);
    let figures = knees.into_figures();
    Run { name: "encrypted", conditions: &conditions, figures, against: &against }.keep()
}

fn run(transport: &str, server: Server, questions: &Questions, secret: &Secret) -> Result<Knee, LabError> {
    let lab = Lab::for_figures()?;
    let _server = server.start(&lab, &questions.zone, secret)?;
    let over = ["--transport", transport, "--insecure", "--rate", "2k"];
    knee(&lab, questions, &[&over[..], &["--ports", CONNECTIONS, "--pipeline", PIPELINE]].concat())
}
