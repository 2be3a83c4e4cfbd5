//! A broker that ends: all becomes the kernel's.

use clock::Instant;

use crate::ids::SocketId;
use crate::moves::to_kernel::Terms;
use crate::process::State;
use crate::socket::place::{Happening, Step};

/// Why sockets are the kernel's, for status.
const ENDED: &str = "the broker has ended";

impl State {
    /// The broker is about to end. Connections become the kernel's; those of our parent are lost.
    pub(crate) fn leave_to_kernel(&mut self, now: Instant) {
        let now = self.settle_begun(now);
        let ids: Vec<SocketId> = self.sockets.iter().map(|(id, _)| id).collect();
        for id in ids {
            match self.step(id, Happening::KernelOnly(ENDED)) {
                Step::AskParent => {}                        // It is about to do the same.
                step => drop(self.carry_out(id, step, now)), // What is lost says so when it is used.
            }
        }
        self.end_leaving();
        self.move_all(None, Terms::Must); // Those that the program has closed.
        self.give_queues_back(now);
    }
}
