//! Slots in the order of SIEVE: new ones in front, a hand that goes from the oldest to the newest and takes what was not
//! used since it last came by. What is used often stays, and what is used once leaves soon.

/// No slot.
const NONE: u32 = u32::MAX;

/// The place of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotId(pub(super) u32);

#[derive(Debug)]
struct Slot<T> {
    value: Option<T>,
    used: bool,
    newer: u32,
    older: u32,
}

/// Entries in their order of age.
#[derive(Debug)]
pub(super) struct Sieve<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    newest: u32,
    oldest: u32,
    hand: u32,
}

impl<T> Sieve<T> {
    pub(super) fn new() -> Sieve<T> {
        Sieve { slots: Vec::new(), free: Vec::new(), newest: NONE, oldest: NONE, hand: NONE }
    }

    pub(super) fn insert(&mut self, value: T) -> SlotId {
        let slot = Slot { value: Some(value), used: false, newer: NONE, older: self.newest };
        let id = match self.free.pop() {
            Some(id) => {
                self.slots[id as usize] = slot;
                id
            }
            None => {
                self.slots.push(slot);
                (self.slots.len() - 1) as u32
            }
        };
        match self.newest {
            NONE => self.oldest = id,
            newest => self.slots[newest as usize].newer = id,
        }
        self.newest = id;
        SlotId(id)
    }

    pub(super) fn get(&self, id: SlotId) -> &T {
        self.slots[id.0 as usize].value.as_ref().expect("only slots with values are indexed")
    }

    /// The value, which counts as used.
    pub(super) fn use_mut(&mut self, id: SlotId) -> &mut T {
        let slot = &mut self.slots[id.0 as usize];
        if !slot.used {
            slot.used = true; // What is used all the time is not written to each time.
        }
        slot.value.as_mut().expect("only slots with values are indexed")
    }

    pub(super) fn remove(&mut self, id: SlotId) -> T {
        let slot = &mut self.slots[id.0 as usize];
        let (newer, older) = (slot.newer, slot.older);
        let value = slot.value.take().expect("only slots with values are removed");
        match newer {
            NONE => self.newest = older,
            newer => self.slots[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.slots[older as usize].newer = newer,
        }
        if self.hand == id.0 {
            self.hand = newer;
        }
        self.free.push(id.0);
        value
    }

    /// The entry that is to leave next. The hand stays there.
    pub(super) fn victim(&mut self) -> Option<SlotId> {
        // Two rounds suffice: the first clears every mark.
        for _ in 0..=2 * self.slots.len() {
            if self.hand == NONE {
                self.hand = self.oldest;
            }
            let slot = self.slots.get_mut(self.hand as usize)?;
            if !slot.used {
                return Some(SlotId(self.hand));
            }
            slot.used = false;
            self.hand = slot.newer;
        }
        None
    }

    /// All values, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (SlotId, &T)> {
        let with_id = |(id, slot)| (SlotId(id as u32), slot);
        let slots = self.slots.iter().enumerate().map(with_id);
        slots.filter_map(|(id, slot): (SlotId, &Slot<T>)| Some((id, slot.value.as_ref()?)))
    }

    /// Octets of a slot.
    pub(super) const fn slot_octets() -> usize {
        size_of::<Slot<T>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_and_the_oldest_unused_leaves_first() {
        let mut sieve = Sieve::new();
        let ids: Vec<SlotId> = (0..4).map(|value| sieve.insert(value)).collect();
        *sieve.use_mut(ids[0]) += 10;
        let mut left = Vec::new();
        while let Some(victim) = sieve.victim() {
            left.push(sieve.remove(victim));
        }
        assert_eq!(left, [1, 2, 3, 10]);
        assert!(sieve.victim().is_none() && sieve.iter().next().is_none());
    }

    #[test]
    fn removed_slots_are_used_again_and_the_order_holds() {
        let mut sieve = Sieve::new();
        let ids: Vec<SlotId> = (0..3).map(|value| sieve.insert(value)).collect();
        sieve.remove(ids[1]);
        assert_eq!(sieve.insert(7).0, ids[1].0);
        let order: Vec<i32> =
            std::iter::from_fn(|| sieve.victim().map(|victim| sieve.remove(victim))).collect();
        assert_eq!(order, [0, 2, 7]);
    }
}
