//! Three zones change for a while at their primaries, Sidestep, Knot and BIND; NSD, Knot, BIND and Sidestep are secondaries of them, by
//! notices and differences, over wires that are cut and hang, and servers are stopped, ended, killed and started without their files.
//! Every answer has to be of one version that was written. At the end all have to be equal to what the writers know.
//!
//! Usage: `transfers [SECONDS [RECORDS [SEED [DIRECTORY]]]]` (default: 600, 100000, 17). In DIRECTORY, if one is named, logs and zones are kept.

mod client;
mod incidents;
mod ledger;
mod link;
mod model;
mod reader;
mod records;
mod report;
mod servers;
mod writer;

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use lab::Directory;
use rustix::process::Signal;
use simnet::net::Random;

use incidents::Scene;
use ledger::{Ledger, Run};
use model::Model;
use reader::{Reader, Tally, whole};
use records::describe;
use report::Memory;
use servers::{Fleet, Make, ORIGINS};
use writer::Writer;

/// What a command returns that is called wrongly.
const EXIT_USAGE: u8 = 2;
/// The first serials. That of Sidestep's zone wraps around in the first minutes.
const SERIALS: [u32; 3] = [u32::MAX - 50, 1, 2_026_112_801];
/// Time for all servers to load, and to come to the same versions at the end.
const SETTLE_MAX: Duration = Duration::from_secs(900);
/// Above this, a run lasts long enough to go slowly.
const SHORT: Duration = Duration::from_secs(120);
/// Records above which bursts are little beside the zone.
const LARGE: usize = 100_000;
/// Differences that are shown.
const SHOWN: usize = 10;

struct Plan {
    duration: Duration,
    records: usize,
    seed: u64,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let plan = (|| {
        Some(Plan {
            duration: Duration::from_secs(word(&words, 0, 600)?),
            records: word(&words, 1, 100_000)?,
            seed: word(&words, 2, 17)?,
        })
    })();
    let Some(plan) = plan else {
        println!("transfers: not a number\nusage: transfers [SECONDS [RECORDS [SEED [DIRECTORY]]]]");
        return ExitCode::from(EXIT_USAGE);
    };
    let run = Run::new();
    let outcome = Directory::new().map_err(|error| client::other(error.to_string())).and_then(|directory| {
        let outcome = transfers(&plan, &directory, &run);
        if let Some(kept) = words.get(3) {
            copy(directory.path(), Path::new(kept))?;
        }
        outcome
    });
    if let Err(error) = outcome {
        run.fault(error.to_string());
    }
    match run.faults() {
        0 => println!("transfers: ok"),
        count => println!("transfers: {count} faults"),
    }
    if run.faults() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A number of the command line, or what there is if nothing is said; none if it is no number.
fn word<N: FromStr>(words: &[String], at: usize, otherwise: N) -> Option<N> {
    words.get(at).map_or(Some(otherwise), |word| word.parse().ok())
}

fn transfers(plan: &Plan, directory: &Directory, run: &Run) -> io::Result<()> {
    let mut chance = Random::new(plan.seed);
    let mut models = Vec::new();
    for (origin, serial) in ORIGINS.into_iter().zip(SERIALS) {
        let model = Model::new(origin, serial, plan.records, chance.bits());
        let mut file = BufWriter::new(File::create(directory.path().join(format!("{origin}zone")))?);
        model.write(&mut file)?;
        file.flush()?;
        models.push(model);
    }
    let ledgers: Vec<Ledger> = models.iter().map(|model| Ledger::new(model.serial, model.sum())).collect();
    run.say(&format!("{} records in each of {} zones are written", plan.records, models.len()));
    let fleet = Fleet::start(directory)?;
    settle(&fleet, &ledgers)?;
    run.say("all servers have all zones");

    let (tally, memory) = (Tally::default(), Mutex::new(Memory::new(&fleet)));
    let models = live(plan, &fleet, &ledgers, run, &tally, &memory, directory.path(), models, &mut chance);
    let settled = Instant::now();
    settle(&fleet, &ledgers)?;
    run.say(&format!("all servers have the last versions after {:?}", settled.elapsed()));
    for (zone, model) in models.iter().enumerate() {
        compare(&fleet, zone, model, run)?;
    }
    run.say(&format!(
        "{} looks ({} while the version changed), {} transfers of differences ({} answered without), {} of whole zones, {} without an answer while something was done, {} reset by NSD",
        tally.looks.load(Ordering::Relaxed),
        tally.changed.load(Ordering::Relaxed),
        tally.differences.load(Ordering::Relaxed),
        tally.without_differences.load(Ordering::Relaxed),
        tally.wholes.load(Ordering::Relaxed),
        tally.away.load(Ordering::Relaxed),
        tally.resets.load(Ordering::Relaxed),
    ));
    let memory = memory.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    memory.judge(&fleet, run);
    end(&fleet, run)
}

/// Everything at once, for as long as planned.
fn live(
    plan: &Plan,
    fleet: &Fleet,
    ledgers: &[Ledger],
    run: &Run,
    tally: &Tally,
    memory: &Mutex<Memory>,
    directory: &Path,
    models: Vec<Model>,
    chance: &mut Random,
) -> Vec<Model> {
    let is_short = plan.duration <= SHORT;
    let by_length = |short: u64, long: u64| Duration::from_millis(if is_short { short } else { long });
    thread::scope(|scope| {
        let scene = Scene {
            fleet,
            ledgers,
            run,
            chance: chance.fork(),
            pause: by_length(500, 60_000),
            stop_max: by_length(1000, 25_000),
            has_bursts: plan.records > LARGE,
        };
        let writers: Vec<_> = models
            .into_iter()
            .enumerate()
            .map(|(zone, model)| {
                let writer = Writer {
                    server: fleet.primary(zone),
                    zone,
                    model,
                    ledger: &ledgers[zone],
                    run,
                    directory,
                    interval: if zone == 0 { by_length(50, 700) } else { by_length(100, 1500) },
                    chance: chance.fork(),
                };
                scope.spawn(move || writer.write())
            })
            .collect();
        for (server, zone) in fleet.pairs() {
            let interval = by_length(100, 1500);
            let reader = Reader { server, zone, ledger: &ledgers[zone], run, tally, interval };
            scope.spawn(move || reader.read());
        }
        let incidents = scope.spawn(move || scene.play());
        let wholes = by_length(1000, 60_000);
        scope.spawn(move || look_at_wholes(fleet, ledgers, run, tally, wholes));
        scope.spawn(move || report::report(fleet, ledgers, run, tally, memory, by_length(5000, 60_000)));
        run.sleep(plan.duration);
        run.end();
        let incidents = incidents.join().expect("incidents report faults");
        run.say(
            &incidents.iter().map(|(what, count)| format!("{count} {what}")).collect::<Vec<_>>().join(", "),
        );
        writers.into_iter().map(|writer| writer.join().expect("writers report faults")).collect()
    })
}

/// Transfers one zone of one server after the other as a whole.
fn look_at_wholes(fleet: &Fleet, ledgers: &[Ledger], run: &Run, tally: &Tally, pause: Duration) {
    for (server, zone) in fleet.pairs().collect::<Vec<_>>().into_iter().cycle() {
        run.sleep(pause);
        if run.is_over() {
            return;
        }
        let disturbance = server.disturbance();
        let whole = whole(server, zone, false);
        let is_calm = disturbance.is_multiple_of(2) && disturbance == server.disturbance();
        match whole {
            Ok(whole) => {
                tally.wholes.fetch_add(1, Ordering::Relaxed);
                if ledgers[zone].sum(whole.serial) != Some(whole.sum) {
                    let (name, origin) = (server.name, ORIGINS[zone]);
                    run.fault(format!(
                        "{origin} of {name}: serial {} is another one than was written, {} records",
                        whole.serial, whole.count
                    ));
                }
            }
            // Its processes end with every new version; the next transfer shows whether it answers at all.
            Err(_) if server.make == Make::Nsd => drop(tally.resets.fetch_add(1, Ordering::Relaxed)),
            Err(error) if is_calm => {
                run.fault(format!("{} of {}: no transfer: {error}", ORIGINS[zone], server.name));
            }
            Err(_) => drop(tally.away.fetch_add(1, Ordering::Relaxed)),
        }
    }
}

/// Waits until all servers have the newest versions.
fn settle(fleet: &Fleet, ledgers: &[Ledger]) -> io::Result<()> {
    fleet.pairs().try_for_each(|(server, zone)| {
        let newest = ledgers[zone].current();
        server.wait_for(zone, SETTLE_MAX, |serial| serial == newest)
    })
}

/// All servers have every record of the model, and no other one.
fn compare(fleet: &Fleet, zone: usize, model: &Model, run: &Run) -> io::Result<()> {
    let mut wanted: Vec<Vec<u8>> = model.entries().map(|entry| entry.key()).collect();
    wanted.sort_unstable();
    for (server, _) in fleet.pairs().filter(|(_, own)| *own == zone) {
        let mut whole = whole(server, zone, true)?;
        whole.keys.sort_unstable();
        let (name, origin, count) = (server.name, ORIGINS[zone], whole.count);
        if whole.keys == wanted && whole.serial == model.serial {
            run.say(&format!("{origin} of {name}: serial {}, all {count} records are right", whole.serial));
            continue;
        }
        for (said, from, of) in
            [("is missing", &wanted, &whole.keys), ("should not be there", &whole.keys, &wanted)]
        {
            let others = from.iter().filter(|key| of.binary_search(key).is_err());
            others.take(SHOWN).for_each(|key| run.say(&format!("{}: {said}", describe(key))));
        }
        run.fault(format!(
            "{origin} of {name}: serial {}, {count} records, wanted {}, {}",
            whole.serial,
            model.serial,
            wanted.len()
        ));
    }
    Ok(())
}

/// Ends all servers, and looks at what ours have said.
fn end(fleet: &Fleet, run: &Run) -> io::Result<()> {
    for server in &fleet.servers {
        if !server.is_running() {
            run.fault(format!("{} has ended by itself", server.name));
        }
        server.end(Signal::TERM)?;
        let log = String::from_utf8_lossy(&fs::read(server.log())?).into_owned();
        if server.is_ours() {
            let bad = log.lines().filter(|line| line.contains("panicked") || line.starts_with("ERROR"));
            bad.take(SHOWN).for_each(|line| run.fault(format!("{} says: {line}", server.name)));
        }
        if run.faults() > 0 {
            let lines: Vec<&str> = log.lines().collect();
            let last = &lines[lines.len().saturating_sub(3 * SHOWN)..];
            println!("the last lines of {}:\n{}", server.name, last.join("\n"));
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy(&entry.path(), &to.join(entry.file_name()))?;
        } else if kind.is_file() {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}
