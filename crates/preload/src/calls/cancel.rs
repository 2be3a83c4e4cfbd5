//! Cancelled threads (pthread_cancel(3)). `posix::inside` decides when a thread may be cancelled; this is how.

use std::ffi::c_int;

use libc::pthread_t;
use posix::inside::{self, Cancellation};

use crate::answer::tell;
use crate::asked;
use crate::hooks::next;

// pthread.h
const PTHREAD_CANCEL_ENABLE: c_int = 0;
const PTHREAD_CANCEL_DISABLE: c_int = 1;
const PTHREAD_CANCEL_DEFERRED: c_int = 0;
const PTHREAD_CANCEL_ASYNCHRONOUS: c_int = 1;

unwound!(pthread);

/// Tells `posix` how the C library cancels.
pub(crate) fn register() {
    inside::cancel_by(Cancellation { enable, set_asynchronous, test });
}

fn enable(enable: bool) -> bool {
    let state = if enable { PTHREAD_CANCEL_ENABLE } else { PTHREAD_CANCEL_DISABLE };
    let mut old = PTHREAD_CANCEL_ENABLE;
    // SAFETY: there is room for the old state.
    unsafe { pthread_setcancelstate(state, &mut old) };
    old == PTHREAD_CANCEL_ENABLE
}

fn set_asynchronous(asynchronous: bool) -> bool {
    let kind = if asynchronous { PTHREAD_CANCEL_ASYNCHRONOUS } else { PTHREAD_CANCEL_DEFERRED };
    let mut old = PTHREAD_CANCEL_DEFERRED;
    // SAFETY: there is room for the old type.
    unsafe { next::pthread_setcanceltype(kind, &mut old) };
    old == PTHREAD_CANCEL_ASYNCHRONOUS
}

fn test() {
    // SAFETY: no memory is involved.
    unsafe { pthread_testcancel() }
}

/// Has a call that is `ours` begin with a cancellation point, as the C library's own function would.
#[inline(always)]
pub(crate) fn point(ours: bool) -> bool {
    if ours {
        inside::cancellation_point();
    }
    ours
}

/// # Safety
/// As pthread_cancel(3).
pub(crate) unsafe fn cancel(thread: pthread_t) -> c_int {
    tell(asked::before_cancel);
    // SAFETY: as the caller says.
    unsafe { next::pthread_cancel(thread) }
}

/// A thread with the asynchronous type would end anywhere in our code if it were not shielded by the time it is cancelled.
///
/// # Safety
/// As pthread_setcanceltype(3).
pub(crate) unsafe fn set_type(kind: c_int, old: *mut c_int) -> c_int {
    if kind == PTHREAD_CANCEL_ASYNCHRONOUS {
        tell(asked::before_cancel);
    }
    // SAFETY: as the caller says.
    unsafe { next::pthread_setcanceltype(kind, old) }
}
