//! Whether a thread is within our own code, told to the hooks: what our code calls of the C library is then not hooked, and the program's
//! signal handlers wait until it is left.
//!
//! A handler may call any hooked function, and may leave by `longjmp`; neither is possible while a lock is held. So handlers run where a
//! thread is outside: in the program's own code, and in [`outside`], where a call sleeps with all locks free.

use std::cell::Cell;
use std::marker::PhantomData;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static DEFERRED: Cell<Option<Deferred>> = const { Cell::new(None) };
    static INTERRUPTED: Cell<bool> = const { Cell::new(false) };
}

/// A signal came while the thread was inside: it is pending, and all signals are blocked.
#[derive(Clone, Copy)]
struct Deferred {
    /// The mask that was in force.
    mask: u64,
    restore: fn(u64),
}

/// This thread is within our code for as long as this lives.
#[derive(Debug)]
pub struct Inside(PhantomData<*const ()>);

impl Inside {
    /// Enters; `None` if the thread is inside already: the call comes from our own code.
    #[inline]
    pub fn enter() -> Option<Inside> {
        DEPTH.with(|depth| (depth.replace(1) == 0).then_some(Inside(PhantomData)))
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        DEPTH.set(0);
        deliver_deferred();
    }
}

/// Whether this thread is within our code.
#[inline]
pub fn is_inside() -> bool {
    DEPTH.get() != 0
}

/// Sleeps, with no lock held and no state of this thread borrowed: handlers run meanwhile, may call in here again and may never return.
///
/// After `EINTR`, [`interrupted`] says whether the call has to fail with it.
pub fn outside<T>(sleep: impl FnOnce() -> T) -> T {
    INTERRUPTED.set(false);
    let depth = DEPTH.replace(0);
    deliver_deferred();
    let result = sleep();
    DEPTH.set(depth);
    result
}

/// Whether a handler without `SA_RESTART` ran since [`outside`] was last called. With false, calls that signal(7) lists as restarted are to go on.
pub fn interrupted() -> bool {
    INTERRUPTED.get()
}

/// A handler runs on this thread.
pub fn on_handler(restart: bool) {
    if !restart {
        INTERRUPTED.set(true);
    }
}

/// A signal that came while inside was made pending again, and all are blocked; `restore` puts `mask` in force, as it was before.
pub fn defer(mask: u64, restore: fn(u64)) {
    if DEFERRED.get().is_none() {
        DEFERRED.set(Some(Deferred { mask, restore }));
    }
}

#[inline]
fn deliver_deferred() {
    if let Some(deferred) = DEFERRED.take() {
        (deferred.restore)(deferred.mask);
    }
}
