//! Ctrl-C and other signals: the first one ends the sending, the second one the waiting for answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::output;

/// What the user wants ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop {
    /// Set by each signal.
    signal: Arc<AtomicBool>,
    /// Signals that were noticed.
    noticed: Arc<AtomicU32>,
}

impl Stop {
    /// By Ctrl-C, SIGTERM, and a terminal that goes away (SIGHUP): what was measured until then is written.
    pub(crate) fn by_signals() -> anyhow::Result<Stop> {
        let stop = Stop::default();
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        // Who ignores a signal, as under nohup, goes on.
        let signals = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !ignores(&status, *signal));
        for signal in signals {
            signal_hook::flag::register(signal, Arc::clone(&stop.signal))?;
        }
        Ok(stop)
    }

    /// Nothing more is to be sent.
    pub(crate) fn is_asked(&self) -> bool {
        self.notice() > 0
    }

    /// Answers are not to be waited for, either.
    pub(crate) fn is_urgent(&self) -> bool {
        self.notice() > 1
    }

    /// Tells the user that the end takes a while still.
    pub(crate) fn say_waiting(&self) {
        if self.is_asked() {
            output::complain!("sidestep gun: waits for answers under way; Ctrl-C again does not");
        }
    }

    fn notice(&self) -> u32 {
        if !self.signal.load(Ordering::Relaxed) || !self.signal.swap(false, Ordering::Relaxed) {
            return self.noticed.load(Ordering::Relaxed);
        }
        self.noticed.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Whether a process of this /proc/PID/status ignores a signal.
fn ignores(status: &str, signal: i32) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn under_nohup_a_hangup_is_ignored() {
        let status = "Name:\tsidestep\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000004002\n";
        assert!(ignores(status, SIGHUP) && !ignores(status, SIGTERM) && !ignores("", SIGHUP));
    }

    #[test]
    fn the_second_signal_is_urgent() {
        let stop = Stop::default();
        let other_hand = stop.clone();
        assert!(!stop.is_asked() && !stop.is_urgent());
        stop.signal.store(true, Ordering::Relaxed);
        assert!(stop.is_asked() && !stop.is_urgent() && other_hand.is_asked());
        stop.signal.store(true, Ordering::Relaxed);
        assert!(stop.is_urgent() && other_hand.is_urgent());
    }
}
