//! Connections that a broker has begun to move, and has yet to say what came of it.

use stack::tcp::Detached;
use transit::SocketKind;

use crate::broker_side::RequestId;
use crate::ids::SocketId;
use crate::queue::ended::Heir;
use crate::socket::settings::Settings;

/// What accepted sockets have from their listener.
pub(crate) type AcceptedAs = (SocketKind, Settings);

/// Connections that waited at a listener, and are on their way into the kernel's accept queue. They are off the stack, and whether the kernel has them the
/// broker knows: it may have been stopped.
pub(crate) struct Begun {
    pub(crate) request: RequestId,
    /// Where they waited.
    pub(crate) listener: SocketId,
    /// Who has those that the kernel does not take there.
    pub(crate) heir: Heir,
    /// In the order of the request.
    pub(crate) connections: Vec<Detached>,
    /// For those that the kernel does not take.
    pub(crate) accepted_as: AcceptedAs,
}
