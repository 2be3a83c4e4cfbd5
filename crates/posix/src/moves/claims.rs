//! A broker that was killed, and the next one: what we have claimed is claimed again, by the sockets that prove it.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use crate::address::{encode, local_of};
use crate::broker_side::{ClaimId, Purpose};
use crate::descriptors::internal;
use crate::ids::SocketId;
use crate::process::State;
use crate::queue::Book;
use crate::socket::Role;

impl State {
    /// Ports that rest are forgotten: the killed broker had their sockets.
    pub(crate) fn claim_all_again(&mut self) {
        drop(self.queue.resting_ports.take_all());
        self.queue.leaving.iter_mut().for_each(|leaving| (leaving.asked, leaving.drained_at) = (None, None));
        self.keep_book();
        let claimed = self.sockets.iter().filter_map(|(id, socket)| Some((id, socket.claim?)));
        for (id, claim) in claimed.collect::<Vec<_>>() {
            self.claim_socket_again(id, claim);
        }
    }

    /// Notes connections in a new book, and gives the broker the file. Without memory for one the broker does not know of them.
    pub(crate) fn keep_book(&mut self) {
        let (Some(stack), Ok((book, file))) = (self.queue.stack(), Book::new()) else { return };
        stack.keep_book(Box::new(book));
        if let Some(attachment) = self.attachment() {
            attachment.keep_book(file.as_fd());
        }
        internal::close(file);
    }

    fn claim_socket_again(&mut self, id: SocketId, claim: ClaimId) {
        let local = self.endpoints(id).map(|(local, _)| local);
        let Some(socket) = self.sockets.get(id) else { return };
        let purpose = match socket.role {
            Role::Listener { .. } => Purpose::Listener,
            Role::Udp(_) => Purpose::Udp,
            _ => Purpose::Outgoing,
        };
        let is_bound = purpose != Purpose::Outgoing || local.is_none() || local_of(socket.fd()) == local;
        // A connection from a port that had rested has a shadow without that port.
        let shadow = if is_bound { internal::copy(socket.fd()) } else { local.and_then(bound_to) };
        let (Some(shadow), Some(attachment)) = (shadow, self.attachment()) else { return };
        attachment.claim_again(shadow.as_fd(), purpose, claim);
        internal::close(shadow);
    }
}

/// A socket that has this end, if no other has.
fn bound_to(local: SocketAddr) -> Option<OwnedFd> {
    let domain = if local.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let socket = internal::raise(syscall::socket(domain, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0).ok()?)?;
    let (name, len) = encode(local, domain);
    match syscall::bind(socket.as_raw_fd(), &name[..len]) {
        Ok(()) => Some(socket),
        Err(_) => {
            internal::close(socket);
            None
        }
    }
}
