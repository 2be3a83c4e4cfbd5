//! Flows that were sent to lately. An ICMP error about another flow is forged (RFC 8085, 5.2).

use crate::flow_table::{FlowKey, secret_hash};

/// Flows that are remembered at most.
const FLOWS: usize = 1 << 16;

/// A lossy memory of flows of unconnected sockets. UDP has no sequence number by which to tell forged ICMP errors from true
/// ones (RFC 5927 has that for TCP), and such a socket has sent to few of the addresses that an attacker can name.
///
/// A flow is forgotten when another takes its place, which costs an ICMP error, and another flow looks the same by chance
/// once in 65535 times.
#[derive(Debug)]
pub(crate) struct SentTo {
    key: [u64; 2],
    /// Empty until the first flow; zero stands for none.
    tags: Vec<u16>,
}

impl SentTo {
    pub(crate) fn new(key: [u64; 2]) -> SentTo {
        SentTo { key, tags: Vec::new() }
    }

    pub(crate) fn note(&mut self, flow: &FlowKey) {
        let (place, tag) = self.place_of(flow);
        if self.tags.is_empty() {
            self.tags.resize(FLOWS, 0);
        }
        self.tags[place] = tag;
    }

    pub(crate) fn contains(&self, flow: &FlowKey) -> bool {
        let (place, tag) = self.place_of(flow);
        self.tags.get(place) == Some(&tag)
    }

    fn place_of(&self, flow: &FlowKey) -> (usize, u16) {
        let hash = secret_hash(self.key, &[flow.octets()]);
        ((hash >> 32) as usize % FLOWS, (hash as u16).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(port: u16) -> FlowKey {
        FlowKey::v4(([192, 0, 2, 1].into(), 53), ([192, 0, 2, 2].into(), port))
    }

    #[test]
    fn what_was_sent_to_is_known_and_nothing_else() {
        let mut sent_to = SentTo::new([1, 2]);
        assert!(!sent_to.contains(&flow(1)));
        (0..1000).for_each(|port| sent_to.note(&flow(port)));
        assert!((0..1000).filter(|port| sent_to.contains(&flow(*port))).count() > 980);
        assert!((1000..11_000).filter(|port| sent_to.contains(&flow(*port))).count() < 2);
    }
}
