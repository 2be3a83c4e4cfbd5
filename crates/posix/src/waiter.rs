//! A sleeping thread, and how it is woken.

use std::cell::RefCell;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use syscall::{PollFd, Timeout};

use crate::descriptors::fd_table::FdTable;
use crate::descriptors::internal::{self, Hidden};

/// One thread's wake-up. A thread that sleeps for nothing else sleeps on a word in memory: descriptors are the program's, and few.
#[derive(Debug, Default)]
pub(crate) struct Waiter {
    /// Readable when it is woken, while its thread sleeps on descriptors. Its thread closes it at its end, also if it was cancelled in its
    /// sleep and has left copies of this behind.
    event: Mutex<Option<Hidden>>,
    /// 1: it was woken, and has not looked yet. Changes under the lock of the process only.
    woken: AtomicU32,
    /// It was woken because something had come that its thread waits for.
    has_news: AtomicBool,
    /// Its thread has ended, perhaps while it slept: what still lists it waits in vain.
    gone: AtomicBool,
}

thread_local! {
    static WAITER: RefCell<Option<Own>> = const { RefCell::new(None) };
}

/// The thread's hold on its waiter.
struct Own(Arc<Waiter>);

impl Drop for Own {
    fn drop(&mut self) {
        self.0.gone.store(true, Ordering::Relaxed);
        self.0.event().take();
    }
}

impl Waiter {
    /// The calling thread's; `None` at the end of the thread.
    pub(crate) fn of_this_thread() -> Option<Arc<Waiter>> {
        let own = WAITER
            .try_with(|waiter| Arc::clone(&waiter.borrow_mut().get_or_insert_with(|| Own(Arc::default())).0));
        own.ok()
    }

    /// Called in a child, where the copy of the descriptor was closed by number.
    pub(crate) fn forget() {
        // At the end of a thread there is none.
        let _ = WAITER.try_with(|waiter| std::mem::forget(waiter.take()));
    }

    /// Whether it is that of the calling thread.
    pub(crate) fn is_own(&self) -> bool {
        let is_it = |own: &Own| std::ptr::eq(&raw const *own.0, self);
        WAITER.try_with(|waiter| waiter.borrow().as_ref().is_some_and(is_it)).unwrap_or(false)
    }

    /// Whether its thread has ended.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// A descriptor that is readable when it is woken, until it looks around; `None` if there is no free one.
    pub(crate) fn descriptor(&self, spare: &mut Spare, table: FdTable) -> Option<RawFd> {
        let mut event = self.event();
        *event = event.take().or_else(|| spare.take(table));
        event.as_ref().map(|event| event.get().as_raw_fd())
    }

    /// Sleeps until it is woken, without a descriptor.
    pub(crate) fn sleep(&self, timeout: &Timeout) -> std::io::Result<()> {
        syscall::futex_wait_within(&self.woken, 0, timeout)
    }

    /// Ends its sleep because something has come that it waits for.
    pub(crate) fn tell(&self) {
        self.has_news.store(true, Ordering::Relaxed);
        self.wake();
    }

    /// Ends its sleep: it is to look around.
    pub(crate) fn wake(&self) {
        if self.woken.swap(1, Ordering::Relaxed) == 1 {
            return;
        }
        match &*self.event() {
            // Only fails when the count is at its end: then it is awake.
            Some(event) => _ = syscall::write(event.get().as_raw_fd(), &1u64.to_ne_bytes()),
            None => syscall::futex_wake(&self.woken),
        }
    }

    /// It looks around, and gives its descriptor back; whether it was woken because something had come.
    pub(crate) fn settle(&self, spare: &mut Spare) -> bool {
        let was_woken = self.woken.swap(0, Ordering::Relaxed) == 1;
        if let Some(event) = self.event().take() {
            if was_woken {
                // Never blocks; what it reads, a count, does not matter.
                let _ = syscall::read(event.get().as_raw_fd(), &mut [0; 8]);
            }
            spare.give_back(event);
        }
        self.has_news.swap(false, Ordering::Relaxed)
    }

    fn event(&self) -> MutexGuard<'_, Option<Hidden>> {
        self.event.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Descriptors to be woken by, on which no thread sleeps at present: as many as have slept so at the same time.
#[derive(Default)]
pub(crate) struct Spare(Vec<Hidden>);

/// So many are kept in any case; beyond that, this part of all descriptors that the program may have.
const KEPT: usize = 4;
const KEPT_PART: u64 = 32;

impl Spare {
    fn take(&mut self, table: FdTable) -> Option<Hidden> {
        let make = || Some(Hidden::new(internal::raise(syscall::eventfd().ok()?)?, table));
        self.0.pop().or_else(make)
    }

    fn give_back(&mut self, event: Hidden) {
        let count = self.0.len();
        if count < KEPT || (count as u64) < syscall::descriptor_limit() / KEPT_PART {
            self.0.push(event);
        }
    }

    /// Closes all of them.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Takes one waiter out of a list.
pub(crate) fn remove(list: &mut Vec<Arc<Waiter>>, waiter: &Arc<Waiter>) {
    remove_one(list, |other| std::ptr::eq(other, &raw const **waiter));
}

/// Takes one out of which this is true.
pub(crate) fn remove_one(list: &mut Vec<Arc<Waiter>>, is_it: impl Fn(&Waiter) -> bool) {
    if let Some(at) = list.iter().position(|other| is_it(other)) {
        list.swap_remove(at);
    }
}

/// Threads whose calls use something.
#[derive(Default)]
pub(crate) struct Callers(pub(crate) Vec<Arc<Waiter>>);

impl Callers {
    /// Whether there are any but the calling thread.
    pub(crate) fn has_others(&self) -> bool {
        self.0.iter().any(|waiter| !waiter.is_gone() && !waiter.is_own())
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|waiter| waiter.is_gone())
    }

    /// In a child, which has none of these threads.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// To be told when `fd` is readable.
pub(crate) fn readable(fd: RawFd) -> PollFd {
    PollFd { fd, events: libc::POLLIN, revents: 0 }
}
