//! The time that cores spend.

use std::time::{Duration, Instant};

/// What all cores have spent in user mode, in the kernel and in interrupts since the machine started.
pub fn busy_time() -> Duration {
    busy(&std::fs::read_to_string("/proc/stat").unwrap_or_default(), "cpu")
}

/// How much of its time `core` worked while `work` was done, in hundredths.
pub fn busy_share<T>(core: usize, work: impl FnOnce() -> T) -> (T, f64) {
    let label = format!("cpu{core}");
    let busy_now = || busy(&std::fs::read_to_string("/proc/stat").unwrap_or_default(), &label);
    let (before, began) = (busy_now(), Instant::now());
    let result = work();
    let took = began.elapsed().as_secs_f64();
    (result, (busy_now() - before).as_secs_f64() * 100.0 / took)
}

/// Of a line of /proc/stat: user, nice, system, idle, iowait, irq, softirq and more, in ticks: proc_stat(5).
fn busy(text: &str, label: &str) -> Duration {
    const TICK: Duration = Duration::from_millis(10); // USER_HZ, the same on every architecture that we run on.
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    let line = lines.find(|(first, _)| *first == label).map_or("", |(_, rest)| rest);
    let ticks: Vec<u32> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let at = |index: usize| ticks.get(index).copied().unwrap_or(0);
    TICK * [0, 1, 2, 5, 6].map(at).iter().sum::<u32>()
}

#[test]
fn idle_time_is_not_counted() {
    let text = "cpu  1 2 4 1000 2000 8 16 32 0 0\ncpu0 9 9 9 9\ncpu1 1 1 1 7 7";
    assert_eq!(busy(text, "cpu"), Duration::from_millis(310));
    assert_eq!(busy(text, "cpu1"), Duration::from_millis(30));
    assert_eq!(busy(text, "cpu2"), Duration::ZERO);
}
