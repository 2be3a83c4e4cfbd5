//! From what `posix` answers to what C functions return.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use posix::Errno;
use posix::calls::Verdict;
use posix::inside::Inside;

use crate::calls::{cancel, fork};

/// What `posix` was asked: an error found on the way there is its answer.
pub(crate) type Asked<T> = Result<Verdict<T>, Errno>;

static ACTIVE: AtomicBool = AtomicBool::new(false);

/// Whether there is a broker; without one the library does nothing.
#[inline(always)]
pub(crate) fn active() -> bool {
    ACTIVE.load(Ordering::Relaxed)
}

/// From now on hooks ask `posix`.
pub(crate) fn activate() {
    ACTIVE.store(true, Ordering::Release);
}

/// From now on the library does nothing.
pub(crate) fn deactivate() {
    ACTIVE.store(false, Ordering::Release);
}

/// Whether `posix` is to be asked about a call on `fd`. Without a broker it has no descriptors.
#[inline(always)]
pub(crate) fn ours(fd: c_int) -> bool {
    crate::asked::is_ours(fd)
}

/// A type that C functions return.
pub(crate) trait Returned {
    /// What stands for an error, with errno saying which.
    const FAILED: Self;
}

impl Returned for c_int {
    const FAILED: c_int = -1;
}

impl Returned for isize {
    const FAILED: isize = -1;
}

impl Returned for *mut libc::FILE {
    const FAILED: *mut libc::FILE = std::ptr::null_mut();
}

impl Returned for () {
    const FAILED: () = ();
}

/// Asks `posix`; `None` if the C library's own function is to be called: for what is the kernel's, and for what our own code calls.
///
/// Errno changes only by an error that is returned. Signals that came meanwhile are handled before this returns.
#[inline(never)]
pub(crate) fn ask<T: Returned>(question: impl FnOnce() -> Asked<T>) -> Option<T> {
    let inside = Inside::enter()?;
    let errno = errno();
    let cancellation = cancel::before();
    let panics = EndOnPanic;
    let verdict = if fork::notice() { Ok(Verdict::Kernel) } else { question() };
    drop(panics);
    drop(inside);
    cancel::after(cancellation);
    let (errno, answer) = match verdict {
        Ok(Verdict::Kernel) => (errno, None),
        Ok(Verdict::Done(Ok(value))) => (errno, Some(value)),
        Ok(Verdict::Done(Err(error))) | Err(error) => (error.0, Some(T::FAILED)),
    };
    set_errno(errno);
    answer
}

/// Tells `posix` something that it has no answer to.
#[inline(never)]
pub(crate) fn tell(news: impl FnOnce()) {
    ask::<()>(|| {
        news();
        Ok(Verdict::Kernel)
    });
}

/// Ends the process if it is unwound by a panic: no frame of the program can be unwound by us. A thread that is cancelled may be.
struct EndOnPanic;

impl Drop for EndOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

pub(crate) fn errno() -> c_int {
    // SAFETY: the C library gives each thread a valid place.
    unsafe { *libc::__errno_location() }
}

pub(crate) fn set_errno(value: c_int) {
    // SAFETY: as above; nothing else refers to it while this writes.
    unsafe { *libc::__errno_location() = value }
}
