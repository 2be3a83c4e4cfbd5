//! Which socket a connection is, as fstat(2) and `SO_COOKIE` tell.
//!
//! Behind the descriptor of a connection on the stack is another socket of the kernel's than the one that has the connection when it has moved. Programs
//! may rely on what they were told: dovecot tells the process that it sends a connection to which one to expect. So a connection moves before its program
//! is told. Where that is the rule, its listener is left to the kernel.

use std::os::fd::RawFd;
use std::sync::MutexGuard;

use crate::ids::SocketId;
use crate::process::{Process, State};
use crate::socket::{Happening, Place, Role};

const IDENTIFIED: &str = "the program asked which socket it is (fstat(2), SO_COOKIE)";

impl Process {
    pub(crate) fn identify(&self, fd: RawFd) {
        let state = self.lock();
        if let Some(id) = state.socket_of(fd) {
            self.before_identity(state, id);
        }
    }

    /// Moves a connection that is not the kernel's. Whether it can is for the next call to tell.
    pub(crate) fn before_identity(&self, mut state: MutexGuard<'_, State>, id: SocketId) {
        let Some(socket) = state.sockets.get(id) else { return };
        let is_elsewhere =
            matches!(&socket.role, Role::Stream(place) if !matches!(place, Place::Kernel | Place::Lost));
        if !is_elsewhere {
            return;
        }
        if let Some(experience) = state.experience_with(id) {
            experience.note_identified();
        }
        let _ = self.on_happening(state, id, Happening::KernelOnly(IDENTIFIED));
    }
}
