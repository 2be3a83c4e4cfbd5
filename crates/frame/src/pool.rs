//! Who may hand out which slot.

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{Frame, FrameIndex, PoolId, Region};

/// Hands out the slots of one region, each at most once. Not shared: an engine has its own.
#[derive(Debug)]
pub struct Pool {
    region: ManuallyDrop<Region>,
    id: PoolId,
    slot_size: u16,
    headroom: u16,
    slots: u32,
    /// Indices of slots that nobody holds. Last in, first out: the next frame is the warmest in the cache.
    free: Vec<FrameIndex>,
}

impl Pool {
    /// Cuts `region` into slots of `slot_size` octets, whose frames start with `headroom` octets of headroom.
    ///
    /// # Panics
    /// If `headroom` exceeds `slot_size`, `slot_size` is zero, or there are more than 2^32 slots.
    pub fn new(region: Region, slot_size: u16, headroom: u16) -> Pool {
        let mut pool = Pool::surrendered(region, slot_size, headroom);
        pool.free = (0..pool.slots).rev().map(FrameIndex).collect();
        pool
    }

    /// The same, of which all slots are out, as if they had been surrendered: others have them.
    ///
    /// # Panics
    /// As [`Pool::new`].
    pub fn surrendered(region: Region, slot_size: u16, headroom: u16) -> Pool {
        assert!(headroom <= slot_size && slot_size > 0, "headroom lies within the slot");
        let slots =
            u32::try_from(region.len() / usize::from(slot_size)).expect("slots are numbered by a u32");
        Pool {
            region: ManuallyDrop::new(region),
            id: next_id(),
            slot_size,
            headroom,
            slots,
            free: Vec::with_capacity(slots as usize),
        }
    }

    /// Tells whether frames come from here: compare with [`Frame::pool`].
    pub fn id(&self) -> PoolId {
        self.id
    }

    /// The memory that the slots lie in.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Octets of one slot.
    pub fn slot_size(&self) -> usize {
        usize::from(self.slot_size)
    }

    /// Number of slots, free or not.
    pub fn slots(&self) -> usize {
        self.slots as usize
    }

    /// Number of slots that [`Pool::alloc`] could hand out now.
    pub fn available(&self) -> usize {
        self.free.len()
    }

    /// Takes an empty frame, or `None` when all are out.
    pub fn alloc(&mut self) -> Option<Frame> {
        let index = self.free.pop()?;
        Some(self.frame(index, self.headroom, 0))
    }

    /// Takes a frame back.
    ///
    /// # Panics
    /// If the frame is another pool's.
    pub fn release(&mut self, frame: Frame) {
        let index = self.surrender(frame);
        self.free.push(index);
    }

    /// Turns a frame of this pool into its bare index, for an owner that keeps no Rust values, such as the kernel. The
    /// slot is out until [`Pool::adopt`] or [`Pool::reclaim`].
    ///
    /// # Panics
    /// If the frame is another pool's.
    pub fn surrender(&self, frame: Frame) -> FrameIndex {
        assert_eq!(frame.pool, self.id, "a frame returns to the pool that it came from");
        frame.index
    }

    /// Turns an index back into a frame holding the packet at `offset` and `len` of its slot; `None` if they do not lie
    /// within a slot of this pool.
    ///
    /// # Safety
    /// The index was surrendered, not yet adopted or reclaimed since, and whoever it was surrendered to no longer
    /// touches the slot.
    pub unsafe fn adopt(&self, index: FrameIndex, offset: u16, len: u16) -> Option<Frame> {
        let end = offset.checked_add(len)?;
        (index.0 < self.slots && end <= self.slot_size).then(|| self.frame(index, offset, len))
    }

    /// Returns a surrendered index to the free list; false, and nothing done, if this pool has no such slot.
    ///
    /// # Safety
    /// As for [`Pool::adopt`].
    pub unsafe fn reclaim(&mut self, index: FrameIndex) -> bool {
        let ours = index.0 < self.slots;
        if ours {
            self.free.push(index);
        }
        ours
    }

    /// A frame for slot `index`; private, as the caller must have made sure that it is the slot's only holder.
    fn frame(&self, index: FrameIndex, offset: u16, len: u16) -> Frame {
        let start = index.0 as usize * usize::from(self.slot_size);
        debug_assert!(start + usize::from(self.slot_size) <= self.region.len());
        // SAFETY: `index` < `slots`, so the slot lies within the region, which is one mapped object.
        let slot = unsafe { self.region.start().add(start) };
        Frame { slot, index, pool: self.id, slot_size: self.slot_size, offset, len, queue: 0 }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.free.len() == self.slots as usize {
            // SAFETY: dropped once, here, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.region) };
        }
        // Else frames are out: the mapping is leaked, see the crate's page.
    }
}

fn next_id() -> PoolId {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    assert_ne!(id, u32::MAX, "pool numbers are never used twice");
    PoolId(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(slots: usize) -> Pool {
        Pool::new(Region::anonymous(slots * 2048).unwrap(), 2048, 0)
    }

    #[test]
    fn every_slot_is_handed_out_once_and_then_none() {
        let mut pool = pool(8);
        let frames: Vec<Frame> = std::iter::from_fn(|| pool.alloc()).collect();
        let mut indices: Vec<u32> = frames.iter().map(|frame| frame.index().0).collect();
        indices.sort_unstable();
        assert_eq!(indices, (0..8).collect::<Vec<_>>());
        frames.into_iter().for_each(|frame| pool.release(frame));
        assert_eq!(pool.available(), 8);
    }

    #[test]
    #[should_panic(expected = "the pool that it came from")]
    fn a_frame_cannot_enter_another_pool() {
        let (mut one, mut other) = (pool(1), pool(1));
        other.release(one.alloc().unwrap());
    }

    #[test]
    fn an_index_beyond_the_pool_is_never_adopted() {
        let pool = pool(2);
        // SAFETY: nothing is created: both calls name places outside the pool.
        let beyond = unsafe { (pool.adopt(FrameIndex(2), 0, 1), pool.adopt(FrameIndex(0), 2000, 49)) };
        assert!(beyond.0.is_none() && beyond.1.is_none());
    }

    #[test]
    fn a_frame_outlives_its_pool() {
        let mut pool = pool(1);
        let mut frame = pool.alloc().unwrap();
        drop(pool);
        frame.copy_from(b"still mapped");
        assert_eq!(frame.bytes(), b"still mapped");
    }
}
