//! Flows to which something happened, for a while.

use std::collections::VecDeque;

use clock::{Duration, Instant};

use crate::flow_table::{FlowKey, FlowTable};

/// Flows to which something happened a moment ago, in the order in which it did.
#[derive(Debug)]
pub(super) struct RecentFlows {
    /// From a flow to how many came before it, modulo 2^32.
    index: FlowTable,
    flows: VecDeque<(FlowKey, Instant)>,
    /// How many have been forgotten.
    forgotten: u32,
    /// How many are remembered at most; the oldest makes room.
    max: usize,
    /// How long each is remembered.
    lifetime: Duration,
}

impl RecentFlows {
    /// `key` is that of the table that makes the hashes passed in.
    pub(super) fn new(max: usize, lifetime: Duration, key: [u64; 2]) -> RecentFlows {
        let index = FlowTable::new(0, key);
        RecentFlows { index, flows: VecDeque::new(), forgotten: 0, max, lifetime }
    }

    pub(super) fn insert(&mut self, hash: u64, flow: FlowKey, now: Instant) {
        self.expire(now);
        if self.flows.len() >= self.max {
            self.forget_oldest();
        }
        self.index.insert(hash, self.forgotten.wrapping_add(self.flows.len() as u32));
        self.flows.push_back((flow, now));
    }

    pub(super) fn contains(&mut self, hash: u64, flow: &FlowKey, now: Instant) -> bool {
        if self.flows.is_empty() {
            return false;
        }
        self.expire(now);
        let (flows, forgotten) = (&self.flows, self.forgotten);
        let is_it =
            |number: u32| flows.get(number.wrapping_sub(forgotten) as usize).is_some_and(|it| it.0 == *flow);
        self.index.find(hash, is_it).is_some()
    }

    /// Whether as many are remembered as may be.
    pub(super) fn is_full(&mut self, now: Instant) -> bool {
        self.expire(now);
        self.flows.len() >= self.max
    }

    fn expire(&mut self, now: Instant) {
        while self.flows.front().is_some_and(|(_, at)| now.since(*at) >= self.lifetime) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((flow, _)) = self.flows.pop_front() {
            self.index.remove(self.index.hash_of(&flow), self.forgotten);
            self.forgotten = self.forgotten.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const KEY: [u64; 2] = [1, 2];

    fn flow(number: u32) -> FlowKey {
        let [a, b, c, d] = number.to_be_bytes();
        FlowKey::v4(
            (Ipv4Addr::new(192, 0, 2, 1), 80),
            (Ipv4Addr::new(198, 51, a, b), u16::from_be_bytes([c, d])),
        )
    }

    struct Table(RecentFlows);

    const MAX: usize = 100;

    fn table() -> Table {
        Table(RecentFlows::new(MAX, Duration::from_secs(3), KEY))
    }

    impl Table {
        fn insert(&mut self, number: u32, now: Instant) {
            let hash = self.0.index.hash_of(&flow(number));
            self.0.insert(hash, flow(number), now);
        }

        fn contains(&mut self, number: u32, now: Instant) -> bool {
            let hash = self.0.index.hash_of(&flow(number));
            self.0.contains(hash, &flow(number), now)
        }
    }

    #[test]
    fn a_flow_is_remembered_for_its_time() {
        let mut table = table();
        let start = Instant::from_nanos(1);
        table.insert(1, start);
        table.insert(2, start + Duration::from_secs(2));
        assert!(table.contains(1, start + Duration::from_millis(2999)));
        assert!(!table.contains(1, start + Duration::from_secs(3)));
        assert!(table.contains(2, start + Duration::from_secs(3)));
        assert!(!table.contains(3, start));
        assert!(!table.contains(2, start + Duration::from_secs(5)));
        assert!(table.0.index.is_empty() && table.0.flows.is_empty());
    }

    #[test]
    fn the_oldest_makes_room() {
        let mut table = table();
        let now = Instant::from_nanos(1);
        table.0.forgotten = u32::MAX - 5; // Numbers wrap.
        for number in 0..=MAX as u32 {
            table.insert(number, now);
        }
        assert!(!table.contains(0, now));
        assert!(table.contains(1, now) && table.contains(MAX as u32, now));
        assert_eq!(table.0.index.len(), MAX);
    }

    #[test]
    fn a_flow_that_came_twice_is_remembered_since_the_second_time() {
        let mut table = table();
        let start = Instant::from_nanos(1);
        table.insert(1, start);
        table.insert(1, start + Duration::from_secs(2));
        assert!(table.contains(1, start + Duration::from_secs(4)));
        assert!(!table.contains(1, start + Duration::from_secs(6)));
    }
}
