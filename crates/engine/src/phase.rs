//! What an engine does with its time: it works, looks for packets in vain, or sleeps.
//!
//! The spans lie between the times that the engine is given anyway, one for each turn. So nothing reads the clock for this. A span
//! counts as what its turn came to: the last turn before a sleep, and the kernel's work for it, count as sleep.
//! It costs about twenty instructions a turn (callgrind).

use std::sync::atomic::{AtomicU64, Ordering};

use clock::Instant;

/// What a span of time was for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Packets or events were there. For a driven engine, also what its driver does between two turns.
    #[default]
    Busy,
    /// It looked for packets and found none.
    Spinning,
    /// It waited in the kernel.
    Asleep,
}

/// The phase of an engine, and since when it counts.
#[derive(Debug, Default)]
pub(crate) struct Phases {
    phase: Phase,
    since: Instant,
}

/// Nanoseconds of each phase. Its engine's thread writes them, and any thread may read them.
#[derive(Debug, Default)]
pub(crate) struct PhaseTimes([AtomicU64; 3]);

impl Phases {
    /// The engine begins at `now`.
    pub(crate) fn start(&mut self, now: Instant) {
        self.since = now;
    }

    /// The span until `now` was for the current phase. A time that goes back counts as none.
    #[inline]
    pub(crate) fn advance(&mut self, now: Instant, times: &PhaseTimes) {
        times.add(self.phase, now.since(self.since).as_nanos());
        self.since = now;
    }

    /// What the engine does from here on.
    #[inline]
    pub(crate) fn set(&mut self, phase: Phase) {
        self.phase = phase;
    }
}

impl PhaseTimes {
    /// One writer, so a plain load and store are enough.
    #[inline]
    fn add(&self, phase: Phase, nanos: u64) {
        let time = &self.0[phase as usize];
        time.store(time.load(Ordering::Relaxed).wrapping_add(nanos), Ordering::Relaxed);
    }

    /// Name and nanoseconds of each.
    pub(crate) fn named(&self) -> [(&'static str, u64); 3] {
        let read = |phase: Phase| self.0[phase as usize].load(Ordering::Relaxed);
        [
            ("busy_ns", read(Phase::Busy)),
            ("spinning_ns", read(Phase::Spinning)),
            ("asleep_ns", read(Phase::Asleep)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn a_span_counts_for_the_phase_in_which_it_was_spent() {
        let (mut phases, times) = (Phases::default(), PhaseTimes::default());
        phases.start(at(1000));
        phases.advance(at(1007), &times);
        phases.set(Phase::Spinning);
        phases.advance(at(1027), &times);
        phases.set(Phase::Asleep);
        phases.advance(at(1527), &times);
        phases.advance(at(1627), &times);
        assert_eq!(times.named(), [("busy_ns", 7), ("spinning_ns", 20), ("asleep_ns", 600)]);
    }

    #[test]
    fn time_before_the_start_and_time_that_goes_back_count_as_none() {
        let (mut phases, times) = (Phases::default(), PhaseTimes::default());
        phases.start(at(1000));
        phases.advance(at(900), &times);
        assert_eq!(times.named().map(|(_, nanos)| nanos), [0, 0, 0]);
    }
}
