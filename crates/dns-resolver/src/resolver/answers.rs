//! Whole answers, kept as they were sent: the same question again costs a comparison and a copy.
//!
//! An answer is kept when the cache gave it, so the second time that a question is asked, and holds only as long as the cache would give the
//! same one: until an entry that it came from changes, leaves, expires, or is to be fetched anew. What it came from counts as used with it.

use arrayvec::ArrayVec;
use clock::Instant;
use dns_wire::fold;
use dns_wire::header::HEADER_LEN;
use dns_wire::name::NAME_LEN_MAX;

use super::Resolver;
use crate::cache::Source;
use crate::message::{TtlAt, Written};

/// Octets of the longest answer that is kept. Few are longer, and those are not what a server spends its time with.
const ANSWER_MAX: usize = 1232;
/// The answers take up to one part in so many of the cache's octets, and there are places for as many as that is at the usual size.
const PART: usize = 8;
const USUAL: usize = 512;
const PLACES_MAX: usize = 1 << 16;

/// Places where an answer may be. Four fill a cache line.
const WAYS: usize = 4;
/// Records, and sets, of the longest answer that is kept.
const TTLS_MAX: usize = 16;
const SOURCES_MAX: usize = 4;

/// The table.
#[derive(Debug)]
pub(super) struct Answers {
    seed: u64,
    /// As many as a power of two.
    sets: Vec<Places>,
    /// Where in its set the next answer goes if all places are taken.
    next_victim: usize,
    /// Octets of all answers, and how many there may be.
    octets: usize,
    octets_max: usize,
    /// The set that was emptied last for want of octets.
    hand: usize,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Places([(u64, Option<Box<Kept>>); WAYS]);

/// A question, and its answer.
#[derive(Debug)]
struct Kept {
    /// The question without its ID, and behind it the answer without its ID.
    octets: Box<[u8]>,
    question_len: u16,
    /// Octets of the name that is asked for.
    name_len: u8,
    /// Where TTLs stand in the answer, and by which of the sources they count down.
    ttls: ArrayVec<TtlAt, TTLS_MAX>,
    sources: ArrayVec<Source, SOURCES_MAX>,
    until: Instant,
}

/// An answer that is known.
#[derive(Debug)]
pub struct KnownAnswer<'r> {
    kept: &'r Kept,
    now: Instant,
}

impl KnownAnswer<'_> {
    /// Its octets.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "no answer is empty")]
    pub fn len(&self) -> usize {
        ID + self.kept.answer().len()
    }

    /// It, for its question.
    #[must_use]
    pub fn to_octets(self, query: &[u8]) -> Vec<u8> {
        let len = self.len();
        let mut octets = Vec::with_capacity(len.max(query.len()));
        octets.extend_from_slice(query);
        octets.resize(len.max(query.len()), 0);
        self.write_over(&mut octets);
        octets.truncate(len);
        octets
    }

    /// Writes it over its question, with which `buffer` begins: ID and spelling stay.
    ///
    /// # Panics
    /// If `buffer` is shorter than [`KnownAnswer::len`].
    pub fn write_over(self, buffer: &mut [u8]) {
        let (kept, answer) = (self.kept, self.kept.answer());
        let name_end = HEADER_LEN + usize::from(kept.name_len);
        buffer[ID..HEADER_LEN].copy_from_slice(&answer[..HEADER_LEN - ID]);
        buffer[name_end..self.len()].copy_from_slice(&answer[name_end - ID..]);
        for ttl in &kept.ttls {
            let left = kept.sources[usize::from(ttl.set)].ttl(self.now);
            let at = usize::from(ttl.at);
            buffer[at..at + 4].copy_from_slice(&left.to_be_bytes());
        }
    }
}

/// Octets of an ID.
const ID: usize = 2;

impl Kept {
    fn memory(&self) -> usize {
        size_of::<Kept>() + self.octets.len()
    }

    fn question(&self) -> &[u8] {
        &self.octets[..usize::from(self.question_len)]
    }

    fn answer(&self) -> &[u8] {
        &self.octets[usize::from(self.question_len)..]
    }

    /// Whether it answers `query`, whose name has so many octets. All but ID and case counts.
    fn answers(&self, query: &[u8], name_len: usize) -> bool {
        let (own, query) = (self.question(), &query[ID..]);
        let start = HEADER_LEN - ID;
        let end = start + name_len;
        own.len() == query.len()
            && usize::from(self.name_len) == name_len
            && own[..start] == query[..start]
            && own[end..] == query[end..]
            && fold::equal(&own[start..end], &query[start..end])
    }
}

impl Answers {
    /// One beside a cache of so many octets.
    pub(super) fn new(cache_octets: usize, seed: u64) -> Answers {
        let wanted = (cache_octets / (PART * USUAL * WAYS)).clamp(1, PLACES_MAX / WAYS);
        let count = if wanted.is_power_of_two() { wanted } else { wanted.next_power_of_two() / 2 };
        Answers {
            seed,
            sets: std::iter::repeat_with(Places::default).take(count).collect(),
            next_victim: 0,
            octets: 0,
            octets_max: cache_octets / PART,
            hand: 0,
        }
    }

    pub(super) fn clear(&mut self) {
        self.sets.fill_with(Places::default);
        self.octets = 0;
    }

    fn hash(&self, name: &[u8]) -> u64 {
        fold::hash_name(name, self.seed)
    }

    /// Which set has the answers of a hash.
    fn index(&self, hash: u64) -> usize {
        hash as usize & (self.sets.len() - 1)
    }

    fn set(&mut self, hash: u64) -> &mut [(u64, Option<Box<Kept>>); WAYS] {
        let index = self.index(hash);
        &mut self.sets[index].0
    }

    /// Puts it in the place of another answer to its question, else in a free one, else in that of any.
    fn put(&mut self, hash: u64, kept: Kept) {
        self.next_victim = (self.next_victim + 1) % WAYS;
        let victim = self.next_victim;
        self.octets += kept.memory();
        let set = self.set(hash);
        let is_same = |(other, old): &(u64, Option<Box<Kept>>)| {
            *other == hash && old.as_ref().is_some_and(|old| old.question() == kept.question())
        };
        let same = set.iter().position(is_same);
        let place = same.or_else(|| set.iter().position(|(_, old)| old.is_none())).unwrap_or(victim);
        let old = std::mem::replace(&mut set[place], (hash, Some(Box::new(kept)))).1;
        self.octets -= old.map_or(0, |old| old.memory());
        while self.octets > self.octets_max {
            self.hand = (self.hand + 1) & (self.sets.len() - 1);
            let emptied = std::mem::take(&mut self.sets[self.hand]).0;
            self.octets -=
                emptied.into_iter().filter_map(|(_, kept)| kept).map(|kept| kept.memory()).sum::<usize>();
        }
    }

    /// The place in its set of the answer to `query`, and the answer.
    fn find(&self, hash: u64, query: &[u8], name_len: usize) -> Option<(usize, &Kept)> {
        let places = self.sets[self.index(hash)].0.iter().enumerate();
        let mut same = places.filter(|(_, (other, _))| *other == hash);
        same.find_map(|(index, (_, kept))| {
            Some((index, kept.as_deref().filter(|kept| kept.answers(query, name_len))?))
        })
    }

    fn forget(&mut self, hash: u64, place: usize) {
        let old = self.set(hash)[place].1.take();
        self.octets -= old.map_or(0, |old| old.memory());
    }
}

impl Resolver {
    /// The answer to `query`, which came on plain [`Terms`](super::Terms), if it is known as a whole. If not, [`Resolver::on_query`] answers it.
    pub fn recall(&mut self, query: &[u8], now: Instant) -> Option<KnownAnswer<'_>> {
        let name_len = name_len(query.get(HEADER_LEN..)?)?;
        let hash = self.answers.hash(&query[HEADER_LEN..][..name_len]);
        let (index, is_good) = {
            let (index, kept) = self.answers.find(hash, query, name_len)?;
            let is_unchanged = kept.sources.iter().all(|source| self.cache.use_again(source));
            (index, now < kept.until && is_unchanged)
        };
        if !is_good {
            self.answers.forget(hash, index);
            return None;
        }
        self.counters.client_queries += 1;
        self.counters.cache_hits += 1;
        Some(KnownAnswer { kept: self.answers.set(hash)[index].1.as_deref()?, now })
    }

    /// Keeps the answer to `query`, which the entries of `sources` gave: one for each set, in their order.
    pub(super) fn keep_answer(&mut self, query: &[u8], written: &Written, sources: Vec<Source>) {
        let Written { octets, ttls, is_truncated } = written;
        let part = self.options.cache.prefetch_part;
        let Some(until) = sources.iter().map(|source| source.use_until(part)).min() else { return };
        let Some(name_len) = query.get(HEADER_LEN..).and_then(name_len) else { return };
        let is_short = octets.len() <= ANSWER_MAX && query.len() <= ANSWER_MAX;
        if *is_truncated || !is_short || ttls.len() > TTLS_MAX || sources.len() > SOURCES_MAX {
            return;
        }
        let hash = self.answers.hash(&query[HEADER_LEN..][..name_len]);
        let kept = Kept {
            octets: [&query[ID..], &octets[ID..]].concat().into(),
            question_len: (query.len() - ID) as u16,
            name_len: name_len as u8,
            ttls: ttls.iter().copied().collect(),
            sources: sources.into_iter().collect(),
            until,
        };
        self.answers.put(hash, kept);
    }
}

/// Octets of the name that `octets` begins with; `None` if that is none, or is compressed.
fn name_len(octets: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let label = usize::from(*octets.get(at)?);
        at += 1 + label;
        match label {
            0 => return Some(at),
            1..=63 if at < NAME_LEN_MAX => {}
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(number: u32) -> Kept {
        let question = number.to_be_bytes();
        Kept {
            octets: [&question[..], &vec![0; 100 + number as usize % 1000]].concat().into(),
            question_len: question.len() as u16,
            name_len: 1,
            ttls: ArrayVec::new(),
            sources: ArrayVec::new(),
            until: Instant::ZERO,
        }
    }

    #[test]
    fn answers_take_no_more_octets_than_they_may_and_each_is_counted() {
        let mut answers = Answers::new(800_000, 7);
        for number in 0..10_000u32 {
            // Every tenth one comes again.
            let number = number - u32::from(number % 10 == 9);
            answers.put(u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15), kept(number));
            let places = answers.sets.iter().flat_map(|set| &set.0);
            let octets: usize = places.filter_map(|(_, kept)| kept.as_deref()).map(Kept::memory).sum();
            assert!(octets == answers.octets && octets <= 100_000, "{octets}, {}", answers.octets);
        }
        assert!(answers.octets > 50_000, "and they are used");
    }
}
