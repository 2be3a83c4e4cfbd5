//! Points from a hundred downwards: each bad finding takes its weight, each notice a fifth of it.

use serde::{Deserialize, Serialize};

use crate::checks::{Finding, Verdict};

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
    /// The points, for people.
    #[must_use]
    pub fn words(&self) -> String {
        self.points.map_or_else(|| "not tested".to_owned(), |points| format!("{points} of {FULL} points"))
    }

    /// The same for a table.
    #[must_use]
    pub fn brief(&self) -> String {
        self.points.map_or_else(|| "-".to_owned(), |points| points.to_string())
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
    let unknown = findings.iter().filter(|finding| finding.verdict == Verdict::Unknown).count();
    let seen = findings.len() - unknown;
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
    fn what_was_not_tested_has_no_points() {
        let score = score(&[TTL_ZERO.unknown("no answer")]);
        assert_eq!((score.points, score.brief().as_str(), score.words().as_str()), (None, "-", "not tested"));
        assert!(serde_json::to_string(&score).unwrap().contains("\"points\":null"));
    }
}
