//! Detects whether a thread is still working through a batch of events. If so, what it sends waits for the rest of the batch;
//! otherwise it leaves at once.

use std::cell::Cell;

use clock::{Duration, Instant};

/// A thread that takes longer for its events will not come back soon.
const OPEN_MAX: Duration = Duration::from_millis(5);

thread_local! {
    /// How many events the thread got, and when.
    static TOLD: Cell<(usize, Instant)> = const { Cell::new((0, Instant::ZERO)) };
}

/// The thread got this many events.
pub(crate) fn open(events: usize, now: Instant) {
    TOLD.set((events, now));
}

/// The thread came back.
pub(crate) fn close() {
    TOLD.set((0, Instant::ZERO));
}

/// Whether what the thread sends may wait until it comes back.
pub(crate) fn is_open(now: Instant) -> bool {
    let (events, at) = TOLD.get();
    events > 1 && now.since(at) < OPEN_MAX
}
