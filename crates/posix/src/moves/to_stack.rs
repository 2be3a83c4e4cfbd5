//! Connections that we make, from the known way to the peer until they are begun.
//!
//! The program's descriptor stays that of a kernel socket; the connection is in the stack. The kernel socket is bound and so has the port,
//! unless it is a resting port (`queue/resting_ports.rs`): then the socket of the first connection on that port keeps it. If only some of the
//! interface's queues are ours, the port is one from which answers come by these (`queue/source_ports.rs`). If there is none, or if the route to the peer uses
//! no interface of ours, the kernel connects.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, RawFd};
use std::sync::Arc;

use clock::Instant;
use stack::tcp::State as TcpState;
use stack::{Connect, ConnectionId, LinkId};

use crate::address::{encode, local_of, source_for};
use crate::broker_side::{Answers, ClaimId, HomePorts, MadeBecause, Purpose, RequestId, Routed, Way};
use crate::descriptors::internal;
use crate::errno::Errno;
use crate::ids::SocketId;
use crate::moves::ports::BIND_ADDRESS_NO_PORT;
use crate::process::State;
use crate::socket::settings::Settings;
use crate::socket::{Place, Role, WRITABLE};

/// Ports that are tried if others have them.
const TRIES_MAX: u32 = 64;
/// `IP_LOCAL_PORT_RANGE`.
const LOCAL_PORT_RANGE: i32 = 51;

impl State {
    /// The broker knows the way, or that there is none of ours.
    pub(crate) fn on_routed(&mut self, request: RequestId, routed: Routed, now: Instant) {
        let Some(id) = self.queue.awaited_routes.take(request) else { return };
        let remote = match self.sockets.get(id).map(|socket| &socket.role) {
            Some(Role::Stream(Place::ToStack { request: own, remote })) if *own == request => *remote,
            _ => return, // It was closed, or disconnected, and may ask anew.
        };
        let begun = match routed {
            Routed::NoHost => return self.fail_socket(id, Errno(libc::EHOSTUNREACH)),
            Routed::Way(_) if !self.attached => Err(MadeBecause::NoQueue),
            Routed::Way(way) if way.answers == Answers::Anybodys => Err(MadeBecause::OtherQueues),
            Routed::Way(way) => self.connect_on_stack(id, remote, &way, now).ok_or(MadeBecause::NoPort),
            Routed::NotOurs => Err(MadeBecause::NotOurs),
        };
        if let Err(why) = begun {
            self.connect_by_kernel(id, remote, why);
        }
        self.queue.flush(now);
    }

    /// Connects on the stack, from a port that rests or from a new one.
    fn connect_on_stack(&mut self, id: SocketId, remote: SocketAddr, way: &Way, now: Instant) -> Option<()> {
        // As the program left them: binding changes some.
        let (options, settings) = self.sockets.get(id)?.options_of_shadow();
        let local = SocketAddr::new(way.local, 0);
        let (hop, options) = (way.hop, Arc::new(options));
        let mut connect = Connect { local, remote, is_bound: false, hop, options, data: &[] };
        let rested = self.connect_from_resting_port(id, &mut connect, way, now);
        let begun = rested.or_else(|| self.connect_from_new_port(id, &mut connect, (way, &settings), now));
        let (connection, claim) = begun?;
        if matches!(way.answers, Answers::From(_)) {
            self.queue.home_ports.on_begun(id, connection, now);
        }
        self.queue.stack()?.set_token(connection, id.to_bits());
        let socket = self.sockets.get_mut(id)?;
        socket.receive_timeout = settings.receive_timeout();
        socket.send_timeout = settings.send_timeout();
        socket.settings = settings;
        socket.role = Role::Stream(Place::Stack(connection));
        socket.claim = Some(claim);
        socket.relies_on = Some(hop.link);
        Some(())
    }

    /// Connects from a port that we still have of a connection that is over, if the port does not matter to the program.
    fn connect_from_resting_port(
        &mut self,
        id: SocketId,
        connect: &mut Connect<'_>,
        way: &Way,
        now: Instant,
    ) -> Option<(ConnectionId, ClaimId)> {
        let home_ports = &mut self.queue.home_ports;
        let is_good = |local| match &way.answers {
            Answers::From(home) => home_ports.comes_home(way.hop.link, home, connect.remote, local),
            Answers::Ours | Answers::Anybodys => true,
        };
        let port = self.queue.resting_ports.rested(connect.local.ip(), now, is_good)?;
        let socket = self.sockets.get(id)?;
        let has_range = !socket.touched.is_plain() && has_range_of_ports(socket.fd());
        if has_range || socket.local_of_shadow().is_some_and(|local| local.port() != 0) {
            return None;
        }
        connect.local = port.local;
        // With this peer the port may be in TIME-WAIT here: then it rests on, and so do those that began later.
        let connection = self.queue.stack()?.tcp_connect(connect, now).ok()?;
        self.queue.resting_ports.wake(port);
        Some((connection, port.claim))
    }

    /// Binds the shadow, claims its port, and connects from there.
    fn connect_from_new_port(
        &mut self,
        id: SocketId,
        connect: &mut Connect<'_>,
        (way, settings): (&Way, &Settings),
        now: Instant,
    ) -> Option<(ConnectionId, ClaimId)> {
        let fd = self.sockets.get(id)?.fd();
        // With these the kernel may have given the port to others as well.
        let is_shared = settings.is_on(libc::SO_REUSEADDR) || settings.is_on(libc::SO_REUSEPORT);
        let is_chosen = match &way.answers {
            Answers::From(home) => {
                let bound = self.bind_to_home_port(id, connect, (way.hop.link, home), is_shared);
                if bound.is_none() {
                    self.queue.home_ports.counts().kernel += 1;
                }
                bound?
            }
            Answers::Ours | Answers::Anybodys => self.bind_for_stack(id, connect.local.ip())?,
        };
        connect.local = local_of(fd)?;
        connect.is_bound = !is_chosen;
        let shadow = internal::copy(fd)?;
        let claim = self.attachment()?.claim(shadow.as_fd(), Purpose::Outgoing);
        internal::close(shadow);
        let claim = claim.ok()?;
        let Some(Ok(connection)) = self.queue.stack().map(|stack| stack.tcp_connect(connect, now)) else {
            self.release_claim(Some(claim));
            return None;
        };
        if is_chosen && !is_shared {
            self.queue.resting_ports.note_chosen(claim, connect.local);
        }
        Some((connection, claim))
    }

    /// Binds the shadow of a connection to be made to `source` and a port, as far as the program has not; returns whether the kernel
    /// chose the port.
    fn bind_for_stack(&mut self, id: SocketId, source: IpAddr) -> Option<bool> {
        let bound = local_of(self.sockets.get(id)?.fd())?;
        if bound.port() != 0 && !bound.ip().is_unspecified() {
            // By the program; or here, when it asked for the name before the way was known.
            return Some(self.sockets.get(id)?.bound_before.is_some_and(|before| before.port() == 0));
        }
        let local = SocketAddr::new(source, bound.port());
        if self.bind_shadow(id, local, bound).is_err() {
            // The kernel may have run out of ports while we have some.
            self.give_back_resting_ports();
            self.bind_shadow(id, local, bound).ok()?;
        }
        Some(bound.port() == 0)
    }

    /// The same, to a port from which answers come by our queues; `None` if the socket has another one, or no such port is free.
    fn bind_to_home_port(
        &mut self,
        id: SocketId,
        connect: &Connect<'_>,
        (link, home): (LinkId, &Arc<HomePorts>),
        is_shared: bool,
    ) -> Option<bool> {
        let socket = self.sockets.get(id)?;
        let bound = local_of(socket.fd())?;
        if bound.port() != 0 {
            let local = SocketAddr::new(connect.local.ip(), bound.port());
            let comes_home = self.queue.home_ports.comes_home(link, home, connect.remote, local);
            return comes_home.then(|| self.bind_for_stack(id, connect.local.ip()))?;
        }
        // The kernel lets sockets with these options have a port that others have.
        if is_shared || !socket.touched.is_plain() && has_range_of_ports(socket.fd()) {
            return None;
        }
        for _ in 0..TRIES_MAX {
            let port = self.queue.home_ports.choose(link, home, connect.remote, connect.local.ip())?;
            match self.bind_shadow(id, SocketAddr::new(connect.local.ip(), port), bound) {
                Ok(()) => return Some(true),
                Err(Errno(libc::EADDRINUSE | libc::EACCES)) => {}
                Err(_) => return None,
            }
        }
        None
    }

    fn bind_shadow(&mut self, id: SocketId, local: SocketAddr, bound: SocketAddr) -> Result<(), Errno> {
        let socket = self.sockets.get_mut(id).ok_or(Errno(libc::EBADF))?;
        let fd = socket.fd();
        // A port has to be ours alone, which the kernel sees to if it does not wait for connect.
        let _ = syscall::setsockopt(fd, libc::SOL_IP, BIND_ADDRESS_NO_PORT, &0i32.to_ne_bytes());
        let (name, len) = encode(local, socket.domain);
        syscall::bind(fd, &name[..len])?;
        socket.touched.note_named();
        socket.bound_before = Some(bound);
        Ok(())
    }

    /// The program asks for the name of a socket whose route is not known yet: on the kernel it has one as soon as it connects.
    pub(crate) fn name_before_route(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get(id) else { return };
        let Role::Stream(Place::ToStack { remote, .. }) = socket.role else { return };
        let (name, len) = encode(remote, socket.domain);
        if let Some(source) = source_for(&name[..len], socket.domain) {
            let _ = self.bind_for_stack(id, source); // Without a port there is no name.
        }
    }

    /// The kernel is to connect, though it was begun here, and no peer has answered yet.
    pub(crate) fn connect_by_kernel_instead(&mut self, id: SocketId, why: MadeBecause, now: Instant) {
        let remote = match self.sockets.get(id).map(|socket| &socket.role) {
            Some(Role::Stream(Place::ToStack { remote, .. })) => Some(*remote),
            _ => self.endpoints(id).map(|(_, remote)| remote),
        };
        let Some(remote) = remote else { return };
        if self.sockets.get(id).is_some_and(|socket| socket.connection().is_some()) {
            self.renew(id, None, now);
        }
        self.queue.awaited_routes.forget(id);
        self.connect_by_kernel(id, remote, why);
    }

    /// Has the kernel make connections whose way a stopped broker does not tell.
    pub(crate) fn look_after_routes(&mut self, now: Instant) {
        while let Some((request, id)) = self.queue.awaited_routes.take_late(now) {
            if let Some(attachment) = self.attachment() {
                attachment.give_up_route(request);
            }
            self.connect_by_kernel_instead(id, MadeBecause::Broker, now);
        }
    }

    /// Has the kernel connect to peers that have not answered for a while, if we have only some of the queues: the answer may have come by another one.
    pub(crate) fn look_after_unanswered(&mut self, now: Instant) {
        while let Some(late) = self.queue.home_ports.next_late(now) {
            let is_its = |id| self.sockets.get(id).is_some_and(|it| it.connection() == Some(late.connection));
            let state = self.queue.stack().and_then(|stack| stack.state(late.connection));
            if state != Some(TcpState::SynSent) || !is_its(late.id) {
                continue;
            }
            let ends = self.endpoints(late.id);
            if let (Some((local, remote)), Some(attachment)) = (ends, self.attachment()) {
                attachment.unanswered(local, remote);
            }
            self.queue.home_ports.counts().unanswered += 1;
            self.connect_by_kernel_instead(late.id, MadeBecause::Unanswered, now);
        }
    }

    /// There is no route of ours: the kernel begins to connect, and the socket is the kernel's from then on, even for threads that wait
    /// for it.
    fn connect_by_kernel(&mut self, id: SocketId, remote: SocketAddr, why: MadeBecause) {
        let Some(socket) = self.sockets.get_mut(id) else { return };
        self.left_to_kernel.note_made(why);
        socket.role = Role::Stream(Place::Kernel);
        socket.touched.note_named();
        let (name, len) = encode(remote, socket.domain);
        match connect_without_waiting(socket.fd(), &name[..len]) {
            Ok(true) => {
                socket.is_connecting = false;
                self.watch_at_kernel(id);
                self.moves = self.moves.wrapping_add(1);
                self.raise(id, WRITABLE);
            }
            Ok(false) => self.keep_at_kernel(id),
            Err(errno) => self.fail_socket(id, errno),
        }
    }
}

/// Whether the program has said from which ports the kernel is to choose.
fn has_range_of_ports(fd: RawFd) -> bool {
    let mut range = [0; 4];
    syscall::getsockopt(fd, libc::SOL_IP, LOCAL_PORT_RANGE, &mut range).is_ok() && range != [0; 4]
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
