//! The table: each fault, and the check that has to see it.

use dns_audit::checks::{Finding, Verdict};
use dns_audit::probes;
use tests::Fault;

use crate::simulated::findings;

/// Fault, the check that sees it, and how that ends.
const FAULTS: [(Fault, &str, Verdict); 27] = [
    (Fault::ServesExpired, "stale.reachable", Verdict::Bad),
    (Fault::ServesExpired, "flush.way", Verdict::Notice),
    (Fault::NeverRefreshes, "stale.refresh", Verdict::Bad),
    (Fault::NeverRefreshes, "stale.gone", Verdict::Bad),
    (Fault::NeverRefreshes, "flush.way", Verdict::Bad),
    (Fault::Impatient, "stale.slow", Verdict::Notice),
    (Fault::LongStaleTtl, "stale.ttl", Verdict::Bad),
    (Fault::KeepsRemoved, "stale.gone", Verdict::Bad),
    (Fault::NeverRecovers, "stale.recovery", Verdict::Bad),
    (Fault::FrozenTtl, "ttl.decrement", Verdict::Bad),
    (Fault::MinimumTtl, "ttl.minimum", Verdict::Bad),
    (Fault::KeepsZero, "ttl.zero", Verdict::Bad),
    (Fault::LongNegative, "ttl.negative", Verdict::Bad),
    (Fault::LoopbackSubnet, "who.subnet", Verdict::Bad),
    (Fault::IgnoresScope, "who.scope", Verdict::Bad),
    (Fault::Abroad, "who.lines", Verdict::Bad),
    (Fault::WorstServer, "selection.share", Verdict::Bad),
    (Fault::NeverLeaves, "selection.outage", Verdict::Bad),
    (Fault::RewritesMissing, "integrity.missing", Verdict::Bad),
    (Fault::ChangesAddress, "integrity.address", Verdict::Bad),
    (Fault::NeverValidates, "integrity.bogus", Verdict::Bad),
    (Fault::NeverValidates, "integrity.expired", Verdict::Bad),
    (Fault::FailsUnknown, "integrity.unknown", Verdict::Bad),
    (Fault::FixedPort, "integrity.ports", Verdict::Bad),
    (Fault::CountedIds, "integrity.ids", Verdict::Bad),
    (Fault::Lowercases, "integrity.case", Verdict::Bad),
    (Fault::LongDatagrams, "integrity.size", Verdict::Bad),
];

fn all(fault: Option<Fault>) -> Vec<Finding> {
    probes::ALL.iter().flat_map(|probe| findings(probe, fault)).collect()
}

fn show(findings: &[Finding]) -> String {
    let line = |finding: &Finding| {
        format!("{:?} {}: {}\n{:#?}", finding.verdict, finding.check, finding.summary, finding.evidence)
    };
    findings.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_good_resolver_has_no_bad_finding_and_everything_is_seen() {
    let findings = all(None);
    let odd: Vec<Finding> = findings
        .iter()
        .filter(|finding| matches!(finding.verdict, Verdict::Bad | Verdict::Unknown))
        .cloned()
        .collect();
    assert!(odd.is_empty(), "{}", show(&odd));
    assert!(findings.len() > 35, "{} findings", findings.len());
}

#[test]
fn each_fault_is_found_by_its_check() {
    for (fault, check, verdict) in FAULTS {
        let probe = probes::by_name(check.split('.').next().unwrap()).unwrap();
        let findings = findings(probe, Some(fault));
        let own: Vec<Finding> = findings.iter().filter(|finding| finding.check == check).cloned().collect();
        assert!(
            own.first().is_some_and(|finding| finding.verdict == verdict),
            "{fault:?} {check}: {}",
            show(&findings)
        );
    }
}

#[test]
fn what_is_lost_or_not_served_is_found() {
    for (fault, check, probe) in
        [(Fault::Lossy, "latency.cold", "latency"), (Fault::NoTcp, "integrity.tcp", "integrity")]
    {
        let findings = findings(probes::by_name(probe).unwrap(), Some(fault));
        let finding = findings.iter().find(|finding| finding.check == check).unwrap();
        assert_eq!(finding.verdict, Verdict::Bad, "{}", show(&findings));
    }
}

/// A fault must not make other probes cry: only those checks end badly that its row, or another row with it, names.
#[test]
fn a_fault_is_found_by_nobody_else() {
    let related = |fault: Fault, check: &str| match fault {
        // All answers are changed, or none is validated, whatever is looked at.
        Fault::ChangesAddress => true,
        // What is kept for too long is expired data, too.
        Fault::ServesExpired | Fault::NeverRefreshes | Fault::MinimumTtl | Fault::KeepsZero => {
            ["stale.", "ttl.", "flush."].iter().any(|probe| check.starts_with(probe))
        }
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
