//! The most frequent of very many things, in bounded memory.
//!
//! This is the Space-Saving algorithm (Metwally, Agrawal, El Abbadi: Efficient computation of frequent and top-k elements in data streams,
//! ICDT 2005): `capacity` counters; a thing without one takes over the smallest, with its count as the possible error. What was counted
//! lies between count minus error and count, and the error is at most the total divided by the capacity. So whatever is more frequent
//! than that is among them, however many other things come only once.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

/// Counters for the most frequent things.
#[derive(Debug)]
pub(super) struct HeavyHitters<K> {
    capacity: usize,
    /// Where in `slots` a thing has its counter.
    places: HashMap<K, usize>,
    slots: Vec<Slot<K>>,
    /// Numbers of slots as a heap, the smallest count first.
    heap: Vec<usize>,
    total: f64,
}

#[derive(Debug)]
struct Slot<K> {
    key: K,
    count: f64,
    /// How much of the count may be others'.
    error: f64,
    /// Where in the heap it is.
    rank: usize,
}

/// A thing, and between which bounds its share of all lies.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Hit<K> {
    pub(super) key: K,
    pub(super) at_least: f64,
    pub(super) at_most: f64,
}

impl<K: Clone + Eq + Hash> HeavyHitters<K> {
    /// With room for `capacity` things, at least one.
    pub(super) fn new(capacity: usize) -> HeavyHitters<K> {
        HeavyHitters {
            capacity: capacity.max(1),
            places: HashMap::new(),
            slots: Vec::new(),
            heap: Vec::new(),
            total: 0.0,
        }
    }

    /// Counts a thing.
    pub(super) fn add<Q>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
    {
        self.total += 1.0;
        let slot = match self.places.get(key) {
            Some(slot) => {
                self.slots[*slot].count += 1.0;
                *slot
            }
            None => self.admit(key.to_owned()),
        };
        let rank = self.slots[slot].rank;
        self.sink(rank);
    }

    /// Gives a thing a counter, which counts it once; returns the slot.
    fn admit(&mut self, key: K) -> usize {
        let slot = if self.slots.len() < self.capacity {
            let slot = self.slots.len();
            self.slots.push(Slot { key: key.clone(), count: 1.0, error: 0.0, rank: slot });
            self.heap.push(slot);
            self.rise(slot);
            slot
        } else {
            let slot = self.heap[0];
            let Slot { key: old, count, error, .. } = &mut self.slots[slot];
            self.places.remove(old);
            *old = key.clone();
            *error = *count;
            *count += 1.0;
            slot
        };
        self.places.insert(key, slot);
        slot
    }

    /// Lets what was counted weigh less from now on: a `factor` below one.
    pub(super) fn age(&mut self, factor: f64) {
        self.total *= factor;
        for slot in &mut self.slots {
            slot.count *= factor;
            slot.error *= factor;
        }
    }

    /// The things with the largest shares that are certain, those at least `share`. In the order of these shares.
    pub(super) fn hits(&self, share: f64) -> Vec<Hit<K>> {
        let of = |slot: &Slot<K>| Hit {
            key: slot.key.clone(),
            at_least: (slot.count - slot.error) / self.total,
            at_most: (slot.count / self.total).min(1.0),
        };
        let mut hits: Vec<Hit<K>> = self.slots.iter().map(of).filter(|hit| hit.at_least >= share).collect();
        hits.sort_by(|a, b| b.at_least.total_cmp(&a.at_least));
        hits
    }

    /// Moves a place of the heap towards the root as far as its count is smaller.
    fn rise(&mut self, mut rank: usize) {
        while rank > 0 && self.count_at(rank) < self.count_at((rank - 1) / 2) {
            self.swap(rank, (rank - 1) / 2);
            rank = (rank - 1) / 2;
        }
    }

    /// Moves a place of the heap away from the root as far as its count is larger.
    fn sink(&mut self, mut rank: usize) {
        loop {
            let children = [2 * rank + 1, 2 * rank + 2].into_iter().filter(|child| *child < self.heap.len());
            let least = children.min_by(|a, b| self.count_at(*a).total_cmp(&self.count_at(*b)));
            match least {
                Some(child) if self.count_at(child) < self.count_at(rank) => {
                    self.swap(rank, child);
                    rank = child;
                }
                _ => return,
            }
        }
    }

    fn count_at(&self, rank: usize) -> f64 {
        self.slots[self.heap[rank]].count
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.heap.swap(one, other);
        self.slots[self.heap[one]].rank = one;
        self.slots[self.heap[other]].rank = other;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn few_things_are_counted_exactly() {
        let mut hitters = HeavyHitters::new(8);
        for key in ["a", "b", "a", "c", "a", "b", "a", "a"] {
            hitters.add(&key);
        }
        let hit = |key, share| Hit { key, at_least: share, at_most: share };
        assert_eq!(hitters.hits(0.0), [hit("a", 0.625), hit("b", 0.25), hit("c", 0.125)]);
        assert_eq!(hitters.hits(0.2).len(), 2);
    }

    #[test]
    fn a_flood_of_random_names_neither_hides_what_is_frequent_nor_counts_as_it() {
        let mut hitters = HeavyHitters::new(100);
        for number in 0..100_000u32 {
            hitters.add(&(1_000_000 + number)); // Each of them once.
            if number % 4 == 0 {
                hitters.add(&7);
            }
        }
        let hits = hitters.hits(0.005);
        assert_eq!(hits.len(), 1, "no random name is told to be frequent: {hits:?}");
        let Hit { key, at_least, at_most } = hits[0].clone();
        assert_eq!(key, 7);
        assert!(at_least <= 0.2 && 0.2 <= at_most && at_most - at_least <= 0.01, "{at_least} {at_most}");
    }

    #[test]
    fn what_ages_keeps_its_share_until_others_come() {
        let mut hitters = HeavyHitters::new(4);
        (0..100).for_each(|_| hitters.add(&"old"));
        hitters.age(0.1);
        assert_eq!(hitters.hits(0.0)[0].at_least, 1.0);
        (0..30).for_each(|_| hitters.add(&"new"));
        let shares: Vec<_> = hitters.hits(0.0).into_iter().map(|hit| (hit.key, hit.at_least)).collect();
        assert_eq!(shares, [("new", 0.75), ("old", 0.25)]);
    }

    #[test]
    fn of_nothing_there_is_nothing() {
        assert_eq!(HeavyHitters::<u16>::new(0).hits(0.0), []);
    }

    /// Random numbers that are the same in every run (Marsaglia's xorshift).
    struct Random(u64);

    impl Random {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 % bound
        }
    }

    /// The bounds of the algorithm, against counts of everything.
    #[test]
    fn true_shares_lie_between_the_bounds() {
        for seed in 1..=300 {
            let mut random = Random(seed);
            let capacity = 1 + random.below(40) as usize;
            let (mut hitters, mut counts) = (HeavyHitters::new(capacity), BTreeMap::<u64, f64>::new());
            let total = 1 + random.below(2000);
            for _ in 0..total {
                let bound = if random.below(2) == 0 { 4 } else { 500 };
                let key = random.below(bound);
                hitters.add(&key);
                *counts.entry(key).or_default() += 1.0;
            }
            let total = total as f64;
            let hits = hitters.hits(0.0);
            assert!(hits.len() <= capacity, "seed {seed}");
            for Hit { key, at_least, at_most } in &hits {
                let share = counts[key] / total;
                assert!(
                    at_least - 1e-9 <= share && share <= at_most + 1e-9,
                    "seed {seed}: {at_least} {share} {at_most}"
                );
                assert!(at_most - at_least <= 1.0 / capacity as f64 + 1e-9, "seed {seed}");
            }
            for (key, _) in counts.iter().filter(|(_, count)| **count > total / capacity as f64) {
                assert!(hits.iter().any(|hit| hit.key == *key), "seed {seed}: {key} is missing");
            }
        }
    }
}
