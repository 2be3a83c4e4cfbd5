//! Connections that wait for the broker to know the way to their peers.

use clock::{Duration, Instant};

use crate::broker_side::RequestId;
use crate::ids::SocketId;

/// A broker that has said nothing for so long may be stopped: the kernel connects.
const PATIENCE: Duration = Duration::from_secs(3);

/// The oldest first.
#[derive(Debug, Default)]
pub(crate) struct AwaitedRoutes(Vec<(RequestId, SocketId, Instant)>);

impl AwaitedRoutes {
    /// The way for a socket is asked for.
    pub(crate) fn push(&mut self, request: RequestId, id: SocketId, now: Instant) {
        self.0.push((request, id, now));
    }

    /// The socket whose way has come.
    pub(crate) fn take(&mut self, request: RequestId) -> Option<SocketId> {
        let place = self.0.iter().position(|(asked, ..)| *asked == request)?;
        Some(self.0.remove(place).1)
    }

    /// What has waited for too long.
    pub(crate) fn take_late(&mut self, now: Instant) -> Option<(RequestId, SocketId)> {
        self.due().filter(|due| now >= *due)?;
        let (request, id, _) = self.0.remove(0);
        Some((request, id))
    }

    /// When the next one has.
    pub(super) fn due(&self) -> Option<Instant> {
        self.0.first().map(|(.., since)| *since + PATIENCE)
    }

    /// A socket waits no more.
    pub(crate) fn forget(&mut self, id: SocketId) {
        self.0.retain(|(_, other, _)| *other != id);
    }

    /// None does.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
