//! Connections that we make, from the request for a route until their port is free again.
//!
//! The program's descriptor stays that of a kernel socket; the connection is in the stack. The kernel socket is bound and so has the port,
//! unless it is a resting port (`resting_ports.rs`): then the socket of the first connection on that port keeps it. If the route to
//! the peer uses no interface of ours, or not all of its queues are ours, the kernel connects.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, RawFd};
use std::sync::Arc;

use clock::{Duration, Instant};
use stack::tcp::State as TcpState;
use stack::{Connect, ConnectionId};

use crate::attachment::{ClaimId, Peer, Purpose, RequestId, Routed, Way};
use crate::process::State;
use crate::socket::address::{encode, local_of, source_for};
use crate::socket::{Place, Role, Settings, SocketId, WRITABLE};
use crate::{Errno, internal};

/// `IP_BIND_ADDRESS_NO_PORT`.
pub(in crate::socket) const BIND_ADDRESS_NO_PORT: i32 = 24;
/// `IP_LOCAL_PORT_RANGE`.
const LOCAL_PORT_RANGE: i32 = 51;
/// How often it is looked which connections are over.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The same while nothing else happens.
const LOOK_IDLE_EVERY: Duration = Duration::from_secs(1);

/// A connection that the program has closed: the broker keeps its port until the stack is done with it.
pub(crate) struct KeptPort {
    pub(in crate::socket) connection: ConnectionId,
    claim: ClaimId,
}

impl State {
    /// Begins to look for the way to a peer; false if the kernel is to connect.
    pub(in crate::socket) fn begin_connect(
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
        self.hear(now); // A way that is known may not be one any more.
        if self.runtime.is_none() {
            return false;
        }
        let Some(socket) = self.sockets.get(id) else { return false };
        let (fd, domain) = (socket.fd(), socket.domain);
        if socket.kernel_only.is_some() || !socket.touched.is_plain() && has_route_of_its_own(fd) {
            return false;
        }
        let from = local_of(fd).map(|local| local.ip()).filter(|ip| !ip.is_unspecified());
        let peer = Peer { ip, name, domain };
        let request = self.attachment().and_then(|attachment| attachment.begin_route(peer, from, now));
        let Some(request) = request else { return false };
        self.take_from_kernel(id);
        let Some(socket) = self.sockets.get_mut(id) else { return false };
        socket.role = Role::Stream(Place::ToStack { request, remote });
        socket.is_connecting = true;
        socket.error = None;
        self.awaiting_route.push((request, id));
        true
    }

    /// The broker knows the way, or that there is none of ours.
    pub(crate) fn on_routed(&mut self, request: RequestId, routed: Routed, now: Instant) {
        let Some(place) = self.awaiting_route.iter().position(|(asked, _)| *asked == request) else { return };
        let (_, id) = self.awaiting_route.swap_remove(place);
        let remote = match self.sockets.get(id).map(|socket| &socket.role) {
            Some(Role::Stream(Place::ToStack { request: own, remote })) if *own == request => *remote,
            _ => return, // It was closed, or disconnected, and may ask anew.
        };
        let begun = match routed {
            Routed::NoHost => return self.fail_socket(id, Errno(libc::EHOSTUNREACH)),
            Routed::Way(way) if way.is_whole && self.attached => self.connect_on_stack(id, remote, way, now),
            Routed::Way(_) | Routed::NotOurs => None,
        };
        if begun.is_none() {
            self.connect_by_kernel(id, remote, now);
        }
        self.flush(now);
    }

    /// Connects on the stack, from a port that rests or from a new one.
    fn connect_on_stack(&mut self, id: SocketId, remote: SocketAddr, way: Way, now: Instant) -> Option<()> {
        // As the program left them: binding changes some.
        let (options, settings) = self.sockets.get(id)?.options_of_shadow();
        let local = SocketAddr::new(way.local, 0);
        let mut connect = Connect { local, remote, hop: way.hop, options: Arc::new(options), data: &[] };
        let rested = self.connect_from_resting_port(id, &mut connect, now);
        let begun = rested.or_else(|| self.connect_from_new_port(id, &mut connect, &settings, now));
        let (connection, claim) = begun?;
        self.stack()?.set_token(connection, id.to_bits());
        let socket = self.sockets.get_mut(id)?;
        socket.receive_timeout = settings.receive_timeout();
        socket.send_timeout = settings.send_timeout();
        socket.settings = settings;
        socket.role = Role::Stream(Place::Stack(connection));
        socket.claim = Some(claim);
        Some(())
    }

    /// Connects from a port that we still have of a connection that is over, if the port does not matter to the program.
    fn connect_from_resting_port(
        &mut self,
        id: SocketId,
        connect: &mut Connect<'_>,
        now: Instant,
    ) -> Option<(ConnectionId, ClaimId)> {
        let port = self.resting_ports.rested(connect.local.ip(), now)?;
        let socket = self.sockets.get(id)?;
        let has_range = !socket.touched.is_plain() && has_range_of_ports(socket.fd());
        if has_range || local_of(socket.fd())?.port() != 0 {
            return None;
        }
        connect.local = port.local;
        // With this peer the port may be in TIME-WAIT here: then it rests on, and so do those that began later.
        let connection = self.stack()?.tcp_connect(connect, now).ok()?;
        self.resting_ports.wake(port);
        Some((connection, port.claim))
    }

    /// Binds the shadow, claims its port, and connects from there.
    fn connect_from_new_port(
        &mut self,
        id: SocketId,
        connect: &mut Connect<'_>,
        settings: &Settings,
        now: Instant,
    ) -> Option<(ConnectionId, ClaimId)> {
        let fd = self.sockets.get(id)?.fd();
        let is_chosen = self.bind_for_stack(id, connect.local.ip())?;
        connect.local = local_of(fd)?;
        let shadow = internal::copy(fd)?;
        let claim = self.attachment()?.claim(shadow.as_fd(), Purpose::Outgoing);
        internal::close(shadow);
        let claim = claim.ok()?;
        let Some(Ok(connection)) = self.stack().map(|stack| stack.tcp_connect(connect, now)) else {
            self.release_claim(Some(claim));
            return None;
        };
        // With these the kernel may have given the port to others as well.
        let is_shared = settings.is_on(libc::SO_REUSEADDR) || settings.is_on(libc::SO_REUSEPORT);
        if is_chosen && !is_shared {
            self.resting_ports.note_chosen(claim, connect.local);
        }
        Some((connection, claim))
    }

    /// Binds the shadow of a connection to be made to `source` and a port, as far as the program has not; returns whether the kernel
    /// chose the port.
    fn bind_for_stack(&mut self, id: SocketId, source: IpAddr) -> Option<bool> {
        let bound = local_of(self.sockets.get(id)?.fd())?;
        if bound.port() != 0 && !bound.ip().is_unspecified() {
            return Some(false);
        }
        if self.bind_shadow(id, source, bound).is_none() {
            // The kernel may have run out of ports while we have some.
            self.give_back_resting_ports();
            self.bind_shadow(id, source, bound)?;
        }
        Some(bound.port() == 0)
    }

    fn bind_shadow(&mut self, id: SocketId, source: IpAddr, bound: SocketAddr) -> Option<()> {
        let socket = self.sockets.get_mut(id)?;
        let fd = socket.fd();
        // A port has to be ours alone, which the kernel sees to if it does not wait for connect.
        let _ = syscall::setsockopt(fd, libc::SOL_IP, BIND_ADDRESS_NO_PORT, &0i32.to_ne_bytes());
        let (name, len) = encode(SocketAddr::new(source, bound.port()), socket.domain);
        syscall::bind(fd, &name[..len]).ok()?;
        socket.bound_before = Some(bound);
        Some(())
    }

    /// The program asks for the name of a socket whose route is not known yet: on the kernel it has one as soon as it connects.
    pub(in crate::socket) fn name_before_route(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get(id) else { return };
        let Role::Stream(Place::ToStack { remote, .. }) = socket.role else { return };
        let (name, len) = encode(remote, socket.domain);
        if let Some(source) = source_for(&name[..len], socket.domain) {
            let _ = self.bind_for_stack(id, source); // Without a port there is no name.
        }
    }

    /// The kernel is to connect, though it was begun here, and no peer has answered yet.
    pub(in crate::socket) fn connect_by_kernel_instead(&mut self, id: SocketId, now: Instant) {
        let remote = match self.sockets.get(id).map(|socket| &socket.role) {
            Some(Role::Stream(Place::ToStack { remote, .. })) => Some(*remote),
            _ => self.endpoints(id).map(|(_, remote)| remote),
        };
        let Some(remote) = remote else { return };
        if self.sockets.get(id).is_some_and(|socket| socket.connection().is_some()) {
            self.renew(id, None, now);
        }
        self.awaiting_route.retain(|(_, other)| *other != id);
        self.connect_by_kernel(id, remote, now);
    }

    /// There is no route of ours: the kernel begins to connect, and the socket is the kernel's from then on, even for threads that wait
    /// for it.
    fn connect_by_kernel(&mut self, id: SocketId, remote: SocketAddr, now: Instant) {
        let Some(socket) = self.sockets.get_mut(id) else { return };
        self.left_to_kernel.made += 1;
        socket.role = Role::Stream(Place::Kernel);
        let (name, len) = encode(remote, socket.domain);
        match connect_without_waiting(socket.fd(), &name[..len]) {
            Ok(true) => {
                socket.is_connecting = false;
                self.watch_at_kernel(id);
                self.moves = self.moves.wrapping_add(1);
                self.raise(id, WRITABLE);
            }
            Ok(false) => self.keep_at_kernel(id, now),
            Err(errno) => self.fail_socket(id, errno),
        }
    }

    /// A socket is the kernel's for good: what watched it here watches it there.
    pub(crate) fn keep_at_kernel(&mut self, id: SocketId, now: Instant) {
        self.moves = self.moves.wrapping_add(1);
        self.watch_at_kernel(id);
        for fd in self.live_fds(id) {
            self.let_go(fd, now);
        }
    }

    /// A connection is about to be closed. Its port is used again if the peer knows connections from it apart by their timestamps.
    pub(in crate::socket) fn decide_on_port(
        &mut self,
        claim: Option<ClaimId>,
        connection: ConnectionId,
        now: Instant,
    ) {
        let (Some(claim), Some(stack)) = (claim, self.stack()) else { return };
        let is_begun = matches!(stack.state(connection), Some(TcpState::SynSent | TcpState::SynReceived));
        let has_timestamps = stack.info(connection, now).is_some_and(|info| info.timestamps);
        if is_begun || !has_timestamps {
            self.resting_ports.forget(claim);
        }
    }

    /// The claim of a connection that we made ends when the stack is done with it, and not before.
    pub(crate) fn release_claim_of_connection(
        &mut self,
        claim: Option<ClaimId>,
        connection: ConnectionId,
        now: Instant,
    ) {
        let Some(claim) = claim else { return };
        if self.stack().is_some_and(|stack| stack.state(connection).is_some()) {
            self.kept_ports.push(KeptPort { connection, claim });
        } else if !self.resting_ports.rest(claim, now) {
            self.release_claim(Some(claim));
        }
    }

    /// Has the ports rest whose connections are over by now, or gives them back, and those that have rested for long.
    pub(crate) fn release_ports(&mut self, now: Instant) {
        if now < self.ports_looked_at + LOOK_EVERY {
            return;
        }
        self.ports_looked_at = now;
        let mut over = self.resting_ports.expire(now);
        for kept in std::mem::take(&mut self.kept_ports) {
            if self.stack().is_some_and(|stack| stack.state(kept.connection).is_some()) {
                self.kept_ports.push(kept);
            } else if !self.resting_ports.rest(kept.claim, now) {
                over.push(kept.claim);
            }
        }
        self.release_claims(&over);
    }

    /// The connections have become the kernel's, and their ports with them: none of them rests.
    pub(crate) fn release_kept_ports(&mut self, is_meant: impl Fn(&KeptPort) -> bool) {
        let (meant, others): (Vec<KeptPort>, _) =
            std::mem::take(&mut self.kept_ports).into_iter().partition(is_meant);
        self.kept_ports = others;
        let claims: Vec<ClaimId> = meant.iter().map(|kept| kept.claim).collect();
        claims.iter().for_each(|claim| self.resting_ports.forget(*claim));
        self.release_claims(&claims);
    }

    /// Another socket explicitly wants the port.
    pub(crate) fn give_back_port(&mut self, port: u16) {
        let resting = self.resting_ports.take(port);
        self.release_claims(&resting);
    }

    /// All that rest are the kernel's again.
    pub(crate) fn give_back_resting_ports(&mut self) {
        let resting = self.resting_ports.take_all();
        self.release_claims(&resting);
    }

    /// When to call [`State::release_ports`], if nothing else happens until then.
    pub(crate) fn ports_due(&self) -> Option<Instant> {
        let resting = self.resting_ports.expiry().map(|expiry| expiry.max(self.ports_looked_at + LOOK_EVERY));
        let closing = (!self.kept_ports.is_empty()).then(|| self.ports_looked_at + LOOK_IDLE_EVERY);
        [resting, closing].into_iter().flatten().min()
    }
}

/// Whether the program has said from which ports the kernel is to choose.
fn has_range_of_ports(fd: RawFd) -> bool {
    let mut range = [0; 4];
    syscall::getsockopt(fd, libc::SOL_IP, LOCAL_PORT_RANGE, &mut range).is_ok() && range != [0; 4]
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
