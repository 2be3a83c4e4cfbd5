//! Answers that are changed on the way: names that do not exist, addresses, names that the user gave, private addresses, case.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use dns_wire::{NameBuf, Rcode, Rtype};

use super::super::presence::needed;
use crate::authority::{Behaviour, Phase};
use crate::checks::{
    Finding, INTEGRITY_ADDRESS, INTEGRITY_CASE, INTEGRITY_MISSING, INTEGRITY_NAMES, INTEGRITY_REBINDING,
    Verdict,
};
use crate::networks::is_private;
use crate::plan::Planner;
use crate::transcript::{Exchange, Reply, Transcript};

/// Names that never existed.
const MISSING: u32 = 3;
/// Which of them begins with www.
const WWW: u32 = 2;
/// Types of the addresses that are asked for, each of another name: one fixed address has the check digits of all of them by chance only.
const ADDRESSES: [Rtype; 5] = [Rtype::A, Rtype::AAAA, Rtype::A, Rtype::A, Rtype::A];

/// Addresses that a finding names.
const LIST_MAX: usize = 20;

pub(super) fn plan(planner: &mut Planner<'_>) {
    for number in 0..MISSING {
        let mut spec = planner.spec(60);
        spec.phases.push(Phase::always(Behaviour::NxDomain));
        let label = spec.to_string();
        // Some rewrite the names alone that people mistype.
        let name = match number {
            WWW => planner.name_below(&[b"www", label.as_bytes()]),
            _ => planner.name(&spec),
        };
        planner.ask("missing", u64::from(number) * 100, &name, Rtype::A);
    }
    for (number, qtype) in ADDRESSES.into_iter().enumerate() {
        let spec = planner.spec(60);
        let name = planner.name(&spec);
        planner.ask("address", 300 + 40 * number as u64, &name, qtype);
    }
    let mut spec = planner.spec(60);
    spec.is_private = true;
    let name = planner.name(&spec);
    planner.ask("private", 500, &name, Rtype::A);
    let name = mixed(planner);
    planner.ask("case", 600, &name, Rtype::A);
    for (number, given) in planner.options.names.iter().enumerate() {
        let at_ms = 700 + 100 * number as u64;
        planner.ask("names", at_ms, &given.name, Rtype::A);
        if given.expected.is_some() {
            planner.ask("names", at_ms + 50, &given.name, Rtype::AAAA);
        }
    }
}

/// A name with its letters in turn upper and lower case.
fn mixed(planner: &mut Planner<'_>) -> NameBuf {
    let spec = planner.spec(60).to_string();
    let turn =
        |(number, letter): (usize, char)| if number % 2 == 0 { letter.to_ascii_uppercase() } else { letter };
    let label: String = spec.chars().enumerate().map(turn).collect();
    planner.name_below(&[label.as_bytes()])
}

pub(super) fn judge(transcript: &Transcript<'_>) -> Vec<Finding> {
    let mut findings = vec![missing(transcript), address(transcript)];
    findings.extend(names(transcript));
    findings.push(rebinding(transcript));
    findings.push(case(transcript));
    findings
}

/// The addresses of an answer.
fn addresses(reply: &Reply) -> Vec<IpAddr> {
    reply.addresses().filter_map(|record| read(&record.rdata)).collect()
}

fn read(rdata: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(rdata).map(|octets| Ipv4Addr::from(octets).into());
    v4.ok().or_else(|| <[u8; 16]>::try_from(rdata).ok().map(|octets| Ipv6Addr::from(octets).into()))
}

/// The first ones, and how many there are besides: an answer has room for thousands.
fn list(addresses: &[IpAddr]) -> String {
    let shown: Vec<String> = addresses.iter().take(LIST_MAX).map(IpAddr::to_string).collect();
    match addresses.len() - shown.len() {
        0 => shown.join(" "),
        left => format!("{} and {left} more", shown.join(" ")),
    }
}

fn missing(transcript: &Transcript<'_>) -> Finding {
    let replies: Vec<Reply> = transcript.group("missing").filter_map(Exchange::reply).collect();
    if replies.is_empty() {
        return INTEGRITY_MISSING.unknown("no answer came");
    }
    let lies: Vec<IpAddr> = replies.iter().flat_map(addresses).collect();
    if !lies.is_empty() {
        let summary = format!("names that do not exist have addresses: {}", list(&lies));
        return INTEGRITY_MISSING.finding(Verdict::Bad, summary);
    }
    match replies.iter().find(|reply| !reply.is(Rcode::NxDomain)) {
        None => INTEGRITY_MISSING.finding(Verdict::Good, "names that do not exist are NXDOMAIN"),
        Some(reply) => {
            let summary = format!("a name that does not exist is {}", reply.rcode_name());
            needed(INTEGRITY_MISSING.finding(Verdict::Notice, summary), transcript, &["missing"])
        }
    }
}

fn address(transcript: &Transcript<'_>) -> Finding {
    let exchanges: Vec<&Exchange> = transcript.group("address").collect();
    let forged = exchanges.iter().flat_map(|exchange| exchange.forged());
    let lies: BTreeSet<IpAddr> = forged.filter_map(|record| read(&record.rdata)).collect();
    let lies: Vec<IpAddr> = lies.into_iter().collect();
    let lines = exchanges.iter().map(|exchange| transcript.line(exchange));
    let arrived = exchanges.iter().filter(|exchange| exchange.dated().is_some()).count();
    let denied = exchanges.iter().filter(|exchange| is_denied(exchange)).count();
    let finding = match (lies.is_empty(), arrived) {
        (false, _) => {
            INTEGRITY_ADDRESS.finding(Verdict::Bad, format!("the authority never sent {}", list(&lies)))
        }
        (true, 0) => INTEGRITY_ADDRESS.unknown("no address came"),
        (true, _) if denied > 0 => {
            let summary = format!("{denied} of {} names that exist are denied", exchanges.len());
            needed(INTEGRITY_ADDRESS.finding(Verdict::Bad, summary), transcript, &["address"])
        }
        (true, count) if count < exchanges.len() => {
            let summary = format!("{count} of {} addresses came; none was changed", exchanges.len());
            needed(INTEGRITY_ADDRESS.finding(Verdict::Notice, summary), transcript, &["address"])
        }
        _ => INTEGRITY_ADDRESS.finding(Verdict::Good, "addresses of both families arrive as they were sent"),
    };
    finding.because(lines)
}

/// Whether the answer says that the name does not exist, or has no address of type A.
fn is_denied(exchange: &Exchange) -> bool {
    exchange.reply().is_some_and(|reply| {
        // Some filter type AAAA where IPv6 does not work, and say no more of the name.
        let is_empty = reply.is(Rcode::NoError) && reply.answers.is_empty() && !reply.is_truncated();
        reply.is(Rcode::NxDomain) || is_empty && exchange.step.question.qtype == Rtype::A
    })
}

/// What the given names have: for the reader to compare, or against what the user expects.
fn names(transcript: &Transcript<'_>) -> Option<Finding> {
    let exchanges: Vec<&Exchange> = transcript.group("names").collect();
    let has_said = |reply: &Reply| reply.is(Rcode::NoError) || reply.is(Rcode::NxDomain);
    let answered = exchanges.iter().filter_map(|exchange| Some((*exchange, exchange.reply()?)));
    let answered: Vec<(&Exchange, Reply)> = answered.filter(|(_, reply)| has_said(reply)).collect();
    let lines = exchanges.iter().map(|exchange| {
        let question = &exchange.step.question;
        let said = exchange.reply().map_or_else(
            || "no answer".to_owned(),
            |reply| format!("{} {}", reply.rcode_name(), list(&addresses(&reply))),
        );
        format!("{} {}: {said}", question.name, question.qtype).trim_end().to_owned()
    });
    let elsewhere = |(exchange, reply): &(&Exchange, Reply)| {
        is_elsewhere(transcript, &exchange.step.question.name, reply)
    };
    let outside = answered.iter().filter(|answer| elsewhere(answer)).count();
    let denied: BTreeSet<String> = denied_names(transcript, &answered).map(|name| name.to_string()).collect();
    let is_odd = |reply: &Reply| {
        reply.is(Rcode::NxDomain) || addresses(reply).iter().any(|address| is_private(*address))
    };
    let odd = answered.iter().filter(|(_, reply)| is_odd(reply)).count();
    let count = answered.len();
    let finding = match (outside, odd) {
        _ if exchanges.is_empty() => return None,
        (0, _) if !denied.is_empty() => {
            let which: Vec<&str> = denied.iter().take(LIST_MAX).map(String::as_str).collect();
            let summary = format!(
                "{} given names have no address here, although addresses are expected: {}",
                denied.len(),
                which.join(" ")
            );
            INTEGRITY_NAMES.finding(Verdict::Bad, summary)
        }
        _ if count == 0 => INTEGRITY_NAMES.unknown("not tested: none of the names given had an answer"),
        (1.., _) => {
            let summary =
                format!("{outside} of {count} answers for given names have addresses that are not expected");
            INTEGRITY_NAMES.finding(Verdict::Bad, summary)
        }
        (0, 1..) => {
            let summary = format!(
                "{odd} of {count} answers say that the name does not exist, or have private addresses"
            );
            INTEGRITY_NAMES.finding(Verdict::Notice, summary)
        }
        (0, 0) => {
            let summary = format!("none of {count} answers is private, missing or elsewhere than expected");
            INTEGRITY_NAMES.finding(Verdict::Good, summary)
        }
    };
    Some(finding.because(lines))
}

/// Names whose addresses are known, and that have none here: all their questions were answered, and no answer has an address.
fn denied_names<'a>(
    transcript: &'a Transcript<'_>,
    answered: &'a [(&Exchange, Reply)],
) -> impl Iterator<Item = &'a NameBuf> {
    let expected =
        transcript.options.names.iter().filter(|given| given.expected.is_some()).map(|given| &given.name);
    expected.filter(|name| {
        let asked =
            transcript.group("names").filter(|exchange| exchange.step.question.name == **name).count();
        let own = || answered.iter().filter(|(exchange, _)| exchange.step.question.name == **name);
        asked > 0 && own().count() == asked && own().all(|(_, reply)| addresses(reply).is_empty())
    })
}

/// Whether an answer has an address outside of what the user expects of its name.
fn is_elsewhere(transcript: &Transcript<'_>, name: &NameBuf, reply: &Reply) -> bool {
    let given = transcript.options.names.iter().filter(|given| given.name == *name);
    let mut expected = given.filter_map(|given| given.expected.as_ref()).peekable();
    expected.peek().is_some()
        && addresses(reply).iter().any(|address| !expected.clone().any(|networks| networks.contain(*address)))
}

fn rebinding(transcript: &Transcript<'_>) -> Finding {
    let Some(reply) = transcript.one("private").and_then(Exchange::reply) else {
        return INTEGRITY_REBINDING.unknown("no answer came");
    };
    match addresses(&reply).iter().any(|address| is_private(*address)) {
        true => INTEGRITY_REBINDING.finding(Verdict::Good, "private addresses pass: nothing is filtered"),
        false => {
            let summary = format!("private addresses are filtered: {}", reply.rcode_name());
            needed(INTEGRITY_REBINDING.finding(Verdict::Notice, summary), transcript, &["private"])
        }
    }
}

fn case(transcript: &Transcript<'_>) -> Finding {
    let Some(exchange) = transcript.one("case") else { return INTEGRITY_CASE.unknown("not asked") };
    let Some(question) = exchange.reply().and_then(|reply| reply.question) else {
        return INTEGRITY_CASE.unknown("no answer with a question came");
    };
    let (asked, came) =
        (exchange.step.question.name.as_name().as_bytes(), question.name.as_name().as_bytes());
    if asked == came {
        INTEGRITY_CASE.finding(Verdict::Good, "the question comes back letter by letter")
    } else {
        INTEGRITY_CASE.finding(Verdict::Bad, format!("the question came back as {}", question.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_thousands_is_cut() {
        let addresses = vec![IpAddr::V4(Ipv4Addr::LOCALHOST); 4000];
        assert!(list(&addresses).ends_with(" 127.0.0.1 and 3980 more"));
        assert_eq!(list(&addresses[..2]), "127.0.0.1 127.0.0.1");
    }
}
