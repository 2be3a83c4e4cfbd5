//! The table of `src/bin/socket_table` run twice: on the kernel, whose answers are the right ones, and under `sidestep run`, where it has
//! to say the same. Needs root and AF_XDP; skipped otherwise, and says so.
//!
//! What differs and may is in `specs/socket_table_differences.toml`, with reasons; an entry that differs no more is a failure, too.
//! For work on one of the checks: `SIDESTEP_TABLE_FILTER` is a part of its name, and `SIDESTEP_TABLE_REPORT` names a file for the
//! whole comparison.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lab::{CLIENT_V4, CLIENT_V6, Child, Directory, Lab, SERVER_INTERFACE, SERVER_V4, SERVER_V6, Side};

/// Laboratories at work at the same time on the kernel, each with a part of the table. Most checks wait most of the time.
const SHARDS: usize = 8;
/// Laboratories at work at the same time on the stack. The kernel needs tens of milliseconds to free a queue, one at a time on the
/// whole machine: more processes that begin and end than it can follow would wait for each other.
const SHARDS_ON_STACK: usize = 4;
/// Time for the whole table on the kernel.
const TABLE_MAX: Duration = Duration::from_secs(600);
/// Time for the whole table on the stack, where each check gets a queue of its own.
const TABLE_ON_STACK_MAX: Duration = Duration::from_secs(1200);
/// Checks that the table has at least.
const CHECKS_MIN: usize = 400;
/// The longest time that a program gets to have a queue before its sockets are used, on a machine that does other work too.
const SETTLE_MS: &str = "10000";

/// What a check said, by its name.
type Said = BTreeMap<String, Saying>;

/// What one check said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Saying {
    /// What it saw, which is compared.
    seen: Vec<String>,
    /// How many connections were on the stack.
    on_stack: usize,
    /// How many were on the kernel.
    on_kernel: usize,
    /// The same of UDP sockets.
    datagrams_on_stack: usize,
    datagrams_on_kernel: usize,
}

/// What the table runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    Kernel,
    Stack,
}

impl On {
    fn time_max(self) -> Duration {
        match self {
            On::Kernel => TABLE_MAX,
            On::Stack => TABLE_ON_STACK_MAX,
        }
    }

    fn shards(self) -> usize {
        match self {
            On::Kernel => SHARDS,
            On::Stack => SHARDS_ON_STACK,
        }
    }
}

/// A laboratory with a peer in the client's namespace.
struct Place {
    // Dropped in this order.
    _peer: Child,
    lab: Lab,
    directory: Directory,
}

impl Place {
    fn new() -> Place {
        let lab = Lab::new().unwrap();
        for side in [Side::Server, Side::Client] {
            // Checks of refused datagrams follow each other faster than the kernel likes to refuse.
            lab.inside(side, || {
                fs::write("/proc/sys/net/ipv4/icmp_ratelimit", "0").unwrap();
                fs::write("/proc/sys/net/ipv6/icmp/ratelimit", "0").unwrap();
            });
        }
        let directory = Directory::new().unwrap();
        let socket = directory.path().join("peer.sock").display().to_string();
        let mut peer = lab.spawn_in(Side::Client, table(), &["--serve-peer", &socket]).unwrap();
        peer.wait_for_line("ready", Duration::from_secs(60)).unwrap();
        Place { _peer: peer, lab, directory }
    }

    /// Runs a part of the checks that are worked on.
    fn run(&self, on: On, shard: usize) -> Said {
        let output = self.directory.path().join("said").display().to_string();
        let socket = self.directory.path().join("peer.sock").display().to_string();
        let mut command = match on {
            On::Kernel => self.lab.command(Side::Server, table()),
            On::Stack => {
                let mut command =
                    self.lab.command(Side::Server, &lab::sidestep_binary().display().to_string());
                // In the driver, as datagrams are the kernel's else on a veth with one queue.
                command.args(["run", "--device", SERVER_INTERFACE, "--xdp-mode", "native", "--", table()]);
                command
            }
        };
        command.args([
            "--peer-unix",
            &socket,
            "--output",
            &output,
            "--shard",
            &format!("{shard}/{}", on.shards()),
        ]);
        for (option, ip) in
            [("--local", SERVER_V4), ("--local", SERVER_V6), ("--remote", CLIENT_V4), ("--remote", CLIENT_V6)]
        {
            command.args([option, ip]);
        }
        if on == On::Stack {
            command.args(["--settle-ms", SETTLE_MS]);
        }
        command.args(filters());
        let mut process = Child::spawn("socket_table", &mut command).unwrap();
        match process.wait(on.time_max()) {
            Ok(status) => assert!(status.success(), "{status}: {}", process.output()),
            // What is missing shows as a difference.
            Err(error) => eprintln!("part {shard}: {error}"),
        }
        parse(&fs::read_to_string(&output).unwrap())
    }
}

/// The program.
fn table() -> &'static str {
    env!("CARGO_BIN_EXE_socket_table")
}

/// The checks that are worked on: parts of their names; all if there are none.
fn filters() -> Vec<String> {
    std::env::var("SIDESTEP_TABLE_FILTER").into_iter().collect()
}

/// Reads what the program prints.
fn parse(text: &str) -> Said {
    let mut said = Said::new();
    let mut current = None;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("== ") {
            current = Some(said.entry(name.to_owned()).or_default());
            continue;
        }
        let saying = current.as_mut().expect("a name comes first");
        match line {
            "# on the stack" => saying.on_stack += 1,
            "# on the kernel" => saying.on_kernel += 1,
            "# datagrams on the stack" => saying.datagrams_on_stack += 1,
            "# datagrams on the kernel" => saying.datagrams_on_kernel += 1,
            line if line.starts_with('#') => {}
            line => saying.seen.push(line.to_owned()),
        }
    }
    said
}

/// Runs the checks that are worked on, parts of them at the same time.
fn run(on: On) -> Said {
    let places: Vec<Place> = (0..on.shards()).map(|_| Place::new()).collect();
    let start = Instant::now();
    let said: Vec<Said> = thread::scope(|scope| {
        let parts: Vec<_> = places
            .iter()
            .enumerate()
            .map(|(shard, place)| scope.spawn(move || place.run(on, shard)))
            .collect();
        parts
            .into_iter()
            .map(|part| part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let took = start.elapsed();
    eprintln!("{on:?}: {took:?}");
    said.into_iter().flatten().collect()
}

/// What the kernel says, and what it says differently when it is asked a second time.
fn kernel() -> &'static (Said, BTreeMap<String, String>) {
    static SAID: OnceLock<(Said, BTreeMap<String, String>)> = OnceLock::new();
    SAID.get_or_init(|| {
        let [said, again] = [(); 2].map(|()| run(On::Kernel));
        let unsettled = differences(&said, &again);
        (said, unsettled)
    })
}

/// The turn to use the machine, since times are looked at; `None` if there can be no laboratory.
fn turn() -> Option<MutexGuard<'static, ()>> {
    static TURN: Mutex<()> = Mutex::new(());
    lab::require_root_and_xdp().then(|| TURN.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The lines of two sayings, those that are not in both marked.
fn comparison(name: &str, kernel: &[String], stack: &[String]) -> String {
    let mut text = format!("{name}\n");
    let same = kernel.iter().zip(stack).take_while(|(one, other)| one == other).count();
    if same > 0 {
        let _ = writeln!(text, "    {same} lines are the same"); // A String takes everything.
    }
    for line in &kernel[same..] {
        let _ = writeln!(text, "    kernel:   {line}");
    }
    for line in &stack[same..] {
        let _ = writeln!(text, "    sidestep: {line}");
    }
    text
}

/// Names of checks that say different things, and how.
fn differences(kernel: &Said, other: &Said) -> BTreeMap<String, String> {
    let names: BTreeSet<&String> = kernel.keys().chain(other.keys()).collect();
    let none = Saying::default();
    let differs = |name: &&String| {
        let (one, other) = (kernel.get(*name).unwrap_or(&none), other.get(*name).unwrap_or(&none));
        (one.seen != other.seen).then(|| ((*name).clone(), comparison(name, &one.seen, &other.seen)))
    };
    names.iter().filter_map(differs).collect()
}

/// A check that may differ.
struct Permitted {
    /// A name, or its beginning and `*`.
    check: String,
    /// Why.
    reason: String,
    /// Whether it does not differ in every run.
    sometimes: bool,
}

impl Permitted {
    /// The entries of one kind.
    fn all(kind: &str) -> Vec<Permitted> {
        let path = lab::workspace_root().join("specs/socket_table_differences.toml");
        let table: toml::Table = fs::read_to_string(path).unwrap().parse().unwrap();
        let groups = table.get(kind).and_then(|list| list.as_array()).cloned().unwrap_or_default();
        groups.iter().flat_map(Permitted::of_group).collect()
    }

    fn of_group(group: &toml::Value) -> Vec<Permitted> {
        let reason = group.get("reason").and_then(|word| word.as_str()).expect("a difference has a reason");
        let sometimes = group.get("sometimes").and_then(|word| word.as_bool()).unwrap_or(false);
        let checks = group.get("checks").and_then(|list| list.as_array()).expect("a difference has checks");
        let names = checks.iter().map(|name| name.as_str().expect("a check is a name").to_owned());
        names.map(|check| Permitted { check, reason: reason.to_owned(), sometimes }).collect()
    }

    fn covers(&self, name: &str) -> bool {
        match self.check.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => self.check == name,
        }
    }
}

#[test]
fn the_table_is_long_enough_and_names_are_unique() {
    let output = Command::new(table()).arg("--list").output().unwrap();
    let names: Vec<String> = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    let unique: BTreeSet<&String> = names.iter().collect();
    assert_eq!(unique.len(), names.len(), "a name is there twice");
    assert!(names.len() >= CHECKS_MIN, "{} checks", names.len());
}

#[test]
fn every_permitted_difference_has_a_reason() {
    for kind in ["difference", "on_kernel"] {
        assert!(Permitted::all(kind).iter().all(|entry| entry.reason.len() > 10));
    }
}

#[test]
fn the_kernel_says_the_same_every_time() {
    let Some(_turn) = turn() else { return };
    let (said, differences) = kernel();
    assert!(differences.is_empty(), "{}", text(differences));
    let broken = |said: &Saying| {
        let words = ["failed: ", "timed out", "ended with ", "ended by ", "not started: ", "not followed: "];
        said.seen.iter().any(|line| words.iter().any(|word| line.starts_with(word)))
    };
    let broken: Vec<&String> = said.iter().filter(|(_, said)| broken(said)).map(|(name, _)| name).collect();
    assert!(broken.is_empty(), "checks that do not come to their end: {broken:?}");
}

fn text(differences: &BTreeMap<String, String>) -> String {
    format!("{} checks differ\n{}", differences.len(), differences.values().cloned().collect::<String>())
}

#[test]
fn under_sidestep_run_sockets_are_as_on_the_kernel() {
    let Some(_turn) = turn() else { return };
    let (kernel, _) = kernel();
    let permitted = Permitted::all("difference");
    let is_permitted = |name: &String| permitted.iter().any(|entry| entry.covers(name));
    let stack = run(On::Stack);
    let mut differences = differences(kernel, &stack);
    report(&differences);
    let stale = stale(&permitted, |entry| differences.keys().any(|name| entry.covers(name)));
    differences.retain(|name, _| !is_permitted(name));
    assert!(differences.is_empty(), "{}", text(&differences));
    if filters().is_empty() {
        assert!(stale.is_empty(), "these are said to differ and do not: {stale:?}");
        assert_accelerated(&stack);
    }
}

/// Every connection and UDP socket of every check must have been on the stack, or the check has tested nothing. `on_kernel` in the file of
/// differences lists the checks whose sockets belong to the kernel.
fn assert_accelerated(stack: &Said) {
    let permitted = Permitted::all("on_kernel");
    let is_on_kernel = |said: &Saying| said.on_kernel + said.datagrams_on_kernel > 0;
    let on_kernel: Vec<&String> =
        stack.iter().filter(|(_, said)| is_on_kernel(said)).map(|(name, _)| name).collect();
    let is_permitted = |name: &&String| permitted.iter().any(|entry| entry.covers(name));
    let unexpected: Vec<&&String> = on_kernel.iter().filter(|name| !is_permitted(name)).collect();
    assert!(unexpected.is_empty(), "these ran on the kernel: {unexpected:?}");
    let stale = stale(&permitted, |entry| on_kernel.iter().any(|name| entry.covers(name)));
    assert!(stale.is_empty(), "these are said to run on the kernel and do not: {stale:?}");
}

/// Entries that nothing happens for, though they do not say `sometimes`.
fn stale(permitted: &[Permitted], happens: impl Fn(&Permitted) -> bool) -> Vec<&str> {
    let stale = permitted.iter().filter(|entry| !entry.sometimes && !happens(entry));
    stale.map(|entry| entry.check.as_str()).collect()
}

/// Writes the comparison to where it is wanted.
fn report(differences: &BTreeMap<String, String>) {
    if let Some(path) = std::env::var_os("SIDESTEP_TABLE_REPORT") {
        fs::write(Path::new(&path), text(differences)).unwrap();
    }
}
