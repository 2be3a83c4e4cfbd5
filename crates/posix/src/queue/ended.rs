//! Listeners that were closed while their connections go on, and those that are about to leave the stack.

use std::net::SocketAddr;

use clock::{Duration, Instant};

use crate::broker_side::{ClaimId, RequestId};
use crate::ids::SocketId;

/// How long after its last listener was closed a program keeps its queues: some listen anew for each client.
pub(crate) const LISTENS_ANEW: Duration = Duration::from_secs(1);

/// How long what belongs to a closed listener stays where it is (`moves/leaving.rs`).
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

/// A listener that is about to leave the stack.
pub(crate) struct Leaving {
    pub(crate) id: SocketId,
    pub(crate) claim: ClaimId,
    pub(crate) local: SocketAddr,
    pub(crate) heir: Heir,
    /// It was closed: its socket has a number of ours, or none, and ends with it.
    pub(crate) is_closed: bool,
    /// When it goes on with that.
    pub(crate) at: Instant,
    /// The broker was asked to pass new connections to the kernel.
    pub(crate) asked: Option<(RequestId, Instant)>,
    /// When it did.
    pub(crate) drained_at: Option<Instant>,
}

/// Who has a listener that leaves from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heir {
    /// The other processes that have it.
    Others,
    /// Nobody: others may listen at the same port by sockets of their own.
    AtPort,
    /// The kernel, for all that have it, us among them.
    Kernel,
}

impl Leaving {
    /// One that nothing was done about yet.
    pub(crate) fn new(id: SocketId, claim: ClaimId, local: SocketAddr) -> Leaving {
        Leaving {
            id,
            claim,
            local,
            heir: Heir::Others,
            is_closed: false,
            at: Instant::ZERO,
            asked: None,
            drained_at: None,
        }
    }
}

impl Ended {
    /// Whether its connections are to move.
    pub(crate) fn is_to_move(&self, now: Instant) -> bool {
        self.moves_at.is_some_and(|at| now >= at)
    }
}

/// When to look at them.
pub(super) fn due(ended: &[Ended], leaving: &[Leaving]) -> Option<Instant> {
    let leaving = leaving.iter().map(|leaving| leaving.at);
    ended.iter().map(|ended| ended.moves_at.unwrap_or(ended.at + LISTENS_ANEW)).chain(leaving).min()
}
