//! accept4(2).

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::MutexGuard;

use clock::{Duration, Instant};
use stack::{ConnectionId, ListenerId};

use crate::address::write_name;
use crate::descriptors::internal;
use crate::errno::{Errno, fail};
use crate::ids::SocketId;
use crate::inside;
use crate::moves::unserved::run_delay;
use crate::process::{Process, State};
use crate::request::Verdict;
use crate::socket::kernel_only::has_adopted;
use crate::socket::{Place, Role, Socket};
use crate::wait::{On, Stop, Waiting};

/// The shadow is asked this often by a call that waits.
const KERNEL_EVERY: clock::Duration = clock::Duration::from_micros(50);

const EAGAIN: Errno = Errno(libc::EAGAIN);

/// What accept4(2) returns.
type Accepted = Result<(RawFd, usize), Errno>;

/// What accept4(2) was asked.
struct Asked<'n> {
    fd: RawFd,
    name: Option<&'n mut [u8]>,
    flags: i32,
}

/// What a call that waits has found.
enum Found {
    Accepted(Accepted),
    /// The shadow has a connection: to be asked by the number that the call has, or by this one where the program has closed that meanwhile.
    AtShadow(Option<OwnedFd>),
}

impl Process {
    /// accept4(2).
    pub(crate) fn accept(&self, fd: RawFd, name: Option<&mut [u8]>, flags: i32) -> Verdict<(RawFd, usize)> {
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
        let mut asked = Asked { fd, name, flags };
        if state.is_shadows_turn(id) {
            drop(state);
            match self.accept_of_kernel(None, &mut asked) {
                Err(EAGAIN) => state = self.lock(),
                accepted => return Verdict::Done(accepted),
            }
        }
        if let Some(accepted) = state.accept_own(id, &mut asked, now) {
            return Verdict::Done(accepted);
        }
        if state.is_nonblocking(id) {
            return self.accept_now(state, id, &mut asked).map_or(Verdict::Kernel, Verdict::Done);
        }
        Verdict::Done(self.accept_patiently(state, id, &mut asked))
    }

    /// Waits until the stack or the shadow has a connection.
    fn accept_patiently<'p>(
        &'p self,
        mut state: MutexGuard<'p, State>,
        id: SocketId,
        asked: &mut Asked<'_>,
    ) -> Accepted {
        let timeout = state.sockets.get(id).and_then(|socket| socket.receive_timeout);
        let deadline = timeout.map(|timeout| self.now() + timeout);
        let on = On::Socket(id, Some(libc::POLLIN));
        let waiting = Waiting { on, deadline, mask: None, restarts: timeout.is_none() };
        let mut asked_at = Instant::ZERO;
        loop {
            let found = self.wait(state, &waiting, &mut |state, now| {
                let own = state.accept_own(id, asked, now).map(Found::Accepted);
                own.or_else(|| state.find_at_shadow(id, asked, &mut asked_at, now))
            });
            match found {
                Ok(Found::Accepted(accepted)) => return accepted,
                Ok(Found::AtShadow(other)) => match self.accept_of_kernel(other, asked) {
                    Err(EAGAIN) => state = self.lock(),
                    accepted => return accepted,
                },
                Err(Stop::TimedOut) => return Err(EAGAIN),
                Err(Stop::Interrupted) => return fail(libc::EINTR),
            }
            if state.is_nonblocking(id) {
                return Err(EAGAIN); // Another process has made it so meanwhile.
            }
        }
    }

    /// A connection that came to the shadow. Another process may be faster, and then a call at a socket that blocks waits in the kernel: never
    /// with the lock. What comes to the stack meanwhile is for others that have the listener.
    fn accept_of_kernel(&self, other: Option<OwnedFd>, asked: &mut Asked<'_>) -> Accepted {
        let fd = other.as_ref().map_or(asked.fd, AsRawFd::as_raw_fd);
        let accept = || syscall::accept(fd, asked.name.as_deref_mut(), asked.flags);
        let accepted = inside::outside_until_done(accept).map_err(Errno::from);
        other.into_iter().for_each(internal::close);
        if accepted.is_ok() {
            self.on_accept();
        }
        accepted
    }

    /// accept4(2) on a listener that we know succeeded by the kernel.
    pub(crate) fn on_accept(&self) {
        self.lock().left_to_kernel.accepted += 1;
    }

    /// What a non-blocking socket has beside the stack's queue: another look at the devices for who asks twice. All else is the kernel's.
    fn accept_now(
        &self,
        mut state: MutexGuard<'_, State>,
        id: SocketId,
        asked: &mut Asked<'_>,
    ) -> Option<Accepted> {
        if !self.asks_again(&mut state, id) {
            return None;
        }
        let now = self.now();
        self.turn_in_passing(&mut state, now);
        state.accept_own(id, asked, now)
    }
}

fn has_kernel_connection(fd: RawFd) -> bool {
    let mut fds = [crate::waiter::readable(fd)];
    syscall::ppoll(&mut fds, Some(std::time::Duration::ZERO), None).is_ok_and(|count| count > 0)
}

impl State {
    /// Whether the shadow has a connection that is to be asked for before the stack. Another process could take it first, and the call would
    /// wait: where others may have the listener, only one that does not block has turns.
    fn is_shadows_turn(&mut self, id: SocketId) -> bool {
        let Some(socket) = self.sockets.get_mut(id) else { return false };
        if !socket.own_run.is_shadows_turn() {
            return false;
        }
        socket.own_run.begin();
        let (fd, is_common) = (socket.fd(), socket.is_common);
        (!is_common || self.is_nonblocking(id)) && has_kernel_connection(fd)
    }

    /// What the shadow has for a call that waits, and asked it at `asked_at`.
    fn find_at_shadow(
        &mut self,
        id: SocketId,
        asked: &mut Asked<'_>,
        asked_at: &mut Instant,
        now: Instant,
    ) -> Option<Found> {
        let Some(socket) = self.sockets.get(id) else { return Some(Found::Accepted(fail(libc::EBADF))) };
        let own = socket.fd();
        if now.since(*asked_at) < KERNEL_EVERY {
            return None;
        }
        *asked_at = now;
        if !has_kernel_connection(own) {
            return None;
        }
        match (own == asked.fd, socket.is_common) {
            (true, _) => Some(Found::AtShadow(None)),
            // The program has closed the number meanwhile, and what was opened since has it.
            (false, false) => internal::copy(own).map(|own| Found::AtShadow(Some(own))),
            (false, true) => None, // It is for the others.
        }
    }

    /// A connection of the stack's, or one that another process left to us.
    fn accept_own(&mut self, id: SocketId, asked: &mut Asked<'_>, now: Instant) -> Option<Accepted> {
        self.leave_if_unsuited(id, now);
        let (name, flags) = (asked.name.as_deref_mut(), asked.flags);
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
        Some(self.accept_of_stack((id, listener), name, flags, now))
    }

    fn accept_of_stack(
        &mut self,
        (id, listener): (SocketId, ListenerId),
        name: Option<&mut [u8]>,
        flags: i32,
        now: Instant,
    ) -> Accepted {
        // The descriptor first: a connection that finds none keeps its place in the queue.
        let fd = self.new_descriptor(flags & libc::SOCK_CLOEXEC != 0)?;
        let from = self.sockets.get(id).ok_or(Errno(libc::EBADF))?;
        let (domain, settings, timeout) = (from.domain, from.settings.clone(), from.receive_timeout);
        let Some(connection) = self.queue.stack().and_then(|stack| stack.tcp_accept(listener)) else {
            syscall::close(fd)?;
            return fail(libc::EAGAIN);
        };
        self.note_accepted((id, listener), connection, now);
        let mut socket = Socket::new(Role::Stream(Place::Stack(connection)), domain, fd);
        socket.is_placeholder = true;
        socket.listener = Some(id);
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

impl State {
    /// A connection was taken off the stack's accept queue.
    fn note_accepted(
        &mut self,
        (id, listener): (SocketId, ListenerId),
        connection: ConnectionId,
        now: Instant,
    ) {
        let waiting = self.queue.stack().and_then(|stack| stack.accept_queue(listener));
        let more_wait = waiting.is_some_and(|(count, _)| count > 0);
        let Some(socket) = self.sockets.get_mut(id) else { return };
        socket.stall.note_taken();
        socket.own_run.note_taken();
        let Role::Listener { queueing, .. } = &mut socket.role else { return };
        if more_wait {
            queueing.note_acceptor(syscall::thread_id());
        }
        let Some(waited) = queueing.note_taken(more_wait, now) else { return };
        if self.has_another(connection) {
            return;
        }
        if let Some(Role::Listener { queueing, .. }) = self.sockets.get_mut(id).map(|socket| &mut socket.role)
        {
            queueing.note_waited(waited, run_delay(syscall::thread_id()).unwrap_or(Duration::ZERO));
        }
    }

    /// Whether the program has a connection open that came to the same port.
    fn has_another(&mut self, connection: ConnectionId) -> bool {
        let Some(runtime) = &mut self.queue.runtime else { return false };
        let stack = &*runtime.stack();
        let port_of = |id| stack.endpoints(id).map(|(local, _)| local.port());
        let port = port_of(connection);
        self.sockets.iter().filter_map(|(_, socket)| socket.connection()).any(|other| port_of(other) == port)
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
