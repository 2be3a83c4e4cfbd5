//! Making sockets; listeners.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use clock::Instant;
use stack::ListenerId;

use super::address::{self, local_of, write_name};
use super::kernel_only::{self, has_adopted};
use super::touched::Touched;
use super::udp::UdpRole;
use super::{Place, READABLE, Role, Socket, SocketId, options_of_listener};
use crate::Errno;
use crate::attachment::ClaimId;
use crate::calls::Verdict;
use crate::drive::{On, Stop, Waiting};
use crate::errno::fail;
use crate::fd_table::Entry;
use crate::process::{Process, State};

/// The shadow is asked this often by a call that waits.
const KERNEL_EVERY: clock::Duration = clock::Duration::from_micros(50);

/// Told among ourselves: the kernel's own call is to go on. No errno has this number.
const LEFT_TO_KERNEL: i32 = i32::MAX;

/// What accept4(2) returns.
type Accepted = Result<(RawFd, usize), Errno>;

impl Process {
    /// socket(2) returned `fd`.
    pub(crate) fn on_socket(&self, fd: RawFd, domain: i32, kind: i32, protocol: i32) {
        const KIND: i32 = 0xf;
        let role = match (domain, kind & KIND, protocol) {
            (libc::AF_INET | libc::AF_INET6, libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => {
                Some(Role::Stream(Place::Kernel))
            }
            (libc::AF_INET | libc::AF_INET6, libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => {
                Some(Role::Udp(UdpRole::default()))
            }
            _ => None,
        };
        if role.is_none() && !self.table.is_ours(fd) {
            return;
        }
        let mut state = self.lock();
        state.forget_stale(fd);
        if let Some(role) = role {
            let may_survive_exec = kind & libc::SOCK_CLOEXEC == 0;
            let socket = Socket { touched: Touched::NONE, may_survive_exec, ..Socket::new(role, domain, fd) };
            state.insert(socket);
        }
    }

    /// `fd` came from another process.
    pub(crate) fn on_received(&self, fd: RawFd) {
        let mut state = self.lock();
        state.forget_stale(fd);
        state.enter_received(fd);
    }

    /// A program begins with the descriptors of the one that executed it: what listens, or is about to, is among the first.
    pub(crate) fn find_inherited(&self) {
        const FIRST: RawFd = 64;
        let mut state = self.lock();
        (0..FIRST).filter(|fd| !self.table.is_ours(*fd)).for_each(|fd| state.enter_received(fd));
    }

    /// bind(2) to `name`, and listen(2) without one: what is connected, or was and has not been told, can be neither bound nor listen.
    pub(crate) fn may_bind(&self, fd: RawFd, name: &[u8]) -> Verdict<()> {
        let mut state = self.lock();
        let Some(id) = state.socket_of(fd) else { return Verdict::Kernel };
        match state.sockets.get(id).map(|socket| &socket.role) {
            Some(Role::Stream(
                Place::Stack(_) | Place::ToStack { .. } | Place::Lost | Place::FromParent(_),
            )) => Verdict::Done(fail(libc::EINVAL)),
            Some(Role::Stream(Place::Kernel)) => {
                state.give_back_port(address::port(name));
                Verdict::Kernel
            }
            _ => Verdict::Kernel,
        }
    }

    /// listen(2) succeeded on `fd`.
    pub(crate) fn on_listen(&self, fd: RawFd, backlog: i32) {
        let mut state = self.lock();
        let Some(id) = state.socket_of(fd) else { return };
        let backlog = backlog_of(backlog);
        let Some(socket) = state.sockets.get_mut(id) else { return };
        match &mut socket.role {
            Role::Stream(Place::Kernel) => {
                socket.role = Role::Listener { on_stack: None, backlog, adopted: VecDeque::new() };
                state.note_news(id);
            }
            Role::Listener { on_stack, backlog: before, .. } => {
                *before = backlog;
                let on_stack = *on_stack;
                if let (Some(listener), Some(stack)) = (on_stack, state.stack()) {
                    stack.set_backlog(listener, backlog);
                }
            }
            _ => {}
        }
    }

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

    /// Whether a call found nothing for the second time since the last turn: who polls like that drives the engine.
    pub(crate) fn asks_again(&self, state: &mut State, id: SocketId) -> bool {
        let turn = self.turns.load(std::sync::atomic::Ordering::Relaxed);
        let socket = state.sockets.get_mut(id);
        socket.is_some_and(|socket| std::mem::replace(&mut socket.blocked_in_turn, turn) == turn)
    }
}

/// Whether a socket has a port and no peer.
fn is_bound_only(fd: RawFd) -> bool {
    local_of(fd).is_some_and(|local| local.port() != 0) && !has_peer(fd)
}

fn has_peer(fd: RawFd) -> bool {
    syscall::getpeername(fd, &mut [0; 28]).is_ok()
}

/// A negative backlog is a large one, and none exceeds `somaxconn`, which is 4096 by default.
fn backlog_of(backlog: i32) -> u32 {
    (backlog as u32).min(4096)
}

fn has_kernel_connection(fd: RawFd) -> bool {
    let mut fds = [crate::drive::readable(fd)];
    syscall::ppoll(&mut fds, Some(std::time::Duration::ZERO), None).is_ok_and(|count| count > 0)
}

impl State {
    /// Enters a socket that another process has made, if `fd` is a listener, a bound UDP socket, or a TCP socket without a peer, which may
    /// still listen.
    fn enter_received(&mut self, fd: RawFd) {
        // How long its queue is, the kernel does not tell.
        const BACKLOG: u32 = 4096;
        let int = |option| super::udp_int(fd, libc::SOL_SOCKET, option);
        let Some(kind) = int(libc::SO_TYPE) else { return };
        let Some(domain) = int(libc::SO_DOMAIN).filter(|it| matches!(*it, libc::AF_INET | libc::AF_INET6))
        else {
            return;
        };
        let role = match (kind, int(libc::SO_PROTOCOL)) {
            (libc::SOCK_STREAM, Some(libc::IPPROTO_TCP)) if int(libc::SO_ACCEPTCONN) == Some(1) => {
                Role::Listener { on_stack: None, backlog: BACKLOG, adopted: VecDeque::new() }
            }
            (libc::SOCK_STREAM, Some(libc::IPPROTO_TCP)) if !has_peer(fd) => Role::Stream(Place::Kernel),
            (libc::SOCK_DGRAM, Some(libc::IPPROTO_UDP)) if is_bound_only(fd) => Role::Udp(UdpRole::bound()),
            _ => return,
        };
        let kernel_only = kernel_only::found_at(fd);
        self.insert(Socket { is_common: true, kernel_only, ..Socket::new(role, domain, fd) });
    }

    /// Enters a socket and its descriptor.
    pub(crate) fn insert(&mut self, socket: Socket) -> Option<SocketId> {
        let fd = socket.fd();
        let id = self.sockets.insert_with(|_| socket)?;
        if !self.table.set(fd, Entry::Socket(id.index())) {
            self.sockets.remove(id);
            return None;
        }
        Some(id)
    }

    /// A number was given out anew without our hearing of its end.
    pub(crate) fn forget_stale(&mut self, fd: RawFd) {
        if self.table.is_ours(fd) {
            let now = Instant::ZERO;
            self.let_go(fd, now);
        }
    }

    /// A shadow has become claimable: instances that watch it already check it again.
    pub(crate) fn note_news(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get(id) else { return };
        for interest in socket.interests.iter() {
            if let Some(epoll) = self.epolls.get_mut(interest.epoll) {
                epoll.has_news = true;
            }
        }
    }

    /// Listens on the stack as the shadow does. If another socket of ours listens there already, as with `SO_REUSEPORT`, this
    /// one has only what comes by the kernel.
    pub(crate) fn install_listener(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get_mut(id) else { return };
        let Role::Listener { on_stack: None, backlog, .. } = socket.role else { return };
        let fd = socket.fd();
        let Some(local) = local_of(fd) else { return };
        let domain = socket.domain;
        let dual_stack = domain == libc::AF_INET6 && !is_v6_only(fd);
        let (options, settings) = options_of_listener(fd, domain);
        let listened = match self.stack() {
            Some(stack) => stack.tcp_listen(local, dual_stack, backlog, Arc::new(options)),
            None => return,
        };
        let Some(socket) = self.sockets.get_mut(id) else { return };
        socket.receive_timeout = settings.receive_timeout();
        socket.settings = settings;
        match listened {
            Ok(listener) => {
                socket.unclaimable = None;
                // Connections that others left to us before we had a queue wait on.
                if let Role::Listener { on_stack, .. } = &mut socket.role {
                    *on_stack = Some(listener);
                }
                if let Some(stack) = self.stack() {
                    stack.set_listener_token(listener, id.to_bits());
                }
            }
            Err(_) => socket.unclaimable = Some("another socket of this process listens there".into()),
        }
    }

    /// What options were set at a listener, its next connections have.
    pub(crate) fn refresh_listener(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get_mut(id) else { return };
        let Role::Listener { on_stack: Some(listener), .. } = socket.role else { return };
        let (options, settings) = options_of_listener(socket.fd(), socket.domain);
        socket.receive_timeout = settings.receive_timeout();
        socket.settings = settings;
        if let Some(stack) = self.stack() {
            stack.set_listener_options(listener, Arc::new(options));
        }
    }

    /// `TCP_INFO` of a listener: as the kernel has it, but for what waits here.
    pub(crate) fn listener_info(
        &mut self,
        id: SocketId,
        fd: RawFd,
        value: &mut [u8],
    ) -> Result<usize, Errno> {
        /// `tcpi_unacked`, which counts a listener's queue.
        const WAITING: std::ops::Range<usize> = 24..28;
        let len = syscall::getsockopt(fd, libc::SOL_TCP, libc::TCP_INFO, value)?;
        // A peer may know that it is connected before any thread here has checked.
        let now = self.clock.now();
        self.take_in(now);
        let Some(Role::Listener { on_stack, adopted, .. }) = self.sockets.get(id).map(|socket| &socket.role)
        else {
            return Ok(len);
        };
        let (on_stack, adopted) = (*on_stack, adopted.len() as u32);
        let queued = on_stack.and_then(|listener| self.stack()?.accept_queue(listener)).map_or(0, |it| it.0);
        if let Some(waiting) = value[..len].get_mut(WAITING).and_then(|octets| octets.first_chunk_mut::<4>())
        {
            *waiting = (u32::from_ne_bytes(*waiting) + queued + adopted).to_ne_bytes();
        }
        Ok(len)
    }

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
            crate::internal::close(connection);
            self.left_to_kernel.accepted += u64::from(taken.is_ok());
            return Some(taken);
        }
        let listener = (*on_stack)?;
        if self.stack()?.accept_queue(listener)?.0 == 0 {
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
        let Some(connection) = self.stack().and_then(|stack| stack.tcp_accept(listener)) else {
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
        let Some(stack) = self.stack() else { return fail(libc::EAGAIN) };
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

    /// Another process left a connection to us.
    pub(crate) fn on_adopt(&mut self, claim: ClaimId, connection: OwnedFd, now: Instant) {
        let listener = self.sockets.iter().find(|(_, socket)| socket.claim == Some(claim)).map(|(id, _)| id);
        // It was closed a moment ago: then a third one is to have it.
        let Some(id) = listener else { return self.move_to_sibling(connection) };
        if let Some(Role::Listener { adopted, .. }) = self.sockets.get_mut(id).map(|socket| &mut socket.role)
        {
            adopted.push_back(connection);
            self.raise(id, READABLE);
            self.note_arrival(id, now);
        }
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

pub(crate) fn is_v6_only(fd: RawFd) -> bool {
    let mut value = [0; 4];
    let read = syscall::getsockopt(fd, libc::SOL_IPV6, libc::IPV6_V6ONLY, &mut value);
    read.is_ok() && i32::from_ne_bytes(value) != 0
}
