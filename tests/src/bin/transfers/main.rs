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
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lab::Directory;
use rustix::process::Signal;
use simnet::net::Random;

use incidents::Scene;
use ledger::{Ledger, Run};
use model::Model;
use reader::{Reader, Tally, Whole, whole};
use records::describe;
use report::{Memory, report};
use servers::{Fleet, Make, ORIGINS};
use writer::Writer;

/// What a command returns that is called wrongly.
const EXIT_USAGE: u8 = 2;
/// The first serials. That of Sidestep's zone wraps around in the first minutes.
const SERIALS: [u32; 3] = [u32::MAX - 50, 1, 2_026_112_801];
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

impl Plan {
    fn is_short(&self) -> bool {
        self.duration <= SHORT
    }

    /// Time for a server to load, to have again what it had, and to come to the last version.
    fn patience(&self) -> Duration {
        Duration::from_secs(if self.records > LARGE { 900 } else { 60 })
    }
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

/// What all parts of a run share.
struct Stage<'a> {
    plan: &'a Plan,
    directory: &'a Path,
    run: &'a Run,
    fleet: Fleet,
    ledgers: Vec<Ledger>,
    tally: Tally,
    memory: Mutex<Memory>,
}

fn transfers(plan: &Plan, directory: &Directory, run: &Run) -> io::Result<()> {
    let mut chance = Random::new(plan.seed);
    let models = write_zones(plan, directory.path(), &mut chance)?;
    let ledgers = models.iter().map(|model| Ledger::new(model.serial, model.sum())).collect();
    run.say(&format!("{} records in each of {} zones are written", plan.records, models.len()));
    let fleet = Fleet::start(directory)?;
    let memory = Mutex::new(Memory::new(&fleet));
    let stage =
        Stage { plan, directory: directory.path(), run, fleet, ledgers, tally: Tally::default(), memory };
    stage.settle()?;
    let models = stage.live(models, &mut chance);
    stage.settle()?;
    for (zone, model) in models.iter().enumerate() {
        stage.compare(zone, model)?;
    }
    run.say(&stage.tally.to_string());
    if stage.tally.is_empty() {
        run.fault("nothing was seen".to_owned());
    }
    stage.memory.lock().unwrap_or_else(PoisonError::into_inner).judge(&stage.fleet, run);
    stage.end()
}

/// The zones of the primaries, in files.
fn write_zones(plan: &Plan, directory: &Path, chance: &mut Random) -> io::Result<Vec<Model>> {
    // A notice that is lost with a cut wire is made up for by REFRESH.
    let timers = if plan.is_short() { "3 1 86400" } else { "60 5 86400" };
    let zones = ORIGINS.into_iter().zip(SERIALS);
    zones
        .map(|(origin, serial)| {
            let model = Model::new(origin, serial, plan.records, chance.bits());
            let mut file = BufWriter::new(File::create(directory.join(format!("{origin}zone")))?);
            model.write(&mut file, timers)?;
            file.flush()?;
            Ok(model)
        })
        .collect()
}

impl Stage<'_> {
    /// Everything at once, for as long as planned.
    fn live(&self, models: Vec<Model>, chance: &mut Random) -> Vec<Model> {
        let run = self.run;
        thread::scope(|scope| {
            let scene = self.scene(chance.fork());
            let writers: Vec<_> = models
                .into_iter()
                .enumerate()
                .map(|(zone, model)| {
                    let writer = self.writer(zone, model, chance.fork());
                    scope.spawn(move || writer.write())
                })
                .collect();
            for (server, zone) in self.fleet.pairs() {
                let (ledger, interval) = (&self.ledgers[zone], self.by_length(100, 1500));
                let reader = Reader { server, zone, ledger, run, tally: &self.tally, interval };
                scope.spawn(move || reader.read());
            }
            let incidents = scope.spawn(move || scene.play());
            scope.spawn(|| self.look_at_wholes());
            let interval = self.by_length(5000, 60_000);
            scope.spawn(move || report(&self.fleet, &self.ledgers, run, &self.tally, &self.memory, interval));
            run.sleep(self.plan.duration);
            run.end();
            let incidents = incidents.join().expect("incidents report faults");
            let counts = incidents.iter().map(|(what, count)| format!("{count} {what}"));
            run.say(&counts.collect::<Vec<_>>().join(", "));
            writers.into_iter().map(|writer| writer.join().expect("writers report faults")).collect()
        })
    }

    fn scene(&self, chance: Random) -> Scene<'_> {
        Scene {
            fleet: &self.fleet,
            ledgers: &self.ledgers,
            run: self.run,
            chance,
            pause: self.by_length(500, 60_000),
            stop_max: self.by_length(1000, 25_000),
            has_bursts: self.plan.records > LARGE,
            patience: self.plan.patience(),
        }
    }

    fn writer(&self, zone: usize, model: Model, chance: Random) -> Writer<'_> {
        Writer {
            server: self.fleet.primary(zone),
            zone,
            model,
            ledger: &self.ledgers[zone],
            run: self.run,
            directory: self.directory,
            interval: if zone == 0 { self.by_length(50, 700) } else { self.by_length(100, 1500) },
            chance,
        }
    }

    /// Milliseconds for a short run, or for a long one.
    fn by_length(&self, short: u64, long: u64) -> Duration {
        Duration::from_millis(if self.plan.is_short() { short } else { long })
    }

    /// Transfers one zone of one server after the other as a whole.
    fn look_at_wholes(&self) {
        for (server, zone) in self.fleet.pairs().collect::<Vec<_>>().into_iter().cycle() {
            self.run.sleep(self.by_length(1000, 60_000));
            if self.run.is_over() {
                return;
            }
            let disturbance = server.disturbance();
            let whole = whole(server, zone, false);
            let is_calm = disturbance.is_multiple_of(2) && disturbance == server.disturbance();
            let (name, origin) = (server.name, ORIGINS[zone]);
            match whole {
                Ok(whole) => {
                    self.tally.wholes.fetch_add(1, Ordering::Relaxed);
                    if self.ledgers[zone].sum(whole.serial) != Some(whole.sum) {
                        let Whole { serial, count, .. } = whole;
                        self.run.fault(format!(
                            "{origin} of {name}: serial {serial} is another one than was written, {count} records"
                        ));
                    }
                }
                // Its processes end with every new version; the next transfer shows whether it answers at all.
                Err(_) if server.make == Make::Nsd => drop(self.tally.resets.fetch_add(1, Ordering::Relaxed)),
                Err(error) if is_calm => self.run.fault(format!("{origin} of {name}: no transfer: {error}")),
                Err(_) => drop(self.tally.away.fetch_add(1, Ordering::Relaxed)),
            }
        }
    }

    /// Waits until all servers have the newest versions.
    fn settle(&self) -> io::Result<()> {
        let began = Instant::now();
        for (server, zone) in self.fleet.pairs() {
            let (newest, origin) = (self.ledgers[zone].current(), ORIGINS[zone]);
            server.wait_for(zone, self.plan.patience(), |serial| serial == newest)?;
            self.run.say(&format!(
                "{origin} of {}: serial {newest} after {:?}",
                server.name,
                began.elapsed()
            ));
        }
        Ok(())
    }

    /// All servers have every record of the model, and no other one.
    fn compare(&self, zone: usize, model: &Model) -> io::Result<()> {
        let mut wanted: Vec<Vec<u8>> = model.entries().map(|entry| entry.key()).collect();
        wanted.sort_unstable();
        for (server, _) in self.fleet.pairs().filter(|(_, own)| *own == zone) {
            let mut whole = whole(server, zone, true)?;
            whole.keys.sort_unstable();
            let (name, origin, count, serial) = (server.name, ORIGINS[zone], whole.count, whole.serial);
            if whole.keys == wanted && serial == model.serial {
                self.run.say(&format!("{origin} of {name}: serial {serial}, all {count} records are right"));
                continue;
            }
            for (said, from, of) in
                [("is missing", &wanted, &whole.keys), ("should not be there", &whole.keys, &wanted)]
            {
                let others = from.iter().filter(|key| of.binary_search(key).is_err());
                others.take(SHOWN).for_each(|key| self.run.say(&format!("{}: {said}", describe(key))));
            }
            self.run.fault(format!(
                "{origin} of {name}: serial {serial}, {count} records, wanted {}, {}",
                model.serial,
                wanted.len()
            ));
        }
        Ok(())
    }

    /// Ends all servers, and looks at what ours have said.
    fn end(&self) -> io::Result<()> {
        for server in &self.fleet.servers {
            if !server.is_running() {
                self.run.fault(format!("{} has ended by itself", server.name));
            }
            server.end(Signal::TERM)?;
            let log = String::from_utf8_lossy(&fs::read(server.log())?).into_owned();
            if server.is_ours() {
                // Differences that do not fit come of a fault, at whichever end it is.
                let is_bad =
                    |line: &&str| ["panicked", " ERROR ", "do not fit"].iter().any(|bad| line.contains(bad));
                let bad = log.lines().filter(is_bad);
                bad.take(SHOWN).for_each(|line| self.run.fault(format!("{} says: {line}", server.name)));
            }
            if self.run.faults() > 0 {
                let lines: Vec<&str> = log.lines().collect();
                let last = &lines[lines.len().saturating_sub(3 * SHOWN)..];
                println!("the last lines of {}:\n{}", server.name, last.join("\n"));
            }
        }
        Ok(())
    }
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
