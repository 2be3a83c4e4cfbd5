//! When the authority of the audit zone was surely there. Between two signs of life that are near to each other it was; where there is no sign,
//! nothing is known, and where it was asked itself and did not answer, it was not.

/// Signs of life that are further apart say nothing of the time between them. A shorter absence is not seen.
pub const GAP_MS: u64 = 4000;

/// What is known of the authority. Times are by its own clock, in milliseconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Presence {
    /// From a sign of life to the last one that follows without a gap: disjoint, in their order.
    spans: Vec<(u64, u64)>,
    /// From when to when it did not answer.
    absences: Vec<(u64, u64)>,
}

/// Why it is not sure that the authority was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// It did not answer when it was asked at that time.
    Absent(u64),
    /// There is no sign of life for too long from that time on.
    Unseen(u64),
}

impl Presence {
    /// It did something at that time.
    pub fn add_sign(&mut self, at_ms: u64) {
        let after = self.spans.partition_point(|(_, until)| until.saturating_add(GAP_MS) < at_ms);
        match self.spans.get_mut(after).filter(|(from, _)| *from <= at_ms.saturating_add(GAP_MS)) {
            Some(span) => *span = (span.0.min(at_ms), span.1.max(at_ms)),
            None => self.spans.insert(after, (at_ms, at_ms)),
        }
        let Some([first, second]) = self.spans.get(after..after + 2) else { return };
        if first.1.saturating_add(GAP_MS) >= second.0 {
            self.spans[after].1 = first.1.max(second.1);
            self.spans.remove(after + 1);
        }
    }

    /// It did not answer from one time to another; `is_same` if it has not answered since the last absence.
    pub fn add_absence(&mut self, from_ms: u64, until_ms: u64, is_same: bool) {
        match self.absences.last_mut().filter(|_| is_same) {
            Some(last) => last.1 = until_ms,
            None => self.absences.push((from_ms, until_ms)),
        }
    }

    /// Whether it was there all the time from `from_ms` to `until_ms`, so far as an absence that is shorter than [`GAP_MS`] does not matter. The
    /// first sign may be late by that much; the last one may not be early.
    pub fn is_sure(&self, from_ms: u64, until_ms: u64) -> Result<(), Doubt> {
        self.is_not_absent(from_ms, until_ms)?;
        let first = self.spans.iter().find(|(_, until)| *until >= from_ms);
        match first.filter(|(from, _)| *from <= from_ms.saturating_add(GAP_MS)) {
            None => Err(Doubt::Unseen(from_ms)),
            Some((_, until)) if *until < until_ms => Err(Doubt::Unseen(*until)),
            Some(_) => Ok(()),
        }
    }

    /// Whether it was not asked in vain from `from_ms` to `until_ms`.
    pub fn is_not_absent(&self, from_ms: u64, until_ms: u64) -> Result<(), Doubt> {
        let during = self.absences.iter().find(|(from, until)| *from <= until_ms && *until >= from_ms);
        during.map_or(Ok(()), |(from, _)| Err(Doubt::Absent(*from)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(signs: &[u64]) -> Presence {
        let mut presence = Presence::default();
        signs.iter().for_each(|at_ms| presence.add_sign(*at_ms));
        presence
    }

    #[test]
    fn signs_without_a_gap_cover_the_time_between_them_in_whichever_order_they_come() {
        for signs in [[10_000, 13_000, 16_000], [16_000, 10_000, 13_000], [13_000, 16_000, 10_000]] {
            let presence = seen(&signs);
            assert_eq!(presence.spans, [(10_000, 16_000)], "{signs:?}");
            assert_eq!(presence.is_sure(9000, 16_000), Ok(()));
            assert_eq!(presence.is_sure(9000, 16_001), Err(Doubt::Unseen(16_000)));
            assert_eq!(presence.is_sure(5000, 16_000), Err(Doubt::Unseen(5000)));
        }
    }

    #[test]
    fn a_gap_is_not_covered_and_neither_is_nothing() {
        let presence = seen(&[10_000, 14_001]);
        assert_eq!(presence.is_sure(10_000, 14_001), Err(Doubt::Unseen(10_000)));
        assert_eq!(presence.is_sure(12_000, 14_001), Ok(()), "the first sign may be late");
        assert_eq!(seen(&[]).is_sure(0, 0), Err(Doubt::Unseen(0)));
    }

    #[test]
    fn an_absence_counts_more_than_signs_on_both_sides_of_it() {
        let mut presence = seen(&[10_000, 13_000, 16_000]);
        presence.add_absence(13_500, 14_000, false);
        presence.add_absence(14_500, 15_000, true);
        assert_eq!(presence.absences, [(13_500, 15_000)]);
        assert_eq!(presence.is_sure(10_000, 16_000), Err(Doubt::Absent(13_500)));
        assert_eq!(presence.is_sure(10_000, 13_000), Ok(()), "what was before it stays sure");
    }
}
