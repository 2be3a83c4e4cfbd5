//! Lines by their names, and which one stands in for which.

use std::net::IpAddr;
use std::sync::Arc;

use crate::table::{Found, LineId, LineTable};

/// A named class of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its name.
    pub name: Arc<str>,
    /// The line whose records its clients get where it has none of its own.
    pub fallback: Option<LineId>,
}

/// All lines, and which addresses belong to them.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    lines: Vec<Line>,
    table: LineTable,
}

impl Lines {
    /// These lines, which the table numbers in their order. No line falls back on itself, by way of others or not.
    pub fn new(lines: Vec<Line>, table: LineTable) -> Lines {
        Lines { lines, table }
    }

    /// The line of an address, and how many of its bits say so.
    #[inline(always)]
    pub fn find(&self, address: IpAddr) -> Found {
        self.table.find(address)
    }

    /// All lines, in the order of their numbers.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// A line, the one that it falls back on, and so on.
    pub fn chain(&self, line: LineId) -> impl Iterator<Item = (LineId, &Line)> {
        let of = |id: LineId| Some((id, self.lines.get(usize::from(id.0))?));
        // Bounded, should somebody have made a circle.
        std::iter::successors(of(line), move |(_, line)| of(line.fallback?)).take(self.lines.len())
    }

    /// Octets of memory of the table.
    pub fn memory(&self) -> usize {
        self.table.memory()
    }
}
