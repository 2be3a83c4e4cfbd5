//! Which data has arrived out of order.

use arrayvec::ArrayVec;

use crate::seq::{SeqNum, SeqRange};

/// The ranges of sequence space behind `rcv_nxt` that a receiver holds already.
///
/// ```text
///          rcv_nxt
///   received  |  missing  |## range ##|  missing  |## range ##|   up to the end of the receive window
/// ```
///
/// Ranges neither overlap nor touch, and all of them lie behind `rcv_nxt`. The caller keeps the octets; this only keeps
/// books. Every range passed in ends within the receive window, thus less than 2^30 behind `rcv_nxt` (RFC 7323, 2.3).
///
/// Without ranges it is one null pointer.
#[derive(Debug, Default)]
pub struct Assembler {
    ranges: Option<Box<Ranges>>,
}

const _: () = assert!(size_of::<Assembler>() <= 16);

/// What became of a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inserted {
    /// Octets that were not there before.
    pub octets_new: u32,
    /// The first run of octets that were there before, for a D-SACK block (RFC 2883, 4).
    pub duplicate: Option<SeqRange>,
}

/// There are [`Assembler::RANGES_MAX`] ranges already, and this one touches none of them: it is as if it had not arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyRanges;

impl Assembler {
    /// The most ranges held: a peer that sends every other octet costs no more than that.
    pub const RANGES_MAX: usize = 256;

    /// Nothing out of order.
    pub const fn new() -> Assembler {
        Assembler { ranges: None }
    }

    /// Whether there is no range.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.ranges.is_none()
    }

    /// Number of ranges.
    pub fn count(&self) -> usize {
        self.ranges.as_ref().map_or(0, |ranges| ranges.sorted.len())
    }

    /// The ranges, in order of sequence numbers.
    pub fn iter(&self) -> impl Iterator<Item = SeqRange> + '_ {
        self.ranges.iter().flat_map(|ranges| &ranges.sorted).map(|held| held.range)
    }

    /// Adds `range`, of which the part before `rcv_nxt` counts as a duplicate. A range at `rcv_nxt` is never refused;
    /// [`Assembler::take_contiguous`] then takes it out again.
    pub fn insert(&mut self, range: SeqRange, rcv_nxt: SeqNum) -> Result<Inserted, TooManyRanges> {
        let old = SeqRange::new(range.start, range.end.min(rcv_nxt));
        let old = old.start.is_before(old.end).then_some(old);
        let range = SeqRange::new(range.start.max(rcv_nxt), range.end);
        if range.start.is_at_or_after(range.end) {
            return Ok(Inserted { octets_new: 0, duplicate: old });
        }
        let ranges = self.ranges.get_or_insert_default();
        let inserted = ranges.insert(range, range.start == rcv_nxt)?;
        Ok(Inserted { duplicate: old.or(inserted.duplicate), ..inserted })
    }

    /// Whether [`Assembler::insert`] would take `range`, for a caller that has to find memory for its octets first.
    pub fn has_room_for(&self, range: SeqRange, rcv_nxt: SeqNum) -> bool {
        let full = self.ranges.as_deref().filter(|ranges| ranges.sorted.len() >= Assembler::RANGES_MAX);
        full.is_none_or(|ranges| range.start.is_at_or_before(rcv_nxt) || ranges.touches(range))
    }

    /// Takes out the ranges that begin at or before `rcv_nxt`, and returns the end of what is now received without gap.
    #[inline]
    pub fn take_contiguous(&mut self, rcv_nxt: SeqNum) -> SeqNum {
        let Some(ranges) = &mut self.ranges else {
            return rcv_nxt;
        };
        let end = ranges.take_contiguous(rcv_nxt);
        if ranges.sorted.is_empty() {
            self.ranges = None;
        }
        end
    }

    /// Up to `max` ranges for a SACK option, the one that changed last first (RFC 2018, 4). As it is the one that the last
    /// segment belongs to, it also is the block that follows a D-SACK block (RFC 2883, 4).
    pub fn sack_blocks(&self, max: usize) -> ArrayVec<SeqRange, 4> {
        self.ranges.as_ref().map_or_else(ArrayVec::new, |ranges| ranges.most_recent(max))
    }

    /// Forgets all ranges.
    pub fn clear(&mut self) {
        self.ranges = None;
    }
}

#[derive(Debug, Default)]
struct Ranges {
    sorted: Vec<Held>,
    /// Counts insertions, modulo 2^32.
    changes: u32,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    range: SeqRange,
    /// [`Ranges::changes`] when the range changed last.
    changed: u32,
}

impl Ranges {
    /// Adds `range`, beyond the limit only if it `must_fit`.
    fn insert(&mut self, range: SeqRange, must_fit: bool) -> Result<Inserted, TooManyRanges> {
        let first = self.sorted.partition_point(|held| held.range.end.is_before(range.start));
        let rest = &self.sorted[first..];
        let count = rest.iter().take_while(|held| held.range.start.is_at_or_before(range.end)).count();
        self.changes = self.changes.wrapping_add(1);
        let new = Held { range, changed: self.changes };
        if count == 0 {
            if self.sorted.len() >= Assembler::RANGES_MAX && !must_fit {
                return Err(TooManyRanges);
            }
            self.sorted.insert(first, new);
            return Ok(Inserted { octets_new: range.len(), duplicate: None });
        }
        let inserted = compare(range, &rest[..count]);
        let start = range.start.min(rest[0].range.start);
        let end = range.end.max(rest[count - 1].range.end);
        self.sorted[first] = Held { range: SeqRange::new(start, end), ..new };
        self.sorted.drain(first + 1..first + count);
        Ok(inserted)
    }

    /// Whether `range` touches one that is held, or reaches into it.
    fn touches(&self, range: SeqRange) -> bool {
        let first = self.sorted.partition_point(|held| held.range.end.is_before(range.start));
        self.sorted.get(first).is_some_and(|held| held.range.start.is_at_or_before(range.end))
    }

    fn take_contiguous(&mut self, rcv_nxt: SeqNum) -> SeqNum {
        let (mut end, mut count) = (rcv_nxt, 0);
        while let Some(held) = self.sorted.get(count).filter(|held| held.range.start.is_at_or_before(end)) {
            end = end.max(held.range.end);
            count += 1;
        }
        self.sorted.drain(..count);
        end
    }

    fn most_recent(&self, max: usize) -> ArrayVec<SeqRange, 4> {
        let mut recent = ArrayVec::<Held, 4>::new();
        let max = max.min(recent.capacity());
        let age = |held: &Held| self.changes.wrapping_sub(held.changed);
        for held in &self.sorted {
            let at = recent.partition_point(|other| age(other) < age(held));
            if at == max {
                continue;
            }
            if recent.len() == max {
                recent.pop();
            }
            recent.insert(at, *held);
        }
        recent.iter().map(|held| held.range).collect()
    }
}

/// How `range` overlaps with ranges that touch it or reach into it.
fn compare(range: SeqRange, held: &[Held]) -> Inserted {
    let mut inserted = Inserted { octets_new: range.len(), duplicate: None };
    for held in held {
        let common = SeqRange::new(held.range.start.max(range.start), held.range.end.min(range.end));
        if common.start.is_before(common.end) {
            inserted.octets_new -= common.len();
            inserted.duplicate = inserted.duplicate.or(Some(common));
        }
    }
    inserted
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    const RCV_NXT: SeqNum = SeqNum(u32::MAX - 99); // Offset 100 is sequence number 0.

    fn range(start: u32, end: u32) -> SeqRange {
        SeqRange::new(RCV_NXT + start, RCV_NXT + end)
    }

    fn holding(ranges: &[(u32, u32)]) -> Assembler {
        let mut assembler = Assembler::new();
        for &(start, end) in ranges {
            assembler.insert(range(start, end), RCV_NXT).unwrap();
        }
        assembler
    }

    #[test]
    fn ranges_that_touch_become_one() {
        let mut assembler = holding(&[(10, 20), (30, 40), (90, 110)]);
        let inserted = assembler.insert(range(20, 30), RCV_NXT).unwrap();
        assert_eq!(inserted, Inserted { octets_new: 10, duplicate: None });
        assert!(assembler.iter().eq([range(10, 40), range(90, 110)]));
    }

    #[test]
    fn the_first_run_of_duplicates_is_reported_rfc_2883_section_4() {
        let mut assembler = holding(&[(10, 20), (30, 40)]);
        let inserted = assembler.insert(range(5, 50), RCV_NXT).unwrap();
        assert_eq!(inserted, Inserted { octets_new: 25, duplicate: Some(range(10, 20)) });
        assert_eq!(assembler.sack_blocks(4)[..], [range(5, 50)]);
    }

    #[test]
    fn what_is_before_rcv_nxt_is_a_duplicate_rfc_2883_section_4() {
        let mut assembler = Assembler::new();
        let old = SeqRange::new(RCV_NXT - 30, RCV_NXT - 10);
        let inserted = assembler.insert(old, RCV_NXT).unwrap();
        assert_eq!(inserted, Inserted { octets_new: 0, duplicate: Some(old) });
        assert!(assembler.is_empty());
        let inserted = assembler.insert(SeqRange::new(RCV_NXT - 30, RCV_NXT + 7), RCV_NXT).unwrap();
        let duplicate = Some(SeqRange::new(RCV_NXT - 30, RCV_NXT));
        assert_eq!(inserted, Inserted { octets_new: 7, duplicate });
    }

    #[test]
    fn the_range_that_changed_last_is_the_first_sack_block_rfc_2018_section_4() {
        let mut assembler = holding(&[(10, 20), (30, 40), (50, 60), (70, 80), (90, 110)]);
        assembler.insert(range(40, 42), RCV_NXT).unwrap();
        let blocks = [range(30, 42), range(90, 110), range(70, 80), range(50, 60)];
        assert_eq!(assembler.sack_blocks(4)[..], blocks);
        assert_eq!(assembler.sack_blocks(9)[..], blocks);
        assert_eq!(assembler.sack_blocks(2)[..], blocks[..2]);
        assert!(assembler.sack_blocks(0).is_empty());
    }

    #[test]
    fn a_duplicate_moves_its_range_to_the_front_of_the_blocks_rfc_2883_section_4() {
        let mut assembler = holding(&[(10, 20), (30, 40)]);
        let inserted = assembler.insert(range(12, 14), RCV_NXT).unwrap();
        assert_eq!(inserted, Inserted { octets_new: 0, duplicate: Some(range(12, 14)) });
        assert_eq!(assembler.sack_blocks(3)[..], [range(10, 20), range(30, 40)]);
    }

    #[test]
    fn filling_the_first_gap_takes_all_ranges_up_to_the_next() {
        let mut assembler = holding(&[(10, 20), (20, 25), (30, 40)]);
        assert_eq!(assembler.take_contiguous(RCV_NXT + 9), RCV_NXT + 9);
        assert_eq!(assembler.take_contiguous(RCV_NXT + 12), RCV_NXT + 25);
        assert_eq!(assembler.take_contiguous(RCV_NXT + 30), RCV_NXT + 40);
        assert!(assembler.is_empty());
    }

    #[test]
    fn too_many_ranges_are_refused_unless_they_are_in_order() {
        let ranges =
            (0..Assembler::RANGES_MAX as u32).map(|at| (10 + 2 * at, 11 + 2 * at)).collect::<Vec<_>>();
        let mut assembler = holding(&ranges);
        assert_eq!(assembler.insert(range(1000, 1001), RCV_NXT), Err(TooManyRanges));
        assert_eq!(assembler.count(), Assembler::RANGES_MAX);
        assert_eq!(assembler.insert(range(0, 1), RCV_NXT).unwrap().octets_new, 1);
        assert_eq!(assembler.take_contiguous(RCV_NXT), RCV_NXT + 1);
        assert_eq!(assembler.insert(range(11, 12), RCV_NXT).unwrap().octets_new, 1);
        assert_eq!(assembler.count(), Assembler::RANGES_MAX - 1);
        assert_eq!(assembler.insert(range(1000, 1001), RCV_NXT).unwrap().octets_new, 1);
    }

    /// One octet of sequence space each, from `RCV_NXT` on.
    type Bitmap = [bool; 400];

    fn runs(bitmap: &Bitmap) -> Vec<SeqRange> {
        let bit = |at: usize| bitmap.get(at).copied().unwrap_or(false);
        let starts = (0..bitmap.len()).filter(|&at| bit(at) && (at == 0 || !bit(at - 1)));
        starts.map(|at| range(at as u32, (at..).find(|&end| !bit(end)).unwrap() as u32)).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

        #[test]
        fn ranges_are_those_of_a_bitmap(segments in vec((0u32..350, 0u32..50, any::<bool>()), 1..60)) {
            let mut assembler = Assembler::new();
            let mut bitmap: Bitmap = [false; 400];
            let mut rcv_nxt = 0;
            for (start, len, in_order) in segments {
                let start = if in_order { rcv_nxt } else { start };
                let end = (start + len).min(400);
                let held = |at: &u32| *at < rcv_nxt || bitmap[*at as usize];
                let duplicate = (start..end).find(held).map(|first| {
                    range(first, (first..end).find(|at| !held(at)).unwrap_or(end))
                });
                let octets_new = (start..end).filter(|at| !held(at)).count() as u32;
                let inserted = assembler.insert(range(start, end), RCV_NXT + rcv_nxt);
                prop_assert_eq!(inserted, Ok(Inserted { octets_new, duplicate }));
                let before = rcv_nxt;
                (start.max(rcv_nxt)..end).for_each(|at| bitmap[at as usize] = true);
                while bitmap.get(rcv_nxt as usize) == Some(&true) {
                    bitmap[rcv_nxt as usize] = false;
                    rcv_nxt += 1;
                }
                prop_assert_eq!(assembler.take_contiguous(RCV_NXT + before), RCV_NXT + rcv_nxt);
                prop_assert_eq!(assembler.iter().collect::<Vec<_>>(), runs(&bitmap));
                prop_assert_eq!(assembler.is_empty(), assembler.count() == 0);
                let blocks = assembler.sack_blocks(4);
                prop_assert_eq!(blocks.len(), assembler.count().min(4));
                if rcv_nxt < start && start < end {
                    prop_assert!(blocks[0].contains(range(start, end)));
                }
            }
        }
    }
}
