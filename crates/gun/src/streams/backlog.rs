//! Requests that are due while no connection is free.

use std::collections::VecDeque;

use clock::{Duration, Instant};

/// They are given up, the oldest first, when there are more.
const WAITING_MAX: usize = 1 << 17;

/// When the requests that wait were due, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Backlog(VecDeque<Instant>);

impl Backlog {
    /// The next request.
    pub(crate) fn push(&mut self, due: Instant) {
        if self.0.len() == WAITING_MAX {
            self.0.pop_front();
        }
        self.0.push_back(due);
    }

    /// A request that was sent, and that the server said it does not look at: it is the next one again.
    pub(crate) fn put_back(&mut self, due: Instant) {
        if self.0.len() < WAITING_MAX {
            self.0.push_front(due);
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Instant> {
        self.0.pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Gives up those that have waited for longer than `timeout`.
    pub(crate) fn expire(&mut self, now: Instant, timeout: Duration) {
        while self.0.front().is_some_and(|due| *due + timeout <= now) {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn who_has_waited_too_long_is_given_up_and_who_comes_back_is_next() {
        let mut backlog = Backlog::default();
        [10, 20, 30].map(at).into_iter().for_each(|due| backlog.push(due));
        backlog.expire(at(120), Duration::from_millis(100));
        assert_eq!(backlog.pop(), Some(at(30)));
        backlog.push(at(40));
        backlog.put_back(at(30));
        assert_eq!((backlog.len(), backlog.pop()), (2, Some(at(30))));
    }

    #[test]
    fn it_has_a_bound_and_the_oldest_go() {
        let mut backlog = Backlog::default();
        (0..=WAITING_MAX as u64).for_each(|due| backlog.push(at(due)));
        backlog.put_back(at(0));
        assert_eq!((backlog.len(), backlog.pop()), (WAITING_MAX, Some(at(1))));
    }
}
