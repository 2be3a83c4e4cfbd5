//! Ports of connections that the program has closed and the stack has not finished.

use clock::{Duration, Instant};
use stack::ConnectionId;

use super::resting_ports::RestingPorts;
use crate::broker_side::ClaimId;

/// How often it is looked which connections are over.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The same while nothing else happens.
const LOOK_IDLE_EVERY: Duration = Duration::from_secs(1);

/// A connection that the program has closed: the broker keeps its port until the stack is done with it.
pub(crate) struct KeptPort {
    pub(crate) connection: ConnectionId,
    pub(crate) claim: ClaimId,
}

/// When to look at ports, if nothing else happens until then.
pub(super) fn due(resting: &RestingPorts, kept: &[KeptPort], looked_at: Instant) -> Option<Instant> {
    let resting = resting.expiry().map(|expiry| expiry.max(looked_at + LOOK_EVERY));
    let closing = (!kept.is_empty()).then(|| looked_at + LOOK_IDLE_EVERY);
    [resting, closing].into_iter().flatten().min()
}
