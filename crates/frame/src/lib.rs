//! Packet frames and the pools that own their memory.
//!
//! A [`Region`] is a mapping cut into equal slots. A [`Pool`] owns a region and hands out each slot at most once; a
//! [`Frame`] *is* a slot: whoever holds the `Frame` may read and write it, and nobody else may. Frames are passed by
//! value from receive ring to responder to transmit ring, so a reply can be written into the frame that brought the
//! question.
//!
//! ```text
//!   slot:  | headroom |        packet        |  tailroom  |
//!          0        offset              offset+len    slot size
//! ```
//!
//! # Where the unsafe is
//!
//! Two places: the mapping ([`Region`], a handful of system calls), and the pointer inside [`Frame`]. The second rests on one
//! invariant: *for each slot, at most one of these exists: a `Frame`, an entry in its pool's free list, or an index
//! handed out by [`Pool::surrender`] to somebody such as the kernel*. Safe code cannot break it, because a `Frame` is
//! not `Clone`, and the only way to make one from an index, [`Pool::adopt`], is an unsafe function. A pool that is
//! dropped while frames are out leaks its mapping instead of freeing memory that somebody may still hold. Memory that several processes
//! map ([`Region::shared`], unsafe) has the same invariant with one pool each: for all of them together, a slot is one `Frame` at most.

mod pool;
mod region;

use std::fmt;
use std::ptr::NonNull;

pub use pool::Pool;
pub use region::Region;

/// Which slot of its pool a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameIndex(pub u32);

/// Tells pools of one process apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolId(u32);

/// One slot of a pool's memory, holding at most one packet. See the crate's page for the layout.
///
/// Dropping a frame loses its slot until the pool is gone; give it back with [`Pool::release`].
#[must_use = "a dropped frame is lost to its pool"]
pub struct Frame {
    slot: NonNull<u8>,
    index: FrameIndex,
    pool: PoolId,
    slot_size: u16,
    offset: u16,
    len: u16,
    /// Receive queue that brought the frame, as numbered by its device; 0 for a fresh one.
    pub queue: u16,
}

// SAFETY: a frame is the only holder of its slot (the crate's invariant), so moving it to another thread moves the
// right to touch that memory with it. The mapping outlives the frame: `Pool` leaks it while frames are out.
unsafe impl Send for Frame {}

impl Frame {
    /// The slot's number within its pool.
    pub fn index(&self) -> FrameIndex {
        self.index
    }

    /// The pool that the frame must return to.
    pub fn pool(&self) -> PoolId {
        self.pool
    }

    /// Octets from the start of the slot to the packet.
    pub fn headroom(&self) -> usize {
        usize::from(self.offset)
    }

    /// Octets from the end of the packet to the end of the slot.
    pub fn tailroom(&self) -> usize {
        usize::from(self.slot_size - self.offset - self.len)
    }

    /// Length of the packet in octets.
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Whether the frame holds no packet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The packet.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `slot` points to `slot_size` initialised octets (memory from the kernel always is) and offset + len <= slot_size
        // (kept by every setter); the frame is their only holder, and the borrow of `self` keeps it so.
        unsafe { std::slice::from_raw_parts(self.slot.as_ptr().add(usize::from(self.offset)), self.len()) }
    }

    /// The packet, to be changed in place.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let len = self.len();
        &mut self.bytes_and_tailroom_mut()[..len]
    }

    /// The packet and all the room behind it. What is written behind `len()` counts once [`Frame::set_len`] says so.
    pub fn bytes_and_tailroom_mut(&mut self) -> &mut [u8] {
        let room = usize::from(self.slot_size - self.offset);
        // SAFETY: as for `bytes`, up to the end of the slot; `&mut self` makes the borrow exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.slot.as_ptr().add(usize::from(self.offset)), room) }
    }

    /// Moves the end of the packet.
    ///
    /// # Panics
    /// If the packet would reach beyond the slot.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= usize::from(self.slot_size - self.offset), "a packet ends within its slot");
        self.len = len as u16; // Bounded by `slot_size`, a u16.
    }

    /// Moves the start of the packet `count` octets towards the start of the slot and returns the new octets.
    ///
    /// # Panics
    /// If the headroom is smaller than `count`.
    pub fn push_front(&mut self, count: usize) -> &mut [u8] {
        assert!(count <= self.headroom(), "a packet starts within its slot");
        self.offset -= count as u16;
        self.len += count as u16;
        &mut self.bytes_mut()[..count]
    }

    /// Drops `count` octets from the start of the packet; they become headroom.
    ///
    /// # Panics
    /// If the packet is shorter than `count`.
    pub fn pull_front(&mut self, count: usize) {
        assert!(count <= self.len(), "cannot remove more than there is");
        self.offset += count as u16;
        self.len -= count as u16;
    }

    /// Empties the frame and leaves `headroom` octets before the next packet.
    ///
    /// # Panics
    /// If the slot is smaller than `headroom`.
    pub fn reset(&mut self, headroom: usize) {
        assert!(headroom <= usize::from(self.slot_size), "headroom lies within the slot");
        self.offset = headroom as u16;
        self.len = 0;
    }

    /// Replaces the packet by a copy of `packet`.
    ///
    /// # Panics
    /// If `packet` does not fit behind the current headroom.
    pub fn copy_from(&mut self, packet: &[u8]) {
        self.set_len(packet.len());
        self.bytes_mut().copy_from_slice(packet);
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frame({:?} #{} {}+{})", self.pool, self.index.0, self.offset, self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame() -> (Pool, Frame) {
        let mut pool = Pool::new(Region::anonymous(4 * 2048).unwrap(), 2048, 128);
        let frame = pool.alloc().unwrap();
        (pool, frame)
    }

    #[test]
    fn a_fresh_frame_is_empty_behind_its_headroom() {
        let (_pool, frame) = frame();
        assert_eq!((frame.headroom(), frame.len(), frame.tailroom()), (128, 0, 2048 - 128));
    }

    #[test]
    fn a_header_is_pushed_in_front_and_pulled_off_again() {
        let (_pool, mut frame) = frame();
        frame.copy_from(b"payload");
        frame.push_front(4).copy_from_slice(b"head");
        assert_eq!(frame.bytes(), b"headpayload");
        frame.pull_front(4);
        assert_eq!(frame.bytes(), b"payload");
    }

    #[test]
    #[should_panic(expected = "within its slot")]
    fn a_packet_cannot_outgrow_its_slot() {
        let (_pool, mut frame) = frame();
        frame.set_len(2048);
    }

    #[test]
    fn writing_one_frame_leaves_its_neighbour_alone() {
        let (mut pool, mut first) = frame();
        let mut second = pool.alloc().unwrap();
        first.set_len(2048 - 128);
        first.bytes_mut().fill(0xff);
        second.set_len(2048 - 128);
        assert!(second.bytes().iter().all(|&byte| byte == 0));
    }
}
