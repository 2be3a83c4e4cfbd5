//! Cancelled threads (pthread_cancel(3)).
//!
//! Functions that sleep are points where a thread can be cancelled. The C library has its own wait for that by a signal; for our sleep we
//! say the same: while a thread sleeps, and holds nothing, it may be unwound at any instruction. A program that
//! asked for that everywhere (`PTHREAD_CANCEL_ASYNCHRONOUS`) must not have it where we hold locks.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use posix::inside;

use crate::hooks::next;

const DEFERRED: c_int = 0;
const ASYNCHRONOUS: c_int = 1;

/// Whether any thread may be cancelled at any instruction of the program's own.
static ASYNCHRONOUS_SEEN: AtomicBool = AtomicBool::new(false);

thread_local! {
    static ASLEEP: Cell<bool> = const { Cell::new(false) };
}

/// Makes our sleep a point of cancellation.
pub(crate) fn register() {
    inside::on_sleep(sleep);
}

fn sleep(begins: bool) {
    ASLEEP.set(begins);
    set(if begins { ASYNCHRONOUS } else { DEFERRED });
}

/// Calls a signal handler, which is not the sleep that it interrupts, and may never return to it.
pub(crate) fn awake(handler: impl FnOnce()) {
    if !ASLEEP.get() {
        return handler();
    }
    sleep(false);
    handler();
    sleep(true);
}

/// # Safety
/// As pthread_setcanceltype(3).
pub(crate) unsafe fn set_type(kind: c_int, old: *mut c_int) -> c_int {
    if kind == ASYNCHRONOUS {
        ASYNCHRONOUS_SEEN.store(true, Ordering::Relaxed);
    }
    // SAFETY: as the caller says.
    unsafe { next::pthread_setcanceltype(kind, old) }
}

/// Keeps a thread from being cancelled at any instruction; [`after`] wants what this returns.
#[inline]
pub(crate) fn before() -> c_int {
    if ASYNCHRONOUS_SEEN.load(Ordering::Relaxed) { set(DEFERRED) } else { DEFERRED }
}

/// A thread leaves our code: it may be cancelled as before, and is, if that was asked for meanwhile.
#[inline]
pub(crate) fn after(kind: c_int) {
    if kind != DEFERRED {
        set(kind);
    }
}

/// Returns what was in force.
fn set(kind: c_int) -> c_int {
    let mut old = DEFERRED;
    // SAFETY: there is room for the old kind.
    unsafe { next::pthread_setcanceltype(kind, &mut old) };
    old
}
