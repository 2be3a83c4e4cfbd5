//! A hash index from names (or any key) to numbers, eight octets a slot.

use crate::versioned::Array;

/// Finds the numbers of keys that live elsewhere: the caller hashes keys and compares them.
///
/// ```text
///   slot:  | upper 32 bits of the hash | number + 1 |     0 is an empty slot, u32::MAX in place of number + 1 a removed key
/// ```
///
/// Open addressing with linear probing. A key's home slot is proportional to its hash, so slots stand in the order of
/// hashes and growing streams through memory, without looking at a single key.
#[derive(Clone, Debug, Default)]
pub struct Index {
    slots: Array<u64>,
    used: usize,
    /// How often [`Index::find`] was called.
    #[cfg(test)]
    searches: std::cell::Cell<usize>,
}

/// Where a search stands: the slot looked at next.
#[derive(Clone, Copy, Debug, Default)]
pub struct Probe(u32);

impl Index {
    /// An index that takes `count` keys without growing.
    pub fn with_capacity(count: usize) -> Index {
        Index { slots: vec![0; slots_for(count)].into(), ..Index::default() }
    }

    /// An index of all `keys`, each made by [`Index::key`]. Much faster than inserting them one by one, as the slots are filled
    /// in the order in which they lie in memory, and faster to search, as half of the slots stay empty.
    pub fn from_keys(mut keys: Vec<u64>) -> Index {
        // Half full: three of four keys are then found in the slot where their search begins.
        let mut slots = vec![0; (2 * keys.len()).max(1)];
        let used = keys.len();
        keys.sort_unstable();
        keys.into_iter().for_each(|key| place(&mut slots, key));
        Index {
            slots: slots.into(),
            used,
            #[cfg(test)]
            searches: std::cell::Cell::default(),
        }
    }

    /// What [`Index::from_keys`] wants of a key: its hash and its number, in the form of a slot.
    ///
    /// # Panics
    /// If `number` exceeds [`Index::NUMBER_MAX`].
    pub fn key(hash: u64, number: u32) -> u64 {
        assert!(number <= Index::NUMBER_MAX, "the last numbers mark what is nobody's");
        hash & !0xffff_ffff | u64::from(number + 1)
    }

    /// The highest number of a key.
    pub const NUMBER_MAX: u32 = u32::MAX - 2;

    /// Hints that the search will go on soon.
    #[inline(always)]
    pub fn prefetch(&self, probe: Probe) {
        self.slots.prefetch(probe.0 as usize);
    }

    /// Number of keys, and of removed ones whose slot no other key has taken.
    pub fn len(&self) -> usize {
        self.used
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Octets of memory.
    pub fn memory(&self) -> usize {
        self.slots.memory()
    }

    /// The number of the key with `hash` for which `matches` holds.
    #[inline(always)]
    pub fn find(&self, hash: u64, mut matches: impl FnMut(u32) -> bool) -> Option<u32> {
        #[cfg(test)]
        self.searches.set(self.searches.get() + 1);
        let mut probe = self.home(hash);
        loop {
            let number = self.next(&mut probe, hash)?;
            if matches(number) {
                return Some(number);
            }
        }
    }

    /// How often [`Index::find`] was called.
    #[cfg(test)]
    pub(crate) fn searches(&self) -> usize {
        self.searches.get()
    }

    /// Starts a search; [`Index::next`] goes on with it. Apart, so that the slots of a whole batch can be fetched at once.
    #[inline(always)]
    pub fn home(&self, hash: u64) -> Probe {
        Probe(home(hash, self.slots.len()))
    }

    /// The content of the probe's slot, for [`Index::number_in`]; 0 if there is none.
    #[inline(always)]
    pub fn slot(&self, probe: Probe) -> u64 {
        self.slots.get(probe.0 as usize).copied().unwrap_or(0)
    }

    /// The number in a slot, if its key may have `hash`; of a removed key one beyond [`Index::NUMBER_MAX`].
    #[inline(always)]
    pub fn number_in(slot: u64, hash: u64) -> Option<u32> {
        ((slot ^ hash) >> 32 == 0).then(|| (slot as u32).checked_sub(1)).flatten()
    }

    /// The slot to look at after this one.
    #[inline(always)]
    pub fn following(&self, probe: Probe) -> Probe {
        Probe(if probe.0 as usize + 1 == self.slots.len() { 0 } else { probe.0 + 1 })
    }

    /// The next number whose key may have `hash`, or `None` when there is no other.
    #[inline(always)]
    pub fn next(&self, probe: &mut Probe, hash: u64) -> Option<u32> {
        loop {
            let slot = *self.slots.get(probe.0 as usize)?;
            if slot == 0 {
                return None; // A quarter of the slots is empty, so every search ends.
            }
            *probe = self.following(*probe);
            let number = Index::number_in(slot, hash);
            if number.as_ref().is_some_and(is_number) {
                return number;
            }
        }
    }

    /// Adds a key that is not there yet.
    ///
    /// # Panics
    /// If `number` exceeds [`Index::NUMBER_MAX`].
    pub fn insert(&mut self, hash: u64, number: u32) {
        if slots_for(self.used + 1) > self.slots.len() {
            self.grow_to((self.slots.len() * 2).max(8));
        }
        let mut probe = self.home(hash);
        while !matches!(self.slot(probe) as u32, 0 | REMOVED) {
            probe = self.following(probe);
        }
        let slot = self.slots.get_mut(probe.0 as usize);
        self.used += usize::from(*slot == 0);
        *slot = Index::key(hash, number);
    }

    /// Removes the key with `hash` for which `matches` holds. Its slot stays in use until a key comes that can have it.
    pub fn remove(&mut self, hash: u64, mut matches: impl FnMut(u32) -> bool) {
        let mut probe = self.home(hash);
        loop {
            let at = probe;
            match self.slot(at) {
                0 => return,
                slot if Index::number_in(slot, hash).filter(is_number).is_some_and(&mut matches) => {
                    *self.slots.get_mut(at.0 as usize) |= u64::from(REMOVED);
                    return;
                }
                _ => probe = self.following(at),
            }
        }
    }

    /// Ends the making: from now on versions share what they do not change.
    pub fn share(&mut self) {
        self.slots.share();
    }

    /// Takes `count` more keys without growing again.
    pub fn reserve(&mut self, count: usize) {
        let slots = slots_for(self.used + count);
        if slots > self.slots.len() {
            self.grow_to(slots);
        }
    }

    /// A shared index is no longer shared then: this version has one of its own.
    fn grow_to(&mut self, count: usize) {
        let mut slots = vec![0; count];
        let used = (0..self.slots.len()).filter_map(|at| self.slots.get(at).copied());
        let used = used.filter(|slot| !matches!(*slot as u32, 0 | REMOVED));
        self.used = used.map(|slot| place(&mut slots, slot)).count();
        self.slots = slots.into();
    }
}

/// What a slot has of a key that is no longer there.
const REMOVED: u32 = u32::MAX;

/// Whether it is a key's, and not what stands in the slot of a removed one.
fn is_number(number: &u32) -> bool {
    *number <= Index::NUMBER_MAX
}

/// Three quarters full at most.
fn slots_for(count: usize) -> usize {
    if count == 0 { 0 } else { (count + count / 3 + 1).max(4) }
}

#[inline(always)]
fn home(hash: u64, slots: usize) -> u32 {
    (((hash >> 32) * slots as u64) >> 32) as u32
}

fn place(slots: &mut [u64], slot: u64) {
    let mut at = home(slot, slots.len()) as usize;
    while slots[at] != 0 {
        at = if at + 1 == slots.len() { 0 } else { at + 1 };
    }
    slots[at] = slot;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(key: u32) -> u64 {
        u64::from(key).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    #[test]
    fn every_key_is_found_after_any_growth() {
        let mut index = Index::default();
        for key in 0..5_000 {
            assert_eq!(index.find(hash(key), |number| number == key), None);
            index.insert(hash(key), key);
        }
        for key in 0..5_000 {
            assert_eq!(index.find(hash(key), |number| number == key), Some(key));
        }
        assert_eq!(index.find(hash(5_000), |number| number == 5_000), None);
    }

    #[test]
    fn an_index_made_at_once_finds_the_same() {
        let index = Index::from_keys((0..5_000).map(|key| Index::key(hash(key), key)).collect());
        for key in 0..5_000 {
            assert_eq!(index.find(hash(key), |number| number == key), Some(key));
        }
        assert_eq!(index.find(hash(5_000), |number| number == 5_000), None);
    }

    #[test]
    fn a_version_has_other_keys_and_the_one_before_keeps_its_own() {
        let mut before = Index::from_keys((0..5_000).map(|key| Index::key(hash(key), key)).collect());
        before.share();
        let mut after = before.clone();
        (0..2_500).for_each(|key| after.remove(hash(key), |number| number == key));
        (5_000..12_000).for_each(|key| after.insert(hash(key), key));
        let has = |index: &Index, key: u32| index.find(hash(key), |number| number == key).is_some();
        for key in 0..12_000 {
            assert_eq!((has(&before, key), has(&after, key)), (key < 5_000, key >= 2_500), "{key}");
        }
    }

    #[test]
    fn one_key_that_comes_and_goes_takes_no_more_room_with_time() {
        let mut index = Index::from_keys((0..100).map(|key| Index::key(hash(key), key)).collect());
        index.share();
        for _ in 0..10_000 {
            index.remove(hash(7), |number| number == 7);
            index.insert(hash(7), 7);
        }
        assert!(index.len() <= 101 && index.memory() < 10_000);
    }

    #[test]
    fn keys_of_one_hash_are_told_apart_by_the_caller() {
        let mut index = Index::default();
        (0..100).for_each(|key| index.insert(u64::MAX, key));
        assert_eq!(index.find(u64::MAX, |number| number == 77), Some(77));
    }

    #[test]
    fn an_empty_index_finds_nothing() {
        assert_eq!(Index::default().find(1, |_| true), None);
    }

    #[test]
    fn stated_capacity_is_kept_without_growing() {
        let mut index = Index::with_capacity(1_000);
        let memory = index.memory();
        (0..1_000).for_each(|key| index.insert(hash(key), key));
        assert_eq!(index.memory(), memory);
    }
}
