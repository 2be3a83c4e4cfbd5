//! The C library's functions behind our hooks.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function that is looked up when it is first called: other libraries' constructors call hooked functions before ours has run.
///
/// Two threads may look up the same function at once, and find the same.
pub(crate) struct Next {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Next {
    pub(crate) const fn new(name: &'static CStr) -> Next {
        Next { name, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Where the function is, if that was asked before.
    #[inline(always)]
    pub(crate) fn known(&self) -> Option<NonNull<c_void>> {
        NonNull::new(self.address.load(Ordering::Relaxed))
    }

    /// Where the function is; never null.
    pub(crate) fn address(&self) -> *mut c_void {
        self.known().map_or_else(|| self.look_up(), NonNull::as_ptr)
    }

    fn look_up(&self) -> *mut c_void {
        // SAFETY: the name ends with a zero, and the dynamic linker takes the library that calls, this one, as the place to search behind.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        let address = if found.is_null() { missing as *mut c_void } else { found };
        self.address.store(address, Ordering::Relaxed);
        address
    }
}

/// Stands for a function that this C library does not have. Whoever calls it has an older library than the program was made for; the
/// convention for calls on x86-64 and on aarch64 lets it be called with any arguments.
extern "C-unwind" fn missing() -> c_int {
    crate::answer::set_errno(libc::ENOSYS);
    -1
}
