//! The command against resolvers as Debian packages them, below a root of their own: in default configuration and in the worst one.

mod chains;
mod network;

use std::time::Duration;

use dns_audit::checks::Verdict;
use dns_audit::report::ResolverReport;
use lab::{ResolverMake, require_root_and_xdp};

use network::Network;

/// Make, what is added to its configuration, and what its checks have to come to.
struct Case {
    make: ResolverMake,
    more: &'static str,
    /// Bad ones among those of [`WATCHED`].
    bad: &'static [&'static str],
}

/// The checks whose outcome is the same on any machine, however busy.
const WATCHED: [&str; 14] = [
    "stale.reachable",
    "stale.refresh",
    "ttl.decrement",
    "ttl.minimum",
    "ttl.negative",
    "who.subnet",
    "who.scope",
    "integrity.missing",
    "integrity.address",
    "integrity.bogus",
    "integrity.expired",
    "integrity.unknown",
    "integrity.case",
    "integrity.tcp",
];

const fn case(make: ResolverMake, more: &'static str, bad: &'static [&'static str]) -> Case {
    Case { make, more, bad }
}

/// In their defaults first, then at their worst.
const CASES: [Case; 10] = [
    case(ResolverMake::Sidestep, "", &[]),
    case(ResolverMake::Unbound, "", &[]),
    case(ResolverMake::Bind, "", &[]),
    case(ResolverMake::PowerDns, "", &[]),
    // It keeps everything for 5 s at least.
    case(ResolverMake::Knot, "", &["ttl.minimum"]),
    case(ResolverMake::Unbound, " serve-expired: yes\n cache-min-ttl: 60", &["ttl.minimum"]),
    case(ResolverMake::Unbound, " serve-expired: yes", &["stale.reachable"]),
    case(
        ResolverMake::Bind,
        "stale-answer-enable yes; stale-cache-enable yes; stale-answer-client-timeout 0;",
        &["stale.reachable"],
    ),
    case(ResolverMake::PowerDns, "minimum-ttl-override=60\npacketcache-ttl=60", &["ttl.minimum"]),
    case(
        ResolverMake::Dnsmasq,
        "server=127.0.0.1#5301\nmin-cache-ttl=60\nuse-stale-cache=3600",
        &["ttl.minimum"],
    ),
];

#[test]
fn packaged_resolvers_are_found_to_do_what_they_are_configured_to() {
    if !require_root_and_xdp() {
        return;
    }
    let network = Network::start();
    let resolvers: Vec<_> =
        (0..).zip(&CASES).map(|(number, case)| network.resolver(number, case.make, case.more)).collect();
    // For `scripts/audit-picture.sh`.
    let page = std::env::var("SIDESTEP_AUDIT_HTML").map(|path| ["--html".to_owned(), path]);
    let more: Vec<&str> = page.iter().flatten().map(String::as_str).collect();
    let report = network.probe(&resolvers.iter().collect::<Vec<_>>(), &more, Duration::from_secs(200));
    let mut wrong = Vec::new();
    for (case, found) in CASES.iter().zip(&report.resolvers) {
        println!("{} {:?}\n{}", case.make.name(), case.more, show(found));
        let named = |check: &str| found.findings.iter().find(|finding| finding.check == check);
        let alike = named("identity.fingerprint").map_or("", |finding| finding.summary.as_str());
        // It names all servers with these traits, without the time to the second query, which a busy machine changes.
        if case.more.is_empty() && !alike.contains(case.make.name()) {
            wrong.push(format!("{} is taken for something else: {alike}", case.make.name()));
        }
        for check in WATCHED {
            let is_bad = named(check).is_some_and(|finding| finding.verdict == Verdict::Bad);
            // One that keeps everything for a minute keeps expired data, too.
            let is_of_time = check.starts_with("stale.") || check.starts_with("ttl.");
            let may_be = is_of_time && !case.bad.is_empty();
            let is_wrong = if case.bad.contains(&check) { !is_bad } else { is_bad && !may_be };
            if is_wrong {
                wrong.push(format!("{} {:?}: {check}: {:?}", case.make.name(), case.more, named(check)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(report.resolvers.len(), CASES.len());
}

fn show(report: &ResolverReport) -> String {
    let line = |finding: &dns_audit::checks::Finding| {
        format!("  {:<7} {:<24} {}\n", finding.verdict.word(), finding.check, finding.summary)
    };
    let last = report.findings.iter().filter(|finding| finding.check == "identity.fingerprint");
    let traits: Vec<String> = last.flat_map(|finding| finding.evidence.clone()).collect();
    format!(
        "{}\n{}  {}\n",
        report.score.words(),
        report.findings.iter().map(line).collect::<String>(),
        traits.join("")
    )
}
