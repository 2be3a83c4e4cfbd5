//! Figure 6: round trips on veth at about one per cent of what a server can take.
//!
//! Usage: `latency [ROUNDS [RATE]]` (default: 9 rounds of 5000 queries a second)
#![forbid(unsafe_code)]

mod probe;

use std::process::ExitCode;

use bench::record::{Figure, Run};
use lab::{
    Conditions, Device, Directory, Lab, LabError, Peer, Placed, QUESTIONS, Sidestep, VETH, Workload,
    all_places, all_then_by_place, in_one_place, markdown_table, median,
};

use probe::{Probe, RoundTrips, quantile};

fn main() -> ExitCode {
    if !lab::require_root_and_xdp() {
        return ExitCode::SUCCESS;
    }
    let mut arguments = std::env::args().skip(1).map(|word| word.parse().ok());
    let rounds = arguments.next().flatten().unwrap_or(9);
    let rate = arguments.next().flatten().unwrap_or(5000);
    match measure(rounds, rate) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("latency: {error}");
            ExitCode::FAILURE
        }
    }
}

fn peers() -> Vec<Peer> {
    let over_xdp = || Sidestep::on(Device::Xdp);
    vec![
        Peer::Nsd,
        Peer::Knot,
        Peer::KnotXdp,
        Peer::Sidestep(Sidestep::on(Device::Kernel)),
        Peer::Sidestep(over_xdp().named("interrupts")),
        Peer::Sidestep(over_xdp().with(&["--busy-poll", "on"]).named("busy-poll on")),
        Peer::Sidestep(over_xdp().with(&["--busy-poll", "always"]).named("busy-poll always")),
    ]
}

fn measure(rounds: u32, rate: u32) -> Result<(), LabError> {
    let offered =
        format!("{rate} queries/s from one UDP socket on core 0 that spins, {QUESTIONS} names, type A");
    let conditions = Conditions::here("make bench FIGURES=latency", VETH, &offered).with_peers();
    println!("# Round trips on veth\n\n{conditions}");
    println!(
        "- servers: core 1, one worker; {rounds} interleaved rounds of {} s; quantiles of each 1/{} s, their medians; \"of all\": of all round \
         trips together, with the moments at which the cores were somebody else's\n",
        probe::SECONDS,
        probe::WINDOWS_PER_SECOND
    );
    let directory = Directory::new()?;
    let zone = Workload::Address.prepare(&directory)?.zone;
    let peers = peers();
    let mut measured: Vec<Vec<Placed<RoundTrips>>> = vec![Vec::new(); peers.len()];
    for round in 1..=rounds {
        for (peer, measured) in peers.iter().zip(&mut measured) {
            let trips = in_one_place(|| {
                let lab = Lab::new()?;
                let _server = peer.start(&lab, &zone)?;
                Probe { rate, hosts: QUESTIONS, origin: zone.origin.clone() }.run(&lab)
            })?;
            eprintln!("round {round}: {}: {}, cores {} apart", peer.name(), trips.found, trips.apart);
            measured.push(trips);
        }
    }
    let figures = figures_of(&peers, &all_places(&measured));
    for place in all_then_by_place(measured) {
        println!("{place}\n");
        print_table(&peers, &place.contenders);
    }
    println!("Target: p50 and p99 over AF_XDP, in either mode, not above those on kernel sockets.");
    let against = [Peer::Nsd.name(), Peer::KnotXdp.name()];
    let against = against.each_ref().map(String::as_str);
    let run = Run { name: "latency", conditions: &conditions, figures, against: &against };
    run.keep()
}

/// For each quantile and server the medians of its windows, a value for each round.
fn figures_of(peers: &[Peer], measured: &[Vec<RoundTrips>]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (case, per_mille) in [("p50", 500), ("p90", 900), ("p99", 990)] {
        for (peer, rounds) in peers.iter().zip(measured) {
            let of_round = |trips: &RoundTrips| {
                median(&trips.quantiles_of_windows(per_mille).collect::<Vec<_>>()) as f64 / 1000.0
            };
            let values: Vec<f64> = rounds.iter().map(of_round).collect();
            figures.extend(Figure::of(case, &peer.name(), "us", &values));
        }
    }
    figures
}

fn print_table(peers: &[Peer], measured: &[Vec<RoundTrips>]) {
    let us = |ns: u64| format!("{:.1}", ns as f64 / 1000.0);
    let row = |(peer, rounds): (&Peer, &Vec<RoundTrips>)| {
        let windows = |per_mille| {
            median(&rounds.iter().flat_map(|trips| trips.quantiles_of_windows(per_mille)).collect::<Vec<_>>())
        };
        let all: Vec<u64> = rounds.iter().flat_map(RoundTrips::all).copied().collect();
        let lost: u64 = rounds.iter().map(|trips| trips.lost).sum();
        let mut cells = vec![peer.name(), rounds.len().to_string()];
        cells.extend([500, 900, 990].map(|per_mille| us(windows(per_mille))));
        cells.extend([990, 999].map(|per_mille| us(quantile(&all, per_mille))));
        cells.push(lost.to_string());
        cells
    };
    let measured = peers.iter().zip(measured).filter(|(_, rounds)| !rounds.is_empty());
    let head = ["server", "rounds", "p50 us", "p90 us", "p99 us", "p99 of all", "p99.9 of all", "lost"];
    println!("{}", markdown_table(&head, &measured.map(row).collect::<Vec<_>>()));
}
