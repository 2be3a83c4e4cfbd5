//! Threads of our own in the program.

use std::sync::OnceLock;
use std::thread::JoinHandle;

use crate::inside::Inside;

/// Signals that they block: the program's handlers are for its own threads. Not the two by which the C library reaches every thread
/// (nptl(7)): setuid(2) waits until each has had the second one.
pub(crate) const BLOCKED: u64 = !(1 << 31 | 1 << 32);

/// One that runs, or has.
pub(crate) struct OwnThread(JoinHandle<i32>);

/// Octets of stack that they have. Memory is taken as far as it is used.
const STACK: usize = 256 << 10;

/// What the C library takes out of that: the program's thread-local variables, 43 KB in haproxy.
static THREAD_LOCALS: OnceLock<usize> = OnceLock::new();

/// The program starts. Later the C library's lock on what is loaded may be held by a thread that waits for ours.
pub(crate) fn note_start() {
    THREAD_LOCALS.get_or_init(syscall::thread_local_len);
}

/// Starts one that is inside for as long as it runs; `None` if there can be none.
pub(crate) fn start(name: &str, body: impl FnOnce() + Send + 'static) -> Option<OwnThread> {
    let stack_size = STACK + THREAD_LOCALS.get().copied().unwrap_or(0);
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::hint::black_box;

    use super::*;

    const LARGE: usize = 200 << 10;

    thread_local! {
        static OF_PROGRAM: Cell<[u8; LARGE]> = const { Cell::new([0; LARGE]) };
    }

    #[test]
    fn the_programs_thread_local_variables_leave_our_threads_their_stack() {
        note_start();
        assert!(syscall::thread_local_len() >= LARGE);
        let thread = start("stack", || {
            OF_PROGRAM.with(|own| black_box(own).as_ptr());
            black_box([1u8; STACK / 2]);
        });
        thread.expect("there is memory for it").join();
    }
}
