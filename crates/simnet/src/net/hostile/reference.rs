//! What a connection may make of segments, in the simplest terms: which octets were ever offered inside the window, and what
//! the victim said of them.

use std::collections::BTreeSet;

use wire::tcp::flag;

use super::forged::{Forged, octet};
use crate::net::sight::Sight;

/// One connection as the RFC's words have it. Positions count octets of a stream from zero; a FIN takes one.
#[derive(Clone, Debug)]
pub(super) struct Reference {
    /// The liar's SYN.
    pub(super) irs: Option<u32>,
    /// The victim's SYN.
    pub(super) iss: u32,
    /// For each position, a bit for each variant that was offered there inside the window.
    offered: Vec<u8>,
    /// Positions at which a FIN was offered.
    fins: BTreeSet<u64>,
    /// Octets that the victim was seen to have, checked.
    pub(super) seen: u64,
    /// End of the window that the victim offered.
    edge: u64,
    /// End of what the victim sent.
    pub(super) sent: u64,
    /// End of what the victim was allowed to send.
    allowed: u64,
    victim_scale: Option<u8>,
    liar_scale: Option<u8>,
}

impl Reference {
    /// A connection in which the victim's SYN is `sight`. `irs` is the liar's, if it was the first, and `first` its segment.
    pub(super) fn new(sight: &Sight<'_>, first: Option<&Forged>) -> Reference {
        let irs = sight.ack.map(|ack| ack.wrapping_sub(1));
        let mut reference = Reference {
            irs,
            iss: sight.seq,
            offered: Vec::new(),
            fins: BTreeSet::new(),
            seen: 0,
            edge: u64::from(sight.window),
            sent: 0,
            allowed: 0,
            victim_scale: sight.scale,
            liar_scale: None,
        };
        if let Some(first) = first.filter(|first| irs == Some(first.seq)) {
            reference.note_liar_syn(first);
        }
        reference
    }

    /// Whether `sight` is the victim's SYN or SYN-ACK of this connection.
    pub(super) fn begins_by(&self, sight: &Sight<'_>) -> bool {
        let same_peer = sight.ack.is_none_or(|ack| self.irs.is_none_or(|irs| irs == ack.wrapping_sub(1)));
        self.iss == sight.seq && same_peer
    }

    /// The segment that began the connection, or answered the victim's SYN.
    pub(super) fn note_liar_syn(&mut self, syn: &Forged) {
        self.irs = Some(syn.seq);
        self.liar_scale = Some(14); // Whatever it said: nothing is more.
        self.allowed = self.allowed.max(u64::from(syn.window));
    }

    /// Distance of `seq` from the first octet of the liar's stream; `None` in front of it.
    fn position(&self, seq: u32) -> Option<u64> {
        let distance = seq.wrapping_sub(self.irs?.wrapping_add(1));
        (distance < 1 << 31).then_some(u64::from(distance))
    }

    /// Distance of `seq` from the first octet of the victim's stream.
    fn own_position(&self, seq: u32) -> Option<u64> {
        let distance = seq.wrapping_sub(self.iss.wrapping_add(1));
        (distance < 1 << 31).then_some(u64::from(distance))
    }

    /// Notes what a segment offers: its octets inside the window, its FIN, its own window.
    pub(super) fn offer(&mut self, segment: &Forged) {
        for at in 0..segment.len as u32 {
            let seq = segment.data_seq().wrapping_add(at);
            if let Some(position) = self.position(seq).filter(|position| *position < self.edge) {
                self.mark(position as usize, segment.variant);
            }
        }
        let end = segment.data_seq().wrapping_add(segment.len as u32);
        if segment.has(flag::FIN)
            && let Some(position) = self.position(end)
        {
            self.fins.insert(position);
        }
        if segment.has(flag::ACK)
            && let Some(position) = self.own_position(segment.ack).filter(|position| *position <= self.sent)
        {
            let shift = if self.victim_scale.is_some() { self.liar_scale.unwrap_or(0) } else { 0 };
            self.allowed = self.allowed.max(position + (u64::from(segment.window) << shift));
        }
    }

    fn mark(&mut self, position: usize, variant: u8) {
        if self.offered.len() <= position {
            self.offered.resize(position + 1, 0);
        }
        self.offered[position] |= 1 << (variant & 3);
    }

    /// The victim has `octets` behind what was seen before.
    ///
    /// # Panics
    /// If any of them was not offered where it stands.
    pub(super) fn see(&mut self, octets: &[u8]) {
        let start = self.irs.expect("a connection with data has a peer").wrapping_add(1);
        for (at, found) in (self.seen..).zip(octets) {
            let variants = self.offered.get(at as usize).copied().unwrap_or(0);
            let matches = |variant: &u8| {
                variants & 1 << variant != 0 && octet(*variant, start.wrapping_add(at as u32)) == *found
            };
            assert!((0..4).any(|variant| matches(&variant)), "octet {at} was never offered in the window");
        }
        self.seen += octets.len() as u64;
    }

    /// The next sequence number that the victim expects, a FIN that it has taken counted.
    pub(super) fn rcv_nxt(&self, finished: bool) -> Option<u32> {
        Some(self.irs?.wrapping_add(1).wrapping_add(self.seen as u32).wrapping_add(finished.into()))
    }

    /// Whether a FIN was offered behind all that was seen.
    pub(super) fn may_finish(&self) -> bool {
        self.fins.contains(&self.seen)
    }

    /// A segment that the victim sends in this connection.
    ///
    /// # Panics
    /// If it says what it cannot know, or sends more than it was allowed.
    pub(super) fn on_sent(&mut self, sight: &Sight<'_>) {
        match self.own_position(sight.seq) {
            Some(position) if position <= self.sent => {
                let end = position + sight.payload.len() as u64;
                self.sent = self.sent.max(end + u64::from(sight.has(flag::FIN)));
                let (allowed, len) = (self.allowed, sight.payload.len());
                assert!(len == 0 || end <= allowed, "octets up to {end} are sent, and {allowed} are allowed");
            }
            None if sight.seq == self.iss => {} // The SYN, or a probe in front of the first octet.
            // TIME-WAIT answers for the connection before.
            _ => return assert!(sight.payload.is_empty(), "data is sent that does not follow what was sent"),
        }
        let Some(position) = sight.ack.and_then(|ack| self.position(ack)) else {
            return;
        };
        self.check_acknowledged(position);
        let shift = if self.liar_scale.is_some() && !sight.has(flag::SYN) { self.victim_scale } else { None };
        self.edge = self.edge.max(position + (u64::from(sight.window) << shift.unwrap_or(0)));
    }

    /// Everything that is acknowledged was offered.
    fn check_acknowledged(&self, end: u64) {
        let is_offered =
            |position: u64| self.offered.get(position as usize).is_some_and(|variants| *variants > 0);
        let missing = (self.seen..end).find(|position| !is_offered(*position));
        let by_fin = missing.is_some_and(|position| position + 1 == end && self.fins.contains(&position));
        assert!(missing.is_none() || by_fin, "{end} octets are acknowledged, and {missing:?} never came");
    }
}
