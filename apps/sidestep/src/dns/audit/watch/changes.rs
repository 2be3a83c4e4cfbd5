//! What differs between two rounds.

use std::fmt;

use dns_audit::checks::Verdict;
use dns_audit::report::{Report, ResolverReport};
use serde::Serialize;

use super::history::Past;

/// What the change of a resolver is called that serves this host no more.
const SERVICE: &str = "service";

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

/// Checks that end otherwise than when they were last seen. What could not be seen says nothing; of what is new only what is bad is told.
pub(super) fn between(past: &Past, report: &Report) -> Vec<Change> {
    let mut changes = Vec::new();
    for resolver in &report.resolvers {
        changes.extend(of_service(past, resolver));
        for finding in resolver.findings.iter().filter(|finding| finding.verdict != Verdict::Unknown) {
            let before = past.seen.get(&(resolver.resolver.clone(), finding.check.to_string())).copied();
            if before.map_or(finding.verdict == Verdict::Bad, |before| before != finding.verdict) {
                let (resolver, check) = (resolver.resolver.clone(), finding.check.to_string());
                let (now, summary) = (finding.verdict, finding.summary.clone());
                changes.push(Change { resolver, check, before, now, summary });
            }
        }
    }
    changes
}

/// A resolver that serves this host no more, or again: no check of its own says so.
fn of_service(past: &Past, resolver: &ResolverReport) -> Option<Change> {
    let did = *past.served.get(&resolver.resolver)?;
    let does = resolver.score.seen > 0;
    let verdict = |serves| if serves { Verdict::Good } else { Verdict::Bad };
    let first = resolver.findings.first().map(|finding| finding.summary.clone()).unwrap_or_default();
    (did != does).then(|| Change {
        resolver: resolver.resolver.clone(),
        check: SERVICE.to_owned(),
        before: Some(verdict(did)),
        now: verdict(does),
        summary: if does { "it can be tested again".to_owned() } else { first },
    })
}

#[cfg(test)]
mod tests {
    use dns_audit::checks::STALE_REACHABLE;
    use dns_audit::report::ResolverReport;

    use super::*;

    /// A past in which one check ended so in the last round, and was last seen to end so.
    fn past(latest: Option<Verdict>, seen: Option<Verdict>) -> Past {
        let key = || ("r".to_owned(), "stale.reachable".to_owned());
        Past {
            seen: seen.map(|verdict| (key(), verdict)).into_iter().collect(),
            served: latest.map(|verdict| ("r".to_owned(), verdict != Verdict::Unknown)).into_iter().collect(),
        }
    }

    fn seen(verdict: Verdict) -> Option<Verdict> {
        Some(verdict).filter(|verdict| *verdict != Verdict::Unknown)
    }

    #[test]
    fn an_alarm_ends_although_the_check_could_not_be_seen_between() {
        let resolvers =
            vec![ResolverReport::new("r".to_owned(), vec![STALE_REACHABLE.finding(Verdict::Good, "")], 1)];
        let report = Report { zone: String::new(), date: String::new(), rate: [1, 1], resolvers };
        let changes = between(&past(Some(Verdict::Unknown), Some(Verdict::Bad)), &report);
        let told: Vec<String> = changes.iter().map(Change::to_string).collect();
        assert_eq!(
            told,
            ["r service: BAD -> good: it can be tested again", "r stale.reachable: BAD -> good: "]
        );
    }

    #[test]
    fn only_what_ends_otherwise_is_told_and_of_what_is_new_only_what_is_bad() {
        let told = |before: Option<Verdict>, now| {
            let resolvers =
                vec![ResolverReport::new("r".to_owned(), vec![STALE_REACHABLE.finding(now, "")], 1)];
            let report = Report { zone: String::new(), date: String::new(), rate: [1, 1], resolvers };
            between(&past(before, before.and_then(seen)), &report).len()
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
            [told(Some(Verdict::Good), Verdict::Good), told(Some(Verdict::Unknown), Verdict::Unknown)],
            [0, 0]
        );
    }

    #[test]
    fn a_resolver_that_falls_silent_is_told_once_and_so_is_its_return() {
        let told = |before: Option<Verdict>, now: Verdict| {
            let finding = STALE_REACHABLE.finding(now, "not tested: it answers nothing");
            let resolvers = vec![ResolverReport::new("r".to_owned(), vec![finding], 1)];
            let report = Report { zone: String::new(), date: String::new(), rate: [1, 1], resolvers };
            let changes = between(&past(before, before.and_then(seen)), &report);
            changes.iter().map(Change::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            told(Some(Verdict::Good), Verdict::Unknown),
            ["r service: good -> BAD: not tested: it answers nothing"]
        );
        assert_eq!(
            told(Some(Verdict::Unknown), Verdict::Good),
            ["r service: BAD -> good: it can be tested again"]
        );
        assert!(told(Some(Verdict::Unknown), Verdict::Unknown).is_empty());
        assert!(told(None, Verdict::Unknown).is_empty());
    }
}
