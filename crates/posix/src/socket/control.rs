//! fcntl(2), ioctl(2), getsockname(2), getpeername(2).

use std::net::SocketAddr;
use std::os::fd::RawFd;

use super::address::write_name;
use super::owner::{F_GETSIG, F_SETSIG};
use super::{Place, Role, Socket, SocketId};
use crate::Errno;
use crate::calls::Verdict;
use crate::errno::fail;
use crate::fd_table::Entry;
use crate::process::{Process, State};

/// `SIOCATMARK`.
const AT_MARK: u64 = 0x8905;
/// `SIOCOUTQNSD`.
const OUT_QUEUE_NOT_SENT: u64 = 0x894b;

impl Process {
    /// fcntl(2).
    pub(crate) fn fcntl(&self, fd: RawFd, command: i32, argument: i64) -> Verdict<i32> {
        match self.table.get(fd) {
            Entry::Internal => return Verdict::Done(fail(libc::EBADF)),
            Entry::None => return Verdict::Kernel,
            _ => {}
        }
        if let libc::F_DUPFD | libc::F_DUPFD_CLOEXEC = command {
            return self.dup_from(fd, argument, command == libc::F_DUPFD_CLOEXEC);
        }
        let mut state = self.lock();
        let Some(id) = state.socket_of(fd) else { return Verdict::Kernel };
        let Some(socket) = state.sockets.get_mut(id) else { return Verdict::Kernel };
        match command {
            // Flags and owners that parent and child have in common are the kernel's to keep.
            libc::F_SETFL | libc::F_SETOWN | F_SETSIG
                if matches!(socket.role, Role::Stream(Place::FromParent(_))) =>
            {
                self.inherit_for_kernel(state, id)
            }
            libc::F_SETFL => {
                socket.nonblocking = argument & i64::from(libc::O_NONBLOCK) != 0;
                socket.keep_status(argument as i32);
                // The placeholder's status flags are shared with all other connections.
                if socket.is_placeholder { Verdict::Done(Ok(0)) } else { Verdict::Kernel }
            }
            libc::F_GETFL if socket.is_placeholder => {
                let nonblocking = if socket.nonblocking { libc::O_NONBLOCK } else { 0 };
                Verdict::Done(Ok(libc::O_RDWR | nonblocking | socket.status()))
            }
            libc::F_SETFD => {
                let survives = argument & i64::from(libc::FD_CLOEXEC) == 0;
                let is_only_one = socket.fds().count() == 1;
                socket.may_survive_exec = survives || socket.may_survive_exec && !is_only_one;
                Verdict::Kernel
            }
            libc::F_SETOWN | F_SETSIG => {
                let set = socket.set_owner(command, argument);
                if socket.is_placeholder { Verdict::Done(set) } else { Verdict::Kernel }
            }
            libc::F_GETOWN | F_GETSIG if socket.is_placeholder => Verdict::Done(Ok(socket.owner(command))),
            _ => Verdict::Kernel,
        }
    }

    /// ioctl(2) with an int.
    pub(crate) fn ioctl(&self, fd: RawFd, request: u64, argument: &mut i32) -> Verdict<i32> {
        if self.table.get(fd) == Entry::Internal {
            return Verdict::Done(fail(libc::EBADF));
        }
        let mut state = self.lock();
        let Some(id) = state.socket_of(fd) else { return Verdict::Kernel };
        let Some(socket) = state.sockets.get_mut(id) else { return Verdict::Kernel };
        if request == libc::FIONCLEX {
            socket.may_survive_exec = true;
            return Verdict::Kernel;
        }
        if matches!(socket.role, Role::Stream(Place::FromParent(_))) {
            return self.inherit_for_kernel(state, id);
        }
        if request == libc::FIONBIO {
            socket.nonblocking = *argument != 0;
            return if socket.is_placeholder { Verdict::Done(Ok(0)) } else { Verdict::Kernel };
        }
        if let Some(done) = own_request(socket, request, argument) {
            return if socket.is_placeholder { Verdict::Done(done) } else { Verdict::Kernel };
        }
        match (request, &socket.role) {
            (_, Role::Stream(Place::Stack(connection))) => {
                let connection = *connection;
                let Some(stack) = state.stack() else { return Verdict::Done(fail(libc::ENOTCONN)) };
                let (unread, queued) = stack.queued(connection).unwrap_or_default();
                let now = self.now();
                let value = match request {
                    libc::FIONREAD => unread,
                    libc::TIOCOUTQ => queued,
                    OUT_QUEUE_NOT_SENT => {
                        stack.info(connection, now).map_or(0, |info| info.notsent_bytes as usize)
                    }
                    AT_MARK => usize::from(stack.is_at_urgent_mark(connection)),
                    _ => return Verdict::Kernel,
                };
                *argument = i32::try_from(value).unwrap_or(i32::MAX);
                Verdict::Done(Ok(0))
            }
            (libc::FIONREAD, Role::Udp(udp)) => {
                let on_stack = udp.on_stack;
                let queued =
                    on_stack.and_then(|id| state.stack()?.udp_queued(id)).map_or(0, |(next, _)| next);
                let Some(socket) = state.sockets.get_mut(id) else { return Verdict::Kernel };
                if queued == 0 {
                    socket.own_run.note_seen_at_shadow();
                    return Verdict::Kernel;
                }
                socket.own_run.note_seen();
                *argument = queued as i32;
                Verdict::Done(Ok(0))
            }
            _ => Verdict::Kernel,
        }
    }

    /// getsockname(2).
    pub(crate) fn getsockname(&self, fd: RawFd, name: &mut [u8]) -> Verdict<usize> {
        let mut state = self.lock();
        let Some(id) = state.socket_of(fd) else { return Verdict::Kernel };
        state.name_before_route(id);
        match state.endpoints(id) {
            Some((local, _)) => Verdict::Done(Ok(state.write_name_of(id, local, name))),
            None => Verdict::Kernel,
        }
    }

    /// getpeername(2).
    pub(crate) fn getpeername(&self, fd: RawFd, name: &mut [u8]) -> Verdict<usize> {
        let mut state = self.lock();
        let Some(id) = state.socket_of(fd) else { return Verdict::Kernel };
        if state.is_connecting(id) || state.is_over(id) {
            return Verdict::Done(fail(libc::ENOTCONN));
        }
        match state.endpoints(id) {
            Some((_, remote)) => Verdict::Done(Ok(state.write_name_of(id, remote, name))),
            None => Verdict::Kernel,
        }
    }
}

/// Requests about the owner of signals; the kernel's socket, if there is one, gets them, too.
fn own_request(socket: &mut Socket, request: u64, argument: &mut i32) -> Option<Result<i32, Errno>> {
    const SET_OWNER: [u64; 2] = [0x8901, 0x8902];
    const GET_OWNER: [u64; 2] = [0x8903, 0x8904];
    if request == libc::FIOASYNC {
        let others = socket.status() & !libc::O_ASYNC;
        socket.keep_status(if *argument != 0 { others | libc::O_ASYNC } else { others });
    } else if SET_OWNER.contains(&request) {
        return Some(socket.set_owner(libc::F_SETOWN, (*argument).into()));
    } else if GET_OWNER.contains(&request) {
        *argument = socket.owner(libc::F_GETOWN);
    } else {
        return None;
    }
    Some(Ok(0))
}

impl State {
    /// Both ends of our connection, or of the parent's.
    pub(crate) fn endpoints(&mut self, id: SocketId) -> Option<(SocketAddr, SocketAddr)> {
        match &self.sockets.get(id)?.role {
            Role::Stream(Place::Stack(connection)) => {
                let connection = *connection;
                self.stack()?.endpoints(connection)
            }
            Role::Stream(Place::FromParent(inherited)) => Some((inherited.local, inherited.remote)),
            _ => None,
        }
    }

    /// Whether the handshake is not over yet.
    pub(crate) fn is_connecting(&mut self, id: SocketId) -> bool {
        match self.sockets.get(id).map(|socket| &socket.role) {
            Some(Role::Stream(Place::ToStack { .. })) => true,
            Some(Role::Stream(Place::Stack(connection))) => {
                let connection = *connection;
                let state = self.stack().and_then(|stack| stack.state(connection));
                matches!(state, Some(stack::tcp::State::SynSent | stack::tcp::State::SynReceived))
            }
            _ => false,
        }
    }

    /// Whether the connection is over: Linux knows no peer then.
    pub(crate) fn is_over(&mut self, id: SocketId) -> bool {
        match self.sockets.get(id).map(|socket| &socket.role) {
            Some(Role::Stream(Place::Lost)) => true,
            Some(Role::Stream(Place::Stack(connection))) => {
                let connection = *connection;
                let state = self.stack().and_then(|stack| stack.state(connection));
                // In TIME-WAIT the connection is no longer that socket's.
                let is_over =
                    |state| matches!(state, stack::tcp::State::Closed | stack::tcp::State::TimeWait);
                state.is_none_or(is_over)
            }
            _ => false,
        }
    }

    fn write_name_of(&self, id: SocketId, address: SocketAddr, name: &mut [u8]) -> usize {
        let domain = self.sockets.get(id).map_or(libc::AF_INET, |socket| socket.domain);
        write_name(address, domain, name)
    }

    /// The error of a UDP socket that the stack has, once.
    pub(crate) fn take_udp_error(&mut self, id: SocketId) -> Option<Errno> {
        let Role::Udp(udp) = &self.sockets.get(id)?.role else { return None };
        let on_stack = udp.on_stack?;
        self.stack()?.udp_take_error(on_stack).map(Errno::from)
    }
}
