//! sendmsg(2) and its special cases, on connections.

use std::io::IoSlice;
use std::os::fd::RawFd;
use std::sync::MutexGuard;

use clock::Instant;
use stack::ConnectionId;
use stack::tcp::SendError;
use syscall::Message;

use crate::calls::stream_messages::check_stream_control;
use crate::errno::{Errno, fail};
use crate::ids::SocketId;
use crate::inside;
use crate::process::{Process, State};
use crate::request::{Send, Verdict};
use crate::socket::{Place, Role, Socket};
use crate::wait::{MOVED, On, Stop, Waiting};
use crate::waiter::Waiter;

/// Octets need not be copied, if there is a way around it.
const MSG_ZEROCOPY: i32 = 0x400_0000;

impl Process {
    /// sendmsg(2).
    pub(crate) fn send(&self, fd: RawFd, request: &Send<'_, '_>) -> Verdict<usize> {
        let state = self.lock();
        match state.socket_of(fd) {
            Some(id) => self.send_by(state, id, request),
            None => Verdict::Kernel,
        }
    }

    /// The same on a socket that was found by its number already.
    pub(crate) fn send_by(
        &self,
        mut state: MutexGuard<'_, State>,
        id: SocketId,
        request: &Send<'_, '_>,
    ) -> Verdict<usize> {
        if state.is_unsuited(id) && state.leave_unsuited(id, self.now()) {
            return Verdict::Kernel;
        }
        let Some(socket) = state.sockets.get(id) else { return Verdict::Kernel };
        match &socket.role {
            Role::Stream(Place::Stack(connection)) => {
                let connection = *connection;
                match self.send_stream(state, id, connection, request) {
                    Err(MOVED) => Verdict::Kernel,
                    sent => Verdict::Done(sent),
                }
            }
            Role::Udp(_) => self.send_datagram(state, id, request),
            Role::Stream(Place::Kernel) if socket.error.is_some() => {
                let mut state = state;
                state.take_error(id).map_or(Verdict::Kernel, |errno| Verdict::Done(Err(errno)))
            }
            Role::Stream(Place::Kernel) | Role::Listener { .. } => Verdict::Kernel,
            Role::Stream(Place::ToStack { .. }) => match self.wait_routed(state, id, request.flags) {
                Ok(()) => self.send_by(self.lock(), id, request),
                Err(errno) => Verdict::Done(Err(errno)),
            },
            Role::Stream(Place::Lost) => {
                let mut state = state;
                Verdict::Done(state.take_error(id).map_or(fail(libc::EPIPE), Err))
            }
            Role::Stream(Place::FromParent(_)) => self.inherit_for_kernel(state, id),
        }
    }

    fn send_stream(
        &self,
        state: MutexGuard<'_, State>,
        id: SocketId,
        connection: ConnectionId,
        request: &Send<'_, '_>,
    ) -> Result<usize, Errno> {
        check_stream_control(request.control)?;
        let wants_times = |socket: &Socket| request.control.is_some() || socket.settings.stamps_sends;
        let is_stamped = state.sockets.get(id).is_some_and(wants_times);
        let sent = self.send_octets(state, id, connection, request);
        if is_stamped && matches!(sent, Ok(1..)) {
            self.lock().note_send_times(id, connection, request.control, self.now());
        }
        if request.flags & MSG_ZEROCOPY != 0 && matches!(sent, Ok(1..)) {
            self.lock().note_zero_copy(id);
        }
        sent
    }

    fn send_octets(
        &self,
        mut state: MutexGuard<'_, State>,
        id: SocketId,
        connection: ConnectionId,
        request: &Send<'_, '_>,
    ) -> Result<usize, Errno> {
        let now = self.now();
        let mut progress = Progress { done: 0, all: request.buffers.iter().map(|buffer| buffer.len()).sum() };
        let result = progress.push(&mut state, connection, request, now);
        if let Some(socket) = state.sockets.get_mut(id) {
            socket.note_sent(progress.all, progress.done);
        }
        if let Some(result) = result {
            state.queue.leave(now);
            return result;
        }
        let Some(socket) = state.sockets.get(id) else { return fail(libc::EBADF) };
        if socket.nonblocking || request.flags & libc::MSG_DONTWAIT != 0 {
            // What is queued leaves, and what it is answered by makes room: the kernel's queue empties as it is filled.
            self.turn_in_passing(&mut state, now);
            if state.sockets.get(id).is_none() && progress.done == 0 {
                return Err(MOVED);
            }
            let result = progress.push(&mut state, connection, request, now);
            state.queue.leave(now);
            let sent = if progress.done > 0 { Ok(progress.done) } else { fail(libc::EAGAIN) };
            return result.unwrap_or(sent);
        }
        let timeout = socket.send_timeout;
        let deadline = timeout.map(|timeout| now + timeout);
        let waiting = Waiting { on: On::Socket(id, None), deadline, mask: None, restarts: timeout.is_none() };
        let result = self.wait(state, &waiting, &mut |state, now| {
            let Some(socket) = state.sockets.get(id) else {
                // Nothing wakes a thread that waits on a closed socket.
                return Some(state.moved_in_calls.hold(id).map_or(fail(libc::EBADF), |it| Ok(Some(it))));
            };
            // One that was to move and did not has another number.
            let connection = socket.connection().unwrap_or(connection);
            progress.push(state, connection, request, now).map(|result| result.map(|_| None))
        });
        match result {
            Ok(Ok(Some(kernel))) => {
                let sent = send_rest(kernel, request, progress.done);
                self.lock().moved_in_calls.end_call(id, Waiter::is_own);
                sent
            }
            Ok(result) => {
                let mut state = self.lock();
                let now = self.now();
                state.queue.leave(now);
                drop(state);
                if progress.done > 0 { Ok(progress.done) } else { result.map(|_| 0) }
            }
            Err(_) if progress.done > 0 => Ok(progress.done),
            Err(Stop::TimedOut) => fail(libc::EAGAIN),
            Err(Stop::Interrupted) => fail(libc::EINTR),
        }
    }

    /// What was sent with `MSG_MORE` is followed by nothing.
    pub(crate) fn expect_no_more(&self, id: SocketId) {
        let mut state = self.lock();
        let Some(connection) = state.sockets.get(id).and_then(|socket| socket.connection()) else { return };
        let now = self.now();
        if let Some(stack) = state.queue.stack() {
            stack.expect_no_more(connection, now);
        }
        state.queue.leave(now);
    }
}

/// The connection has become the kernel's after a call that waits had sent `done` octets: the rest goes that way. An error is for the next call
/// to tell, if this one has sent something.
fn send_rest(fd: RawFd, request: &Send<'_, '_>, done: usize) -> Result<usize, Errno> {
    let mut skip = done;
    let mut rest = Vec::with_capacity(request.buffers.len());
    for buffer in request.buffers {
        let skipped = skip.min(buffer.len());
        rest.push(IoSlice::new(&buffer[skipped..]));
        skip -= skipped;
    }
    let message = Message { buffers: &rest, ..Message::default() };
    let flags = request.flags | libc::MSG_NOSIGNAL; // Whoever asked raises the signal, if there is an error to tell.
    match inside::outside_until_done(|| syscall::send_message(fd, &message, flags)) {
        Ok(sent) => Ok(done + sent),
        Err(_) if done > 0 => Ok(done),
        Err(error) => Err(error.into()),
    }
}

/// What one call has sent by now.
struct Progress {
    done: usize,
    all: usize,
}

impl Progress {
    /// Queues what there is room for; `None` if the call is to wait for more room.
    fn push(
        &mut self,
        state: &mut State,
        connection: ConnectionId,
        request: &Send<'_, '_>,
        now: Instant,
    ) -> Option<Result<usize, Errno>> {
        let Some(stack) = state.queue.stack() else {
            return Some(if self.done > 0 { Ok(self.done) } else { fail(libc::ECONNRESET) });
        };
        // After sending a part, the next call reports the error, which it finds only if it is not taken here.
        if self.done > 0 && stack.readiness(connection).is_none_or(|ready| ready.error) {
            return Some(Ok(self.done));
        }
        if self.all == 0 {
            return Some(match stack.send(connection, &[], now) {
                Ok(_) | Err(SendError::WouldBlock | SendError::Connecting) => Ok(0),
                Err(error) => Err(error.into()),
            });
        }
        let mut skip = self.done;
        for buffer in request.buffers {
            if skip >= buffer.len() {
                skip -= buffer.len();
                continue;
            }
            let data = &buffer[std::mem::take(&mut skip)..];
            let is_urgent = request.flags & libc::MSG_OOB != 0;
            let taken = match is_urgent {
                true => stack.send_urgent(connection, data, now),
                false => stack.send(connection, data, now),
            };
            match taken {
                Ok(count) => {
                    self.done += count;
                    if count < data.len() {
                        return None;
                    }
                }
                Err(SendError::WouldBlock | SendError::Connecting) => return None,
                Err(_) if self.done > 0 => return Some(Ok(self.done)),
                Err(error) => return Some(Err(error.into())),
            }
        }
        if self.done < self.all {
            return None;
        }
        if request.flags & libc::MSG_EOR != 0 {
            stack.end_record(connection);
        }
        if request.flags & libc::MSG_MORE != 0 {
            stack.expect_more(connection);
        }
        Some(Ok(self.done))
    }
}
