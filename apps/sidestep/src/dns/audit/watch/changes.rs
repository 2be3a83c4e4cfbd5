//! What differs between two rounds.

use std::fmt;

use dns_audit::checks::Verdict;
use dns_audit::report::Report;
use serde::Serialize;

use super::history::Verdicts;

/// A check that ends otherwise than before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Change {
    pub(super) resolver: String,
    pub(super) check: String,
    /// None if it is seen for the first time.
    pub(super) before: Option<Verdict>,
    pub(super) now: Verdict,
    pub(super) summary: String,
}

impl Change {
    /// It has become bad.
    pub(super) fn is_worse(&self) -> bool {
        self.now == Verdict::Bad
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Change { resolver, check, before, now, summary } = self;
        let before = before.map_or("new", Verdict::word);
        write!(f, "{resolver} {check}: {before} -> {}: {summary}", now.word())
    }
}

/// Checks that end otherwise. What could not be seen says nothing; of what is new only what is bad is told.
pub(super) fn between(before: &Verdicts, report: &Report) -> Vec<Change> {
    let mut changes = Vec::new();
    for resolver in &report.resolvers {
        for finding in resolver.findings.iter().filter(|finding| finding.verdict != Verdict::Unknown) {
            let known = before.get(&(resolver.resolver.clone(), finding.check.to_string())).copied();
            let is_told = match known {
                Some(Verdict::Unknown) | None => finding.verdict == Verdict::Bad,
                Some(known) => known != finding.verdict,
            };
            if is_told {
                let (resolver, check) = (resolver.resolver.clone(), finding.check.to_string());
                changes.push(Change {
                    resolver,
                    check,
                    before: known,
                    now: finding.verdict,
                    summary: finding.summary.clone(),
                });
            }
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use dns_audit::checks::STALE_REACHABLE;
    use dns_audit::report::ResolverReport;

    use super::*;

    #[test]
    fn only_what_ends_otherwise_is_told_and_of_what_is_new_only_what_is_bad() {
        let told = |before: Option<Verdict>, now| {
            let known = before.map(|verdict| (("r".to_owned(), "stale.reachable".to_owned()), verdict));
            let resolvers =
                vec![ResolverReport::new("r".to_owned(), vec![STALE_REACHABLE.finding(now, "")], 1)];
            let report = Report { zone: String::new(), date: String::new(), rate: [1, 1], resolvers };
            between(&known.into_iter().collect(), &report).len()
        };
        assert_eq!(
            [told(None, Verdict::Good), told(None, Verdict::Bad), told(Some(Verdict::Bad), Verdict::Bad)],
            [0, 1, 0]
        );
        assert_eq!(
            [told(Some(Verdict::Good), Verdict::Bad), told(Some(Verdict::Bad), Verdict::Good)],
            [1, 1]
        );
        assert_eq!(
            [told(Some(Verdict::Good), Verdict::Unknown), told(Some(Verdict::Unknown), Verdict::Good)],
            [0, 0]
        );
    }
}
