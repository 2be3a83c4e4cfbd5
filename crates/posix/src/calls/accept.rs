//! accept4(2).

use std::os::fd::{AsRawFd, RawFd};

use clock::Instant;
use stack::ListenerId;

use crate::address::write_name;
use crate::errno::{Errno, fail};
use crate::ids::SocketId;
use crate::process::{Process, State};
use crate::request::Verdict;
use crate::socket::kernel_only::has_adopted;
use crate::socket::{Place, Role, Socket};
use crate::wait::{On, Stop, Waiting};

/// The shadow is asked this often by a call that waits.
const KERNEL_EVERY: clock::Duration = clock::Duration::from_micros(50);

/// Told among ourselves: the kernel's own call is to go on. No errno has this number.
const LEFT_TO_KERNEL: i32 = i32::MAX;

/// What accept4(2) returns.
type Accepted = Result<(RawFd, usize), Errno>;

impl Process {
    /// accept4(2).
    pub(crate) fn accept(
        &self,
        fd: RawFd,
        mut name: Option<&mut [u8]>,
        flags: i32,
    ) -> Verdict<(RawFd, usize)> {
        let mut state = self.lock();
        let Some(id) = state.socket_of(fd) else { return Verdict::Kernel };
        let now = self.now();
        match state.sockets.get(id).map(|socket| &socket.role) {
            Some(Role::Listener { .. }) => {}
            Some(Role::Stream(Place::Kernel) | Role::Udp(_)) | None => return Verdict::Kernel,
            Some(_) => return Verdict::Done(fail(libc::EINVAL)),
        }
        if !state.claim_to_read(id, now) && !state.sockets.get(id).is_some_and(has_adopted) {
            return Verdict::Kernel;
        }
        if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
            return Verdict::Done(fail(libc::EINVAL));
        }
        self.start_watchdog(&mut state);
        let of_kernel = state.accept_in_shadows_turn(id, name.as_deref_mut(), flags);
        if let Some(accepted) = of_kernel.or_else(|| state.accept_own(id, name.as_deref_mut(), flags)) {
            return Verdict::Done(accepted);
        }
        let Some(socket) = state.sockets.get(id) else { return Verdict::Kernel };
        if socket.nonblocking {
            return Verdict::Done(self.accept_now(state, id, fd, name, flags));
        }
        let timeout = socket.receive_timeout;
        let deadline = timeout.map(|timeout| now + timeout);
        let on = On::Socket(id, Some(libc::POLLIN));
        let waiting = Waiting { on, deadline, mask: None, restarts: timeout.is_none() };
        let mut asked_at = Instant::ZERO;
        let result = self.wait(state, &waiting, &mut |state, now| {
            state.accept_own(id, name.as_deref_mut(), flags).or_else(|| {
                let is_time = now.since(asked_at) >= KERNEL_EVERY;
                asked_at = if is_time { now } else { asked_at };
                let Some(socket) = state.sockets.get(id) else { return Some(fail(libc::EBADF)) };
                // The program may have closed the number meanwhile.
                let own = socket.fd();
                let is_known = fd == own;
                let mut accept = |state: &mut State| match state.sockets.get(id) {
                    Some(socket) if socket.is_common && is_known => fail(LEFT_TO_KERNEL),
                    _ => state.accept_of_kernel(own, name.as_deref_mut(), flags),
                };
                (is_time && has_kernel_connection(own)).then(|| accept(state))
            })
        });
        if result == Ok(fail(LEFT_TO_KERNEL)) {
            // Another process may be faster: then the call waits in the kernel, and must not hold the lock. What comes to the stack
            // meanwhile is for others that have the listener.
            return Verdict::Kernel;
        }
        Verdict::Done(result.unwrap_or_else(|stop| match stop {
            Stop::TimedOut => fail(libc::EAGAIN),
            Stop::Interrupted => fail(libc::EINTR),
        }))
    }

    /// accept4(2) on a listener that we know succeeded by the kernel.
    pub(crate) fn on_accept(&self) {
        self.lock().left_to_kernel.accepted += 1;
    }

    /// What a non-blocking socket has beside the stack's queue: another look at the devices for who asks twice, and the
    /// kernel's queue.
    fn accept_now(
        &self,
        mut state: std::sync::MutexGuard<'_, State>,
        id: SocketId,
        fd: RawFd,
        mut name: Option<&mut [u8]>,
        flags: i32,
    ) -> Accepted {
        if self.asks_again(&mut state, id) {
            let now = self.now();
            self.turn_in_passing(&mut state, now);
            if let Some(accepted) = state.accept_own(id, name.as_deref_mut(), flags) {
                return accepted;
            }
        }
        state.accept_of_kernel(fd, name, flags)
    }
}

fn has_kernel_connection(fd: RawFd) -> bool {
    let mut fds = [crate::waiter::readable(fd)];
    syscall::ppoll(&mut fds, Some(std::time::Duration::ZERO), None).is_ok_and(|count| count > 0)
}

impl State {
    /// A connection that came to the shadow.
    fn accept_of_kernel(&mut self, fd: RawFd, name: Option<&mut [u8]>, flags: i32) -> Accepted {
        let accepted = syscall::accept(fd, name, flags)?;
        self.left_to_kernel.accepted += 1;
        Ok(accepted)
    }

    /// A connection that came to the shadow, if that is to be asked before the stack. Another process could take it first, and the
    /// call would wait: where others may have the listener, only one that does not block has turns.
    fn accept_in_shadows_turn(
        &mut self,
        id: SocketId,
        name: Option<&mut [u8]>,
        flags: i32,
    ) -> Option<Accepted> {
        let socket = self.sockets.get_mut(id).filter(|socket| socket.own_run.is_shadows_turn())?;
        socket.own_run.begin();
        let fd = socket.fd();
        let may_wait = socket.is_common && !socket.nonblocking;
        if may_wait || !has_kernel_connection(fd) {
            return None;
        }
        Some(self.accept_of_kernel(fd, name, flags)).filter(|accepted| *accepted != fail(libc::EAGAIN))
    }

    /// A connection of the stack's, or one that another process left to us.
    fn accept_own(&mut self, id: SocketId, name: Option<&mut [u8]>, flags: i32) -> Option<Accepted> {
        let socket = self.sockets.get_mut(id)?;
        let Role::Listener { on_stack, adopted, .. } = &mut socket.role else {
            return Some(fail(libc::EINVAL));
        };
        if let Some(connection) = adopted.pop_front() {
            let fd = match syscall::dup_from(connection.as_raw_fd(), 0, flags & libc::SOCK_CLOEXEC != 0) {
                Ok(fd) => fd,
                Err(error) => {
                    adopted.push_front(connection); // It waits until there is a number for it.
                    return Some(Err(error.into()));
                }
            };
            socket.stall.note_taken();
            let taken = name_adopted(fd, name, flags);
            crate::descriptors::internal::close(connection);
            self.left_to_kernel.accepted += u64::from(taken.is_ok());
            return Some(taken);
        }
        let listener = (*on_stack)?;
        if self.queue.stack()?.accept_queue(listener)?.0 == 0 {
            return None;
        }
        Some(self.accept_of_stack(id, listener, name, flags))
    }

    fn accept_of_stack(
        &mut self,
        id: SocketId,
        listener: ListenerId,
        name: Option<&mut [u8]>,
        flags: i32,
    ) -> Accepted {
        // The descriptor first: a connection that finds none keeps its place in the queue.
        let fd = self.new_descriptor(flags & libc::SOCK_CLOEXEC != 0)?;
        let from = self.sockets.get(id).ok_or(Errno(libc::EBADF))?;
        let (domain, settings, timeout) = (from.domain, from.settings.clone(), from.receive_timeout);
        let Some(connection) = self.queue.stack().and_then(|stack| stack.tcp_accept(listener)) else {
            syscall::close(fd)?;
            return fail(libc::EAGAIN);
        };
        if let Some(listener) = self.sockets.get_mut(id) {
            listener.stall.note_taken();
            listener.own_run.note_taken();
        }
        let mut socket = Socket::new(Role::Stream(Place::Stack(connection)), domain, fd);
        socket.is_placeholder = true;
        socket.may_survive_exec = flags & libc::SOCK_CLOEXEC == 0;
        socket.nonblocking = flags & libc::SOCK_NONBLOCK != 0;
        socket.send_timeout = settings.send_timeout();
        socket.settings = settings;
        socket.receive_timeout = timeout;
        let accepted = self.insert(socket);
        let Some(stack) = self.queue.stack() else { return fail(libc::EAGAIN) };
        let Some(accepted) = accepted else {
            stack.abort(connection, Instant::ZERO);
            syscall::close(fd)?;
            return fail(libc::EMFILE);
        };
        stack.set_token(connection, accepted.to_bits());
        let remote = stack.endpoints(connection).map(|(_, remote)| remote);
        let name_len = match (name, remote) {
            (Some(name), Some(remote)) => write_name(remote, domain, name),
            _ => 0,
        };
        Ok((fd, name_len))
    }
}

/// Prepares `fd`, a connection of the kernel's that has waited at a higher number, for the program.
fn name_adopted(fd: RawFd, name: Option<&mut [u8]>, flags: i32) -> Accepted {
    let status = if flags & libc::SOCK_NONBLOCK != 0 { libc::O_NONBLOCK } else { 0 };
    syscall::fcntl(fd, libc::F_SETFL, i64::from(libc::O_RDWR | status))?;
    match name.map_or(Ok(0), |name| syscall::getpeername(fd, name)) {
        Ok(name_len) => Ok((fd, name_len)),
        Err(_) => {
            // Its peer has reset it meanwhile, and the socket no longer knows the peer.
            syscall::close(fd)?;
            fail(libc::ECONNABORTED)
        }
    }
}
