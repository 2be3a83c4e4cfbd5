//! Asynchronous input and output (aio(7)). The C library carries it out in threads of its own, past all hooks: a connection that it is asked for
//! becomes the kernel's.

use std::ffi::c_int;

use libc::aiocb;

use crate::answer::{active, ours, tell};
use crate::asked;
use crate::memory;

/// More operations at once than any system allows.
const MANY: usize = 1 << 20;

/// Before an operation, or a list of them, is begun.
///
/// # Safety
/// As lio_listio(3).
pub(crate) unsafe fn before(list: *const *const aiocb, count: c_int) {
    let count = usize::try_from(count).unwrap_or(0);
    if !active() || count > MANY {
        return;
    }
    for place in 0..count {
        // SAFETY: the caller has `count` pointers there, each null or to an operation that nobody changes as long as it is not done.
        let block = unsafe { memory::at(list.wrapping_add(place)).and_then(|block| memory::at(*block)) };
        match block {
            Ok(block) if ours(block.aio_fildes) => tell(|| asked::move_to_kernel(block.aio_fildes)),
            Ok(_) | Err(_) => {} // What is wrong with it the C library says.
        }
    }
}
