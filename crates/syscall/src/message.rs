//! recvmsg(2) and sendmsg(2).

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::RawFd;

use crate::check;
use crate::raw::raw;

/// What to receive into.
#[derive(Debug, Default)]
pub struct MessageMut<'a, 'b> {
    /// Where the octets go.
    pub buffers: &'a mut [IoSliceMut<'b>],
    /// Where the sender's address goes.
    pub name: Option<&'a mut [u8]>,
    /// Where control messages go.
    pub control: Option<&'a mut [u8]>,
}

/// What was received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageReceived {
    /// What the call returned.
    pub len: usize,
    /// Octets that the address has.
    pub name_len: usize,
    /// Octets of control messages.
    pub control_len: usize,
    /// `MSG_` flags.
    pub flags: i32,
}

/// recvmsg(2).
pub fn receive_message(
    fd: RawFd,
    message: &mut MessageMut<'_, '_>,
    flags: i32,
) -> io::Result<MessageReceived> {
    // SAFETY: all of `msghdr` may be zero: null pointers and no lengths.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    // `IoSliceMut` has the layout of `iovec` on Unix: std guarantees it.
    header.msg_iov = message.buffers.as_mut_ptr().cast();
    header.msg_iovlen = message.buffers.len() as _;
    if let Some(name) = &mut message.name {
        header.msg_name = name.as_mut_ptr().cast();
        header.msg_namelen = name.len() as libc::socklen_t;
    }
    if let Some(control) = &mut message.control {
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = control.len() as _;
    }
    // SAFETY: every pointer in the header comes from a mutable slice with the length beside it, and they live until the
    // call returns.
    let len = check(unsafe { raw!(libc::SYS_recvmsg, fd, &raw mut header, flags) })?;
    Ok(MessageReceived {
        len,
        name_len: header.msg_namelen as usize,
        control_len: header.msg_controllen as usize,
        flags: header.msg_flags,
    })
}

/// What to send.
#[derive(Clone, Copy, Debug, Default)]
pub struct Message<'a, 'b> {
    /// The octets.
    pub buffers: &'a [IoSlice<'b>],
    /// Where to.
    pub name: Option<&'a [u8]>,
    /// Control messages.
    pub control: Option<&'a [u8]>,
}

/// sendmsg(2); returns the number of octets sent.
pub fn send_message(fd: RawFd, message: &Message<'_, '_>, flags: i32) -> io::Result<usize> {
    // SAFETY: all of `msghdr` may be zero: null pointers and no lengths.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    // `IoSlice` has the layout of `iovec` on Unix: std guarantees it. The kernel only reads through these pointers.
    header.msg_iov = message.buffers.as_ptr().cast_mut().cast();
    header.msg_iovlen = message.buffers.len() as _;
    if let Some(name) = message.name {
        header.msg_name = name.as_ptr().cast_mut().cast();
        header.msg_namelen = name.len() as libc::socklen_t;
    }
    if let Some(control) = message.control {
        header.msg_control = control.as_ptr().cast_mut().cast();
        header.msg_controllen = control.len() as _;
    }
    // SAFETY: every pointer in the header comes from a slice with the length beside it, and they live until the call
    // returns; sendmsg writes to none of them.
    check(unsafe { raw!(libc::SYS_sendmsg, fd, &raw const header, flags) })
}
