//! A hash index from names (or any key) to numbers, eight octets a slot.

/// Finds the numbers of keys that live elsewhere: the caller hashes keys and compares them.
///
/// ```text
///   slot:  | upper 32 bits of the hash | number + 1 |     0 is an empty slot
/// ```
///
/// Open addressing with linear probing. A key's home slot is proportional to its hash, so slots stand in the order of
/// hashes and growing streams through memory, without looking at a single key.
#[derive(Clone, Debug, Default)]
pub struct Index {
    slots: Vec<u64>,
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
        Index { slots: vec![0; slots_for(count)], ..Index::default() }
    }

    /// An index of all `keys`, each made by [`Index::key`]. Much faster than inserting them one by one, as the slots are filled
    /// in the order in which they lie in memory, and faster to search, as half of the slots stay empty.
    pub fn from_keys(mut keys: Vec<u64>) -> Index {
        // Half full: three of four keys are then found in the slot where their search begins.
        let mut index = Index { slots: vec![0; (2 * keys.len()).max(1)], ..Index::default() };
        index.used = keys.len();
        keys.sort_unstable();
        keys.into_iter().for_each(|key| place(&mut index.slots, key));
        index
    }

    /// What [`Index::from_keys`] wants of a key: its hash and its number, in the form of a slot.
    ///
    /// # Panics
    /// If `number` is `u32::MAX`.
    pub fn key(hash: u64, number: u32) -> u64 {
        let number = number.checked_add(1).expect("the last number marks nothing");
        hash & !0xffff_ffff | u64::from(number)
    }

    /// Hints that the search will go on soon.
    #[inline(always)]
    pub fn prefetch(&self, probe: Probe) {
        prefetch::read(&self.slots, probe.0 as usize);
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.used
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Octets of memory.
    pub fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<u64>()
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

    /// The number in a slot, if its key may have `hash`.
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
            if number.is_some() {
                return number;
            }
        }
    }

    /// Adds a key that is not there yet.
    ///
    /// # Panics
    /// If `number` is `u32::MAX`.
    pub fn insert(&mut self, hash: u64, number: u32) {
        if slots_for(self.used + 1) > self.slots.len() {
            self.grow_to((self.slots.len() * 2).max(8));
        }
        place(&mut self.slots, Index::key(hash, number));
        self.used += 1;
    }

    /// Takes `count` more keys without growing again.
    pub fn reserve(&mut self, count: usize) {
        let slots = slots_for(self.used + count);
        if slots > self.slots.len() {
            self.grow_to(slots);
        }
    }

    fn grow_to(&mut self, count: usize) {
        let mut slots = vec![0; count];
        self.slots.iter().filter(|&&slot| slot != 0).for_each(|&slot| place(&mut slots, slot));
        self.slots = slots;
    }
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
