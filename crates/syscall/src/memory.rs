//! Memory that other processes can read.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use crate::check;
use crate::file::owned;
use crate::raw::raw;

/// Words in a file in memory, zero at first: whoever has the file can read them, also when this process has been killed. A child of fork(2) does not have
/// them.
#[derive(Debug)]
pub struct SharedWords {
    start: NonNull<AtomicU64>,
    len: usize,
}

// SAFETY: it owns its mapping, and gives out nothing but atomic words.
unsafe impl Send for SharedWords {}
// SAFETY: as above.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// `len` words, and the file. Takes memory for those only that are written. The kernel ends a process that makes a longer file than its limit allows
    /// (`RLIMIT_FSIZE`, setrlimit(2)), so then there are none: `EFBIG`.
    pub fn new(name: &CStr, len: usize) -> io::Result<(SharedWords, OwnedFd)> {
        let octets = len * size_of::<AtomicU64>();
        if octets == 0 || octets as u64 > file_limit() {
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        }
        // SAFETY: the name is a terminated string that outlives the call.
        let file = check(unsafe { raw!(libc::SYS_memfd_create, name.as_ptr(), libc::MFD_CLOEXEC) })?;
        let file = owned(file);
        // SAFETY: no memory is involved.
        check(unsafe { raw!(libc::SYS_ftruncate, file.as_raw_fd(), octets) })?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses a place where nothing is.
        let start = check(unsafe {
            raw!(libc::SYS_mmap, 0, octets, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        })?;
        let start =
            NonNull::new(std::ptr::with_exposed_provenance_mut(start)).ok_or(io::ErrorKind::OutOfMemory)?;
        let words = SharedWords { start, len };
        // SAFETY: the range is the mapping's, which stays as it is in this process.
        check(unsafe { raw!(libc::SYS_madvise, start.as_ptr(), octets, libc::MADV_DONTFORK) })?;
        Ok((words, file))
    }

    /// The words.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is so long, page-aligned and zeroed, lives as long as `self`, and nobody makes the file shorter: who has it besides only reads
        // it.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no word of it is borrowed any more.
        unsafe { raw!(libc::SYS_munmap, self.start.as_ptr(), self.len * size_of::<AtomicU64>()) };
    }
}

/// Octets of the longest file that the process may write: the soft limit of `RLIMIT_FSIZE`.
fn file_limit() -> u64 {
    let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    let none = std::ptr::null::<libc::rlimit64>();
    // SAFETY: the kernel writes one `rlimit64` into `limit`.
    let result = unsafe { raw!(libc::SYS_prlimit64, 0, libc::RLIMIT_FSIZE, none, &raw mut limit) };
    if result == 0 { limit.rlim_cur } else { 0 }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn what_is_written_is_in_the_file() {
        let (words, file) = SharedWords::new(c"words", 1000).unwrap();
        assert!(words.words().iter().all(|word| word.load(Relaxed) == 0));
        words.words()[999].store(7, Relaxed);
        drop(words);
        let mut octets = Vec::new();
        std::fs::File::from(file).read_to_end(&mut octets).unwrap();
        assert_eq!((octets.len(), octets[7992]), (8000, 7));
        assert!(SharedWords::new(c"words", 0).is_err());
    }
}
