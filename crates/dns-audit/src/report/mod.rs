//! Findings of one or many resolvers, put together.
//!
//! | file | what it does |
//! | --- | --- |
//! | `score.rs` | points, and what took them |
//! | `text.rs` | for a terminal |
//! | `html.rs` | a page by itself |

mod html;
mod score;
mod text;

use serde::{Deserialize, Serialize};

use crate::checks::{Finding, Verdict};

pub use html::html;
pub use score::{Line, Score, score};
pub use text::{comparison, text};

/// What one resolver was found to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolverReport {
    /// Its address.
    pub resolver: String,
    /// Points, and what took them.
    pub score: Score,
    /// In the order of the probes.
    pub findings: Vec<Finding>,
    /// Questions that were sent to it.
    pub questions: u64,
}

/// All of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The audit zone.
    pub zone: String,
    /// When it began, for people.
    pub date: String,
    /// Questions a second at most: to one resolver, and to all.
    pub rate: [u32; 2],
    /// In the order in which they were given.
    pub resolvers: Vec<ResolverReport>,
}

impl Report {
    /// The resolvers, those with the most points first. Those of which too little was seen stand behind them in their order: they have no rank.
    #[must_use]
    pub fn ranked(&self) -> Vec<&ResolverReport> {
        let mut resolvers: Vec<&ResolverReport> = self.resolvers.iter().collect();
        resolvers.sort_by_key(|resolver| std::cmp::Reverse(resolver.score.rank()));
        resolvers
    }
}

impl ResolverReport {
    /// A report of these findings.
    #[must_use]
    pub fn new(resolver: String, findings: Vec<Finding>, questions: u64) -> ResolverReport {
        ResolverReport { resolver, score: score(&findings), findings, questions }
    }

    /// How many findings end so.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        self.findings.iter().filter(|finding| finding.verdict == verdict).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::{TTL_MAXIMUM, TTL_ZERO};

    #[test]
    fn who_answers_a_few_checks_does_not_stand_before_who_answers_all() {
        let [good, bad, unknown] = [
            TTL_ZERO.finding(Verdict::Good, ""),
            TTL_ZERO.finding(Verdict::Bad, ""),
            TTL_MAXIMUM.unknown(""),
        ];
        let of = |name: &str, findings: &[&Finding]| {
            ResolverReport::new(name.to_owned(), findings.iter().copied().cloned().collect(), 0)
        };
        let resolvers = vec![
            of("dead", &[&good, &unknown, &unknown]),
            of("silent", &[&unknown]),
            of("poor", &[&bad]),
            of("rich", &[&good, &unknown]),
        ];
        let report = Report { zone: String::new(), date: String::new(), rate: [1, 1], resolvers };
        let names: Vec<&str> = report.ranked().iter().map(|resolver| &*resolver.resolver).collect();
        assert_eq!(names, ["rich", "poor", "dead", "silent"]);
    }
}
