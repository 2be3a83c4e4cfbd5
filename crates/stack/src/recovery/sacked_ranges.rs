//! The runs of sequence space that are selectively acknowledged.

use std::collections::VecDeque;

use crate::seq::{SeqNum, SeqRange};

/// Ranges in order, apart from each other. All lie within half the sequence space.
///
/// Blocks repeat what earlier acknowledgements said; this finds the news in a block without walking over the rest.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SackedRanges(VecDeque<SeqRange>);

impl SackedRanges {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn shrink_to(&mut self, capacity: usize) {
        self.0.shrink_to(capacity);
    }

    /// The first part of `block` that is not in any range.
    pub(super) fn first_gap(&self, block: SeqRange) -> Option<SeqRange> {
        let index = self.first_ending_after(block.start);
        let Some(range) = self.0.get(index).filter(|range| range.start.is_at_or_before(block.start)) else {
            return self.gap_from(block.start, block.end, index);
        };
        self.gap_from(range.end, block.end, index + 1)
    }

    fn gap_from(&self, start: SeqNum, end: SeqNum, next: usize) -> Option<SeqRange> {
        let end = self.0.get(next).map_or(end, |range| range.start.min(end));
        start.is_before(end).then_some(SeqRange::new(start, end))
    }

    /// Adds `new`, which is a gap or part of one.
    pub(super) fn insert(&mut self, new: SeqRange) {
        let index = self.first_ending_after(new.start - 1);
        let joins_before = self.0.get(index).is_some_and(|range| range.end == new.start);
        let after = index + usize::from(joins_before);
        let joins_after = self.0.get(after).is_some_and(|range| range.start == new.end);
        match (joins_before, joins_after) {
            (true, true) => {
                self.0[index].end = self.0[after].end;
                self.0.remove(after);
            }
            (true, false) => self.0[index].end = new.end,
            (false, true) => self.0[after].start = new.start,
            (false, false) => self.0.insert(index, new),
        }
    }

    /// Forgets what is before `una`.
    pub(super) fn advance(&mut self, una: SeqNum) {
        while let Some(first) = self.0.front_mut() {
            if first.end.is_after(una) {
                first.start = first.start.max(una);
                return;
            }
            self.0.pop_front();
        }
    }

    fn first_ending_after(&self, seq: SeqNum) -> usize {
        self.0.partition_point(|range| range.end.is_at_or_before(seq))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u32, end: u32) -> SeqRange {
        SeqRange::new(SeqNum(0) - 20 + start, SeqNum(0) - 20 + end)
    }

    fn fill(ranges: &mut SackedRanges, block: SeqRange) -> u32 {
        let mut news = 0;
        while let Some(gap) = ranges.first_gap(block) {
            ranges.insert(gap);
            news += gap.len();
        }
        news
    }

    #[test]
    fn only_news_of_a_block_is_found_and_runs_join() {
        let mut ranges = SackedRanges::default();
        let table = [
            (range(10, 20), 10, 1),
            (range(10, 20), 0, 1),
            (range(30, 40), 10, 2),
            (range(5, 8), 3, 3),
            (range(20, 25), 5, 3),
            (range(0, 50), 5 + 2 + 5 + 10, 1),
        ];
        for (block, news, count) in table {
            assert_eq!((fill(&mut ranges, block), ranges.0.len()), (news, count), "{block:?}");
        }
        assert_eq!(ranges.0[0], range(0, 50));
    }

    #[test]
    fn what_is_cumulatively_acknowledged_is_forgotten() {
        let mut ranges = SackedRanges::default();
        for block in [range(10, 20), range(30, 40)] {
            fill(&mut ranges, block);
        }
        ranges.advance(range(15, 16).start);
        assert_eq!(ranges.0, [range(15, 20), range(30, 40)]);
        ranges.advance(range(40, 41).start);
        assert_eq!(ranges, SackedRanges::default());
    }
}
