//! What differs between what was last known of a check and what a round has found.

use std::collections::BTreeMap;
use std::fmt;

use dns_audit::checks::Verdict;
use dns_audit::report::Report;
use serde::Serialize;

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

/// Checks that end otherwise than when they were last seen: `last` has the verdict of a resolver's check. What could not be seen says nothing; of what
/// is new only what is bad is told.
pub(super) fn between(last: impl Fn(&str, &str) -> Option<Verdict>, report: &Report) -> Vec<Change> {
    let mut changes = Vec::new();
    for resolver in &report.resolvers {
        for finding in resolver.findings.iter().filter(|finding| finding.verdict != Verdict::Unknown) {
            let before = last(&resolver.resolver, &finding.check);
            if before.map_or(finding.verdict == Verdict::Bad, |before| before != finding.verdict) {
                let (resolver, check) = (resolver.resolver.clone(), finding.check.to_string());
                let (now, summary) = (finding.verdict, finding.summary.clone());
                changes.push(Change { resolver, check, before, now, summary });
            }
        }
    }
    changes
}

/// Changes that the webhook has not taken yet: each check once, so that their number has a bound.
#[derive(Debug, Default)]
pub(super) struct Outbox(BTreeMap<(String, String), Change>);

impl Outbox {
    /// Adds later changes. What has come back to where it was before is none.
    pub(super) fn add(&mut self, changes: &[Change]) {
        for change in changes {
            let key = (change.resolver.clone(), change.check.clone());
            let before = self.0.get(&key).map_or(change.before, |waiting| waiting.before);
            match before == Some(change.now) {
                true => drop(self.0.remove(&key)),
                false => drop(self.0.insert(key, Change { before, ..change.clone() })),
            }
        }
    }

    /// What waits.
    pub(super) fn waiting(&self) -> Vec<&Change> {
        self.0.values().collect()
    }

    /// All of it was taken.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use dns_audit::checks::{SERVICE, STALE_REACHABLE};
    use dns_audit::report::ResolverReport;

    use super::*;

    fn report(verdict: Verdict) -> Report {
        let findings = vec![SERVICE.finding(Verdict::Good, ""), STALE_REACHABLE.finding(verdict, "")];
        let resolvers = vec![ResolverReport::new("r".to_owned(), findings, 1)];
        Report { zone: String::new(), date: String::new(), rate: [1, 1], resolvers }
    }

    #[test]
    fn only_what_ends_otherwise_is_told_and_of_what_is_new_only_what_is_bad() {
        let told = |before: Option<Verdict>, now| {
            let last = |_: &str, check: &str| before.filter(|_| check != "service");
            between(last, &report(now)).len()
        };
        let (good, bad) = (Some(Verdict::Good), Some(Verdict::Bad));
        assert_eq!([told(None, Verdict::Good), told(None, Verdict::Bad), told(bad, Verdict::Bad)], [0, 1, 0]);
        assert_eq!(
            [told(good, Verdict::Bad), told(bad, Verdict::Good), told(good, Verdict::Good)],
            [1, 1, 0]
        );
        assert_eq!([told(good, Verdict::Unknown), told(bad, Verdict::Unknown)], [0, 0]);
    }

    #[test]
    fn what_the_webhook_did_not_take_waits_and_is_told_once() {
        let change = |before, now| Change {
            resolver: "r".to_owned(),
            check: "c".to_owned(),
            before: Some(before),
            now,
            summary: String::new(),
        };
        let mut outbox = Outbox::default();
        outbox.add(&[change(Verdict::Good, Verdict::Notice)]);
        outbox.add(&[change(Verdict::Notice, Verdict::Bad)]);
        assert_eq!(outbox.waiting(), [&change(Verdict::Good, Verdict::Bad)]);
        outbox.add(&[change(Verdict::Bad, Verdict::Good)]);
        assert!(outbox.waiting().is_empty(), "it is as it was when the webhook last heard of it");
    }
}
