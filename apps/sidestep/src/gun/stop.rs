//! Ctrl-C: the first one ends the sending, the second one the waiting for answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

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
    /// By Ctrl-C and SIGTERM. A terminal that goes away ends the command at once (SIGHUP), as it does others.
    pub(crate) fn by_signals() -> anyhow::Result<Stop> {
        let stop = Stop::default();
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
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

#[cfg(test)]
mod tests {
    use super::*;

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
