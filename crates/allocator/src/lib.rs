//! [`Counting`], a global allocator that is the system's and counts, to show that a path does not allocate, or how much something holds; and a
//! setting of the system's own.
//!
//! All the unsafe of this crate forwards a call with the caller's own promises, but for that of the setting.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Has every block of a mebibyte and more be a mapping of its own, which goes back to the system when the block is freed: for programs whose large
/// blocks come and go with small ones that stay. glibc begins so, but takes blocks of up to 32 MiB from its heap once one of that length was freed
/// (`M_MMAP_THRESHOLD` in mallopt(3)). There it keeps their places, as something small soon lies behind them. Without effect elsewhere. To be called at the start.
pub fn map_large_blocks() {
    #[cfg(target_env = "gnu")]
    {
        const LARGE: libc::c_int = 1 << 20;
        // SAFETY: mallopt(3) takes two numbers, and what it refuses it leaves as it is. It locks the heap. Threads that there are already read the
        // setting, one aligned word, before or after it changes, and both are good for every block: a block says itself whether it is a mapping.
        unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE) };
    }
}

/// The system's allocator, counting what the calling thread asks for and gives back.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static OCTETS_HELD: Cell<i64> = const { Cell::new(0) };
}

impl Counting {
    /// Allocations and reallocations of the calling thread so far.
    pub fn count() -> u64 {
        ALLOCATIONS.with(Cell::get)
    }

    /// Octets that the calling thread has asked for and not given back. Negative if it has given back those of other threads.
    pub fn octets_held() -> i64 {
        OCTETS_HELD.with(Cell::get)
    }

    fn note() {
        // A thread that is ending has no cell any more; what it does then is nobody's fast path.
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
    }

    fn note_octets(taken: usize, given_back: usize) {
        let _ = OCTETS_HELD.try_with(|held| held.set(held.get() + taken as i64 - given_back as i64));
    }
}

// SAFETY: every call is passed on to `System`, which keeps the contract; counting touches a cell without destructor, so it
// allocates nothing itself.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Counting::note();
        Counting::note_octets(layout.size(), 0);
        // SAFETY: the caller's promises are those of `System.alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        Counting::note();
        Counting::note_octets(new_size, layout.size());
        // SAFETY: the caller's promises are those of `System.realloc`.
        unsafe { System.realloc(start, layout, new_size) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        Counting::note_octets(0, layout.size());
        // SAFETY: the caller's promises are those of `System.dealloc`.
        unsafe { System.dealloc(start, layout) }
    }
}
