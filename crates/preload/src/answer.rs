//! Converts `posix`'s answers into the return values of C functions.

use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use posix::Errno;
use posix::calls::Verdict;
use posix::inside::Inside;

use crate::calls::fork;

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

/// Whether to ask `posix` about a call on `fd`. Without a broker it has no descriptors.
#[inline(always)]
pub(crate) fn ours(fd: c_int) -> bool {
    crate::asked::is_ours(fd)
}

/// Whether `posix` is to be asked about a wait at the epoll instance `epfd`: not if there is nothing of ours, and no other thread that
/// could bring it there.
#[inline(always)]
pub(crate) fn waits_here(epfd: c_int) -> bool {
    ours(epfd) && !(crate::asked::is_idle_epoll(epfd) && alone())
}

static SINGLE_THREADED: AtomicPtr<c_char> = AtomicPtr::new(std::ptr::null_mut());

/// Looks for what the C library knows of threads.
pub(crate) fn find_threads() {
    // SAFETY: the name ends with a zero.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()) };
    SINGLE_THREADED.store(found.cast(), Ordering::Relaxed);
    posix::inside::tell_alone_by(alone);
}

/// Whether this process has one thread only; false if the C library does not tell.
#[inline(always)]
pub(crate) fn alone() -> bool {
    let known = SINGLE_THREADED.load(Ordering::Relaxed);
    // SAFETY: not null: the C library's variable of this name, a char that lives as long as the process. Other threads, which might
    // write it, there are none while it is true.
    !known.is_null() && unsafe { known.read_volatile() } != 0
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

/// Asks `posix`. `None` means that the C library's own function must be called: for the kernel's descriptors, and for calls of our own
/// code.
///
/// Errno changes only by an error that is returned. Signals that came meanwhile are handled before this returns.
#[inline(never)]
pub(crate) fn ask<T: Returned>(question: impl FnOnce() -> Asked<T>) -> Option<T> {
    let inside = Inside::enter()?;
    let errno = errno();
    let panics = EndOnPanic;
    let verdict = if fork::notice() { Ok(Verdict::Kernel) } else { question() };
    drop(panics);
    drop(inside);
    let (errno, answer) = match verdict {
        Ok(Verdict::Kernel) => (errno, None),
        Ok(Verdict::Done(Ok(value))) => (errno, Some(value)),
        Ok(Verdict::Done(Err(error))) | Err(error) => (error.0, Some(T::FAILED)),
    };
    set_errno(errno);
    answer
}

/// Tells `posix` something that it has no answer to. A process that was given up, being a copy that nobody announced, has nothing
/// of what `posix` knows of its parent: not even its end is told.
#[inline(never)]
pub(crate) fn tell(news: impl FnOnce()) {
    if !active() {
        return;
    }
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
