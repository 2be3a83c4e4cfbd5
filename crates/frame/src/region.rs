//! The memory behind a pool.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};
use std::ptr::{self, NonNull};

/// A readable and writable mapping, page-aligned and zeroed, of fixed length.
///
/// Unmapped on drop. Nothing in here hands out references into it: that is [`crate::Frame`]'s business.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    len: usize,
    memfd: Option<File>,
}

// SAFETY: the region is an address range; it offers no access to the memory by itself.
unsafe impl Send for Region {}
// SAFETY: as above: all methods only read the range's bounds.
unsafe impl Sync for Region {}

impl Region {
    /// Maps `len` octets of private memory (rounded up to whole pages by the kernel), see mmap(2).
    ///
    /// Asks for transparent huge pages; a kernel that refuses is not an error.
    pub fn anonymous(len: usize) -> io::Result<Region> {
        let region = Region::map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, None)?;
        // SAFETY: the range was mapped just now and MADV_HUGEPAGE changes no content (madvise(2)).
        unsafe { libc::madvise(region.start.as_ptr().cast(), len, libc::MADV_HUGEPAGE) };
        Ok(region)
    }

    /// Maps `len` octets of a fresh memfd named `name`, which other processes can map too, see memfd_create(2).
    pub fn memfd(name: &std::ffi::CStr, len: usize) -> io::Result<Region> {
        // SAFETY: `name` is a terminated string; the call returns a fresh descriptor or -1.
        let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` is fresh and owned by nobody else.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(len as u64)?;
        Region::map(len, libc::MAP_SHARED, Some(file))
    }

    fn map(len: usize, flags: libc::c_int, memfd: Option<File>) -> io::Result<Region> {
        let fd = memfd.as_ref().map_or(-1, |file| file.as_raw_fd());
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, fd, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).expect("mmap without MAP_FIXED never maps page zero");
        Ok(Region { start, len, memfd })
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

    /// The memfd behind a shared region; `None` for an anonymous one.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.memfd.as_ref().map(|file| file.as_fd())
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the range is ours, mapped once and unmapped once; `Pool` does not drop a region while frames are out.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
