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
use stack::{Connect, ConnectError, ConnectionId, LinkId};

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

/// Why a connection was not begun on the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NotBegun {
    /// The kernel is to make it.
    ForKernel(MadeBecause),
    /// There is one between the same ends already.
    InUse,
}

impl NotBegun {
    const NO_PORT: NotBegun = NotBegun::ForKernel(MadeBecause::NoPort);
}

/// Which options of a socket let others bind to its port, if they have them, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sharing([Option<i32>; 2]);

impl Sharing {
    fn of(settings: &Settings) -> Sharing {
        Sharing(
            [libc::SO_REUSEADDR, libc::SO_REUSEPORT].map(|option| settings.is_on(option).then_some(option)),
        )
    }

    fn is_any(self) -> bool {
        self != Sharing([None; 2])
    }

    /// A port that it is bound to meanwhile is its own alone.
    fn end_at(self, fd: RawFd) {
        self.put(fd, 0);
    }

    fn set_at(self, fd: RawFd) {
        self.put(fd, 1);
    }

    fn put(self, fd: RawFd, value: i32) {
        for option in self.0.into_iter().flatten() {
            // It is a socket, so nothing refuses this.
            let _ = syscall::setsockopt(fd, libc::SOL_SOCKET, option, &value.to_ne_bytes());
        }
    }
}

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
            Routed::Way(way) => match self.connect_on_stack(id, remote, &way, now) {
                Err(NotBegun::InUse) => return self.fail_socket(id, Errno(libc::EADDRNOTAVAIL)),
                Err(NotBegun::ForKernel(why)) => Err(why),
                Ok(()) => Ok(()),
            },
            Routed::NotOurs => Err(MadeBecause::NotOurs),
        };
        if let Err(why) = begun {
            self.connect_by_kernel(id, remote, why);
        }
        self.queue.flush(now);
    }

    /// Connects on the stack, from a port that rests or from a new one.
    fn connect_on_stack(
        &mut self,
        id: SocketId,
        remote: SocketAddr,
        way: &Way,
        now: Instant,
    ) -> Result<(), NotBegun> {
        // As the program left them: binding changes some.
        let (options, settings) = self.sockets.get(id).ok_or(NotBegun::NO_PORT)?.options_of_shadow();
        let local = SocketAddr::new(way.local, 0);
        let (hop, options) = (way.hop, Arc::new(options));
        let mut connect = Connect { local, remote, is_bound: false, hop, options, data: &[] };
        let (connection, claim) = match self.connect_from_resting_port(id, &mut connect, way, now) {
            Some(begun) => begun,
            None => self.connect_from_new_port(id, &mut connect, (way, &settings), now)?,
        };
        if matches!(way.answers, Answers::From(_)) {
            self.queue.home_ports.on_begun(id, connection, now);
        }
        self.queue.stack().ok_or(NotBegun::NO_PORT)?.set_token(connection, id.to_bits());
        let socket = self.sockets.get_mut(id).ok_or(NotBegun::NO_PORT)?;
        socket.receive_timeout = settings.receive_timeout();
        socket.send_timeout = settings.send_timeout();
        socket.settings = settings;
        socket.role = Role::Stream(Place::Stack(connection));
        socket.claim = Some(claim);
        socket.relies_on = Some(hop.link);
        Ok(())
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
    ///
    /// Only from a port that is this socket's alone: a port of which the kernel may have connections, too, takes hold only when these are
    /// known, and until then it would reset ours.
    fn connect_from_new_port(
        &mut self,
        id: SocketId,
        connect: &mut Connect<'_>,
        (way, settings): (&Way, &Settings),
        now: Instant,
    ) -> Result<(ConnectionId, ClaimId), NotBegun> {
        let fd = self.sockets.get(id).ok_or(NotBegun::NO_PORT)?.fd();
        let sharing = Sharing::of(settings);
        if sharing.is_any() && self.has_port_of_its_own(id) {
            let bound = local_of(fd).ok_or(NotBegun::NO_PORT)?;
            let ip = if bound.ip().is_unspecified() { connect.local.ip() } else { bound.ip() };
            let local = SocketAddr::new(ip, bound.port());
            let is_taken =
                self.queue.stack().is_some_and(|stack| stack.has_connection(local, connect.remote));
            return Err(if is_taken {
                NotBegun::InUse
            } else {
                NotBegun::ForKernel(MadeBecause::SharedPort)
            });
        }
        sharing.end_at(fd);
        let begun = self.connect_alone(id, connect, way, now);
        if begun.is_err() {
            sharing.set_at(fd);
        }
        begun
    }

    /// Whether the program has chosen the port.
    fn has_port_of_its_own(&self, id: SocketId) -> bool {
        let Some(socket) = self.sockets.get(id) else { return false };
        match socket.bound_before {
            Some(before) => before.port() != 0,
            None => socket.local_of_shadow().is_some_and(|local| local.port() != 0),
        }
    }

    /// Connects from a port that the kernel gives to no other socket.
    fn connect_alone(
        &mut self,
        id: SocketId,
        connect: &mut Connect<'_>,
        way: &Way,
        now: Instant,
    ) -> Result<(ConnectionId, ClaimId), NotBegun> {
        let fd = self.sockets.get(id).ok_or(NotBegun::NO_PORT)?.fd();
        let bound = match &way.answers {
            Answers::From(home) => self.bind_to_home_port(id, connect, (way.hop.link, home)),
            Answers::Ours | Answers::Anybodys => self.bind_for_stack(id, connect.local.ip()),
        };
        if bound.is_none() && matches!(way.answers, Answers::From(_)) {
            self.queue.home_ports.counts().kernel += 1;
        }
        let is_chosen = bound.ok_or(NotBegun::NO_PORT)?;
        connect.local = local_of(fd).ok_or(NotBegun::NO_PORT)?;
        connect.is_bound = !is_chosen;
        let claim = self.claim_port(fd).ok_or(NotBegun::NO_PORT)?;
        match self.queue.stack().map(|stack| stack.tcp_connect(connect, now)) {
            Some(Ok(connection)) => {
                if is_chosen {
                    self.queue.resting_ports.note_chosen(claim, connect.local);
                }
                Ok((connection, claim))
            }
            refused => {
                self.release_claim(Some(claim));
                let is_in_use = !is_chosen && refused == Some(Err(ConnectError::InUse));
                Err(if is_in_use { NotBegun::InUse } else { NotBegun::NO_PORT })
            }
        }
    }

    /// Has packets to the port of a bound shadow come here.
    fn claim_port(&mut self, fd: RawFd) -> Option<ClaimId> {
        let shadow = internal::copy(fd)?;
        let claim = self.attachment()?.claim(shadow.as_fd(), Purpose::Outgoing);
        internal::close(shadow);
        claim.ok().flatten()
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
    ) -> Option<bool> {
        let socket = self.sockets.get(id)?;
        let bound = local_of(socket.fd())?;
        if bound.port() != 0 {
            let local = SocketAddr::new(connect.local.ip(), bound.port());
            let comes_home = self.queue.home_ports.comes_home(link, home, connect.remote, local);
            return comes_home.then(|| self.bind_for_stack(id, connect.local.ip()))?;
        }
        if !socket.touched.is_plain() && has_range_of_ports(socket.fd()) {
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
            let (fd, sharing) = (socket.fd(), Sharing::of(&socket.options_of_shadow().1));
            sharing.end_at(fd);
            let _ = self.bind_for_stack(id, source); // Without a port there is no name.
            sharing.set_at(fd);
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
