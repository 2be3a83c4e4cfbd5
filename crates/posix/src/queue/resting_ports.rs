//! Local ports of our past connections, which the next connections use without asking the broker.
//!
//! A port that the kernel chose for us stays claimed for a while. The broker holds it by a socket of its own, so no other
//! socket gets the port meanwhile.
//!
//! The peer may still have the last connection in TIME-WAIT. It accepts a SYN with a later timestamp as a new connection, and recognises
//! old segments by their timestamps (RFC 6191, 2; RFC 7323, 5). So a port rests for many steps of that clock, and ports of connections
//! without timestamps are not reused.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use clock::{Duration, Instant};

use crate::broker_side::ClaimId;

/// How long a port rests before it is used again, also if we closed its last connection first and have that in TIME-WAIT ourselves.
pub(crate) const REST: Duration = Duration::from_millis(100);
/// How long an unused port is kept.
const KEPT: Duration = Duration::from_secs(2);
/// Ports that are given back at a time.
const EXPIRED_MAX: usize = 64;
/// Ports that are looked at for a connection.
const LOOKED_AT_MAX: usize = 64;
/// Ports that rest at most: each is a claim, and a socket that the broker keeps.
const RESTING_MAX: usize = 4096;

/// A port that rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resting {
    pub(crate) claim: ClaimId,
    pub(crate) local: SocketAddr,
    since: Instant,
}

/// The ports of a process that may be used again.
#[derive(Debug, Default)]
pub(crate) struct RestingPorts {
    /// Ports that the kernel chose, of connections that there are.
    chosen: BTreeMap<ClaimId, SocketAddr>,
    /// By address; the one that rests longest is in front.
    resting: BTreeMap<IpAddr, VecDeque<Resting>>,
    count: usize,
}

impl RestingPorts {
    /// The kernel chose `local` for a connection.
    pub(crate) fn note_chosen(&mut self, claim: ClaimId, local: SocketAddr) {
        self.chosen.insert(claim, local);
    }

    /// The port of a claim is not to be used again.
    pub(crate) fn forget(&mut self, claim: ClaimId) {
        self.chosen.remove(&claim);
    }

    /// The connection of a claim is over: its port rests. False if it is not to be used again.
    pub(crate) fn rest(&mut self, claim: ClaimId, now: Instant) -> bool {
        let Some(local) = self.chosen.remove(&claim) else { return false };
        let has_room = self.count < RESTING_MAX;
        if has_room {
            self.count += 1;
            self.resting.entry(local.ip()).or_default().push_back(Resting { claim, local, since: now });
        }
        has_room
    }

    /// The port of an address that has rested longest, if that is long enough, of those that are good.
    pub(crate) fn rested(
        &self,
        source: IpAddr,
        now: Instant,
        mut is_good: impl FnMut(SocketAddr) -> bool,
    ) -> Option<Resting> {
        let resting = self.resting.get(&source)?.iter().take(LOOKED_AT_MAX);
        let mut rested = resting.take_while(|port| now >= port.since + REST);
        rested.find(|port| is_good(port.local)).copied()
    }

    /// A connection leaves from the port that [`RestingPorts::rested`] told.
    pub(crate) fn wake(&mut self, port: Resting) {
        let Some(ports) = self.resting.get_mut(&port.local.ip()) else { return };
        if let Some(place) = ports.iter().take(LOOKED_AT_MAX).position(|resting| *resting == port) {
            ports.remove(place);
            self.count -= 1;
            self.chosen.insert(port.claim, port.local);
        }
    }

    /// Takes out what has not been used for long, a part of it if it is much: its claims.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<ClaimId> {
        let mut expired = Vec::new();
        for ports in self.resting.values_mut() {
            let room = ports.len().min(EXPIRED_MAX - expired.len());
            let fresh = ports.iter().take(room).position(|port| now < port.since + KEPT).unwrap_or(room);
            expired.extend(ports.drain(..fresh).map(|port| port.claim));
        }
        self.resting.retain(|_, ports| !ports.is_empty());
        self.count -= expired.len();
        expired
    }

    /// Takes out a port, of whatever address: the claims.
    pub(crate) fn take(&mut self, port: u16) -> Vec<ClaimId> {
        let mut taken = Vec::new();
        for ports in self.resting.values_mut() {
            taken.extend(ports.iter().filter(|resting| resting.local.port() == port).map(|it| it.claim));
            ports.retain(|resting| resting.local.port() != port);
        }
        self.count -= taken.len();
        taken
    }

    /// Takes out all that rest: their claims.
    pub(crate) fn take_all(&mut self) -> Vec<ClaimId> {
        self.count = 0;
        let resting = std::mem::take(&mut self.resting);
        resting.into_values().flatten().map(|port| port.claim).collect()
    }

    /// When [`RestingPorts::expire`] has something.
    pub(crate) fn expiry(&self) -> Option<Instant> {
        self.resting.values().filter_map(|ports| ports.front()).map(|port| port.since + KEPT).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    fn local(port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], port))
    }

    /// Ports that began to rest at these times, numbered from one.
    fn resting(times: &[u64]) -> RestingPorts {
        let mut ports = RestingPorts::default();
        for (number, millis) in (1..).zip(times) {
            ports.note_chosen(ClaimId(number), local(number as u16));
            assert!(ports.rest(ClaimId(number), at(*millis)));
        }
        ports
    }

    fn claim(port: Option<Resting>) -> Option<u64> {
        port.map(|port| port.claim.0)
    }

    #[test]
    fn a_port_rests_and_is_used_again_the_longest_first() {
        let mut ports = resting(&[0, 50]);
        let source = local(1).ip();
        assert_eq!(ports.rested(source, at(99), |_| true), None);
        let first = ports.rested(source, at(100), |_| true).unwrap();
        assert_eq!((first.claim, first.local), (ClaimId(1), local(1)));
        ports.wake(first);
        assert_eq!(claim(ports.rested(source, at(149), |_| true)), None, "one port, one connection");
        assert_eq!(claim(ports.rested(source, at(150), |_| true)), Some(2));
        assert!(ports.rest(ClaimId(1), at(160)), "and again");
    }

    #[test]
    fn other_addresses_have_other_ports() {
        let ports = resting(&[0]);
        assert_eq!(ports.rested([192, 0, 2, 9].into(), at(1000), |_| true), None);
    }

    #[test]
    fn what_is_not_used_is_given_back() {
        let mut ports = resting(&[0, 50]);
        assert_eq!((ports.expiry(), ports.expire(at(1999))), (Some(at(2000)), vec![]));
        assert_eq!(ports.expire(at(2000)), [ClaimId(1)]);
        assert_eq!((ports.expiry(), ports.take_all()), (Some(at(2050)), vec![ClaimId(2)]));
        assert_eq!(ports.expiry(), None);
    }

    #[test]
    fn a_port_is_taken_out_by_its_number() {
        let mut ports = resting(&[0, 0, 0]);
        assert_eq!(ports.take(2), [ClaimId(2)]);
        assert_eq!(ports.take(2), []);
        assert_eq!(ports.take_all(), [ClaimId(1), ClaimId(3)]);
    }

    #[test]
    fn what_was_not_chosen_or_is_one_too_many_does_not_rest() {
        let mut ports = resting(&[0; RESTING_MAX]);
        ports.note_chosen(ClaimId(9999), local(9999));
        assert!(!ports.rest(ClaimId(9999), at(0)), "there is no room");
        let first = ports.rested(local(1).ip(), at(100), |_| true).unwrap();
        ports.wake(first);
        ports.forget(first.claim);
        assert!(!ports.rest(first.claim, at(200)), "it was forgotten");
        assert!(!ports.rest(ClaimId(8888), at(200)), "the program chose it");
        ports.note_chosen(ClaimId(9999), local(9999));
        assert!(ports.rest(ClaimId(9999), at(200)));
    }
}
