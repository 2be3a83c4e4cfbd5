//! The four rings of one queue, and the frames that move through them.

use device::{BURST, Burst};
use frame::Frame;

use crate::chain::{Chain, Outcome};
use crate::packet_memory::PacketMemory;
use crate::ring::{Consumer, Descriptor, Producer};

/// Slots that stay free for [`PacketMemory::alloc`], however hungry the fill rings are.
pub(crate) const RESERVE: usize = BURST;

/// Completions taken per call: twice what one burst adds, so that a backlog shrinks.
pub(crate) const HARVEST: u32 = 2 * BURST as u32;

/// The rings of one queue, seen from user space.
///
/// ```text
///   umem --refill--> [fill] --kernel--> [rx] --receive--> engine --send--> [tx] --kernel--> [completion] --harvest--> umem
/// ```
pub(crate) struct QueueRings {
    pub(crate) fill: Producer<u64>,
    pub(crate) completion: Consumer<u64>,
    pub(crate) rx: Consumer<Descriptor>,
    pub(crate) tx: Producer<Descriptor>,
    /// Descriptors and addresses from the kernel that named no lent slot, which are lost until the umem is gone; and packets in several frames
    /// that make no sense.
    pub(crate) invalid: u64,
    /// Where packets of several frames become segments.
    pub(crate) chain: Chain,
}

impl QueueRings {
    /// Appends received frames to `burst`, marked as coming from `queue`, until it is full; returns how many.
    pub(crate) fn receive(&mut self, memory: &mut impl PacketMemory, burst: &mut Burst, queue: u16) -> usize {
        let before = burst.len();
        self.chain.drain_into(burst);
        if burst.is_full() || self.rx.waiting() == 0 {
            return burst.len() - before;
        }
        while !burst.is_full()
            && let Some(descriptor) = self.rx.pop()
        {
            match memory.take_packet(descriptor) {
                Some(mut frame) => {
                    frame.queue = queue;
                    if descriptor.is_whole() && self.chain.is_between_packets() {
                        burst.push(frame);
                    } else {
                        self.take_part(memory, frame, descriptor);
                        self.chain.drain_into(burst);
                    }
                }
                None => self.lose(memory, descriptor),
            }
        }
        self.rx.release();
        burst.len() - before
    }

    /// Whether there is something to receive.
    pub(crate) fn has_waiting(&mut self) -> bool {
        self.chain.has_ready() || self.rx.waiting() > 0
    }

    fn take_part(&mut self, memory: &mut impl PacketMemory, frame: Frame, descriptor: Descriptor) {
        if let Outcome::Dropped(frames) = self.chain.push(frame, !descriptor.is_whole()) {
            self.invalid += 1;
            frames.into_iter().for_each(|frame| memory.release(frame));
        }
    }

    #[cold]
    fn lose(&mut self, memory: &mut impl PacketMemory, descriptor: Descriptor) {
        self.invalid += 1;
        let frames = self.chain.spoil(!descriptor.is_whole());
        frames.into_iter().for_each(|frame| memory.release(frame));
    }

    /// Lends free slots to the kernel once at least `threshold` are asked for.
    pub(crate) fn refill(&mut self, memory: &mut impl PacketMemory, threshold: u32) {
        memory.refill(&mut self.fill, threshold);
    }

    /// Takes slots back that the kernel has sent; returns how many.
    pub(crate) fn harvest(&mut self, memory: &mut impl PacketMemory) -> u32 {
        memory.harvest(&mut self.completion, &mut self.invalid)
    }

    /// Writes a frame to the transmit ring, which `tx.room` said has room. `tx.publish` shows it to the kernel.
    pub(crate) fn send(&mut self, memory: &mut impl PacketMemory, frame: Frame) {
        memory.send(&mut self.tx, frame);
    }
}

#[cfg(test)]
pub(crate) mod fake {
    //! The kernel's ends of a queue's rings.

    use super::*;
    use crate::ring::memory::pair;

    pub(crate) struct Kernel {
        pub(crate) fill: Consumer<u64>,
        pub(crate) completion: Producer<u64>,
        pub(crate) rx: Producer<Descriptor>,
        pub(crate) tx: Consumer<Descriptor>,
    }

    pub(crate) fn queue(size: u32) -> (QueueRings, Kernel) {
        let (fill, completion, rx, tx) = (pair(size), pair(size), pair(size), pair(size));
        let rings = QueueRings {
            fill: fill.producer,
            completion: completion.consumer,
            rx: rx.consumer,
            tx: tx.producer,
            invalid: 0,
            chain: Chain::default(),
        };
        let kernel =
            Kernel { fill: fill.consumer, completion: completion.producer, rx: rx.producer, tx: tx.consumer };
        (rings, kernel)
    }

    impl Kernel {
        /// Receives a packet of `len` octets into the next slot of the fill ring; false if there is none.
        pub(crate) fn deliver(&mut self, len: u32) -> bool {
            self.fill.waiting();
            let Some(slot) = self.fill.pop() else { return false };
            self.fill.release();
            let descriptor = Descriptor { address: slot + 256, len, options: 0 };
            let delivered = self.rx.room(1) > 0 && self.rx.push(descriptor);
            self.rx.publish();
            delivered
        }

        /// Sends everything in the transmit ring; returns how much that was.
        pub(crate) fn transmit(&mut self) -> u32 {
            let count = self.tx.waiting();
            while let Some(descriptor) = self.tx.pop() {
                assert!(self.completion.room(1) > 0 && self.completion.push(descriptor.address));
            }
            self.tx.release();
            self.completion.publish();
            count
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fake::queue;
    use super::*;
    use crate::umem::Umem;
    use frame::Region;

    fn umem(slots: usize) -> Umem {
        Umem::new(Region::anonymous(slots * 2048).unwrap(), 2048)
    }

    #[test]
    fn a_slot_goes_all_the_way_round() {
        let (mut rings, mut kernel) = queue(16);
        let mut umem = umem(RESERVE + 1);
        for _ in 0..100 {
            rings.refill(&mut umem, 1);
            assert!(kernel.deliver(60));
            let mut burst = Burst::new();
            assert_eq!(rings.receive(&mut umem, &mut burst, 3), 1);
            let frame = burst.pop().unwrap();
            assert_eq!((frame.queue, frame.len(), frame.headroom()), (3, 60, 256));
            assert!(rings.tx.room(1) > 0);
            rings.send(&mut umem, frame);
            rings.tx.publish();
            assert_eq!(kernel.transmit(), 1);
            assert_eq!(rings.harvest(&mut umem), 1);
        }
        assert_eq!((umem.pool().available(), rings.invalid), (RESERVE + 1, 0));
    }

    #[test]
    fn a_burst_takes_no_more_than_it_holds() {
        let (mut rings, mut kernel) = queue(256);
        let mut umem = umem(512);
        rings.refill(&mut umem, 1);
        (0..100).for_each(|_| assert!(kernel.deliver(60)));
        let mut burst = Burst::new();
        assert_eq!(rings.receive(&mut umem, &mut burst, 0), BURST);
        burst.drain(..).for_each(|frame| umem.release(frame));
        assert_eq!(rings.receive(&mut umem, &mut burst, 0), 100 - BURST);
        burst.drain(..).for_each(|frame| umem.release(frame));
    }

    #[test]
    fn descriptors_of_slots_that_the_kernel_does_not_have_are_counted_and_skipped() {
        let (mut rings, mut kernel) = queue(16);
        let mut umem = umem(RESERVE + 4);
        rings.refill(&mut umem, 1);
        kernel.rx.push(Descriptor { address: u64::MAX, len: 60, options: 0 });
        kernel.rx.push(Descriptor { address: 0, len: u32::MAX, options: 0 });
        kernel.rx.publish();
        assert!(kernel.deliver(60));
        kernel.completion.push(1 << 40);
        kernel.completion.publish();
        let mut burst = Burst::new();
        assert_eq!(rings.receive(&mut umem, &mut burst, 0), 1);
        rings.harvest(&mut umem);
        assert_eq!(rings.invalid, 3);
        burst.drain(..).for_each(|frame| umem.release(frame));
    }

    #[test]
    fn refilling_leaves_a_reserve_for_fresh_packets() {
        let (mut rings, _kernel) = queue(256);
        let mut umem = umem(100);
        rings.refill(&mut umem, 1);
        assert_eq!(umem.pool().available(), RESERVE);
    }

    #[test]
    fn refilling_waits_until_it_is_worth_it() {
        let (mut rings, mut kernel) = queue(64);
        let mut umem = umem(512);
        rings.refill(&mut umem, 32);
        let before = umem.pool().available();
        (0..31).for_each(|_| assert!(kernel.deliver(60)));
        rings.refill(&mut umem, 32);
        assert_eq!(umem.pool().available(), before);
        assert!(kernel.deliver(60));
        rings.refill(&mut umem, 32);
        assert_eq!(umem.pool().available(), before - 32);
    }
}
