//! The memory behind a pool.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::{self, NonNull};

/// A readable and writable mapping, page-aligned, of fixed length.
///
/// Unmapped on drop. Nothing in here hands out references into it: that is [`crate::Frame`]'s business. Memory has one region:
/// the only safe way to a second one of the same memory, in this process or another, is [`Region::into_memfd`], which ends the first.
/// [`Region::shared`] is for memory whose slots several processes divide among themselves.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    len: usize,
    /// Behind memory that may go to another process yet.
    memfd: Option<File>,
}

// SAFETY: the region is an address range; it offers no access to the memory by itself.
unsafe impl Send for Region {}
// SAFETY: as above: all methods only read the range's bounds.
unsafe impl Sync for Region {}

impl Region {
    /// Maps `len` octets of private memory (rounded up to whole pages by the kernel), zeroed, see mmap(2).
    ///
    /// Asks for transparent huge pages; a kernel that refuses is not an error.
    pub fn anonymous(len: usize) -> io::Result<Region> {
        let region = Region::map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)?;
        region.advise(libc::MADV_HUGEPAGE);
        Ok(region)
    }

    /// Maps `len` octets of a fresh memfd named `name`, zeroed, which may become another process's: see memfd_create(2). A
    /// child of fork(2) does not inherit the mapping, as both would hold the same frames.
    pub fn memfd(name: &std::ffi::CStr, len: usize) -> io::Result<Region> {
        // SAFETY: `name` is a terminated string; the call returns a fresh descriptor or -1.
        let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` is new and nothing else owns it.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(len as u64)?;
        add_seals(&file, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW)?;
        let mut region = Region::map(len, libc::MAP_SHARED, file.as_raw_fd())?;
        region.advise(libc::MADV_DONTFORK);
        region.memfd = Some(file);
        Ok(region)
    }

    /// Unmaps the memory and gives away what it can be mapped again by, once: [`Region::from_memfd`]. `None` for private memory.
    pub fn into_memfd(mut self) -> Option<OwnedFd> {
        self.memfd.take().map(OwnedFd::from)
    }

    /// Maps `len` octets that [`Region::into_memfd`] gave away, most likely in another process. Whatever they hold is left as
    /// it is. The first who does so has them alone: the memory is sealed, and the kernel lets nobody write it by a new mapping
    /// (fcntl(2), "File Sealing").
    ///
    /// # Errors
    /// `InvalidInput`: no memfd, or of another length, or one that could still be cut. `PermissionDenied`: there was a first.
    pub fn from_memfd(memfd: OwnedFd, len: usize) -> io::Result<Region> {
        let file = File::from(memfd);
        let region = Region::map_memfd(&file, len)?;
        // Both at once: whoever comes second finds that no seal can be added, before it has touched anything.
        add_seals(&file, libc::F_SEAL_FUTURE_WRITE | libc::F_SEAL_SEAL)?;
        Ok(region)
    }

    /// Maps `len` octets that [`Region::into_memfd`] gave away, as other processes do at the same time. Whatever they hold is left as it is.
    ///
    /// # Safety
    /// Whoever has a region of this memory makes a pool of it by [`crate::Pool::surrendered`] at most, and those who have one agree on who
    /// holds which slot: at most one of them adopts a slot at a time.
    ///
    /// # Errors
    /// `InvalidInput`: no memfd, or of another length, or one that could still be cut.
    pub unsafe fn shared(memfd: &File, len: usize) -> io::Result<Region> {
        Region::map_memfd(memfd, len)
    }

    /// Maps all of a memfd that nobody can cut.
    fn map_memfd(file: &File, len: usize) -> io::Result<Region> {
        if len == 0 || file.metadata()?.len() != len as u64 || seals(file)? & libc::F_SEAL_SHRINK == 0 {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let region = Region::map(len, libc::MAP_SHARED, file.as_raw_fd())?;
        region.advise(libc::MADV_DONTFORK);
        Ok(region)
    }

    fn map(len: usize, flags: libc::c_int, fd: RawFd) -> io::Result<Region> {
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, fd, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).expect("mmap without MAP_FIXED never maps page zero");
        Ok(Region { start, len, memfd: None })
    }

    /// Gives advice that changes no content. A refusal is no error.
    fn advise(&self, advice: libc::c_int) {
        debug_assert!([libc::MADV_HUGEPAGE, libc::MADV_DONTFORK].contains(&advice));
        // SAFETY: the range is ours, and neither piece of advice changes what is in it (madvise(2)).
        unsafe { libc::madvise(self.start.as_ptr().cast(), self.len, advice) };
    }

    /// First octet of the mapping.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Length in octets.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the mapping has no octets.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the range is ours, mapped once and unmapped once; `Pool` does not drop a region while frames are out.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// The seals of a memfd, see fcntl(2), F_GET_SEALS.
fn seals(file: &File) -> io::Result<libc::c_int> {
    // SAFETY: no pointers.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) } {
        -1 => Err(io::Error::last_os_error()),
        seals => Ok(seals),
    }
}

/// See fcntl(2), F_ADD_SEALS.
fn add_seals(file: &File, seals: libc::c_int) -> io::Result<()> {
    // SAFETY: no pointers.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pool;
    use std::os::unix::fs::FileExt;

    const LEN: usize = 4 * 4096;

    fn lent() -> OwnedFd {
        Region::memfd(c"test", LEN).unwrap().into_memfd().unwrap()
    }

    #[test]
    fn memory_that_was_given_away_holds_what_it_held() {
        let memfd = File::from(lent());
        memfd.write_all_at(b"left behind", 0).unwrap();
        let mut pool = Pool::new(Region::from_memfd(memfd.into(), LEN).unwrap(), 4096, 0);
        let mut frame = pool.alloc().unwrap();
        frame.set_len(11);
        assert_eq!(frame.bytes(), b"left behind");
        pool.release(frame);
    }

    #[test]
    fn memory_has_one_owner() {
        let memfd = lent();
        let second = memfd.try_clone().unwrap();
        let region = Region::from_memfd(memfd, LEN).unwrap();
        let refused = Region::from_memfd(second.try_clone().unwrap(), LEN).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        assert!(File::from(second.try_clone().unwrap()).write_at(b"x", 0).is_err());
        drop(region);
        assert!(Region::from_memfd(second, LEN).is_err(), "nor after the first has ended");
    }

    #[test]
    fn only_a_memfd_of_the_right_length_that_stays_so_is_taken() {
        let refused = |fd: OwnedFd, len| Region::from_memfd(fd, len).unwrap_err().kind();
        assert_eq!(refused(lent(), LEN + 4096), io::ErrorKind::InvalidInput);
        assert_eq!(refused(lent(), LEN - 4096), io::ErrorKind::InvalidInput);
        assert_eq!(refused(lent(), 0), io::ErrorKind::InvalidInput);
        let file = File::open("/proc/self/exe").unwrap();
        let len = file.metadata().unwrap().len() as usize;
        assert_eq!(refused(file.into(), len), io::ErrorKind::InvalidInput);
        // SAFETY: as in `Region::memfd`.
        let loose =
            unsafe { File::from_raw_fd(libc::memfd_create(c"loose".as_ptr(), libc::MFD_ALLOW_SEALING)) };
        loose.set_len(LEN as u64).unwrap();
        assert_eq!(refused(loose.into(), LEN), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn shared_memory_is_seen_by_all_who_map_it() {
        let memfd = File::from(lent());
        // SAFETY: slots are adopted here, by one thread: each by one of the two pools.
        let map = || unsafe { Region::shared(&memfd, LEN) }.unwrap();
        let (mut one, mut other) = (Pool::surrendered(map(), 4096, 0), Pool::surrendered(map(), 4096, 0));
        assert!((one.available(), other.alloc().is_none()) == (0, true), "nobody has anything at first");
        // SAFETY: all slots are surrendered, and nobody touches them.
        let mut frame = unsafe { one.adopt(crate::FrameIndex(1), 0, 4) }.unwrap();
        frame.copy_from(b"hand");
        let index = one.surrender(frame);
        // SAFETY: it was surrendered just now, and the pools have the same slots.
        let frame = unsafe { other.adopt(index, 0, 4) }.unwrap();
        assert_eq!(frame.bytes(), b"hand");
        other.release(frame);
        assert_eq!(other.alloc().map(|frame| other.surrender(frame)), Some(index));
        // SAFETY: for every slot, as nobody holds one any more.
        (0..4).for_each(|slot| assert!(unsafe { one.reclaim(crate::FrameIndex(slot)) }));
        // SAFETY: as above.
        (0..4).for_each(|slot| assert!(unsafe { other.reclaim(crate::FrameIndex(slot)) }));
    }

    #[test]
    fn private_memory_stays_here() {
        assert!(Region::anonymous(LEN).unwrap().into_memfd().is_none());
    }
}
