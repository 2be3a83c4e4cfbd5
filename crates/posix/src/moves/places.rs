//! Where a socket is, for the table of `socket/place.rs`.

use clock::Instant;
use stack::tcp::State as TcpState;

use crate::errno::Errno;
use crate::ids::SocketId;
use crate::process::State;
use crate::socket::{At, Happening, Place, Role, Step, place};

impl State {
    /// What to do about it.
    pub(crate) fn step(&mut self, id: SocketId, happening: Happening) -> Step {
        self.at(id).map_or(Step::Nothing, |at| place::step(at, happening))
    }

    pub(crate) fn at(&mut self, id: SocketId) -> Option<At> {
        let place = match &self.sockets.get(id)?.role {
            Role::Stream(place) => place,
            Role::Listener { .. } | Role::Udp(_) => return Some(At::Shadow),
        };
        Some(match *place {
            Place::Kernel => At::Kernel,
            Place::ToStack { .. } => At::Routing,
            Place::FromParent(_) => At::Parent,
            Place::Lost => At::Lost,
            Place::Stack(connection) => match self.queue.stack().and_then(|stack| stack.state(connection)) {
                None | Some(TcpState::Closed | TcpState::TimeWait) => At::Over,
                Some(TcpState::SynSent) => At::Connecting,
                Some(_) => At::Stack,
            },
        })
    }

    /// A connection has no way to its peer any more.
    pub(crate) fn lose(&mut self, id: SocketId, now: Instant) {
        let connection = self.sockets.get(id).and_then(|socket| socket.connection());
        self.fail_socket(id, Errno(libc::ECONNRESET));
        if let (Some(connection), Some(stack)) = (connection, self.queue.stack()) {
            stack.abort(connection, now);
        }
    }
}
