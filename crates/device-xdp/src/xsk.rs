//! One AF_XDP socket: a queue's rings, and the calls that make the kernel look at them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::netdev::Interface;
use crate::options::Resolved;
use crate::queue::QueueRings;
use crate::ring::{Consumer, Entry, Producer, Ring};
use crate::syscalls::{self, BindMode, RingKind};
use crate::umem::Umem;
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

/// A socket bound to one queue.
pub(crate) struct Xsk {
    pub(crate) rings: QueueRings,
    pub(crate) link: LinkState,
    /// Frames that the kernel took and then dropped.
    pub(crate) tx_refused: u64,
    copy: CopyMode,
    busy_poll: bool,
    fd: OwnedFd,
}

impl Xsk {
    /// Opens a socket on `queue`, with the slots of `umem`. `first` is the socket that has registered the umem; without
    /// it, this one does.
    pub(crate) fn open(
        interface: &Interface,
        queue: u16,
        umem: &mut Umem,
        first: Option<&Xsk>,
        options: &Resolved,
    ) -> Result<Xsk, XdpError> {
        let fd = syscalls::xdp_socket().map_err(XdpError::system("opening an AF_XDP socket"))?;
        if first.is_none() {
            register(fd.as_fd(), umem)?;
        }
        let rings = map_rings(fd.as_fd(), options.ring_entries).map_err(XdpError::system("mapping rings"))?;
        // Kernels before 6.17 do not know this one, and need more calls.
        let _ = syscalls::set_tx_budget(fd.as_fd(), options.ring_entries);
        if let Some(busy_poll) = options.busy_poll {
            syscalls::set_busy_poll(fd.as_fd(), busy_poll.micros, busy_poll.budget)
                .map_err(XdpError::system("SO_PREFER_BUSY_POLL"))?;
        }
        let mut xsk = Xsk {
            rings,
            link: LinkState::Up,
            tx_refused: 0,
            copy: CopyMode::Copy,
            busy_poll: options.busy_poll.is_some(),
            fd,
        };
        xsk.rings.refill(umem, 1);
        xsk.bind(interface, queue, first, options.force_copy)?;
        Ok(xsk)
    }

    fn bind(
        &mut self,
        interface: &Interface,
        queue: u16,
        first: Option<&Xsk>,
        force_copy: bool,
    ) -> Result<(), XdpError> {
        let mode = match first {
            Some(first) => BindMode::Shared(first.fd()),
            None if force_copy => BindMode::Copy,
            None => BindMode::ZeroCopyIfPossible,
        };
        let name = || interface.name.clone();
        syscalls::bind(self.fd(), interface.index, u32::from(queue), mode).map_err(|source| match source
            .raw_os_error()
        {
            Some(libc::EBUSY) => XdpError::QueueBusy { interface: name(), queue },
            Some(libc::EPERM) => XdpError::NotPermitted { operation: "binding an AF_XDP socket", source },
            _ => XdpError::Bind { interface: name(), queue, source },
        })?;
        let zero_copy = syscalls::is_zero_copy(self.fd()).map_err(XdpError::system("XDP_OPTIONS"))?;
        self.copy = if zero_copy { CopyMode::ZeroCopy } else { CopyMode::Copy };
        Ok(())
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(crate) fn copy_mode(&self) -> CopyMode {
        self.copy
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
        if self.link == LinkState::Gone || !asked || self.rings.tx.outstanding() == 0 {
            return;
        }
        for _ in 0..KICKS_MAX {
            let result = syscalls::wake_tx(self.fd());
            if !self.note(result) {
                return;
            }
        }
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

fn register(fd: BorrowedFd<'_>, umem: &Umem) -> Result<(), XdpError> {
    let (region, slot_size) = (umem.pool().region(), umem.pool().slot_size() as u32);
    // SAFETY: the kernel learns of slots by `Umem::lend` and `lend_empty` only, which take them from everybody else.
    unsafe { syscalls::register_umem(fd, region, slot_size) }.map_err(|source| match source.raw_os_error() {
        Some(libc::ENOBUFS | libc::ENOMEM) => XdpError::Memory { octets: region.len(), source },
        _ => XdpError::system("registering the umem")(source),
    })
}

fn map_rings(fd: BorrowedFd<'_>, entries: u32) -> io::Result<QueueRings> {
    for ring in [RingKind::Fill, RingKind::Completion, RingKind::Rx, RingKind::Tx] {
        syscalls::set_ring_size(fd, ring, entries)?;
    }
    let offsets = syscalls::ring_offsets(fd)?;
    Ok(QueueRings {
        fill: Producer::new(map_ring(fd, RingKind::Fill, &offsets.fr, entries)?),
        completion: Consumer::new(map_ring(fd, RingKind::Completion, &offsets.cr, entries)?),
        rx: Consumer::new(map_ring(fd, RingKind::Rx, &offsets.rx, entries)?),
        tx: Producer::new(map_ring(fd, RingKind::Tx, &offsets.tx, entries)?),
        invalid: 0,
    })
}

fn map_ring<T: Entry>(
    fd: BorrowedFd<'_>,
    kind: RingKind,
    offsets: &libc::xdp_ring_offset,
    entries: u32,
) -> io::Result<Ring<T>> {
    let len = offsets.desc as usize + entries as usize * size_of::<T>();
    let mapping = syscalls::map_ring(fd, kind, len)?;
    Ring::new(mapping, offsets, entries).ok_or_else(|| io::Error::other("the ring's offsets make no sense"))
}
