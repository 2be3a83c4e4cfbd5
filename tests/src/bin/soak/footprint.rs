//! What processes hold at rest: memory, descriptors and frames.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use lab::{Lab, LabError, Side};
use rustix::process::Pid;

use crate::PATIENCE;
use crate::brokers::Brokers;

/// Growth of a process that is none: it may get a queue, and with it a stack, only after the count at the beginning.
const GROWTH_MAX_KB: u64 = 20_000;
/// The same for descriptors.
const MORE_DESCRIPTORS_MAX: usize = 4;

pub(crate) fn pids(lab: &Lab) -> impl Iterator<Item = Pid> {
    let text = lab.pids(Side::Server).unwrap_or_default();
    let pids: Vec<Pid> = text.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect();
    pids.into_iter()
}

/// Memory in kB and descriptors of the processes by name; of several of the same name together.
pub(crate) fn footprint(lab: &Lab) -> BTreeMap<String, (u64, usize)> {
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
pub(crate) fn frames(lab: &Lab, brokers: &Brokers, gauge: &str) -> Result<u64, LabError> {
    let status = brokers.status(lab)?;
    let words: Vec<&str> = status.split([' ', ',', '\n']).filter(|word| !word.is_empty()).collect();
    Ok(words.windows(2).filter(|pair| pair[0] == gauge).filter_map(|pair| pair[1].parse::<u64>().ok()).sum())
}

/// At rest the kernel has as many frames as before, but for a few that it keeps aside, and programs have none.
pub(crate) fn lost_frames(
    lab: &Lab,
    brokers: &Brokers,
    lent_before: u64,
) -> Result<Option<String>, LabError> {
    const ASIDE_MAX: u64 = 64;
    // What was lost of the last answers may still be sent again.
    let deadline = Instant::now() + PATIENCE;
    while frames(lab, brokers, "frames_held")? > 0 && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(200));
    }
    let (lent, held) = (frames(lab, brokers, "frames_lent")?, frames(lab, brokers, "frames_held")?);
    println!("soak: frames with the kernel: {lent_before} before, {lent} after; held by programs: {held}");
    let is_lost = held > 0 || lent.abs_diff(lent_before) > ASIDE_MAX || lent == 0;
    Ok(is_lost.then(|| format!("{lent_before} frames with the kernel became {lent}, programs hold {held}")))
}

pub(crate) fn differences(
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
