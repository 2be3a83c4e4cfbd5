//! Something happens to a socket in a call, which may wait for the parent.

use std::os::fd::RawFd;
use std::sync::MutexGuard;

use crate::errno::Errno;
use crate::ids::SocketId;
use crate::process::{Process, State};
use crate::socket::{Happening, Step};

impl Process {
    /// Something happened to a socket. Waits where another process has to be asked.
    pub(crate) fn on_happening(
        &self,
        mut state: MutexGuard<'_, State>,
        id: SocketId,
        happening: Happening,
    ) -> Result<(), Errno> {
        let now = self.now();
        if state.sockets.get(id).is_some_and(|socket| socket.connection().is_some()) {
            state.turn(now); // It may be over by now, or connected.
        }
        match state.step(id, happening) {
            Step::AskParent => self.inherit(state, id),
            step => state.carry_out(id, step, now),
        }
    }

    /// `fd` gets out of sight: it becomes the kernel's. What cannot move is lost to who gets it, as if the peer had reset it.
    pub(crate) fn pass_on(&self, fd: RawFd) {
        let state = self.lock();
        if let Some(id) = state.socket_of(fd) {
            let _ = self.on_happening(state, id, Happening::PassedOn);
        }
    }
}
