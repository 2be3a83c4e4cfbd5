//! Threads of our own in the program.

use std::thread::JoinHandle;

use crate::inside::Inside;

/// Signals that they block: the program's handlers are for its own threads. Not the two by which the C library reaches every thread
/// (nptl(7)): setuid(2) waits until each has had the second one.
pub(crate) const BLOCKED: u64 = !(1 << 31 | 1 << 32);

/// One that runs, or has.
pub(crate) struct OwnThread(JoinHandle<i32>);

/// Starts one that is inside for as long as it runs; `None` if there can be none.
pub(crate) fn start(
    name: &str,
    stack_size: usize,
    body: impl FnOnce() + Send + 'static,
) -> Option<OwnThread> {
    // A thread starts with its creator's signal mask.
    let before = syscall::set_signal_mask(BLOCKED);
    let started = std::thread::Builder::new().name(name.to_owned()).stack_size(stack_size).spawn(|| {
        let _inside = Inside::enter();
        body();
        syscall::thread_id()
    });
    syscall::set_signal_mask(before);
    started.ok().map(OwnThread)
}

impl OwnThread {
    /// Waits for one that is about to end, until the kernel does not count it any more.
    pub(crate) fn join(self) {
        let Ok(id) = self.0.join() else { return };
        while syscall::has_thread(id) {
            std::thread::yield_now();
        }
    }
}
