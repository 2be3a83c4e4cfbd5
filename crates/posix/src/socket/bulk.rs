//! Connections that send in bulk are left to the kernel.
//!
//! The kernel sends a file from where it is, and copies what a program writes once. Here it is copied into the send queue, and from there
//! to the device. Calls that send little cost us less than they cost the kernel, calls that send much cost more. A connection tells by
//! what it does which kind it is: once it has sent [`ENOUGH`] by large calls it moves to the kernel, with all that is queued. Profiles may
//! say that it stays.

use clock::Instant;

use super::{Socket, SocketId};
use crate::process::State;

/// Octets that a large call sends at least.
const LARGE: usize = 32 << 10;
/// Octets that a connection sends by large calls before it moves: moving asks the broker, and begins with a new congestion window.
const ENOUGH: u32 = 1 << 20;

/// What a connection has sent by large calls, of late.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BulkSends {
    octets: u32,
    /// The kernel did not take it: it is not asked again.
    stays: bool,
}

impl BulkSends {
    fn note(&mut self, sent: usize) {
        self.octets = self.octets.saturating_add(u32::try_from(sent).unwrap_or(u32::MAX));
    }

    fn is_bulk(self) -> bool {
        self.octets >= ENOUGH && !self.stays
    }
}

impl Socket {
    /// A call that was to send `wanted` octets has sent `sent` of them.
    pub(super) fn note_sent(&mut self, wanted: usize, sent: usize) {
        if wanted >= LARGE {
            self.bulk_sends.note(sent);
        }
    }
}

impl State {
    /// Leaves a connection to the kernel if it sends in bulk; whether it has left. One that cannot leave now may after as much again.
    pub(super) fn leave_bulk_to_kernel(&mut self, id: SocketId, now: Instant) -> bool {
        let Some(socket) = self.sockets.get_mut(id).filter(|socket| socket.bulk_sends.is_bulk()) else {
            return false;
        };
        socket.bulk_sends.octets = 0;
        // A thread whose call waits knows the connection as it is: it would not find one that the kernel refuses, and that comes back.
        let is_free = socket.callers.is_empty();
        if !is_free || !self.attachment().is_some_and(|it| it.leaves_bulk()) {
            return false;
        }
        let has_left = self.move_to_kernel_if_taken(id, now);
        self.left_to_kernel.bulk += u64::from(has_left);
        if let Some(socket) = self.sockets.get_mut(id) {
            socket.bulk_sends.stays = !has_left;
        }
        has_left
    }
}
