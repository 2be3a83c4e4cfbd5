//! Replies a second between two namespaces: one core serves, kxdpgun asks from the other.
//!
//! Usage: `veth [ROUNDS [WORKLOAD...]]` (default: 3 rounds of all workloads)
#![forbid(unsafe_code)]

use std::process::ExitCode;

use bench::gun::knee;
use bench::record::{Figure, Run};
use bench::report::median;
use lab::{
    CLIENT_INTERFACE, Conditions, Device, Directory, Kxdpgun, Lab, LabError, Outcome, Peer, Placed,
    Procedure, QUESTIONS, Questions, Round, Sidestep, VETH, Workload, all_places, by_place, in_one_place,
    markdown_table, outcomes, ratio_table,
};

fn main() -> ExitCode {
    if !lab::require_root_and_xdp() {
        return ExitCode::SUCCESS;
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    let rounds = words.first().and_then(|word| word.parse().ok()).unwrap_or(3);
    let named: Option<Vec<Workload>> = words.iter().skip(1).map(|word| Workload::by_name(word)).collect();
    let Some(named) = named else {
        let names = Workload::ALL.map(Workload::name).join(", ");
        eprintln!("veth: unknown workload; there are: {names}");
        return ExitCode::FAILURE;
    };
    let workloads = if named.is_empty() { Workload::ALL.to_vec() } else { named };
    match measure(rounds, &workloads) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("veth: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Who is measured. The echo answers nothing: with as many octets as the answers have, it shows what the generator and the wire allow.
struct Peers {
    nsd: Peer,
    knot: Peer,
    knot_xdp: Peer,
    on_kernel: Peer,
    over_xdp: Peer,
    echo: Peer,
}

impl Peers {
    /// With an echo of so many octets.
    fn new(reply_size: u64) -> Peers {
        let over_xdp = Sidestep::on(Device::Xdp);
        let echo = format!("echo={reply_size}");
        Peers {
            nsd: Peer::Nsd,
            knot: Peer::Knot,
            knot_xdp: Peer::KnotXdp,
            on_kernel: Peer::Sidestep(Sidestep::on(Device::Kernel)),
            echo: Peer::Sidestep(over_xdp.clone().with(&["--responder", &echo]).named("bare echo, as long")),
            over_xdp: Peer::Sidestep(over_xdp),
        }
    }

    /// Those that can be asked `workload`, in the order of the tables: the echo serves no TCP.
    fn for_workload(&self, workload: Workload) -> Vec<Peer> {
        let all = [&self.nsd, &self.knot, &self.knot_xdp, &self.on_kernel, &self.over_xdp, &self.echo];
        let count = if workload.is_over_tcp() { all.len() - 1 } else { all.len() };
        all[..count].iter().copied().cloned().collect()
    }
}

fn measure(rounds: u32, workloads: &[Workload]) -> Result<(), LabError> {
    let procedure = Procedure::thorough(rounds);
    let offered = format!(
        "kxdpgun -b 32 over AF_XDP on core 0, {QUESTIONS} questions, {} s at each load of the search",
        procedure.seconds
    );
    let conditions = Conditions::here("make bench FIGURES=veth", VETH, &offered).with_peers();
    println!("# Replies a second on veth\n\n{conditions}");
    println!(
        "- servers: core 1, one worker; the largest load of which 98 % are answered, to {:.0} %; medians of {rounds} interleaved rounds\n",
        (procedure.precision - 1.0) * 100.0
    );
    let mut figures = Vec::new();
    for workload in workloads {
        println!("## {workload}\n");
        let directory = Directory::new()?; // Servers read the zone there, until the last one has ended.
        let questions = workload.prepare(&directory)?;
        let peers = Peers::new(reply_size(&questions)?);
        let contenders = peers.for_workload(*workload);
        let measured = procedure.run(&questions, &contenders, show_progress)?;
        figures.extend(figures_of(*workload, &outcomes(&contenders, all_places(&measured))));
        print_outcomes(&peers, *workload, measured);
        if *workload == Workload::Address {
            generators(rounds, &peers, &questions, &figures)?;
        }
    }
    let against = [Peer::Nsd.name(), Peer::KnotXdp.name()];
    let against = against.each_ref().map(String::as_str);
    let run = Run { name: "veth", conditions: &conditions, figures, against: &against };
    run.keep()
}

/// Octets of an average answer of ours.
fn reply_size(questions: &Questions) -> Result<u64, LabError> {
    let lab = Lab::for_figures()?;
    let _server = Peer::Sidestep(Sidestep::on(Device::Xdp)).start(&lab, &questions.zone)?;
    Ok(Kxdpgun::asking(questions, 10_000).run(&lab)?.reply_size)
}

/// kxdpgun and `sidestep gun dns` beside each other, both over AF_XDP, each to the knee of the servers on AF_XDP. What the bare echo sends back are
/// no answers to the latter. kxdpgun's figures are those of the table.
fn generators(
    rounds: u32,
    peers: &Peers,
    questions: &Questions,
    by_kxdpgun: &[Figure],
) -> Result<(), LabError> {
    let mut rows = Vec::new();
    for peer in [&peers.knot_xdp, &peers.over_xdp] {
        let Some(theirs) = by_kxdpgun.iter().find(|figure| figure.subject == peer.name()) else { continue };
        let mut ours = Vec::new();
        for _ in 0..rounds {
            let lab = Lab::for_figures()?;
            let _server = peer.start(&lab, &questions.zone)?;
            let search = || knee(&lab, questions, &["--device", CLIENT_INTERFACE, "--rate", "100k"]);
            let found = in_one_place(search)?.found;
            eprintln!("{}: {} answers/s by gun dns, limit: {}", peer.name(), found.rate, found.limit);
            ours.push(found.rate);
        }
        let ours = median(&mut ours);
        let ratio = format!("{:.2}", ours / theirs.value);
        rows.push(vec![peer.name(), format!("{:.0}", theirs.value), format!("{ours:.0}"), ratio]);
    }
    println!("The generators beside each other; medians of {rounds} rounds\n");
    let head = ["server", "kxdpgun, replies/s", "gun dns, answers/s", "ratio"];
    println!("{}", markdown_table(&head, &rows));
    Ok(())
}

/// Replies a second at the knee, of each server that carried anything.
fn figures_of(workload: Workload, outcomes: &[Outcome]) -> Vec<Figure> {
    let figure = |outcome: &Outcome| {
        let rates: Vec<f64> = outcome.rounds.iter().map(|round| round.knee.reply_rate as f64).collect();
        Figure::of(workload.name(), &outcome.name, "replies/s", &rates)
    };
    outcomes.iter().filter_map(figure).collect()
}

fn show_progress(round: u32, peer: &Peer, placed: &Placed<Round>) {
    let Round { knee, load, limit, most, .. } = &placed.found;
    eprintln!(
        "round {round}: {}: {} replies/s at a load of {load}, limit: {limit}, at most {most}, cores {} apart",
        peer.name(),
        knee.reply_rate,
        placed.apart
    );
}

/// The table of all rounds, and one for each place of the cores if there were several.
fn print_outcomes(peers: &Peers, workload: Workload, measured: Vec<Vec<Placed<Round>>>) {
    let contenders = peers.for_workload(workload);
    let against = [peers.nsd.name(), peers.knot_xdp.name(), peers.echo.name()];
    let against = against.each_ref().map(String::as_str);
    let all = outcomes(&contenders, all_places(&measured));
    println!("{}", ratio_table(&all, &against));
    if workload == Workload::Address {
        compare(&all, &peers.over_xdp, &peers.nsd, 2.5);
        compare(&all, &peers.over_xdp, &peers.knot_xdp, 2.5);
        compare(&all, &peers.over_xdp, &peers.echo, 0.9);
        compare(&all, &peers.on_kernel, &peers.nsd, 1.0);
        println!();
    }
    let places = by_place(measured);
    if places.len() > 1 {
        for place in places {
            println!("{place}\n");
            println!("{}", ratio_table(&outcomes(&contenders, place.contenders), &against));
        }
    }
}

fn compare(outcomes: &[Outcome], one: &Peer, other: &Peer, target: f64) {
    let rate = |peer: &Peer| {
        let outcome = outcomes.iter().find(|outcome| outcome.name == peer.name());
        outcome.map_or(0.0, |outcome| outcome.reply_rate() as f64)
    };
    let ratio = rate(one) / rate(other);
    let verdict = if ratio >= target { "met" } else { "MISSED" };
    println!("- {} / {}: {ratio:.2}, target {target:.1}: {verdict}", one.name(), other.name());
}
