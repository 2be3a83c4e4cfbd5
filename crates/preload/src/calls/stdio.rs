//! The C library's own use of descriptors: its streams read, write and close without passing any hook, so a socket that becomes a stream
//! moves to the kernel for good.

use std::ffi::c_int;

use crate::asked::{self, Verdict};
use libc::FILE;

use crate::answer::{Asked, active, errno, ours, set_errno};

/// `fd` is about to be used from inside of the C library.
pub(crate) fn move_to_kernel<T>(fd: c_int) -> Asked<T> {
    asked::move_to_kernel(fd);
    Ok(Verdict::Kernel)
}

/// Whether the descriptor below `stream` is ours: it came there when it was the kernel's, by a dup2(2) after fdopen(3).
///
/// # Safety
/// As fclose(3).
pub(crate) unsafe fn is_ours(stream: *mut FILE) -> bool {
    if !active() || stream.is_null() {
        return false;
    }
    let before = errno();
    // SAFETY: not null, so it is a stream; fileno(3) reads its number. For one without it leaves an error.
    let number = unsafe { libc::fileno(stream) };
    set_errno(before);
    ours(number)
}

/// # Safety
/// As fclose(3).
pub(crate) unsafe fn move_stream<T>(stream: *mut FILE) -> Asked<T> {
    // SAFETY: as the caller says.
    move_to_kernel(unsafe { libc::fileno(stream) })
}
