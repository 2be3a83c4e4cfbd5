//! The kind of each of the program's descriptors, with one load.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Descriptors that may be ours; those above are the kernel's alone.
const DESCRIPTORS: usize = 1 << 20;

/// Untouched pages of it cost nothing.
static SLOTS: [AtomicU32; DESCRIPTORS] = [const { AtomicU32::new(0) }; DESCRIPTORS];
/// One more than the highest descriptor that was ever ours: higher ones are not ours, and their pages stay untouched.
static END: AtomicUsize = AtomicUsize::new(0);

/// What a descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// The kernel's.
    None,
    /// A socket, at this place.
    Socket(u32),
    /// An epoll instance, at this place.
    Epoll(u32),
    /// Our own; to the program it does not exist.
    Internal,
}

const SOCKET: u32 = 1;
const EPOLL: u32 = 2;
const INTERNAL: u32 = 3;
const KIND_BITS: u32 = 2;
/// Of an epoll instance: something of ours was added to it.
const BUSY: u32 = 1 << KIND_BITS;

impl Entry {
    fn from_bits(bits: u32) -> Entry {
        match bits & ((1 << KIND_BITS) - 1) {
            SOCKET => Entry::Socket(bits >> KIND_BITS),
            EPOLL => Entry::Epoll(bits >> (KIND_BITS + 1)),
            INTERNAL => Entry::Internal,
            _ => Entry::None,
        }
    }

    fn to_bits(self) -> u32 {
        match self {
            Entry::None => 0,
            Entry::Socket(place) => place << KIND_BITS | SOCKET,
            Entry::Epoll(place) => place << (KIND_BITS + 1) | EPOLL,
            Entry::Internal => INTERNAL,
        }
    }
}

/// The table of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FdTable {
    slots: &'static [AtomicU32],
    end: &'static AtomicUsize,
}

impl FdTable {
    /// That of the process that we are loaded into.
    pub(crate) const fn global() -> FdTable {
        FdTable { slots: &SLOTS, end: &END }
    }

    /// One that tests may have several of; its memory is never given back.
    #[cfg(test)]
    pub(crate) fn leaked() -> FdTable {
        let slots = (0..4096).map(|_| AtomicU32::new(0)).collect::<Vec<_>>().leak();
        FdTable { slots, end: Box::leak(Box::default()) }
    }

    /// What `fd` is.
    #[inline]
    pub(crate) fn get(self, fd: RawFd) -> Entry {
        let slot = usize::try_from(fd).ok().and_then(|at| self.slots.get(at));
        slot.map_or(Entry::None, |slot| Entry::from_bits(slot.load(Ordering::Relaxed)))
    }

    /// Whether `fd` is anything to us.
    #[inline]
    pub(crate) fn is_ours(self, fd: RawFd) -> bool {
        let slot = usize::try_from(fd).ok().and_then(|at| self.slots.get(at));
        slot.is_some_and(|slot| slot.load(Ordering::Relaxed) != 0)
    }

    /// Whether `fd` is an epoll instance to which nothing of ours was ever added.
    #[inline]
    pub(crate) fn is_idle_epoll(self, fd: RawFd) -> bool {
        let slot = usize::try_from(fd).ok().and_then(|at| self.slots.get(at));
        slot.is_some_and(|slot| slot.load(Ordering::Relaxed) & (BUSY | (BUSY - 1)) == EPOLL)
    }

    /// Something of ours was added to the epoll instance `fd`.
    pub(crate) fn set_busy(self, fd: RawFd) {
        if let Some(slot) = usize::try_from(fd).ok().and_then(|at| self.slots.get(at)) {
            slot.fetch_or(BUSY, Ordering::Relaxed);
        }
    }

    /// Says what `fd` is; an epoll instance is idle. False if its number is too high for us.
    pub(crate) fn set(self, fd: RawFd, entry: Entry) -> bool {
        let slot = usize::try_from(fd).ok().and_then(|at| self.slots.get(at));
        let Some(slot) = slot else { return false };
        slot.store(entry.to_bits(), Ordering::Relaxed);
        if entry != Entry::None && fd as usize >= self.end.load(Ordering::Relaxed) {
            self.end.fetch_max(fd as usize + 1, Ordering::Relaxed);
        }
        true
    }

    /// Descriptors from `first` to `last` that are ours.
    pub(crate) fn within(self, first: u32, last: u32) -> impl Iterator<Item = (RawFd, Entry)> {
        let end = (last as usize).saturating_add(1).min(self.end.load(Ordering::Relaxed));
        let used = move |fd: &usize| self.slots[*fd].load(Ordering::Relaxed) != 0;
        (first as usize..end).filter(used).map(move |fd| (fd as RawFd, self.get(fd as RawFd)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_of_a_descriptor_is_found() {
        let table = FdTable::leaked();
        for entry in [Entry::Socket(0), Entry::Socket(1 << 29), Entry::Epoll(7), Entry::Internal, Entry::None]
        {
            assert!(table.set(5, entry));
            assert_eq!((table.get(5), table.is_ours(5)), (entry, entry != Entry::None));
        }
    }

    #[test]
    fn an_epoll_instance_is_idle_until_it_is_not() {
        let table = FdTable::leaked();
        table.set(5, Entry::Epoll(7));
        assert!(table.is_idle_epoll(5) && table.is_ours(5));
        table.set_busy(5);
        assert_eq!((table.get(5), table.is_idle_epoll(5)), (Entry::Epoll(7), false));
        table.set(5, Entry::Socket(1));
        assert!(!table.is_idle_epoll(5) && !table.is_idle_epoll(6) && !table.is_idle_epoll(-1));
    }

    #[test]
    fn what_is_within_goes_as_far_as_there_is_something() {
        let table = FdTable::leaked();
        assert_eq!(table.within(0, u32::MAX).count(), 0);
        table.set(7, Entry::Internal);
        table.set(4095, Entry::Socket(1));
        table.set(9, Entry::None);
        let all: Vec<_> = table.within(0, u32::MAX).collect();
        assert_eq!(all, [(7, Entry::Internal), (4095, Entry::Socket(1))]);
        assert_eq!(table.within(8, 4094).count(), 0);
    }

    #[test]
    fn numbers_that_are_no_descriptors_are_the_kernels() {
        for fd in [-1, RawFd::MIN, RawFd::MAX] {
            assert!(!FdTable::global().is_ours(fd) && !FdTable::global().set(fd, Entry::Internal));
        }
    }
}
