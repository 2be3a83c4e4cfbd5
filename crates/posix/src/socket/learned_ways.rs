//! How datagrams came: what goes back to a peer goes the same way.
//!
//! Ways are kept in two generations. The older one goes when the younger is full or has been used for as long as a way is believed, so that
//! the peers of the last moments are always known, however many there are.

use std::collections::HashMap;
use std::net::SocketAddr;

use clock::{Duration, Instant};
use stack::Hop;

/// How long a way is believed: neighbours change, and the kernel knows.
const LIFETIME: Duration = Duration::from_secs(30);
/// Peers of one generation.
const PEERS_MAX: usize = 1 << 16;

/// How a datagram came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LearnedWay {
    pub(crate) remote: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) hop: Hop,
}

/// The ways of a socket.
#[derive(Default)]
pub(crate) struct LearnedWays {
    /// The last one, which is mostly asked for next.
    last: Option<(LearnedWay, Instant)>,
    young: HashMap<SocketAddr, (LearnedWay, Instant)>,
    old: HashMap<SocketAddr, (LearnedWay, Instant)>,
    young_since: Instant,
}

impl LearnedWays {
    pub(crate) fn note(&mut self, way: LearnedWay, now: Instant) {
        match self.last.replace((way, now)) {
            Some((before, at)) if before.remote != way.remote => self.keep(before, at, now),
            _ => {}
        }
    }

    fn keep(&mut self, way: LearnedWay, at: Instant, now: Instant) {
        if self.young.len() >= PEERS_MAX || now.since(self.young_since) >= LIFETIME {
            self.old = std::mem::take(&mut self.young);
            self.young_since = now;
        }
        self.young.insert(way.remote, (way, at));
    }

    pub(crate) fn find(&self, remote: SocketAddr, now: Instant) -> Option<&LearnedWay> {
        let last = self.last.as_ref().filter(|(way, _)| way.remote == remote);
        let known = last.or_else(|| self.young.get(&remote).or_else(|| self.old.get(&remote)));
        known.filter(|(_, at)| now.since(*at) < LIFETIME).map(|(way, _)| way)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(peer: u32) -> LearnedWay {
        let [a, b, c, d] = peer.to_be_bytes();
        let remote = SocketAddr::from(([10 + a, b, c, d], 443));
        LearnedWay { remote, local: SocketAddr::from(([192, 0, 2, 1], 443)), hop: Hop::default() }
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn all_peers_of_the_last_moments_are_known() {
        let mut ways = LearnedWays::default();
        let peers = 3 * PEERS_MAX as u32;
        (0..peers).for_each(|peer| ways.note(way(peer), at(1)));
        for peer in peers - PEERS_MAX as u32..peers {
            assert_eq!(ways.find(way(peer).remote, at(2)), Some(&way(peer)), "{peer}");
        }
        assert!(ways.young.len() <= PEERS_MAX && ways.old.len() <= PEERS_MAX, "and not all that ever were");
    }

    #[test]
    fn a_way_is_believed_for_half_a_minute_after_its_last_datagram() {
        let mut ways = LearnedWays::default();
        ways.note(way(1), at(0));
        ways.note(way(2), at(20));
        ways.note(way(3), at(20));
        assert!(ways.find(way(1).remote, at(29)).is_some() && ways.find(way(1).remote, at(30)).is_none());
        assert!(ways.find(way(2).remote, at(49)).is_some() && ways.find(way(3).remote, at(50)).is_none());
        ways.note(way(1), at(40));
        assert!(ways.find(way(1).remote, at(69)).is_some());
    }

    #[test]
    fn a_peer_that_comes_another_way_is_answered_there() {
        let mut ways = LearnedWays::default();
        ways.note(way(1), at(0));
        let moved = LearnedWay { local: SocketAddr::from(([192, 0, 2, 7], 443)), ..way(1) };
        ways.note(moved, at(1));
        ways.note(way(2), at(2));
        assert_eq!(ways.find(way(1).remote, at(2)), Some(&moved));
    }
}
