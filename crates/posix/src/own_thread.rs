//! Threads of our own in the program.

use crate::inside::Inside;

/// Signals that they block: the program's handlers are for its own threads. Not the two by which the C library reaches every thread
/// (nptl(7)): setuid(2) waits until each has had the second one.
pub(crate) const BLOCKED: u64 = !(1 << 31 | 1 << 32);

/// Starts one that is inside for as long as it runs; false if there can be none.
pub(crate) fn start(name: &str, stack_size: usize, body: impl FnOnce() + Send + 'static) -> bool {
    // A thread starts with its creator's signal mask.
    let before = syscall::set_signal_mask(BLOCKED);
    let started = std::thread::Builder::new().name(name.to_owned()).stack_size(stack_size).spawn(|| {
        let _inside = Inside::enter();
        body();
    });
    syscall::set_signal_mask(before);
    started.is_ok()
}
