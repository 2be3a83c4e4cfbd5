//! syscall(2): some libraries (libuv) use it to close descriptors and receive datagrams.
//!
//! Calls that are not here go to the kernel. Two of the functions that are hooked by name are missing: vfork(2), whose child could not
//! return from here, and clone(2) onto another stack. Variants for 32-bit programs are missing, too.

use std::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::time::{Duration, Instant};

#[cfg(target_arch = "x86_64")]
use libc::timeval;
use libc::{
    epoll_event, fd_set, iovec, mmsghdr, msghdr, nfds_t, off64_t, pollfd, sigset_t, size_t, sockaddr,
    socklen_t, timespec,
};

use super::exec::Strings;
use super::select::Sets;
use super::{confine, fork, signal};
use crate::hooks::{self, next};
use crate::start::permits_rings;

/// Calls the hook that stands for a system call, with those of its arguments that count; else the kernel.
macro_rules! dispatch {
    ($number:ident, $given:ident: $(
        $(#[$only:meta])? $call:ident => $hook:ident($($argument:tt: $type:ty),*);
    )*) => {
        match $number {
            $(
                $(#[$only])?
                // SAFETY: as the caller says: the hook's arguments are those of the system call.
                libc::$call => c_long::from(unsafe { hooks::$hook($($given[$argument] as $type),*) } as i64),
            )*
            // SAFETY: as the caller says.
            libc::SYS_pselect6 => unsafe { pselect6($given) },
            // SAFETY: as the caller says.
            libc::SYS_seccomp => unsafe { confine::seccomp($given) },
            // SAFETY: as the caller says.
            libc::SYS_rt_sigaction => unsafe { signal::set_action_by_number($given) },
            // SAFETY: no memory is involved.
            libc::SYS_exit_group => unsafe { hooks::_exit($given[0] as c_int) },
            // SAFETY: as the caller says.
            _ if unsafe { is_fork($number, $given) } => {
                let [a, b, c, d, e, f] = $given;
                // SAFETY: as the caller says; the child returns on its copy of this stack.
                fork::forked(|| unsafe { next::syscall($number, a, b, c, d, e, f) })
            }
            // What a ring does with sockets and epoll instances passes us by; without it programs (libuv) do the same by calls.
            libc::SYS_io_uring_setup if !permits_rings() => {
                crate::answer::set_errno(libc::ENOSYS);
                -1
            }
            _ => {
                let [a, b, c, d, e, f] = $given;
                // SAFETY: as the caller says.
                unsafe { next::syscall($number, a, b, c, d, e, f) }
            }
        }
    };
}

/// # Safety
/// As syscall(2).
#[rustfmt::skip]
pub(crate) unsafe fn system_call(number: c_long, given: [c_long; 6]) -> c_long {
    dispatch! { number, given:
        SYS_socket => socket(0: c_int, 1: c_int, 2: c_int);
        SYS_bind => bind(0: c_int, 1: *const sockaddr, 2: socklen_t);
        SYS_listen => listen(0: c_int, 1: c_int);
        SYS_accept => accept(0: c_int, 1: *mut sockaddr, 2: *mut socklen_t);
        SYS_accept4 => accept4(0: c_int, 1: *mut sockaddr, 2: *mut socklen_t, 3: c_int);
        SYS_connect => connect(0: c_int, 1: *const sockaddr, 2: socklen_t);
        SYS_shutdown => shutdown(0: c_int, 1: c_int);
        SYS_getsockname => getsockname(0: c_int, 1: *mut sockaddr, 2: *mut socklen_t);
        SYS_getpeername => getpeername(0: c_int, 1: *mut sockaddr, 2: *mut socklen_t);
        SYS_getsockopt => getsockopt(0: c_int, 1: c_int, 2: c_int, 3: *mut c_void, 4: *mut socklen_t);
        SYS_setsockopt => setsockopt(0: c_int, 1: c_int, 2: c_int, 3: *const c_void, 4: socklen_t);
        SYS_read => read(0: c_int, 1: *mut c_void, 2: size_t);
        SYS_readv => readv(0: c_int, 1: *const iovec, 2: c_int);
        SYS_preadv2 => preadv2(0: c_int, 1: *const iovec, 2: c_int, 3: off64_t, 5: c_int);
        SYS_recvfrom => recvfrom(0: c_int, 1: *mut c_void, 2: size_t, 3: c_int, 4: *mut sockaddr, 5: *mut socklen_t);
        SYS_recvmsg => recvmsg(0: c_int, 1: *mut msghdr, 2: c_int);
        SYS_recvmmsg => recvmmsg(0: c_int, 1: *mut mmsghdr, 2: c_uint, 3: c_int, 4: *mut timespec);
        SYS_write => write(0: c_int, 1: *const c_void, 2: size_t);
        SYS_writev => writev(0: c_int, 1: *const iovec, 2: c_int);
        SYS_pwritev2 => pwritev2(0: c_int, 1: *const iovec, 2: c_int, 3: off64_t, 5: c_int);
        SYS_sendto => sendto(0: c_int, 1: *const c_void, 2: size_t, 3: c_int, 4: *const sockaddr, 5: socklen_t);
        SYS_sendmsg => sendmsg(0: c_int, 1: *const msghdr, 2: c_int);
        SYS_sendmmsg => sendmmsg(0: c_int, 1: *mut mmsghdr, 2: c_uint, 3: c_int);
        SYS_sendfile => sendfile(0: c_int, 1: c_int, 2: *mut off64_t, 3: size_t);
        SYS_splice => splice(0: c_int, 1: *mut off64_t, 2: c_int, 3: *mut off64_t, 4: size_t, 5: c_uint);
        SYS_close => close(0: c_int);
        SYS_close_range => close_range(0: c_uint, 1: c_uint, 2: c_int);
        SYS_dup => dup(0: c_int);
        SYS_dup3 => dup3(0: c_int, 1: c_int, 2: c_int);
        SYS_fstat => fstat(0: c_int, 1: *mut c_void);
        SYS_newfstatat => fstatat(0: c_int, 1: *const c_char, 2: *mut c_void, 3: c_int);
        SYS_statx => statx(0: c_int, 1: *const c_char, 2: c_int, 3: c_uint, 4: *mut c_void);
        SYS_fcntl => fcntl(0: c_int, 1: c_int, 2: c_long);
        SYS_ioctl => ioctl(0: c_int, 1: c_ulong, 2: *mut c_void);
        SYS_epoll_create1 => epoll_create1(0: c_int);
        SYS_epoll_ctl => epoll_ctl(0: c_int, 1: c_int, 2: c_int, 3: *mut epoll_event);
        SYS_epoll_pwait => epoll_pwait(0: c_int, 1: *mut epoll_event, 2: c_int, 3: c_int, 4: *const sigset_t);
        SYS_epoll_pwait2 => epoll_pwait2(0: c_int, 1: *mut epoll_event, 2: c_int, 3: *const timespec, 4: *const sigset_t);
        SYS_ppoll => ppoll(0: *mut pollfd, 1: nfds_t, 2: *const timespec, 3: *const sigset_t);
        SYS_prctl => prctl(0: c_int, 1: c_ulong, 2: c_ulong, 3: c_ulong, 4: c_ulong);
        SYS_unshare => unshare(0: c_int);
        SYS_setns => setns(0: c_int, 1: c_int);
        SYS_execve => execve(0: *const c_char, 1: Strings, 2: Strings);
        SYS_execveat => execveat(0: c_int, 1: *const c_char, 2: Strings, 3: Strings, 4: c_int);
        #[cfg(target_arch = "x86_64")] SYS_dup2 => dup2(0: c_int, 1: c_int);
        #[cfg(target_arch = "x86_64")] SYS_epoll_create => epoll_create(0: c_int);
        #[cfg(target_arch = "x86_64")] SYS_epoll_wait => epoll_wait(0: c_int, 1: *mut epoll_event, 2: c_int, 3: c_int);
        #[cfg(target_arch = "x86_64")] SYS_poll => poll(0: *mut pollfd, 1: nfds_t, 2: c_int);
        #[cfg(target_arch = "x86_64")] SYS_select => select(0: c_int, 1: *mut fd_set, 2: *mut fd_set, 3: *mut fd_set, 4: *mut timeval);
    }
}

/// pselect6(2), whose mask has its length beside it, and which returns the remaining time.
///
/// # Safety
/// As pselect6(2).
unsafe fn pselect6(given: [c_long; 6]) -> c_long {
    let [count, read, write, except, timeout, mask] = given;
    let count = count as c_int;
    let [read, write, except] = [read, write, except].map(|set| set as *mut fd_set);
    let timeout = timeout as *mut timespec;
    // SAFETY: as the caller says.
    if !unsafe { Sets::new(count, read, write, except) }.any_ours() {
        let [a, b, c, d, e, f] = given;
        // SAFETY: as the caller says.
        return unsafe { next::syscall(libc::SYS_pselect6, a, b, c, d, e, f) };
    }
    // SAFETY: null, or a pointer to the mask and a length.
    let mask = unsafe { (mask as *const *const sigset_t).as_ref() }.copied().unwrap_or(std::ptr::null());
    let start = Instant::now();
    // SAFETY: as the caller says.
    let result = unsafe { hooks::pselect(count, read, write, except, timeout, mask) };
    // SAFETY: null, or the caller's.
    if let Some(timeout) = unsafe { timeout.as_mut() }
        && let Some(span) = span_of(timeout)
    {
        let left = span.saturating_sub(start.elapsed());
        *timeout = timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos().into() };
    }
    result.into()
}

/// `None` for a time that the call refuses.
fn span_of(time: &timespec) -> Option<Duration> {
    let nanos = u32::try_from(time.tv_nsec).ok().filter(|nanos| *nanos < 1_000_000_000)?;
    Some(Duration::new(u64::try_from(time.tv_sec).ok()?, nanos))
}

/// Whether a system call makes a child that returns from it as fork(2) does.
///
/// # Safety
/// As the system call.
unsafe fn is_fork(number: c_long, given: [c_long; 6]) -> bool {
    /// Of `struct clone_args`: flags and stack, in words.
    const FLAGS: usize = 0;
    const STACK: usize = 5;
    match number {
        libc::SYS_clone => fork::is_fork(given[0]) && given[1] == 0,
        libc::SYS_clone3 if given[0] != 0 && given[1] as usize >= (STACK + 1) * size_of::<c_long>() => {
            // SAFETY: as the caller says: there are so many words.
            let arguments = unsafe { std::slice::from_raw_parts(given[0] as *const c_long, STACK + 1) };
            fork::is_fork(arguments[FLAGS]) && arguments[STACK] == 0
        }
        #[cfg(target_arch = "x86_64")]
        libc::SYS_fork => true,
        _ => false,
    }
}
