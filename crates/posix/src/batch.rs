//! Whether a thread has more to do of what it was last told: then what it sends is held until it comes back for more, and leaves
//! with the rest; else it leaves at once.

use std::cell::Cell;

thread_local! {
    static EVENTS: Cell<usize> = const { Cell::new(0) };
}

/// The thread was told of this many events.
pub(crate) fn set(events: usize) {
    EVENTS.set(events);
}

/// Whether what the thread sends may wait until it comes back.
pub(crate) fn is_open() -> bool {
    EVENTS.get() > 1
}
