//! One AF_XDP socket: a queue's rings, and the system calls that make the kernel process them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::chain::Chain;
use crate::packet_memory::PacketMemory;
use crate::queue::QueueRings;
use crate::ring::{Consumer, Descriptor, Entry, Producer, Ring};
use crate::syscalls::{self, RingKind};
use crate::{CopyMode, XdpError};

/// Calls of sendto per burst at most: a kernel before 6.17 moves 32 frames with one, and each drop ends one early.
const KICKS_MAX: usize = 4;

/// What the last call learned about the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkState {
    Up,
    /// Down: it may come back.
    Down,
    /// Deleted or moved away: this socket is good for nothing any more.
    Gone,
}

/// How many entries the rings of a socket have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingEntries {
    pub(crate) fill: u32,
    pub(crate) others: u32,
}

/// The socket of one queue.
pub(crate) struct Xsk {
    pub(crate) rings: QueueRings,
    pub(crate) link: LinkState,
    /// Frames that the kernel took and then dropped.
    pub(crate) tx_refused: u64,
    copy: CopyMode,
    holds_unsent: bool,
    busy_poll: bool,
    fd: OwnedFd,
}

impl Xsk {
    /// Maps the rings of a socket, of so many entries, and lends it free slots of `memory`, which it was made with.
    pub(crate) fn new(
        fd: OwnedFd,
        entries: RingEntries,
        busy_poll: bool,
        memory: &mut impl PacketMemory,
    ) -> Result<Xsk, XdpError> {
        let mut rings = map_rings(fd.as_fd(), entries).map_err(XdpError::system("mapping rings"))?;
        memory.begin(&mut rings)?;
        Ok(Xsk {
            rings,
            link: LinkState::Up,
            tx_refused: 0,
            copy: CopyMode::Copy,
            holds_unsent: false,
            busy_poll,
            fd,
        })
    }

    /// Finds out how packets get into the umem, once the socket is bound.
    pub(crate) fn learn_copy_mode(&mut self) -> Result<CopyMode, XdpError> {
        self.copy = copy_mode(self.fd())?;
        Ok(self.copy)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Lets the kernel poll the queue if it asked to be woken for that, or if that is left to us.
    pub(crate) fn wake_rx(&mut self) {
        if self.link != LinkState::Gone && (self.busy_poll || self.rings.fill.needs_wakeup()) {
            let result = syscalls::wake_rx(self.fd());
            self.note(result);
        }
    }

    /// Has the kernel send what is in the transmit ring, as far as it can now. What remains is tried again by the next
    /// call.
    pub(crate) fn wake_tx(&mut self) {
        let asked = self.copy == CopyMode::Copy || self.rings.tx.needs_wakeup();
        self.holds_unsent = false;
        if self.link == LinkState::Gone || !asked || self.rings.tx.outstanding() == 0 {
            return;
        }
        for _ in 0..KICKS_MAX {
            let result = syscalls::wake_tx(self.fd());
            if !self.note(result) {
                break;
            }
        }
        // The driver of a zero-copy queue goes on by itself. Copies are charged to the socket until the NIC has sent them, and
        // with its send buffer full the rest stays in the ring.
        self.holds_unsent = self.copy == CopyMode::Copy && self.rings.tx.outstanding() > 0;
    }

    /// Whether the last [`Xsk::wake_tx`] left something in the ring that only another one gets out.
    pub(crate) fn holds_unsent(&self) -> bool {
        self.holds_unsent && self.link == LinkState::Up
    }

    /// Looks whether a link that was down is up again.
    pub(crate) fn retry_link(&mut self) {
        let result = syscalls::wake_tx(self.fd());
        self.note(result);
    }

    /// How many frames can be sent now, looking no further than `wanted`. A link that is not up takes any number: they
    /// are dropped.
    pub(crate) fn room(&mut self, wanted: usize) -> usize {
        match self.link {
            LinkState::Up => self.rings.tx.room(wanted as u32) as usize,
            LinkState::Down | LinkState::Gone => wanted,
        }
    }

    /// Learns from the answer to a wake-up call; true if the call is worth repeating at once.
    fn note(&mut self, result: io::Result<()>) -> bool {
        let Err(error) = result else {
            self.link = LinkState::Up;
            return false;
        };
        match error.raw_os_error() {
            // The batch was cut short; each EBUSY costs one frame, which the device had no room for.
            Some(libc::EBUSY) => self.tx_refused += 1,
            Some(libc::EAGAIN | libc::EINTR) => (),
            Some(libc::ENETDOWN) => {
                self.link = LinkState::Down;
                return false;
            }
            Some(libc::ENXIO | libc::ENODEV) => {
                self.link = LinkState::Gone;
                return false;
            }
            // ENOBUFS and the like: the system is short of something just now.
            _ => return false,
        }
        self.link = LinkState::Up;
        true
    }

    /// What the kernel counted for this socket; zeroes if it does not tell.
    pub(crate) fn statistics(&self) -> Statistics {
        let Ok(counts) = syscalls::statistics(self.fd()) else { return Statistics::default() };
        Statistics {
            dropped_full: counts.rx_dropped + counts.rx_ring_full,
            rx_invalid: counts.rx_invalid_descs,
            tx_invalid: counts.tx_invalid_descs,
        }
    }
}

/// A summary of `struct xdp_statistics`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Statistics {
    /// Received packets that found no free slot, no ring entry, or too small a slot.
    pub(crate) dropped_full: u64,
    /// Entries of the fill ring that the kernel refused.
    pub(crate) rx_invalid: u64,
    /// Entries of the transmit ring that the kernel refused.
    pub(crate) tx_invalid: u64,
}

/// How packets get from the queue of a bound socket into the umem.
pub(crate) fn copy_mode(fd: BorrowedFd<'_>) -> Result<CopyMode, XdpError> {
    let zero_copy = syscalls::is_zero_copy(fd).map_err(XdpError::system("XDP_OPTIONS"))?;
    Ok(if zero_copy { CopyMode::ZeroCopy } else { CopyMode::Copy })
}

/// Whether all four rings of a socket have room for so many entries and for no whole page more. Without that, user space and
/// kernel would see different entries under one number.
pub(crate) fn rings_have(fd: BorrowedFd<'_>, entries: RingEntries) -> io::Result<bool> {
    let offsets = syscalls::ring_offsets(fd)?;
    let page = syscalls::page_size();
    let kinds = [RingKind::Fill, RingKind::Completion, RingKind::Rx, RingKind::Tx];
    let lens = [
        ring_len::<u64>(&offsets.fr, entries.fill),
        ring_len::<u64>(&offsets.cr, entries.others),
        ring_len::<Descriptor>(&offsets.rx, entries.others),
        ring_len::<Descriptor>(&offsets.tx, entries.others),
    ];
    Ok(kinds.into_iter().zip(lens).all(|(kind, len)| {
        syscalls::map_ring(fd, kind, len).is_ok()
            && syscalls::map_ring(fd, kind, len.next_multiple_of(page) + page).is_err()
    }))
}

fn map_rings(fd: BorrowedFd<'_>, entries: RingEntries) -> io::Result<QueueRings> {
    let offsets = syscalls::ring_offsets(fd)?;
    Ok(QueueRings {
        fill: Producer::new(map_ring(fd, RingKind::Fill, &offsets.fr, entries.fill)?),
        completion: Consumer::new(map_ring(fd, RingKind::Completion, &offsets.cr, entries.others)?),
        rx: Consumer::new(map_ring(fd, RingKind::Rx, &offsets.rx, entries.others)?),
        tx: Producer::new(map_ring(fd, RingKind::Tx, &offsets.tx, entries.others)?),
        invalid: 0,
        chain: Chain::default(),
    })
}

fn map_ring<T: Entry>(
    fd: BorrowedFd<'_>,
    kind: RingKind,
    offsets: &libc::xdp_ring_offset,
    entries: u32,
) -> io::Result<Ring<T>> {
    let mapping = syscalls::map_ring(fd, kind, ring_len::<T>(offsets, entries))?;
    Ring::new(mapping, offsets, entries).ok_or_else(|| io::Error::other("the ring's offsets make no sense"))
}

/// Octets of a ring's memory.
fn ring_len<T: Entry>(offsets: &libc::xdp_ring_offset, entries: u32) -> usize {
    offsets.desc as usize + entries as usize * size_of::<T>()
}
