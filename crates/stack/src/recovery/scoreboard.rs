//! The state of each segment in flight (RFC 6675's scoreboard), and the pipe that follows from it.
//!
//! ```text
//!  SND.UNA                                                          SND.NXT
//!    │ lost │ sacked │ sacked │ resent │ sacked │ in flight │ in flight │
//!    └ front                                                     back ┘
//! ```

use std::collections::VecDeque;

use clock::Instant;

use super::delivery_rate::Snapshot;
use super::sacked_ranges::SackedRanges;
use super::segment::{Segment, Standing};
use crate::seq::{SeqNum, SeqRange};

/// Segments in flight in order of sequence, without gaps.
///
/// The sums in `octets` always are those of the segments, and `sacked` is the union of those that are
/// [`Standing::Sacked`].
#[derive(Debug, Default)]
pub(super) struct Scoreboard {
    segments: VecDeque<Segment>,
    sacked: SackedRanges,
    /// Octets by [`Standing`].
    octets: [u32; Standing::COUNT],
    sacked_segments: u32,
    /// While any segment is [`Standing::Lost`]: start of the first that is.
    first_lost: SeqNum,
}

/// Segments that a flight of few octets may have before small neighbours share an entry.
const SEGMENTS_MIN: u32 = 64;

/// Segments kept at most when the pool takes a scoreboard back.
const SEGMENTS_KEPT: usize = 256;

impl Scoreboard {
    pub(super) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.segments.clear();
        self.segments.shrink_to(SEGMENTS_KEPT);
        self.sacked.clear();
        self.sacked.shrink_to(SEGMENTS_KEPT);
        self.octets = [0; Standing::COUNT];
        self.sacked_segments = 0;
    }

    /// RFC 6675's pipe: octets in flight, each copy counted.
    pub(super) fn pipe(&self) -> u32 {
        let [in_flight, twice, _, resent, _] = self.octets;
        in_flight + 2 * twice + resent
    }

    /// Octets from SND.UNA to SND.NXT: RFC 5681's FlightSize.
    pub(super) fn flight_size(&self) -> u32 {
        self.octets.iter().sum()
    }

    pub(super) fn sacked(&self) -> u32 {
        self.octets[Standing::Sacked as usize]
    }

    pub(super) fn sacked_segments(&self) -> u32 {
        self.sacked_segments
    }

    /// Octets marked lost, sent again or not.
    pub(super) fn lost(&self) -> u32 {
        self.octets[Standing::Lost as usize] + self.octets[Standing::Resent as usize]
    }

    /// Octets whose last transmission was a retransmission and may still arrive.
    pub(super) fn retransmitted(&self) -> u32 {
        self.octets[Standing::Resent as usize] + self.octets[Standing::InFlightTwice as usize]
    }

    /// Octets that wait for retransmission.
    pub(super) fn waiting(&self) -> u32 {
        self.octets[Standing::Lost as usize]
    }

    pub(super) fn front(&self) -> Option<&Segment> {
        self.segments.front()
    }

    pub(super) fn back(&self) -> Option<&Segment> {
        self.segments.back()
    }

    pub(super) fn get(&self, index: usize) -> Option<&Segment> {
        self.segments.get(index)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter()
    }

    /// Index of the segment that has `seq`, or of the first behind it.
    pub(super) fn index_of(&self, seq: SeqNum) -> usize {
        self.segments.partition_point(|segment| segment.range.end.is_at_or_before(seq))
    }

    /// Whether there are many more segments than full ones would be: then small ones are put together and none is split.
    fn is_crowded(&self, mss: u32) -> bool {
        self.segments.len() as u32 >= SEGMENTS_MIN + 4 * (self.flight_size() / mss.max(1))
    }

    /// Whether there are so many that no new one should be sent.
    pub(super) fn is_full(&self, mss: u32) -> bool {
        self.segments.len() as u32 >= 16 * SEGMENTS_MIN + 8 * (self.flight_size() / mss.max(1))
    }

    /// Adds a segment sent for the first time, which begins where the last one ends.
    pub(super) fn push(&mut self, segment: Segment, mss: u32) {
        debug_assert!(self.back().is_none_or(|last| last.range.end == segment.range.start));
        self.octets[segment.standing as usize] += segment.len();
        let is_crowded = self.is_crowded(mss);
        match self.segments.back_mut() {
            Some(last) if is_crowded && last.can_absorb(&segment, mss) => last.absorb(&segment),
            _ => self.segments.push_back(segment),
        }
    }

    /// Removes what is before `una`, showing it to `visit` as it was.
    pub(super) fn advance(&mut self, una: SeqNum, mut visit: impl FnMut(&Segment)) {
        while let Some(front) = self.segments.front_mut() {
            if front.range.start.is_at_or_after(una) {
                break;
            }
            if front.range.end.is_after(una) {
                let behind = front.split_off(una);
                self.octets[front.standing as usize] -= front.len();
                visit(front);
                *front = behind;
                break;
            }
            self.sacked_segments -= u32::from(front.standing == Standing::Sacked);
            self.octets[front.standing as usize] -= front.len();
            visit(front);
            self.segments.pop_front();
        }
        self.sacked.advance(una);
        self.find_first_lost();
    }

    /// Marks what `block` newly acknowledges, showing it to `visit` as it was. Parts of segments are marked by splitting
    /// them, unless there are too many already.
    pub(super) fn sack(&mut self, block: SeqRange, mss: u32, mut visit: impl FnMut(&Segment)) {
        let mut rest = block;
        while let Some(gap) = self.sacked.first_gap(rest) {
            rest.start = gap.end;
            if let Some(marked) = self.sack_gap(gap, mss, &mut visit) {
                self.sacked.insert(marked);
            }
        }
        self.find_first_lost();
    }

    fn sack_gap(&mut self, gap: SeqRange, mss: u32, visit: &mut impl FnMut(&Segment)) -> Option<SeqRange> {
        let mut index = self.index_of(gap.start);
        if self.get(index)?.range.start.is_before(gap.start) {
            if !self.is_crowded(mss) {
                self.split(index, gap.start);
            }
            index += 1;
        }
        let start = self.get(index)?.range.start;
        let mut end = start;
        while let Some(segment) = self.get(index).filter(|segment| segment.range.start.is_before(gap.end)) {
            if segment.range.end.is_after(gap.end) {
                if self.is_crowded(mss) {
                    break;
                }
                self.split(index, gap.end);
            }
            visit(&self.segments[index]);
            self.set_standing(index, Standing::Sacked);
            self.sacked_segments += 1;
            end = self.segments[index].range.end;
            index += 1;
        }
        start.is_before(end).then_some(SeqRange::new(start, end))
    }

    /// Whether any part of `range`, as sent at `sent_at`, may still arrive or be found lost.
    pub(super) fn is_pending(&self, range: SeqRange, sent_at: Instant) -> bool {
        self.segments
            .range(self.index_of(range.start)..)
            .take_while(|segment| segment.range.start.is_before(range.end))
            .any(|segment| segment.sent_at == sent_at && segment.standing.is_pending())
    }

    /// Marks lost what [`Scoreboard::is_pending`] of `range`; octets marked.
    pub(super) fn mark_lost(&mut self, range: SeqRange, sent_at: Instant) -> u32 {
        let mut lost = 0;
        for index in self.index_of(range.start)..self.segments.len() {
            let segment = &self.segments[index];
            if segment.range.start.is_at_or_after(range.end) {
                break;
            }
            if segment.sent_at == sent_at {
                lost += self.mark_lost_at(index);
            }
        }
        lost
    }

    /// Marks lost all pending segments that `is_lost` says so of; octets marked.
    pub(super) fn mark_lost_where(&mut self, is_lost: impl Fn(&Segment) -> bool) -> u32 {
        let mut lost = 0;
        for index in 0..self.segments.len() {
            if is_lost(&self.segments[index]) {
                lost += self.mark_lost_at(index);
            }
        }
        lost
    }

    /// Marks the first `len` octets lost if they are pending, as NewReno does; octets marked.
    pub(super) fn mark_front_lost(&mut self, len: u32) -> u32 {
        let Some(front) = self.front() else { return 0 };
        if front.len() > front.len_max(len) {
            self.split(0, front.range.start + len.max(1));
        }
        self.mark_lost_at(0)
    }

    fn mark_lost_at(&mut self, index: usize) -> u32 {
        let segment = &self.segments[index];
        if !segment.standing.is_pending() {
            return 0;
        }
        let (start, len) = (segment.range.start, segment.len());
        self.first_lost = if self.waiting() == 0 { start } else { self.first_lost.min(start) };
        self.set_standing(index, Standing::Lost);
        len
    }

    /// Takes all marks of loss back, after an undo.
    pub(super) fn unmark_lost(&mut self) {
        for index in 0..self.segments.len() {
            match self.segments[index].standing {
                Standing::Lost => self.set_standing(index, Standing::InFlight),
                Standing::Resent => self.set_standing(index, Standing::InFlightTwice),
                Standing::InFlight | Standing::InFlightTwice | Standing::Sacked => {}
            }
        }
    }

    /// Takes all selective acknowledgements back: the peer reneged (RFC 2018, 8).
    pub(super) fn unmark_sacked(&mut self) {
        for index in 0..self.segments.len() {
            if self.segments[index].standing == Standing::Sacked {
                self.set_standing(index, Standing::InFlight);
            }
        }
        self.sacked.clear();
        self.sacked_segments = 0;
    }

    /// What to send again first. Small neighbours that are lost go together.
    pub(super) fn next_lost(&self, mss: u32) -> Option<SeqRange> {
        if self.waiting() == 0 {
            return None;
        }
        let mut lost = self
            .segments
            .range(self.index_of(self.first_lost)..)
            .take_while(|segment| segment.standing == Standing::Lost);
        let first = lost.next()?;
        if first.len() > first.len_max(mss) {
            return Some(SeqRange::new(first.range.start, first.range.start + mss.max(1)));
        }
        let start = first.range.start;
        let fits = |segment: &&Segment| segment.range.end.since(start) <= segment.len_max(mss);
        let end = lost.take_while(fits).last().unwrap_or(first).range.end;
        Some(SeqRange::new(start, end))
    }

    /// Notes that `range` was sent again; what is selectively acknowledged in it stays so.
    pub(super) fn retransmit(
        &mut self,
        range: SeqRange,
        now: Instant,
        timestamp_value: u32,
        snapshot: Snapshot,
    ) {
        let mut index = self.index_of(range.start);
        if self.get(index).is_some_and(|segment| segment.range.start.is_before(range.start)) {
            self.split(index, range.start);
            index += 1;
        }
        while let Some(segment) = self.get(index).filter(|segment| segment.range.start.is_before(range.end)) {
            if segment.range.end.is_after(range.end) {
                self.split(index, range.end);
            }
            self.resend_at(index, now, timestamp_value, snapshot);
            index += 1;
        }
        self.find_first_lost();
    }

    fn resend_at(&mut self, index: usize, now: Instant, timestamp_value: u32, snapshot: Snapshot) {
        let standing = match self.segments[index].standing {
            Standing::Sacked => return,
            Standing::Lost | Standing::Resent => Standing::Resent,
            Standing::InFlight | Standing::InFlightTwice => Standing::InFlightTwice,
        };
        self.set_standing(index, standing);
        let segment = &mut self.segments[index];
        segment.transmissions = segment.transmissions.saturating_add(1);
        segment.sent_at = now;
        segment.timestamp_value = timestamp_value;
        segment.snapshot = snapshot;
    }

    /// Counts each segment as one that was sent once more than known.
    pub(super) fn mark_sent_before(&mut self) {
        self.segments
            .iter_mut()
            .for_each(|segment| segment.transmissions = segment.transmissions.saturating_add(1));
    }

    fn set_standing(&mut self, index: usize, standing: Standing) {
        let segment = &mut self.segments[index];
        self.octets[segment.standing as usize] -= segment.len();
        self.octets[standing as usize] += segment.len();
        segment.standing = standing;
    }

    fn split(&mut self, index: usize, at: SeqNum) {
        let behind = self.segments[index].split_off(at);
        self.sacked_segments += u32::from(behind.standing == Standing::Sacked);
        self.segments.insert(index + 1, behind);
    }

    #[inline]
    fn find_first_lost(&mut self) {
        if self.waiting() > 0 {
            let index = self.index_of(self.first_lost);
            let mut behind = self.segments.range(index..);
            let first = behind.find(|segment| segment.standing == Standing::Lost);
            debug_assert!(first.is_some(), "none is lost before first_lost");
            self.first_lost = first.map_or(self.first_lost, |segment| segment.range.start);
        }
    }

    /// Checks the sums against the segments; the pipe counted anew.
    #[cfg(test)]
    pub(super) fn recount(&self) -> u32 {
        let mut octets = [0; Standing::COUNT];
        let mut sacked = SackedRanges::default();
        let mut end = None;
        for segment in &self.segments {
            assert!(!segment.range.is_empty() && end.is_none_or(|end| end == segment.range.start));
            end = Some(segment.range.end);
            octets[segment.standing as usize] += segment.len();
            if segment.standing == Standing::Sacked {
                sacked.insert(segment.range);
            }
        }
        let is = |standing| self.segments.iter().filter(move |it| it.standing == standing);
        assert_eq!(octets, self.octets);
        assert_eq!(self.sacked_segments as usize, is(Standing::Sacked).count());
        assert_eq!(sacked, self.sacked);
        let first_lost = is(Standing::Lost).next().map(|segment| segment.range.start);
        assert_eq!(first_lost, (self.waiting() > 0).then_some(self.first_lost));
        self.segments.iter().map(|segment| segment.len() * segment.standing.copies_in_flight()).sum()
    }
}
