//! The time that cores spend.
//!
//! Told by what they were not idle, which the kernel measures. Time in user mode, in the kernel and in interrupts it only samples, on most
//! systems, a few hundred times a second, in step with programs that work by the clock: of the same load at a fixed rate /proc/stat's
//! samples say 21 us a request, and what was not idle is 28.

use std::time::{Duration, Instant};

/// How long all cores worked while `work` was done. Memory reclaim by the kernel itself (`kdamond`), which comes when it likes, is left out.
pub fn busy_time<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    let (idle_before, reclaim_before, began) = (idle("cpu"), reclaim(), Instant::now());
    let result = work();
    let others = (idle("cpu") - idle_before) + (reclaim() - reclaim_before);
    (result, (began.elapsed() * cores).saturating_sub(others))
}

/// How much of their time the client's core and the server's worked, in hundredths.
#[derive(Clone, Copy, Debug)]
pub struct Shares {
    /// At 100 it is the client that is measured.
    pub client: f64,
    /// At 100 it is the server.
    pub server: f64,
}

/// How much of their time the cores of the laboratory worked while `work` was done.
pub fn busy_shares<T>(work: impl FnOnce() -> T) -> (T, Shares) {
    let cores = [lab::generator_core(), lab::server_core()];
    let idle = || cores.map(|core| idle(&format!("cpu{core}")));
    let (before, began) = (idle(), Instant::now());
    let result = work();
    let (after, length) = (idle(), began.elapsed());
    let share = |core: usize| {
        let idle = after[core].saturating_sub(before[core]).as_secs_f64() / length.as_secs_f64();
        (100.0 * (1.0 - idle)).max(0.0)
    };
    (result, Shares { client: share(0), server: share(1) })
}

fn idle(label: &str) -> Duration {
    idle_in(&std::fs::read_to_string("/proc/stat").unwrap_or_default(), label)
}

/// The idle time in a line of /proc/stat: user, nice, system, idle, iowait and more, in ticks: proc_stat(5).
fn idle_in(text: &str, label: &str) -> Duration {
    const TICK: Duration = Duration::from_millis(10); // USER_HZ, the same on every architecture that we run on.
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    let line = lines.find(|(first, _)| *first == label).map_or("", |(_, rest)| rest);
    let ticks = |index| line.split_whitespace().nth(index).and_then(|word| word.parse::<u32>().ok());
    TICK * (ticks(3).unwrap_or(0) + ticks(4).unwrap_or(0))
}

/// What kdamond has run since the machine started: the first number of /proc/PID/schedstat, in nanoseconds.
fn reclaim() -> Duration {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Duration::ZERO };
    let read = |process: &std::fs::DirEntry, file| std::fs::read_to_string(process.path().join(file)).ok();
    let is_reclaim =
        |process: &std::fs::DirEntry| read(process, "comm").is_some_and(|name| name.starts_with("kdamond"));
    let ran = |process: std::fs::DirEntry| {
        read(&process, "schedstat")?.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
    };
    processes.flatten().filter(is_reclaim).filter_map(ran).sum()
}

#[test]
fn idle_is_what_waits_for_work_or_for_a_disk() {
    let text = "cpu  1 2 4 1000 2000 8 16 32 0 0\ncpu0 9 9 9 9\ncpu1 1 1 1 7 7";
    assert_eq!(idle_in(text, "cpu"), Duration::from_secs(30));
    assert_eq!(idle_in(text, "cpu1"), Duration::from_millis(140));
    assert_eq!(idle_in(text, "cpu2"), Duration::ZERO);
}
