//! Connections that we make, from the question for the way to the end of their port.
//!
//! The descriptor stays that of a kernel's socket, which is bound and so keeps the port; the connection is the stack's. Where
//! the peer is reached by no interface of ours, or not all of its queues are ours, the kernel connects.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, RawFd};
use std::sync::Arc;

use clock::{Duration, Instant};
use stack::{Connect, ConnectionId};

use super::address::{encode, local_of, source_for};
use super::{Role, Socket, SocketId, WRITABLE};
use crate::attachment::{ClaimId, Purpose, RequestId, Routed, Way};
use crate::process::State;
use crate::{Errno, internal};

/// `IP_BIND_ADDRESS_NO_PORT`.
pub(super) const BIND_ADDRESS_NO_PORT: i32 = 24;

/// A connection that the program has closed: the broker keeps its port until the stack is done with it.
pub(crate) struct KeptPort {
    connection: ConnectionId,
    claim: ClaimId,
}

impl State {
    /// Begins to look for the way to a peer; false if the kernel is to connect.
    pub(super) fn begin_departure(
        &mut self,
        id: SocketId,
        remote: SocketAddr,
        name: &[u8],
        now: Instant,
    ) -> bool {
        let ip = remote.ip();
        if ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || remote.port() == 0 {
            return false;
        }
        let is_common = self.sockets.get(id).is_none_or(|socket| socket.is_common);
        if is_common || !self.attachment.as_ref().is_some_and(|it| it.wants(Purpose::Outgoing)) {
            return false;
        }
        self.attach(now);
        if self.runtime.is_none() {
            return false;
        }
        let Some(socket) = self.sockets.get(id) else { return false };
        let (fd, domain) = (socket.fd(), socket.domain);
        if !socket.touched.is_plain() && has_route_of_its_own(fd) {
            return false;
        }
        if !self.attachment().is_some_and(|attachment| attachment.has_route(name, domain)) {
            return false;
        }
        let from = local_of(fd).map(|local| local.ip()).filter(|ip| !ip.is_unspecified());
        let request = self.attachment().and_then(|attachment| attachment.begin_route(ip, from));
        let Some(request) = request else { return false };
        self.take_from_kernel(id);
        let Some(socket) = self.sockets.get_mut(id) else { return false };
        socket.role = Role::Departing { request, remote };
        socket.is_connecting = true;
        socket.error = None;
        true
    }

    /// The broker knows the way, or that there is none of ours.
    pub(crate) fn on_routed(&mut self, request: RequestId, routed: Routed, now: Instant) {
        let is_it =
            |socket: &Socket| matches!(socket.role, Role::Departing { request: own, .. } if own == request);
        let Some(id) = self.sockets.iter().find(|(_, socket)| is_it(socket)).map(|(id, _)| id) else {
            return;
        };
        let Some(Role::Departing { remote, .. }) = self.sockets.get(id).map(|socket| &socket.role) else {
            return;
        };
        let remote = *remote;
        let begun = match routed {
            Routed::NoHost => return self.fail_socket(id, Errno(libc::EHOSTUNREACH)),
            Routed::Way(way) if way.is_whole => self.depart(id, remote, way, now),
            Routed::Way(_) | Routed::NotOurs => None,
        };
        if begun.is_none() {
            self.depart_by_kernel(id, remote, now);
        }
        self.flush(now);
    }

    /// Binds the shadow, claims its port, and connects on the stack.
    fn depart(&mut self, id: SocketId, remote: SocketAddr, way: Way, now: Instant) -> Option<()> {
        let socket = self.sockets.get(id)?;
        let fd = socket.fd();
        // As the program left them: binding changes some.
        let (options, settings) = socket.options_of_shadow();
        self.bind_to_depart(id, way.local)?;
        let local = local_of(fd)?;
        let shadow = syscall::dup_owned(fd, internal::floor()).ok()?;
        let claim = self.attachment()?.claim(shadow.as_fd(), Purpose::Outgoing);
        internal::close(shadow);
        let claim = claim.ok()?;
        let connect = Connect { local, remote, hop: way.hop, options: Arc::new(options), data: &[] };
        let Some(Ok(connection)) = self.stack().map(|stack| stack.tcp_connect(&connect, now)) else {
            self.release_claim(Some(claim));
            return None;
        };
        self.stack()?.set_token(connection, id.to_bits());
        let socket = self.sockets.get_mut(id)?;
        socket.receive_timeout = settings.receive_timeout();
        socket.send_timeout = settings.send_timeout();
        socket.settings = settings;
        socket.role = Role::Connection(connection);
        socket.claim = Some(claim);
        Some(())
    }

    /// Binds the shadow of a connection to be made to `source` and a port, as far as the program has not.
    fn bind_to_depart(&mut self, id: SocketId, source: IpAddr) -> Option<()> {
        let socket = self.sockets.get_mut(id)?;
        let (fd, bound) = (socket.fd(), local_of(socket.fd())?);
        if bound.port() != 0 && !bound.ip().is_unspecified() {
            return Some(());
        }
        // A port has to be ours alone, which the kernel sees to if it does not wait for connect.
        let _ = syscall::setsockopt(fd, libc::SOL_IP, BIND_ADDRESS_NO_PORT, &0i32.to_ne_bytes());
        let (name, len) = encode(SocketAddr::new(source, bound.port()), socket.domain);
        syscall::bind(fd, &name[..len]).ok()?;
        socket.bound_before = Some(bound);
        Some(())
    }

    /// Somebody asks for the name of a socket whose way is not known yet: on the kernel it has one as soon as it connects.
    pub(super) fn name_what_departs(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get(id) else { return };
        let Role::Departing { remote, .. } = socket.role else { return };
        let (name, len) = encode(remote, socket.domain);
        if let Some(source) = source_for(&name[..len], socket.domain) {
            let _ = self.bind_to_depart(id, source); // Without a port there is no name.
        }
    }

    /// There is no way of ours: the kernel begins to connect, and the socket is its own from then on, whoever waits for it.
    fn depart_by_kernel(&mut self, id: SocketId, remote: SocketAddr, now: Instant) {
        let Some(socket) = self.sockets.get_mut(id) else { return };
        socket.role = Role::Fresh;
        let (name, len) = encode(remote, socket.domain);
        match connect_without_waiting(socket.fd(), &name[..len]) {
            Ok(true) => {
                socket.is_connecting = false;
                self.give_to_kernel(id);
                self.raise(id, WRITABLE);
            }
            Ok(false) => self.leave_to_kernel(id, now),
            Err(errno) => self.fail_socket(id, errno),
        }
    }

    /// A socket is the kernel's for good: what watched it here watches it there.
    pub(crate) fn leave_to_kernel(&mut self, id: SocketId, now: Instant) {
        self.give_to_kernel(id);
        for fd in self.live_fds(id) {
            self.let_go(fd, now);
        }
    }

    /// The claim of a connection that we made ends when the stack is done with it, and not before.
    pub(crate) fn release_claim_of_connection(&mut self, claim: Option<ClaimId>, connection: ConnectionId) {
        let Some(claim) = claim else { return };
        if self.stack().is_none_or(|stack| stack.state(connection).is_none()) {
            return self.release_claim(Some(claim));
        }
        self.kept_ports.push(KeptPort { connection, claim });
    }

    /// Gives back the ports of connections that are over by now.
    pub(crate) fn release_ports(&mut self, now: Instant) {
        const EVERY: Duration = Duration::from_millis(200);
        if self.kept_ports.is_empty() || now < self.ports_looked_at + EVERY {
            return;
        }
        self.ports_looked_at = now;
        for kept in std::mem::take(&mut self.kept_ports) {
            let is_over = self.stack().is_none_or(|stack| stack.state(kept.connection).is_none());
            if is_over {
                self.release_claim(Some(kept.claim));
            } else {
                self.kept_ports.push(kept);
            }
        }
    }
}

/// Whether options of a socket have a say in where its packets go.
fn has_route_of_its_own(fd: RawFd) -> bool {
    let is_set = |option| {
        let mut value = [0; libc::IFNAMSIZ];
        let len = syscall::getsockopt(fd, libc::SOL_SOCKET, option, &mut value);
        len.is_ok_and(|len| value[..len.min(libc::IFNAMSIZ)].iter().any(|octet| *octet != 0))
    };
    is_set(libc::SO_MARK) || is_set(libc::SO_BINDTODEVICE)
}

/// Has the kernel begin to connect; returns whether it is connected, or an error, if it says so at once.
fn connect_without_waiting(fd: RawFd, name: &[u8]) -> Result<bool, Errno> {
    let status = i64::from(syscall::fcntl(fd, libc::F_GETFL, 0)?);
    let nonblocking = status | i64::from(libc::O_NONBLOCK);
    syscall::fcntl(fd, libc::F_SETFL, nonblocking)?;
    let begun = syscall::connect(fd, name);
    syscall::fcntl(fd, libc::F_SETFL, status)?;
    match begun {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
