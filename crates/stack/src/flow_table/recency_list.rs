//! Slots in order of use.

const NONE: u32 = u32::MAX;

/// Numbers of slots in the order in which they were used last, for bounded tables that give up the oldest entry. The
/// entries themselves are an array beside it.
///
/// ```text
///   oldest <-> ... <-> newest        free -> ... ->
/// ```
#[derive(Debug)]
pub(crate) struct RecencyList {
    links: Vec<Links>,
    oldest: u32,
    newest: u32,
    free: u32,
    len: usize,
    slots_max: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    older: u32,
    newer: u32,
}

impl RecencyList {
    /// A list of at most `slots_max` slots; they are numbered from 0 in the order of first use.
    pub(crate) fn new(slots_max: u32) -> RecencyList {
        assert!(slots_max < NONE, "the last number marks nothing");
        let links = Vec::with_capacity(slots_max as usize);
        RecencyList { links, oldest: NONE, newest: NONE, free: NONE, len: 0, slots_max }
    }

    /// Slots in use.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The slot in use that was used longest ago.
    pub(crate) fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// A slot that was not in use and now is the newest; `None` if all are in use.
    pub(crate) fn take(&mut self) -> Option<u32> {
        let slot = self.take_used().or_else(|| self.take_fresh())?;
        self.append(slot);
        self.len += 1;
        Some(slot)
    }

    /// Makes `slot`, which is in use, the newest.
    pub(crate) fn touch(&mut self, slot: u32) {
        if slot != self.newest {
            self.unlink(slot);
            self.append(slot);
        }
    }

    /// Ends the use of `slot`, which is in use.
    pub(crate) fn give_back(&mut self, slot: u32) {
        self.unlink(slot);
        self.links[slot as usize].newer = self.free;
        self.free = slot;
        self.len -= 1;
    }

    fn take_used(&mut self) -> Option<u32> {
        let slot = self.free;
        self.free = self.links.get(slot as usize)?.newer; // NONE is no index.
        Some(slot)
    }

    fn take_fresh(&mut self) -> Option<u32> {
        let slot = self.links.len() as u32;
        (slot < self.slots_max).then(|| self.links.push(Links { older: NONE, newer: NONE }))?;
        Some(slot)
    }

    fn append(&mut self, slot: u32) {
        self.links[slot as usize] = Links { older: self.newest, newer: NONE };
        *self.newer_of(self.newest) = slot;
        self.newest = slot;
    }

    fn unlink(&mut self, slot: u32) {
        let Links { older, newer } = self.links[slot as usize];
        *self.newer_of(older) = newer;
        match self.links.get_mut(newer as usize) {
            Some(links) => links.older = older,
            None => self.newest = older,
        }
    }

    /// What names the slot behind `slot`: without a slot, the start of the list.
    fn newer_of(&mut self, slot: u32) -> &mut u32 {
        match self.links.get_mut(slot as usize) {
            Some(links) => &mut links.newer,
            None => &mut self.oldest,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

        #[test]
        fn slots_come_back_in_order_of_use(steps in vec((0u8..4, any::<prop::sample::Index>()), 1..100)) {
            let mut list = RecencyList::new(8);
            let mut model = Vec::new();
            for (step, which) in steps {
                match step {
                    0 | 1 => {
                        let slot = list.take();
                        prop_assert_eq!(slot.is_some(), model.len() < 8);
                        prop_assert!(slot.is_none_or(|slot| slot < 8 && !model.contains(&slot)));
                        model.extend(slot);
                    }
                    _ if model.is_empty() => {}
                    2 => {
                        let slot = model.remove(which.index(model.len()));
                        list.touch(slot);
                        model.push(slot);
                    }
                    _ => list.give_back(model.remove(which.index(model.len()))),
                }
                prop_assert_eq!((list.len(), list.oldest()), (model.len(), model.first().copied()));
            }
            for slot in model {
                prop_assert_eq!(list.oldest(), Some(slot));
                list.give_back(slot);
            }
            prop_assert_eq!(list.oldest(), None);
        }
    }
}
