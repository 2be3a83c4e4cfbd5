//! A claimed socket comes onto the stack.

use crate::ids::SocketId;
use crate::process::State;
use crate::socket::Role;

impl State {
    /// Brings a claimed socket onto the stack, if there is one.
    pub(crate) fn install(&mut self, id: SocketId) {
        if self.queue.runtime.is_none() {
            return;
        }
        match self.sockets.get(id).map(|socket| &socket.role) {
            Some(Role::Listener { .. }) => self.install_listener(id),
            Some(Role::Udp { .. }) => self.install_udp(id),
            _ => {}
        }
    }
}
