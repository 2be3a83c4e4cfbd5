//! Ends of records (`MSG_EOR`): no segment carries the last octet of one together with what follows.

use crate::seq::SeqNum;
use crate::tcp::connection::Connection;

impl Connection {
    /// What was queued last ends a record.
    pub(crate) fn end_record(&mut self) {
        let end = self.data_una() + self.send.queue.len() as u32;
        let records = &mut self.rare().record_ends;
        if records.back() != Some(&end) {
            records.push_back(end);
        }
    }

    /// Octets from `seq` to the end of its record; `u32::MAX` if that has none yet.
    #[inline]
    pub(super) fn record_from(&self, seq: SeqNum) -> u32 {
        let Some(rare) = &self.rare else {
            return u32::MAX;
        };
        let next = rare.record_ends.partition_point(|end| end.is_at_or_before(seq));
        rare.record_ends.get(next).map_or(u32::MAX, |end| end.since(seq))
    }

    /// Whether a record ends at `end`.
    pub(super) fn ends_record(&self, end: SeqNum) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.record_ends.contains(&end))
    }

    /// Where the record of the octet in front of `end` begins, if one ends before it.
    pub(super) fn record_start(&self, end: SeqNum) -> Option<SeqNum> {
        let ends = &self.rare.as_ref()?.record_ends;
        let before = ends.partition_point(|other| other.is_before(end)).checked_sub(1)?;
        ends.get(before).copied()
    }

    /// The peer acknowledged everything in front of `una`.
    #[inline]
    pub(super) fn forget_acknowledged_records(&mut self, una: SeqNum) {
        let Some(rare) = &mut self.rare else {
            return;
        };
        while rare.record_ends.front().is_some_and(|end| end.is_at_or_before(una)) {
            rare.record_ends.pop_front();
        }
    }
}
