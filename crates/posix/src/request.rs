//! What calls are given and what they return, as safe types.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::RawFd;

use crate::errno::Errno;

/// What a hooked function is to do.
#[derive(Debug)]
pub enum Verdict<T> {
    /// The descriptor is the kernel's: call the C library's own function.
    Kernel,
    /// It is done: return this.
    Done(Result<T, Errno>),
}

/// What recvmsg(2) was asked for; read(2) and recv(2) are the same without name and control data.
#[derive(Debug)]
pub struct Receive<'a, 'b> {
    /// Where the octets go.
    pub buffers: &'a mut [IoSliceMut<'b>],
    /// Where the sender's address goes, a `sockaddr`.
    pub name: Option<&'a mut [u8]>,
    /// Where control messages go, `cmsghdr`s.
    pub control: Option<&'a mut [u8]>,
    /// `MSG_` flags.
    pub flags: i32,
}

/// What recvmsg(2) gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Octets, or with `MSG_TRUNC` the whole datagram's.
    pub len: usize,
    /// Octets that the address has, also if there was less room.
    pub name_len: usize,
    /// Octets of control messages written.
    pub control_len: usize,
    /// `MSG_` flags that came with it.
    pub flags: i32,
}

/// What sendmsg(2) was asked for; write(2) and send(2) are the same without name and control data.
#[derive(Debug)]
pub struct Send<'a, 'b> {
    /// The octets.
    pub buffers: &'a [IoSlice<'b>],
    /// Where to, a `sockaddr`.
    pub name: Option<&'a [u8]>,
    /// Control messages, `cmsghdr`s.
    pub control: Option<&'a [u8]>,
    /// `MSG_` flags.
    pub flags: i32,
}

/// `struct epoll_event`, laid out as in C, so that a program's array is one of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(target_arch = "x86_64", repr(C, packed))]
#[cfg_attr(not(target_arch = "x86_64"), repr(C))]
pub struct EpollEvent {
    /// `EPOLL` bits.
    pub events: u32,
    /// The program's.
    pub data: u64,
}

/// `struct pollfd`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PollFd {
    /// The descriptor; negative: to be ignored.
    pub fd: RawFd,
    /// What is waited for.
    pub events: i16,
    /// What there is.
    pub revents: i16,
}

/// The signals that are blocked while a call waits: the kernel's `sigset_t`, 64 bits.
pub type SignalMask = u64;
