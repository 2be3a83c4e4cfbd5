//! Figures 1 and 2: replies a second between two namespaces, one core serves, kxdpgun asks for 10 000 names.
//!
//! Usage: `veth [ROUNDS]` (default: 3)
#![forbid(unsafe_code)]

use std::process::ExitCode;

use lab::{
    Conditions, Device, Directory, LabError, Outcome, Peer, Procedure, Sidestep, Zone, outcomes, ratio_table,
};

/// Names asked for.
const HOSTS: u32 = 10_000;

fn main() -> ExitCode {
    if !lab::require_root_and_xdp() {
        return ExitCode::SUCCESS;
    }
    let rounds = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(3);
    match measure(rounds) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("veth: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(rounds: u32) -> Result<(), LabError> {
    let nsd = Peer::Nsd;
    let knot_xdp = Peer::KnotXdp;
    let over_xdp = Peer::Sidestep(Sidestep::on(Device::Xdp));
    let echo = Peer::Sidestep(Sidestep::on(Device::Xdp).with(&["--responder", "echo"]).named("bare echo"));
    let on_kernel = Peer::Sidestep(Sidestep::on(Device::Kernel));
    let peers = [&nsd, &Peer::Knot, &knot_xdp, &on_kernel, &over_xdp, &echo].map(Peer::clone);

    println!("# Replies a second on veth\n");
    println!("{}", Conditions::here("make bench FIGURES=veth"));
    println!(
        "- load: kxdpgun -b 32 over AF_XDP on core 0, {HOSTS} names, type A, two seconds at each of rising rates"
    );
    println!("- servers: core 1, one worker; medians of {rounds} interleaved rounds, the peak of each\n");
    let directory = Directory::new()?;
    let zone = Zone::with_hosts(&directory, HOSTS)?;
    let queries = zone.host_queries(&directory, HOSTS)?;
    let places = Procedure::thorough(rounds).run(&zone, &queries, &peers, |round, peer, climb| {
        let peak = &climb.found.peak;
        eprintln!(
            "round {round}: {}: {} replies/s of {} asked, cores {} apart",
            peer.name(),
            peak.reply_rate,
            peak.query_rate,
            climb.apart
        );
    })?;
    for place in places {
        println!("{place}\n");
        let outcomes = outcomes(&peers, place);
        println!("{}", ratio_table(&outcomes, &[&nsd.name(), &knot_xdp.name(), &echo.name()]));
        compare(&outcomes, &over_xdp, &nsd, 2.5);
        compare(&outcomes, &over_xdp, &knot_xdp, 2.5);
        compare(&outcomes, &over_xdp, &echo, 0.9);
        compare(&outcomes, &on_kernel, &nsd, 1.0);
        println!();
    }
    Ok(())
}

fn compare(outcomes: &[Outcome], one: &Peer, other: &Peer, target: f64) {
    let rate = |peer: &Peer| {
        let outcome = outcomes.iter().find(|outcome| outcome.name == peer.name());
        outcome.map_or(0.0, |outcome| outcome.reply_rate() as f64)
    };
    if rate(one) * rate(other) == 0.0 {
        return; // One of them had no round in this place.
    }
    let ratio = rate(one) / rate(other);
    let verdict = if ratio >= target { "met" } else { "MISSED" };
    println!("- {} / {}: {ratio:.2}, target {target:.1}: {verdict}", one.name(), other.name());
}
