//! syscall(2): some libraries (libuv) close descriptors and receive datagrams by it.

use std::ffi::{c_int, c_long, c_uint, c_ulong, c_void};

use libc::{
    epoll_event, iovec, mmsghdr, msghdr, nfds_t, off64_t, pollfd, sigset_t, size_t, sockaddr, socklen_t,
    timespec,
};
#[cfg(target_arch = "x86_64")]
use libc::{fd_set, timeval};

use super::exec::Strings;
use crate::hooks::{self, next};

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
            // What a ring does with sockets and epoll instances passes us by; without it programs (libuv) do the same by calls.
            libc::SYS_io_uring_setup => {
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
        SYS_recvfrom => recvfrom(0: c_int, 1: *mut c_void, 2: size_t, 3: c_int, 4: *mut sockaddr, 5: *mut socklen_t);
        SYS_recvmsg => recvmsg(0: c_int, 1: *mut msghdr, 2: c_int);
        SYS_recvmmsg => recvmmsg(0: c_int, 1: *mut mmsghdr, 2: c_uint, 3: c_int, 4: *mut timespec);
        SYS_write => write(0: c_int, 1: *const c_void, 2: size_t);
        SYS_writev => writev(0: c_int, 1: *const iovec, 2: c_int);
        SYS_sendto => sendto(0: c_int, 1: *const c_void, 2: size_t, 3: c_int, 4: *const sockaddr, 5: socklen_t);
        SYS_sendmsg => sendmsg(0: c_int, 1: *const msghdr, 2: c_int);
        SYS_sendmmsg => sendmmsg(0: c_int, 1: *mut mmsghdr, 2: c_uint, 3: c_int);
        SYS_sendfile => sendfile(0: c_int, 1: c_int, 2: *mut off64_t, 3: size_t);
        SYS_splice => splice(0: c_int, 1: *mut off64_t, 2: c_int, 3: *mut off64_t, 4: size_t, 5: c_uint);
        SYS_close => close(0: c_int);
        SYS_close_range => close_range(0: c_uint, 1: c_uint, 2: c_int);
        SYS_dup => dup(0: c_int);
        SYS_dup3 => dup3(0: c_int, 1: c_int, 2: c_int);
        SYS_fcntl => fcntl(0: c_int, 1: c_int, 2: c_long);
        SYS_ioctl => ioctl(0: c_int, 1: c_ulong, 2: *mut c_void);
        SYS_epoll_create1 => epoll_create1(0: c_int);
        SYS_epoll_ctl => epoll_ctl(0: c_int, 1: c_int, 2: c_int, 3: *mut epoll_event);
        SYS_epoll_pwait => epoll_pwait(0: c_int, 1: *mut epoll_event, 2: c_int, 3: c_int, 4: *const sigset_t);
        SYS_epoll_pwait2 => epoll_pwait2(0: c_int, 1: *mut epoll_event, 2: c_int, 3: *const timespec, 4: *const sigset_t);
        SYS_ppoll => ppoll(0: *mut pollfd, 1: nfds_t, 2: *const timespec, 3: *const sigset_t);
        SYS_execve => execve(0: *const i8, 1: Strings, 2: Strings);
        #[cfg(target_arch = "x86_64")] SYS_dup2 => dup2(0: c_int, 1: c_int);
        #[cfg(target_arch = "x86_64")] SYS_epoll_create => epoll_create(0: c_int);
        #[cfg(target_arch = "x86_64")] SYS_epoll_wait => epoll_wait(0: c_int, 1: *mut epoll_event, 2: c_int, 3: c_int);
        #[cfg(target_arch = "x86_64")] SYS_poll => poll(0: *mut pollfd, 1: nfds_t, 2: c_int);
        #[cfg(target_arch = "x86_64")] SYS_select => select(0: c_int, 1: *mut fd_set, 2: *mut fd_set, 3: *mut fd_set, 4: *mut timeval);
    }
}
