//! Forking.
//!
//! fork(2) needs no hook: the C library calls the handlers of pthread_atfork(3) around it, wherever it is called from. vfork(2) becomes
//! fork(2), in `trampolines`, and so does a clone(2) that does the same: a child that shares our memory would change the parent's
//! descriptors with its own. A clone(2) without common memory is a fork(2) whose child may start elsewhere. [`notice`] detects a child
//! that was made bypassing all hooks, by a page that the kernel clears in children.

use std::cell::Cell;
use std::ffi::{c_int, c_long, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use crate::asked;
use posix::inside::Inside;

use crate::answer::{active, deactivate, errno, set_errno};
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
    // SAFETY: it has no arguments.
    forked(|| unsafe { next::_Fork() }.into()) as c_int
}

/// What makes a child that goes on as a copy of this thread, with what is due around a fork. Returns what `make` does.
pub(crate) fn forked(make: impl FnOnce() -> c_long) -> c_long {
    before();
    let pid = make();
    if pid == 0 {
        in_child()
    } else {
        in_parent()
    }
    pid
}

/// What a child of clone(2) is to do.
struct Beginning {
    function: extern "C-unwind" fn(*mut c_void) -> c_int,
    argument: *mut c_void,
}

/// # Safety
/// As clone(2).
pub(crate) unsafe fn clone(
    function: *mut c_void,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent: *mut c_void,
    tls: *mut c_void,
    child: *mut c_void,
) -> c_int {
    let flags = with_own_memory(flags);
    if function.is_null() || !is_fork(flags.into()) {
        // SAFETY: as the caller says.
        return unsafe { next::clone(function, stack, flags, argument, parent, tls, child) };
    }
    // SAFETY: not null, so it is a function of this type.
    let function =
        unsafe { std::mem::transmute::<*mut c_void, extern "C-unwind" fn(*mut c_void) -> c_int>(function) };
    let mut beginning = Beginning { function, argument };
    let (begin, at) = (begin as *mut c_void, (&raw mut beginning).cast());
    before();
    // SAFETY: as the caller says; the child finds `beginning` in its copy of our memory.
    let pid = unsafe { next::clone(begin, stack, flags, at, parent, tls, child) };
    let errno = errno();
    in_parent(); // The child begins elsewhere.
    set_errno(errno);
    pid
}

/// The child's first function.
extern "C-unwind" fn begin(beginning: *mut c_void) -> c_int {
    in_child();
    // SAFETY: the parent's, of whose memory this is a copy.
    let Beginning { function, argument } = unsafe { beginning.cast::<Beginning>().read() };
    function(argument)
}

/// Whether flags of clone(2) make a child that has memory, descriptors and thread-local variables of its own, copies of ours.
pub(crate) fn is_fork(flags: c_long) -> bool {
    flags & c_long::from(libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_SETTLS) == 0
}

/// The flags of clone(2) without those that make it a vfork(2). Threads are not made here.
fn with_own_memory(flags: c_int) -> c_int {
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
