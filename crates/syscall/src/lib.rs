//! System calls on the program's descriptors: one safe function for each, bypassing the C library.
//!
//! Within the preloaded library a C function such as `close` is our own hook; these calls always go to the kernel.
//! They take descriptors as numbers, as a program has them: a wrong number gives the kernel's `EBADF`, and never memory unsafety.

mod epoll;
mod file;
mod memory;
mod message;
mod poll;
mod raw;
mod rights;
mod socket;
mod thread;

use std::io;

pub use epoll::{EpollEvent, epoll_create, epoll_ctl, epoll_pwait2, epoll_wait};
pub use file::{
    close, close_on_exec, close_range, dup, dup_from, dup_owned, dup3, eventfd, fcntl, ioctl, lseek, pipe,
    pread, raise, read, splice, write,
};
pub use memory::SharedWords;
pub use message::{Message, MessageMut, MessageReceived, receive_message, send_message};
pub use poll::{PollFd, Timeout, ppoll, ppoll_within};
pub use rights::{receive_descriptor, send_descriptor};
pub use socket::{
    accept, bind, connect, getpeername, getsockname, getsockopt, has_filter, listen, network_namespace,
    setsockopt, shutdown, socket, socketpair,
};
pub use thread::{
    descriptor_limit, effective_user, futex_wait, futex_wait_within, futex_wake, has_thread, kill, parent_id,
    process_id, processor, processor_time, set_signal_mask, thread_id, thread_local_len,
};

/// What a system call returned, as `io::Result`.
fn check(returned: libc::c_long) -> io::Result<usize> {
    usize::try_from(returned).map_err(|_| io::Error::from_raw_os_error(-returned as i32))
}
