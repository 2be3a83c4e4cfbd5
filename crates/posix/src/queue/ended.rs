//! Listeners that were closed while their connections go on, and those that were closed just now.

use std::net::SocketAddr;

use clock::{Duration, Instant};

use crate::broker_side::ClaimId;
use crate::ids::SocketId;

/// How long after its last listener was closed a program keeps its queues: some listen anew for each client.
pub(crate) const LISTENS_ANEW: Duration = Duration::from_secs(1);

/// How long what belongs to a closed listener stays where it is (`moves/kept.rs`).
pub(crate) const KEPT_AFTER_CLOSE: Duration = Duration::from_millis(5);

/// A listener that is no more, while others may follow.
pub(crate) struct Ended {
    pub(crate) claim: ClaimId,
    pub(crate) local: SocketAddr,
    /// When it ended, or was looked at last.
    pub(crate) at: Instant,
    /// When its connections move to the kernel, if they have not: it has to know for whom the port is in use.
    pub(crate) moves_at: Option<Instant>,
}

/// A listener that was closed, and is still on the stack.
pub(crate) struct KeptListener {
    /// The socket has no number any more.
    pub(crate) id: SocketId,
    pub(crate) local: SocketAddr,
    /// When it is to end.
    pub(crate) at: Instant,
}

impl Ended {
    /// Whether its connections are to move.
    pub(crate) fn is_to_move(&self, now: Instant) -> bool {
        self.moves_at.is_some_and(|at| now >= at)
    }
}

/// When to look at them.
pub(super) fn due(ended: &[Ended], kept: &[KeptListener]) -> Option<Instant> {
    let kept = kept.iter().map(|kept| kept.at);
    ended.iter().map(|ended| ended.moves_at.unwrap_or(ended.at + LISTENS_ANEW)).chain(kept).min()
}
