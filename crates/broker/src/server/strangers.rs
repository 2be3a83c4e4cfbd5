//! Connections of processes that are no clients: strangers, and clients beyond those that there is room for.
//!
//! Such a connection is closed at once, but its messages may contain descriptors whose last close takes long (see `helpers.rs`), and any
//! process of the host can connect. So no descriptors are sent to the broker before it has admitted the sender, where the kernel can
//! refuse them. Elsewhere a helper closes what may contain some, and while many of these wait, no connection is accepted: who connects is
//! not known before.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use rustix::net::sockopt::set_socket_passcred;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, ReturnFlags, Shutdown, recvmsg, shutdown};

use super::helpers::Theirs;

/// Options of socket(7) that rustix does not have (asm-generic/socket.h); the second one came with Linux 6.16.
const SOL_SOCKET: i32 = 1;
const SO_PASSRIGHTS: i32 = 83;
/// Connections that wait for a helper.
const WAITING_MAX: usize = 256;

/// Those that a helper has to close.
#[derive(Default)]
pub(super) struct Strangers {
    /// Each of them has a reference.
    waiting: Arc<()>,
}

impl Strangers {
    /// Whether no connection may be accepted, because another one might have to wait, too.
    pub(super) fn are_too_many(&self) -> bool {
        self.count() >= WAITING_MAX
    }

    fn count(&self) -> usize {
        Arc::strong_count(&self.waiting) - 1
    }

    /// Ends a connection without waiting for anything.
    pub(super) fn turn_away(&self, socket: Theirs) {
        if !takes_rights(&socket) || is_empty(&socket) {
            return socket.close();
        }
        let waiting = Arc::clone(&self.waiting);
        socket.have_done(move |socket| {
            socket.close();
            drop(waiting);
        });
    }
}

/// Whether this socket, or those of connections to it, may be sent descriptors. Kernels that do not know of it send them always.
pub(super) fn set_rights(socket: impl AsFd, takes: bool) {
    let value = i32::from(takes).to_ne_bytes();
    let _ = syscall::setsockopt(socket.as_fd().as_raw_fd(), SOL_SOCKET, SO_PASSRIGHTS, &value);
}

fn takes_rights(socket: impl AsFd) -> bool {
    let mut value = [0; 4];
    let asked = syscall::getsockopt(socket.as_fd().as_raw_fd(), SOL_SOCKET, SO_PASSRIGHTS, &mut value);
    asked.is_err() || value != [0; 4]
}

/// Whether nobody has sent anything that was not read, nor can from now on.
fn is_empty(socket: impl AsFd) -> bool {
    // With credentials behind each message, the kernel says that there was no room for them, unless there was no message.
    if shutdown(&socket, Shutdown::Read).is_err() || set_socket_passcred(&socket, true).is_err() {
        return false;
    }
    let mut none = RecvAncillaryBuffer::default();
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let peeked = recvmsg(&socket, &mut [], &mut none, flags);
    peeked.is_ok_and(|peeked| !peeked.flags.contains(ReturnFlags::CTRUNC))
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::os::fd::OwnedFd;
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    use rustix::net::{
        AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, send,
        sendmsg, socketpair,
    };

    use super::super::helpers::Helpers;
    use super::*;

    /// An end of a connection, and its peer.
    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::empty(), None).unwrap()
    }

    fn send_descriptor(socket: &OwnedFd, octets: &[u8]) -> rustix::io::Result<usize> {
        let mut space = [std::mem::MaybeUninit::uninit(); 64];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [socket.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        sendmsg(socket, &[IoSlice::new(octets)], &mut control, SendFlags::NOSIGNAL)
    }

    #[test]
    fn a_connection_is_empty_unless_something_was_sent() {
        let (own, _peer) = pair();
        assert!(is_empty(&own));
        let (own, peer) = pair();
        drop(peer);
        assert!(is_empty(&own), "its peer is gone");
        for octets in [&b""[..], b"octets"] {
            let (own, peer) = pair();
            send(&peer, octets, SendFlags::NOSIGNAL).unwrap();
            assert!(!is_empty(&own), "{octets:?}");
            let (own, peer) = pair();
            send_descriptor(&peer, octets).unwrap();
            drop(peer);
            assert!(!is_empty(&own), "a descriptor with {octets:?}");
        }
        let (own, peer) = pair();
        assert!(is_empty(&own));
        assert!(send_descriptor(&peer, b"late").is_err(), "nothing comes after the answer");
    }

    /// As if each of them had sent a socket that lingers, on a kernel that cannot refuse it.
    #[test]
    fn of_strangers_that_hold_helpers_up_only_so_many_wait_and_those_who_sent_nothing_do_not() {
        let (helpers, strangers) = (Arc::<Helpers>::default(), Strangers::default());
        let (release, held) = channel::<()>();
        let held = Arc::new(std::sync::Mutex::new(held));
        for _ in 0..16 {
            let held = Arc::clone(&held);
            helpers.have_done(7, move || _ = held.lock().unwrap().recv()); // An error is the release.
        }
        for _ in 0..1000 {
            strangers.turn_away(Theirs::new(pair().0, 7, &helpers));
        }
        assert_eq!(strangers.count(), 0);
        for number in 0..WAITING_MAX {
            assert!(!strangers.are_too_many(), "{number}");
            let (own, peer) = pair();
            send_descriptor(&peer, b"").unwrap();
            strangers.turn_away(Theirs::new(own, 7, &helpers));
        }
        assert!(strangers.are_too_many());
        drop(release);
        let deadline = Instant::now() + Duration::from_secs(30);
        while strangers.count() > 0 {
            assert!(Instant::now() < deadline, "they are not closed");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
