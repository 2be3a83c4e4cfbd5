//! Sockets that are as good as new after their connection failed, or after connect(2) with AF_UNSPEC: they may connect again,
//! be bound, or listen, as on Linux.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};

use clock::Instant;
use stack::tcp::State as TcpState;

use crate::address::encode;
use crate::descriptors::internal::close;
use crate::errno::Errno;
use crate::ids::SocketId;
use crate::moves::ports::BIND_ADDRESS_NO_PORT;
use crate::process::State;
use crate::socket::option_table::set_at_kernel;
use crate::socket::touched::Touched;
use crate::socket::{Place, Role, WRITABLE};

impl State {
    /// connect(2) to `AF_UNSPEC`, or shutdown(2) before there is a connection: what there is is reset (`tcp_disconnect`).
    pub(crate) fn disconnect(&mut self, id: SocketId, now: Instant) {
        let error = match self.sockets.get(id).map(|socket| &socket.role) {
            Some(Role::Stream(Place::ToStack { .. })) => true,
            Some(Role::Stream(Place::Stack(connection))) => {
                let connection = *connection;
                let state = self.queue.stack().and_then(|stack| stack.state(connection));
                state.is_some_and(is_reset_by_disconnecting)
            }
            _ => false,
        };
        let error = if error { Some(Errno(libc::ECONNRESET)) } else { self.take_error(id) };
        self.renew(id, error, now);
    }

    /// Has a kernel's socket of which nothing is known behind the descriptors again. `error` is what the program is told next.
    pub(crate) fn renew(&mut self, id: SocketId, error: Option<Errno>, now: Instant) {
        let Some(socket) = self.sockets.get_mut(id) else { return };
        let (connection, claim, socket_fd) = (socket.connection(), socket.claim.take(), socket.fd());
        let bound_before = socket.bound_before.take();
        let is_new = !socket.is_placeholder && bound_before.is_none();
        if is_new {
            self.set_options_at(id, socket_fd);
        }
        let replaced = is_new || self.replace_shadow(id, bound_before).is_ok();
        match connection {
            Some(connection) => {
                claim.into_iter().for_each(|claim| self.queue.resting_ports.forget(claim));
                if let Some(stack) = self.queue.stack() {
                    stack.abort(connection, now);
                }
                self.release_claim_of_connection(claim, connection, now);
            }
            None => self.release_claim(claim),
        }
        let Some(socket) = self.sockets.get_mut(id) else { return };
        socket.is_connecting = false;
        socket.unclaimable = None;
        socket.error = error;
        if !replaced {
            socket.role = Role::Stream(Place::Lost);
            return;
        }
        socket.role = Role::Stream(Place::Kernel);
        socket.is_placeholder = false;
        socket.touched = Touched::ANY;
        self.watch_at_kernel(id);
        self.raise(id, WRITABLE | (libc::EPOLLERR | libc::EPOLLHUP) as u32);
    }

    /// Puts a new socket of the kernel's with the same options in the place of one that is bound for our purposes, or that others
    /// have as well.
    fn replace_shadow(&mut self, id: SocketId, bound_before: Option<SocketAddr>) -> Result<(), Errno> {
        let domain = self.sockets.get(id).ok_or(Errno(libc::EBADF))?.domain;
        let kernel = syscall::socket(domain, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0)?;
        let fd = kernel.as_raw_fd();
        self.set_options_at(id, fd);
        if let Some(bound) = bound_before.filter(|bound| !bound.ip().is_unspecified()) {
            syscall::setsockopt(fd, libc::SOL_IP, BIND_ADDRESS_NO_PORT, &1i32.to_ne_bytes())?;
            let (name, len) = encode(bound, domain);
            syscall::bind(fd, &name[..len])?;
        }
        self.set_flags_at_kernel(id, &kernel);
        self.put_behind(id, &kernel);
        close(kernel);
        Ok(())
    }

    /// Sets at a kernel's socket what the program has set of ours.
    fn set_options_at(&mut self, id: SocketId, kernel: RawFd) {
        let Some(socket) = self.sockets.get(id) else { return };
        let connection = socket.connection();
        socket.settings.set_at_kernel(kernel);
        if let Some(options) =
            connection.and_then(|connection| self.queue.stack()?.options(connection).cloned())
        {
            set_at_kernel(kernel, &options);
        }
    }
}

/// `tcp_need_reset` of Linux, and a handshake that is under way.
fn is_reset_by_disconnecting(state: TcpState) -> bool {
    use TcpState::*;
    matches!(state, SynSent | SynReceived | Established | CloseWait | FinWait1 | FinWait2)
}
