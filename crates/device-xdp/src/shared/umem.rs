//! Packet memory that several processes share, as one of them has it.

use std::mem::ManuallyDrop;
use std::thread;
use std::time::Duration;

use device::BURST;
use frame::{Frame, FrameIndex, Pool, Region};

use super::area::{Area, Turn};
use crate::XdpError;
use crate::packet_memory::PacketMemory;
use crate::queue::{HARVEST, QueueRings, RESERVE};
use crate::ring::{Consumer, Descriptor, Producer};
use crate::umem::{PACKET_HEADROOM, locate};

/// Free slots that a process keeps at most, and how many it keeps when it had more.
const STOCK_MAX: usize = if cfg!(test) { 128 } else { 1024 };
const STOCK: usize = STOCK_MAX / 2;
/// Slots whose owners are looked at in one search for free ones.
const SEARCH: u32 = 2048;
/// After so many vain attempts to take the lock, and again after as many, it is asked whether its holder is alive.
const PATIENCE: u32 = 64;
/// How often a process that begins tries to take the lock, and how long it waits in between.
const BEGINNINGS: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(1);

/// A pool of which we have some of the slots: the page of [`super`] says who has the others, and how slots change hands.
///
/// `ours` remembers which are ours. An address coming out of a ring is believed only if its slot is not ours, and the area says that the
/// kernel had it until now. So nothing that is in the rings or in the area, from whomever, makes two frames of one slot in this process. Between
/// processes, which trust each other, the area's owners see to that. Both make the unsafe calls below sound.
pub(crate) struct SharedUmem {
    pool: ManuallyDrop<Pool>,
    ours: Vec<bool>,
    area: ManuallyDrop<Area>,
    turn: Turn,
    /// Where the next search for free slots begins.
    next: u32,
    /// Vain attempts to take the lock, since the last one that was not.
    vain: u32,
    /// The fill ring is half empty, and somebody else has the lock.
    owes: bool,
}

impl SharedUmem {
    /// The memory as the process in the area's place has it: nothing of it is ours before [`PacketMemory::begin`].
    ///
    /// # Safety
    /// The region is mapped for this call, is the memory that the area was made for, and the sockets that use it are those made with both.
    pub(crate) unsafe fn new(region: Region, slot_size: u16, area: Area) -> SharedUmem {
        let pool = Pool::surrendered(region, slot_size, PACKET_HEADROOM);
        let (slots, turn) = (pool.slots(), area.sign());
        SharedUmem {
            pool: ManuallyDrop::new(pool),
            ours: vec![false; slots],
            area: ManuallyDrop::new(area),
            turn,
            next: 0,
            vain: 0,
            owes: false,
        }
    }

    /// Takes the fill and the completion ring, or leaves it for later.
    fn try_lock(&mut self) -> bool {
        let is_time = |vain: u32| vain % PATIENCE == PATIENCE - 1;
        let is_taken =
            self.area.try_lock(self.turn) || (is_time(self.vain) && self.area.inherit_lock(self.turn));
        self.vain = if is_taken { 0 } else { self.vain.wrapping_add(1) };
        is_taken
    }

    /// Goes on behind what others have put into the fill ring, one of whom may have died over it. Needs the lock.
    fn resume_refill(&self, fill: &mut Producer<u64>) {
        fill.resync();
        let written = self.area.fill_written();
        let end = written.get();
        let left = fill.unpublished(end);
        for number in (0..left).map(|place| fill.published().wrapping_add(place)) {
            if let Some((index, _)) = locate(&self.pool, fill.entry(number))
                && !self.is_ours(index)
            {
                self.area.give_to_kernel(index);
            }
        }
        if left > 0 {
            fill.continue_from(end);
            fill.publish();
        } else if end != fill.written() {
            written.set(fill.written()); // It made no sense.
        }
    }

    /// Lends `count` slots of ours, or as many as there are. Needs the lock.
    fn lend_empty(&mut self, fill: &mut Producer<u64>, count: usize) {
        for _ in 0..count {
            let Some(frame) = self.pool.alloc() else { break };
            let index = self.pool.surrender(frame);
            let pushed = fill.push(u64::from(index.0) * self.pool.slot_size() as u64);
            debug_assert!(pushed, "there is room");
            self.area.fill_written().set(fill.written());
            self.give_to_kernel(index);
        }
        fill.publish();
    }

    /// Takes what has been sent, by whomever, as far as one call goes. Needs the lock.
    fn harvest_all(&mut self, completion: &mut Consumer<u64>, invalid: &mut u64) -> u32 {
        completion.resync();
        let count = completion.waiting().min(HARVEST);
        for address in (0..count).map_while(|_| completion.pop()) {
            *invalid += u64::from(!self.take_back(address));
        }
        completion.release();
        count
    }

    /// Puts a slot that the kernel has sent from among our free ones.
    fn take_back(&mut self, address: u64) -> bool {
        let Some((index, _)) = locate(&self.pool, address) else { return false };
        // SAFETY: `recall` made sure that the slot was the kernel's, which has let go of it, and that it is ours now, and was not before.
        self.recall(index) && unsafe { self.pool.reclaim(index) }
    }

    /// Makes a slot ours that was the kernel's; false if it was not.
    fn recall(&mut self, index: FrameIndex) -> bool {
        let is_taken = !self.is_ours(index) && self.area.take_from_kernel(index);
        if is_taken {
            self.ours[index.0 as usize] = true;
        }
        is_taken
    }

    /// Also of slots that there are not: nobody takes them.
    fn is_ours(&self, index: FrameIndex) -> bool {
        self.ours.get(index.0 as usize).copied().unwrap_or(true)
    }

    fn give_to_kernel(&mut self, index: FrameIndex) {
        self.ours[index.0 as usize] = false;
        self.area.give_to_kernel(index);
    }

    /// Searches for slots that are nobody's, until we have `wanted` free ones or the search has taken long enough.
    fn search(&mut self, wanted: usize) {
        let slots = self.ours.len() as u32;
        for _ in 0..SEARCH.min(slots) {
            if self.pool.available() >= wanted {
                return;
            }
            let index = FrameIndex(self.next);
            self.next = (self.next + 1) % slots;
            if !self.is_ours(index) && self.area.take_free(index) {
                self.ours[index.0 as usize] = true;
                // SAFETY: the exchange made sure that nobody had the slot.
                unsafe { self.pool.reclaim(index) };
            }
        }
    }

    /// Lets go of free slots if there are too many.
    fn shed(&mut self) {
        if self.pool.available() <= STOCK_MAX {
            return;
        }
        while self.pool.available() > STOCK
            && let Some(frame) = self.pool.alloc()
        {
            let index = self.pool.surrender(frame);
            self.ours[index.0 as usize] = false;
            self.area.free(index);
        }
    }

    /// Takes what a process left that was killed in our place: what waits in its rings, and all that it owned.
    fn take_over(&mut self, rings: &mut QueueRings) {
        for _ in 0..rings.tx.size() {
            if rings.rx.waiting() == 0 {
                break;
            }
            while let Some(descriptor) = rings.rx.pop() {
                if let Some((index, _)) = locate(&self.pool, descriptor.address) {
                    self.area.take_from_kernel(index);
                }
            }
            rings.rx.release();
        }
        let written = self.area.tx_written();
        let left = rings.tx.unpublished(written.get());
        for number in (0..left).map(|place| rings.tx.published().wrapping_add(place)) {
            if let Some((index, _)) = locate(&self.pool, rings.tx.entry(number).address) {
                self.area.take_from_kernel(index);
            }
        }
        written.set(rings.tx.published());
        for slot in 0..self.ours.len() {
            let index = FrameIndex(slot as u32);
            if !self.ours[slot] && self.area.is_own(index) {
                self.ours[slot] = true;
                // SAFETY: the place is ours alone, and so is the slot; `ours` says that it is not in the pool yet, nor a frame.
                unsafe { self.pool.reclaim(index) };
            }
        }
    }

    fn count_ours(&self) -> usize {
        self.ours.iter().filter(|ours| **ours).count()
    }
}

impl PacketMemory for SharedUmem {
    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn lent(&self) -> usize {
        self.area.lent()
    }

    fn held(&self) -> usize {
        self.count_ours().saturating_sub(self.pool.available())
    }

    fn alloc(&mut self) -> Option<Frame> {
        if self.pool.available() == 0 {
            self.search(BURST);
        }
        self.pool.alloc()
    }

    fn release(&mut self, frame: Frame) {
        self.pool.release(frame);
        self.shed();
    }

    fn take_packet(&mut self, descriptor: Descriptor) -> Option<Frame> {
        let (index, offset) = locate(&self.pool, descriptor.address)?;
        let len = u16::try_from(descriptor.len).ok()?;
        if usize::from(offset) + usize::from(len) > self.pool.slot_size() || !self.recall(index) {
            return None;
        }
        // SAFETY: as for `take_back`.
        unsafe { self.pool.adopt(index, offset, len) }
    }

    fn send(&mut self, tx: &mut Producer<Descriptor>, frame: Frame) {
        let (offset, len) = (frame.headroom() as u64, frame.len() as u32);
        let index = self.pool.surrender(frame);
        let address = u64::from(index.0) * self.pool.slot_size() as u64 + offset;
        let pushed = tx.push(Descriptor { address, len, options: 0 });
        debug_assert!(pushed, "the caller asked for room");
        self.area.tx_written().set(tx.written());
        self.give_to_kernel(index);
    }

    fn refill(&mut self, fill: &mut Producer<u64>, threshold: u32) {
        self.owes = false;
        let free = fill.free();
        if free < threshold.max(1) {
            return;
        }
        self.search(free as usize + RESERVE);
        let spare = self.pool.available().saturating_sub(RESERVE);
        if spare == 0 {
            return;
        }
        if !self.try_lock() {
            self.owes = free >= fill.size() / 2; // Whoever has the lock fills it, too, unless it is stopped.
            return;
        }
        self.resume_refill(fill);
        let room = fill.room(fill.size()) as usize;
        self.lend_empty(fill, spare.min(room));
        self.area.unlock();
    }

    fn owes(&self) -> bool {
        self.owes
    }

    fn harvest(&mut self, completion: &mut Consumer<u64>, invalid: &mut u64) -> u32 {
        if !completion.has_waiting() || !self.try_lock() {
            return 0;
        }
        let count = self.harvest_all(completion, invalid);
        self.area.unlock();
        self.shed();
        count
    }

    fn begin(&mut self, rings: &mut QueueRings) -> Result<(), XdpError> {
        let mut is_taken = false;
        for _ in 0..BEGINNINGS {
            is_taken = self.area.try_lock(self.turn) || self.area.inherit_lock(self.turn);
            if is_taken {
                break;
            }
            thread::sleep(PAUSE);
        }
        if !is_taken {
            return Err(XdpError::Lent("a process that shares its queue is stopped"));
        }
        self.resume_refill(&mut rings.fill);
        // What comes out belongs to the place already if a predecessor has read it, and is the kernel's if not.
        let mut passed_over = 0;
        for _ in 0..rings.completion.size().div_ceil(HARVEST) {
            if self.harvest_all(&mut rings.completion, &mut passed_over) == 0 {
                break;
            }
        }
        self.area.unlock();
        self.take_over(rings);
        for _ in 0..self.ours.len().div_ceil(SEARCH as usize) {
            self.search(rings.fill.free() as usize + RESERVE);
        }
        self.refill(&mut rings.fill, 1);
        self.shed();
        Ok(())
    }

    unsafe fn take_back_all(&mut self) {
        if self.held() > 0 {
            return; // Frames are out: `drop` keeps memory and place.
        }
        for slot in 0..self.ours.len() {
            // What is free is in the pool, and what is not ours is put there, in this process, for the pool to be whole.
            if !self.ours[slot] {
                // SAFETY: no frame of the slot is made here any more, as the caller promises; others have pools of their own.
                unsafe { self.pool.reclaim(FrameIndex(slot as u32)) };
            }
        }
        self.ours.fill(true);
    }
}

impl Drop for SharedUmem {
    /// What is ours stays our place's, for the next process in it. While there are frames of it, nobody may be in it.
    fn drop(&mut self) {
        if self.pool.available() < self.pool.slots() {
            return; // Not taken back, or frames are out: the mappings are left to the end of the process.
        }
        // SAFETY: both are dropped once, here, and not used afterwards. The pool comes first: the place is given up behind it.
        unsafe {
            ManuallyDrop::drop(&mut self.pool);
            ManuallyDrop::drop(&mut self.area);
        }
    }
}

#[cfg(test)]
mod tests;
