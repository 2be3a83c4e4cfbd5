//! What processes with one queue know in common: who owns which slot, and whose turn it is with the fill and the completion ring.
//!
//! The unsafe code here makes references to atomics in mapped memory. All of it is at fixed offsets below the length that was checked.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use frame::{FrameIndex, Region};

use crate::syscalls;

/// Processes that can have one queue at a time.
pub const PLACES_MAX: u16 = 16;

/// Owners of a slot; above is `PLACE` and a place's number.
const NOBODY: u8 = 0;
const KERNEL: u8 = 1;
const PLACE: u8 = 2;

/// How often a lock that somebody holds is looked at before that is left for later. It is held for less than a microsecond, unless its
/// holder is not running.
const LOOKS: usize = 100;

/// The start of the area. The owners of slots follow, an octet each.
#[repr(C)]
struct Header {
    /// Who uses the fill and the completion ring: nobody (0), or a [`Turn`].
    lock: AtomicU64,
    /// Processes that have had a place so far.
    occupants: AtomicU64,
    /// Entries of the fill ring that are published, or about to be.
    fill_written: AtomicU32,
    /// The same of each place's transmit ring.
    tx_written: [OwnLine; PLACES_MAX as usize],
}

/// Not in one cache line with others'.
#[repr(C, align(64))]
struct OwnLine(AtomicU32);

const HEADER_LEN: usize = size_of::<Header>();

/// How a process signs the lock: by its place, and a number that no other process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn(u64);

/// How many entries of a ring have been written, so that somebody else can tell if the process ends before it publishes them.
pub(super) struct Written<'a>(&'a AtomicU32);

impl Written<'_> {
    pub(super) fn get(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    /// What was stored before is seen by whoever sees this.
    pub(super) fn set(&self, entries: u32) {
        #[cfg(test)]
        crate::fuse::burn();
        self.0.store(entries, Ordering::Release);
    }
}

/// The area, as the process in a place has it.
#[derive(Debug)]
pub(crate) struct Area {
    region: Region,
    /// Has the lock of the place's octet.
    file: File,
    slots: u32,
    place: u8,
}

impl Area {
    /// A fresh area for so many slots, all of which are nobody's.
    pub(super) fn create(slots: u32) -> io::Result<OwnedFd> {
        let region = Region::memfd(c"sidestep-shared", len(slots))?;
        Ok(region.into_memfd().expect("it was made of a memfd"))
    }

    /// What a process in this place maps the area by. Fails with EAGAIN while another one has the place.
    pub(super) fn enter(area: BorrowedFd<'_>, place: u8) -> io::Result<OwnedFd> {
        // An open file of its own, which the lock is of.
        let path = format!("/proc/self/fd/{}", area.as_raw_fd());
        let file: File = OpenOptions::new().read(true).write(true).open(path)?;
        syscalls::lock_octet(file.as_fd(), u64::from(place))?;
        Ok(file.into())
    }

    /// Maps the area by what [`Area::enter`] returned.
    ///
    /// # Errors
    /// `InvalidInput`: it is of another length, or can be cut, or there is no such place.
    pub(crate) fn map(file: OwnedFd, slots: u32, place: u16) -> io::Result<Area> {
        if place >= PLACES_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let file = File::from(file);
        // SAFETY: no pool is made of this region; what is in it are atomics.
        let region = unsafe { Region::shared(&file, len(slots))? };
        Ok(Area { region, file, slots, place: place as u8 })
    }

    /// The descriptor that it was mapped by, which shows others that the place is taken.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// A new process in the place.
    pub(super) fn sign(&self) -> Turn {
        let number = self.header().occupants.fetch_add(1, Ordering::Relaxed) + 1;
        Turn(number << 8 | u64::from(self.place))
    }

    /// Takes the fill and the completion ring for us, if they are free, or become so in less than a microsecond or two.
    pub(super) fn try_lock(&self, turn: Turn) -> bool {
        let lock = &self.header().lock;
        #[cfg(test)]
        crate::fuse::burn();
        for _ in 0..LOOKS {
            if lock.load(Ordering::Relaxed) == 0
                && lock.compare_exchange(0, turn.0, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return true;
            }
            std::hint::spin_loop();
        }
        false
    }

    /// Takes the lock if who holds it is dead.
    pub(super) fn inherit_lock(&self, turn: Turn) -> bool {
        #[cfg(test)]
        crate::fuse::burn();
        let lock = &self.header().lock;
        let held = lock.load(Ordering::Relaxed);
        let place = (held & 0xff) as u8;
        // We have our place, so whoever held the lock from there is gone.
        let is_dead = held == 0 || place == self.place || !self.is_taken(place);
        is_dead && lock.compare_exchange(held, turn.0, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    pub(super) fn unlock(&self) {
        #[cfg(test)]
        crate::fuse::burn();
        self.header().lock.store(0, Ordering::Release);
    }

    /// Whether a process has the place, as far as is known: one that the kernel tells nothing of lives.
    fn is_taken(&self, place: u8) -> bool {
        syscalls::is_octet_locked(self.fd(), u64::from(place)).unwrap_or(true)
    }

    /// Entries of the fill ring that are written. Read and changed under the lock.
    pub(super) fn fill_written(&self) -> Written<'_> {
        Written(&self.header().fill_written)
    }

    /// Entries of our transmit ring that are written.
    pub(super) fn tx_written(&self) -> Written<'_> {
        Written(&self.header().tx_written[usize::from(self.place)].0)
    }

    /// Takes a slot that is nobody's; false if it is not.
    pub(super) fn take_free(&self, slot: FrameIndex) -> bool {
        self.exchange(slot, NOBODY, PLACE + self.place)
    }

    /// Takes a slot from the kernel, which has let go of it; false if the kernel did not have it.
    pub(super) fn take_from_kernel(&self, slot: FrameIndex) -> bool {
        self.exchange(slot, KERNEL, PLACE + self.place)
    }

    fn exchange(&self, slot: FrameIndex, from: u8, to: u8) -> bool {
        #[cfg(test)]
        crate::fuse::burn();
        self.owner(slot).is_some_and(|owner| {
            owner.load(Ordering::Relaxed) == from // Most searches end here.
                && owner.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok()
        })
    }

    /// Gives a slot of ours to the kernel.
    pub(super) fn give_to_kernel(&self, slot: FrameIndex) {
        self.set_owner(slot, KERNEL);
    }

    /// Lets go of a slot of ours.
    pub(super) fn free(&self, slot: FrameIndex) {
        self.set_owner(slot, NOBODY);
    }

    fn set_owner(&self, slot: FrameIndex, owner: u8) {
        #[cfg(test)]
        crate::fuse::burn();
        if let Some(of_slot) = self.owner(slot) {
            of_slot.store(owner, Ordering::Release);
        }
    }

    /// Whether a slot is this place's.
    pub(super) fn is_own(&self, slot: FrameIndex) -> bool {
        self.owner(slot).is_some_and(|owner| owner.load(Ordering::Acquire) == PLACE + self.place)
    }

    /// How many slots the kernel has, from all places.
    pub(super) fn lent(&self) -> usize {
        let is_lent = |slot: &u32| {
            self.owner(FrameIndex(*slot)).is_some_and(|owner| owner.load(Ordering::Relaxed) == KERNEL)
        };
        (0..self.slots).filter(is_lent).count()
    }

    fn header(&self) -> &Header {
        // SAFETY: the region is at least as long as a header, and its start is that of a page; every bit pattern is a valid header of atomics,
        // which others access as atomics only.
        unsafe { self.region.start().cast::<Header>().as_ref() }
    }

    fn owner(&self, slot: FrameIndex) -> Option<&AtomicU8> {
        if slot.0 >= self.slots {
            return None;
        }
        // SAFETY: the region has an octet for each of `slots` behind the header, as its length was checked.
        Some(unsafe { self.region.start().add(HEADER_LEN + slot.0 as usize).cast::<AtomicU8>().as_ref() })
    }
}

/// Octets of an area.
fn len(slots: u32) -> usize {
    HEADER_LEN + slots as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn areas(places: u16) -> (OwnedFd, Vec<Area>) {
        let area = Area::create(64).unwrap();
        let enter =
            |place: u16| Area::map(Area::enter(area.as_fd(), place as u8).unwrap(), 64, place).unwrap();
        let entered = (0..places).map(enter).collect();
        (area, entered)
    }

    #[test]
    fn a_place_is_taken_for_as_long_as_its_area_is_mapped() {
        let (area, mut entered) = areas(1);
        let refused = Area::enter(area.as_fd(), 0).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        drop(Area::enter(area.as_fd(), 1).unwrap());
        let Area { region, file, .. } = entered.pop().unwrap();
        drop(file);
        assert!(Area::enter(area.as_fd(), 0).is_err(), "a closed descriptor changes nothing");
        drop(region);
        assert!(Area::enter(area.as_fd(), 0).is_ok());
    }

    #[test]
    fn a_slot_is_one_places_whoever_tries() {
        let (_area, entered) = areas(2);
        let [one, other] = &entered[..] else { panic!("two") };
        assert!(one.take_free(FrameIndex(3)) && !other.take_free(FrameIndex(3)));
        assert!(!other.take_from_kernel(FrameIndex(3)), "the kernel does not have it");
        one.give_to_kernel(FrameIndex(3));
        assert_eq!(other.lent(), 1);
        assert!(other.take_from_kernel(FrameIndex(3)) && !one.take_from_kernel(FrameIndex(3)));
        assert!(other.is_own(FrameIndex(3)) && !one.is_own(FrameIndex(3)));
        other.free(FrameIndex(3));
        assert!(one.take_free(FrameIndex(3)));
        assert!(!one.take_free(FrameIndex(64)), "there is no such slot");
    }

    #[test]
    fn a_lock_is_inherited_from_the_dead_only() {
        let (area, mut entered) = areas(3);
        let signed: Vec<Turn> = entered.iter().map(Area::sign).collect();
        assert!(entered[2].try_lock(signed[2]));
        assert!(!entered[0].try_lock(signed[0]) && !entered[0].inherit_lock(signed[0]));
        drop(entered.pop());
        assert!(entered[0].inherit_lock(signed[0]) && !entered[1].inherit_lock(signed[1]));
        entered[0].unlock();
        assert!(entered[1].try_lock(signed[1]));
        drop(entered.pop());
        let next = Area::map(Area::enter(area.as_fd(), 1).unwrap(), 64, 1).unwrap();
        assert!(!entered[0].inherit_lock(signed[0]), "somebody is in that place again");
        assert!(next.inherit_lock(next.sign()), "who knows that it was not itself");
    }
}
