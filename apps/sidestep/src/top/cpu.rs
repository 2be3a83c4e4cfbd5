//! Processor time of a process and of its engines' threads, as proc(5) has it.
//!
//! Engines count their own time by the clock, which goes on while another thread has the core. What the kernel counts is the bound: no
//! thread looks for packets for longer than it ran.

use std::fs;
use std::path::Path;
use std::time::Duration;

/// Milliseconds of a tick: the kernel shows times in hundredths of a second, whatever its own clock is (USER_HZ).
pub(super) const TICK_MS: u64 = 10;

/// What has been used since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CpuTimes {
    /// By the whole process.
    pub(super) process: Duration,
    /// By the thread of each engine that has one of its own.
    pub(super) engines: Vec<Option<Duration>>,
}

impl CpuTimes {
    /// Of a process with so many engines; `None` if it has gone, or hides.
    pub(super) fn of(pid: u32, engines: usize) -> Option<CpuTimes> {
        let directory = Path::new("/proc").join(pid.to_string());
        let process = used(&directory.join("stat"))?;
        let mut times = CpuTimes { process, engines: vec![None; engines] };
        if engines > 1 {
            for task in fs::read_dir(directory.join("task")).into_iter().flatten().flatten() {
                let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
                let number = name.trim_end().strip_prefix("engine-").and_then(|number| number.parse().ok());
                if let Some(engine) = number.and_then(|number: usize| times.engines.get_mut(number)) {
                    *engine = used(&task.path().join("stat"));
                }
            }
        }
        Some(times)
    }

    /// What one engine may have used at most: its thread, or the process if its thread is not known.
    pub(super) fn of_engine(&self, number: usize) -> Duration {
        self.engines.get(number).copied().flatten().unwrap_or(self.process)
    }
}

fn used(stat: &Path) -> Option<Duration> {
    parse(&fs::read_to_string(stat).ok()?)
}

/// User and system time (fields 14 and 15), behind the name, which may have anything in it.
fn parse(stat: &str) -> Option<Duration> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let ticks = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    Some(Duration::from_millis(ticks.saturating_mul(TICK_MS)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_blanks_and_brackets_is_no_field() {
        let stat = "7 (a) 1 2 (b) S 1 7 7 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 1 0 1000 0 0";
        assert_eq!(parse(stat), Some(Duration::from_secs(3)));
        assert_eq!(parse("7 (a) S 1"), None);
    }

    #[test]
    fn this_process_has_a_time_and_one_that_is_not_there_has_none() {
        assert!(CpuTimes::of(std::process::id(), 2).is_some_and(|times| times.engines == [None, None]));
        assert_eq!(CpuTimes::of(u32::MAX, 0), None);
    }
}
