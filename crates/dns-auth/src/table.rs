//! Precompiled answers: from (name, type) to the octets that follow the question.

use dns_wire::fold;
use dns_zone::index::{Index, Probe};

/// Answers of one zone version that depend on nothing else.
///
/// ```text
///   entry:  0  length of the body          u16, little endian as all here
///           2  type                        u16
///           4  ANCOUNT, NSCOUNT, ARCOUNT   3 x u16
///          10  length of the name          u8
///          11  flags                       u8
///          12  name, in lower case
///              body
/// ```
///
/// Entries begin at multiples of eight octets; the index numbers them in that unit. Pointers in a body point into the
/// question or into the body itself, which always stands behind a question with this very name.
#[derive(Debug, Default)]
pub struct AnswerTable {
    index: Index,
    entries: Vec<u8>,
    seed: u64,
}

const HEAD: usize = 12;
const UNIT: usize = 8;

/// What an entry needs to be used.
pub mod flag {
    /// The body points into the question: the question must be spelled as the entry, in lower case.
    pub const SPELLED: u8 = 1;
    /// The answer follows a CNAME: another zone below this one could have a say.
    pub const CHAINED: u8 = 2;
    /// The body is ANCOUNT records that may change places.
    pub const ROTATABLE: u8 = 4;
}

/// One precompiled answer.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// ANCOUNT, NSCOUNT, ARCOUNT without OPT.
    pub counts: [u16; 3],
    /// See [`flag`].
    pub flags: u8,
    /// The question's name, in lower case.
    pub name: &'a [u8],
    /// What follows the question.
    pub body: &'a [u8],
}

impl AnswerTable {
    /// A table for `count` entries of `octets` altogether, about.
    pub fn with_capacity(count: usize, octets: usize, seed: u64) -> AnswerTable {
        AnswerTable { index: Index::with_capacity(count), entries: Vec::with_capacity(octets), seed }
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Octets of memory.
    pub fn memory(&self) -> usize {
        self.index.memory() + self.entries.capacity()
    }

    /// Adds an entry that is not there yet; `entry.name` is in lower case. Does nothing when the table is full, at 32 GiB, or
    /// the body longer than a message: such answers are made from the tree.
    pub fn insert(&mut self, rtype: u16, entry: Entry<'_>) {
        let (Ok(number), Ok(body_len)) =
            (u32::try_from(self.entries.len() / UNIT), u16::try_from(entry.body.len()))
        else {
            return;
        };
        if number == u32::MAX {
            return;
        }
        let [answer, authority, additional] = entry.counts;
        for field in [body_len, rtype, answer, authority, additional] {
            self.entries.extend_from_slice(&field.to_le_bytes());
        }
        self.entries.extend_from_slice(&[entry.name.len() as u8, entry.flags]);
        self.entries.extend_from_slice(entry.name);
        self.entries.extend_from_slice(entry.body);
        self.entries.resize(self.entries.len().next_multiple_of(UNIT), 0);
        self.index.insert(self.hash(entry.name, rtype), number);
    }

    /// Gives unused memory back.
    pub fn shrink(&mut self) {
        self.entries.shrink_to_fit();
    }

    /// The hash that the other functions want.
    #[inline(always)]
    pub fn hash(&self, name: &[u8], rtype: u16) -> u64 {
        fold::hash_with_type(fold::hash_name(name, self.seed), rtype)
    }

    /// Loads the index's slot for `hash`: the first of two loads that miss the cache when a zone is large. The loads of a
    /// batch run side by side when they are done for all of it first.
    #[inline(always)]
    pub fn fetch_slot(&self, hash: u64) -> u64 {
        self.index.touch(self.index.home(hash))
    }

    /// Loads the entry that [`AnswerTable::fetch_slot`] led to: the second.
    #[inline(always)]
    pub fn fetch_entry(&self, slot: u64) -> u8 {
        let at = (slot as u32).wrapping_sub(1) as usize * UNIT;
        self.entries.get(at).copied().unwrap_or(0)
    }

    /// The answer for `name`, in any case, and `rtype`.
    #[inline(always)]
    pub fn find(&self, hash: u64, name: &[u8], rtype: u16) -> Option<Entry<'_>> {
        let mut probe: Probe = self.index.home(hash);
        loop {
            let number = self.index.next(&mut probe, hash)?;
            if let Some(entry) = self.entry_if(number, name, rtype) {
                return Some(entry);
            }
        }
    }

    #[inline(always)]
    fn entry_if(&self, number: u32, name: &[u8], rtype: u16) -> Option<Entry<'_>> {
        let entry = &self.entries[number as usize * UNIT..];
        let (head, rest) = entry.split_first_chunk::<HEAD>()?;
        let field = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        let name_len = usize::from(head[10]);
        if field(2) != rtype || !fold::equal(&rest[..name_len], name) {
            return None;
        }
        Some(Entry {
            counts: [field(4), field(6), field(8)],
            flags: head[11],
            name: &rest[..name_len],
            body: &rest[name_len..name_len + usize::from(field(0))],
        })
    }
}
