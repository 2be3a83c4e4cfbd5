//! Connections that wait for `accept` at a closed listener, while no other process with the same listener has claimed it yet.
//!
//! A worker that replaces another one claims the listener when it first waits on it, and sends us nothing before. On a busy
//! machine the other worker may have closed its listener by then.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use clock::{Duration, Instant};

use super::helpers::Theirs;

/// When to check whether any process has the listener: the one that closed it has it a moment longer.
pub(super) const LOOK_AFTER: Duration = Duration::from_millis(20);
/// How long they wait.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);
/// How many wait at most, of which one user has its share: see [`crate::shares::has_room`].
pub(super) const ORPHANS_MAX: usize = 256;

/// One connection.
pub(super) struct Orphan {
    pub(super) socket: Theirs,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    /// The kernel's numbers of the listeners that it may have waited at.
    pub(super) listeners: BTreeSet<u64>,
    pub(super) until: Instant,
    /// When to look whether one of them is still there.
    pub(super) look_at: Option<Instant>,
}
