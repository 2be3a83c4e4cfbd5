//! Handshakes that were under way at a listener that closed. They are kept until a process with the same listener serves their
//! queue.
//!
//! A peer that has sent a SYN may need seconds for the rest on a bad path, longer than an ending process can wait. Meanwhile
//! no stack knows the connection, and the kernel would reset it. So the steering program drops its packets, which the peer sends
//! again, until the queue has its next owner. That owner learns of the handshake before it gets packets.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use clock::{Duration, Instant};
use steering::QueueSet;

use crate::protocol::Handshake;
use crate::registry::ClientId;
use crate::shares::User;

/// How long to wait for a process that continues a handshake.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);
/// How many are kept at most, of which one user has its share: see [`crate::shares::has_room`].
pub(super) const HANDSHAKES_MAX: usize = 256;

/// Those that are kept, the oldest first.
#[derive(Default)]
pub(super) struct Handshakes(pub(super) Vec<Kept>);

/// One of them.
pub(super) struct Kept {
    pub(super) handshake: Handshake,
    /// Whose process handed it on.
    pub(super) user: User,
    /// Queues that its packets may come by.
    pub(super) queues: QueueSet,
    /// The kernel's numbers of the listeners that it may have begun at.
    pub(super) listeners: BTreeSet<u64>,
    pub(super) since: Instant,
    /// The clients that were told: if several get the queues, it is unknown which one has the peer's.
    pub(super) told: Vec<ClientId>,
}

impl Handshakes {
    /// Whether a client is to go on with the handshake of these ends.
    pub(super) fn was_told(
        &self,
        client: ClientId,
        (local, remote): (SocketAddr, SocketAddr),
        now: Instant,
    ) -> bool {
        let is_it = |kept: &&Kept| {
            (kept.handshake.local, kept.handshake.remote) == (local, remote) && now < kept.since + PATIENCE
        };
        self.0.iter().filter(is_it).any(|kept| kept.told.contains(&client))
    }

    pub(super) fn expire(&mut self, now: Instant) {
        self.0.retain(|kept| now < kept.since + PATIENCE);
    }
}
