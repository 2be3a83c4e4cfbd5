//! Hooks of functions that Rust cannot call for the program: variadic ones, vfork(2), which returns twice, and dlopen(3), which
//! examines its caller.
//!
//! Each saves all registers that may hold arguments, asks where to continue, and jumps there as if the program had called that function:
//! stack and return address are the program's.

use std::ffi::{c_char, c_int, c_long, c_void};

use crate::answer::{active, ours, tell};
use crate::asked;
use crate::next::Next;

/// Rows: names, and the function that is asked with the first argument.
macro_rules! trampolines {
    ($( $name:ident => $ask:ident; )*) => { $(
        /// # Safety
        /// As the C library's function of this name.
        #[cfg(target_arch = "x86_64")]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub(crate) unsafe extern "C" fn $name() {
            // The stack is 8 octets off a multiple of 16 at entry; rax counts the vector registers that have arguments.
            std::arch::naked_asm!(
                "push rbp",
                "mov rbp, rsp",
                "sub rsp, 192",
                "mov [rsp], rdi",
                "mov [rsp + 8], rsi",
                "mov [rsp + 16], rdx",
                "mov [rsp + 24], rcx",
                "mov [rsp + 32], r8",
                "mov [rsp + 40], r9",
                "mov [rsp + 48], rax",
                "movups [rsp + 64], xmm0",
                "movups [rsp + 80], xmm1",
                "movups [rsp + 96], xmm2",
                "movups [rsp + 112], xmm3",
                "movups [rsp + 128], xmm4",
                "movups [rsp + 144], xmm5",
                "movups [rsp + 160], xmm6",
                "movups [rsp + 176], xmm7",
                "call {ask}",
                "mov r11, rax",
                "mov rdi, [rsp]",
                "mov rsi, [rsp + 8]",
                "mov rdx, [rsp + 16]",
                "mov rcx, [rsp + 24]",
                "mov r8, [rsp + 32]",
                "mov r9, [rsp + 40]",
                "mov rax, [rsp + 48]",
                "movups xmm0, [rsp + 64]",
                "movups xmm1, [rsp + 80]",
                "movups xmm2, [rsp + 96]",
                "movups xmm3, [rsp + 112]",
                "movups xmm4, [rsp + 128]",
                "movups xmm5, [rsp + 144]",
                "movups xmm6, [rsp + 160]",
                "movups xmm7, [rsp + 176]",
                "leave",
                "jmp r11",
                ask = sym $ask,
            )
        }

        /// # Safety
        /// As the C library's function of this name.
        #[cfg(target_arch = "aarch64")]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub(crate) unsafe extern "C" fn $name() {
            std::arch::naked_asm!(
                "stp x29, x30, [sp, #-208]!",
                "mov x29, sp",
                "stp x0, x1, [sp, #16]",
                "stp x2, x3, [sp, #32]",
                "stp x4, x5, [sp, #48]",
                "stp x6, x7, [sp, #64]",
                "stp q0, q1, [sp, #80]",
                "stp q2, q3, [sp, #112]",
                "stp q4, q5, [sp, #144]",
                "stp q6, q7, [sp, #176]",
                "bl {ask}",
                "mov x16, x0",
                "ldp x0, x1, [sp, #16]",
                "ldp x2, x3, [sp, #32]",
                "ldp x4, x5, [sp, #48]",
                "ldp x6, x7, [sp, #64]",
                "ldp q0, q1, [sp, #80]",
                "ldp q2, q3, [sp, #112]",
                "ldp q4, q5, [sp, #144]",
                "ldp q6, q7, [sp, #176]",
                "ldp x29, x30, [sp], #208",
                "br x16",
                ask = sym $ask,
            )
        }
    )* };
}

trampolines! {
    dprintf => before_dprintf;
    __dprintf_chk => before_dprintf_chk;
    execl => before_execl;
    execle => before_execle;
    execlp => before_execlp;
    vfork => before_vfork;
    __vfork => before_vfork;
}

extern "C" fn before_dprintf(fd: c_int) -> *mut c_void {
    static NEXT: Next = Next::new(c"dprintf");
    move_to_kernel(fd);
    NEXT.address()
}

extern "C" fn before_dprintf_chk(fd: c_int) -> *mut c_void {
    static NEXT: Next = Next::new(c"__dprintf_chk");
    move_to_kernel(fd);
    NEXT.address()
}

fn move_to_kernel(fd: c_int) {
    if ours(fd) {
        tell(|| asked::move_to_kernel(fd));
    }
}

extern "C" fn before_execl(_: *const c_char) -> *mut c_void {
    static NEXT: Next = Next::new(c"execl");
    before_exec();
    NEXT.address()
}

extern "C" fn before_execle(_: *const c_char) -> *mut c_void {
    static NEXT: Next = Next::new(c"execle");
    before_exec();
    NEXT.address()
}

extern "C" fn before_execlp(_: *const c_char) -> *mut c_void {
    static NEXT: Next = Next::new(c"execlp");
    before_exec();
    NEXT.address()
}

fn before_exec() {
    if active() {
        tell(asked::before_exec);
    }
}

/// vfork(2) becomes fork(2), whose child has its own memory.
extern "C" fn before_vfork() -> *mut c_void {
    static FORK: Next = Next::new(c"fork");
    static VFORK: Next = Next::new(c"vfork");
    if active() { FORK.address() } else { VFORK.address() }
}

/// The function that `dlopen` continues with.
#[repr(C)]
struct Loading {
    function: *mut c_void,
    flags: c_long,
}

/// With `RTLD_DEEPBIND` a library calls the C library's own functions, past all hooks, while the program and other libraries call ours,
/// about the same descriptors: a listener that one has claimed would be silent for the other. PHP loads its extensions so.
extern "C" fn before_dlopen(_: *const c_char, flags: c_int) -> Loading {
    static NEXT: Next = Next::new(c"dlopen");
    let kept = if active() { flags & !libc::RTLD_DEEPBIND } else { flags };
    Loading { function: NEXT.address(), flags: kept.into() }
}

/// # Safety
/// As dlopen(3), which examines its caller.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn dlopen() {
    // A structure of two words is returned in rax and rdx.
    std::arch::naked_asm!(
        "push rdi",
        "call {ask}",
        "pop rdi",
        "mov rsi, rdx",
        "jmp rax",
        ask = sym before_dlopen,
    )
}

/// # Safety
/// As dlopen(3), which examines its caller.
#[cfg(target_arch = "aarch64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn dlopen() {
    // A structure of two words is returned in x0 and x1.
    std::arch::naked_asm!(
        "stp x29, x30, [sp, #-32]!",
        "str x0, [sp, #16]",
        "bl {ask}",
        "mov x16, x0",
        "ldr x0, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "br x16",
        ask = sym before_dlopen,
    )
}
