//! Connections that became the kernel's a moment ago.

use std::collections::VecDeque;
use std::net::SocketAddr;

use clock::{Duration, Instant};

use crate::registry::ClientId;

/// How long after the move a client may bring what came to it: later its sender has sent it again.
const LATE_MAX: Duration = Duration::from_secs(1);
/// Connections remembered at most; the oldest makes room.
const RECENT_MAX: usize = 1 << 14;

/// Connections that became the kernel's a moment ago, in the order in which they did.
#[derive(Default)]
pub(super) struct RecentMoves(VecDeque<RecentMove>);

struct RecentMove {
    client: ClientId,
    ends: (SocketAddr, SocketAddr),
    at: Instant,
}

impl RecentMoves {
    pub(super) fn insert(&mut self, client: ClientId, ends: (SocketAddr, SocketAddr), now: Instant) {
        self.expire(now);
        if self.0.len() >= RECENT_MAX {
            self.0.pop_front();
        }
        self.0.push_back(RecentMove { client, ends, at: now });
    }

    /// Whether this client moved this connection a moment ago. The latest are asked for more often than not.
    pub(super) fn contains(
        &mut self,
        client: ClientId,
        ends: (SocketAddr, SocketAddr),
        now: Instant,
    ) -> bool {
        self.expire(now);
        self.0.iter().rev().any(|recent| (recent.client, recent.ends) == (client, ends))
    }

    fn expire(&mut self, now: Instant) {
        while self.0.front().is_some_and(|recent| now.since(recent.at) >= LATE_MAX) {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(port: u16) -> (SocketAddr, SocketAddr) {
        (SocketAddr::from(([192, 0, 2, 1], 80)), SocketAddr::from(([192, 0, 2, 2], port)))
    }

    #[test]
    fn who_moved_a_connection_may_bring_what_is_late_for_a_second() {
        let mut moves = RecentMoves::default();
        let start = Instant::from_nanos(1);
        moves.insert(ClientId(1), ends(4000), start);
        moves.insert(ClientId(2), ends(4001), start + Duration::from_millis(500));
        assert!(moves.contains(ClientId(1), ends(4000), start + Duration::from_millis(999)));
        assert!(!moves.contains(ClientId(2), ends(4000), start), "it is another's");
        assert!(!moves.contains(ClientId(1), ends(4001), start));
        assert!(!moves.contains(ClientId(1), ends(4000), start + Duration::from_secs(1)));
        assert!(moves.contains(ClientId(2), ends(4001), start + Duration::from_secs(1)));
    }

    #[test]
    fn the_oldest_makes_room() {
        let mut moves = RecentMoves::default();
        let now = Instant::from_nanos(1);
        (0..=RECENT_MAX as u16).for_each(|port| moves.insert(ClientId(1), ends(port), now));
        assert!(!moves.contains(ClientId(1), ends(0), now));
        assert!(moves.contains(ClientId(1), ends(1), now));
        assert_eq!(moves.0.len(), RECENT_MAX);
    }
}
