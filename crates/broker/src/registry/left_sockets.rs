//! Sockets that the kernel serves for all who have them, as one of these found that it does so better.

use std::collections::VecDeque;

/// So many are known; a process that claims one that is forgotten may find the same anew.
const KNOWN_MAX: usize = 1024;

/// The kernel's numbers of such sockets, which it never uses again; the latest last.
#[derive(Debug, Default)]
pub(super) struct LeftSockets(VecDeque<u64>);

impl LeftSockets {
    pub(super) fn insert(&mut self, cookie: u64) {
        if self.contains(cookie) {
            return;
        }
        if self.0.len() == KNOWN_MAX {
            self.0.pop_front();
        }
        self.0.push_back(cookie);
    }

    pub(super) fn contains(&self, cookie: u64) -> bool {
        self.0.contains(&cookie)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_known() {
        let mut left = LeftSockets::default();
        (0..=KNOWN_MAX as u64).chain([5]).for_each(|cookie| left.insert(cookie));
        assert!(!left.contains(0) && left.contains(1) && left.contains(KNOWN_MAX as u64));
        assert_eq!(left.0.len(), KNOWN_MAX);
    }
}
