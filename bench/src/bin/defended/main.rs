//! Answers a second with limits, with cookies and by line between two namespaces: one core serves, `sidestep gun dns` asks from the other over AF_XDP.
//!
//! Usage: `defended [ROUNDS]` (default: 3 rounds)
#![forbid(unsafe_code)]

mod lines;

use std::io;
use std::process::ExitCode;

use bench::gun::{Knee, knee};
use bench::knees::{Knees, run_rounds};
use bench::record::Run;
use lab::{
    CLIENT_INTERFACE, Conditions, Device, Directory, Lab, LabError, Peer, Questions, SERVER_V4, Settings,
    Side, Sidestep, VETH, Workload,
};

use crate::lines::Lines;

/// What servers do besides answering.
struct Case<'l> {
    name: &'static str,
    /// Whether questions have a cookie that the server has made for this client.
    asks_with_cookie: bool,
    /// The first is what the others are compared with.
    servers: Vec<(Peer, Settings)>,
    /// Where the answers have to be from, if not from the zone itself.
    lines: Option<&'l Lines>,
}

impl Case<'_> {
    fn new(name: &'static str, nsd: &str, knot: &str, sidestep: &str) -> Self {
        let servers = [(Peer::Nsd, nsd), (Peer::KnotXdp, knot), (sidestep_on_xdp(), sidestep)];
        let servers = servers.map(|(peer, lines)| (peer, Settings::of_server(lines))).to_vec();
        Case { name, asks_with_cookie: false, servers, lines: None }
    }
}

fn sidestep_on_xdp() -> Peer {
    Peer::Sidestep(Sidestep::on(Device::Xdp))
}

fn cases(lines: &Lines) -> [Case<'_>; 4] {
    // Limits are so high that no answer is held back, so only their bookkeeping costs. For Knot it is one for each name and network, and
    // Knot 3.2 counts what four seconds hold in 16 bits.
    let limits = Case::new(
        "limits",
        "  rrl-ratelimit: 1000000\n",
        "mod-rrl:\n  - id: default\n    rate-limit: 16000\n\
         template:\n  - id: default\n    global-module: mod-rrl/default\n",
        "[rate]\nper-address = 1000000\nper-prefix = 1000000\nexempt = []\n",
    );
    let cookies = Case::new(
        "cookies",
        "  answer-cookie: yes\n",
        "template:\n  - id: default\n    global-module: mod-cookies\n",
        "[cookies]\nenabled = true\n",
    );
    // NSD gives all clients the same.
    let by_line = vec![(Peer::KnotXdp, lines.knot.clone()), (sidestep_on_xdp(), lines.sidestep.clone())];
    [
        Case::new("plain", "", "", ""),
        limits,
        Case { asks_with_cookie: true, ..cookies },
        Case { name: "lines", asks_with_cookie: false, servers: by_line, lines: Some(lines) },
    ]
}

fn main() -> ExitCode {
    run_rounds("defended", measure)
}

fn measure(rounds: u32) -> Result<(), LabError> {
    let offered = "sidestep gun dns --find-knee over AF_XDP on core 0, 64 ports of one address, 1 s at each load; \
                   with cookies each question has the client's and the server's";
    let conditions = Conditions::here("make bench FIGURES=defended", VETH, offered).with_peers();
    println!("# Limits, cookies and lines on veth\n\n{conditions}");
    println!(
        "- servers: core 1, one worker; limits that are never reached; the largest load of which 98 % are answered; medians of {rounds} rounds\n"
    );
    let directory = Directory::new()?;
    let questions = Workload::Address.prepare(&directory)?;
    let of_lines = Directory::new()?;
    let lines = Lines::of(&questions, &of_lines)?;
    let mut knees = Knees::default();
    for case in &cases(&lines) {
        let names: Vec<String> = case.servers.iter().map(|(peer, _)| peer.name()).collect();
        knees.measure(case.name, &names, rounds, |number| run(case, &case.servers[number], &questions))?;
    }
    println!("{}", knees.table("besides answers"));
    let others = [Peer::Nsd, Peer::KnotXdp].map(|peer| peer.name());
    let against = others.each_ref().map(String::as_str);
    let figures = knees.into_figures();
    Run { name: "defended", conditions: &conditions, figures, against: &against }.keep()
}

fn run(case: &Case, (peer, settings): &(Peer, Settings), questions: &Questions) -> Result<Knee, LabError> {
    let lab = Lab::for_figures()?;
    let _server = peer.start_with(&lab, &questions.zone, settings)?;
    case.lines.map_or(Ok(()), |lines| lines.check(&lab))?;
    let mut options = vec!["--device", CLIENT_INTERFACE, "--rate", "100k"];
    let cookie = case.asks_with_cookie.then(|| cookie(&lab, questions)).transpose()?;
    if let Some(cookie) = &cookie {
        options.extend(["--cookie", cookie]);
    }
    let found = knee(&lab, questions, &options)?;
    if found.whole { Ok(found) } else { Err(held_back(case, peer)) }
}

fn held_back(case: &Case, peer: &Peer) -> LabError {
    let what = format!("{} with {}", peer.name(), case.name);
    LabError::System { what, source: io::Error::other("some answers were truncated or errors") }
}

/// A cookie of the client's, with the one that the server makes for it, in hexadecimal digits.
fn cookie(lab: &Lab, questions: &Questions) -> Result<String, LabError> {
    let server = format!("@{SERVER_V4}");
    let report = lab.run_in(Side::Client, "dig", &[&server, &questions.zone.origin, "SOA", "+cookie"])?;
    let words = report.lines().find_map(|line| line.strip_prefix("; COOKIE: "));
    let cookie = words.and_then(|words| words.strip_suffix(" (good)")).map(str::to_owned);
    cookie.ok_or(LabError::Report { field: "COOKIE", report })
}
