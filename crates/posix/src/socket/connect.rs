//! connect(2).
//!
//! The descriptor stays that of a kernel's socket, which is bound and so keeps the port; the connection is the stack's. Where
//! the peer is reached by no interface of ours, or not all of its queues are ours, the kernel connects.

use std::net::SocketAddr;
use std::os::fd::{AsFd, RawFd};
use std::sync::{Arc, MutexGuard};

use clock::{Duration, Instant};
use stack::{Connect, ConnectionId};

use super::address::{decode, encode, family, local_of};
use super::settings::timeout_of;
use super::{Role, Socket, SocketId, WRITABLE};
use crate::attachment::{ClaimId, Purpose, RequestId, Routed, Way};
use crate::calls::Verdict;
use crate::drive::{On, Stop, Waiting};
use crate::errno::fail;
use crate::process::{Process, State};
use crate::{Errno, internal};

/// `IP_BIND_ADDRESS_NO_PORT`.
const BIND_ADDRESS_NO_PORT: i32 = 24;

/// A connection that the program has closed: the broker keeps its port until the stack is done with it.
pub(crate) struct KeptPort {
    connection: ConnectionId,
    claim: ClaimId,
}

impl Process {
    /// connect(2).
    pub(crate) fn connect(&self, fd: RawFd, name: &[u8]) -> Verdict<()> {
        let mut state = self.lock();
        let Some(id) = state.socket_of(fd) else { return Verdict::Kernel };
        let Some(socket) = state.sockets.get(id) else { return Verdict::Kernel };
        match &socket.role {
            Role::Fresh => self.connect_fresh(state, id, fd, name),
            Role::Connection(_) | Role::Departing { .. } | Role::Failed => {
                self.connect_again(state, id, name)
            }
            Role::Inherited(_) => Verdict::Done(fail(libc::EISCONN)),
            Role::Udp(_) => {
                let now = self.now();
                state.on_udp_connect(id, now);
                let connected = syscall::connect(fd, name).map_err(Errno::from);
                state.join_port_on_stack(id);
                Verdict::Done(connected)
            }
            Role::Listener { .. } => Verdict::Kernel,
        }
    }

    fn connect_fresh(
        &self,
        mut state: MutexGuard<'_, State>,
        id: SocketId,
        fd: RawFd,
        name: &[u8],
    ) -> Verdict<()> {
        let Some(socket) = state.sockets.get(id) else { return Verdict::Kernel };
        // Also an IPv6 socket that is given an IPv4 address: the kernel refuses it.
        let is_own_family = family(name) == Some(socket.domain);
        let Ok(remote) = decode(name, socket.domain) else { return Verdict::Kernel };
        if !is_own_family {
            return Verdict::Kernel;
        }
        let now = self.now();
        if !state.begin_departure(id, remote, name, now) {
            state.leave_to_kernel(id, now);
            return Verdict::Kernel;
        }
        let flags = syscall::fcntl(fd, libc::F_GETFL, 0).unwrap_or(0);
        let Some(socket) = state.sockets.get_mut(id) else { return Verdict::Kernel };
        socket.nonblocking = flags & libc::O_NONBLOCK != 0;
        socket.send_timeout = timeout_of(fd, libc::SO_SNDTIMEO);
        self.start_watchdog(&mut state);
        if socket_is_patient(&state, id) {
            return self.wait_for_connect(state, id, libc::EINPROGRESS);
        }
        // A way that is known already is told at once: then the SYN leaves now.
        state.hear(now);
        state.flush(now);
        Verdict::Done(match state.sockets.get(id).map(|socket| &socket.role) {
            Some(Role::Failed) => Err(state.end_attempt(id, now)),
            // The kernel was ready at once, as it is with TCP_FASTOPEN_CONNECT.
            Some(Role::Fresh) => Ok(()),
            _ => fail(libc::EINPROGRESS),
        })
    }

    /// connect(2) of a socket that was connected, or was to be.
    fn connect_again(&self, mut state: MutexGuard<'_, State>, id: SocketId, name: &[u8]) -> Verdict<()> {
        let now = self.now();
        let Some(family) = family(name) else { return Verdict::Done(fail(libc::EINVAL)) };
        if family == libc::AF_UNSPEC {
            state.dissolve(id, now);
            state.leave(now);
            return Verdict::Done(Ok(()));
        }
        if state.is_connecting(id) {
            let is_patient = socket_is_patient(&state, id);
            return match is_patient {
                true => self.wait_for_connect(state, id, libc::EALREADY),
                false => Verdict::Done(fail(libc::EALREADY)),
            };
        }
        match state.sockets.get_mut(id) {
            Some(socket) if socket.is_connecting => Verdict::Done(state.conclude_connect(id, now)),
            _ => Verdict::Done(fail(libc::EISCONN)),
        }
    }

    /// Waits for what comes of a connection that is being made, and tells it; `late` if it takes longer than `SO_SNDTIMEO`.
    fn wait_for_connect(&self, state: MutexGuard<'_, State>, id: SocketId, late: i32) -> Verdict<()> {
        match self.wait_connected(state, id) {
            Ok(()) => {
                let mut state = self.lock();
                let now = self.now();
                if state.sockets.get(id).is_none() {
                    // The kernel connects: its own call waits on.
                    return Verdict::Kernel;
                }
                Verdict::Done(state.conclude_connect(id, now))
            }
            Err(Stop::TimedOut) => Verdict::Done(fail(late)),
            Err(Stop::Interrupted) => Verdict::Done(fail(libc::EINTR)),
        }
    }

    /// Waits until the handshake is over, one way or the other.
    fn wait_connected(&self, state: MutexGuard<'_, State>, id: SocketId) -> Result<(), Stop> {
        let timeout = state.sockets.get(id).and_then(|socket| socket.send_timeout);
        let deadline = timeout.map(|timeout| self.now() + timeout);
        let waiting = Waiting { on: On::Socket(id, None), deadline, mask: None, restarts: timeout.is_none() };
        self.wait(state, &waiting, &mut |state, now| {
            state.hear(now);
            (!state.is_connecting(id)).then_some(())
        })
    }

    /// Data is to be sent or received on a socket whose way is not known yet: waits until it is something that this can be done on.
    pub(crate) fn wait_departed(
        &self,
        state: MutexGuard<'_, State>,
        id: SocketId,
        flags: i32,
    ) -> Result<(), Errno> {
        if flags & libc::MSG_DONTWAIT != 0 || !socket_is_patient(&state, id) {
            return fail(libc::EAGAIN);
        }
        self.wait_connected(state, id).or_else(|stop| match stop {
            Stop::TimedOut => fail(libc::EAGAIN),
            Stop::Interrupted => fail(libc::EINTR),
        })
    }
}

fn socket_is_patient(state: &State, id: SocketId) -> bool {
    state.sockets.get(id).is_some_and(|socket| !socket.nonblocking)
}

impl State {
    /// Begins to look for the way to a peer; false if the kernel is to connect.
    fn begin_departure(&mut self, id: SocketId, remote: SocketAddr, name: &[u8], now: Instant) -> bool {
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
        if !socket.is_untouched && has_route_of_its_own(fd) {
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

    /// The handshake is over, as far as it came: what connect(2) has to say of it. After a failure the socket is as good as new.
    fn conclude_connect(&mut self, id: SocketId, now: Instant) -> Result<(), Errno> {
        let Some(socket) = self.sockets.get_mut(id) else { return Ok(()) };
        socket.is_connecting = false;
        if matches!(socket.role, Role::Fresh) && socket.error.is_some() {
            return fail(libc::EPIPE); // Another thread dissolved it meanwhile.
        }
        if self.is_over(id) {
            return Err(self.end_attempt(id, now));
        }
        Ok(())
    }

    /// Why a connection was not made; the socket may try again.
    fn end_attempt(&mut self, id: SocketId, now: Instant) -> Errno {
        let errno = self.take_error(id).unwrap_or(Errno(libc::ECONNABORTED));
        self.renew(id, None, now);
        errno
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
        let (fd, domain) = (socket.fd(), socket.domain);
        let bound = local_of(fd)?;
        // As the program left them: binding changes some.
        let (options, settings) = socket.options_of_shadow();
        let is_complete = bound.port() != 0 && !bound.ip().is_unspecified();
        if !is_complete {
            // A port has to be ours alone, which the kernel sees to if it does not wait for connect.
            let _ = syscall::setsockopt(fd, libc::SOL_IP, BIND_ADDRESS_NO_PORT, &0i32.to_ne_bytes());
            let (name, len) = encode(SocketAddr::new(way.local, bound.port()), domain);
            syscall::bind(fd, &name[..len]).ok()?;
        }
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
        socket.bound_before = (!is_complete).then_some(bound);
        Some(())
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
