//! A long mixed load on programs under `sidestep run`, over a wire that loses packets, while workers come and go, programs and the broker
//! are stopped, and workers and the broker are killed. Clients lose connections where a worker was killed and nowhere else. At the end
//! memory, descriptors and frames have to be what they were after a while at the beginning. Needs root and AF_XDP.
//!
//! Usage: `soak [SECONDS [SEED]]` (default: 600, 17). `SIDESTEP_PROGRAMS=kernel` does the same without Sidestep.

mod brokers;
mod footprint;
mod incidents;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lab::programs::{Network, Nginx, Running, redis};
use lab::{BOX_INTERFACES, Child, Lab, LabError, SERVER_V4, Side};
use rustix::process::{Signal, kill_process};
use simnet::net::Random;
use tests::{Answer, Exchange, ExchangeTally};

use brokers::{Brokers, WITH_BPF_FILE_SYSTEM};
use footprint::{differences, footprint, frames, lost_frames, pids};
use incidents::{Incident, Scene, Tally};

/// Packets lost, each way.
const LOSS: &str = "0.01";
/// One for each program: with one, redis would get nginx's when its worker ends.
const QUEUES: u32 = 2;
/// Silence before memory and descriptors are counted.
const REST: Duration = Duration::from_secs(3);
/// How long the load lasts if nothing is said.
const DURATION: Duration = Duration::from_secs(600);
/// The incidents that there are if nothing is said.
const SEED: u64 = 17;
/// What a command returns that is called wrongly.
const EXIT_USAGE: u8 = 2;
/// A lost packet may be lost again, several times.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);
/// Clients of nginx that keep their connections, and those that do not: each loses one when its worker is killed.
const NGINX_CLIENTS: [usize; 2] = [8, 4];

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let (seconds, seed) = (number(words.next(), DURATION.as_secs()), number(words.next(), SEED));
    let (Some(seconds), Some(seed)) = (seconds, seed) else {
        println!("soak: not a number\nusage: soak [SECONDS [SEED]]");
        return ExitCode::from(EXIT_USAGE);
    };
    if !lab::require_root_and_xdp() {
        println!("soak: nothing was tried");
        return ExitCode::FAILURE;
    }
    match soak(Duration::from_secs(seconds), seed) {
        Ok(faults) if faults.is_empty() => {
            println!("soak: ok");
            ExitCode::SUCCESS
        }
        Ok(faults) => {
            faults.iter().for_each(|fault| println!("soak: {fault}"));
            ExitCode::FAILURE
        }
        Err(error) => {
            println!("soak: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The number of a word, or what there is if nothing is said; none if it is no number.
fn number(word: Option<String>, otherwise: u64) -> Option<u64> {
    word.map_or(Some(otherwise), |word| word.parse().ok())
}

/// What was wrong.
fn soak(duration: Duration, seed: u64) -> Result<Vec<String>, LabError> {
    let lab = Lab::with_box(QUEUES)?;
    let mut middle_box = middle_box(&lab)?;
    // nginx and redis are one family, below one broker.
    let family =
        Nginx::with_workers(1).program().together_with(&redis("")).launched_by(&WITH_BPF_FILE_SYSTEM);
    let mut running = family.start(&lab, Side::Server, &Network::wanted())?;
    thread::sleep(REST);
    let mut brokers = Brokers::new(&running, running.pid_in("pid").expect("nginx writes its number"));

    let mut chance = Random::new(seed);
    let mut faults =
        load(&lab, &running, &mut brokers, &mut chance, (duration / 5).min(Duration::from_secs(20)))?;
    thread::sleep(REST);
    let before = footprint(&lab);
    let is_on_stack = matches!(Network::wanted(), Network::Sidestep(_));
    let lent_before = if is_on_stack { frames(&lab, &brokers, "frames_lent")? } else { 0 };
    faults.extend(load(&lab, &running, &mut brokers, &mut chance, duration)?);
    thread::sleep(REST);
    let after = footprint(&lab);
    println!("soak: before {before:?}\nsoak: after  {after:?}");
    faults.extend(differences(&before, &after));
    if is_on_stack {
        faults.extend(lost_frames(&lab, &brokers, lent_before)?);
    }
    end(&lab, &mut running, &brokers)?;
    faults.extend(
        brokers.panics().chain(Some(running.process.output()).filter(|said| said.contains("panicked"))),
    );
    middle_box.end();
    println!("{}", middle_box.output());
    Ok(faults)
}

/// Ends the programs, and with them their broker.
fn end(lab: &Lab, running: &mut Running, brokers: &Brokers) -> Result<(), LabError> {
    for pid in pids(lab).filter(|&pid| pid != brokers.pid()) {
        let _ = kill_process(pid, Signal::TERM); // Ended by its parent meanwhile: all the better.
    }
    running.process.wait(Duration::from_secs(60))?;
    Ok(())
}

fn middle_box(lab: &Lab) -> Result<Child, LabError> {
    let own = std::env::current_exe().expect("the system knows what it runs");
    let program = own.with_file_name("middle_box").display().to_string();
    let arguments = [&BOX_INTERFACES[..], &["--loss", LOSS, "--seed", "17"]].concat();
    let mut middle_box = lab.spawn_in(Side::Box, &program, &arguments)?;
    middle_box.wait_for_line("ready", Duration::from_secs(60))?;
    Ok(middle_box)
}

/// Mixed clients for a while, and incidents; returns what failed.
fn load(
    lab: &Lab,
    running: &Running,
    brokers: &mut Brokers,
    chance: &mut Random,
    duration: Duration,
) -> Result<Vec<String>, LabError> {
    let address = |port| SocketAddr::new(SERVER_V4.parse().expect("an address"), port);
    let value = vec![b'v'; 20_000];
    let set = [b"SET key ".as_slice(), &value, b"\r\n"].concat();
    let redis = |request: Vec<u8>, answer: &[u8]| Exchange {
        request,
        answer: Answer::Octets(answer.to_vec()),
        ..Exchange::echo(address(6379), 4, Vec::new())
    };
    let clients = [
        ("nginx, kept connections", Exchange::hello(address(80), NGINX_CLIENTS[0], true)),
        ("nginx, new connections", Exchange::hello(address(80), NGINX_CLIENTS[1], false)),
        ("redis, PING", redis(b"PING\r\n".to_vec(), b"+PONG\r\n")),
        ("redis, SET of 20000 octets", redis(set, b"+OK\r\n")),
    ];
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let tasks: Vec<_> = clients
            .iter()
            .map(|(name, exchange)| {
                let (exchange, stop) = (Exchange { patience: PATIENCE, ..exchange.clone() }, &stop);
                let task = scope.spawn(move || lab.inside(Side::Client, || exchange.run_until(stop)));
                (*name, task)
            })
            .collect();
        let incidents = Scene { lab, running, brokers, chance }.play(duration);
        stop.store(true, Ordering::Relaxed);
        let tallies: Vec<_> = tasks
            .into_iter()
            .map(|(name, task)| (name, task.join().expect("failures are counted")))
            .collect();
        let incidents = incidents?;
        println!(
            "soak: {}",
            incidents.iter().map(|(what, count)| format!("{count} {what}")).collect::<Vec<_>>().join(", ")
        );
        Ok(tallies.iter().filter_map(|(name, tally)| judge(name, tally, &incidents)).collect())
    })
}

/// What is wrong with a tally, if anything is. nginx's clients lose their connections when its worker is killed, and when it is replaced a
/// kept one ends between two requests. Nothing of the kind happens to redis.
fn judge(name: &str, tally: &ExchangeTally, incidents: &Tally) -> Option<String> {
    println!("soak: {name}: {} answers, {} repeated, {:?}", tally.answered, tally.repeated, tally.failures);
    let killed = incidents.get(&Incident::WorkerKilled).copied().unwrap_or(0);
    let is_nginx = name.starts_with("nginx");
    let cut = if is_nginx { killed * NGINX_CLIENTS.iter().sum::<usize>() as u64 } else { 0 };
    let is_well = tally.answered > 0 && tally.failed() <= cut && (is_nginx || tally.repeated == 0);
    (!is_well).then(|| format!("{name}: at most {cut} may fail: {tally:?}"))
}
