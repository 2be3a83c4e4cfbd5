//! Values in stable slots. A handle detects that another value has taken over its slot.

use core::marker::PhantomData;
use core::num::NonZeroU32;

/// Names a value of a [`Slab`]. A handle of a value that has gone finds nothing, also when its place is in use again.
///
/// `K` tells handles of different slabs apart: the type of the values, unless a slab says otherwise.
pub struct Handle<K> {
    index: u32,
    generation: Generation,
    kind: PhantomData<fn() -> K>,
}

const _: () = assert!(size_of::<Option<Handle<u8>>>() == 8);

/// How often a place was in use, this time counted: never zero, so that no handle takes no more than a handle.
type Generation = NonZeroU32;

impl<K> Handle<K> {
    /// Its place. Places are dense from zero.
    pub const fn index(self) -> u32 {
        self.index
    }

    /// How often the place was in use before.
    pub const fn generation(self) -> u32 {
        self.generation.get() - 1
    }

    /// Slot and generation as one number, for users that store handles elsewhere.
    pub const fn to_bits(self) -> u64 {
        (self.generation() as u64) << 32 | self.index as u64
    }
}

impl<K> Clone for Handle<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Handle<K> {}

impl<K> PartialEq for Handle<K> {
    fn eq(&self, other: &Self) -> bool {
        self.to_bits() == other.to_bits()
    }
}

impl<K> Eq for Handle<K> {}

impl<K> core::hash::Hash for Handle<K> {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        self.to_bits().hash(state);
    }
}

impl<K> PartialOrd for Handle<K> {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<K> Ord for Handle<K> {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.to_bits().cmp(&other.to_bits())
    }
}

impl<K> core::fmt::Debug for Handle<K> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}.{}", self.index, self.generation())
    }
}

/// Places per block: growing adds a block and moves nothing.
const BLOCK: usize = 256;

/// Values at stable places. Grows block by block up to its limit and never shrinks.
#[derive(Debug)]
pub struct Slab<T, K = T> {
    blocks: Vec<Box<[Place<T>]>>,
    free: Vec<u32>,
    used: u32,
    limit: u32,
    kind: PhantomData<fn() -> K>,
}

#[derive(Debug)]
struct Place<T> {
    generation: Generation,
    value: Option<T>,
}

impl<T, K> Slab<T, K> {
    /// Room for up to `limit` values.
    pub fn new(limit: u32) -> Slab<T, K> {
        Slab { blocks: Vec::new(), free: Vec::new(), used: 0, limit, kind: PhantomData }
    }

    /// Number of values.
    pub fn len(&self) -> u32 {
        self.used
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Whether another value finds no place.
    pub fn is_full(&self) -> bool {
        self.used >= self.limit
    }

    /// Puts the value that `make` returns for its handle into a free slot; `None` if there is none.
    pub fn insert_with(&mut self, make: impl FnOnce(Handle<K>) -> T) -> Option<Handle<K>> {
        if self.is_full() {
            return None;
        }
        if self.free.is_empty() {
            self.grow();
        }
        let index = self.free.pop().expect("a block was just added");
        let place = self.place_mut(index).expect("free places exist");
        let handle = Handle { index, generation: place.generation, kind: PhantomData };
        place.value = Some(make(handle));
        self.used += 1;
        Some(handle)
    }

    fn grow(&mut self) {
        let start = (self.blocks.len() * BLOCK) as u32;
        self.blocks.push((0..BLOCK).map(|_| Place { generation: Generation::MIN, value: None }).collect());
        self.free.extend((start..start + BLOCK as u32).rev());
    }

    /// Takes the value out.
    pub fn remove(&mut self, handle: Handle<K>) -> Option<T> {
        let place = self.place_mut(handle.index).filter(|place| place.generation == handle.generation)?;
        let value = place.value.take()?;
        place.generation = place.generation.checked_add(1).unwrap_or(Generation::MIN);
        self.free.push(handle.index);
        self.used -= 1;
        Some(value)
    }

    /// The value, if it is still there.
    #[inline]
    pub fn get(&self, handle: Handle<K>) -> Option<&T> {
        let place = self.blocks.get(handle.index as usize / BLOCK)?.get(handle.index as usize % BLOCK)?;
        place.value.as_ref().filter(|_| place.generation == handle.generation)
    }

    /// The value, if it is still there.
    #[inline]
    pub fn get_mut(&mut self, handle: Handle<K>) -> Option<&mut T> {
        let place = self.place_mut(handle.index)?;
        let generation = place.generation;
        place.value.as_mut().filter(|_| generation == handle.generation)
    }

    /// The value at a place, whichever it is now, and its handle.
    #[inline]
    pub fn at(&self, index: u32) -> Option<(Handle<K>, &T)> {
        let place = self.blocks.get(index as usize / BLOCK)?.get(index as usize % BLOCK)?;
        let handle = Handle { index, generation: place.generation, kind: PhantomData };
        Some((handle, place.value.as_ref()?))
    }

    /// The value at a place, whichever it is now, and its handle.
    #[inline]
    pub fn at_mut(&mut self, index: u32) -> Option<(Handle<K>, &mut T)> {
        let place = self.place_mut(index)?;
        let handle = Handle { index, generation: place.generation, kind: PhantomData };
        Some((handle, place.value.as_mut()?))
    }

    /// Number of places, used or not: one more than the highest index there can be.
    pub fn places(&self) -> u32 {
        (self.blocks.len() * BLOCK) as u32
    }

    /// All values in the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = (Handle<K>, &T)> {
        let places = (0..self.places()).filter_map(|index| self.at(index));
        places.take(self.used as usize)
    }

    #[inline]
    fn place_mut(&mut self, index: u32) -> Option<&mut Place<T>> {
        self.blocks.get_mut(index as usize / BLOCK)?.get_mut(index as usize % BLOCK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_handle_does_not_find_the_new_value_at_its_place() {
        let mut slab: Slab<char> = Slab::new(10);
        let old = slab.insert_with(|_| 'a').unwrap();
        assert_eq!(slab.remove(old), Some('a'));
        let new = slab.insert_with(|_| 'b').unwrap();
        assert_eq!(new.index(), old.index());
        assert_eq!((slab.get(old), slab.get(new)), (None, Some(&'b')));
        assert_eq!(slab.remove(old), None);
    }

    #[test]
    fn the_limit_holds() {
        let mut slab: Slab<i32> = Slab::new(2);
        let first = slab.insert_with(|_| 1).unwrap();
        slab.insert_with(|_| 2).unwrap();
        assert!(slab.insert_with(|_| 3).is_none());
        slab.remove(first);
        assert!(slab.insert_with(|_| 3).is_some());
    }

    #[test]
    fn values_are_listed_in_the_order_of_their_places() {
        let mut slab: Slab<i32> = Slab::new(1000);
        let handles: Vec<_> = (0..600).map(|n| slab.insert_with(|_| n).unwrap()).collect();
        slab.remove(handles[5]);
        assert_eq!(slab.iter().count(), 599);
        assert!(slab.iter().map(|(_, n)| n).is_sorted());
    }
}
