//! Who asks the authority: addresses, networks, forwarders, and client subnets (RFC 7871).

mod subnet;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use dns_wire::Rtype;

use crate::authority::Entry;
use crate::checks::{
    Finding, Verdict, WHO_EGRESS, WHO_LINES, WHO_OPT_OUT, WHO_PASSED, WHO_REUSE, WHO_SCOPE, WHO_SUBNET,
};
use crate::plan::Planner;
use crate::transcript::Transcript;

/// Between two questions.
const PACE_MS: u64 = 100;

pub(super) fn plan(planner: &mut Planner<'_>) {
    let samples = u64::from(planner.options.samples);
    for number in 0..samples {
        let spec = planner.spec(60);
        let name = planner.name(&spec);
        planner.ask("plain", number * PACE_MS, &name, Rtype::A);
    }
    subnet::plan(planner, samples * PACE_MS);
}

pub(super) fn judge(transcript: &Transcript<'_>) -> Vec<Finding> {
    let plain = transcript.logged_for("plain");
    let untested = match &transcript.log {
        Err(reason) => Some(format!("the authority's log was not read: {reason}")),
        Ok(_) => plain.is_empty().then(|| "no question reached the authority".to_owned()),
    };
    if let Some(reason) = untested {
        let checks =
            [&WHO_EGRESS, &WHO_SUBNET, &WHO_PASSED, &WHO_SCOPE, &WHO_REUSE, &WHO_OPT_OUT, &WHO_LINES];
        return checks.map(|check| check.unknown(reason.clone())).into();
    }
    let mut findings = vec![egress(transcript, &plain)];
    findings.extend(subnet::judge(transcript, &plain));
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
        "addresses that ask the authority: {}, of IPv6 {v6}; their known networks: {}; {who}",
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
