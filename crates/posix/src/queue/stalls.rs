//! Sockets at which something waits that no thread takes.

use clock::{Duration, Instant};

use crate::ids::SocketId;

/// Between two looks at what waits.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The sockets at which something waits, or did a moment ago.
#[derive(Default)]
pub(crate) struct Stalls {
    pub(crate) at: Vec<SocketId>,
    /// When to look at them.
    pub(crate) look_at: Option<Instant>,
    /// What others are to have cannot wait in the kernel: it comes to one of them, and may have to go on from there.
    pub(crate) is_pushed: bool,
}
