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
    /// The resolvers, those with the most points first. Those that could not be tested stand behind them in their order: they have no rank.
    #[must_use]
    pub fn ranked(&self) -> Vec<&ResolverReport> {
        let mut resolvers: Vec<&ResolverReport> = self.resolvers.iter().collect();
        resolvers.sort_by_key(|resolver| std::cmp::Reverse(resolver.score.points));
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
