//! Listeners that were closed while their connections go on.

use std::net::SocketAddr;

use clock::{Duration, Instant};

use crate::broker_side::ClaimId;

/// How long after its last listener was closed a program keeps its queues: some listen anew for each client.
pub(crate) const LISTENS_ANEW: Duration = Duration::from_secs(1);

/// A listener that is no more, while others may follow.
pub(crate) struct Ended {
    pub(crate) claim: ClaimId,
    pub(crate) local: SocketAddr,
    /// When it ended, or was looked at last.
    pub(crate) at: Instant,
    /// When its connections move to the kernel, if they have not: it has to know for whom the port is in use.
    pub(crate) moves_at: Option<Instant>,
}

/// When to look at them.
pub(super) fn due(ended: &[Ended]) -> Option<Instant> {
    ended.iter().map(|ended| ended.moves_at.unwrap_or(ended.at + LISTENS_ANEW)).min()
}
