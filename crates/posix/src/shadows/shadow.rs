//! What is asked of the kernel's socket behind a listener or a UDP socket.

use std::net::SocketAddr;
use std::os::fd::RawFd;

use crate::address::local_of;
use crate::ids::SocketId;
use crate::process::State;
use crate::socket::kernel_only::REUSEPORT_PROGRAM;
use crate::socket::settings::timeout_of;
use crate::socket::udp_messages::udp_int;
use crate::socket::{Role, Socket};

/// Why a listener stays the kernel's.
const BY_PROCESSOR: &str =
    "the kernel chooses among the listeners of its port by processor (SO_INCOMING_CPU)";

/// Why a connected UDP socket stays the kernel's.
const CONNECTED_WITH_OTHERS: &str = "connected, and its port may be shared (SO_REUSEADDR or SO_REUSEPORT)";

impl State {
    /// Whether calls on a socket return at once. The flag is the description's: another process that has it as well may have changed it.
    pub(crate) fn is_nonblocking(&mut self, id: SocketId) -> bool {
        let Some(socket) = self.sockets.get_mut(id) else { return true };
        if socket.is_common && socket.is_shadow() {
            let flags = syscall::fcntl(socket.fd(), libc::F_GETFL, 0);
            socket.nonblocking = flags.map_or(socket.nonblocking, |flags| flags & libc::O_NONBLOCK != 0);
        }
        socket.nonblocking
    }

    /// Why a socket that is bound to `local` may not be claimed: for options of its own, or of one that shares the port.
    pub(crate) fn why_kernel_only(&self, id: SocketId, local: SocketAddr) -> Option<&'static str> {
        let chooses = |socket: &Socket| {
            socket.kernel_only == Some(REUSEPORT_PROGRAM) && local_of(socket.fd()) == Some(local)
        };
        let own = self.sockets.get(id).and_then(|socket| socket.kernel_only);
        let own = own.or_else(|| why_kind_is_kernel_only(self.sockets.get(id)?));
        own.or_else(|| self.sockets.iter().any(|(_, socket)| chooses(socket)).then_some(REUSEPORT_PROGRAM))
    }

    /// A shadow has become claimable: instances that watch it already check it again.
    pub(crate) fn note_news(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get(id) else { return };
        for interest in socket.interests.iter() {
            if let Some(epoll) = self.epolls.get_mut(interest.epoll) {
                epoll.has_news = true;
            }
        }
    }
}

pub(crate) fn is_v6_only(fd: RawFd) -> bool {
    let mut value = [0; 4];
    let read = syscall::getsockopt(fd, libc::SOL_IPV6, libc::IPV6_V6ONLY, &mut value);
    read.is_ok() && i32::from_ne_bytes(value) != 0
}

impl State {
    /// How long a call on a shadow waits, as the kernel's socket has it.
    pub(crate) fn refresh_timeout(&mut self, id: SocketId) {
        if let Some(socket) = self.sockets.get_mut(id) {
            socket.receive_timeout = timeout_of(socket.fd(), libc::SO_RCVTIMEO);
        }
    }
}

fn why_kind_is_kernel_only(socket: &Socket) -> Option<&'static str> {
    match socket.role {
        Role::Listener { .. } if is_chosen_by_processor(socket) => Some(BY_PROCESSOR),
        Role::Udp(_) if is_connected_with_others(socket) => Some(CONNECTED_WITH_OTHERS),
        _ => None,
    }
}

/// Whether a socket is connected, and others may be bound to its port: theirs is what comes from other peers.
fn is_connected_with_others(socket: &Socket) -> bool {
    let is_on = |option| udp_int(socket.fd(), libc::SOL_SOCKET, option).is_some_and(|value| value != 0);
    syscall::getpeername(socket.fd(), &mut [0; 28]).is_ok()
        && (is_on(libc::SO_REUSEADDR) || is_on(libc::SO_REUSEPORT))
}

/// Whether a listener is one of several at its port of which each is for connections that come by its own processor.
fn is_chosen_by_processor(socket: &Socket) -> bool {
    let int = |option| udp_int(socket.fd(), libc::SOL_SOCKET, option);
    int(libc::SO_REUSEPORT).is_some_and(|value| value != 0)
        && int(libc::SO_INCOMING_CPU).is_some_and(|processor| processor >= 0)
}
