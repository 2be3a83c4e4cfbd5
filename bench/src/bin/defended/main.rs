//! Answers a second with limits and with cookies between two namespaces: one core serves, `sidestep gun dns` asks from the other over AF_XDP.
//!
//! Usage: `defended [ROUNDS]` (default: 3 rounds)
#![forbid(unsafe_code)]

use std::io;
use std::process::ExitCode;

use bench::gun::{Knee, knee};
use bench::knees::{Knees, run_rounds};
use bench::record::Run;
use lab::{
    CLIENT_INTERFACE, Conditions, Device, Directory, Lab, LabError, Peer, Questions, SERVER_V4, Side,
    Sidestep, VETH, Workload,
};

/// What servers do besides answering. Limits are so high that no answer is held back, so only their bookkeeping costs.
struct Case {
    name: &'static str,
    /// Whether questions have a cookie that the server has made for this client.
    asks_with_cookie: bool,
    nsd: &'static str,
    knot: &'static str,
    sidestep: &'static str,
}

const CASES: [Case; 3] = [
    Case { name: "plain", asks_with_cookie: false, nsd: "", knot: "", sidestep: "" },
    Case {
        name: "limits",
        asks_with_cookie: false,
        nsd: "  rrl-ratelimit: 1000000\n",
        // For each name and network. Knot 3.2 counts what four seconds hold in 16 bits.
        knot: "mod-rrl:\n  - id: default\n    rate-limit: 16000\n\
               template:\n  - id: default\n    global-module: mod-rrl/default\n",
        sidestep: "[rate]\nper-address = 1000000\nper-prefix = 1000000\nexempt = []\n",
    },
    Case {
        name: "cookies",
        asks_with_cookie: true,
        nsd: "  answer-cookie: yes\n",
        knot: "template:\n  - id: default\n    global-module: mod-cookies\n",
        sidestep: "[cookies]\nenabled = true\n",
    },
];

impl Case {
    /// What this server's configuration has for it.
    fn settings(&self, peer: &Peer) -> &'static str {
        match peer {
            Peer::Nsd => self.nsd,
            Peer::Knot | Peer::KnotXdp => self.knot,
            Peer::Sidestep(_) => self.sidestep,
        }
    }
}

fn main() -> ExitCode {
    run_rounds("defended", measure)
}

fn measure(rounds: u32) -> Result<(), LabError> {
    let offered = "sidestep gun dns --find-knee over AF_XDP on core 0, 64 ports of one address, 1 s at each load; \
                   with cookies each question has the client's and the server's";
    let conditions = Conditions::here("make bench FIGURES=defended", VETH, offered).with_peers();
    println!("# Limits and cookies on veth\n\n{conditions}");
    println!(
        "- servers: core 1, one worker; limits that are never reached; the largest load of which 98 % are answered; medians of {rounds} rounds\n"
    );
    let directory = Directory::new()?;
    let questions = Workload::Address.prepare(&directory)?;
    let peers = [Peer::Nsd, Peer::KnotXdp, Peer::Sidestep(Sidestep::on(Device::Xdp))];
    let names = peers.each_ref().map(Peer::name);
    let mut knees = Knees::default();
    for case in &CASES {
        knees.measure(case.name, &names, rounds, |number| run(case, &peers[number], &questions))?;
    }
    println!("{}", knees.table("besides answers"));
    let against = [&names[0][..], &names[1][..]];
    let figures = knees.into_figures();
    Run { name: "defended", conditions: &conditions, figures, against: &against }.keep()
}

fn run(case: &Case, peer: &Peer, questions: &Questions) -> Result<Knee, LabError> {
    let lab = Lab::for_figures()?;
    let _server = peer.start_with(&lab, &questions.zone, case.settings(peer))?;
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
