//! recvmsg(2) and sendmsg(2) on UDP sockets.
//!
//! Received datagrams are taken from the stack first, then from the shadow. A datagram is sent by the stack if an earlier datagram from
//! its destination has shown the route, otherwise by the shadow. Both have the same port.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::MutexGuard;

use clock::{Duration, Instant};
use stack::Stack;
use stack::udp::{UdpRecvError, UdpSend, UdpSendError};

use crate::address::{decode, write_name};
use crate::errno::{Errno, fail};
use crate::ids::SocketId;
use crate::process::{Process, State};
use crate::request::{Receive, Received, Send, Verdict};
use crate::socket::Role;
use crate::socket::control_messages::ControlWriter;
use crate::socket::learned_ways::LearnedWay;
use crate::socket::times::on_the_wall;
use crate::socket::udp::{DATAGRAM_MAX, scatter};
use crate::socket::udp_messages::apply_udp_control;
use crate::wait::{On, Stop, Waiting};

/// The shadow is asked this often by a call that waits.
const KERNEL_EVERY: Duration = Duration::from_micros(50);
/// The same, if something in its error queue says all the time that it is ready.
const LOOK_EVERY: Duration = Duration::from_millis(2);

impl Process {
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
        if request.flags & libc::MSG_DONTWAIT != 0 || state.is_nonblocking(id) {
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
        request: &Send<'_, '_>,
    ) -> Verdict<usize> {
        let now = self.now();
        match state.send_datagram_own(id, request, now) {
            Some(result) => {
                state.queue.leave(now);
                Verdict::Done(result)
            }
            None => Verdict::Kernel,
        }
    }

    /// sendmmsg(2) on a UDP socket of the stack; `None` for all else.
    pub(crate) fn datagrams(&self, fd: RawFd) -> Option<Datagrams<'_>> {
        let state = self.lock();
        let id = state.socket_of(fd)?;
        let is_it = matches!(state.sockets.get(id)?.role, Role::Udp(_)) && state.has_own_datagrams(id);
        let now = self.now();
        is_it.then_some(Datagrams { state, id, now })
    }
}

/// The datagrams of one call: the lock is taken once for all of them, and they leave together.
pub struct Datagrams<'p> {
    state: MutexGuard<'p, State>,
    id: SocketId,
    now: Instant,
}

impl Datagrams<'_> {
    /// Sends the next one.
    pub fn send(&mut self, request: &Send<'_, '_>) -> Verdict<usize> {
        let sent = self.state.send_datagram_own(self.id, request, self.now);
        sent.map_or(Verdict::Kernel, Verdict::Done)
    }
}

impl Drop for Datagrams<'_> {
    fn drop(&mut self) {
        self.state.queue.leave(self.now);
    }
}

impl State {
    /// Whether datagrams may come to a socket by the stack.
    fn has_own_datagrams(&self, id: SocketId) -> bool {
        self.sockets.get(id).is_some_and(|socket| socket.is_on_stack())
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
        let stack = self.queue.runtime.as_mut()?.stack();
        let room = request.buffers.iter().fold(0usize, |room, buffer| room.saturating_add(buffer.len()));
        let peek = request.flags & libc::MSG_PEEK != 0;
        let read = |stack: &mut Stack, out: &mut [u8]| match peek {
            true => stack.udp_peek_from(on_stack, out),
            false => stack.udp_recv_from(on_stack, out),
        };
        let received = match &mut *request.buffers {
            [buffer] => read(stack, buffer),
            buffers => {
                udp.room.resize(room.min(DATAGRAM_MAX), 0);
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
        let (remote, local, hop) = (received.remote, received.local, received.hop);
        // A forged source does not take what is for another one: the routes say which way that goes.
        if stack.leads_to(&hop, remote.ip().to_canonical()) {
            udp.learn(LearnedWay { remote, local, hop }, now);
        }
        let mut result = told_of(&received, room, request.flags);
        if let Some(name) = request.name.as_deref_mut() {
            result.name_len = write_name(received.remote, domain, name);
        }
        let drops = stack.udp_drops(on_stack).unwrap_or(0);
        let mut control = ControlWriter::new(request.control.as_deref_mut());
        let interface = self.queue.runtime.as_ref()?.index_of(received.hop.link);
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
        if let Some(error) = self.queue.runtime.as_mut()?.stack().udp_take_error(on_stack) {
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
            let interface = self.queue.runtime.as_ref()?.index_of(way.hop.link);
            apply_udp_control(control, &mut send, interface)?;
        }
        let stack = self.queue.runtime.as_mut()?.stack();
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

/// What a call with these flags and so much room is told of a datagram's length.
fn told_of(received: &stack::udp::Received, room: usize, flags: i32) -> Received {
    let truncated = received.full_len > room;
    let whole = flags & libc::MSG_TRUNC != 0;
    Received {
        len: if whole { received.full_len } else { received.len },
        flags: if truncated { libc::MSG_TRUNC } else { 0 } | flags & libc::MSG_CMSG_CLOEXEC,
        ..Received::default()
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
