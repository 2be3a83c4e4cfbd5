//! Kills what runs on a thread before any store that others see: for tests of what a killed process leaves behind.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};

/// What a panic of a burnt fuse has with it.
struct Killed;

thread_local! {
    static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Comes before each store to memory that others see.
pub(crate) fn burn() {
    LEFT.with(|left| match left.get() {
        Some(0) => {
            left.set(None);
            panic_any(Killed);
        }
        Some(more) => left.set(Some(more - 1)),
        None => {}
    });
}

/// Keeps such deaths out of the tests' output.
pub(crate) fn silence() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let others = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !panic.payload().is::<Killed>() {
                others(panic);
            }
        }));
    });
}

/// Runs `act` up to so many such stores; `None` if it was killed then.
pub(crate) fn kill_after<T>(stores: Option<u32>, act: impl FnOnce() -> T) -> Option<T> {
    LEFT.with(|left| left.set(stores));
    let outcome = catch_unwind(AssertUnwindSafe(act));
    LEFT.with(|left| left.set(None));
    match outcome {
        Ok(value) => Some(value),
        Err(panic) if panic.is::<Killed>() => None,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}
