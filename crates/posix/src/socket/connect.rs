//! connect(2).
//!
//! The descriptor stays that of a kernel's socket, which is bound and so keeps the port; the connection is the stack's. Where
//! the peer is reached by no interface of ours, or not all of its queues are ours, the kernel connects.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, RawFd};
use std::sync::{Arc, MutexGuard};

use clock::{Duration, Instant};
use stack::{Connect, ConnectionId};

use super::address::{decode, encode, family, local_of};
use super::{READABLE, Role, Socket, SocketId, WRITABLE};
use crate::attachment::{ClaimId, Purpose, RequestId, Way};
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
            Role::Connection(_) | Role::Departing { .. } => {
                Verdict::Done(self.connect_again(state, id, name))
            }
            Role::Failed => {
                let errno = state.take_error(id).unwrap_or(Errno(libc::ECONNABORTED));
                Verdict::Done(Err(errno))
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
        let domain = socket.domain;
        let Ok(remote) = decode(name, domain) else { return Verdict::Kernel };
        let now = self.now();
        if !state.begin_departure(id, remote, now) {
            state.leave_to_kernel(id, now);
            return Verdict::Kernel;
        }
        let flags = syscall::fcntl(fd, libc::F_GETFL, 0).unwrap_or(0);
        let Some(socket) = state.sockets.get_mut(id) else { return Verdict::Kernel };
        socket.nonblocking = flags & libc::O_NONBLOCK != 0;
        self.start_watchdog(&mut state);
        if flags & libc::O_NONBLOCK != 0 {
            // A way that is known already is told at once: then the SYN leaves now.
            state.hear(now);
            state.flush(now);
            return match state.sockets.get(id).map(|socket| &socket.role) {
                Some(Role::Fresh) => {
                    state.leave_to_kernel(id, now);
                    Verdict::Kernel
                }
                _ => Verdict::Done(fail(libc::EINPROGRESS)),
            };
        }
        match self.wait_connected(state, id) {
            Err(errno) if errno == LEFT_TO_KERNEL => Verdict::Kernel,
            result => Verdict::Done(result),
        }
    }

    fn connect_again(
        &self,
        mut state: MutexGuard<'_, State>,
        id: SocketId,
        name: &[u8],
    ) -> Result<(), Errno> {
        if family(name) == Some(libc::AF_UNSPEC) {
            let now = self.now();
            if let Some(connection) = state.sockets.get(id).and_then(Socket::connection)
                && let Some(stack) = state.stack()
            {
                stack.abort(connection, now);
            }
            if let Some(socket) = state.sockets.get_mut(id) {
                socket.role = Role::Failed;
            }
            return Ok(());
        }
        let Some(socket) = state.sockets.get(id) else { return fail(libc::EBADF) };
        let (nonblocking, was_connecting) = (socket.nonblocking, socket.is_connecting);
        if state.is_connecting(id) {
            return if nonblocking { fail(libc::EALREADY) } else { self.wait_connected(state, id) };
        }
        if let Some(errno) = state.take_error(id) {
            if let Some(socket) = state.sockets.get_mut(id) {
                socket.is_connecting = false;
            }
            return Err(errno);
        }
        if let Some(socket) = state.sockets.get_mut(id) {
            socket.is_connecting = false;
        }
        if was_connecting { Ok(()) } else { fail(libc::EISCONN) }
    }

    /// Waits until a connection that was begun is there, or has failed.
    pub(crate) fn wait_connected(&self, state: MutexGuard<'_, State>, id: SocketId) -> Result<(), Errno> {
        let Some(socket) = state.sockets.get(id) else { return fail(libc::EBADF) };
        if socket.nonblocking {
            return fail(libc::EAGAIN);
        }
        let timeout = socket.send_timeout;
        let deadline = timeout.map(|timeout| self.now() + timeout);
        let waiting = Waiting { on: On::Socket(id, None), deadline, mask: None, restarts: timeout.is_none() };
        let result = self.wait(state, &waiting, &mut |state, now| {
            state.hear(now);
            if state.is_connecting(id) {
                return None;
            }
            Some(match state.sockets.get(id).map(|socket| &socket.role) {
                Some(Role::Fresh) | None => {
                    state.leave_to_kernel(id, now);
                    Err(LEFT_TO_KERNEL)
                }
                Some(_) => {
                    if let Some(socket) = state.sockets.get_mut(id) {
                        socket.is_connecting = false;
                    }
                    state.take_error(id).map_or(Ok(()), Err)
                }
            })
        });
        result.unwrap_or_else(|stop| match stop {
            Stop::TimedOut => fail(libc::EINPROGRESS),
            Stop::Interrupted => fail(libc::EINTR),
        })
    }
}

/// Told among ourselves: there is no way of ours, and the kernel is to connect. No errno has this number.
const LEFT_TO_KERNEL: Errno = Errno(i32::MAX);

impl State {
    /// Begins to look for the way to a peer; false if the kernel is to connect.
    fn begin_departure(&mut self, id: SocketId, remote: SocketAddr, now: Instant) -> bool {
        let ip = remote.ip();
        if ip.is_loopback()
            || ip.is_unspecified()
            || ip.is_multicast()
            || remote.port() == 0
            || is_broadcast(ip)
        {
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
        let Some(fd) = self.sockets.get(id).map(Socket::fd) else { return false };
        let from = local_of(fd).map(|local| local.ip()).filter(|ip| !ip.is_unspecified());
        let request = self.attachment().and_then(|attachment| attachment.begin_route(ip, from));
        let Some(request) = request else { return false };
        self.take_from_kernel(id);
        let Some(socket) = self.sockets.get_mut(id) else { return false };
        socket.role = Role::Departing { request, remote };
        socket.is_connecting = true;
        true
    }

    /// The broker knows the way, or that there is none of ours.
    pub(crate) fn on_routed(&mut self, request: RequestId, way: Option<Way>, now: Instant) {
        let is_it =
            |socket: &Socket| matches!(socket.role, Role::Departing { request: own, .. } if own == request);
        let Some(id) = self.sockets.iter().find(|(_, socket)| is_it(socket)).map(|(id, _)| id) else {
            return;
        };
        let Some(Role::Departing { remote, .. }) = self.sockets.get(id).map(|socket| &socket.role) else {
            return;
        };
        let remote = *remote;
        let way = way.filter(|way| way.is_whole);
        let begun = way.and_then(|way| self.depart(id, remote, way, now));
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
        if bound.port() == 0 || bound.ip().is_unspecified() {
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
        Some(())
    }

    /// There is no way of ours. Who waits in connect(2) leaves it to the kernel; for who does not, that is done here.
    fn depart_by_kernel(&mut self, id: SocketId, remote: SocketAddr, now: Instant) {
        let Some(socket) = self.sockets.get_mut(id) else { return };
        socket.role = Role::Fresh;
        let (fd, domain, nonblocking) = (socket.fd(), socket.domain, socket.nonblocking);
        if nonblocking {
            let (name, len) = encode(remote, domain);
            match syscall::connect(fd, &name[..len]) {
                Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => {
                    socket.role = Role::Failed;
                    socket.error = Some(error.into());
                    self.raise(id, READABLE | WRITABLE | libc::EPOLLERR as u32);
                }
                _ => self.leave_to_kernel(id, now),
            }
        } else {
            self.raise(id, READABLE | WRITABLE);
        }
    }

    /// A socket is the kernel's for good: what watched it here watches it there.
    pub(crate) fn leave_to_kernel(&mut self, id: SocketId, now: Instant) {
        self.give_to_kernel(id);
        let fds: Vec<RawFd> =
            self.sockets.get(id).into_iter().flat_map(|socket| socket.fds().collect::<Vec<_>>()).collect();
        for fd in fds {
            self.let_go(fd, now);
        }
    }

    /// The claim of a connection that we made ends when the stack is done with it, and not before.
    pub(crate) fn release_claim_of_connection(&mut self, socket: &Socket, connection: ConnectionId) {
        let Some(claim) = socket.claim else { return };
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

fn is_broadcast(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V4(ip) if ip.is_broadcast())
}
