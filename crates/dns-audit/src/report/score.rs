//! Points from a hundred downwards: each bad finding takes its weight, each notice a fifth of it.

use serde::{Deserialize, Serialize};

use crate::checks::{Finding, SERVICE, Verdict};

const FULL: u32 = 100;
/// Part of its weight that a notice takes.
const NOTICE_SHARE: u32 = 5;

/// What took points.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// The check.
    pub check: String,
    /// How many.
    pub points: u32,
    /// Why.
    pub reason: String,
}

/// Points, and where the others went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Score {
    /// From 0 to 100; `None` if nothing could be seen.
    pub points: Option<u32>,
    /// The largest first.
    pub lines: Vec<Line>,
    /// Checks that could not be seen, which take nothing.
    pub unknown: usize,
    /// Checks that were seen.
    pub seen: usize,
}

impl Score {
    /// The points by which it may stand before others; `None` if less than half of its checks were seen: silence is no merit.
    #[must_use]
    pub fn rank(&self) -> Option<u32> {
        self.points.filter(|_| self.seen >= self.unknown)
    }

    /// How many of the checks were seen.
    #[must_use]
    pub fn coverage(&self) -> String {
        format!("{}/{}", self.seen, self.seen + self.unknown)
    }

    /// The points and what they are of, for people.
    #[must_use]
    pub fn words(&self) -> String {
        let Some(points) = self.points else { return "not tested".to_owned() };
        let all = self.seen + self.unknown;
        let words = format!("{points} of {FULL} points by {} of {all} checks", self.seen);
        if self.rank().is_some() { words } else { format!("{words}, too few for a rank") }
    }

    /// The points for a table: in brackets without a rank.
    #[must_use]
    pub fn brief(&self) -> String {
        match (self.rank(), self.points) {
            (Some(points), _) => points.to_string(),
            (None, Some(points)) => format!("({points})"),
            (None, None) => "-".to_owned(),
        }
    }
}

/// The score of these findings.
#[must_use]
pub fn score(findings: &[Finding]) -> Score {
    let taken = |finding: &Finding| match finding.verdict {
        Verdict::Bad => finding.weight,
        Verdict::Notice => finding.weight.div_ceil(NOTICE_SHARE),
        Verdict::Good | Verdict::Unknown => 0,
    };
    let lines = findings.iter().filter(|finding| taken(finding) > 0).map(|finding| Line {
        check: finding.check.to_string(),
        points: taken(finding),
        reason: finding.summary.clone(),
    });
    let mut lines: Vec<Line> = lines.collect();
    lines.sort_by_key(|line| std::cmp::Reverse(line.points));
    let sum: u32 = lines.iter().map(|line| line.points).sum();
    // That a resolver serves nobody is no merit, and no check of what it does.
    let checks = || findings.iter().filter(|finding| finding.check != SERVICE.id);
    let unknown = checks().filter(|finding| finding.verdict == Verdict::Unknown).count();
    let seen = checks().count() - unknown;
    Score { points: (seen > 0).then(|| FULL.saturating_sub(sum)), lines, unknown, seen }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::{STALE_GONE, STALE_REACHABLE, TTL_MAXIMUM, TTL_ZERO};

    #[test]
    fn bad_findings_take_their_weight_and_notices_a_fifth() {
        let findings = [
            TTL_MAXIMUM.finding(Verdict::Notice, "long"),
            STALE_REACHABLE.finding(Verdict::Bad, "old"),
            STALE_GONE.finding(Verdict::Good, "fine"),
            TTL_ZERO.unknown("no answer"),
        ];
        let score = score(&findings);
        assert_eq!((score.points, score.unknown, score.seen), (Some(100 - 25 - 1), 1, 3));
        let lines: Vec<(&str, u32)> =
            score.lines.iter().map(|line| (line.check.as_str(), line.points)).collect();
        assert_eq!(lines, [("stale.reachable", 25), ("ttl.maximum", 1)]);
    }

    #[test]
    fn less_than_half_of_the_checks_gives_points_without_a_rank() {
        let seen = TTL_ZERO.finding(Verdict::Good, "new");
        let [half, less] = [1, 2].map(|unknown| {
            let unseen = (0..unknown).map(|_| TTL_MAXIMUM.unknown("no answer"));
            score(&[vec![seen.clone()], unseen.collect()].concat())
        });
        assert_eq!((half.rank(), half.brief().as_str(), half.coverage().as_str()), (Some(100), "100", "1/2"));
        assert_eq!((less.rank(), less.brief().as_str(), less.coverage().as_str()), (None, "(100)", "1/3"));
        assert_eq!(half.words(), "100 of 100 points by 1 of 2 checks");
        assert_eq!(less.words(), "100 of 100 points by 1 of 3 checks, too few for a rank");
    }

    #[test]
    fn what_was_not_tested_has_no_points() {
        let score = score(&[TTL_ZERO.unknown("no answer")]);
        assert_eq!((score.points, score.brief().as_str(), score.words().as_str()), (None, "-", "not tested"));
        assert!(serde_json::to_string(&score).unwrap().contains("\"points\":null"));
    }
}
