//! What is known of the resolvers of the list, in memory: what the history had at the start, and what rounds have found since. So a history that
//! cannot be written neither stops the watch nor makes it tell everything again.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use dns_audit::checks::Verdict;
use dns_audit::report::Report;

use super::changes::{self, Change};

/// What goes wrong round after round is logged again after so long.
const AGAIN: Duration = Duration::from_secs(3600);

/// Of one resolver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// The last verdict of each check that could be seen, in whichever round.
    pub(super) seen: BTreeMap<Cow<'static, str>, Verdict>,
    /// What its last round has found.
    pub(super) latest: Option<Latest>,
}

/// A resolver's last round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Latest {
    /// When: seconds since 1970.
    pub(super) at_s: u64,
    pub(super) points: Option<u32>,
    /// How many findings end so.
    pub(super) counts: BTreeMap<Verdict, u64>,
}

/// Of all resolvers of the list, and of the watch itself.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) resolvers: BTreeMap<String, Known>,
    /// Rounds that have ended with a report.
    pub(super) rounds: u64,
    /// Rounds without one.
    pub(super) failed: u64,
    /// Rounds that the history has lost, or could not take.
    pub(super) unwritten: u64,
    /// Whether the history took the last round.
    pub(super) is_written: bool,
}

impl State {
    /// What a round has found: remembers it, and returns what has changed.
    pub(super) fn update(&mut self, report: &Report, now_s: u64) -> Vec<Change> {
        let last = |resolver: &str, check: &str| self.resolvers.get(resolver)?.seen.get(check).copied();
        let changes = changes::between(last, report);
        for own in &report.resolvers {
            let known = self.resolvers.entry(own.resolver.clone()).or_default();
            let mut counts = BTreeMap::new();
            for finding in &own.findings {
                *counts.entry(finding.verdict).or_default() += 1;
                if finding.verdict != Verdict::Unknown {
                    known.seen.insert(finding.check.clone(), finding.verdict);
                }
            }
            known.latest = Some(Latest { at_s: now_s, points: own.score.points, counts });
        }
        self.rounds += 1;
        changes
    }

    /// Whether all rounds were carried out and kept.
    pub(super) fn is_whole(&self) -> bool {
        self.failed == 0 && self.unwritten == 0
    }
}

/// What goes wrong is told when it begins, when it is another thing, and now and then: not each round.
#[derive(Debug, Default)]
pub(super) struct Alarm(Option<(String, Instant)>);

impl Alarm {
    /// Whether to tell that this is wrong now.
    pub(super) fn is_due(&mut self, reason: &str, now: Instant) -> bool {
        let is_known = self.0.as_ref().is_some_and(|(own, at)| own == reason && now < *at + AGAIN);
        if !is_known {
            self.0 = Some((reason.to_owned(), now));
        }
        !is_known
    }

    /// Nothing is wrong any more: whether something was.
    pub(super) fn ends(&mut self) -> bool {
        self.0.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use dns_audit::checks::{SERVICE, STALE_REACHABLE};
    use dns_audit::report::ResolverReport;

    use super::*;

    fn report(service: Verdict, stale: Verdict) -> Report {
        let findings =
            vec![SERVICE.finding(service, "it answers nothing"), STALE_REACHABLE.finding(stale, "")];
        let resolvers = vec![ResolverReport::new("r".to_owned(), findings, 1)];
        Report { zone: String::new(), date: String::new(), rate: [1, 1], resolvers }
    }

    #[test]
    fn an_alarm_is_told_once_and_ends_although_the_check_could_not_be_seen_between() {
        let mut state = State::default();
        let mut told = |service, stale| {
            let changes = state.update(&report(service, stale), 7);
            changes.iter().map(|change| format!("{} {}", change.check, change.now.word())).collect::<Vec<_>>()
        };
        assert_eq!(told(Verdict::Good, Verdict::Bad), ["stale.reachable BAD"]);
        assert!(told(Verdict::Good, Verdict::Bad).is_empty());
        assert_eq!(told(Verdict::Bad, Verdict::Unknown), ["service BAD"]);
        assert!(told(Verdict::Bad, Verdict::Unknown).is_empty());
        // Nobody knows whether the authority is there: nothing is told, and nothing is forgotten.
        assert!(told(Verdict::Unknown, Verdict::Unknown).is_empty());
        assert!(told(Verdict::Bad, Verdict::Unknown).is_empty());
        assert_eq!(told(Verdict::Good, Verdict::Good), ["service good", "stale.reachable good"]);
    }

    #[test]
    fn the_last_round_is_what_counts() {
        let mut state = State::default();
        state.update(&report(Verdict::Good, Verdict::Bad), 7);
        assert_eq!(state.resolvers["r"].latest.as_ref().unwrap().points, Some(75));
        state.update(&report(Verdict::Bad, Verdict::Unknown), 8);
        let latest = state.resolvers["r"].latest.as_ref().unwrap();
        assert_eq!((latest.at_s, latest.points), (8, None));
        assert_eq!(latest.counts, BTreeMap::from([(Verdict::Bad, 1), (Verdict::Unknown, 1)]));
    }

    #[test]
    fn what_goes_wrong_for_long_is_told_now_and_then() {
        let (mut alarm, start) = (Alarm::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        assert!(!alarm.ends());
        assert!(alarm.is_due("full", after(0)) && !alarm.is_due("full", after(900)));
        assert!(alarm.is_due("gone", after(901)), "another reason");
        assert!(!alarm.is_due("gone", after(4000)) && alarm.is_due("gone", after(4600)));
        assert!(alarm.ends() && alarm.is_due("gone", after(4601)));
    }
}
