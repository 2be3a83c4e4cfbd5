//! One queue, several processes.
//!
//! The kernel binds several sockets to one queue if they share a umem (af_xdp.rst, "XDP_SHARED_UMEM bind flag"): each has a receive and a
//! transmit ring of its own, and all have one fill ring and one completion ring. The steering program says which socket a packet goes to.
//! There is no process in between, and no copy more than a socket that is alone makes.
//!
//! ```text
//!                     ┌─ rx, tx ── process in place 0 ─┐
//!   queue ── kernel ──┼─ rx, tx ── process in place 1 ─┼── fill ring, completion ring: one at a time (`Area::try_lock`)
//!                     └─ rx, tx ── process in place 2 ─┘── slots: `Area::owner`
//! ```
//!
//! Each process has a *place*: a number, a socket, and a range of the owners in the shared area. [`SharedQueue`] makes all of it, and
//! gives places to processes; [`SharedUmem`] is the memory as the process in a place has it.
//!
//! # Slots
//!
//! A slot has one owner, which the shared area names: nobody, the kernel, or a place. It changes by one atomic operation:
//!
//! | from | to | when |
//! | --- | --- | --- |
//! | nobody | place | the process is short of slots, and searches the table |
//! | place | kernel | it is lent by the fill ring, or a frame is sent |
//! | kernel | place | its address came out of a receive ring or the completion ring, and the exchange succeeded |
//! | place | nobody | the process has more than it needs |
//!
//! What comes out of the completion ring belongs to whoever reads it, whoever sent it.
//!
//! # When a process ends
//!
//! It may be killed between any two instructions. What it owned stays its place's, and the next process in the place takes it
//! (`SharedUmem::begin`), with what waits in the place's rings; the broker keeps the sockets for that. The order of the stores makes this exact:
//!
//! - An entry of a transmit or fill ring is written, then counted in the area (`tx_written`, `fill_written`), then its slot is the kernel's, then the
//!   ring is published. So entries that are counted and not published are those of a process that was killed, and whoever comes next publishes
//!   the fill ring's, and takes back the transmit ring's.
//! - Entries of a receive or completion ring are released after their slots have owners. Entries that were not released are read again, and
//!   those whose slots are the kernel's no more are passed over. No slot of an unreleased entry is lent again by its owner: a process
//!   releases before it lends, and the next process in a place reads the rings to their ends before it takes what the place owns.
//!
//! Whether a process is gone, the kernel tells: the place's octet of the shared area is locked by the open file that the process has mapped, for as
//! long as it does (F_OFD_SETLK in fcntl(2)), also across fork, exec and kill. That is how the others find that whoever holds the lock of the two rings
//! is dead, and how the broker finds that a place is free.
//!
//! # Trust
//!
//! Processes that share a queue can read and write each other's packets. Only processes of one user may.

mod area;
mod queue;
mod umem;

/// How much larger the common fill ring is than each process's receive ring: one that is stopped takes as many entries as the latter has, and
/// leaves the others as many.
pub(crate) const FILL_FACTOR: u32 = 2;

pub use area::PLACES_MAX;
pub use queue::{LeftPlaces, SharedQueue};

pub(crate) use area::Area;
pub(crate) use umem::SharedUmem;
