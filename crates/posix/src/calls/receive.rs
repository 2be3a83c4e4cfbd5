//! recvmsg(2) and its special cases, on connections.

use std::io::IoSliceMut;
use std::os::fd::RawFd;
use std::sync::MutexGuard;

use clock::Instant;
use stack::ConnectionId;
use stack::tcp::RecvError;
use syscall::MessageMut;

use crate::errno::{Errno, fail};
use crate::ids::SocketId;
use crate::process::{Process, State};
use crate::request::{Receive, Received, Verdict};
use crate::socket::{Place, Role};
use crate::wait::{MOVED, On, Stop, Waiting};
use crate::waiter::Waiter;
use crate::{batch, inside};

impl Process {
    /// recvmsg(2).
    pub(crate) fn receive(&self, fd: RawFd, request: &mut Receive<'_, '_>) -> Verdict<Received> {
        let mut state = self.lock();
        let Some(id) = state.socket_of(fd) else { return Verdict::Kernel };
        // What was noted for these two calls stays behind when a connection moves.
        let may_leave = request.flags & (libc::MSG_OOB | libc::MSG_ERRQUEUE) == 0;
        if may_leave && state.is_unsuited(id) && state.leave_unsuited(id, self.now()) {
            return Verdict::Kernel;
        }
        let Some(socket) = state.sockets.get(id) else { return Verdict::Kernel };
        match &socket.role {
            Role::Stream(Place::Stack(connection)) => {
                let connection = *connection;
                match self.receive_stream(state, id, connection, request) {
                    Err(MOVED) => Verdict::Kernel,
                    received => Verdict::Done(received.map(|received| {
                        let flags = received.flags | request.flags & libc::MSG_CMSG_CLOEXEC;
                        Received { flags, ..received }
                    })),
                }
            }
            Role::Udp(_) => self.receive_datagram(state, id, request),
            Role::Stream(Place::Kernel) => {
                state.take_error(id).map_or(Verdict::Kernel, |errno| Verdict::Done(Err(errno)))
            }
            Role::Listener { .. } => Verdict::Kernel,
            Role::Stream(Place::ToStack { .. }) => match self.wait_routed(state, id, request.flags) {
                Ok(()) => self.receive(fd, request),
                Err(errno) => Verdict::Done(Err(errno)),
            },
            Role::Stream(Place::Lost) => {
                Verdict::Done(state.take_error(id).map_or(fail(libc::ENOTCONN), Err))
            }
            Role::Stream(Place::FromParent(_)) => self.inherit_for_kernel(state, id),
        }
    }

    fn receive_stream(
        &self,
        mut state: MutexGuard<'_, State>,
        id: SocketId,
        connection: ConnectionId,
        request: &mut Receive<'_, '_>,
    ) -> Result<Received, Errno> {
        if request.flags & libc::MSG_ERRQUEUE != 0 {
            return state.receive_completion(id, request);
        }
        if request.flags & libc::MSG_OOB != 0 {
            return state.receive_urgent(connection, request);
        }
        let mut received = match self.receive_octets(state, id, connection, request)? {
            Got::Here(received) => received,
            Got::AtKernel(received) => return Ok(received),
        };
        if let Some(control) = request.control.as_deref_mut() {
            self.lock().tell_with_stream(id, connection, control, &mut received, self.now());
        }
        Ok(received)
    }

    fn receive_octets(
        &self,
        mut state: MutexGuard<'_, State>,
        id: SocketId,
        connection: ConnectionId,
        request: &mut Receive<'_, '_>,
    ) -> Result<Got, Errno> {
        let wanted: usize = request.buffers.iter().map(|buffer| buffer.len()).sum();
        let now = self.now();
        let least = state.least_to_receive(connection, wanted, request.flags);
        let mut progress = Progress { id, done: 0, least };
        if let Some(result) = progress.take(&mut state, connection, request, now) {
            if !batch::is_open(now) {
                state.queue.flush_what_is_due(now); // The peer may wait for the window that this opened.
            }
            return result.map(Got::Here);
        }
        let Some(socket) = state.sockets.get(id) else { return fail(libc::EBADF) };
        let timeout = socket.receive_timeout;
        if socket.nonblocking || request.flags & libc::MSG_DONTWAIT != 0 {
            if self.asks_again(&mut state, id) {
                self.turn_in_passing(&mut state, now);
                if state.sockets.get(id).is_none() && progress.done == 0 {
                    return Err(MOVED);
                }
                if let Some(result) = progress.take(&mut state, connection, request, now) {
                    return result.map(Got::Here);
                }
            }
            return match progress.done {
                0 => fail(libc::EAGAIN),
                _ => Ok(Got::Here(progress.result())),
            };
        }
        let deadline = timeout.map(|timeout| now + timeout);
        let waiting = Waiting { on: On::Socket(id, None), deadline, mask: None, restarts: timeout.is_none() };
        let result = self.wait(state, &waiting, &mut |state, now| {
            let Some(socket) = state.sockets.get(id) else {
                // Nothing wakes a thread that waits on a closed socket.
                return Some(state.moved_in_calls.hold(id).map_or(fail(libc::EBADF), |it| Ok(Some(it))));
            };
            // One that was to move and did not has another number.
            let connection = socket.connection().unwrap_or(connection);
            progress.take(state, connection, request, now).map(|result| result.map(|_| None))
        });
        match result {
            Ok(Ok(Some(kernel))) => {
                let received = receive_rest(kernel, request, progress.taken(request.flags));
                self.lock().moved_in_calls.end_call(id, Waiter::is_own);
                received
            }
            Ok(Ok(None)) => Ok(Got::Here(progress.result())),
            Ok(Err(_)) | Err(_) if progress.done > 0 => Ok(Got::Here(progress.result())),
            Ok(Err(errno)) => Err(errno),
            Err(Stop::TimedOut) => fail(libc::EAGAIN),
            Err(Stop::Interrupted) => fail(libc::EINTR),
        }
    }
}

/// What a call has received, and where.
enum Got {
    Here(Received),
    /// The connection has become the kernel's meanwhile.
    AtKernel(Received),
}

/// The connection has become the kernel's after a call that waits for more had taken `done` octets: the rest is there. An error is for the next
/// call to tell, if this one has something.
fn receive_rest(fd: RawFd, request: &mut Receive<'_, '_>, done: usize) -> Result<Got, Errno> {
    let mut skip = done;
    let mut rest = Vec::with_capacity(request.buffers.len());
    for buffer in request.buffers.iter_mut() {
        let skipped = skip.min(buffer.len());
        rest.push(IoSliceMut::new(&mut buffer[skipped..]));
        skip -= skipped;
    }
    let (name, control) = (request.name.as_deref_mut(), request.control.as_deref_mut());
    let mut message = MessageMut { buffers: &mut rest, name, control };
    let received = inside::outside_until_done(|| syscall::receive_message(fd, &mut message, request.flags));
    match received {
        Ok(syscall::MessageReceived { len, name_len, control_len, flags }) => {
            Ok(Got::AtKernel(Received { len: done + len, name_len, control_len, flags }))
        }
        Err(_) if done > 0 => Ok(Got::Here(Received { len: done, ..Received::default() })),
        Err(error) => Err(error.into()),
    }
}

/// What one call has received by now.
struct Progress {
    id: SocketId,
    done: usize,
    /// It returns with less only at the end of the stream, after an error, or if it may not wait.
    least: usize,
}

impl Progress {
    fn result(&self) -> Received {
        Received { len: self.done, ..Received::default() }
    }

    /// What the connection does not have any more: who only looks begins anew.
    fn taken(&self, flags: i32) -> usize {
        if flags & libc::MSG_PEEK == 0 { self.done } else { 0 }
    }

    /// Takes what there is; `None` if the call is to wait for more.
    fn take(
        &mut self,
        state: &mut State,
        connection: ConnectionId,
        request: &mut Receive<'_, '_>,
        now: Instant,
    ) -> Option<Result<Received, Errno>> {
        let result = self.take_octets(state, connection, request, now);
        if result.is_some()
            && request.flags & (libc::MSG_PEEK | libc::MSG_TRUNC) == 0
            && let Some(socket) = state.sockets.get_mut(self.id)
        {
            socket.note_received(self.done);
        }
        result
    }

    fn take_octets(
        &mut self,
        state: &mut State,
        connection: ConnectionId,
        request: &mut Receive<'_, '_>,
        now: Instant,
    ) -> Option<Result<Received, Errno>> {
        let peek = request.flags & libc::MSG_PEEK != 0;
        let Some(stack) = state.queue.stack() else {
            let is_taken = self.done > 0 && !peek;
            return Some(if is_taken { Ok(self.result()) } else { fail(libc::ECONNRESET) });
        };
        let discard = request.flags & libc::MSG_TRUNC != 0 && !peek;
        if peek {
            self.done = 0;
        }
        let mut skip = self.done;
        for buffer in request.buffers.iter_mut() {
            if skip >= buffer.len() {
                skip -= buffer.len();
                continue;
            }
            // A later read passes the mark, and notices it because reading stops there.
            if self.done > 0 && !peek && stack.is_at_urgent_mark(connection) {
                return Some(Ok(self.result()));
            }
            // Whoever asks for more then takes the connection's error, which is for the next call to tell.
            if self.done > 0 && !peek && stack.received(connection).is_empty() {
                break;
            }
            let room = &mut buffer[std::mem::take(&mut skip)..];
            let taken = match (peek, discard) {
                (true, _) => stack.peek(connection, self.done, room),
                (false, true) => discard_octets(stack, connection, room.len(), now),
                (false, false) => stack.recv(connection, room, now),
            };
            match taken {
                // The end of the stream, or of what there is to look at.
                Ok(0) if peek && self.done > 0 => break,
                Ok(0) => return Some(Ok(self.result())),
                Ok(count) => {
                    self.done += count;
                    if count < room.len() {
                        break;
                    }
                }
                Err(RecvError::WouldBlock) => break,
                Err(_) if self.done > 0 => return Some(Ok(self.result())),
                Err(error) => return Some(Err(error.into())),
            }
        }
        let wants_nothing = request.buffers.iter().all(|buffer| buffer.is_empty());
        if self.done >= self.least || (wants_nothing && is_readable(stack, connection)) {
            return Some(Ok(self.result()));
        }
        // With less than asked for: only the end is a reason to return.
        let is_over = stack.readiness(connection).is_none_or(|ready| ready.read_closed || ready.error);
        (self.done > 0 && is_over).then(|| Ok(self.result()))
    }
}

/// A call for zero octets still reports whether there are any.
fn is_readable(stack: &stack::Stack, connection: ConnectionId) -> bool {
    stack.readiness(connection).is_none_or(|ready| ready.readable)
}

/// `MSG_TRUNC` on a stream: the octets are dropped.
fn discard_octets(
    stack: &mut stack::Stack,
    connection: ConnectionId,
    most: usize,
    now: Instant,
) -> Result<usize, RecvError> {
    let count = stack.received(connection).len().min(most);
    if count == 0 {
        return stack.peek(connection, 0, &mut [0]);
    }
    stack.consume(connection, count, now);
    Ok(count)
}

impl State {
    /// `sock_rcvlowat`: how much makes a call return.
    fn least_to_receive(&mut self, connection: ConnectionId, wanted: usize, flags: i32) -> usize {
        let options = self.queue.stack().and_then(|stack| stack.options(connection));
        let low_water = options.map_or(1, |options| options.receive_low_water as usize);
        if flags & libc::MSG_WAITALL != 0 { wanted.max(1) } else { low_water.clamp(1, wanted.max(1)) }
    }
}
