//! Books of processes that are gone: see `farewells.rs`.

use super::helpers::Theirs;
use crate::registry::Bound;

/// Where a process had claims, and whose sockets those were.
pub(super) type Places = Vec<(Bound, u32)>;

/// Those whose peers have yet to be told.
#[derive(Default)]
pub(super) struct BooksLeft {
    due: Vec<(Theirs, Places)>,
    /// How many helpers work on.
    pub(super) under_way: usize,
}

impl BooksLeft {
    /// A process is gone that had claims there: it could speak for nobody else.
    pub(super) fn add(&mut self, book: Theirs, places: Places) {
        self.due.push((book, places));
    }

    pub(super) fn is_due(&self) -> bool {
        !self.due.is_empty()
    }

    pub(super) fn take_due(&mut self) -> Vec<(Theirs, Places)> {
        std::mem::take(&mut self.due)
    }
}
