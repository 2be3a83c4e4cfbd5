//! A long mixed load on programs under `sidestep run`, over a wire that loses packets, while workers come and go; at its end memory,
//! descriptors and frames have to be what they were after a while at the beginning. Needs root and AF_XDP.
//!
//! Usage: `soak [SECONDS]` (default: 600). `SIDESTEP_PROGRAMS=kernel` does the same without Sidestep.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lab::programs::{Network, Nginx, Running, redis};
use lab::{BOX_INTERFACES, Child, Lab, LabError, SERVER_V4, Side};
use rustix::process::{Pid, Signal, kill_process};
use tests::{Answer, Exchange, ExchangeTally};

/// Packets lost, each way.
const LOSS: &str = "0.01";
/// One for each program: with one, redis would get nginx's when its worker ends.
const QUEUES: u32 = 2;
/// Between two replacements of nginx's workers.
const CHURN: Duration = Duration::from_secs(3);
/// Silence before memory and descriptors are counted.
const REST: Duration = Duration::from_secs(3);
/// Growth of a process that is none: it may get a queue, and with it a stack, only after the count at the beginning.
const GROWTH_MAX_KB: u64 = 20_000;
/// The same for descriptors.
const MORE_DESCRIPTORS_MAX: usize = 4;
/// How long the load lasts if nothing is said.
const DURATION: Duration = Duration::from_secs(600);
/// What a command returns that is called wrongly.
const EXIT_USAGE: u8 = 2;
/// A lost packet may be lost again, several times.
const PATIENCE: Duration = Duration::from_secs(40);

fn main() -> ExitCode {
    let Some(duration) = duration(std::env::args().nth(1)) else {
        println!("soak: not a number of seconds\nusage: soak [SECONDS]");
        return ExitCode::from(EXIT_USAGE);
    };
    if !lab::require_root_and_xdp() {
        println!("soak: nothing was tried");
        return ExitCode::FAILURE;
    }
    match soak(duration) {
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

/// How long the load lasts; none if that cannot be read.
fn duration(word: Option<String>) -> Option<Duration> {
    word.map_or(Some(DURATION), |word| word.parse().ok().map(Duration::from_secs))
}

/// What was wrong.
fn soak(duration: Duration) -> Result<Vec<String>, LabError> {
    let lab = Lab::with_box(QUEUES)?;
    let mut middle_box = middle_box(&lab)?;
    // nginx and redis are one family, below one broker.
    let family = Nginx::with_workers(1).program().together_with(&redis(""));
    let mut running = family.start(&lab, Side::Server, &Network::wanted())?;
    thread::sleep(REST);

    let mut faults = load(&lab, &running, (duration / 5).min(Duration::from_secs(20)));
    thread::sleep(REST);
    let before = footprint(&lab);
    let is_on_stack = matches!(Network::wanted(), Network::Sidestep(_));
    let lent_before = if is_on_stack { frames(&lab, &running, "frames_lent")? } else { 0 };
    faults.extend(load(&lab, &running, duration));
    thread::sleep(REST);
    let after = footprint(&lab);
    println!("soak: before {before:?}\nsoak: after  {after:?}");
    faults.extend(differences(&before, &after));
    if is_on_stack {
        faults.extend(lost_frames(&lab, &running, lent_before)?);
    }

    for pid in pids(&lab).filter(|pid| pid.as_raw_pid() as u32 != running.process.pid()) {
        let _ = kill_process(pid, Signal::TERM); // Ended by its parent meanwhile: all the better.
    }
    running.process.wait(Duration::from_secs(60))?;
    if running.process.output().contains("panicked") {
        faults.push(running.process.output());
    }
    middle_box.end();
    println!("{}", middle_box.output());
    Ok(faults)
}

fn middle_box(lab: &Lab) -> Result<Child, LabError> {
    let own = std::env::current_exe().expect("the system knows what it runs");
    let program = own.with_file_name("middle_box").display().to_string();
    let arguments = [&BOX_INTERFACES[..], &["--loss", LOSS, "--seed", "17"]].concat();
    let mut middle_box = lab.spawn_in(Side::Box, &program, &arguments)?;
    middle_box.wait_for_line("ready", Duration::from_secs(60))?;
    Ok(middle_box)
}

/// Mixed clients for a while, and new workers now and then; returns what failed.
fn load(lab: &Lab, running: &Running, duration: Duration) -> Vec<String> {
    let address = |port| SocketAddr::new(SERVER_V4.parse().expect("an address"), port);
    let value = vec![b'v'; 20_000];
    let set = [b"SET key ".as_slice(), &value, b"\r\n"].concat();
    let redis = |request: Vec<u8>, answer: &[u8]| Exchange {
        request,
        answer: Answer::Octets(answer.to_vec()),
        ..Exchange::echo(address(6379), 4, Vec::new())
    };
    let clients = [
        ("nginx, kept connections", Exchange::hello(address(80), 8, true)),
        ("nginx, new connections", Exchange::hello(address(80), 4, false)),
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
        churn(running, duration);
        stop.store(true, Ordering::Relaxed);
        tasks
            .into_iter()
            .filter_map(|(name, task)| judge(name, &task.join().expect("failures are counted")))
            .collect()
    })
}

fn judge(name: &str, tally: &ExchangeTally) -> Option<String> {
    println!("soak: {name}: {} answers, {} repeated, {:?}", tally.answered, tally.repeated, tally.failures);
    (tally.failed() > 0 || tally.answered == 0).then(|| format!("{name}: {tally:?}"))
}

/// Gives nginx new workers now and then.
fn churn(running: &Running, duration: Duration) {
    let end = Instant::now() + duration;
    while Instant::now() < end {
        thread::sleep(CHURN.min(end.saturating_duration_since(Instant::now())));
        if let Some(master) = running.pid_in("pid") {
            let _ = kill_process(master, Signal::HUP); // One that has ended shows in the load.
        }
    }
}

fn pids(lab: &Lab) -> impl Iterator<Item = Pid> {
    let text = lab.pids(Side::Server).unwrap_or_default();
    let pids: Vec<Pid> = text.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect();
    pids.into_iter()
}

/// Memory in kB and descriptors of the processes by name; of several of the same name together.
fn footprint(lab: &Lab) -> BTreeMap<String, (u64, usize)> {
    let mut footprint = BTreeMap::<String, (u64, usize)>::new();
    for pid in pids(lab) {
        let place = format!("/proc/{}", pid.as_raw_pid());
        let status = fs::read_to_string(format!("{place}/status")).unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
            line.split_whitespace().next().unwrap_or_default().to_owned()
        };
        let memory = field("VmRSS:").parse().unwrap_or(0);
        let descriptors = fs::read_dir(format!("{place}/fd")).map_or(0, Iterator::count);
        let entry = footprint.entry(field("Name:")).or_default();
        *entry = (entry.0 + memory, entry.1 + descriptors);
    }
    footprint
}

/// What `sidestep status` says of all programs' frames together.
fn frames(lab: &Lab, running: &Running, gauge: &str) -> Result<u64, LabError> {
    let broker = running.process.pid().to_string();
    let sidestep = lab::sidestep_binary().display().to_string();
    let status = lab.run_in(Side::Server, &sidestep, &["status", "--pid", &broker])?;
    let words: Vec<&str> = status.split([' ', ',', '\n']).filter(|word| !word.is_empty()).collect();
    Ok(words.windows(2).filter(|pair| pair[0] == gauge).filter_map(|pair| pair[1].parse::<u64>().ok()).sum())
}

/// At rest the kernel has as many frames as before, but for a few that it keeps aside, and programs have none.
fn lost_frames(lab: &Lab, running: &Running, lent_before: u64) -> Result<Option<String>, LabError> {
    const ASIDE_MAX: u64 = 64;
    // What was lost of the last answers may still be sent again.
    let deadline = Instant::now() + PATIENCE;
    while frames(lab, running, "frames_held")? > 0 && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(200));
    }
    let (lent, held) = (frames(lab, running, "frames_lent")?, frames(lab, running, "frames_held")?);
    println!("soak: frames with the kernel: {lent_before} before, {lent} after; held by programs: {held}");
    let is_lost = held > 0 || lent.abs_diff(lent_before) > ASIDE_MAX || lent == 0;
    Ok(is_lost.then(|| format!("{lent_before} frames with the kernel became {lent}, programs hold {held}")))
}

fn differences(
    before: &BTreeMap<String, (u64, usize)>,
    after: &BTreeMap<String, (u64, usize)>,
) -> Vec<String> {
    let differs = |(name, &(memory, descriptors)): (&String, &(u64, usize))| {
        let &(memory_before, descriptors_before) = before.get(name)?;
        let grew =
            memory > memory_before + GROWTH_MAX_KB || descriptors > descriptors_before + MORE_DESCRIPTORS_MAX;
        grew.then(|| {
            format!("{name}: {memory_before} kB, {descriptors_before} descriptors became {memory} kB, {descriptors}")
        })
    };
    let mut found: Vec<String> = after.iter().filter_map(differs).collect();
    found.extend(
        before.keys().filter(|name| !after.contains_key(*name)).map(|name| format!("{name} is gone")),
    );
    found
}
