//! A process whose threads wait for each other leaves the stack, as `process/crowd.rs` finds it.

use clock::Instant;

use crate::ids::SocketId;
use crate::moves::to_kernel::Terms;
use crate::process::State;
use crate::process::crowd::CROWDED;
use crate::socket::{Happening, Step};

impl State {
    /// Leaves all to the kernel if the lock is crowded. Connections first, and each only if the kernel takes it: while it does not, all goes
    /// on as before.
    pub(crate) fn leave_if_crowded(&mut self, now: Instant) {
        if !self.crowd.is_too_much() {
            return;
        }
        self.crowd.begin_anew();
        if !self.attachment().is_some_and(|it| it.leaves_unsuited()) {
            return;
        }
        let moved = self.left_to_kernel.moved;
        let have_left = self.offer_connections(now);
        if have_left {
            self.crowd.has_left = true;
            self.leave_to_kernel(CROWDED, self.clock.now());
        }
        self.left_to_kernel.crowd += self.left_to_kernel.moved - moved;
    }

    /// Offers all connections to the kernel; false if it did not take one. Those that threads wait at go with their listeners.
    fn offer_connections(&mut self, now: Instant) -> bool {
        let ids: Vec<SocketId> = self.sockets.iter().map(|(id, _)| id).collect();
        ids.into_iter().all(|id| {
            let is_meant = self.step(id, Happening::Unsuited) == Step::Offer && self.may_leave(id);
            !is_meant || self.move_to_kernel(id, Terms::Offered, now).is_ok()
        })
    }
}
