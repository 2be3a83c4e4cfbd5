//! The look-up: a few reads of memory an address, however many prefixes there are.

use std::net::IpAddr;

use crate::prefix::{Family, bits_of};

/// Numbers a line, in the order in which the lines were named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineId(pub u16);

impl LineId {
    /// Lines that there can be.
    pub const COUNT_MAX: usize = 0xffff;
}

/// What a table says of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its line, if it belongs to one.
    pub line: Option<LineId>,
    /// Bits of the shortest prefix of the address whose addresses all belong to the same line, or all to none.
    pub length: u8,
}

/// From addresses to lines. Immutable.
///
/// A trie with a first step of 16 bits and others of 6, whose nodes count bits to find their children ("Poptrie", 2015). What a prefix has
/// within itself is taken into account: the leaf that an address leads to is as large as the block of addresses that are alike.
#[derive(Clone, Debug)]
pub struct LineTable {
    pub(crate) v4: Trie,
    pub(crate) v6: Trie,
}

/// The addresses of one family.
#[derive(Clone, Debug)]
pub(crate) struct Trie {
    /// By the first 16 bits.
    pub(crate) root: Box<[Slot]>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) leaves: Vec<Leaf>,
}

/// A leaf, or the number of a node behind [`Slot::NODE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(pub(crate) u32);

impl Slot {
    pub(crate) const NODE: u32 = 1 << 31;
}

/// A line, or [`Leaf::NO_LINE`], and eight bits of length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leaf(pub(crate) u32);

impl Leaf {
    pub(crate) const NO_LINE: u16 = 0xffff;

    pub(crate) fn new(line: u16, length: u8) -> Leaf {
        Leaf(u32::from(line) << 8 | u32::from(length))
    }

    #[inline(always)]
    fn found(self) -> Found {
        let line = (self.0 >> 8) as u16;
        Found { line: (line != Leaf::NO_LINE).then_some(LineId(line)), length: self.0 as u8 }
    }
}

/// Bits of the first step, and of all others.
pub(crate) const ROOT_BITS: u8 = 16;
pub(crate) const STEP_BITS: u8 = 6;

/// What 64 endings lead to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    /// Those that lead to another node. They are numbered from `first_node` on.
    pub(crate) inner: u64,
    /// Those where a run of equal leaves begins. They are numbered from `first_leaf` on.
    pub(crate) runs: u64,
    pub(crate) first_node: u32,
    pub(crate) first_leaf: u32,
}

impl Trie {
    #[inline(always)]
    fn find(&self, bits: u128) -> Leaf {
        let slot = self.root[(bits >> (128 - ROOT_BITS)) as usize].0;
        if slot & Slot::NODE == 0 {
            return Leaf(slot);
        }
        let (mut rest, mut number) = (bits << ROOT_BITS, slot & !Slot::NODE);
        loop {
            let node = &self.nodes[number as usize];
            let ending = (rest >> (128 - STEP_BITS)) as u32;
            let up_to = u64::MAX >> (63 - ending);
            if node.inner >> ending & 1 == 0 {
                let before = (node.runs & up_to).count_ones();
                return self.leaves[(node.first_leaf + before - 1) as usize];
            }
            number = node.first_node + (node.inner & up_to).count_ones() - 1;
            rest <<= STEP_BITS;
        }
    }

    fn memory(&self) -> usize {
        size_of_val(&*self.root)
            + self.nodes.capacity() * size_of::<Node>()
            + self.leaves.capacity() * size_of::<Leaf>()
    }
}

impl LineTable {
    /// The line of an address. IPv6 addresses that stand for IPv4 are taken for those.
    #[inline(always)]
    pub fn find(&self, address: IpAddr) -> Found {
        let (family, bits) = bits_of(address);
        let trie = if family == Family::V4 { &self.v4 } else { &self.v6 };
        trie.find(bits).found()
    }

    /// Octets of memory.
    pub fn memory(&self) -> usize {
        self.v4.memory() + self.v6.memory()
    }
}
