//! Precompiled answers: from (name, type) to the octets that follow the question.

use dns_wire::fold::{self, Folded};
use dns_zone::index::{Index, Probe};
use dns_zone::versioned::Octets;

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
/// Entries begin at multiples of eight octets; the index numbers them in that unit. Pointers in a body lead to the question's name, as an
/// owner, or into the body itself, which always stands behind a question with this very name, in whatever case.
///
/// The table of the next version is a copy, in which some entries are others: what they were before stays behind, and nothing leads to it.
#[derive(Clone, Debug, Default)]
pub struct AnswerTable {
    index: Index,
    entries: Octets,
    seed: u64,
}

/// The answers of one zone version for clients of both kinds.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    /// Without signatures.
    pub plain: AnswerTable,
    /// With signatures, for clients that set DO; `None` in a zone that has none.
    pub signed: Option<AnswerTable>,
    /// Whether entries were replaced: those that depend on other names are not to be used then.
    pub is_changed: bool,
}

impl Tables {
    /// The answers for clients that set DO, or for the others.
    #[inline(always)]
    pub fn of(&self, dnssec: bool) -> &AnswerTable {
        match &self.signed {
            Some(signed) if dnssec => signed,
            _ => &self.plain,
        }
    }

    /// Octets of memory.
    pub fn memory(&self) -> usize {
        self.plain.memory() + self.signed.as_ref().map_or(0, AnswerTable::memory)
    }
}

/// An [`AnswerTable`] in the making.
#[derive(Debug)]
pub struct TableBuilder {
    table: AnswerTable,
    /// Of a table that is made from nothing, what its index will have.
    keys: Option<Vec<u64>>,
}

const HEAD: usize = 12;
const UNIT: usize = 8;

/// What an entry needs to be used.
pub mod flag {
    /// The records of the answer section may change places, and only the tree can do that.
    pub const ORDERED: u8 = 1;
    /// The answer follows a CNAME: another zone below this one could have a say.
    pub const CHAINED: u8 = 2;
    /// The body is ANCOUNT records that may change places in it.
    pub const ROTATABLE: u8 = 4;
    /// The answer has, or could have, records of other names.
    pub const DEPENDENT: u8 = 8;
    /// The answer depends on the line of the client.
    pub const VARIES: u8 = 16;
    /// The entry has no answer, and the tree does.
    pub const ABSENT: u8 = 32;
    /// The answer has some of several addresses, by weight and health.
    pub const CHOSEN: u8 = 64;
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

impl TableBuilder {
    /// A table for `count` entries of `octets` altogether, about.
    pub fn with_capacity(count: usize, octets: usize, seed: u64) -> TableBuilder {
        let entries = Octets::from(Vec::with_capacity(octets));
        let table = AnswerTable { index: Index::default(), entries, seed };
        TableBuilder { table, keys: Some(Vec::with_capacity(count)) }
    }

    /// A table that begins with the entries of `before`.
    pub fn after(before: &AnswerTable) -> TableBuilder {
        TableBuilder { table: before.clone(), keys: None }
    }

    /// Adds an entry; there is one for each name and type. `entry.name` is in lower case. Does nothing when the table is
    /// full, at 32 GiB, or the body longer than a message: such answers are made from the tree.
    pub fn insert(&mut self, rtype: u16, entry: Entry<'_>) {
        let AnswerTable { index, entries, seed } = &mut self.table;
        let (Ok(number), Ok(body_len)) =
            (u32::try_from(entries.begin_item() / UNIT), u16::try_from(entry.body.len()))
        else {
            return;
        };
        if number > Index::NUMBER_MAX {
            return;
        }
        let [answer, authority, additional] = entry.counts;
        let mut head = [0; HEAD];
        let fields = [body_len, rtype, answer, authority, additional].map(u16::to_le_bytes);
        head.as_chunks_mut::<2>().0.iter_mut().zip(fields).for_each(|(place, field)| *place = field);
        [head[10], head[11]] = [entry.name.len() as u8, entry.flags];
        entries.extend_from_slice(&head);
        entries.extend_from_slice(entry.name);
        entries.extend_from_slice(entry.body);
        let len = HEAD + entry.name.len() + entry.body.len();
        entries.extend_from_slice(&[0; UNIT][..len.next_multiple_of(UNIT) - len]);
        let hash = hash(entry.name, rtype, *seed);
        match &mut self.keys {
            Some(keys) => keys.push(Index::key(hash, number)),
            None => index.insert(hash, number),
        }
    }

    /// Removes the entry of this name, in lower case, and type, if there is one. For a table that began with another one's entries.
    pub fn remove(&mut self, name: &[u8], rtype: u16) {
        let AnswerTable { index, entries, seed } = &mut self.table;
        index.remove(hash(name, rtype, *seed), |number| entry_if(entries, number, name, rtype).is_some());
    }

    /// Ends the table.
    pub fn finish(mut self) -> AnswerTable {
        if let Some(keys) = self.keys {
            self.table.index = Index::from_keys(keys);
        }
        self.table.index.share();
        self.table.entries.share();
        self.table
    }
}

fn hash(name: &[u8], rtype: u16, seed: u64) -> u64 {
    fold::hash_with_type(fold::hash_name(name, seed), rtype)
}

impl AnswerTable {
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
        self.index.memory() + self.entries.memory()
    }

    /// Starts a search for the answer to `name` and `rtype`, and has the index's slot fetched. In a large zone that slot is
    /// cold, and so is the entry: done for a whole batch, a step at a time, their fetches overlap.
    #[inline(always)]
    pub fn search(&self, name: &Folded, rtype: u16) -> Search {
        let hash = fold::hash_with_type(name.hash_suffix(0, self.seed), rtype);
        let probe = self.index.home(hash);
        self.index.prefetch(probe);
        Search { hash, probe, slot: 0 }
    }

    /// The second step: reads the slot, and has the entry that it names fetched.
    #[inline(always)]
    pub fn fetch(&self, search: &mut Search) {
        const CACHE_LINE: usize = 64;
        search.slot = self.index.slot(search.probe);
        let at = (search.slot as u32).wrapping_sub(1) as usize * UNIT;
        self.entries.prefetch(at);
        self.entries.prefetch(at + CACHE_LINE - UNIT);
    }

    /// The last step: the answer that the search is for, with `name` in lower case.
    #[inline(always)]
    pub fn find(&self, search: &Search, name: &[u8], rtype: u16) -> Option<Entry<'_>> {
        self.find_from(search, (search.slot, search.probe), name, rtype)
    }

    /// All steps of a search that was made for another table of the same seed.
    #[inline(always)]
    pub(crate) fn find_anew(&self, search: &Search, name: &[u8], rtype: u16) -> Option<Entry<'_>> {
        let probe = self.index.home(search.hash);
        self.find_from(search, (self.index.slot(probe), probe), name, rtype)
    }

    #[inline(always)]
    fn find_from(
        &self,
        search: &Search,
        (mut slot, mut probe): (u64, Probe),
        name: &[u8],
        rtype: u16,
    ) -> Option<Entry<'_>> {
        while slot != 0 {
            if let Some(number) = Index::number_in(slot, search.hash)
                && let Some(entry) = entry_if(&self.entries, number, name, rtype)
            {
                return Some(entry);
            }
            probe = self.index.following(probe);
            slot = self.index.slot(probe);
        }
        None
    }
}

/// The entry of this number, if it is for this name and type.
#[inline(always)]
fn entry_if<'e>(entries: &'e Octets, number: u32, name: &[u8], rtype: u16) -> Option<Entry<'e>> {
    let entry = entries.get(number as usize * UNIT)?;
    let (head, rest) = entry.split_first_chunk::<HEAD>()?;
    let field = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    let (own_name, rest) = rest.split_at_checked(usize::from(head[10]))?;
    if field(2) != rtype || own_name != name {
        return None;
    }
    let body = rest.get(..usize::from(field(0)))?;
    Some(Entry { counts: [field(4), field(6), field(8)], flags: head[11], name: own_name, body })
}

/// A search under way, see [`AnswerTable::search`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Search {
    hash: u64,
    probe: Probe,
    slot: u64,
}
