//! A safe hint to fetch memory that will be read soon.
//!
//! A plain load does the same, but the core stalls behind it once its window is full; a hint is forgotten at once, so
//! many can be under way. The only unsafe of this crate is the instruction itself, which reads nothing.
#![no_std]

/// Hints that the element at `index` of `slice` will be read soon. An index beyond the end does nothing.
#[inline(always)]
pub fn read<T>(slice: &[T], index: usize) {
    if let Some(element) = slice.get(index) {
        fetch(element);
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn fetch<T>(element: &T) {
    use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: PREFETCHT0 changes no architectural state and never faults, whatever the address; SSE, which it belongs to,
    // is part of x86-64.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(element).cast()) };
}

/// Other processors find out by themselves.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn fetch<T>(_element: &T) {}

#[cfg(test)]
mod tests {
    #[test]
    fn hints_within_and_beyond_a_slice_change_nothing() {
        let slice = [1, 2, 3];
        for index in [0, 2, 3, usize::MAX] {
            super::read(&slice, index);
        }
        assert_eq!(slice, [1, 2, 3]);
    }
}
