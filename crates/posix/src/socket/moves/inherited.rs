//! Connections that a child has from its parent: the child asks, the parent moves them to the kernel.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::MutexGuard;

use clock::Instant;

use super::kinship::Ends;
use crate::Errno;
use crate::attachment::RequestId;
use crate::calls::Verdict;
use crate::drive::{On, Stop, Waiting};
use crate::errno::fail;
use crate::process::{Process, State};
use crate::socket::place::Happening;
use crate::socket::{Inherited, Place, Role, Socket, SocketId};

impl State {
    /// The process is a child: what it has of a connection is the parent's.
    pub(super) fn leave_to_parent(&mut self, id: SocketId) {
        let ends = self.endpoints(id);
        let Some(socket) = self.sockets.get_mut(id) else { return };
        socket.role = Role::Stream(match ends {
            Some((local, remote)) => Place::FromParent(Box::new(Inherited { local, remote, request: None })),
            None => Place::Lost,
        });
    }

    /// A child wants a connection that it inherited from us.
    pub(crate) fn on_child_asks(&mut self, token: u64, local: SocketAddr, remote: SocketAddr, now: Instant) {
        let ends = (local, remote);
        self.read_notes();
        // What no child can have inherited, no other process can ask for.
        if self.is_held_by_child(ends) && !self.is_kept_for_children(ends) {
            self.move_common(ends, now);
        }
        if !self.move_to_child(token, ends)
            && let Some(attachment) = self.attachment()
        {
            attachment.refuse_child(token);
        }
    }

    /// Moves a connection to the kernel that children have as well: they get it from there.
    fn move_common(&mut self, ends: Ends, now: Instant) {
        let is_common = |socket: &Socket| socket.is_common && socket.connection().is_some();
        let common = self.sockets.iter().filter(|(_, socket)| is_common(socket));
        let ids: Vec<SocketId> = common.map(|(id, _)| id).collect();
        if let Some(id) = ids.into_iter().find(|id| self.endpoints(*id) == Some(ends)) {
            // One that is lost on the way is nobody's.
            let step = self.step(id, Happening::ChildAsks);
            let _ = self.carry_out(id, step, now);
        }
    }

    /// A connection has become the kernel's: children that hold it as well are to have it from us.
    pub(super) fn share_with_children(&mut self, id: SocketId, ends: Ends, kernel: &OwnedFd) {
        // A connection that was made after the fork may have the addresses of one before it.
        let is_common = self.sockets.get(id).is_some_and(|socket| socket.is_common);
        if is_common
            && self.is_held_by_child(ends)
            && let Some(copy) = crate::internal::copy(kernel.as_raw_fd())
        {
            self.keep_for_children(ends, copy);
        }
    }

    /// The parent gave a connection up, or does not have it any more.
    pub(crate) fn on_parent_answers(&mut self, request: RequestId, kernel: Option<OwnedFd>) {
        let is_it = |socket: &Socket| matches!(&socket.role, Role::Stream(Place::FromParent(inherited)) if inherited.request == Some(request));
        let Some(id) = self.sockets.iter().find(|(_, socket)| is_it(socket)).map(|(id, _)| id) else {
            return;
        };
        match kernel {
            Some(kernel) => {
                if let Some(ends) = self.endpoints(id) {
                    self.note_let_go(ends);
                }
                self.replace_by(id, kernel, Instant::ZERO);
            }
            None => self.fail_socket(id, Errno(libc::ECONNRESET)),
        }
    }
}

impl State {
    /// Asks for a connection that this process inherited, once; false if there is no parent to ask.
    fn ask_for_inherited(&mut self, id: SocketId) -> bool {
        let Some(Role::Stream(Place::FromParent(inherited))) =
            self.sockets.get(id).map(|socket| &socket.role)
        else {
            return false;
        };
        let (local, remote) = (inherited.local, inherited.remote);
        if inherited.request.is_some() {
            return true;
        }
        self.reach();
        let request = self.attachment().and_then(|attachment| attachment.begin_inherit(local, remote));
        if let Some(Role::Stream(Place::FromParent(inherited))) =
            self.sockets.get_mut(id).map(|socket| &mut socket.role)
        {
            inherited.request = request;
        }
        request.is_some()
    }
}

impl Process {
    /// Whether a connection has become the kernel's while a call waited for it, which is the kernel's then as well; `moves` is from
    /// before.
    pub(crate) fn was_moved(&self, id: SocketId, moves: u32) -> bool {
        let state = self.lock();
        state.moves != moves && state.sockets.get(id).is_none()
    }

    /// Waits until a connection that this process inherited is the kernel's, behind the same descriptor.
    pub(crate) fn inherit(&self, mut state: MutexGuard<'_, State>, id: SocketId) -> Result<(), Errno> {
        if !matches!(
            state.sockets.get(id).map(|socket| &socket.role),
            Some(Role::Stream(Place::FromParent(_)))
        ) {
            return Ok(());
        }
        if !state.ask_for_inherited(id) {
            return fail(libc::ECONNRESET);
        }
        let waiting = Waiting { on: On::Socket(id, None), deadline: None, mask: None, restarts: true };
        let result = self.wait(state, &waiting, &mut |state, now| {
            state.hear(now);
            match state.sockets.get(id).map(|socket| &socket.role) {
                Some(Role::Stream(Place::FromParent(_))) => None,
                Some(_) => Some(state.take_error(id).map_or(fail(libc::ECONNRESET), Err)),
                None => Some(Ok(())),
            }
        });
        result.unwrap_or_else(|stop| match stop {
            Stop::TimedOut => fail(libc::ECONNRESET),
            Stop::Interrupted => fail(libc::EINTR),
        })
    }

    /// The same for a call that is the kernel's then.
    pub(in crate::socket) fn inherit_for_kernel<T>(
        &self,
        state: MutexGuard<'_, State>,
        id: SocketId,
    ) -> Verdict<T> {
        self.inherit(state, id).map_or_else(|errno| Verdict::Done(Err(errno)), |()| Verdict::Kernel)
    }

    /// The same for several; the answers take their time together.
    pub(crate) fn inherit_all(&self, ids: &[SocketId]) {
        let mut state = self.lock();
        for id in ids {
            state.ask_for_inherited(*id);
        }
        drop(state);
        for id in ids {
            // One that is lost says so when it is used.
            let _ = self.inherit(self.lock(), *id);
        }
    }
}
