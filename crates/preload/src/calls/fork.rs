//! Processes that become two.
//!
//! fork(2) needs no hook: the C library calls the handlers of pthread_atfork(3) around it, wherever it is called from. vfork(2) becomes
//! fork(2), in `trampolines`, and so does a clone(2) that is one: a child that shares our memory would change the parent's descriptors
//! with its own. A child that was made by clone(2) without the C library's fork, [`notice`] tells by a page that the kernel cleared.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use crate::asked;
use posix::inside::Inside;

use crate::answer::{active, deactivate};
use crate::hooks::next;

thread_local! {
    /// The thread that forks is inside from before to after: its signal handlers would find all locks taken.
    static FORKING: Cell<Option<Inside>> = const { Cell::new(None) };
}

/// One octet on a page that a child finds empty (`MADV_WIPEONFORK`).
static MARK: AtomicPtr<AtomicU8> = AtomicPtr::new(std::ptr::null_mut());

/// Makes forks known to `posix`, of whatever kind they are.
pub(crate) fn register() {
    place_mark();
    // SAFETY: the handlers are functions of this library, which is never unloaded.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

/// _Fork(3): fork(2) without handlers, so they are called here.
pub(crate) fn plain_fork() -> c_int {
    before();
    // SAFETY: it has no arguments.
    let pid = unsafe { next::_Fork() };
    if pid == 0 {
        in_child()
    } else {
        in_parent()
    }
    pid
}

/// The flags of clone(2) without those that make it a vfork(2). Threads are not made here.
pub(crate) fn with_own_memory(flags: c_int) -> c_int {
    const VFORK: c_int = libc::CLONE_VM | libc::CLONE_VFORK;
    if flags & VFORK == VFORK { flags & !VFORK } else { flags }
}

/// Whether this process was forked in a way that no handler saw: maybe while another thread was in the middle of something. `posix` lets
/// go of all, and from then on the process is the kernel's.
#[inline]
pub(crate) fn notice() -> bool {
    // SAFETY: null, or the page that is never unmapped.
    let mark = unsafe { MARK.load(Ordering::Relaxed).as_ref() };
    let unseen = mark.is_some_and(|mark| mark.load(Ordering::Relaxed) == 0);
    if unseen {
        asked::after_fork_in_child();
        deactivate();
        set_mark();
    }
    unseen
}

extern "C" fn before() {
    let inside = if active() { Inside::enter() } else { None };
    if inside.is_some() && !notice() {
        asked::before_fork();
        // At the end of a thread nothing is kept: then the child finds out by the mark.
        let _ = FORKING.try_with(|forking| forking.set(inside));
    }
}

extern "C" fn in_parent() {
    if let Ok(Some(_inside)) = FORKING.try_with(Cell::take) {
        asked::after_fork_in_parent();
    }
}

extern "C" fn in_child() {
    if let Ok(Some(_inside)) = FORKING.try_with(Cell::take) {
        asked::after_fork_in_child();
        set_mark();
    }
}

fn place_mark() {
    const LEN: usize = 4096;
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address of the kernel's choice.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), LEN, protection, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return;
    }
    // SAFETY: the page is ours; a kernel that cannot wipe it says so, and then there is no mark.
    if unsafe { libc::madvise(page, LEN, libc::MADV_WIPEONFORK) } == 0 {
        MARK.store(page.cast(), Ordering::Relaxed);
        set_mark();
    }
}

fn set_mark() {
    // SAFETY: null, or the page that is never unmapped.
    if let Some(mark) = unsafe { MARK.load(Ordering::Relaxed).as_ref() } {
        mark.store(1, Ordering::Relaxed);
    }
}
