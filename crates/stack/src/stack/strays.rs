//! Segments of no connection of this stack that may be of another one's: it serves the same port by other queues, and the peer's packets come by
//! another queue than before. (Linux chooses another hash when a segment times out, and with it another queue of a veth; so does a NIC whose
//! indirection table changes.)
//!
//! Whoever runs the stack asks around ([`Stack::next_stray`]), and has the peer reset if nobody has the connection ([`Stack::reset_stray`]). Until
//! then the peer hears nothing, and sends again.

use std::collections::VecDeque;
use std::net::SocketAddr;

use clock::{Duration, Instant};
use wire::tcp::{Tcp, flag};

use super::arrival::Whose;
use super::recent_flows::RecentFlows;
use super::replies::reset_of;
use super::{ConnectionId, HALF_OPEN, Stack};
use crate::flow_table::FlowKey;
use crate::path::Hop;
use crate::segment::{Ecn, Segment};
use crate::tcp::Outgoing;

/// How long what follows a stray is ignored: a burst may have come with it, and peers send again after 200 ms at the soonest.
const IGNORED_FOR: Duration = Duration::from_millis(150);

/// A segment that may be of a connection of another stack.
#[derive(Clone, Debug)]
pub struct Stray {
    /// Our end.
    pub local: SocketAddr,
    /// The peer, which sent it.
    pub remote: SocketAddr,
    /// The TCP header and what follows, as they came.
    pub octets: Vec<u8>,
    key: FlowKey,
    hop: Hop,
    /// What its sender is told if nobody knows it.
    reset: Option<Outgoing>,
}

/// Strays that were not collected yet, oldest first, and flows that somebody was asked about.
#[derive(Debug)]
pub(super) struct Strays {
    waiting: VecDeque<Stray>,
    asked: RecentFlows,
}

impl Strays {
    /// `key` is that of the table that makes the hashes.
    pub(super) fn new(max: usize, key: [u64; 2]) -> Strays {
        Strays { waiting: VecDeque::new(), asked: RecentFlows::new(max, IGNORED_FOR, key) }
    }
}

impl Stack {
    /// The oldest segment that somebody else may know, as far as [`Config::strays_max`] allowed to keep it.
    ///
    /// [`Config::strays_max`]: crate::Config::strays_max
    pub fn next_stray(&mut self) -> Option<Stray> {
        self.strays.waiting.pop_front()
    }

    /// Nobody has the connection: the peer is told.
    pub fn reset_stray(&mut self, stray: Stray) {
        if let Some(reset) = stray.reset {
            self.replies.push(stray.key, stray.hop, reset, &mut self.shared.counters);
        }
    }

    /// A segment that came to another stack, which asks about it: the TCP header and what follows. Returns whether the flow is known here; if so,
    /// the segment is taken.
    pub fn on_stray(&mut self, local: SocketAddr, remote: SocketAddr, octets: &[u8], now: Instant) -> bool {
        let Some(key) = FlowKey::new(local, remote) else { return false };
        let hash = self.flows.hash_of(&key);
        let Some(place) = self.find_flow(hash, &key) else { return self.time_wait.contains(hash, &key) };
        let Ok(tcp) = Tcp::parse(octets) else { return true };
        let segment = Segment::new(&tcp, Ecn::NotEct);
        if place & HALF_OPEN != 0 {
            return matches!(self.on_half_open_segment(place & !HALF_OPEN, &segment, now), Whose::Ours);
        } else if let Some((id, connection)) = self.connections.at(place) {
            let hop = self.shared.paths.hop(connection.path);
            self.on_connection_segment(id, hop, &segment, now);
        }
        true
    }

    /// The connection between these two ends, if there is one whose handshake is over.
    pub fn connection_between(&self, local: SocketAddr, remote: SocketAddr) -> Option<ConnectionId> {
        let key = FlowKey::new(local, remote)?;
        let place = self.find_flow(self.flows.hash_of(&key), &key).filter(|place| place & HALF_OPEN == 0)?;
        self.connections.at(place).map(|(id, _)| id)
    }

    /// A segment belongs to nothing here. A SYN concerns nobody else either. What exceeds those that may be asked about is dropped: a reset would end
    /// connections that others have. Who sends again gets its turn, and its reset (RFC 9293, 3.10.7.1) if nobody has the connection.
    #[cold]
    pub(super) fn on_stranger(
        &mut self,
        key: FlowKey,
        hop: Hop,
        segment: &Segment<'_>,
        octets: &[u8],
        now: Instant,
    ) {
        let may_be_known = !segment.has(flag::SYN) && self.shared.config.strays_max > 0;
        if !may_be_known {
            return self.reset_peer(key, hop, segment);
        }
        let hash = self.flows.hash_of(&key);
        let Strays { waiting, asked } = &mut self.strays;
        let is_one_too_many = waiting.len() >= self.shared.config.strays_max || asked.is_full(now);
        if is_one_too_many || asked.contains(hash, &key, now) {
            self.shared.counters.strays_ignored += 1;
            return;
        }
        asked.insert(hash, key, now);
        self.shared.counters.strays += 1;
        let (local, remote, octets) = (key.local(), key.remote(), octets.to_vec());
        waiting.push_back(Stray { local, remote, octets, key, hop, reset: reset_of(segment) });
    }
}
