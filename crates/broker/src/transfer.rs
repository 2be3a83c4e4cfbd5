//! One message, with descriptors, over a SOCK_SEQPACKET Unix socket.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};

use rustix::cmsg_space;
use rustix::io::{DupFlags, Errno, Result, dup3};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::protocol::{FDS_MAX, MESSAGE_MAX};

/// Descriptors that the kernel lets travel beside one message at most (SCM_MAX_FD, net/scm.h). There is room for all: what finds none
/// is closed by the kernel on the thread that receives, and that may take long.
const FDS_OF_ANYBODY_MAX: usize = 253;
const CONTROL_LEN: usize = cmsg_space!(ScmRights(FDS_OF_ANYBODY_MAX));
const _: () = assert!(FDS_MAX <= FDS_OF_ANYBODY_MAX);

/// Room for one message that comes.
pub(crate) struct Inbox {
    octets: Vec<u8>,
    len: usize,
}

/// A message that came. Dropping an `F` closes a descriptor as this end has to.
pub(crate) struct Parcel<'i, F> {
    pub(crate) octets: &'i [u8],
    pub(crate) fds: Vec<F>,
}

/// What there was to receive.
pub(crate) enum Arrival<'i, F> {
    /// Without descriptors if the process has no free numbers: requests that need one are refused, and others are served.
    Message(Parcel<'i, F>),
    /// Nothing has come yet.
    Nothing,
    /// The other end is gone, or sent something that is no message of ours.
    End,
}

impl Inbox {
    pub(crate) fn new() -> Inbox {
        Inbox { octets: vec![0; MESSAGE_MAX], len: 0 }
    }

    /// Receives without waiting; `take` makes of each descriptor what it is from then on.
    pub(crate) fn receive<F>(
        &mut self,
        socket: impl AsFd,
        mut take: impl FnMut(OwnedFd) -> F,
    ) -> Result<Arrival<'_, F>> {
        let mut space = [MaybeUninit::uninit(); CONTROL_LEN];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let mut room = [IoSliceMut::new(&mut self.octets)];
        let mut was_reset = false;
        let received = loop {
            match recvmsg(socket.as_fd(), &mut room, &mut control, flags) {
                Ok(received) => break received,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(Arrival::Nothing),
                // Once, as the other end has closed with something unread. What it had sent comes behind this.
                Err(Errno::CONNRESET) if !was_reset => was_reset = true,
                Err(Errno::CONNRESET) => return Ok(Arrival::End),
                Err(error) => return Err(error),
            }
        };
        let mut fds = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                fds.extend(rights.map(&mut take));
            }
        }
        let is_whole = received.bytes > 0 && !received.flags.contains(ReturnFlags::TRUNC);
        if !is_whole || received.flags.contains(ReturnFlags::CTRUNC) {
            fds.clear();
        }
        if !is_whole {
            return Ok(Arrival::End);
        }
        self.len = received.bytes;
        Ok(Arrival::Message(Parcel { octets: &self.octets[..self.len], fds }))
    }
}

/// Sends without waiting, all or nothing: `AGAIN` if there is no room.
pub(crate) fn send(socket: impl AsFd, octets: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()> {
    let mut space = [MaybeUninit::uninit(); CONTROL_LEN];
    loop {
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(Errno::TOOBIG);
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match sendmsg(socket.as_fd(), &[IoSlice::new(octets)], &mut control, flags) {
            Err(Errno::INTR) => {}
            outcome => return outcome.map(drop),
        }
    }
}

/// A descriptor that is closed past the hooks.
pub(crate) struct Internal(Option<OwnedFd>);

impl Internal {
    pub(crate) fn new(fd: OwnedFd) -> Internal {
        Internal(Some(fd))
    }

    /// The number is another file's from now on.
    pub(crate) fn become_copy_of(&mut self, other: impl AsFd) -> Result<()> {
        let fd = self.0.as_mut().expect("it is there until it is dropped");
        dup3(other, fd, DupFlags::CLOEXEC)
    }

    pub(crate) fn into_inner(mut self) -> OwnedFd {
        self.0.take().expect("it is there until it is dropped")
    }
}

impl AsFd for Internal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_ref().expect("it is there until it is dropped").as_fd()
    }
}

impl Drop for Internal {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(discard);
    }
}

/// Closes a descriptor by the system call itself: inside a program the C library's function is hooked.
pub(crate) fn discard(fd: OwnedFd) {
    let _ = syscall::close(fd.into_raw_fd()); // An OwnedFd is open, so there is nothing to fail.
}
