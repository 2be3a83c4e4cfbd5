//! Who asks the authority: addresses, networks, forwarders, and client subnets (RFC 7871).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use dns_wire::Rtype;

use crate::authority::{Entry, Subnet};
use crate::checks::{Finding, Verdict, WHO_EGRESS, WHO_LINES, WHO_PASSED, WHO_SCOPE, WHO_SUBNET};
use crate::edns;
use crate::networks::is_private;
use crate::plan::{Planner, Question};
use crate::transcript::{Exchange, Transcript};

/// Networks for documentation (RFC 5737), as clients in other places would have them.
const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 0));
const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 0));
/// Bits of their addresses that are told, and that answers are good for.
const BITS: u8 = 24;
/// Between two questions.
const PACE_MS: u64 = 100;

pub(super) fn plan(planner: &mut Planner<'_>) {
    let samples = u64::from(planner.options.samples);
    for number in 0..samples {
        let spec = planner.spec(60);
        let name = planner.name(&spec);
        planner.ask("plain", number * PACE_MS, &name, Rtype::A);
    }
    let mut spec = planner.spec(60);
    spec.scope = Some(BITS);
    let name = planner.name(&spec);
    for (group, network, after) in [("one", ONE, 0), ("other", OTHER, 1000), ("same", ONE, 2000)] {
        let subnet = Subnet { address: network, source: BITS, scope: 0 };
        let question =
            Question::new(name.clone(), Rtype::A).with_option(edns::CLIENT_SUBNET, subnet.to_data());
        planner.ask_question(group, samples * PACE_MS + after, question);
    }
}

pub(super) fn judge(transcript: &Transcript<'_>) -> Vec<Finding> {
    if let Err(reason) = &transcript.log {
        let reason = format!("the authority's log was not read: {reason}");
        let checks = [&WHO_EGRESS, &WHO_SUBNET, &WHO_PASSED, &WHO_LINES];
        return checks.map(|check| check.unknown(reason.clone())).into();
    }
    let plain = transcript.logged_for("plain");
    if plain.is_empty() {
        return vec![WHO_EGRESS.unknown("no question reached the authority")];
    }
    let mut findings = vec![egress(transcript, &plain), own_subnet(&plain), passed(transcript)];
    findings.push(scope(transcript));
    findings.push(lines_of_country(transcript, &plain));
    findings
}

/// How many questions came from each address.
fn by_address(entries: &[&Entry]) -> BTreeMap<IpAddr, usize> {
    let mut counts = BTreeMap::new();
    entries.iter().for_each(|entry| *counts.entry(entry.source.ip()).or_default() += 1);
    counts
}

fn egress(transcript: &Transcript<'_>, plain: &[&Entry]) -> Finding {
    let counts = by_address(plain);
    let is_own = counts.keys().all(|address| *address == transcript.target.ip());
    let networks: BTreeSet<String> = counts
        .keys()
        .map(|address| transcript.networks.look_up(*address).to_string())
        .filter(|text| !text.is_empty())
        .collect();
    let v6 = counts.keys().filter(|address| address.is_ipv6()).count();
    let who = if is_own {
        "itself"
    } else {
        "other addresses than the one that was asked: it forwards, or has more addresses"
    };
    let summary = format!(
        "{} addresses ask the authority, {v6} of them IPv6, in {} known networks; {who}",
        counts.len(),
        networks.len()
    );
    // Several networks: users of one resolver look to authorities as if they were in different places.
    let verdict = if networks.len() > 1 { Verdict::Notice } else { Verdict::Good };
    let lines = counts.iter().map(|(address, count)| {
        let network = transcript.networks.look_up(*address).to_string();
        format!("{address} {network}: {count} questions").replace(" :", ":")
    });
    WHO_EGRESS.finding(verdict, summary).because(lines)
}

/// A client subnet in questions of clients that sent none.
fn own_subnet(plain: &[&Entry]) -> Finding {
    let subnets: BTreeSet<&Subnet> = plain.iter().filter_map(|entry| entry.subnet.as_ref()).collect();
    let told: Vec<&&Subnet> = subnets.iter().filter(|subnet| subnet.source > 0).collect();
    let list =
        |subnets: &[&&Subnet]| subnets.iter().map(|subnet| subnet.to_string()).collect::<Vec<_>>().join(" ");
    match told.iter().find(|subnet| is_private(subnet.address)) {
        Some(subnet) => WHO_SUBNET
            .finding(Verdict::Bad, format!("it tells {subnet}, which is nobody's network, as its client's")),
        None if !told.is_empty() => WHO_SUBNET
            .finding(Verdict::Notice, format!("it tells authorities its clients' networks: {}", list(&told))),
        None => WHO_SUBNET.finding(Verdict::Good, "it tells no network of its clients"),
    }
}

fn passed(transcript: &Transcript<'_>) -> Finding {
    let entries = transcript.logged_for("one");
    let Some(first) = entries.first() else {
        return WHO_PASSED.unknown("no question with a client subnet reached the authority");
    };
    match &first.subnet {
        None => WHO_PASSED.finding(Verdict::Good, "a client's own client subnet is dropped"),
        Some(subnet) if subnet.address == ONE => WHO_PASSED
            .finding(Verdict::Notice, format!("a client's own client subnet is passed on: {subnet}")),
        Some(subnet) => {
            WHO_PASSED.finding(Verdict::Good, format!("a client's own client subnet becomes {subnet}"))
        }
    }
}

/// Two networks ask for one name, whose answers are good for one network each.
fn scope(transcript: &Transcript<'_>) -> Finding {
    let dated = |group| transcript.one(group).and_then(Exchange::dated);
    let (Some(one), Some(other)) = (dated("one"), dated("other")) else {
        return WHO_SCOPE.unknown("no two answers came");
    };
    let is_ours = |subnet: &Subnet| subnet.address == ONE && subnet.source > 0;
    let has_passed =
        transcript.logged_for("one").iter().any(|entry| entry.subnet.as_ref().is_some_and(is_ours));
    let lines = ["one", "other", "same"]
        .iter()
        .filter_map(|group| transcript.one(group))
        .map(|exchange| transcript.line(exchange));
    let finding = if !has_passed {
        WHO_SCOPE.finding(
            Verdict::Good,
            "it passes no client's network on, so it gets no answers for one network only",
        )
    } else if one.made_ms == other.made_ms {
        WHO_SCOPE.finding(
            Verdict::Bad,
            format!("an answer that was good for {ONE}/{BITS} was given to {OTHER}/{BITS}"),
        )
    } else {
        WHO_SCOPE.finding(Verdict::Good, "each network got an answer of its own")
    };
    finding.because(lines)
}

/// The country by which an authority would choose, and that of the users.
fn lines_of_country(transcript: &Transcript<'_>, plain: &[&Entry]) -> Finding {
    let Some(own) = &transcript.options.country else {
        return WHO_LINES.unknown("the users' country is not given (--country)");
    };
    let seen = plain.iter().map(|entry| {
        let subnet = entry.subnet.as_ref().filter(|subnet| subnet.source > 0).map(|subnet| subnet.address);
        subnet.unwrap_or_else(|| entry.source.ip())
    });
    let mut by_country: BTreeMap<String, usize> = BTreeMap::new();
    for country in seen.filter_map(|address| transcript.networks.look_up(address).country) {
        *by_country.entry(country).or_default() += 1;
    }
    let known: usize = by_country.values().sum();
    if known == 0 {
        return WHO_LINES.unknown("no country is known of the addresses that ask (--mmdb)");
    }
    let wrong = known - by_country.get(own).copied().unwrap_or(0);
    let verdict = if wrong > 0 { Verdict::Bad } else { Verdict::Good };
    let lines = by_country.iter().map(|(country, count)| format!("{country}: {count} questions"));
    WHO_LINES
        .finding(
            verdict,
            format!("{wrong} of {known} answers would be chosen for another country than {own}"),
        )
        .because(lines)
}
