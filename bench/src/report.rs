//! Medians, and under which conditions they were taken.

use std::process::Command;

/// The median; of an even number of figures the higher of the two in the middle.
///
/// # Panics
///
/// If there is none.
pub fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Prints machine, kernel and commit, which belong to every figure.
pub fn print_conditions(what: &str) {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        cpu.lines().find_map(|line| line.strip_prefix("model name\t: ")).unwrap_or("unknown processor");
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let commit = Command::new("git").args(["rev-parse", "--short", "HEAD"]).output();
    let commit = commit.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!("# {what}");
    println!(
        "machine: {model}, {cores} cores; Linux {}; commit {}",
        kernel.trim(),
        commit.unwrap_or_else(|_| "unknown".to_owned())
    );
}
