//! A look after the sockets behind claims: a list of those that the kernel has, with which the claims are compared in several turns.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use steering::Transport;

use crate::protocol::ClaimId;
use crate::registry::{ClaimKey, Shadow};

/// A look that has not come to its end.
pub(super) struct Look {
    /// Where sockets are bound, by the kernel's numbers for them.
    pub(super) places: BTreeMap<u64, SocketAddr>,
    /// Of which the kernel gave no list.
    pub(super) unheard: Vec<Transport>,
    /// Later claims are for the next look.
    pub(super) until: ClaimId,
    /// The last claim that was looked at.
    pub(super) last: Option<ClaimKey>,
}

impl Look {
    /// Whether a socket was closed, or bound elsewhere, before the look began.
    pub(super) fn is_gone(&self, shadow: &Shadow) -> bool {
        let place = self.places.get(&shadow.cookie);
        !self.unheard.contains(&shadow.transport) && place.is_none_or(|local| !shadow.bound.is_at(*local))
    }
}
