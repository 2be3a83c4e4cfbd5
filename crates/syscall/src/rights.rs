//! Descriptors that travel beside a message (SCM_RIGHTS, unix(7)), one at a time.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use crate::file::owned;
use crate::message::{Message, MessageMut, receive_message, send_message};

/// A `cmsghdr` and one descriptor. The kernel installs no more descriptors than there is room for.
const CONTROL_LEN: usize = 20;

/// Sends `octets`, and `passed` beside them, on a Unix socket; without waiting, and without SIGPIPE.
pub fn send_descriptor(fd: RawFd, octets: &[u8], passed: BorrowedFd<'_>) -> io::Result<usize> {
    let mut control = [0; CONTROL_LEN];
    control[..8].copy_from_slice(&CONTROL_LEN.to_ne_bytes());
    control[8..12].copy_from_slice(&libc::SOL_SOCKET.to_ne_bytes());
    control[12..16].copy_from_slice(&libc::SCM_RIGHTS.to_ne_bytes());
    control[16..].copy_from_slice(&passed.as_raw_fd().to_ne_bytes());
    let message = Message { buffers: &[IoSlice::new(octets)], name: None, control: Some(&control) };
    send_message(fd, &message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
}

/// Receives one message on a Unix socket, without waiting: how long it is, and the descriptor beside it, which is closed on exec.
///
/// Who closes the other end before it has read all leaves an error here (`ECONNRESET`), once, in front of what it has sent. That is no reason to miss the latter.
pub fn receive_descriptor(fd: RawFd, room: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    match receive_next(fd, room) {
        Err(error) if error.raw_os_error() == Some(libc::ECONNRESET) => receive_next(fd, room),
        received => received,
    }
}

fn receive_next(fd: RawFd, room: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut control = [0; CONTROL_LEN];
    let mut message =
        MessageMut { buffers: &mut [IoSliceMut::new(room)], name: None, control: Some(&mut control) };
    let received = receive_message(fd, &mut message, libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC)?;
    let int =
        |at: usize| i32::from_ne_bytes([control[at], control[at + 1], control[at + 2], control[at + 3]]);
    let has_descriptor =
        received.control_len >= CONTROL_LEN && (int(8), int(12)) == (libc::SOL_SOCKET, libc::SCM_RIGHTS);
    Ok((received.len, has_descriptor.then(|| owned(int(16) as usize))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{pipe, read, socketpair, write};

    #[test]
    fn a_descriptor_goes_from_one_end_to_the_other() {
        let [one, other] = socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0).unwrap();
        let [reader, writer] = pipe().unwrap();
        send_descriptor(one.as_raw_fd(), b"writer", std::os::fd::AsFd::as_fd(&writer)).unwrap();
        write(one.as_raw_fd(), b"none").unwrap();
        drop(writer);
        let mut room = [0; 8];
        let (len, passed) = receive_descriptor(other.as_raw_fd(), &mut room).unwrap();
        assert_eq!(&room[..len], b"writer");
        write(passed.unwrap().as_raw_fd(), b"by it").unwrap();
        assert_eq!(read(reader.as_raw_fd(), &mut room).unwrap(), 5);
        assert!(matches!(receive_descriptor(other.as_raw_fd(), &mut room), Ok((4, None))));
        let nothing = receive_descriptor(other.as_raw_fd(), &mut room).unwrap_err();
        assert_eq!(nothing.raw_os_error(), Some(libc::EAGAIN));
    }

    #[test]
    fn what_was_sent_before_the_end_comes_also_from_who_did_not_read_all() {
        let [one, other] = socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0).unwrap();
        write(one.as_raw_fd(), b"last").unwrap();
        write(other.as_raw_fd(), b"unread").unwrap();
        drop(one);
        let mut room = [0; 8];
        assert!(matches!(receive_descriptor(other.as_raw_fd(), &mut room), Ok((4, None))));
        assert!(matches!(receive_descriptor(other.as_raw_fd(), &mut room), Ok((0, None))));
    }
}
