//! Forwarders in front of resolvers, and resolvers by themselves: `identity.chain` tells them apart.

use std::time::Duration;

use dns_audit::checks::Verdict;
use lab::{ResolverMake, RunningResolver, require_root_and_xdp};

use super::network::Network;

/// To a resolver at a port, from Unbound: the end of the clause `server:`, and a clause of its own.
fn unbound_to(port: u16) -> String {
    format!(" do-not-query-localhost: no\nforward-zone:\n name: \".\"\n forward-addr: 127.0.0.1@{port}")
}

#[test]
fn forwarders_are_told_from_resolvers_and_by_what_stands_behind_them() {
    if !require_root_and_xdp() {
        return;
    }
    let network = Network::start();
    let mut all: Vec<RunningResolver> = Vec::new();
    let mut start = |make: ResolverMake, more: &dyn Fn(u16) -> String| {
        let last = all.last().map_or(0, |resolver| resolver.address.port());
        all.push(network.resolver(all.len() as u8, make, &more(last)));
        all.len() - 1
    };
    let plain = |_| String::new();
    let dnsmasq_to = |port| format!("server=127.0.0.1#{port}");
    // Each chain has servers of its own: a shared one would take the zone's servers for dead.
    let mut cases = Vec::new();
    for make in [
        ResolverMake::Sidestep,
        ResolverMake::Unbound,
        ResolverMake::Bind,
        ResolverMake::PowerDns,
        ResolverMake::Knot,
    ] {
        cases.push((start(make, &plain), vec!["one server as far as can be seen", make.name()]));
    }
    start(ResolverMake::Unbound, &plain);
    cases.push((
        start(ResolverMake::Dnsmasq, &dnsmasq_to),
        vec!["a forwarder of dnsmasq 2.90 in front of Unbound", "this text was kept"],
    ));
    start(ResolverMake::Bind, &plain);
    cases.push((
        start(ResolverMake::Unbound, &unbound_to),
        vec!["a forwarder of Unbound 1.17 in front of", "BIND", "2 caches"],
    ));
    start(ResolverMake::Bind, &plain);
    start(ResolverMake::Unbound, &unbound_to);
    cases.push((
        start(ResolverMake::Dnsmasq, &dnsmasq_to),
        vec!["a forwarder of dnsmasq 2.90 in front of Unbound 1.17, in front of", "BIND"],
    ));
    let fronts: Vec<&RunningResolver> = cases.iter().map(|(front, _)| &all[*front]).collect();
    let report = network.probe(&fronts, &["--only", "identity"], Duration::from_secs(100));
    let mut wrong = Vec::new();
    for ((_, wanted), found) in cases.iter().zip(&report.resolvers) {
        let finding = found.findings.iter().find(|finding| finding.check == "identity.chain").unwrap();
        println!(
            "{}: {:?} {}\n  {}",
            found.resolver,
            finding.verdict,
            finding.summary,
            finding.evidence.join("\n  ")
        );
        let is_chain = wanted[0].starts_with("a forwarder");
        let said = format!("{}\n{}", finding.summary, finding.evidence.join("\n"));
        let is_right = wanted.iter().all(|words| said.contains(words));
        if !is_right || is_chain != (finding.verdict == Verdict::Notice) {
            wrong.push(format!("{wanted:?}: {}", finding.summary));
        }
    }
    assert!(wrong.is_empty() && report.resolvers.len() == cases.len(), "{wrong:#?}");
}
