//! seccomp(2): the program chooses the system calls that it may make, and is killed for others. Its list does not contain our stack's
//! calls, so everything moves to the kernel before.

use std::ffi::{c_int, c_long, c_ulong};

use super::signal;
use crate::answer::{Asked, deactivate, tell};
use crate::asked::{self, Verdict};
use crate::hooks::next;

/// # Safety
/// As prctl(2).
pub(crate) unsafe fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int {
    let confines = match a as u32 {
        libc::SECCOMP_MODE_STRICT => true,
        // Without a filter it is asked whether the kernel has such a thing.
        libc::SECCOMP_MODE_FILTER => b != 0,
        _ => false,
    };
    if option == libc::PR_SET_SECCOMP && confines {
        tell(give_all_up);
    }
    // SAFETY: as the caller says.
    unsafe { next::prctl(option, a, b, c, d) }
}

/// # Safety
/// As seccomp(2).
pub(crate) unsafe fn seccomp(given: [c_long; 6]) -> c_long {
    let [operation, flags, filter, d, e, f] = given;
    let confines = match operation as u32 {
        libc::SECCOMP_SET_MODE_STRICT => flags == 0 && filter == 0,
        libc::SECCOMP_SET_MODE_FILTER => filter != 0,
        _ => false,
    };
    if confines {
        tell(give_all_up);
    }
    // SAFETY: as the caller says.
    unsafe { next::syscall(libc::SYS_seccomp, operation, flags, filter, d, e, f) }
}

/// What unshare(2) refuses to a process with several threads, or does for the calling one alone.
const UNSHARED_ALONE: c_int = libc::CLONE_NEWUSER
    | libc::CLONE_NEWTIME
    | libc::CLONE_VM
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_FILES;
/// The namespaces that setns(2) lets a process enter only if it has one thread.
const ENTERED_ALONE: c_int = libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWTIME;

/// Our thread makes way only where it has to: after CLONE_NEWPID no thread can be made, and it would not come back.
pub(crate) fn unshare<T>(flags: c_int) -> Asked<T> {
    if flags & UNSHARED_ALONE != 0 {
        asked::before_unshare();
    }
    if flags & libc::CLONE_NEWNET != 0 {
        asked::before_other_network();
    }
    Ok(Verdict::Kernel)
}

/// `kind` is 0 if it is the descriptor that says what is entered.
pub(crate) fn setns<T>(kind: c_int) -> Asked<T> {
    if kind == 0 || kind & ENTERED_ALONE != 0 {
        asked::before_unshare();
    }
    if kind == 0 || kind & libc::CLONE_NEWNET != 0 {
        asked::before_other_network();
    }
    Ok(Verdict::Kernel)
}

fn give_all_up() {
    if asked::before_confinement() {
        deactivate();
        signal::give_handlers_back();
    }
}
