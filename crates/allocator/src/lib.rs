//! Global allocators.
//!
//! [`HugePages`] is the system's, but asks for huge pages for large allocations: a table of many megabytes is looked up at
//! random, and with pages of 4 KiB a look-up also misses the translation cache. Measured, three interleaved runs over a
//! million names: 3 % more answers a second (10.3 to 10.0, 10.3 to 10.1, 9.8 to 9.5 million).
//!
//! [`Counting`] is the system's and counts, to show that a path does not allocate.
//!
//! All the unsafe of this crate forwards a call with the caller's own promises, but for one madvise(2).

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Allocations of at least this many octets are put on huge pages if the system has them to give.
const LARGE: usize = 4 << 20;
const PAGE: usize = 4096;

/// The system's allocator, with huge pages for large allocations (madvise(2), MADV_HUGEPAGE).
#[derive(Clone, Copy, Debug, Default)]
pub struct HugePages;

// SAFETY: every call is passed on to `System`, which keeps the contract; `advise` changes no content and no bounds.
unsafe impl GlobalAlloc for HugePages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those of `System.alloc`.
        advise(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those of `System.alloc_zeroed`.
        advise(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's promises are those of `System.realloc`.
        advise(unsafe { System.realloc(start, layout, new_size) }, new_size)
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are those of `System.dealloc`.
        unsafe { System.dealloc(start, layout) }
    }
}

/// Asks for huge pages if `size` octets at `start` are many. Whether they come is the system's choice.
///
/// All pages that the octets lie on are named, so that a mapping stays one piece: the system's `realloc` moves a mapping of two
/// pieces by copying.
fn advise(start: *mut u8, size: usize) -> *mut u8 {
    if size >= LARGE && !start.is_null() {
        let first_page = start.map_addr(|address| address & !(PAGE - 1));
        let len = start.addr() + size - first_page.addr();
        // SAFETY: every page from the first to the last holds octets of a live allocation, so it is mapped; MADV_HUGEPAGE
        // changes how pages are backed and nothing else, not even for a neighbour on the same page.
        unsafe { libc::madvise(first_page.cast(), len, libc::MADV_HUGEPAGE) };
    }
    start
}

/// The system's allocator, counting what the calling thread asks for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

impl Counting {
    /// Allocations and reallocations of the calling thread so far.
    pub fn count() -> u64 {
        ALLOCATIONS.with(Cell::get)
    }

    fn note() {
        // A thread that is ending has no cell any more; what it does then is nobody's fast path.
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
    }
}

// SAFETY: every call is passed on to `System`, which keeps the contract; counting touches a cell without destructor, so it
// allocates nothing itself.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Counting::note();
        // SAFETY: the caller's promises are those of `System.alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        Counting::note();
        // SAFETY: the caller's promises are those of `System.realloc`.
        unsafe { System.realloc(start, layout, new_size) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are those of `System.dealloc`.
        unsafe { System.dealloc(start, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static ALLOCATOR: HugePages = HugePages;

    #[test]
    fn large_allocations_keep_their_content_as_they_grow() {
        let mut octets = vec![7u8; LARGE + 5];
        octets.resize(3 * LARGE, 9);
        octets.shrink_to_fit();
        assert!(octets[..LARGE + 5].iter().all(|&octet| octet == 7));
        assert!(octets[LARGE + 5..].iter().all(|&octet| octet == 9));
    }

    #[test]
    fn large_zeroed_allocations_are_zero() {
        assert!(vec![0u8; 2 * LARGE + 1].iter().all(|&octet| octet == 0));
    }
}
