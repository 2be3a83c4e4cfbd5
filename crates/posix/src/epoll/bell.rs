//! The bell of an epoll instance: a descriptor that the kernel reports when a socket of ours is ready.
//!
//! Threads wait at the kernel's instance if it had none of our sockets when they came. If a socket of ours becomes ready later, the kernel
//! cannot tell them. So the bell, which is always readable, is added to the instance once each time it has to ring. A thread that finds it
//! among its events checks our sockets.

use std::os::fd::RawFd;

/// What the bell's event has for data: no pointer, and no number that a program would think of. It is the same in all processes, as those that
/// share an instance hear each other's bells.
pub(crate) const DATA: u64 = 0xb3d1_9a6e_5a1d_be11;

/// The bell of one instance.
#[derive(Default)]
pub(crate) struct Bell {
    pub(crate) fd: Option<RawFd>,
    /// It was hung up, by this process or one that this was forked from.
    pub(crate) is_known: bool,
    /// Threads that would hear it.
    pub(crate) listeners: u32,
}

/// Whether an event of the kernel's is the bell's, and not of the program.
pub(crate) fn is_bell(event: &syscall::EpollEvent) -> bool {
    event.u64 == DATA
}
