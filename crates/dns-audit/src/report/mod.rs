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

use crate::checks::{Finding, SERVICE, Verdict};

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
        let findings = with_one_service(findings);
        ResolverReport { resolver, score: score(&findings), findings, questions }
    }

    /// How many findings end so.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        self.findings.iter().filter(|finding| finding.verdict == verdict).count()
    }
}

/// Each probe says whether the resolver served it: once is enough. What is bad at one time is bad; what one probe could not see another one may have.
fn with_one_service(findings: Vec<Finding>) -> Vec<Finding> {
    let (service, others): (Vec<Finding>, Vec<Finding>) =
        findings.into_iter().partition(|finding| finding.check == SERVICE.id);
    let rank = |finding: &Finding| match finding.verdict {
        Verdict::Bad | Verdict::Notice => 0,
        Verdict::Good => 1,
        Verdict::Unknown => 2,
    };
    service.into_iter().min_by_key(rank).into_iter().chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::{TTL_MAXIMUM, TTL_ZERO};

    #[test]
    fn a_report_says_once_whether_the_resolver_serves_this_host_and_counts_it_as_no_check() {
        let of = |verdicts: &[Verdict]| {
            let service = verdicts.iter().map(|verdict| SERVICE.finding(*verdict, ""));
            let findings = service.chain([TTL_ZERO.unknown("not tested")]).collect();
            let report = ResolverReport::new("r".to_owned(), findings, 0);
            assert_eq!((report.findings.len(), report.score.seen, report.score.points), (2, 0, None));
            report.findings[0].verdict
        };
        assert_eq!(of(&[Verdict::Good, Verdict::Bad, Verdict::Unknown]), Verdict::Bad);
        assert_eq!(of(&[Verdict::Unknown, Verdict::Good]), Verdict::Good);
        assert_eq!(of(&[Verdict::Unknown]), Verdict::Unknown);
    }

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
