//! What is known of a connection: its ends, its state, its error.

use std::net::SocketAddr;

use crate::errno::Errno;
use crate::ids::SocketId;
use crate::process::state::State;
use crate::socket::{Place, Role};

impl State {
    pub(crate) fn is_inherited(&self, id: SocketId) -> bool {
        matches!(self.sockets.get(id).map(|socket| &socket.role), Some(Role::Stream(Place::FromParent(_))))
    }

    /// Both ends of our connection, or of the parent's.
    pub(crate) fn endpoints(&mut self, id: SocketId) -> Option<(SocketAddr, SocketAddr)> {
        match &self.sockets.get(id)?.role {
            Role::Stream(Place::Stack(connection)) => {
                let connection = *connection;
                self.queue.stack()?.endpoints(connection)
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
                let state = self.queue.stack().and_then(|stack| stack.state(connection));
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
                let state = self.queue.stack().and_then(|stack| stack.state(connection));
                // In TIME-WAIT the connection is no longer that socket's.
                let is_over =
                    |state| matches!(state, stack::tcp::State::Closed | stack::tcp::State::TimeWait);
                state.is_none_or(is_over)
            }
            _ => false,
        }
    }

    /// The error that a socket has, once.
    pub(crate) fn take_error(&mut self, id: SocketId) -> Option<Errno> {
        let socket = self.sockets.get_mut(id)?;
        if let Some(errno) = socket.error.take() {
            return Some(errno);
        }
        let connection = socket.connection()?;
        self.queue.stack()?.take_error(connection).map(Errno::from)
    }
}
