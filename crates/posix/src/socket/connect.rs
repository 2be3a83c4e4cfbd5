//! connect(2) as the program sees it; `moves/to_stack.rs` makes the connection.

use std::os::fd::RawFd;
use std::sync::MutexGuard;

use clock::Instant;

use super::address::{decode, family};
use super::settings::timeout_of;
use super::{Place, Role, SocketId};
use crate::Errno;
use crate::calls::Verdict;
use crate::drive::{On, Stop, Waiting};
use crate::errno::fail;
use crate::process::{Process, State};

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
                state.join_port_on_stack(id);
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
        if !state.begin_connect(id, remote, name, now) {
            state.left_to_kernel.made += 1;
            state.keep_at_kernel(id, now);
            return Verdict::Kernel;
        }
        let flags = syscall::fcntl(fd, libc::F_GETFL, 0).unwrap_or(0);
        let Some(socket) = state.sockets.get_mut(id) else { return Verdict::Kernel };
        socket.nonblocking = flags & libc::O_NONBLOCK != 0;
        socket.send_timeout =
            if socket.touched.is_plain() { None } else { timeout_of(fd, libc::SO_SNDTIMEO) };
        self.start_watchdog(&mut state);
        if socket_is_patient(&state, id) {
            return self.wait_for_connect(state, id, libc::EINPROGRESS);
        }
        // A known route is used at once: then the SYN leaves now.
        state.hear(now);
        state.flush(now);
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

    /// Waits for the result of connecting and returns it; `late` if it takes longer than `SO_SNDTIMEO`.
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

    /// Called to send or receive on a socket whose route is not known yet: waits until the socket is a connection, or the kernel's.
    pub(crate) fn wait_routed(
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
}
