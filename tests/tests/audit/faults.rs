//! The table: each fault, and the check that has to see it.

use std::collections::BTreeSet;

use dns_audit::checks::{self, Finding, Verdict};
use dns_audit::probes;
use tests::Fault;

use crate::simulated::{Conditions, findings, findings_under};

/// Fault, the check that sees it, and how that ends.
const FAULTS: [(Fault, &str, Verdict); 86] = [
    (Fault::ServesExpired, "stale.reachable", Verdict::Bad),
    (Fault::ServesExpired, "flush.way", Verdict::Notice),
    (Fault::NeverRefreshes, "stale.refresh", Verdict::Bad),
    (Fault::NeverRefreshes, "stale.gone", Verdict::Bad),
    (Fault::NeverRefreshes, "flush.way", Verdict::Bad),
    (Fault::Impatient, "stale.slow", Verdict::Notice),
    (Fault::SilentWhenDown, "stale.outage", Verdict::Notice),
    (Fault::LongStaleTtl, "stale.ttl", Verdict::Bad),
    (Fault::Unmarked, "stale.label", Verdict::Notice),
    (Fault::KeepsRemoved, "stale.gone", Verdict::Bad),
    (Fault::NeverRecovers, "stale.recovery", Verdict::Bad),
    (Fault::FrozenTtl, "ttl.decrement", Verdict::Bad),
    (Fault::MinimumTtl, "ttl.minimum", Verdict::Bad),
    (Fault::KeepsZero, "ttl.zero", Verdict::Bad),
    (Fault::NoMaximum, "ttl.maximum", Verdict::Notice),
    (Fault::LongNegative, "ttl.negative", Verdict::Bad),
    (Fault::LongNoData, "ttl.negative", Verdict::Bad),
    (Fault::LongNoDataAndExpired, "ttl.negative", Verdict::Bad),
    (Fault::DeniesEmpty, "ttl.negative", Verdict::Notice),
    (Fault::NoNegativeCap, "ttl.negative-cap", Verdict::Notice),
    (Fault::ManyNetworks, "who.egress", Verdict::Notice),
    (Fault::ManyNetworks, "who.lines", Verdict::Bad),
    (Fault::LoopbackSubnet, "who.subnet", Verdict::Bad),
    (Fault::IgnoresScope, "who.passed", Verdict::Notice),
    (Fault::IgnoresScope, "who.scope", Verdict::Bad),
    (Fault::LoopbackSubnet, "who.opt-out", Verdict::Bad),
    (Fault::IgnoresScopeOfSix, "who.passed", Verdict::Notice),
    (Fault::IgnoresScopeOfSix, "who.scope", Verdict::Bad),
    (Fault::NeverReuses, "who.reuse", Verdict::Notice),
    (Fault::KeepsApart, "who.reuse", Verdict::Notice),
    (Fault::PassesSubnet, "who.passed", Verdict::Notice),
    (Fault::PassesSubnet, "who.scope", Verdict::Good),
    (Fault::PassesSubnet, "who.reuse", Verdict::Good),
    (Fault::PassesSubnet, "who.opt-out", Verdict::Good),
    (Fault::IgnoresOptOut, "who.opt-out", Verdict::Bad),
    (Fault::FixedSubnet, "who.subnet", Verdict::Bad),
    (Fault::FixedSubnet, "who.opt-out", Verdict::Bad),
    (Fault::ShortensSubnet, "who.passed", Verdict::Notice),
    (Fault::ShortensSubnet, "who.scope", Verdict::Good),
    (Fault::ShortensSubnet, "who.reuse", Verdict::Good),
    (Fault::TellsWhole, "who.subnet", Verdict::Bad),
    (Fault::TellsWhole, "who.opt-out", Verdict::Bad),
    (Fault::Abroad, "who.lines", Verdict::Bad),
    (Fault::WorstServer, "selection.share", Verdict::Bad),
    (Fault::NeverLeaves, "selection.outage", Verdict::Bad),
    (Fault::NeverReturns, "selection.return", Verdict::Notice),
    (Fault::TriesOnce, "selection.loss", Verdict::Bad),
    (Fault::TellsVersion, "identity.version", Verdict::Notice),
    (Fault::WholeNames, "identity.minimisation", Verdict::Notice),
    (Fault::PosesAsAnother, "identity.fingerprint", Verdict::Notice),
    (Fault::Fronted, "identity.chain", Verdict::Notice),
    (Fault::DesiresRecursion, "identity.chain", Verdict::Notice),
    (Fault::TwoCaches, "identity.chain", Verdict::Notice),
    (Fault::TwoCaches, "ttl.decrement", Verdict::Bad),
    (Fault::TwoWriters, "identity.chain", Verdict::Notice),
    (Fault::SideBySide, "identity.chain", Verdict::Notice),
    (Fault::RewritesMissing, "integrity.missing", Verdict::Bad),
    (Fault::RewritesTyped, "integrity.missing", Verdict::Bad),
    (Fault::ChangesAddress, "integrity.address", Verdict::Bad),
    (Fault::ChangesToNear, "integrity.address", Verdict::Bad),
    (Fault::AppendsAddress, "integrity.address", Verdict::Bad),
    (Fault::PrependsAddress, "integrity.address", Verdict::Bad),
    (Fault::DeniesSome, "integrity.address", Verdict::Bad),
    (Fault::Hijacks, "integrity.names", Verdict::Bad),
    (Fault::HidesName, "integrity.names", Verdict::Bad),
    (Fault::NeverValidates, "integrity.valid", Verdict::Notice),
    (Fault::NeverValidates, "integrity.bogus", Verdict::Bad),
    (Fault::NeverValidates, "integrity.expired", Verdict::Bad),
    (Fault::FailsUnknown, "integrity.unknown", Verdict::Bad),
    (Fault::FiltersPrivate, "integrity.rebinding", Verdict::Notice),
    (Fault::FixedPort, "integrity.ports", Verdict::Bad),
    (Fault::CountedIds, "integrity.ids", Verdict::Bad),
    (Fault::Lowercases, "integrity.case", Verdict::Bad),
    (Fault::Open, "integrity.open", Verdict::Bad),
    (Fault::LongDatagrams, "integrity.size", Verdict::Bad),
    (Fault::CutsTcp, "integrity.size", Verdict::Bad),
    (Fault::NoCookies, "integrity.cookies", Verdict::Notice),
    (Fault::NoTcp, "integrity.tcp", Verdict::Bad),
    (Fault::NoTcp, "integrity.size", Verdict::Notice),
    (Fault::Unencrypted, "integrity.encrypted", Verdict::Notice),
    (Fault::Deaf, "latency.cold", Verdict::Bad),
    (Fault::Far, "latency.hot", Verdict::Notice),
    (Fault::Silent, "integrity.open", Verdict::Good),
    (Fault::Refuses, "integrity.open", Verdict::Good),
    (Fault::FailsAll, "integrity.open", Verdict::Good),
    (Fault::DeniesAll, "integrity.open", Verdict::Good),
];
/// Checks that take no points and say the same of all resolvers but for the words.
const INFORMATION: [&str; 1] = ["ttl.prefetch"];
/// Faults that are none where this host is not among the resolver's clients.
const TO_STRANGERS: [Fault; 5] =
    [Fault::Open, Fault::Silent, Fault::Refuses, Fault::FailsAll, Fault::DeniesAll];

/// What all probes find.
fn all(fault: Option<Fault>) -> Vec<Finding> {
    probes::ALL.iter().flat_map(|probe| findings(probe, fault)).collect()
}

fn all_under(conditions: &Conditions) -> Vec<Finding> {
    probes::ALL.iter().flat_map(|probe| findings_under(probe, conditions)).collect()
}

fn show(findings: &[Finding]) -> String {
    let line = |finding: &Finding| {
        format!("{:?} {}: {}\n{:#?}", finding.verdict, finding.check, finding.summary, finding.evidence)
    };
    findings.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_good_resolver_is_good_by_every_check() {
    let findings = all(None);
    let odd: Vec<Finding> =
        findings.iter().filter(|finding| finding.verdict != Verdict::Good).cloned().collect();
    assert!(odd.is_empty(), "{}", show(&odd));
    let seen: BTreeSet<&str> = findings.iter().map(|finding| &*finding.check).collect();
    let missing: Vec<&str> =
        checks::ALL.iter().map(|check| check.id).filter(|id| !seen.contains(id)).collect();
    // Nothing has expired that could be refreshed; this host is no stranger.
    assert_eq!(missing, ["stale.refresh", "integrity.open"]);
}

#[test]
fn each_fault_is_found_by_its_check() {
    let mut missed = Vec::new();
    for (fault, check, verdict) in FAULTS {
        let probe = probes::by_name(check.split('.').next().unwrap()).unwrap();
        let is_outside = TO_STRANGERS.contains(&fault);
        let findings =
            findings_under(probe, &Conditions { fault: Some(fault), is_outside, ..Conditions::default() });
        let own = findings.iter().find(|finding| finding.check == check);
        if own.is_none_or(|finding| finding.verdict != verdict) {
            missed.push(format!(
                "{fault:?} {check} is not {verdict:?}: {}",
                show(&own.cloned().into_iter().collect::<Vec<_>>())
            ));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[test]
fn each_check_has_a_fault() {
    let is_seen = |id: &str| {
        FAULTS
            .iter()
            .any(|(_, check, verdict)| *check == id && matches!(verdict, Verdict::Bad | Verdict::Notice))
    };
    let missing: Vec<&str> = checks::ALL.iter().map(|check| check.id).filter(|id| !is_seen(id)).collect();
    assert_eq!(missing, INFORMATION, "checks that no fault of the liar fails");
    let unknown: Vec<&str> = FAULTS
        .iter()
        .map(|(_, check, _)| *check)
        .filter(|id| !checks::ALL.iter().any(|check| check.id == *id))
        .collect();
    assert_eq!(unknown, [""; 0]);
}

/// Lost datagrams between this host and the resolver are repeated: they take time, and give no verdict.
#[test]
fn datagrams_lost_on_the_way_to_the_resolver_are_no_finding() {
    let mut repeated = 0;
    for seed in 1..=8 {
        let findings = all_under(&Conditions { loss: 5, seed, ..Conditions::default() });
        let is_odd = |finding: &&Finding| match &*finding.check {
            "latency.cold" | "latency.hot" => finding.verdict == Verdict::Bad,
            _ => !matches!(finding.verdict, Verdict::Good | Verdict::Unknown),
        };
        let odd: Vec<Finding> = findings.iter().filter(is_odd).cloned().collect();
        assert!(odd.is_empty(), "seed {seed}: {}", show(&odd));
        let lines = findings.iter().flat_map(|finding| &finding.evidence);
        repeated += lines.filter(|line| line.contains(", asked 2 times)")).count();
    }
    assert!(repeated > 10, "{repeated} repeats are in the evidence");
}

/// What a resolver does without the authority is not held against it, whether the probe can ask the authority itself or not.
#[test]
fn an_authority_that_dies_is_no_fault_of_the_resolver() {
    let mut tested = 0;
    for after_ms in [0, 300, 1500, 5000, 7000, 9000, 12_000] {
        for is_known in [true, false] {
            for fault in [None, Some(Fault::KeepsRemoved), Some(Fault::SilentWhenDown)] {
                let death = Some((after_ms, is_known));
                let findings = all_under(&Conditions { fault, death, ..Conditions::default() });
                let is_odd = |finding: &&Finding| {
                    // What it does while a name has no authority is looked at, and seen. The removed name was seen, and the authority after it.
                    let is_seen = fault.is_some() && finding.check == "stale.outage"
                        || fault == Some(Fault::KeepsRemoved)
                            && finding.check == "stale.gone"
                            && after_ms > 9500;
                    matches!(finding.verdict, Verdict::Bad | Verdict::Notice) && !is_seen
                };
                let odd: Vec<Finding> = findings.iter().filter(is_odd).cloned().collect();
                assert!(odd.is_empty(), "{after_ms} ms, known {is_known}, {fault:?}: {}", show(&odd));
                let is_said = |finding: &&Finding| finding.summary.contains("the authority");
                tested += findings.iter().filter(is_said).count();
            }
        }
    }
    assert!(tested > 100, "{tested} findings name the authority");
}

/// Fresh data looks old when the authority's clock goes back, and expired data fresh when it goes on: neither is said of the resolver.
#[test]
fn a_clock_that_is_set_during_a_probe_is_no_fault_of_the_resolver_and_hides_none() {
    let mut told = 0;
    for by_ms in [-3_600_000, -60_000, -5000, -2000, 2000, 5000, 60_000, 3_600_000] {
        for after_ms in [0, 300, 3000, 7000, 9000] {
            for fault in [None, Some(Fault::NeverRefreshes)] {
                let conditions =
                    Conditions { fault, clock: Some((after_ms, by_ms)), ..Conditions::default() };
                for name in ["stale", "flush", "ttl"] {
                    let findings = findings_under(probes::by_name(name).unwrap(), &conditions);
                    let is_told = |finding: &&Finding| finding.summary.contains("clock was set");
                    let is_odd = |finding: &&Finding| finding.check != "service" && !is_told(finding);
                    let odd: Vec<Finding> = findings.iter().filter(is_odd).cloned().collect();
                    assert!(odd.is_empty(), "{by_ms} after {after_ms}, {fault:?}: {}", show(&odd));
                    told += findings.iter().filter(is_told).count();
                }
            }
        }
    }
    assert!(told > 500, "{told} findings name the clock");
}

/// What was sure before the authority died stays sure, whether the probe can ask the authority itself or not.
#[test]
fn what_was_seen_before_the_authority_died_is_kept() {
    let probe = probes::by_name("stale").unwrap();
    let verdict = |fault, check: &str, death| {
        let findings =
            findings_under(probe, &Conditions { fault: Some(fault), death, ..Conditions::default() });
        findings.into_iter().find(|finding| finding.check == check).map(|finding| finding.verdict)
    };
    for is_known in [true, false] {
        let dies = |after_ms| Some((after_ms, is_known));
        for (check, fault) in [
            ("stale.reachable", Fault::NeverRefreshes),
            ("stale.refresh", Fault::NeverRefreshes),
            ("stale.gone", Fault::KeepsRemoved),
        ] {
            assert_eq!(verdict(fault, check, dies(13_000)), Some(Verdict::Bad), "{check}, known {is_known}");
            assert_eq!(
                verdict(fault, check, dies(7000)),
                Some(Verdict::Unknown),
                "{check}, known {is_known}"
            );
        }
        assert_eq!(verdict(Fault::NeverRecovers, "stale.recovery", dies(13_000)), Some(Verdict::Unknown));
    }
}

/// Without the authority's address its own answers to questions for new names show that it is there.
#[test]
fn faults_of_time_are_found_without_the_address_of_the_authority() {
    for (fault, check, verdict) in FAULTS {
        let probe = check.split('.').next().unwrap();
        if !["stale", "flush", "ttl"].contains(&probe) {
            continue;
        }
        let conditions = Conditions { fault: Some(fault), is_unseen: true, ..Conditions::default() };
        let findings = findings_under(probes::by_name(probe).unwrap(), &conditions);
        let is_found = findings.iter().any(|finding| finding.check == check && finding.verdict == verdict);
        assert!(is_found, "{fault:?} {check}: {}", show(&findings));
    }
}

/// What is fetched for a question is fresh, however late it arrives, and nothing is compared with what had not come yet.
#[test]
fn a_slow_way_is_no_finding_but_of_latency() {
    for (delay_ms, ttl_s) in [500, 1000, 2500, 3200].into_iter().flat_map(|ms| [(ms, None), (ms, Some(1))]) {
        let findings = all_under(&Conditions { delay_ms, ttl_s, ..Conditions::default() });
        let is_odd = |finding: &&Finding| {
            let is_about_time =
                ["latency.", "selection."].iter().any(|probe| finding.check.starts_with(probe));
            finding.verdict == Verdict::Bad || finding.verdict == Verdict::Notice && !is_about_time
        };
        let odd: Vec<Finding> = findings.iter().filter(is_odd).cloned().collect();
        assert!(odd.is_empty(), "{delay_ms} ms, TTL {ttl_s:?}: {}", show(&odd));
        let cold = findings.iter().find(|finding| finding.check == "latency.cold").unwrap();
        assert!(cold.summary.starts_with(&format!("median {}", delay_ms + 1)), "{}", cold.summary);
    }
}

/// Of who does not serve this host nothing is said, but that it does not; and that only where the authority was there.
#[test]
fn a_resolver_that_does_not_serve_this_host_has_no_verdicts() {
    for (fault, reason) in [
        (Fault::Silent, "it answers nothing"),
        (Fault::Refuses, "it refuses this host"),
        (Fault::FailsAll, "it resolves no name of the audit zone: SERVFAIL"),
        (Fault::DeniesAll, "it denies all names of the audit zone: NXDOMAIN"),
    ] {
        for (is_outside, is_unseen) in [(false, false), (true, false), (false, true)] {
            let conditions =
                Conditions { fault: Some(fault), is_outside, is_unseen, ..Conditions::default() };
            let (own, others): (Vec<Finding>, Vec<Finding>) = all_under(&conditions)
                .into_iter()
                .partition(|finding| ["integrity.open", "service"].contains(&&*finding.check));
            let is_said = |finding: &Finding| {
                let untested = finding.summary.strip_prefix("not tested: ");
                finding.verdict == Verdict::Unknown && untested.is_some_and(|words| words.starts_with(reason))
            };
            let odd: Vec<Finding> = others.iter().filter(|finding| !is_said(finding)).cloned().collect();
            assert!(odd.is_empty() && others.len() > 25, "{fault:?}: {}", show(&odd));
            let verdicts: BTreeSet<(&str, Verdict)> =
                own.iter().map(|finding| (&*finding.check, finding.verdict)).collect();
            let expected = match (is_outside, is_unseen) {
                (true, _) => ("integrity.open", Verdict::Good),
                // A refusal is its own, whatever the authority does.
                (false, true) if fault != Fault::Refuses => ("service", Verdict::Unknown),
                _ => ("service", Verdict::Bad),
            };
            assert_eq!(verdicts, BTreeSet::from([expected]), "{fault:?}: {}", show(&own));
            assert!(
                is_outside || own.iter().all(|finding| finding.summary.starts_with(reason)),
                "{}",
                show(&own)
            );
        }
    }
}

/// A resolver cannot resolve without the authority, and is not to blame.
#[test]
fn a_dead_authority_does_not_make_a_resolver_one_that_serves_nobody() {
    for is_known in [true, false] {
        let findings = all_under(&Conditions { death: Some((0, is_known)), ..Conditions::default() });
        let service: BTreeSet<Verdict> = findings
            .iter()
            .filter(|finding| finding.check == "service")
            .map(|finding| finding.verdict)
            .collect();
        assert_eq!(service, BTreeSet::from([Verdict::Unknown]), "{}", show(&findings));
    }
}

#[test]
fn where_questions_leave_too_late_nothing_is_said_about_the_choice_of_servers() {
    let probe = probes::by_name("selection").unwrap();
    for (interval_ms, is_tested) in [(50, true), (200, false), (1000, false)] {
        let findings = findings_under(probe, &Conditions { interval_ms, ..Conditions::default() });
        let is_said = |finding: &Finding| {
            finding.verdict == Verdict::Unknown && finding.summary.contains("Raise --rate")
        };
        let count = findings.iter().filter(|finding| is_said(finding)).count();
        assert_eq!(count, if is_tested { 0 } else { 4 }, "{interval_ms} ms: {}", show(&findings));
    }
}

/// Only the address that was added is named, wherever it stands.
#[test]
fn an_address_beside_the_true_one_is_named() {
    let probe = probes::by_name("integrity").unwrap();
    for fault in [Fault::AppendsAddress, Fault::PrependsAddress] {
        let findings = findings(probe, Some(fault));
        let finding = findings.iter().find(|finding| finding.check == "integrity.address").unwrap();
        assert_eq!(finding.summary, "the authority never sent 203.0.113.9", "{fault:?}");
    }
}

#[test]
fn names_without_an_answer_are_not_tested() {
    let probe = probes::by_name("integrity").unwrap();
    let conditions = Conditions { loss: 100, seed: 1, ..Conditions::default() };
    let findings = findings_under(probe, &conditions);
    let names = findings.iter().find(|finding| finding.check == "integrity.names").unwrap();
    assert_eq!(names.verdict, Verdict::Unknown, "{}", names.summary);
    assert!(names.summary.contains("none of the names given had an answer"), "{}", names.summary);
}

/// A fault must not make other probes cry: only those checks end badly that its row, or another row with it, names.
#[test]
fn a_fault_is_found_by_nobody_else() {
    let related = |fault: Fault, check: &str| match fault {
        // All answers are changed, or none comes, whatever is looked at.
        Fault::ChangesAddress
        | Fault::ChangesToNear
        | Fault::AppendsAddress
        | Fault::PrependsAddress
        | Fault::DeniesSome
        | Fault::Deaf => true,
        // What is kept for too long is expired data, too.
        Fault::ServesExpired | Fault::NeverRefreshes | Fault::MinimumTtl | Fault::KeepsZero => {
            ["stale.", "ttl.", "flush."].iter().any(|probe| check.starts_with(probe))
        }
        // Where this host is no stranger.
        Fault::Silent | Fault::Refuses | Fault::FailsAll | Fault::DeniesAll => check == "service",
        // The zone of all names has failed.
        Fault::NeverRecovers => check.starts_with("stale."),
        _ => false,
    };
    for (fault, ..) in FAULTS {
        let named: Vec<&str> =
            FAULTS.iter().filter(|(own, ..)| *own == fault).map(|(_, check, _)| *check).collect();
        let others: Vec<Finding> = all(Some(fault))
            .into_iter()
            .filter(|finding| finding.verdict == Verdict::Bad && !named.contains(&&*finding.check))
            .filter(|finding| !related(fault, &finding.check))
            .collect();
        assert!(others.is_empty(), "{fault:?}: {}", show(&others));
    }
}

/// The authority's conditions say which server is the fastest, and what the best could do.
#[test]
fn the_choice_of_servers_is_held_against_the_best_that_the_given_conditions_allow() {
    let probe = probes::by_name("selection").unwrap();
    let servers =
        ["delay=20,outage=3-5,loss=10", "delay=200,loss=50", "delay=400"].map(|text| text.parse().unwrap());
    let under = |fault, servers| {
        let findings =
            findings_under(probe, &Conditions { fault, servers: Some(servers), ..Conditions::default() });
        let findings = findings.into_iter().filter(|finding| finding.check != "service");
        findings.map(|finding| (finding.verdict, finding.summary)).collect::<Vec<_>>()
    };
    let good = under(None, servers);
    assert!(good.iter().all(|(verdict, _)| *verdict == Verdict::Good), "{good:?}");
    for (place, best) in [
        (0, "20 ms is the best"),
        (1, "200 ms is the best"),
        (2, "0.0 s is the best"),
        (3, "22 ms and 1.0 queries are the best"),
    ] {
        assert!(good[place].1.contains(best), "{good:?}");
    }
    // With its defaults this one asks the slowest; here the first is the fastest.
    assert_eq!(under(Some(Fault::WorstServer), servers)[0].0, Verdict::Good);
    assert_eq!(under(Some(Fault::NeverLeaves), servers)[0].0, Verdict::Bad);
    let calm = ["delay=20", "delay=200", "delay=400"].map(|text| text.parse().unwrap());
    let verdicts: Vec<Verdict> = under(None, calm).into_iter().map(|(verdict, _)| verdict).collect();
    assert_eq!(verdicts, [Verdict::Good, Verdict::Unknown, Verdict::Unknown, Verdict::Unknown]);
}
