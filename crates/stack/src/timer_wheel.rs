//! A hierarchical timer wheel.

use clock::Instant;

/// Nanoseconds of a tick are 2 to this: 8.192 microseconds.
const TICK_BITS: u32 = 13;
/// Slots of a level are 2 to this.
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
/// As many levels as all representable time needs: 9 of 6 bits for the 51 bits of a tick.
const LEVELS: usize = (64 - TICK_BITS).div_ceil(SLOT_BITS) as usize;

/// No key; also, as `previous`: not scheduled.
const NONE: u32 = u32::MAX;
/// Marks `previous` as the number of the slot in which the node is the first.
const FIRST: u32 = 1 << 31;

/// Nodes looked at in a slot ahead before the slot's begin must do for the earliest of their deadlines.
const WALK_MAX: usize = 32;
/// Nodes moved from a coarse slot to finer ones in one call.
const CASCADE_MAX: usize = 256;

/// At most one deadline for each of many keys, which are small numbers (the indexes of connections).
///
/// A hierarchical wheel. Time is counted in ticks of 8.192 microseconds. The lowest level has a slot for each of 64 ticks,
/// and a slot of each other level spans the whole level below:
///
/// ```text
///   level 8   ...
///   level 1   | 0 | 1 | 2*| 3 | ...  64 slots of 0.5 ms     * the slot that the wheel is in: empty, as what
///   level 0   | 0 |...| 17*|    ...  64 slots of 8 us         was in it was moved to the level below
/// ```
///
/// A deadline belongs to the highest level on which its slot is not the wheel's own, so what is on a lower level always comes
/// before what is on a higher one. Scheduling and cancelling take constant time and touch a node and its neighbours; a
/// deadline moves to a finer level at most eight times on its way. Deadlines of one tick expire in any order.
///
/// Work per call is bounded: when a coarse slot holds many keys, [`TimerWheel::poll_expired`] may return `None` before it has
/// returned everything that is due, and then [`TimerWheel::next_deadline`] is not after `now`. So a loop that sleeps
/// until the next deadline stays right without knowing.
///
/// Memory: 16 octets for each key up to the largest one used.
#[derive(Debug)]
pub struct TimerWheel {
    nodes: Vec<Node>,
    /// The first key in each slot, level by level.
    first: [u32; LEVELS * SLOTS],
    /// For each level, the slots that are not empty.
    occupied: [u64; LEVELS],
    /// The levels that are not empty.
    levels: u16,
    /// The tick that the wheel is in; every deadline is in this tick or a later one, or came too late.
    current: u64,
    /// A coarse slot whose keys are being moved to finer ones, and which the wheel is in already.
    cascading: Option<usize>,
    scheduled: usize,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    deadline: Instant,
    next: u32,
    /// The key before this one, or the slot with [`FIRST`], or [`NONE`] if the key is not scheduled.
    previous: u32,
}

const _: () = assert!(size_of::<Node>() == 16);

impl TimerWheel {
    /// A wheel that begins at `now`, with memory set aside for keys below `keys`; more are taken as they come.
    pub fn new(now: Instant, keys: usize) -> TimerWheel {
        TimerWheel {
            nodes: Vec::with_capacity(keys),
            first: [NONE; LEVELS * SLOTS],
            occupied: [0; LEVELS],
            levels: 0,
            current: tick(now),
            cascading: None,
            scheduled: 0,
        }
    }

    /// Keys that have a deadline.
    pub fn len(&self) -> usize {
        self.scheduled
    }

    /// Whether no key has a deadline.
    pub fn is_empty(&self) -> bool {
        self.scheduled == 0
    }

    /// The deadline of `key`.
    #[inline]
    pub fn deadline_of(&self, key: u32) -> Option<Instant> {
        self.nodes.get(key as usize).filter(|node| node.previous != NONE).map(|node| node.deadline)
    }

    /// Makes `deadline` the deadline of `key`, in place of the one it may have. It may lie in the past.
    ///
    /// # Panics
    /// If `key` is 2^31 or more.
    pub fn schedule(&mut self, key: u32, deadline: Instant) {
        let slot = self.slot_for(deadline);
        if let Some(old) = self.deadline_of(key) {
            // As a rule a deadline moves by little, and its key may stay.
            if self.slot_for(old) == slot {
                self.nodes[key as usize].deadline = deadline;
                return;
            }
            self.cancel(key);
        } else if key as usize >= self.nodes.len() {
            assert!(key < FIRST, "keys are indexes of connections");
            let idle = Node { deadline: Instant::ZERO, next: NONE, previous: NONE };
            self.nodes.resize(key as usize + 1, idle);
        }
        self.scheduled += 1;
        self.nodes[key as usize].deadline = deadline;
        self.link(key, slot);
    }

    /// Removes the deadline of `key`, if it has one.
    pub fn cancel(&mut self, key: u32) {
        if self.deadline_of(key).is_some() {
            self.unlink(key);
            self.scheduled -= 1;
        }
    }

    /// A time not after the earliest deadline: that deadline itself, or the begin of its slot if it shares a slot ahead
    /// with many others.
    pub fn next_deadline(&self) -> Option<Instant> {
        let slot = self.first_occupied()?;
        let begin = Instant::from_nanos(self.begin_of(slot) << TICK_BITS);
        if self.cascading.is_some() {
            return Some(begin); // What was moved to finer slots already may come before what was not.
        }
        // Now is not good enough: a caller that waits for it would get nothing and wait for it again.
        let walk_max = if tick(begin) > self.current { WALK_MAX } else { usize::MAX };
        let mut nodes = self.nodes_from(self.first[slot]);
        let earliest = nodes.by_ref().take(walk_max).map(|(_, node)| node.deadline).min();
        if nodes.next().is_some() { earliest.min(Some(begin)) } else { earliest }
    }

    /// The next key whose deadline is not after `now`; it has no deadline any more. Called until it returns `None`.
    ///
    /// `now` does not go back from call to call.
    pub fn poll_expired(&mut self, now: Instant) -> Option<u32> {
        let mut moves = CASCADE_MAX;
        loop {
            let slot = self.first_occupied();
            let begin = slot.map_or(u64::MAX, |slot| self.begin_of(slot));
            let Some(slot) = slot.filter(|_| begin <= tick(now)) else {
                self.current = self.current.max(tick(now));
                return None;
            };
            self.current = begin;
            if slot < SLOTS {
                let key = self.find_expired(slot, now)?;
                self.cancel(key);
                return Some(key);
            }
            self.cascade(slot, &mut moves);
            if moves == 0 {
                return None;
            }
        }
    }

    /// A key in `slot`, of the current tick or one before it, whose deadline is not after `now`.
    fn find_expired(&self, slot: usize, now: Instant) -> Option<u32> {
        self.nodes_from(self.first[slot]).find(|(_, node)| node.deadline <= now).map(|(key, _)| key)
    }

    /// `key` and those behind it in its slot.
    #[inline]
    fn nodes_from(&self, key: u32) -> impl Iterator<Item = (u32, &Node)> {
        let node = move |key: u32| self.nodes.get(key as usize).map(|node| (key, node)); // NONE is no index.
        core::iter::successors(node(key), move |(_, before)| node(before.next))
    }

    /// Moves up to `moves` keys of `slot`, which the wheel has just come to, to finer slots.
    fn cascade(&mut self, slot: usize, moves: &mut usize) {
        while *moves > 0 && self.first[slot] != NONE {
            let key = self.first[slot];
            self.unlink(key);
            self.link(key, self.slot_for(self.nodes[key as usize].deadline));
            *moves -= 1;
        }
        self.cascading = (self.first[slot] != NONE).then_some(slot);
    }

    /// The slot of the earliest deadlines.
    #[inline]
    fn first_occupied(&self) -> Option<usize> {
        if self.cascading.is_some() {
            return self.cascading;
        }
        let level = self.levels.trailing_zeros() as usize;
        let slots = self.occupied.get(level)?;
        Some(level * SLOTS + slots.trailing_zeros() as usize)
    }

    /// The first tick of an occupied slot, which is not before the current tick.
    #[inline]
    fn begin_of(&self, slot: usize) -> u64 {
        let shift = (slot / SLOTS) as u32 * SLOT_BITS;
        let level = self.current >> shift;
        (level & !(SLOTS as u64 - 1) | (slot % SLOTS) as u64) << shift
    }

    /// Where `deadline` belongs while the wheel is in its current tick.
    #[inline]
    fn slot_for(&self, deadline: Instant) -> usize {
        let tick = tick(deadline).max(self.current);
        let highest_bit = 63 - ((tick ^ self.current) | 1).leading_zeros();
        let level = highest_bit / SLOT_BITS;
        level as usize * SLOTS + (tick >> (level * SLOT_BITS)) as usize % SLOTS
    }

    fn link(&mut self, key: u32, slot: usize) {
        let next = self.first[slot];
        let node = &mut self.nodes[key as usize];
        (node.next, node.previous) = (next, FIRST | slot as u32);
        if next != NONE {
            self.nodes[next as usize].previous = key;
        }
        self.first[slot] = key;
        self.occupied[slot / SLOTS] |= 1 << (slot % SLOTS);
        self.levels |= 1 << (slot / SLOTS);
    }

    fn unlink(&mut self, key: u32) {
        let node = &mut self.nodes[key as usize];
        let (next, previous) = (node.next, node.previous);
        node.previous = NONE;
        if next != NONE {
            self.nodes[next as usize].previous = previous;
        }
        if previous & FIRST == 0 {
            self.nodes[previous as usize].next = next;
            return;
        }
        let slot = (previous & !FIRST) as usize;
        self.first[slot] = next;
        if next == NONE {
            self.vacate(slot);
        }
    }

    fn vacate(&mut self, slot: usize) {
        let level = slot / SLOTS;
        self.occupied[level] &= !(1 << (slot % SLOTS));
        if self.occupied[level] == 0 {
            self.levels &= !(1 << level);
        }
        if self.cascading == Some(slot) {
            self.cascading = None;
        }
    }
}

const fn tick(at: Instant) -> u64 {
    at.as_nanos() >> TICK_BITS
}

#[cfg(test)]
mod tests;
