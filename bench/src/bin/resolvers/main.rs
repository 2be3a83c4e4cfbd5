//! Resolvers beside each other in a laboratory Internet: whom they ask, how soon they answer, how they take an outage, and when they serve
//! expired data.
//!
//! All of them run at the same time and are asked the same questions at the same moments; each has an address of its own, by which its queries
//! are told from the others'.
//!
//! Usage: `resolvers [OUTAGE-SECONDS [RESOLVER...]]` (default: an outage of 60 s, all resolvers)
#![forbid(unsafe_code)]

mod clients;
mod clock;
mod internet;
mod peers;
mod script;
mod servers;
mod tables;
mod zones;

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use lab::{CLIENT_INTERFACE, Conditions, Lab, LabError, Side};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::time::{Instant as Deadline, sleep_until};

use crate::clients::Asked;
use crate::internet::Internet;
use crate::peers::Peer;
use crate::script::{PACE, Phase, RATE};
use crate::servers::Arrivals;
use crate::tables::Found;

/// Time to open the servers before the first question.
const LEAD: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    if !lab::require_root_and_xdp() {
        return ExitCode::SUCCESS;
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some((outage, peers)) = read(&words) else {
        let names = Peer::ALL.map(Peer::name).join(" ");
        eprintln!("usage: resolvers [OUTAGE-SECONDS [RESOLVER...]], where a resolver is one of: {names}");
        return ExitCode::FAILURE;
    };
    match measure(outage, &peers) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("resolvers: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Seconds of the outage, and who is measured: all, if none is named.
fn read(words: &[String]) -> Option<(u64, Vec<Peer>)> {
    let Some((outage, names)) = words.split_first() else { return Some((60, Peer::ALL.to_vec())) };
    let find = |name: &String| Peer::ALL.into_iter().find(|peer| peer.name() == name);
    let named: Option<Vec<Peer>> = names.iter().map(find).collect();
    Some((outage.parse().ok()?, if names.is_empty() { Peer::ALL.to_vec() } else { named? }))
}

fn measure(outage: u64, peers: &[Peer]) -> Result<(), LabError> {
    let lab = Lab::new()?;
    lab.ip(Side::Client, &format!("route add 10.53.0.0/16 dev {CLIENT_INTERFACE}"))?;
    lab.ip(Side::Server, &format!("route add 10.53.0.0/16 dev {}", lab::SERVER_INTERFACE))?;
    let end = Phase::Recovered.start(outage) + Phase::Recovered.length(outage);
    let questions = end.as_micros() / PACE.as_micros();
    let internet = Internet::start(&lab, questions as usize / zones::ZONES + 1)?;
    let running: Vec<_> = peers
        .iter()
        .map(|peer| peer.start(&lab, &zones::hints(), &internet.zones.anchor()))
        .collect::<Result<_, _>>()?;
    let versions: Vec<String> = peers.iter().map(|peer| peer.versioned()).collect();
    let offered = format!(
        "{RATE} questions a second for each of {} zones: {questions} for each resolver, all at the same time; {}",
        zones::ZONES,
        versions.join(", ")
    );
    let network = "a root, three top-level domains and twenty zones (half signed, four servers each, 5 to 180 ms away: NSD, Knot, BIND, Sidestep)";
    let conditions = Conditions::here("make bench FIGURES=resolvers", network, &offered);
    println!("# Resolvers\n\n{conditions}\n");
    let found = play(&lab, &internet, peers, outage).map_err(LabError::system("the script"))?;
    drop(running);
    tables::print(&found);
    Ok(())
}

/// Plays the script: servers on one side, clients of all resolvers on the other.
fn play(lab: &Lab, internet: &Internet, peers: &[Peer], outage: u64) -> io::Result<Vec<Found>> {
    let start = Instant::now() + LEAD;
    let arrivals = Arc::new(Arrivals::new(start));
    let (opened, are_open) = oneshot::channel();
    let (end, has_ended) = oneshot::channel::<()>();
    let asked = thread::scope(|scope| {
        let serving = scope.spawn(|| {
            lab.inside(Side::Server, || {
                runtime()?.block_on(async {
                    servers::open(&internet.servers(), &arrivals).await?;
                    let _ = opened.send(());
                    change(internet, start, outage).await;
                    let _ = has_ended.await; // Or whoever would say it is gone.
                    Ok::<(), io::Error>(())
                })
            })
        });
        let asked = lab.inside(Side::Client, || {
            runtime()?.block_on(async {
                let _ = are_open.await; // If not, the servers' side says why.
                ask_all(peers, start, outage).await
            })
        });
        drop(end);
        serving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        asked
    })?;
    let all = arrivals.list();
    let own = |peer: Peer| all.iter().filter(|arrival| arrival.from == peer.source()).copied().collect();
    let found =
        |(peer, asked): (&Peer, Vec<Asked>)| Found { peer: *peer, asked, arrivals: own(*peer), outage };
    Ok(peers.iter().zip(asked).map(found).collect())
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// Changes the Internet when it is time.
async fn change(internet: &Internet, start: Instant, outage: u64) {
    for phase in Phase::ALL {
        sleep_until(Deadline::from_std(start + phase.start(outage))).await;
        eprintln!("resolvers: {phase:?}");
        phase.begin(internet);
    }
}

async fn ask_all(peers: &[Peer], start: Instant, outage: u64) -> io::Result<Vec<Vec<Asked>>> {
    let clients: Vec<_> = peers.iter().map(|peer| tokio::spawn(clients::ask(*peer, start, outage))).collect();
    let mut asked = Vec::new();
    for client in clients {
        asked.push(client.await.map_err(io::Error::other)??);
    }
    Ok(asked)
}
