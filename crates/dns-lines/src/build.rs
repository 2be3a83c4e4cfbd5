//! From prefixes to a table.

use std::net::IpAddr;

use thiserror::Error;

use crate::intervals::{Entry, Interval, intervals};
use crate::prefix::{Family, Prefix, mask};
use crate::table::{Found, Leaf};
use crate::table::{LineId, LineTable, Node, ROOT_BITS, STEP_BITS, Slot, Trie};

/// One prefix that two lines have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{prefix} is in two lines")]
pub struct TwoLines {
    /// The prefix.
    pub prefix: Prefix,
    /// The lines.
    pub lines: [LineId; 2],
}

/// Collects prefixes in any order.
#[derive(Debug, Default)]
pub struct LineTableBuilder {
    entries: Vec<Entry>,
}

impl LineTableBuilder {
    /// Adds a prefix of a line. Where prefixes of several ranks hold an address, the highest rank counts, and among its prefixes the longest.
    ///
    /// # Panics
    /// If the line is not below [`LineId::COUNT_MAX`].
    pub fn add(&mut self, prefix: Prefix, line: LineId, rank: u8) {
        assert!(line.0 < Leaf::NO_LINE, "lines are counted when they are named");
        self.entries.push(Entry { prefix, rank, line: line.0 });
    }

    /// How many were added.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none was added.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The prefix that decides about an address, with its line and rank. It looks at all of them: for explanations.
    pub fn deciding(&self, address: IpAddr) -> Option<(Prefix, LineId, u8)> {
        let holding = self.entries.iter().filter(|entry| entry.prefix.contains(address));
        let deciding = holding.max_by_key(|entry| (entry.rank, entry.prefix.length))?;
        Some((deciding.prefix, LineId(deciding.line), deciding.rank))
    }

    /// Ends the table.
    ///
    /// # Errors
    /// Two lines have the same prefix in the same rank.
    pub fn finish(mut self) -> Result<LineTable, TwoLines> {
        self.entries.sort_unstable_by_key(|entry| {
            (entry.prefix.family == Family::V6, entry.prefix.bits, entry.prefix.length, entry.rank)
        });
        let two = self.entries.windows(2).find(|pair| {
            let [one, other] = [pair[0], pair[1]];
            (one.prefix, one.rank) == (other.prefix, other.rank) && one.line != other.line
        });
        if let Some(pair) = two {
            return Err(TwoLines {
                prefix: pair[0].prefix,
                lines: [LineId(pair[0].line), LineId(pair[1].line)],
            });
        }
        let (v4, v6): (Vec<Entry>, Vec<Entry>) =
            self.entries.into_iter().partition(|entry| entry.prefix.family == Family::V4);
        Ok(LineTable { v4: trie(&v4, Family::V4), v6: trie(&v6, Family::V6) })
    }
}

impl Default for LineTable {
    /// Without any line.
    fn default() -> LineTable {
        LineTable { v4: trie(&[], Family::V4), v6: trie(&[], Family::V6) }
    }
}

impl Found {
    /// What is known without any line.
    pub const NOTHING: Found = Found { line: None, length: 0 };
}

fn trie(entries: &[Entry], family: Family) -> Trie {
    let intervals = intervals(entries, Leaf::NO_LINE);
    let mut compiler =
        Compiler { intervals: &intervals, width: family.width(), nodes: Vec::new(), leaves: Vec::new() };
    let mut at = 0;
    let places: Vec<Place> = (0..1u128 << ROOT_BITS)
        .map(|number| compiler.place(number << (128 - ROOT_BITS), ROOT_BITS, &mut at))
        .collect();
    let inner = places.iter().filter(|place| matches!(place, Place::Inner { .. })).count();
    let mut next = compiler.reserve(inner);
    let root = places.into_iter().map(|place| match place {
        Place::Leaf(leaf) => Slot(leaf.0),
        Place::Inner { first, at } => {
            compiler.fill(next, first, ROOT_BITS, at);
            next += 1;
            Slot(Slot::NODE | (next - 1))
        }
    });
    let root = root.collect();
    let Compiler { mut nodes, mut leaves, .. } = compiler;
    nodes.shrink_to_fit();
    leaves.shrink_to_fit();
    Trie { root, nodes, leaves }
}

/// What an ending of a node, or a beginning of 16 bits, becomes.
#[derive(Clone, Copy)]
enum Place {
    Leaf(Leaf),
    /// A node about the addresses from `first` on; the interval number `at` has the first one.
    Inner {
        first: u128,
        at: usize,
    },
}

struct Compiler<'i> {
    intervals: &'i [Interval],
    /// Bits of an address.
    width: u8,
    nodes: Vec<Node>,
    leaves: Vec<Leaf>,
}

impl Compiler<'_> {
    /// The place of the addresses with the first `length` bits of `first`. `at` is the interval that has the first of them, or one before, and
    /// becomes that.
    fn place(&self, first: u128, length: u8, at: &mut usize) -> Place {
        let last = first | !mask(length);
        while self.intervals[*at].end < first {
            *at += 1;
        }
        let interval = &self.intervals[*at];
        // The last step may go beyond the end of an address: there is nothing to tell apart there.
        if interval.end >= last || length >= self.width {
            return Place::Leaf(Leaf::new(interval.line, interval.shortest(first, length.min(self.width))));
        }
        Place::Inner { first, at: *at }
    }

    /// Makes room for nodes that lie one behind the other; returns the number of the first one.
    fn reserve(&mut self, count: usize) -> u32 {
        let first = self.nodes.len();
        self.nodes.resize(first + count, Node { inner: 0, runs: 0, first_node: 0, first_leaf: 0 });
        first as u32 // Fewer than 2^31: each takes an interval, of which memory holds fewer.
    }

    /// Fills a node about the addresses that begin with the first `length` bits of `first`.
    fn fill(&mut self, number: u32, first: u128, length: u8, mut at: usize) {
        let places: [Place; 64] = std::array::from_fn(|ending| {
            let shift = 128u8.checked_sub(length + STEP_BITS);
            let ending = shift.map_or(ending as u128 >> (length + STEP_BITS).saturating_sub(128), |shift| {
                (ending as u128) << shift
            });
            self.place(first | ending, (length + STEP_BITS).min(128), &mut at)
        });
        let is_inner = |place: &Place| matches!(place, Place::Inner { .. });
        let first_node = self.reserve(places.iter().filter(|place| is_inner(place)).count());
        let mut node = Node { inner: 0, runs: 0, first_node, first_leaf: self.leaves.len() as u32 };
        let mut last = None;
        for (ending, place) in places.iter().enumerate() {
            match place {
                Place::Inner { .. } => node.inner |= 1 << ending,
                Place::Leaf(leaf) if last == Some(*leaf) => {}
                Place::Leaf(leaf) => {
                    node.runs |= 1 << ending;
                    self.leaves.push(*leaf);
                    last = Some(*leaf);
                }
            }
        }
        self.nodes[number as usize] = node;
        let inner = places.iter().filter_map(|place| match place {
            Place::Inner { first, at } => Some((*first, *at)),
            Place::Leaf(_) => None,
        });
        for (child, (first, at)) in (first_node..).zip(inner) {
            self.fill(child, first, length + STEP_BITS, at);
        }
    }
}
