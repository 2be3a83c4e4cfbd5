//! Listeners on the stack.

use std::sync::Arc;

use crate::address::local_of;
use crate::ids::SocketId;
use crate::process::State;
use crate::shadows::shadow::is_v6_only;
use crate::socket::Role;
use crate::socket::settings::options_of_listener;

impl State {
    /// Listens on the stack as the shadow does, beside other sockets of ours that the kernel has let listen there (`SO_REUSEPORT`).
    pub(crate) fn install_listener(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get_mut(id) else { return };
        let Role::Listener { on_stack: None, backlog, .. } = socket.role else { return };
        let fd = socket.fd();
        let Some(local) = local_of(fd) else { return };
        let domain = socket.domain;
        let dual_stack = domain == libc::AF_INET6 && !is_v6_only(fd);
        let (options, settings) = options_of_listener(fd, domain);
        let listened = match self.queue.stack() {
            Some(stack) => stack.tcp_listen_beside(local, dual_stack, backlog, Arc::new(options)),
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
                if let Some(stack) = self.queue.stack() {
                    stack.set_listener_token(listener, id.to_bits());
                }
            }
            Err(_) => socket.unclaimable = Some("there are too many listeners".into()),
        }
    }

    /// What options were set at a listener, its next connections have.
    pub(crate) fn refresh_listener(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get_mut(id) else { return };
        let Role::Listener { on_stack: Some(listener), .. } = socket.role else { return };
        let (options, settings) = options_of_listener(socket.fd(), socket.domain);
        socket.receive_timeout = settings.receive_timeout();
        socket.settings = settings;
        if let Some(stack) = self.queue.stack() {
            stack.set_listener_options(listener, Arc::new(options));
        }
    }
}
