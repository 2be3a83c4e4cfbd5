//! [`Counting`], a global allocator that is the system's and counts, to show that a path does not allocate.
//!
//! All the unsafe of this crate forwards a call with the caller's own promises.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

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
