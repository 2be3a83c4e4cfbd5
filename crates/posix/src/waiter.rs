//! A sleeping thread, and how it is woken.

use std::cell::RefCell;
use std::os::fd::{AsRawFd, IntoRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use syscall::PollFd;

use crate::descriptors::fd_table::{Entry, FdTable};
use crate::descriptors::internal;

/// One thread's wake-up.
#[derive(Debug)]
pub(crate) struct Waiter {
    /// Its thread closes it at its end, also if it was cancelled in its sleep and has left copies of this behind.
    event: RawFd,
    is_closed: Mutex<bool>,
    table: FdTable,
    /// It was woken, and has not looked yet. Changes under the lock of the process only.
    woken: AtomicBool,
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
        let waiter = &self.0;
        waiter.gone.store(true, Ordering::Relaxed);
        let mut is_closed = waiter.is_closed.lock().unwrap_or_else(PoisonError::into_inner);
        waiter.table.set(waiter.event, Entry::None);
        let _ = syscall::close(waiter.event); // It is open: nothing to fail.
        *is_closed = true;
    }
}

impl Waiter {
    /// The calling thread's; `None` if there is no free descriptor, and at the end of the thread.
    pub(crate) fn of_this_thread(table: FdTable) -> Option<Arc<Waiter>> {
        let own = WAITER.try_with(|waiter| {
            let mut waiter = waiter.borrow_mut();
            if waiter.is_none() {
                let event = internal::raise(syscall::eventfd().ok()?)?;
                table.set(event.as_raw_fd(), Entry::Internal);
                let event = event.into_raw_fd();
                let [woken, has_news, gone] = [const { AtomicBool::new(false) }; 3];
                let is_closed = Mutex::new(false);
                *waiter = Some(Own(Arc::new(Waiter { event, is_closed, table, woken, has_news, gone })));
            }
            waiter.as_ref().map(|own| Arc::clone(&own.0))
        });
        own.ok().flatten()
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

    /// Readable when it was woken.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.event
    }

    /// Ends its sleep because something has come that it waits for.
    pub(crate) fn tell(&self) {
        self.has_news.store(true, Ordering::Relaxed);
        self.wake();
    }

    /// Ends its sleep: it is to look around.
    pub(crate) fn wake(&self) {
        if self.woken.swap(true, Ordering::Relaxed) {
            return;
        }
        let is_closed = self.is_closed.lock().unwrap_or_else(PoisonError::into_inner);
        if !*is_closed {
            // Only fails when the count is at its end: then it is awake.
            let _ = syscall::write(self.event, &1u64.to_ne_bytes());
        }
    }

    /// It looks around; whether it was woken because something had come.
    pub(crate) fn settle(&self) -> bool {
        if self.woken.swap(false, Ordering::Relaxed) {
            // Never blocks; what it reads, a count, does not matter.
            let _ = syscall::read(self.event, &mut [0; 8]);
        }
        self.has_news.swap(false, Ordering::Relaxed)
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
