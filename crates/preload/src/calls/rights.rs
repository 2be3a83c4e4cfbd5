//! Descriptors that are passed to other processes over Unix sockets (SCM_RIGHTS, unix(7)).

use std::ffi::c_int;

use crate::asked;
use libc::{cmsghdr, mmsghdr, msghdr, ssize_t};

use crate::answer::{active, ours};
use crate::memory;

/// Whether `message` has control messages at all.
///
/// # Safety
/// As sendmsg(2).
pub(crate) unsafe fn may_pass(message: *const msghdr) -> bool {
    // SAFETY: as the caller says.
    active() && unsafe { memory::at(message) }.is_ok_and(|message| message.msg_controllen > 0)
}

/// What is passed by `message` becomes the kernel's: the receiver gets the kernel's socket.
///
/// # Safety
/// `message` is as for sendmsg(2).
pub(crate) unsafe fn move_passed(message: &msghdr) {
    // SAFETY: as the caller says.
    unsafe {
        for_each_descriptor(message, |fd| {
            if ours(fd) {
                asked::move_to_kernel(fd)
            }
        })
    }
}

/// Tells of what came by `message`, which recvmsg(2) filled, returning `received`.
///
/// # Safety
/// `message` is as after recvmsg(2).
pub(crate) unsafe fn received(received: ssize_t, message: *const msghdr) {
    if received >= 0 {
        // SAFETY: the call succeeded, so there is a message.
        unsafe { for_each_descriptor(&*message, asked::on_received) }
    }
}

/// Tells of what came by the first `count` of `messages`, which recvmmsg(2) filled.
///
/// # Safety
/// `messages` is as after recvmmsg(2).
pub(crate) unsafe fn all_received(count: c_int, messages: *const mmsghdr) {
    for index in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the call filled so many.
        unsafe { received(0, &raw const (*messages.add(index)).msg_hdr) }
    }
}

/// # Safety
/// `message` has control messages as cmsg(3) describes them, or none.
unsafe fn for_each_descriptor(message: &msghdr, mut tell: impl FnMut(c_int)) {
    if message.msg_control.is_null() {
        return;
    }
    // SAFETY: the macros of cmsg(3) stay within the control messages.
    let mut header: *const cmsghdr = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: not null, so it is a header within the control messages.
    while let Some(control) = unsafe { header.as_ref() } {
        let at = (header as usize).wrapping_sub(message.msg_control as usize);
        // The kernel refuses a message whose length exceeds the buffer; CMSG_NXTHDR would follow it anyway.
        if control.cmsg_len > message.msg_controllen.saturating_sub(at) {
            return;
        }
        // SAFETY: no memory is involved.
        let octets = control.cmsg_len.saturating_sub(unsafe { libc::CMSG_LEN(0) } as usize);
        if (control.cmsg_level, control.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            for index in 0..octets / size_of::<c_int>() {
                // SAFETY: that many descriptors are there; nothing is said of their alignment.
                tell(unsafe { libc::CMSG_DATA(header).cast::<c_int>().add(index).read_unaligned() });
            }
        }
        // SAFETY: as above.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
}
