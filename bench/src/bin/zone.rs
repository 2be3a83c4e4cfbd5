//! Loading a large zone: records a second on one core, octets of memory a record.
//!
//! Usage: `zone [RECORDS [FILE]]`   (default: 10 000 000 A records, each of its own name, in a file that is made and removed)
//!
//! Loading is what the server does: the file is read, parsed, built into a tree, and compiled into an answer table. Then single names are
//! changed, each in a version of its own, as a secondary does with differences.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use bench::load::{label, with_another_address};
use bench::record::{Figure, Run};
use bench::report::median;
use dns_auth::ServedZone;
use dns_auth::compile::compile;
use dns_zone::text::{Files, Limits, TextFile};
use dns_zone::{Zone, load_zone};
use lab::Conditions;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let records = arguments.next().and_then(|word| word.parse().ok()).unwrap_or(10_000_000);
    let given = arguments.next().map(PathBuf::from);
    let path = given.clone().unwrap_or_else(|| std::env::temp_dir().join("sidestep-bench.zone"));
    if given.is_none() {
        std::fs::write(&path, text(records)).expect("room for the zone file");
    }
    let conditions =
        Conditions::here("make bench FIGURES=zone", "none", &format!("{LOADS} loads, on one core"));
    println!("# Loading a zone\n\n{conditions}\n");
    let loads: Vec<Load> = (0..LOADS).map(|_| measure(&path)).collect();
    let of = |figure: fn(&Load) -> f64| loads.iter().map(figure).collect::<Vec<f64>>();
    let rates = of(|load| load.rate / 1e6);
    println!("median of {LOADS}: {:.2} million records a second", median(&mut rates.clone()));
    let case = format!("{records} A records");
    let figures = [
        Figure::of(&case, "loading", "million records/s", &rates),
        Figure::of(&case, "tree and answer table", "octets/record", &of(|load| load.octets)),
        Figure::of(&case, "a version with one name changed", "us", &of(|load| load.change_us)),
    ];
    let figures = figures.into_iter().flatten().collect();
    Run { name: "zone", conditions: &conditions, figures, against: &[] }.keep().expect("the page of figures");
    if given.is_none() {
        std::fs::remove_file(&path).expect("the file that was just read");
    }
}

/// A virtual machine may get its memory from its host only when it is touched, and give it back when it is free: a first touch
/// of 4 KiB was seen to take 10 us there instead of 0.2 us. That is why the time in our own code is told apart.
const LOADS: usize = 5;

/// What a load took.
struct Load {
    /// Records a second.
    rate: f64,
    /// Octets of each record that stay.
    octets: f64,
    /// Microseconds of a version in which one name is another.
    change_us: f64,
}

/// Loads the zone, says what it took, forgets it.
fn measure(path: &Path) -> Load {
    let before = memory("VmRSS");
    let (start, user) = (Instant::now(), user_seconds());
    let served = load(path);
    let (seconds, user) = (start.elapsed().as_secs_f64(), user_seconds() - user);
    let zone = served.tree().expect("it was loaded");
    let count = zone.record_count() as f64;
    println!(
        "{count} records in {seconds:.2} s ({user:.2} s in our own code); octets a record: tree {:.0}, \
         answer table {:.0}, resident {:.0}, peak {:.0}",
        zone.memory() as f64 / count,
        served.tables().memory() as f64 / count,
        (memory("VmRSS") - before) / count,
        (memory("VmHWM") - before) / count,
    );
    let octets = (zone.memory() + served.tables().memory()) as f64 / count;
    Load { rate: count / seconds, octets, change_us: change(served) }
}

/// Changes as many names, each in a new version, and says what one takes. The versions before are not kept.
fn change(mut served: ServedZone) -> f64 {
    const CHANGES: usize = 1000;
    let zone = served.tree().expect("it was loaded");
    let (before, places) = (zone.memory() + served.tables().memory(), zone.node_count());
    let mut times: Vec<f64> = Vec::with_capacity(CHANGES);
    for number in 0..CHANGES {
        let place = number * (places / CHANGES); // All over the zone.
        let start = Instant::now();
        served = with_another_address(&served, place);
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    let after = served.tree().map_or(0, Zone::memory) + served.tables().memory();
    let (most, octets) = (times.iter().copied().fold(0.0, f64::max), (after - before) / CHANGES);
    let middle = median(&mut times);
    println!(
        "  {CHANGES} versions, each with one name changed: {middle:.1} us, {most:.0} us at most; {octets} octets"
    );
    middle
}

struct Disk;

impl Files for Disk {
    fn open(&mut self, path: &Path) -> std::io::Result<TextFile> {
        let file = std::fs::File::open(path)?;
        let len = file.metadata()?.len();
        Ok(TextFile { text: Box::new(file), len })
    }
}

fn load(path: &Path) -> ServedZone {
    compile(load_zone(&mut Disk, path, None, &Limits::default(), 1).expect("a good zone"))
}

/// A zone file of `count` A records.
fn text(count: usize) -> String {
    let mut text = String::with_capacity(count * 48);
    text.push_str(
        "$ORIGIN example.com.\n$TTL 300\n@ SOA ns host 1 3600 600 86400 60\n@ NS ns\nns A 192.0.2.1\n",
    );
    for number in 0..count {
        let [a, b, c, d] = (number as u32).to_be_bytes();
        let _ = writeln!(text, "{} 300 IN A {}.{b}.{c}.{d}", label(number), a | 10);
    }
    text
}

/// Processor time of this process outside of the kernel.
fn user_seconds() -> f64 {
    const TICKS_A_SECOND: f64 = 100.0; // USER_HZ, the same on all common machines: proc_pid_stat(5).
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let behind_name = stat.rsplit(')').next().expect("a process has a name");
    let utime = behind_name.split_whitespace().nth(11).and_then(|word| word.parse::<f64>().ok());
    utime.expect("field 14 is utime") / TICKS_A_SECOND
}

/// A line of /proc/self/status in octets.
fn memory(field: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with(field)).expect("a field of every Linux");
    let kib = line.split_whitespace().nth(1).and_then(|word| word.parse::<f64>().ok());
    kib.expect("a number of KiB") * 1024.0
}
