//! Waking an engine that sleeps, at the price of one load while it is awake.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use rustix::event::{EventfdFlags, eventfd};

struct Shared {
    is_asleep: AtomicBool,
    event: OwnedFd,
}

/// The side of who sleeps.
pub(crate) struct Bell {
    shared: Arc<Shared>,
    /// [`Bell::arm`] was called since the last [`Bell::disarm`].
    is_armed: bool,
}

/// The side of who wakes. Any thread may have one.
#[derive(Clone)]
pub(crate) struct Ringer(Arc<Shared>);

impl Bell {
    /// Fails for want of descriptors.
    pub(crate) fn new() -> io::Result<Bell> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(Shared { is_asleep: AtomicBool::new(false), event });
        Ok(Bell { shared, is_armed: false })
    }

    pub(crate) fn ringer(&self) -> Ringer {
        Ringer(Arc::clone(&self.shared))
    }

    /// Becomes readable when somebody rings after [`Bell::arm`].
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.shared.event.as_fd()
    }

    /// From here on a ring is heard. Look at the rings *after* this: what came before it was not told of.
    pub(crate) fn arm(&mut self) {
        self.is_armed = true;
        self.shared.is_asleep.store(true, Ordering::Relaxed);
        // Pairs with the fence in `Ringer::ring`: either that sees us asleep, or we see what it put into the ring.
        fence(Ordering::SeqCst);
    }

    /// The sleeper is awake, and looks at the rings without being told.
    pub(crate) fn disarm(&mut self) {
        if std::mem::take(&mut self.is_armed) {
            self.shared.is_asleep.store(false, Ordering::Relaxed);
            // Whether or not somebody rang: a ring that was late for the last sleep would end each of the next ones. It never blocks.
            let _ = rustix::io::read(&self.shared.event, &mut [0; 8]);
        }
    }
}

impl Ringer {
    /// Wakes the other side if it sleeps. Call it behind what there is to see.
    pub(crate) fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.0.is_asleep.load(Ordering::Relaxed) && self.0.is_asleep.swap(false, Ordering::Relaxed) {
            let _ = rustix::io::write(&self.0.event, &1u64.to_ne_bytes()); // Only fails if it is to wake already.
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn is_readable(bell: &Bell) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(bell.fd(), PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    }

    #[test]
    fn it_is_heard_only_by_who_sleeps_and_once_for_each_sleep() {
        let mut bell = Bell::new().unwrap();
        let ringer = bell.ringer();
        ringer.ring();
        assert!(!is_readable(&bell), "nobody sleeps");
        for _ in 0..2 {
            bell.arm();
            assert!(!is_readable(&bell));
            ringer.ring();
            ringer.ring();
            assert!(is_readable(&bell));
            bell.disarm();
            assert!(!is_readable(&bell), "the next sleep begins in silence");
        }
        bell.arm();
        bell.disarm();
        ringer.ring();
        assert!(!is_readable(&bell), "who woke by itself is not rung for");
    }
}
