//! socket(2), bind(2), and sockets that came from elsewhere.

use std::collections::VecDeque;
use std::os::fd::RawFd;

use crate::address;
use crate::address::local_of;
use crate::errno::fail;
use crate::process::{Process, State};
use crate::request::Verdict;
use crate::socket::queueing::Queueing;
use crate::socket::touched::Touched;
use crate::socket::udp::UdpRole;
use crate::socket::usage::Experience;
use crate::socket::{Place, Role, Socket, kernel_only};

/// What kind of socket it is, without the flags.
const KIND: i32 = 0xf;

impl Process {
    /// socket(2): one that was kept of a connection that is over.
    pub(crate) fn socket(&self, domain: i32, kind: i32, protocol: i32) -> Verdict<RawFd> {
        let is_tcp = matches!(protocol, 0 | libc::IPPROTO_TCP) && kind & KIND == libc::SOCK_STREAM;
        let flags = kind & !KIND;
        if !is_tcp || flags & !(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) != 0 {
            return Verdict::Kernel;
        }
        let now = self.now();
        let mut state = self.lock();
        let Some(fd) = state.queue.spare_sockets.take(domain, flags, now) else { return Verdict::Kernel };
        state.forget_stale(fd);
        state.enter_made(fd, Role::Stream(Place::Kernel), domain, kind);
        Verdict::Done(Ok(fd))
    }

    /// A thread may be in another network namespace from now on.
    pub(crate) fn end_spare_sockets(&self) {
        self.lock().queue.spare_sockets.end();
    }

    /// socket(2) returned `fd`.
    pub(crate) fn on_socket(&self, fd: RawFd, domain: i32, kind: i32, protocol: i32) {
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
            state.enter_made(fd, role, domain, kind);
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
                state.end_what_was_closed_at(address::port(name));
                state.give_back_port(address::port(name));
                Verdict::Kernel
            }
            _ => Verdict::Kernel,
        }
    }
}

/// Whether a socket has a port and no peer.
fn is_bound_only(fd: RawFd) -> bool {
    local_of(fd).is_some_and(|local| local.port() != 0) && !has_peer(fd)
}

fn has_peer(fd: RawFd) -> bool {
    syscall::getpeername(fd, &mut [0; 28]).is_ok()
}

impl State {
    /// Enters a socket that was just made with the flags of `kind`.
    fn enter_made(&mut self, fd: RawFd, role: Role, domain: i32, kind: i32) {
        self.insert(Socket {
            touched: Touched::NONE,
            may_survive_exec: kind & libc::SOCK_CLOEXEC == 0,
            nonblocking: kind & libc::SOCK_NONBLOCK != 0,
            ..Socket::new(role, domain, fd)
        });
    }

    /// Enters a socket that another process has made, if `fd` is a listener, a bound UDP socket, or a TCP socket without a peer, which may
    /// still listen.
    fn enter_received(&mut self, fd: RawFd) {
        // How long its queue is, the kernel does not tell.
        const BACKLOG: u32 = 4096;
        let int = |option| crate::socket::udp_messages::udp_int(fd, libc::SOL_SOCKET, option);
        let Some(kind) = int(libc::SO_TYPE) else { return };
        let Some(domain) = int(libc::SO_DOMAIN).filter(|it| matches!(*it, libc::AF_INET | libc::AF_INET6))
        else {
            return;
        };
        let role = match (kind, int(libc::SO_PROTOCOL)) {
            (libc::SOCK_STREAM, Some(libc::IPPROTO_TCP)) if int(libc::SO_ACCEPTCONN) == Some(1) => {
                Role::Listener {
                    on_stack: None,
                    backlog: BACKLOG,
                    adopted: VecDeque::new(),
                    queueing: Queueing::default(),
                    experience: Experience::default(),
                }
            }
            (libc::SOCK_STREAM, Some(libc::IPPROTO_TCP)) if !has_peer(fd) => Role::Stream(Place::Kernel),
            (libc::SOCK_DGRAM, Some(libc::IPPROTO_UDP)) if is_bound_only(fd) => Role::Udp(UdpRole::bound()),
            _ => return,
        };
        let kernel_only = kernel_only::found_at(fd);
        self.insert(Socket { is_common: true, kernel_only, ..Socket::new(role, domain, fd) });
    }
}

impl Process {
    /// bind(2) succeeded on `fd`.
    pub(crate) fn on_bind(&self, fd: RawFd) {
        let mut state = self.lock();
        let Some(id) = state.socket_of(fd) else { return };
        state.sockets.get_mut(id).into_iter().for_each(|socket| socket.touched.note_named());
        if let Some(Role::Udp(udp)) = state.sockets.get_mut(id).map(|socket| &mut socket.role) {
            udp.is_bound = true;
            state.note_news(id);
        }
    }
}
