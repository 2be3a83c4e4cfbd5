//! What a device needs from the memory that its packets lie in.

use frame::{Frame, Pool};

use crate::XdpError;
use crate::queue::QueueRings;
use crate::ring::{Consumer, Descriptor, Producer};

/// Packet memory, of one process ([`crate::umem::Umem`]) or of several ([`crate::shared::SharedUmem`]). Slots change hands here: between
/// us, as free ones or frames, and the kernel.
pub(crate) trait PacketMemory: Send {
    /// The slots that are ours.
    fn pool(&self) -> &Pool;

    /// Slots that are with the kernel. Counted when asked for, not when they change hands.
    fn lent(&self) -> usize;

    /// Slots that the device's user has as frames.
    fn held(&self) -> usize;

    /// Takes an empty frame.
    fn alloc(&mut self) -> Option<Frame>;

    /// Takes a frame back.
    fn release(&mut self, frame: Frame);

    /// The frame of a packet that the kernel received; `None` if the descriptor names no slot that is with the kernel.
    fn take_packet(&mut self, descriptor: Descriptor) -> Option<Frame>;

    /// Lends a frame to the kernel by a transmit ring that has room. The ring is published later.
    fn send(&mut self, tx: &mut Producer<Descriptor>, frame: Frame);

    /// Lends free slots to the kernel once at least `threshold` are asked for.
    fn refill(&mut self, fill: &mut Producer<u64>, threshold: u32);

    /// Whether the last [`PacketMemory::refill`] could not lend much that the kernel asks for, though it is there: it is to be tried again in a
    /// moment.
    fn owes(&self) -> bool {
        false
    }

    /// Takes slots back that the kernel has sent; returns how many entries were read. `invalid` counts those that named no such slot.
    fn harvest(&mut self, completion: &mut Consumer<u64>, invalid: &mut u64) -> u32;

    /// Lends the kernel what a queue needs to begin with.
    fn begin(&mut self, rings: &mut QueueRings) -> Result<(), XdpError>;

    /// Puts all slots back, so that dropping this unmaps the memory.
    ///
    /// # Safety
    /// The sockets that slots were lent to are closed, and no slot is handed out any more: this is dropped next.
    unsafe fn take_back_all(&mut self);
}
