//! Cores, and the time that they spend.

use std::time::Duration;

use rustix::thread::{CpuSet, sched_setaffinity};

/// Keeps the calling thread on `core`, if there is one of that number.
pub fn stay_on(core: usize) {
    let mut set = CpuSet::new();
    if core < CpuSet::MAX_CPU {
        set.set(core);
        let _ = sched_setaffinity(None, &set); // On a machine with fewer cores it stays where it is.
    }
}

/// What all cores have spent in user mode, in the kernel and in interrupts since the machine started.
pub fn busy_time() -> Duration {
    busy(&std::fs::read_to_string("/proc/stat").unwrap_or_default())
}

/// Of /proc/stat: user, nice, system, idle, iowait, irq, softirq and more, in ticks, of all cores together: proc_stat(5).
fn busy(text: &str) -> Duration {
    const TICK: Duration = Duration::from_millis(10); // USER_HZ, the same on every architecture that we run on.
    let line = text.lines().find_map(|line| line.strip_prefix("cpu ")).unwrap_or_default();
    let ticks: Vec<u32> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let at = |index: usize| ticks.get(index).copied().unwrap_or(0);
    TICK * [0, 1, 2, 5, 6].map(at).iter().sum::<u32>()
}

#[test]
fn idle_time_is_not_counted() {
    assert_eq!(busy("cpu  1 2 4 1000 2000 8 16 32 0 0\ncpu0 9 9 9 9"), Duration::from_millis(310));
}
