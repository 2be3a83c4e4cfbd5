//! Something happens to a socket in a call, which may wait for the parent.

use std::os::fd::RawFd;
use std::sync::MutexGuard;

use clock::Duration;

use crate::errno::Errno;
use crate::ids::SocketId;
use crate::moves::to_kernel::{NOT_YET, Terms};
use crate::process::{Process, State};
use crate::socket::{Happening, Step};
use crate::wait::on::{On, Waiting};

/// How long a broker that is stopped is waited for. After that the connection is lost, and its peer told so.
const TAKEN_WITHIN: Duration = Duration::from_secs(60);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(50);

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
            Step::Move => self.move_when_taken(state, id, happening),
            step => state.carry_out(id, step, now),
        }
    }

    /// Moves a connection to the kernel as soon as the broker takes it. Until then the connection goes on, and other threads have the lock.
    fn move_when_taken<'p>(
        &'p self,
        mut state: MutexGuard<'p, State>,
        id: SocketId,
        happening: Happening,
    ) -> Result<(), Errno> {
        let until = self.now() + TAKEN_WITHIN;
        loop {
            let now = self.now();
            // It may have ended meanwhile, or moved.
            match state.step(id, happening) {
                Step::Move if now < until => {}
                step => return state.carry_out(id, step, now),
            }
            match state.move_to_kernel(id, Terms::Tried, now) {
                Err(NOT_YET) => {}
                result => return result,
            }
            let on = On::Socket(id, None);
            let waiting = Waiting { on, deadline: Some(self.now() + PAUSE), mask: None, restarts: true };
            // A signal ends it early, which does no harm.
            let _ = self.wait(state, &waiting, &mut |_, _| None::<()>);
            state = self.lock();
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
