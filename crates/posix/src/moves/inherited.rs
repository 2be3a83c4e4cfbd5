//! Connections that a child has from its parent: the child asks, the parent moves them to the kernel.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use clock::{Duration, Instant};

use crate::broker_side::RequestId;
use crate::errno::Errno;
use crate::ids::SocketId;
use crate::kinship::Ends;
use crate::moves::to_kernel::{NOT_YET, Terms};
use crate::process::{AskedByChild, State};
use crate::socket::{Happening, Place, Role, Socket, Step};

/// How long a child waits for a connection that a broker does not take.
const ASKED_MAX: Duration = Duration::from_secs(60);

impl State {
    /// A child wants a connection that it inherited from us.
    pub(crate) fn on_child_asks(&mut self, token: u64, local: SocketAddr, remote: SocketAddr, now: Instant) {
        self.answer_child(AskedByChild { token, ends: (local, remote), since: now }, now);
    }

    /// Tries again to move what children have asked for.
    pub(crate) fn answer_children(&mut self, now: Instant) {
        std::mem::take(&mut self.asked_by_children)
            .into_iter()
            .for_each(|asked| self.answer_child(asked, now));
    }

    fn answer_child(&mut self, asked: AskedByChild, now: Instant) {
        let AskedByChild { token, ends, since } = asked;
        self.read_notes();
        // What no child can have inherited, no other process can ask for.
        if self.kinship.is_held_by_child(ends)
            && self.kinship.kept_for_children(ends).is_none()
            && self.move_common(ends, now) == Err(NOT_YET)
            && now.since(since) < ASKED_MAX
        {
            return self.asked_by_children.push(asked);
        }
        if !self.move_to_child(token, ends)
            && let Some(attachment) = self.attachment()
        {
            attachment.refuse_child(token);
        }
    }

    /// Moves a connection to the kernel that children have as well: they get it from there. One that is lost on the way is nobody's.
    fn move_common(&mut self, ends: Ends, now: Instant) -> Result<(), Errno> {
        let is_common = |socket: &Socket| socket.is_common && socket.connection().is_some();
        let common = self.sockets.iter().filter(|(_, socket)| is_common(socket));
        let ids: Vec<SocketId> = common.map(|(id, _)| id).collect();
        match ids.into_iter().find(|id| self.endpoints(*id) == Some(ends)) {
            Some(id) if self.step(id, Happening::ChildAsks) == Step::Move => {
                self.move_to_kernel(id, Terms::Tried, now)
            }
            _ => Ok(()),
        }
    }

    /// The parent gave a connection up, or does not have it any more.
    pub(crate) fn on_parent_answers(&mut self, request: RequestId, kernel: Option<OwnedFd>) {
        let is_it = |socket: &Socket| matches!(&socket.role, Role::Stream(Place::FromParent(inherited)) if inherited.request == Some(request));
        let Some(id) = self.sockets.iter().find(|(_, socket)| is_it(socket)).map(|(id, _)| id) else {
            return;
        };
        match kernel.or_else(|| self.take_legacy(id)) {
            Some(kernel) => self.go_on_with(id, kernel),
            None => self.fail_socket(id, Errno(libc::ECONNRESET)),
        }
    }

    /// An inherited connection is the kernel's by now, and ours as well.
    pub(crate) fn go_on_with(&mut self, id: SocketId, kernel: OwnedFd) {
        if let Some(ends) = self.endpoints(id) {
            self.kinship.note_let_go(ends);
        }
        self.replace_by(id, kernel);
    }
}
