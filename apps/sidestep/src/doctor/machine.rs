//! Facts about the machine, from /proc and /sys.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use ::doctor::{CoreList, Known, Limit, Machine, Service};

const CORES: &str = "/sys/devices/system/cpu";
const NODES: &str = "/sys/devices/system/node";

pub(super) fn look() -> Machine {
    let meminfo = read("/proc/meminfo");
    let limits = read("/proc/self/limits");
    Machine {
        kernel: read("/proc/sys/kernel/osrelease"),
        cores: numbers(read(format!("{CORES}/online"))),
        nodes: nodes(),
        governors: governors(),
        vulnerabilities: vulnerabilities(),
        stolen: map(read("/proc/stat"), stolen),
        huge_pages: map(meminfo.clone(), |text| entry(text, "HugePages_Total:")),
        available: map(meminfo.clone(), |text| entry(text, "MemAvailable:")),
        huge_page_size: map(meminfo, |text| entry(text, "Hugepagesize:")),
        bpf_jit: bpf_jit(),
        bpf_files: map(read("/proc/self/mountinfo"), |text| Some(has_bpf_files(text))),
        capabilities: map(read("/proc/self/status"), capabilities),
        files: map(limits.clone(), |text| limit(text, "Max open files")),
        locked_memory: map(limits, |text| limit(text, "Max locked memory")),
        irqbalance: Known::Is(irqbalance()),
    }
}

fn bpf_jit() -> Known<u32> {
    const FILE: &str = "/proc/sys/net/core/bpf_jit_enable";
    if !Path::new(FILE).exists() {
        return Known::Not("only the machine's own network namespace shows it".to_owned());
    }
    map(read(FILE), |text| text.parse().ok())
}

/// The name of this machine.
pub(super) fn host() -> String {
    let uname = rustix::system::uname();
    uname.nodename().to_string_lossy().into_owned()
}

/// A file's text, without white space around it.
pub(super) fn read(path: impl AsRef<Path>) -> Known<String> {
    let path = path.as_ref();
    match fs::read_to_string(path) {
        Ok(text) => Known::Is(text.trim().to_owned()),
        Err(error) => Known::Not(format!("{}: {error}", path.display())),
    }
}

/// What a text says, if it can be understood.
pub(super) fn map<T>(text: Known<String>, parse: impl FnOnce(&str) -> Option<T>) -> Known<T> {
    match text {
        Known::Is(text) => parse(&text)
            .map_or_else(|| Known::Not("the kernel's text was not understood".to_owned()), Known::Is),
        Known::Not(because) => Known::Not(because),
    }
}

/// A list of numbers.
pub(super) fn numbers(text: Known<String>) -> Known<CoreList> {
    map(text, |text| text.parse().ok())
}

/// The directories of `parent` that are called `prefix` and a number.
pub(super) fn numbered(parent: &str, prefix: &str) -> Vec<u32> {
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok();
    let mut found: Vec<u32> =
        fs::read_dir(parent).into_iter().flatten().flatten().filter_map(number).collect();
    found.sort_unstable();
    found
}

/// A kernel without NUMA has no nodes: that is one of them.
fn nodes() -> Known<BTreeMap<u32, CoreList>> {
    let of = |node| Some((node, numbers(read(format!("{NODES}/node{node}/cpulist"))).get()?.clone()));
    Known::Is(numbered(NODES, "node").into_iter().filter_map(of).collect())
}

fn governors() -> Known<BTreeMap<u32, String>> {
    let of = |core| Some((core, read(format!("{CORES}/cpu{core}/cpufreq/scaling_governor")).get()?.clone()));
    Known::Is(numbered(CORES, "cpu").into_iter().filter_map(of).collect())
}

fn vulnerabilities() -> Known<BTreeMap<String, String>> {
    let directory = format!("{CORES}/vulnerabilities");
    let entries = match fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) => return Known::Not(format!("{directory}: {error}")),
    };
    let of = |entry: fs::DirEntry| {
        Some((entry.file_name().into_string().ok()?, read(entry.path()).get()?.clone()))
    };
    Known::Is(entries.flatten().filter_map(of).collect())
}

/// Thousandths of all time in the eighth number of the first line: proc_stat(5).
fn stolen(stat: &str) -> Option<u32> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    // Times of guests are in those of users already.
    let times: Vec<u64> = line.split_whitespace().take(8).filter_map(|time| time.parse().ok()).collect();
    let all: u64 = times.iter().sum();
    u32::try_from(times.get(7)?.checked_mul(1000)?.checked_div(all)?).ok()
}

fn entry(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

fn has_bpf_files(mountinfo: &str) -> bool {
    mountinfo.lines().any(|line| {
        let place = line.split_whitespace().nth(4);
        let kind = line.split_once(" - ").and_then(|(_, rest)| rest.split_whitespace().next());
        place == Some("/sys/fs/bpf") && kind == Some("bpf")
    })
}

fn capabilities(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

fn limit(limits: &str, name: &str) -> Option<Limit> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    let mut values = line.split_whitespace();
    let mut value = || match values.next()? {
        "unlimited" => Some(None),
        number => number.parse().ok().map(Some),
    };
    Some(Limit { soft: value()?, hard: value()? })
}

fn irqbalance() -> Service {
    let runs = numbered("/proc", "")
        .into_iter()
        .any(|pid| read(format!("/proc/{pid}/comm")) == Known::Is("irqbalance".to_owned()));
    match runs {
        false => Service::Absent,
        true if is_active("irqbalance") => Service::Unit,
        true => Service::Process,
    }
}

/// Whether systemd runs a unit.
pub(super) fn is_active(unit: &str) -> bool {
    let output = Command::new("systemctl").args(["is-active", "--quiet", unit]).output();
    output.is_ok_and(|output| output.status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_the_kernel_are_understood() {
        assert_eq!(stolen("cpu  600 0 100 200 0 0 0 100 0 0\ncpu0 1"), Some(100));
        assert_eq!(stolen("cpu  0 0 0 0 0 0 0 0 0 0"), None);
        assert_eq!(entry("HugePages_Total:      12\nHugepagesize:    2048 kB", "Hugepagesize:"), Some(2048));
        assert_eq!(capabilities("Name:\tx\nCapEff:\t000000ffffffffff\n"), Some(0xff_ffff_ffff));
        let limits = "Max open files            1024                 1048576              files";
        assert_eq!(limit(limits, "Max open files"), Some(Limit { soft: Some(1024), hard: Some(1_048_576) }));
        let limits = "Max locked memory         unlimited            unlimited            bytes";
        assert_eq!(limit(limits, "Max locked memory"), Some(Limit { soft: None, hard: None }));
        let mounts = "31 24 0:27 / /sys/fs/bpf rw,nosuid shared:11 - bpf bpf rw,mode=700";
        assert!(has_bpf_files(mounts) && !has_bpf_files(&mounts.replace("- bpf", "- tmpfs")));
    }

    #[test]
    fn this_machine_tells_what_every_linux_tells() {
        let machine = look();
        assert!(!machine.cores.get().unwrap().is_empty());
        assert!(machine.kernel.get().unwrap().starts_with(|first: char| first.is_ascii_digit()));
        assert!(machine.capabilities.get().is_some() && machine.files.get().is_some());
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let Known::Not(because) = read("/proc/no-such-file") else { panic!("it is there") };
        assert!(because.starts_with("/proc/no-such-file: "), "{because}");
    }
}
