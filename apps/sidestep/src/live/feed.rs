//! From a thread that gathers to the view: the newest value counts, and older ones that nobody took are forgotten.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

/// Both ends of it.
pub(crate) struct Feed<T>(Arc<Shared<T>>);

struct Shared<T> {
    newest: Mutex<Option<T>>,
    /// Readable when there is a value.
    bell: OwnedFd,
}

impl<T> Clone for Feed<T> {
    fn clone(&self) -> Feed<T> {
        Feed(Arc::clone(&self.0))
    }
}

impl<T> Feed<T> {
    /// An empty one.
    pub(crate) fn new() -> io::Result<Feed<T>> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Feed(Arc::new(Shared { newest: Mutex::new(None), bell })))
    }

    /// Puts a value in the place of the one before.
    pub(crate) fn put(&self, value: T) {
        *self.0.newest.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
        let _ = rustix::io::write(&self.0.bell, &1u64.to_ne_bytes()); // Fails only if it rings already.
    }

    /// The newest value, once.
    pub(crate) fn take(&self) -> Option<T> {
        let _ = rustix::io::read(&self.0.bell, &mut [0; 8]); // Fails only if it does not ring.
        self.0.newest.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Readable when there may be a value.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.0.bell.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_late_gets_the_newest_value_once() {
        let feed = Feed::new().unwrap();
        feed.put(1);
        feed.clone().put(2);
        assert_eq!((feed.take(), feed.take()), (Some(2), None));
        feed.put(3);
        assert_eq!(feed.take(), Some(3));
    }
}
