//! `make demo`: Sidestep serves DNS and runs nginx over AF_XDP in a laboratory of its own, beside others, and sums up the result.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Instant;

use lab::programs::{Network, Nginx};
use lab::{
    CLIENT_INTERFACE, CLIENT_V4, Conditions, Device, Directory, Lab, LabError, Peer, Procedure, Questions,
    SERVER_INTERFACE, SERVER_V4, SERVER_V6, Server, Side, Sidestep, VETH, Workload, Wrk, in_one_place,
    median,
};

/// How long each run of wrk takes.
const WRK_SECONDS: u32 = 2;
/// How often each load is measured.
const WRK_ROUNDS: usize = 3;
const STEPS: u32 = 6;

fn main() -> ExitCode {
    if !lab::require_root_and_xdp() {
        eprintln!("demo: root is needed, to make network namespaces and AF_XDP sockets. Try: sudo make demo");
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
    let started = Instant::now();
    println!(
        "This takes several minutes. Everything happens in network namespaces, which are removed afterwards."
    );
    let directory = Directory::new()?;
    let questions = Workload::Address.prepare(&directory)?;
    let lab = Lab::new()?;
    show_laboratory(&lab);
    serve_dns(&lab, &questions)?;
    let rates = compare_dns_servers(&questions)?;
    let pages = compare_nginx()?;
    summarise(&rates, &pages);
    println!("{}", Conditions::here("make demo", VETH, "as each step says").with_peers());
    println!("\nDone in {} s. The laboratory is removed.", started.elapsed().as_secs());
    Ok(())
}

fn show_laboratory(lab: &Lab) {
    step(1, "make a laboratory", "Two network namespaces and a virtual cable (veth) between them.");
    println!(
        "server side  {}: interface {SERVER_INTERFACE}, addresses {SERVER_V4} {SERVER_V6}, core {}",
        lab.namespace(Side::Server),
        lab::server_core()
    );
    println!(
        "client side  {}: interface {CLIENT_INTERFACE}, address {CLIENT_V4}, core {}",
        lab.namespace(Side::Client),
        lab::generator_core()
    );
}

/// Steps 2 and 3: a server over AF_XDP, and its clients.
fn serve_dns(lab: &Lab, questions: &Questions) -> Result<(), LabError> {
    step(2, "serve DNS", "Sidestep takes DNS packets straight from the interface (AF_XDP).");
    let server = Peer::Sidestep(Sidestep::on(Device::Xdp)).start(lab, &questions.zone)?;
    show_server(lab, &server)?;
    step(
        3,
        "ask it",
        "dig gets its answers from Sidestep. ping is answered by the kernel, on the same interface.",
    );
    show(lab, "dig", &[&format!("@{SERVER_V4}"), "www.example.com", "AAAA", "+nocmd", "+noquestion"])?;
    show(lab, "dig", &[&format!("@{SERVER_V6}"), "+short", "+tcp", "example.com", "MX"])?;
    show(lab, "ping", &["-c", "2", "-i", "0.2", SERVER_V4])
}

/// Step 4: the answers a second of each server in each round, by its name.
fn compare_dns_servers(questions: &Questions) -> Result<BTreeMap<String, Vec<u64>>, LabError> {
    let procedure = Procedure::quick();
    step(
        4,
        "compare DNS servers",
        "Each server gets one core. kxdpgun, a load generator, searches the largest load of which it answers 98 %.",
    );
    let peers = dns_servers();
    let mut progress = Progress::new(procedure.rounds as usize * peers.len());
    let mut rates = BTreeMap::<String, Vec<u64>>::new();
    procedure.run(questions, &peers, |_, peer, placed| {
        let rate = placed.found.knee.reply_rate;
        progress.report(&format!("{:<26} {:>7} answers a second", peer.name(), thousands(rate as f64)));
        rates.entry(peer.name()).or_default().push(rate);
    })?;
    Ok(rates)
}

/// In the order in which they take turns.
fn dns_servers() -> [Peer; 5] {
    let sidestep = |device| Peer::Sidestep(Sidestep::on(device));
    [Peer::Nsd, Peer::Knot, Peer::KnotXdp, sidestep(Device::Kernel), sidestep(Device::Xdp)]
}

/// Requests a second of one kind, on the kernel and by `sidestep run`: the median of the rounds.
struct Pages {
    kind: &'static str,
    kernel: f64,
    sidestep: f64,
}

/// Step 5: nginx as Debian has it, on the kernel and by `sidestep run`, in turns.
fn compare_nginx() -> Result<Vec<Pages>, LabError> {
    step(
        5,
        "run nginx, unmodified",
        "On the kernel and under `sidestep run`, in turns: the same binary, the same configuration, one worker.",
    );
    let networks = [Network::Kernel, Network::sidestep(&[])];
    let (labs, nginx) = ([Lab::for_figures()?, Lab::for_figures()?], Nginx::with_workers(1).program());
    let start = |(network, lab): (&Network, &Lab)| nginx.start(lab, Side::Server, network);
    let _running = networks.iter().zip(&labs).map(start).collect::<Result<Vec<_>, _>>()?;
    let mut progress = Progress::new(WRK_ROUNDS * networks.len() * loads().len());
    let mut rates: [[Vec<u64>; 2]; 3] = Default::default();
    for _ in 0..WRK_ROUNDS {
        for ((kind, wrk), rates) in loads().into_iter().zip(&mut rates) {
            for ((network, lab), rates) in networks.iter().zip(&labs).zip(rates) {
                let rate = in_one_place(|| wrk.run(lab))?.found.rate;
                progress.report(&format!("{:<13} {kind:<44} {rate:>9.0} a second", network.name()));
                rates.push(rate as u64);
            }
        }
    }
    let page = |((kind, _), [kernel, sidestep]): ((&'static str, Wrk), &[Vec<u64>; 2])| Pages {
        kind,
        kernel: median(kernel) as f64,
        sidestep: median(sidestep) as f64,
    };
    Ok(loads().into_iter().zip(&rates).map(page).collect())
}

/// What wrk asks of nginx: two loads of small answers, and one of large ones.
fn loads() -> [(&'static str, Wrk); 3] {
    let wrk = |path: &str, connections, close| Wrk {
        url: format!("http://{SERVER_V4}/{path}"),
        connections,
        seconds: WRK_SECONDS,
        close,
    };
    [
        ("short pages, 64 clients that stay connected", wrk("", 64, false)),
        ("short pages, a connection for each", wrk("", 64, true)),
        ("files of 8 MB, 4 clients", wrk("large", 4, false)),
    ]
}

/// Step 6: the figures in words.
fn summarise(rates: &BTreeMap<String, Vec<u64>>, pages: &[Pages]) {
    step(6, "summary", "");
    println!("DNS, answers a second on one core (median of the rounds):");
    let rate_of = |peer: &Peer| rates.get(&peer.name()).map_or(0, |rates| median(rates));
    let servers = dns_servers();
    let ours = rate_of(servers.last().expect("there are servers"));
    for peer in &servers {
        let rate = rate_of(peer);
        println!(
            "  {:<26} {:>7}   {}",
            peer.name(),
            thousands(rate as f64),
            bar(rate as f64 / ours.max(1) as f64)
        );
    }
    println!(
        "  Over AF_XDP, Sidestep answers {} queries for each one that NSD answers, and {} for each one of Knot over AF_XDP.\n",
        ratio(ours as f64, rate_of(&Peer::Nsd) as f64),
        ratio(ours as f64, rate_of(&Peer::KnotXdp) as f64),
    );
    println!("nginx, unmodified, requests a second (median of the rounds):");
    for Pages { kind, kernel, sidestep } in pages {
        println!(
            "  {kind:<44} {kernel:>9.0} on the kernel {sidestep:>9.0} with Sidestep   {}",
            in_words(*kernel, *sidestep)
        );
    }
    println!(
        "  Connections that carry much move to the kernel, and have its rate from then on (docs/limits.md).\n\n\
         The server had one core of this machine, the client another one. All else on the interface stayed with the kernel.\n"
    );
}

/// How `sidestep` compares with `kernel`, such as `1.2 times as fast`.
fn in_words(kernel: f64, sidestep: f64) -> String {
    match sidestep / kernel {
        ratio if !ratio.is_finite() => "no result".to_owned(),
        ratio if ratio >= 1.0 => format!("{ratio:.1} times as fast"),
        ratio => format!("slower: {:.0} % of the kernel's rate", ratio * 100.0),
    }
}

fn ratio(ours: f64, theirs: f64) -> String {
    if theirs > 0.0 { format!("{:.1}", ours / theirs) } else { "?".to_owned() }
}

fn thousands(rate: f64) -> String {
    format!("{:.0} k", rate / 1000.0)
}

/// A bar for a share of the longest.
fn bar(share: f64) -> String {
    "█".repeat((share * 30.0).round() as usize)
}

/// A line for each measurement, with how many there will be.
struct Progress {
    done: usize,
    total: usize,
}

impl Progress {
    fn new(total: usize) -> Progress {
        Progress { done: 0, total }
    }

    fn report(&mut self, what: &str) {
        self.done += 1;
        println!("[{:>2}/{}] {what}", self.done, self.total);
    }
}

fn step(number: u32, title: &str, explanation: &str) {
    println!("\n=== Step {number} of {STEPS}: {title} ===\n{explanation}\n");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_says_faster_and_slower_in_words() {
        assert_eq!(in_words(100.0, 120.0), "1.2 times as fast");
        assert_eq!(in_words(100.0, 12.0), "slower: 12 % of the kernel's rate");
        assert_eq!(in_words(0.0, 0.0), "no result");
    }
}
