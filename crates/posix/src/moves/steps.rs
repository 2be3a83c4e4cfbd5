//! Carries out what the table of `socket/place.rs` decides.

use clock::Instant;

use crate::errno::Errno;
use crate::ids::SocketId;
use crate::moves::to_kernel::Terms;
use crate::process::State;
use crate::socket::{Happening, Role, Step};

impl State {
    /// Does it, unless others have to be asked and waited for. The error is for the call that caused it.
    pub(crate) fn carry_out(&mut self, id: SocketId, step: Step, now: Instant) -> Result<(), Errno> {
        match step {
            Step::Nothing => {}
            Step::AskParent => debug_assert!(false, "a parent is asked by who may wait"),
            Step::Keep(reason) => self.keep_to_kernel(id, reason, now),
            Step::Share => {
                if let Some(socket) = self.sockets.get_mut(id) {
                    socket.is_common = true;
                }
            }
            Step::ConnectByKernel(why) => self.connect_by_kernel_instead(id, why, now),
            Step::Move => return self.move_to_kernel(id, Terms::Must, now),
            Step::Offer => return self.move_to_kernel(id, Terms::Offered, now),
            Step::Lose => self.lose(id, now),
            Step::Inherit => self.leave_to_parent(id),
            Step::Forget => self.forget_on_stack(id),
        }
        Ok(())
    }

    /// Something happened to all sockets at once, and nobody is to be waited for.
    pub(crate) fn on_happening_to_all(&mut self, happening: Happening, now: Instant) {
        let ids: Vec<SocketId> = self.sockets.iter().map(|(id, _)| id).collect();
        for id in ids {
            let step = self.step(id, happening);
            let _ = self.carry_out(id, step, now); // What is lost says so when it is used.
        }
    }

    /// What the stack has of a listener or a UDP socket goes with the stack, or is the parent's.
    fn forget_on_stack(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get_mut(id) else { return };
        socket.claim = None;
        match &mut socket.role {
            Role::Listener { on_stack, .. } => *on_stack = None,
            Role::Udp(udp) => udp.on_stack = None,
            Role::Stream(_) => {}
        }
    }
}
