//! A thread that sleeps, and how it is woken.

use std::cell::RefCell;
use std::os::fd::{AsRawFd, IntoRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::fd_table::{Entry, FdTable};
use crate::internal;

/// One thread's wake-up.
#[derive(Debug)]
pub(crate) struct Waiter {
    /// Closed by ourselves: the thread may be at its end, outside of our code, where the C library's functions do not know it.
    event: RawFd,
    table: FdTable,
    /// It was woken, and has not looked yet. Changes under the lock of the process only.
    woken: AtomicBool,
}

thread_local! {
    static WAITER: RefCell<Option<Arc<Waiter>>> = const { RefCell::new(None) };
}

impl Waiter {
    /// That of the calling thread; `None` for want of descriptors.
    pub(crate) fn of_this_thread(table: FdTable) -> Option<Arc<Waiter>> {
        WAITER.with_borrow_mut(|waiter| {
            if waiter.is_none() {
                let event = internal::raise(syscall::eventfd().ok()?)?;
                table.set(event.as_raw_fd(), Entry::Internal);
                let event = event.into_raw_fd();
                *waiter = Some(Arc::new(Waiter { event, table, woken: AtomicBool::new(false) }));
            }
            waiter.clone()
        })
    }

    /// In a child: the parent's descriptors are not ours to write to.
    pub(crate) fn forget_all() {
        // The descriptor is shared with the parent's thread: it must be let go of, which dropping does.
        WAITER.with_borrow_mut(|waiter| *waiter = None);
    }

    /// Readable when it was woken.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.event
    }

    /// Ends its sleep.
    pub(crate) fn wake(&self) {
        if !self.woken.swap(true, Ordering::Relaxed) {
            // Only fails when the count is at its end: then it is awake.
            let _ = syscall::write(self.event, &1u64.to_ne_bytes());
        }
    }

    /// It looks around.
    pub(crate) fn settle(&self) {
        if self.woken.swap(false, Ordering::Relaxed) {
            // Never blocks; what it reads, a count, does not matter.
            let _ = syscall::read(self.event, &mut [0; 8]);
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.table.set(self.event, Entry::None);
        let _ = syscall::close(self.event); // It is open: nothing to fail.
    }
}

/// Takes one waiter out of a list.
pub(crate) fn remove(list: &mut Vec<Arc<Waiter>>, waiter: &Arc<Waiter>) {
    if let Some(at) = list.iter().position(|other| Arc::ptr_eq(other, waiter)) {
        list.swap_remove(at);
    }
}
