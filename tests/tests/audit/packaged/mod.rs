//! The command against resolvers as Debian packages them, below a root of their own: in default configuration and in the worst one.

mod chains;
mod network;
mod table;

use std::time::Duration;

use dns_audit::report::ResolverReport;
use lab::{ResolverMake, require_root_and_xdp};

use network::Network;
use table::Table;

/// A column of the table, its make, and what is added to its configuration.
struct Case {
    name: &'static str,
    make: ResolverMake,
    more: &'static str,
}

const fn case(name: &'static str, make: ResolverMake, more: &'static str) -> Case {
    Case { name, make, more }
}

/// In their defaults first, then at their worst.
const CASES: [Case; 12] = [
    case("Sidestep", ResolverMake::Sidestep, ""),
    case("Unbound", ResolverMake::Unbound, ""),
    case("BIND", ResolverMake::Bind, ""),
    case("PowerDNS", ResolverMake::PowerDns, ""),
    case("Knot Resolver", ResolverMake::Knot, ""),
    case("dnsmasq", ResolverMake::Dnsmasq, "server=127.0.0.1#5312"),
    case("Unbound, minimum 60 s", ResolverMake::Unbound, " serve-expired: yes\n cache-min-ttl: 60"),
    case("Unbound, serve-expired", ResolverMake::Unbound, " serve-expired: yes"),
    case(
        "BIND, stale-answer",
        ResolverMake::Bind,
        "stale-answer-enable yes; stale-cache-enable yes; stale-answer-client-timeout 0;",
    ),
    case("PowerDNS, minimum 60 s", ResolverMake::PowerDns, "minimum-ttl-override=60\npacketcache-ttl=60"),
    // It keeps 150 names by default. All probes together ask for more within a TTL, so that old names are fetched anew for want of room.
    case(
        "dnsmasq, minimum 60 s",
        ResolverMake::Dnsmasq,
        "server=127.0.0.1#5313\nmin-cache-ttl=60\nuse-stale-cache=3600\ncache-size=1000",
    ),
    case(
        "Knot Resolver, minimum 60 s",
        ResolverMake::Knot,
        "modules.load('serve_stale < cache')\ncache.min_ttl(60)",
    ),
];

/// With SIDESTEP_AUDIT_TABLE set it adds what it sees to the table instead; with SIDESTEP_AUDIT_HTML it writes the report there.
#[test]
fn packaged_resolvers_are_found_to_do_what_the_table_says() {
    if !require_root_and_xdp() {
        return;
    }
    let network = Network::start();
    // One for each of dnsmasq's two, behind all others: a shared one would take the zone's servers for dead.
    let _behind_dnsmasq =
        [0, 1].map(|number| network.resolver(CASES.len() as u8 + number, ResolverMake::Unbound, ""));
    let resolvers: Vec<_> =
        (0..).zip(&CASES).map(|(number, case)| network.resolver(number, case.make, case.more)).collect();
    let page = std::env::var("SIDESTEP_AUDIT_HTML").map(|path| ["--html".to_owned(), path]);
    let more: Vec<&str> = page.iter().flatten().map(String::as_str).collect();
    let report = network.probe(&resolvers.iter().collect::<Vec<_>>(), &more, Duration::from_secs(200));
    let (mut table, mut wrong) = (Table::read(), Vec::new());
    for (case, found) in CASES.iter().zip(&report.resolvers) {
        println!("{}\n{}", case.name, show(found));
        let alike = found.findings.iter().find(|finding| finding.check == "identity.fingerprint");
        let alike = alike.map_or("", |finding| finding.summary.as_str());
        // It names all servers with these traits, without the time to the second query, which a busy machine changes.
        if case.more.is_empty() && !alike.contains(case.make.name()) {
            wrong.push(format!("{} is taken for something else: {alike}", case.name));
        }
        match std::env::var_os("SIDESTEP_AUDIT_TABLE") {
            Some(_) => table.add(case.name, found),
            None => wrong.extend(table.differences(case.name, &found.findings)),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(report.resolvers.len(), CASES.len());
    if std::env::var_os("SIDESTEP_AUDIT_TABLE").is_some() {
        table.write(&CASES.each_ref().map(|case| case.name));
    }
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
