//! The memory in which the kernel and the engine exchange packets.

use frame::{Frame, FrameIndex, Pool, Region};

use crate::XdpError;
use crate::packet_memory::PacketMemory;
use crate::queue::{HARVEST, QueueRings, RESERVE};
use crate::ring::{Consumer, Descriptor, Producer};

/// The kernel leaves this many octets before a received packet (XDP_PACKET_HEADROOM of linux/bpf.h).
pub(crate) const PACKET_HEADROOM: u16 = 256;

/// A pool whose slots may be lent to the kernel.
///
/// A slot is free, or a [`Frame`], or lent. `lent` remembers the last, so that an address coming out of a ring is
/// believed only if its slot is with the kernel. That check is what makes the unsafe calls below sound, whatever the
/// ring's memory holds.
pub(crate) struct Umem {
    pool: Pool,
    lent: Vec<bool>,
}

impl Umem {
    /// Cuts `region` into slots of `slot_size` octets, which is 2048 or 4096.
    pub(crate) fn new(region: Region, slot_size: u16) -> Umem {
        let pool = Pool::new(region, slot_size, PACKET_HEADROOM);
        Umem { lent: vec![false; pool.slots()], pool }
    }

    /// Lends a free slot for a packet to come; returns the slot's address.
    pub(crate) fn lend_empty(&mut self) -> Option<u64> {
        let frame = self.pool.alloc()?;
        let index = self.lend_slot(frame);
        Some(self.slot_address(index))
    }

    /// Lends the frame with the packet in it.
    pub(crate) fn lend(&mut self, frame: Frame) -> Descriptor {
        let (offset, len) = (frame.headroom() as u64, frame.len() as u32);
        let index = self.lend_slot(frame);
        Descriptor { address: self.slot_address(index) + offset, len, options: 0 }
    }

    /// Puts a slot that the kernel has sent from back among the free ones; false if the address names no lent slot.
    pub(crate) fn take_back(&mut self, address: u64) -> bool {
        let Some((index, _)) = self.locate(address) else { return false };
        // SAFETY: as for `take_packet`.
        self.recall(index) && unsafe { self.pool.reclaim(index) }
    }

    fn lend_slot(&mut self, frame: Frame) -> FrameIndex {
        let index = self.pool.surrender(frame);
        self.lent[index.0 as usize] = true;
        index
    }

    /// Whether the slot was lent; it is not any more.
    fn recall(&mut self, index: FrameIndex) -> bool {
        self.lent.get_mut(index.0 as usize).is_some_and(std::mem::take)
    }

    fn slot_address(&self, index: FrameIndex) -> u64 {
        u64::from(index.0) * self.pool.slot_size() as u64
    }

    fn locate(&self, address: u64) -> Option<(FrameIndex, u16)> {
        locate(&self.pool, address)
    }
}

/// The slot and the octet in it that an address names; the slot may lie behind the last one.
pub(crate) fn locate(pool: &Pool, address: u64) -> Option<(FrameIndex, u16)> {
    let slot_size = pool.slot_size() as u64; // A power of two below 2^16.
    let index = u32::try_from(address / slot_size).ok()?;
    Some((FrameIndex(index), (address % slot_size) as u16))
}

impl PacketMemory for Umem {
    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn lent(&self) -> usize {
        self.lent.iter().filter(|lent| **lent).count()
    }

    fn held(&self) -> usize {
        self.pool.slots().saturating_sub(self.pool.available() + self.lent())
    }

    fn alloc(&mut self) -> Option<Frame> {
        self.pool.alloc()
    }

    fn release(&mut self, frame: Frame) {
        self.pool.release(frame);
    }

    fn take_packet(&mut self, descriptor: Descriptor) -> Option<Frame> {
        let (index, offset) = self.locate(descriptor.address)?;
        let len = u16::try_from(descriptor.len).ok()?;
        if usize::from(offset) + usize::from(len) > self.pool.slot_size() || !self.recall(index) {
            return None;
        }
        // SAFETY: `recall` made sure that the slot was surrendered and is taken back for the first time since; the
        // kernel lets go of a slot before it puts the address into a ring (af_xdp.rst, "Rings").
        unsafe { self.pool.adopt(index, offset, len) }
    }

    fn send(&mut self, tx: &mut Producer<Descriptor>, frame: Frame) {
        let pushed = tx.push(self.lend(frame));
        debug_assert!(pushed, "the caller asked for room");
    }

    fn refill(&mut self, fill: &mut Producer<u64>, threshold: u32) {
        let room = fill.room(threshold);
        if room < threshold.max(1) {
            return;
        }
        let spare = self.pool.available().saturating_sub(RESERVE);
        for address in (0..spare.min(room as usize)).map_while(|_| self.lend_empty()) {
            let pushed = fill.push(address);
            debug_assert!(pushed, "`room` said so");
        }
        fill.publish();
    }

    fn harvest(&mut self, completion: &mut Consumer<u64>, invalid: &mut u64) -> u32 {
        let count = completion.waiting().min(HARVEST);
        for address in (0..count).map_while(|_| completion.pop()) {
            *invalid += u64::from(!self.take_back(address));
        }
        completion.release();
        count
    }

    fn begin(&mut self, rings: &mut QueueRings) -> Result<(), XdpError> {
        rings.refill(self, 1);
        Ok(())
    }

    unsafe fn take_back_all(&mut self) {
        for slot in 0..self.lent.len() {
            let index = FrameIndex(slot as u32);
            if self.recall(index) {
                // SAFETY: `recall` as above. A driver that still writes does so into pages that the kernel keeps for
                // itself; as the caller promises, no frame for the slot is made any more.
                unsafe { self.pool.reclaim(index) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn umem() -> Umem {
        Umem::new(Region::anonymous(4 * 2048).unwrap(), 2048)
    }

    #[test]
    fn a_packet_comes_back_as_the_frame_it_was_lent_as() {
        let mut umem = umem();
        let mut frame = umem.alloc().unwrap();
        frame.copy_from(b"packet");
        let descriptor = umem.lend(frame);
        assert_eq!((descriptor.address % 2048, descriptor.len), (256, 6));
        assert_eq!(umem.take_packet(descriptor).unwrap().bytes(), b"packet");
    }

    #[test]
    fn every_slot_is_free_lent_or_held() {
        let mut umem = umem();
        let frame = umem.alloc().unwrap();
        let address = umem.lend_empty().unwrap();
        assert_eq!((umem.lent(), umem.held()), (1, 1));
        umem.lend(frame);
        assert_eq!((umem.lent(), umem.held()), (2, 0));
        umem.take_back(address);
        assert_eq!((umem.lent(), umem.held()), (1, 0));
    }

    #[test]
    fn a_slot_comes_back_once() {
        let mut umem = umem();
        let address = umem.lend_empty().unwrap();
        assert!(umem.take_back(address));
        assert!(!umem.take_back(address));
        assert_eq!(umem.pool().available(), 4);
    }

    #[test]
    fn addresses_that_were_never_lent_are_refused() {
        let mut umem = umem();
        let held = umem.alloc().unwrap();
        for address in [0, 3 * 2048, 4 * 2048, u64::MAX] {
            assert!(!umem.take_back(address));
            assert!(umem.take_packet(Descriptor { address, len: 1, options: 0 }).is_none());
        }
        umem.release(held);
    }

    #[test]
    fn a_packet_that_would_leave_its_slot_is_refused() {
        let mut umem = umem();
        let address = umem.lend_empty().unwrap();
        for len in [2049 - 256, u32::MAX] {
            let descriptor = Descriptor { address: address + 256, len, options: 0 };
            assert!(umem.take_packet(descriptor).is_none());
        }
        assert!(umem.take_back(address), "the slot is still lent, not lost");
    }
}
