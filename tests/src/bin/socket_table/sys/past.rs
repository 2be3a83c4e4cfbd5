//! System calls past the C library and whatever is in front of it, to tell what the kernel itself thinks of a descriptor.

use std::os::fd::RawFd;

use libc::{c_long, socklen_t};

/// Whether the kernel knows a peer of this socket.
pub(crate) fn kernel_knows_peer(fd: RawFd) -> bool {
    let mut name = [0u64; 16];
    let mut len = size_of_val(&name) as socklen_t;
    let arguments = [fd as usize, name.as_mut_ptr().addr(), (&raw mut len).addr(), 0, 0];
    // SAFETY: getpeername(2) writes no more than `len` octets to `name`, and `len`; both are exclusively ours.
    unsafe { system_call(libc::SYS_getpeername, arguments) == 0 }
}

/// Whether the kernel has something to read at this socket.
pub(crate) fn kernel_has_data(fd: RawFd) -> bool {
    let mut count = 0i32;
    let arguments = [fd as usize, libc::FIONREAD as usize, (&raw mut count).addr(), 0, 0];
    // SAFETY: ioctl(2) writes an int to `count`, which is exclusively ours.
    unsafe { system_call(libc::SYS_ioctl, arguments) == 0 && count > 0 }
}

/// The family of a socket, if the descriptor is one.
pub(crate) fn kernel_family(fd: RawFd) -> Option<i32> {
    let mut value = 0i32;
    let mut len = size_of::<i32>() as socklen_t;
    let (at, len_at) = ((&raw mut value).addr(), (&raw mut len).addr());
    let arguments = [fd as usize, libc::SOL_SOCKET as usize, libc::SO_DOMAIN as usize, at, len_at];
    // SAFETY: getsockopt(2) writes no more than `len` octets to `value`, and `len`; both are exclusively ours.
    let result = unsafe { system_call(libc::SYS_getsockopt, arguments) };
    (result == 0).then_some(value)
}

/// Makes a system call.
///
/// # Safety
///
/// What the system call does with the memory that the arguments point to must be sound.
#[cfg(target_arch = "x86_64")]
unsafe fn system_call(number: c_long, arguments: [usize; 5]) -> c_long {
    let [one, two, three, four, five] = arguments;
    let mut result = number;
    // SAFETY: by this function's own condition; the instruction changes no register but those named.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") result,
            in("rdi") one,
            in("rsi") two,
            in("rdx") three,
            in("r10") four,
            in("r8") five,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// As on x86-64, by the C library's own way past itself.
///
/// # Safety
///
/// What the system call does with the memory that the arguments point to must be sound.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn system_call(number: c_long, arguments: [usize; 5]) -> c_long {
    let [one, two, three, four, five] = arguments;
    // SAFETY: by this function's own condition.
    unsafe { libc::syscall(number, one, two, three, four, five) }
}
