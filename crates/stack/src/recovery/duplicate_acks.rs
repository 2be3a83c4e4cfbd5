//! Duplicate acknowledgements where SACK is missing (RFC 5681, 3.2; RFC 6582).

/// What duplicate acknowledgements stand for.
#[derive(Debug, Default)]
pub(super) struct DuplicateAcks {
    /// Since SND.UNA moved.
    count: u32,
    /// Octets behind the first hole that must have arrived: one segment for each duplicate.
    arrived: u32,
    /// What `arrived` may not exceed.
    limit: u32,
}

impl DuplicateAcks {
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    pub(super) fn arrived(&self) -> u32 {
        self.arrived
    }

    pub(super) fn clear(&mut self) {
        *self = DuplicateAcks::default();
    }

    /// Counts one, which stands for `mss` octets. All since SND.UNA moved never stand for more than was in flight behind the
    /// hole at the first, `room`: a peer that sends too many gains nothing (RFC 5681, 3.2, step 4). Octets newly taken for
    /// delivered.
    pub(super) fn on_duplicate(&mut self, mss: u32, room: u32) -> u32 {
        if self.count == 0 {
            self.limit = room;
        }
        self.count = self.count.saturating_add(1);
        let delivered = mss.min(self.limit.saturating_sub(self.arrived));
        self.arrived += delivered;
        delivered
    }

    /// SND.UNA moved over `cumulative` octets: the first `mss` of them were the hole, the rest may have arrived before
    /// (RFC 9937, 6.2). Octets newly delivered.
    pub(super) fn on_advance(&mut self, cumulative: u32, mss: u32) -> u32 {
        self.count = 0;
        let before = self.arrived.min(cumulative.saturating_sub(mss));
        self.arrived -= before;
        cumulative - before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_duplicate_stands_for_a_segment_until_the_flight_is_used_up() {
        let mut duplicates = DuplicateAcks::default();
        let delivered: Vec<_> = (0..5).map(|_| duplicates.on_duplicate(1000, 3500)).collect();
        assert_eq!(delivered, [1000, 1000, 1000, 500, 0]);
        assert_eq!(duplicates.on_advance(3000, 1000), 1000);
        assert_eq!((duplicates.arrived(), duplicates.count()), (1500, 0));
    }
}
