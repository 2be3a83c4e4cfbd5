//! `make demo`: Sidestep answers over AF_XDP in a laboratory of its own, then competes with others for the same load.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use lab::programs::{Network, Nginx};
use lab::{
    CLIENT_INTERFACE, CLIENT_V4, Conditions, Device, Directory, Kxdpgun, Lab, LabError, Peer, Procedure,
    QUESTIONS, SERVER_INTERFACE, SERVER_V4, SERVER_V6, Server, Side, Sidestep, Workload, Wrk, all_places,
    outcomes, ratio_table,
};

/// Offered in the run that is shown, in queries a second.
const SHOWN_RATE: u32 = 400_000;

fn main() -> ExitCode {
    if !lab::require_root_and_xdp() {
        eprintln!("make demo needs root, for namespaces and AF_XDP.");
        return ExitCode::FAILURE;
    }
    match demonstrate() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("demo: {error}");
            ExitCode::FAILURE
        }
    }
}

fn demonstrate() -> Result<(), LabError> {
    step("1. A laboratory: two network namespaces and a veth pair");
    let lab = Lab::new()?;
    let directory = Directory::new()?;
    println!(
        "server side  {}: {SERVER_INTERFACE} {SERVER_V4} {SERVER_V6}, core {}",
        lab.namespace(Side::Server),
        lab::server_core()
    );
    println!(
        "client side  {}: {CLIENT_INTERFACE} {CLIENT_V4}, core {}",
        lab.namespace(Side::Client),
        lab::generator_core()
    );

    step(&format!("2. Sidestep serves example.com over AF_XDP, with {QUESTIONS} hosts"));
    let questions = Workload::Address.prepare(&directory)?;
    let sidestep = Peer::Sidestep(Sidestep::on(Device::Xdp));
    let server = sidestep.start(&lab, &questions.zone)?;
    show_server(&lab, &server)?;

    step("3. dig asks it, from the client side; the kernel answers ping on the same interface");
    show(&lab, "dig", &[&format!("@{SERVER_V4}"), "www.example.com", "AAAA", "+nocmd", "+noquestion"])?;
    show(&lab, "dig", &[&format!("@{SERVER_V6}"), "+short", "+tcp", "example.com", "MX"])?;
    show(&lab, "ping", &["-c", "2", "-i", "0.2", SERVER_V4])?;

    step("4. kxdpgun, Knot DNS's load generator, asks faster");
    let generator = Kxdpgun::asking(&questions, SHOWN_RATE);
    println!("$ {}", generator.command_line());
    println!("{}", generator.run(&lab)?.text);
    drop(server);

    step(
        "5. The most that Sidestep, NSD and Knot answer of the same questions: in turn, three rounds of each",
    );
    let peers =
        [Peer::Nsd, Peer::Knot, Peer::KnotXdp, Peer::Sidestep(Sidestep::on(Device::Kernel)), sidestep];
    let conditions = Conditions::here("make demo");
    let measured = Procedure::quick().run(&questions, &peers, |round, peer, placed| {
        let rate = placed.found.knee.reply_rate;
        println!("round {round}  {:<28} {rate:>8} replies/s, cores {} apart", peer.name(), placed.apart);
    })?;

    step("6. Result: one core serves, one core asks");
    let outcomes = outcomes(&peers, all_places(&measured));
    println!("{}", ratio_table(&outcomes, &[&Peer::Nsd.name(), &Peer::KnotXdp.name()]));
    println!("{conditions}");
    demonstrate_run()?;
    println!("\nThe laboratory is removed.");
    Ok(())
}

/// nginx as Debian has it, on the kernel and by `sidestep run`.
fn demonstrate_run() -> Result<(), LabError> {
    step("7. nginx, unmodified, one worker: on the kernel, then by sidestep run");
    let mut rates = Vec::new();
    for network in [Network::Kernel, Network::sidestep(&["--spin-us", "200"])] {
        let lab = Lab::for_figures()?;
        let nginx = Nginx::with_workers(1).program();
        println!("# {}: {}", network.name(), nginx.command_line());
        let _running = nginx.start(&lab, Side::Server, &network)?;
        show(&lab, "curl", &["-sS", &format!("http://{SERVER_V4}/")])?;
        println!("$ curl -sS http://127.0.0.1/   (on the server itself)");
        println!("{}\n", lab.run_in(Side::Server, "curl", &["-sS", "http://127.0.0.1/"])?.trim());
        rates.push(ask_nginx(&lab)?);
    }
    let [kernel, sidestep] = rates.try_into().expect("there are two networks");
    println!(
        "{}",
        lab::markdown_table(
            &["requests a second", "kernel", "sidestep run", "ratio"],
            &[
                row("keep-alive, 64 connections", kernel.0, sidestep.0),
                row("Connection: close, 64 at a time", kernel.1, sidestep.1),
            ]
        )
    );
    Ok(())
}

/// Requests a second on connections that stay, and on one for each request.
fn ask_nginx(lab: &Lab) -> Result<(f64, f64), LabError> {
    let wrk = Wrk { url: format!("http://{SERVER_V4}/"), connections: 64, seconds: 3, close: false };
    Ok((wrk.run(lab)?.rate, Wrk { close: true, ..wrk }.run(lab)?.rate))
}

fn row(name: &str, kernel: f64, sidestep: f64) -> Vec<String> {
    vec![
        name.to_owned(),
        format!("{kernel:.0}"),
        format!("{sidestep:.0}"),
        format!("{:.2}", sidestep / kernel),
    ]
}

fn step(title: &str) {
    println!("\n== {title}\n");
}

fn show_server(lab: &Lab, server: &Server) -> Result<(), LabError> {
    println!("$ {}", server.process.command_line());
    println!("{}", server.process.output());
    println!("$ ip link show {SERVER_INTERFACE}");
    print!("{}", lab.ip(Side::Server, &format!("link show {SERVER_INTERFACE}"))?);
    Ok(())
}

fn show(lab: &Lab, program: &str, arguments: &[&str]) -> Result<(), LabError> {
    println!("$ {program} {}", arguments.join(" "));
    println!("{}\n", lab.run_in(Side::Client, program, arguments)?.trim());
    Ok(())
}
