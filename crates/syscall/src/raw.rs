//! The system call instruction. Inside a program, `libc::syscall` would be one of our own hooks, and would set the program's errno.

/// Makes a system call of up to six arguments, each a number or a pointer; what it returns is a result, or an errno as a negative number.
///
/// # Safety
/// As `system_call`.
macro_rules! raw {
    ($number:expr $(, $argument:expr)* $(,)?) => {{
        let given = [$($argument as usize),*];
        let mut arguments = [0usize; 6];
        arguments[..given.len()].copy_from_slice(&given);
        $crate::raw::system_call($number, arguments)
    }};
}
pub(crate) use raw;

/// Makes system call `number`.
///
/// # Safety
/// Pointers among the arguments have to point to what the call reads or writes there, for as long as it does.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) unsafe fn system_call(number: libc::c_long, arguments: [usize; 6]) -> libc::c_long {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    let returned;
    // SAFETY: the kernel's convention: number in rax, which returns the result; rcx and r11 are overwritten, and memory is as the caller
    // says.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number => returned,
            in("rdi") first, in("rsi") second, in("rdx") third, in("r10") fourth, in("r8") fifth, in("r9") sixth,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    returned
}

/// Makes system call `number`.
///
/// # Safety
/// Pointers among the arguments have to point to what the call reads or writes there, for as long as it does.
#[cfg(target_arch = "aarch64")]
#[inline]
pub(crate) unsafe fn system_call(number: libc::c_long, arguments: [usize; 6]) -> libc::c_long {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    let returned;
    // SAFETY: the kernel's convention: number in x8, the first argument's register returns the result, and memory is as the caller says.
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") first => returned,
            in("x1") second, in("x2") third, in("x3") fourth, in("x4") fifth, in("x5") sixth,
            options(nostack),
        );
    }
    returned
}
