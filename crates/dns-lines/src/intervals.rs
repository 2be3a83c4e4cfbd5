//! From prefixes, some within others, to blocks of addresses that are alike.

use crate::prefix::{Prefix, mask};

/// A prefix of a line. Of two that hold for an address the one of the higher rank counts, then the longer one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) prefix: Prefix,
    pub(crate) rank: u8,
    pub(crate) line: u16,
}

impl Entry {
    fn end(&self) -> u128 {
        self.prefix.bits | !mask(self.prefix.length)
    }

    fn weight(&self) -> (u8, u8) {
        (self.rank, self.prefix.length)
    }
}

/// Addresses from a first to a last one that belong to a line. They cover all addresses, in order; neighbours differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interval {
    pub(crate) start: u128,
    pub(crate) end: u128,
    pub(crate) line: u16,
}

/// The intervals of entries of one family, which are sorted by their bits and then their length: what holds another prefix comes before it.
/// Addresses beyond all of them belong to `nowhere`.
pub(crate) fn intervals(entries: &[Entry], nowhere: u16) -> Vec<Interval> {
    let mut sweep = Sweep { done: Vec::with_capacity(entries.len()), next: Some(0) };
    // Whatever holds the place where the sweep is, with the entry that counts there. The last one ends first.
    let mut open: Vec<(u128, Entry)> = Vec::new();
    let line_of = |open: &[(u128, Entry)]| open.last().map_or(nowhere, |(_, counting)| counting.line);
    for entry in entries {
        while let Some(&(end, _)) = open.last().filter(|(end, _)| *end < entry.prefix.bits) {
            sweep.go_to(end, line_of(&open));
            open.pop();
        }
        if let Some(before) = entry.prefix.bits.checked_sub(1) {
            sweep.go_to(before, line_of(&open));
        }
        let counting = match open.last() {
            Some((_, outer)) if outer.weight() > entry.weight() => *outer,
            _ => *entry,
        };
        open.push((entry.end(), counting));
    }
    while let Some(&(end, _)) = open.last() {
        sweep.go_to(end, line_of(&open));
        open.pop();
    }
    sweep.go_to(u128::MAX, nowhere);
    sweep.done
}

struct Sweep {
    done: Vec<Interval>,
    /// The first address that is not done; `None` behind the last one.
    next: Option<u128>,
}

impl Sweep {
    /// All addresses up to `end` that are not done yet are of this line.
    fn go_to(&mut self, end: u128, line: u16) {
        let Some(start) = self.next.filter(|start| *start <= end) else { return };
        match self.done.last_mut() {
            Some(last) if last.line == line => last.end = end,
            _ => self.done.push(Interval { start, end, line }),
        }
        self.next = end.checked_add(1);
    }
}

impl Interval {
    /// Bits of the shortest prefix of `address`, which is in this interval, that lies within it. `length` bits do.
    pub(crate) fn shortest(&self, address: u128, length: u8) -> u8 {
        let fits = |length: u8| {
            let first = address & mask(length);
            first >= self.start && first | !mask(length) <= self.end
        };
        (0..length).rev().take_while(|shorter| fits(*shorter)).last().unwrap_or(length)
    }
}
