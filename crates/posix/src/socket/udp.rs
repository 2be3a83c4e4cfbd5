//! UDP sockets: kernel sockets, and, for claimed ones, sockets of the stack as well.
//!
//! Received datagrams are taken from the stack first, then from the shadow. A datagram is sent by the stack if an earlier datagram from
//! its destination has shown the route, otherwise by the shadow. Both have the same port.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::MutexGuard;

use clock::{Duration, Instant};
use stack::tcp::Readiness;
use stack::udp::{UdpBind, UdpId, UdpOptions, UdpRecvError, UdpSend, UdpSendError};
use stack::{Hop, Stack};

use super::address::{decode, local_of, write_name};
use super::control_messages::ControlWriter;
use super::settings::Settings;
use super::times::on_the_wall;
use super::udp_messages::{Asked, apply_udp_control};
use super::{READABLE, Role, SocketId, WRITABLE};
use crate::Errno;
use crate::calls::{Receive, Received, Send, Verdict};
use crate::drive::{On, Stop, Waiting};
use crate::errno::fail;
use crate::process::{Process, State};

/// Destinations whose route is cached.
const WAYS_MAX: usize = 64;
/// How long a way is believed: neighbours change, and the kernel knows.
const WAY_LIFETIME: Duration = Duration::from_secs(30);
/// The shadow is asked this often by a call that waits.
const KERNEL_EVERY: Duration = Duration::from_micros(50);
/// The same, if something in its error queue says all the time that it is ready.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// A UDP socket.
#[derive(Default)]
pub(crate) struct UdpRole {
    pub(crate) on_stack: Option<UdpId>,
    /// bind(2) was called: threads that wait for datagrams there get them from the stack.
    pub(crate) is_bound: bool,
    ways: Vec<LearnedWay>,
    /// What it wants to be told of datagrams.
    asked: Asked,
    /// The kernel alone can do with what it sends what was asked for.
    is_sent_by_kernel: bool,
    /// The kernel waits for the rest of a datagram (`MSG_MORE`).
    is_corked: bool,
    /// The peer that it is connected to, if that peer's datagrams are on the stack.
    pub(super) peer: Option<SocketAddr>,
    /// Room to put a datagram together that comes in pieces, or is to leave so.
    room: Vec<u8>,
}

/// How a datagram came: what goes back goes the same way.
struct LearnedWay {
    remote: SocketAddr,
    local: SocketAddr,
    hop: Hop,
    at: Instant,
}

impl UdpRole {
    /// A socket that was bound before we knew it.
    pub(crate) fn bound() -> UdpRole {
        UdpRole { is_bound: true, ..UdpRole::default() }
    }

    pub(crate) fn poll(&self, stack: &Stack) -> u32 {
        let readiness = self.on_stack.and_then(|id| stack.udp_readiness(id)).unwrap_or_default();
        let Readiness { readable, error, .. } = readiness;
        // An error alone is nothing to read, although reading reports it.
        let readable = readable && (!error || self.on_stack.is_some_and(|id| stack.udp_peek(id).is_some()));
        let bits = if readable { READABLE | WRITABLE } else { 0 };
        bits | if error { libc::EPOLLERR as u32 } else { 0 }
    }

    fn learn(&mut self, remote: SocketAddr, local: SocketAddr, hop: Hop, now: Instant) {
        match self.ways.iter_mut().find(|way| way.remote == remote) {
            Some(way) => *way = LearnedWay { remote, local, hop, at: now },
            None => {
                if self.ways.len() >= WAYS_MAX {
                    self.ways.remove(0);
                }
                self.ways.push(LearnedWay { remote, local, hop, at: now });
            }
        }
    }

    fn way_to(&self, remote: SocketAddr, now: Instant) -> Option<&LearnedWay> {
        self.ways.iter().find(|way| way.remote == remote && now.since(way.at) < WAY_LIFETIME)
    }
}

impl Process {
    /// bind(2) succeeded on `fd`.
    pub(crate) fn on_bind(&self, fd: RawFd) {
        let mut state = self.lock();
        let Some(id) = state.socket_of(fd) else { return };
        if let Some(Role::Udp(udp)) = state.sockets.get_mut(id).map(|socket| &mut socket.role) {
            udp.is_bound = true;
            state.note_news(id);
        }
    }

    pub(crate) fn receive_datagram(
        &self,
        mut state: MutexGuard<'_, State>,
        id: SocketId,
        request: &mut Receive<'_, '_>,
    ) -> Verdict<Received> {
        let now = self.now();
        if !state.has_own_datagrams(id) && !state.claim_to_read(id, now) {
            return Verdict::Kernel;
        }
        if request.flags & libc::MSG_ERRQUEUE != 0 {
            return state.receive_report(id, request).map_or(Verdict::Kernel, Verdict::Done);
        }
        self.start_watchdog(&mut state);
        let of_shadow = state.receive_in_shadows_turn(id, request);
        if let Some(result) = of_shadow.or_else(|| state.receive_datagram_own(id, request, now)) {
            return Verdict::Done(result);
        }
        let Some(socket) = state.sockets.get(id) else { return Verdict::Kernel };
        let timeout = socket.receive_timeout;
        if socket.nonblocking || request.flags & libc::MSG_DONTWAIT != 0 {
            if self.asks_again(&mut state, id) {
                self.turn_in_passing(&mut state, now);
                if let Some(result) = state.receive_datagram_own(id, request, now) {
                    return Verdict::Done(result);
                }
            }
            return Verdict::Kernel;
        }
        let deadline = timeout.map(|timeout| now + timeout);
        self.wait_for_datagram(state, id, request, deadline)
    }

    /// Waits until the stack or the shadow has something.
    fn wait_for_datagram<'p>(
        &'p self,
        mut state: MutexGuard<'p, State>,
        id: SocketId,
        request: &mut Receive<'_, '_>,
        deadline: Option<Instant>,
    ) -> Verdict<Received> {
        let mut asked_at = Instant::ZERO;
        let mut has_reports = false;
        loop {
            // What is in its error queue would end every sleep at once: the shadow is looked at now and then instead.
            let had_reports = std::mem::take(&mut has_reports);
            let look_at = had_reports.then(|| self.now() + LOOK_EVERY);
            let waiting = Waiting {
                on: On::Socket(id, (!had_reports).then_some(libc::POLLIN)),
                deadline: [deadline, look_at].into_iter().flatten().min(),
                mask: None,
                restarts: deadline.is_none(),
            };
            let result = self.wait(state, &waiting, &mut |state, now| {
                let found = state.find_datagram(id, request, &mut asked_at, now);
                match found {
                    Found::Nothing => None,
                    Found::Reports if had_reports => None,
                    found => Some(found),
                }
            });
            match result {
                Ok(Found::Result(result)) => return Verdict::Done(result),
                Ok(found) => has_reports = matches!(found, Found::Reports),
                Err(Stop::TimedOut) if deadline.is_some_and(|deadline| deadline <= self.now()) => {
                    return Verdict::Done(fail(libc::EAGAIN));
                }
                Err(Stop::TimedOut) => {}
                Err(Stop::Interrupted) => return Verdict::Done(fail(libc::EINTR)),
            }
            state = self.lock();
        }
    }

    pub(crate) fn send_datagram(
        &self,
        mut state: MutexGuard<'_, State>,
        id: SocketId,
        _fd: RawFd,
        request: &Send<'_, '_>,
    ) -> Verdict<usize> {
        let now = self.now();
        match state.send_datagram_own(id, request, now) {
            Some(result) => {
                state.leave(now);
                Verdict::Done(result)
            }
            None => Verdict::Kernel,
        }
    }
}

impl State {
    /// Brings a claimed UDP socket onto the stack.
    pub(crate) fn install_udp(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get(id) else { return };
        let Some(local) = local_of(socket.fd()) else { return };
        let dual_stack = socket.domain == libc::AF_INET6 && !super::listener::is_v6_only(socket.fd());
        let bind = UdpBind { dual_stack, reuse_port: true, token: id.to_bits(), ..UdpBind::new(local) };
        let bound = self.stack().map(|stack| stack.udp_bind(&bind));
        let Some(socket) = self.sockets.get_mut(id) else { return };
        if let (Role::Udp(udp), Some(Ok(on_stack))) = (&mut socket.role, bound) {
            udp.on_stack = Some(on_stack);
            self.refresh_udp(id);
            self.divert_to_connected(local.port());
        }
    }

    /// Options of the shadow hold on the stack.
    pub(crate) fn refresh_udp(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get_mut(id) else { return };
        let fd = socket.fd();
        let settings = Settings::of_datagrams(fd);
        socket.receive_timeout = settings.receive_timeout();
        socket.send_timeout = settings.send_timeout();
        socket.settings = settings;
        let Role::Udp(udp) = &mut socket.role else { return };
        let Some(on_stack) = udp.on_stack else { return };
        let int = |level, option| super::udp_int(fd, level, option);
        let is_on = |level, option| int(level, option).is_some_and(|value| value != 0);
        udp.asked = Asked::of_shadow(fd);
        udp.is_sent_by_kernel = udp.asked.times.of_sending || is_on(libc::SOL_UDP, libc::UDP_CORK);
        let default = UdpOptions::default();
        let receive_errors =
            is_on(libc::SOL_IP, libc::IP_RECVERR) || is_on(libc::SOL_IPV6, libc::IPV6_RECVERR);
        let options = UdpOptions {
            receive_buffer: int(libc::SOL_SOCKET, libc::SO_RCVBUF)
                .map_or(default.receive_buffer, |it| it as u32),
            send_buffer: int(libc::SOL_SOCKET, libc::SO_SNDBUF).map_or(default.send_buffer, |it| it as u32),
            segment_len: int(libc::SOL_UDP, libc::UDP_SEGMENT).map_or(0, |it| it as u16),
            receive_coalesced: is_on(libc::SOL_UDP, libc::UDP_GRO),
            receive_errors,
            // The shadow sends, too.
            believe_errors: receive_errors,
            ..default
        };
        if let Some(stack) = self.stack() {
            stack.udp_set_options(on_stack, options);
        }
    }

    /// Whether datagrams may come to a socket by the stack.
    fn has_own_datagrams(&self, id: SocketId) -> bool {
        self.sockets.get(id).is_some_and(|socket| socket.is_on_stack())
    }

    /// connect(2) is about to connect the shadow: the kernel chooses what comes, and the stack has no part in it any more. What waits
    /// is to be read all the same, whoever sent it: the kernel gets it now, as later it would refuse what is not the peer's.
    pub(crate) fn on_udp_connect(&mut self, id: SocketId, now: Instant) {
        let Some(socket) = self.sockets.get_mut(id) else { return };
        let Role::Udp(udp) = &mut socket.role else { return };
        udp.is_bound = false;
        udp.peer = None;
        self.move_datagrams(id, now);
    }

    /// What the shadow has, if it must be asked before the stack.
    fn receive_in_shadows_turn(
        &mut self,
        id: SocketId,
        request: &mut Receive<'_, '_>,
    ) -> Option<Result<Received, Errno>> {
        let socket = self.sockets.get_mut(id).filter(|socket| socket.own_run.is_shadows_turn())?;
        let received = receive_of_kernel(socket.fd(), request);
        if received.is_ok() && request.flags & libc::MSG_PEEK != 0 {
            socket.own_run.note_seen_at_shadow();
        } else {
            socket.own_run.begin();
        }
        (received != Err(EAGAIN)).then_some(received)
    }

    /// What there is for a call that waits, which asked the shadow at `asked_at`.
    fn find_datagram(
        &mut self,
        id: SocketId,
        request: &mut Receive<'_, '_>,
        asked_at: &mut Instant,
        now: Instant,
    ) -> Found {
        if let Some(result) = self.receive_datagram_own(id, request, now) {
            return Found::Result(result);
        }
        // The program may have closed the number meanwhile; then the call is over when the socket is.
        let Some(socket) = self.sockets.get(id) else { return Found::Result(fail(libc::EBADF)) };
        if now.since(*asked_at) < KERNEL_EVERY {
            return Found::Nothing;
        }
        *asked_at = now;
        ask_shadow(socket.fd(), request)
    }

    fn receive_datagram_own(
        &mut self,
        id: SocketId,
        request: &mut Receive<'_, '_>,
        now: Instant,
    ) -> Option<Result<Received, Errno>> {
        let socket = self.sockets.get_mut(id)?;
        let domain = socket.domain;
        let Role::Udp(udp) = &mut socket.role else { return None };
        let on_stack = udp.on_stack?;
        let stack = self.runtime.as_mut()?.stack();
        let room: usize = request.buffers.iter().map(|buffer| buffer.len()).sum();
        let peek = request.flags & libc::MSG_PEEK != 0;
        let read = |stack: &mut Stack, out: &mut [u8]| match peek {
            true => stack.udp_peek_from(on_stack, out),
            false => stack.udp_recv_from(on_stack, out),
        };
        let received = match &mut *request.buffers {
            [buffer] => read(stack, buffer),
            buffers => {
                udp.room.resize(room, 0);
                read(stack, &mut udp.room).inspect(|received| scatter(&udp.room[..received.len], buffers))
            }
        };
        socket.stall.note_taken();
        let received = match received {
            Ok(received) => received,
            Err(UdpRecvError::WouldBlock) => {
                socket.own_run.begin(); // The shadow is asked now.
                if peek {
                    socket.own_run.note_seen_at_shadow();
                }
                return None;
            }
            Err(error) => return Some(Err(error.into())),
        };
        if peek {
            socket.own_run.note_seen()
        } else {
            socket.own_run.note_taken()
        }
        udp.learn(received.remote, received.local, received.hop, now);
        let truncated = received.full_len > room;
        let whole = request.flags & libc::MSG_TRUNC != 0;
        let mut result = Received {
            len: if whole { received.full_len } else { received.len },
            flags: if truncated { libc::MSG_TRUNC } else { 0 } | request.flags & libc::MSG_CMSG_CLOEXEC,
            ..Received::default()
        };
        if let Some(name) = request.name.as_deref_mut() {
            result.name_len = write_name(received.remote, domain, name);
        }
        let drops = stack.udp_drops(on_stack).unwrap_or(0);
        let mut control = ControlWriter::new(request.control.as_deref_mut());
        let interface = self.runtime.as_ref()?.index_of(received.hop.link);
        udp.asked.put(&mut control, domain, (&received, interface), || on_the_wall(received.at, now), drops);
        let (control_len, cut) = control.finish();
        result.control_len = control_len;
        result.flags |= cut;
        Some(Ok(result))
    }

    /// Sends by the stack if the way is known; `None` leaves it to the shadow.
    fn send_datagram_own(
        &mut self,
        id: SocketId,
        request: &Send<'_, '_>,
        now: Instant,
    ) -> Option<Result<usize, Errno>> {
        let socket = self.sockets.get_mut(id)?;
        let domain = socket.domain;
        let Role::Udp(udp) = &mut socket.role else { return None };
        let on_stack = udp.on_stack?;
        let more = request.flags & libc::MSG_MORE != 0;
        let was_corked = std::mem::replace(&mut udp.is_corked, more);
        if let Some(error) = self.runtime.as_mut()?.stack().udp_take_error(on_stack) {
            return Some(Err(error.into()));
        }
        let is_plain = request.flags & !(libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) == 0;
        if was_corked || udp.is_sent_by_kernel || !is_plain {
            return None;
        }
        let remote = match request.name {
            Some(name) => decode(name, domain).ok()?,
            None => udp.peer?,
        };
        let way = udp.way_to(remote, now)?;
        let payload_len: usize = request.buffers.iter().map(|buffer| buffer.len()).sum();
        if payload_len > payload_max(remote) {
            return None; // The kernel refuses it: also segments are one datagram for it so far.
        }
        let mut send = UdpSend {
            to: Some(remote),
            from: Some(way.local.ip()),
            hop: Some(way.hop),
            ..UdpSend::default()
        };
        udp.asked.apply(remote.ip(), &mut send);
        if let Some(control) = request.control.filter(|control| !control.is_empty()) {
            let interface = self.runtime.as_ref()?.index_of(way.hop.link);
            apply_udp_control(control, &mut send, interface)?;
        }
        let stack = self.runtime.as_mut()?.stack();
        let sent = match request.buffers {
            [buffer] => stack.udp_send_to(on_stack, &send, buffer, now),
            buffers => {
                udp.room.clear();
                buffers.iter().for_each(|buffer| udp.room.extend_from_slice(buffer));
                stack.udp_send_to(on_stack, &send, &udp.room, now)
            }
        };
        match sent {
            Ok(()) => Some(Ok(payload_len)),
            Err(UdpSendError::Failed(error)) => Some(Err(error.into())),
            Err(UdpSendError::Segments) => Some(fail(libc::EINVAL)),
            // The kernel fragments, waits, or knows better.
            Err(_) => None,
        }
    }
}

const EAGAIN: Errno = Errno(libc::EAGAIN);

/// Octets that Linux sends with one call at most: what fits a packet with its headers, of which IPv6 does not count its own.
fn payload_max(remote: SocketAddr) -> usize {
    const UDP_HEADER: usize = 8;
    const IPV4_HEADER: usize = 20;
    let max = usize::from(u16::MAX) - UDP_HEADER;
    if remote.ip().to_canonical().is_ipv4() { max - IPV4_HEADER } else { max }
}

/// What a call that waits has found.
enum Found {
    Nothing,
    /// Nothing but what is to be read with `MSG_ERRQUEUE`: poll(2) calls the shadow ready, and a call that receives waits on.
    Reports,
    Result(Result<Received, Errno>),
}

fn ask_shadow(fd: RawFd, request: &mut Receive<'_, '_>) -> Found {
    let mut fds = [syscall::PollFd { fd, events: libc::POLLIN | libc::POLLRDHUP, revents: 0 }];
    if !syscall::ppoll(&mut fds, Some(Duration::ZERO.into()), None).is_ok_and(|count| count > 0) {
        return Found::Nothing;
    }
    let is = |bit| fds[0].revents & bit != 0;
    match receive_of_kernel(fd, request) {
        // Calls that wait see the end of the direction that was shut down.
        Err(EAGAIN) if is(libc::POLLRDHUP) => Found::Result(Ok(Received::default())),
        // Others that have the socket were faster.
        Err(EAGAIN) if is(libc::POLLIN) => Found::Nothing,
        Err(EAGAIN) => Found::Reports,
        received => Found::Result(received),
    }
}

/// What the kernel has at a descriptor that the program does not know.
fn receive_of_kernel(fd: RawFd, request: &mut Receive<'_, '_>) -> Result<Received, Errno> {
    let mut message = syscall::MessageMut {
        buffers: &mut *request.buffers,
        name: request.name.as_deref_mut(),
        control: request.control.as_deref_mut(),
    };
    let received = syscall::receive_message(fd, &mut message, request.flags | libc::MSG_DONTWAIT)?;
    Ok(Received {
        len: received.len,
        name_len: received.name_len,
        control_len: received.control_len,
        flags: received.flags,
    })
}

pub(super) fn scatter(octets: &[u8], buffers: &mut [std::io::IoSliceMut<'_>]) {
    let mut rest = octets;
    for buffer in buffers {
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        rest = &rest[count..];
    }
}
