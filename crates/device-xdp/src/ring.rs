//! Rings shared with the kernel: one side produces, the other consumes.
//!
//! ```text
//!   entries    [ . . x x x x . . ]      x: produced, not yet consumed
//!                    ^       ^
//!              consumer   producer      free-running u32 counters; entry i lies at i & mask
//! ```
//!
//! Fill and transmit rings are produced here and consumed by the kernel, completion and receive rings the other way
//! round (af_xdp.rst, "Rings"). A counter is stored with release and read with acquire ordering, so that the entries
//! behind it are seen whole. Both sides keep private copies and touch the other side's counter only when needed.
//!
//! The unsafe code here reads and writes entries of the shared memory. It relies on the bounds that [`Ring`]'s
//! constructors establish, not on the counters that the other side writes: those are clamped to the ring's size.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::syscalls::Mapping;

/// A receive or transmit descriptor: `struct xdp_desc` of linux/if_xdp.h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Descriptor {
    /// Of the packet's first octet, counted from the start of the umem.
    pub(crate) address: u64,
    /// The packet's length in octets.
    pub(crate) len: u32,
    /// [`Descriptor::CONTINUES`], or zero.
    pub(crate) options: u32,
}

impl Descriptor {
    /// The next descriptor is of the same packet: XDP_PKT_CONTD of linux/if_xdp.h.
    pub(crate) const CONTINUES: u32 = 1;

    /// Whether the packet ends here.
    pub(crate) fn is_whole(self) -> bool {
        self.options & Descriptor::CONTINUES == 0
    }
}

/// What a ring may hold: plain integers, of which every bit pattern is valid.
pub(crate) trait Entry: Copy {}
impl Entry for u64 {}
impl Entry for Descriptor {}

/// The memory of one ring, seen from either side.
pub(crate) struct Ring<T> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    size: u32,
    /// Keeps the memory behind the pointers.
    _memory: Arc<dyn Send + Sync>,
}

// SAFETY: the pointers lead into memory that `_memory` keeps; counters are atomics, and entries are handed from one
// side to the other by them. Moving one side to another thread is what rings are for.
unsafe impl<T: Entry + Send> Send for Ring<T> {}

impl<T: Entry> Ring<T> {
    /// The ring of `size` entries, a power of two, that the kernel mapped with these offsets. `None` if it does not lie
    /// within the mapping.
    pub(crate) fn new(mapping: Mapping, offsets: &libc::xdp_ring_offset, size: u32) -> Option<Ring<T>> {
        let len = mapping.len() as u64;
        let entries_end = offsets.desc.checked_add(u64::from(size) * size_of::<T>() as u64)?;
        let counters = [offsets.producer, offsets.consumer, offsets.flags];
        let aligned =
            counters.iter().all(|at| at % 4 == 0) && offsets.desc.is_multiple_of(align_of::<T>() as u64);
        let within = counters.iter().all(|&at| at < len && len - at >= 4) && entries_end <= len;
        if !(size.is_power_of_two() && aligned && within) {
            return None;
        }
        let start = mapping.start();
        // SAFETY: each offset plus the size of what lies there is within the mapping, and aligned: checked above.
        let at = |offset: u64| unsafe { start.add(offset as usize) };
        Some(Ring {
            producer: at(offsets.producer).cast(),
            consumer: at(offsets.consumer).cast(),
            flags: at(offsets.flags).cast(),
            entries: at(offsets.desc).cast(),
            size,
            _memory: Arc::new(mapping),
        })
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: points to an aligned u32 in memory that `_memory` keeps; both sides access it atomically only.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as for `producer`.
        unsafe { self.consumer.as_ref() }
    }

    fn flags(&self) -> &AtomicU32 {
        // SAFETY: as for `producer`.
        unsafe { self.flags.as_ref() }
    }

    fn entry(&self, counter: u32) -> NonNull<T> {
        // SAFETY: masked by `size - 1`, the index is below `size`, and that many entries lie in the memory.
        unsafe { self.entries.add((counter & (self.size - 1)) as usize) }
    }
}

/// The side that writes entries.
pub(crate) struct Producer<T> {
    ring: Ring<T>,
    /// Entries written so far; the other side learns of them by `publish`.
    written: u32,
    /// The other side's counter when last looked at.
    consumed: u32,
}

impl<T: Entry> Producer<T> {
    pub(crate) fn new(ring: Ring<T>) -> Producer<T> {
        let written = ring.producer().load(Ordering::Relaxed);
        let consumed = ring.consumer().load(Ordering::Acquire);
        Producer { ring, written, consumed }
    }

    /// Number of entries that `push` would take now. Looks at the other side's counter only if fewer than `wanted` are
    /// known to be free.
    pub(crate) fn room(&mut self, wanted: u32) -> u32 {
        if self.known_room() < wanted {
            self.consumed = self.ring.consumer().load(Ordering::Acquire);
        }
        self.known_room()
    }

    /// Writes an entry; false, and nothing done, if the ring is full as far as known: see `room`.
    pub(crate) fn push(&mut self, entry: T) -> bool {
        if self.known_room() == 0 {
            return false;
        }
        #[cfg(test)]
        crate::fuse::burn();
        // SAFETY: `entry` points to an entry of the ring, which is ours to write: the consumer reads only those between
        // its counter and the published one, and this lies at or behind the latter.
        unsafe { self.ring.entry(self.written).write(entry) };
        self.written = self.written.wrapping_add(1);
        true
    }

    /// Shows all written entries to the other side.
    pub(crate) fn publish(&mut self) {
        #[cfg(test)]
        crate::fuse::burn();
        self.ring.producer().store(self.written, Ordering::Release);
    }

    /// Entries that the other side has not consumed yet.
    pub(crate) fn outstanding(&mut self) -> u32 {
        self.consumed = self.ring.consumer().load(Ordering::Acquire);
        self.ring.size - self.known_room()
    }

    /// Goes on behind what was published last, where several processes write in turn, each while it holds a lock.
    pub(crate) fn resync(&mut self) {
        self.written = self.published();
        self.consumed = self.ring.consumer().load(Ordering::Acquire);
    }

    /// Number of the entry that the next [`Producer::push`] writes.
    pub(crate) fn written(&self) -> u32 {
        self.written
    }

    /// Number of the first entry that was not published, by whomever.
    pub(crate) fn published(&self) -> u32 {
        self.ring.producer().load(Ordering::Acquire)
    }

    /// Entries that are free now, whoever wrote the others.
    pub(crate) fn free(&self) -> u32 {
        let consumed = self.ring.consumer().load(Ordering::Acquire);
        self.ring.size.saturating_sub(self.published().wrapping_sub(consumed))
    }

    /// The number of entries from the first unpublished one to `end`, which another process has left: none if that makes no sense.
    pub(crate) fn unpublished(&self, end: u32) -> u32 {
        let count = end.wrapping_sub(self.published());
        if count <= self.ring.size { count } else { 0 }
    }

    /// What the entry of this number holds: any bits, unless it was written.
    pub(crate) fn entry(&self, number: u32) -> T {
        // SAFETY: `entry` points to an entry of the ring. The other side only reads it; of those who write, one does at a time, and it is
        // our turn. Any bits make a valid `T`.
        unsafe { self.ring.entry(number).read_volatile() }
    }

    /// Takes what was written up to `end` for written by us.
    pub(crate) fn continue_from(&mut self, end: u32) {
        self.written = end;
    }

    /// Entries of the ring.
    pub(crate) fn size(&self) -> u32 {
        self.ring.size
    }

    /// The kernel asks to be woken to look at this ring (af_xdp.rst, "XDP_USE_NEED_WAKEUP bind flag").
    pub(crate) fn needs_wakeup(&self) -> bool {
        self.ring.flags().load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    /// Saturates, in case the other side's counter makes no sense.
    fn known_room(&self) -> u32 {
        self.ring.size.saturating_sub(self.written.wrapping_sub(self.consumed))
    }
}

/// The side that reads entries.
pub(crate) struct Consumer<T> {
    ring: Ring<T>,
    /// Entries read so far; the other side learns of them by `release`.
    read: u32,
    /// The other side's counter when last looked at.
    produced: u32,
}

impl<T: Entry> Consumer<T> {
    pub(crate) fn new(ring: Ring<T>) -> Consumer<T> {
        let read = ring.consumer().load(Ordering::Relaxed);
        Consumer { ring, read, produced: read }
    }

    /// Number of entries that `pop` will return; looks at the other side's counter.
    pub(crate) fn waiting(&mut self) -> u32 {
        let produced = self.ring.producer().load(Ordering::Acquire);
        let waiting = produced.wrapping_sub(self.read).min(self.ring.size);
        self.produced = self.read.wrapping_add(waiting);
        waiting
    }

    /// Reads the next entry, among those that `waiting` counted.
    pub(crate) fn pop(&mut self) -> Option<T> {
        if self.read == self.produced {
            return None;
        }
        // SAFETY: `entry` points to an entry of the ring. The producer's counter, read with acquire ordering, has passed
        // it, so the producer leaves it alone until our counter passes; and any bits make a valid `T`.
        let entry = unsafe { self.ring.entry(self.read).read_volatile() };
        self.read = self.read.wrapping_add(1);
        Some(entry)
    }

    /// Entries of the ring.
    pub(crate) fn size(&self) -> u32 {
        self.ring.size
    }

    /// Goes on behind what was released last, where several processes read in turn, each while it holds a lock.
    pub(crate) fn resync(&mut self) {
        self.read = self.ring.consumer().load(Ordering::Acquire);
        self.produced = self.read;
    }

    /// Whether there is something to read, whoever read the rest.
    pub(crate) fn has_waiting(&self) -> bool {
        self.ring.producer().load(Ordering::Relaxed) != self.ring.consumer().load(Ordering::Relaxed)
    }

    /// Gives all entries read so far back to the other side.
    pub(crate) fn release(&mut self) {
        #[cfg(test)]
        crate::fuse::burn();
        self.ring.consumer().store(self.read, Ordering::Release);
    }
}

#[cfg(test)]
pub(crate) mod memory {
    //! Rings without a kernel: both sides in one process.

    use super::*;
    use std::cell::UnsafeCell;

    /// What the kernel would have mapped.
    #[repr(C)]
    struct Memory<T> {
        producer: AtomicU32,
        consumer: AtomicU32,
        flags: AtomicU32,
        entries: Box<[UnsafeCell<T>]>,
    }

    // SAFETY: reached through `Ring` only, whose two sides hand the entries over by the counters.
    unsafe impl<T: Send> Sync for Memory<T> {}

    /// The two sides of a fresh ring, and its flags.
    pub(crate) struct Pair<T> {
        pub(crate) producer: Producer<T>,
        pub(crate) consumer: Consumer<T>,
    }

    pub(crate) fn pair<T: Entry + Default + Send + 'static>(size: u32) -> Pair<T> {
        pair_from(size, 0)
    }

    /// A ring whose counters start at `counter`.
    pub(crate) fn pair_from<T: Entry + Default + Send + 'static>(size: u32, counter: u32) -> Pair<T> {
        let ring = RingMemory::new(size, counter);
        Pair { producer: Producer::new(ring.side()), consumer: Consumer::new(ring.side()) }
    }

    /// A ring that may have several users on each side, one after the other.
    pub(crate) struct RingMemory<T>(Arc<Memory<T>>, u32);

    impl<T: Entry + Default + Send + 'static> RingMemory<T> {
        pub(crate) fn new(size: u32, counter: u32) -> RingMemory<T> {
            let (producer, consumer) = (AtomicU32::new(counter), AtomicU32::new(counter));
            let entries = (0..size).map(|_| UnsafeCell::new(T::default())).collect();
            RingMemory(Arc::new(Memory { producer, consumer, flags: AtomicU32::new(0), entries }), size)
        }

        pub(crate) fn side(&self) -> Ring<T> {
            let RingMemory(memory, size) = self;
            Ring {
                producer: NonNull::from(&memory.producer),
                consumer: NonNull::from(&memory.consumer),
                flags: NonNull::from(&memory.flags),
                entries: NonNull::new(memory.entries.as_ptr().cast_mut().cast::<T>())
                    .expect("a box is never null"),
                size: *size,
                _memory: memory.clone(),
            }
        }
    }

    impl<T: Entry> Producer<T> {
        /// Simulates an other side whose counter is nonsense.
        pub(crate) fn set_other_side(&self, counter: u32) {
            self.ring.consumer().store(counter, Ordering::Release);
        }
    }

    impl<T: Entry> Consumer<T> {
        /// As for the producer.
        pub(crate) fn set_other_side(&self, counter: u32) {
            self.ring.producer().store(counter, Ordering::Release);
        }

        /// Plays the kernel asking to be woken.
        pub(crate) fn ask_for_wakeup(&self, asked: bool) {
            self.ring.flags().store(u32::from(asked), Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::memory::{Pair, pair, pair_from};

    #[test]
    fn entries_come_out_in_order_once_published() {
        let Pair { mut producer, mut consumer } = pair::<u64>(4);
        assert!(producer.push(1) && producer.push(2));
        assert_eq!(consumer.waiting(), 0, "written, not published");
        producer.publish();
        assert_eq!(consumer.waiting(), 2);
        assert_eq!([consumer.pop(), consumer.pop(), consumer.pop()], [Some(1), Some(2), None]);
    }

    #[test]
    fn a_full_ring_takes_no_more_until_the_other_side_releases() {
        let Pair { mut producer, mut consumer } = pair::<u64>(2);
        assert!(producer.push(1) && producer.push(2) && !producer.push(3));
        producer.publish();
        consumer.waiting();
        consumer.pop();
        assert_eq!(producer.room(1), 0, "read, not released");
        consumer.release();
        assert_eq!(producer.room(1), 1);
        assert_eq!(producer.outstanding(), 1);
    }

    #[test]
    fn counters_wrap_around() {
        let Pair { mut producer, mut consumer } = pair_from::<u64>(4, u32::MAX - 1);
        for round in 0..10 {
            assert!(producer.room(1) > 0 && producer.push(round));
            producer.publish();
            assert_eq!(consumer.waiting(), 1);
            assert_eq!(consumer.pop(), Some(round));
            consumer.release();
        }
    }

    #[test]
    fn a_nonsense_counter_of_the_other_side_stays_within_the_ring() {
        let Pair { mut producer, mut consumer } = pair::<u64>(4);
        consumer.set_other_side(1 << 31);
        assert_eq!(consumer.waiting(), 4);
        producer.set_other_side(7);
        assert_eq!(
            producer.room(u32::MAX),
            0,
            "more consumed than written: nothing can be trusted to be free"
        );
    }

    #[test]
    fn the_kernel_asks_to_be_woken_by_a_flag() {
        let Pair { producer, consumer } = pair::<u64>(4);
        assert!(!producer.needs_wakeup());
        consumer.ask_for_wakeup(true);
        assert!(producer.needs_wakeup());
        consumer.ask_for_wakeup(false);
        assert!(!producer.needs_wakeup());
    }

    #[test]
    fn two_threads_see_every_entry_whole() {
        let Pair { mut producer, mut consumer } = pair::<u64>(64);
        const COUNT: u64 = 100_000;
        let writer = std::thread::spawn(move || {
            let mut next = 0;
            while next < COUNT {
                if producer.room(1) > 0 && producer.push(next) {
                    producer.publish();
                    next += 1;
                }
            }
        });
        let mut expected = 0;
        while expected < COUNT {
            consumer.waiting();
            while let Some(entry) = consumer.pop() {
                assert_eq!(entry, expected);
                expected += 1;
            }
            consumer.release();
        }
        writer.join().unwrap();
    }
}
