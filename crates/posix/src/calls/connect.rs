//! connect(2) as the program sees it; `moves/to_stack.rs` makes the connection.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::MutexGuard;

use clock::{Duration, Instant};

use crate::address::{decode, family};
use crate::broker_side::{MadeBecause, Peer, Purpose};
use crate::errno::{Errno, fail};
use crate::ids::SocketId;
use crate::process::{Process, State};
use crate::request::Verdict;
use crate::socket::settings::timeout_of;
use crate::socket::{Place, Role};
use crate::wait::Stop;
use crate::wait::connecting::socket_is_patient;

/// How often programs that make many connections ask whether the broker has said anything of ways.
const WAYS_HEARD_EVERY: Duration = Duration::from_millis(1);

impl Process {
    /// connect(2).
    pub(crate) fn connect(&self, fd: RawFd, name: &[u8]) -> Verdict<()> {
        let mut state = self.lock();
        let Some(id) = state.socket_of(fd) else { return Verdict::Kernel };
        let Some(socket) = state.sockets.get(id) else { return Verdict::Kernel };
        match &socket.role {
            Role::Stream(Place::Kernel) => self.connect_fresh(state, id, fd, name),
            Role::Stream(Place::Stack(_) | Place::ToStack { .. } | Place::Lost) => {
                self.connect_again(state, id, name)
            }
            Role::Stream(Place::FromParent(_)) => Verdict::Done(fail(libc::EISCONN)),
            Role::Udp(_) => {
                let now = self.now();
                state.on_udp_connect(id, now);
                let connected = syscall::connect(fd, name).map_err(Errno::from);
                state.on_udp_connected(id);
                Verdict::Done(connected)
            }
            Role::Listener { .. } => {
                if family(name) == Some(libc::AF_UNSPEC) {
                    state.listen_no_more(id, self.now());
                }
                Verdict::Kernel
            }
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
        if let Err(why) = state.begin_connect(id, remote, name, now) {
            state.left_to_kernel.note_made(why);
            state.sockets.get_mut(id).into_iter().for_each(|socket| socket.touched.note_named());
            state.keep_at_kernel(id);
            return Verdict::Kernel;
        }
        let Some(socket) = state.sockets.get_mut(id) else { return Verdict::Kernel };
        socket.send_timeout = None;
        if !socket.touched.is_plain() {
            let flags = syscall::fcntl(fd, libc::F_GETFL, 0).unwrap_or(0);
            socket.nonblocking = flags & libc::O_NONBLOCK != 0;
            socket.send_timeout = timeout_of(fd, libc::SO_SNDTIMEO);
        }
        self.start_watchdog(&mut state);
        if socket_is_patient(&state, id) {
            return self.wait_for_connect(state, id, libc::EINPROGRESS);
        }
        // A known route is used at once: then the SYN leaves now.
        state.hear_what_has_come(now);
        state.queue.flush(now);
        Verdict::Done(match state.sockets.get(id).map(|socket| &socket.role) {
            Some(Role::Stream(Place::Lost)) => Err(state.end_attempt(id, now)),
            // The kernel was ready at once, as it is with TCP_FASTOPEN_CONNECT.
            Some(Role::Stream(Place::Kernel)) => Ok(()),
            _ => fail(libc::EINPROGRESS),
        })
    }

    /// connect(2) of a socket that was connected, or was to be.
    fn connect_again(&self, mut state: MutexGuard<'_, State>, id: SocketId, name: &[u8]) -> Verdict<()> {
        let now = self.now();
        let Some(family) = family(name) else { return Verdict::Done(fail(libc::EINVAL)) };
        if family == libc::AF_UNSPEC {
            state.disconnect(id, now);
            state.queue.leave(now);
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

    /// Waits for the result of connecting and returns it; `late` if it takes longer than `SO_SNDTIMEO`.
    fn wait_for_connect(&self, state: MutexGuard<'_, State>, id: SocketId, late: i32) -> Verdict<()> {
        match self.wait_connected(state, id, |state, now| state.conclude_call(id, now)) {
            Ok(verdict) => verdict,
            Err(Stop::TimedOut) => Verdict::Done(fail(late)),
            Err(Stop::Interrupted) => Verdict::Done(fail(libc::EINTR)),
        }
    }
}

impl State {
    /// The same for a call that has waited. The socket may be the kernel's by now.
    fn conclude_call(&mut self, id: SocketId, now: Instant) -> Verdict<()> {
        match self.sockets.get(id) {
            Some(_) => Verdict::Done(self.conclude_connect(id, now)),
            None if self.moved_in_calls.is_used(id) => Verdict::Done(Ok(())), // What moved was connected.
            None => Verdict::Kernel, // It connects: its own call waits on.
        }
    }

    /// The handshake is over, as far as it came: what connect(2) has to say of it. After a failure the socket is as good as new.
    fn conclude_connect(&mut self, id: SocketId, now: Instant) -> Result<(), Errno> {
        let Some(socket) = self.sockets.get_mut(id) else { return Ok(()) };
        socket.is_connecting = false;
        if matches!(socket.role, Role::Stream(Place::Kernel)) && socket.error.is_some() {
            return fail(libc::EPIPE); // Another thread disconnected it meanwhile.
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

    /// connect(2) is about to connect the shadow: the kernel chooses what comes, and the stack has no part in it any more. What waits
    /// is to be read all the same, whoever sent it: the kernel gets it now, as later it would refuse what is not the peer's.
    pub(crate) fn on_udp_connect(&mut self, id: SocketId, now: Instant) {
        let Some(socket) = self.sockets.get_mut(id) else { return };
        let Role::Udp(udp) = &mut socket.role else { return };
        udp.peer = None;
        socket.unclaimable = None; // It may get another address.
        if self.move_datagrams(id, now)
            && let Some(attachment) = self.attachment()
        {
            attachment.settle();
        }
    }

    /// Begins to look for the way to a peer; false if the kernel is to connect.
    pub(crate) fn begin_connect(
        &mut self,
        id: SocketId,
        remote: SocketAddr,
        name: &[u8],
        now: Instant,
    ) -> Result<(), MadeBecause> {
        let ip = remote.ip();
        if ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || remote.port() == 0 {
            return Err(MadeBecause::ThisHost);
        }
        if self.sockets.get(id).is_none_or(|socket| socket.is_common) {
            return Err(MadeBecause::Socket);
        }
        if !self.attachment.as_ref().is_some_and(|it| it.wants(Purpose::Outgoing)) {
            return Err(MadeBecause::Profile);
        }
        self.attach(now);
        if now >= self.heard_at + WAYS_HEARD_EVERY {
            self.hear(now); // A way that is known may not be one any more.
        }
        if self.queue.runtime.is_none() {
            return Err(MadeBecause::NoQueue);
        }
        if let Some(why) = self.makes_unsuited() {
            return Err(why);
        }
        let socket = self.sockets.get(id).ok_or(MadeBecause::Socket)?;
        let (fd, domain) = (socket.fd(), socket.domain);
        if socket.kernel_only.is_some() || !socket.touched.is_plain() && has_route_of_its_own(fd) {
            return Err(MadeBecause::Socket);
        }
        let from = socket.local_of_shadow().map(|local| local.ip()).filter(|ip| !ip.is_unspecified());
        let peer = Peer { ip, name, domain };
        let attachment = self.attachment().ok_or(MadeBecause::Broker)?;
        let request = attachment.begin_route(peer, from, now)?;
        self.take_from_kernel(id);
        let socket = self.sockets.get_mut(id).ok_or(MadeBecause::Socket)?;
        socket.role = Role::Stream(Place::ToStack { request, remote });
        socket.is_connecting = true;
        socket.error = None;
        self.queue.awaited_routes.push(request, id, now);
        Ok(())
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
