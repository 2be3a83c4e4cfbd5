//! What makes a resolver that serves expired data look again. Each way has a name of its own, which is cached and expires; then it is asked for
//! once, the way is tried, and it is asked for again.

use dns_wire::header::flag;
use dns_wire::{NameBuf, Rtype};

use super::presence::needed;
use super::stale::{LATER_MS, expired_in, is_expired};
use crate::authority::{Subnet, Via};
use crate::checks::{FLUSH_WAY, Finding, Verdict};
use crate::edns;
use crate::plan::{Planner, Question};
use crate::transcript::{Exchange, Transcript};

/// After the first expired answer: when the way is tried, and when its effect is looked at.
const TRIED_MS: u64 = 500;
const LOOKED_MS: [u64; 2] = [1000, 1600];

/// A way: its group, and what people call it.
const WAYS: [(&str, &str); 9] = [
    ("nothing", "asking once"),
    ("again", "asking four times more"),
    ("type", "asking for another type (TXT)"),
    ("cd", "asking with CD"),
    ("do", "asking with DO"),
    ("ecs", "asking with a client subnet"),
    ("tcp", "asking over TCP"),
    ("below", "asking for a name below"),
    ("sources", "asking from another address"),
];

pub(super) fn plan(planner: &mut Planner<'_>) {
    for (way, _) in WAYS {
        if way == "sources" && planner.options.sources < 2 {
            continue;
        }
        let spec = planner.spec(planner.options.ttl_s);
        let (name, label) = (planner.name(&spec), spec.to_string());
        let expired = planner.ttl_ms() + LATER_MS;
        planner.ask(&format!("{way}.first"), 0, &name, Rtype::A);
        planner.ask(&format!("{way}.expired"), expired, &name, Rtype::A);
        try_way(planner, way, expired + TRIED_MS, &name, &label);
        for after in LOOKED_MS {
            planner.ask(&format!("{way}.look"), expired + after, &name, Rtype::A);
        }
    }
}

fn try_way(planner: &mut Planner<'_>, way: &str, at_ms: u64, name: &NameBuf, label: &str) {
    let group = format!("{way}.try");
    let mut question = Question::new(name.clone(), Rtype::A);
    match way {
        "again" => {
            for time in 0..4 {
                planner.ask(&group, at_ms + 80 * time, name, Rtype::A);
            }
            return;
        }
        "type" => question.qtype = Rtype::TXT,
        "cd" => question.flags |= flag::CD,
        "do" => question = question.with_dnssec(),
        "ecs" => question = question.with_option(edns::CLIENT_SUBNET, other_network().to_data()),
        "below" => question.name = planner.name_below(&[b"below", label.as_bytes()]),
        "sources" => question.source = 1,
        "tcp" => {}
        _ => return,
    }
    let step = planner.ask_question(&group, at_ms, question);
    if way == "tcp" {
        step.via = Via::Tcp;
    }
}

/// A network for documentation (RFC 5737).
fn other_network() -> Subnet {
    Subnet { address: [198, 51, 100, 0].into(), source: 24, scope: 0 }
}

pub(super) fn judge(transcript: &Transcript<'_>) -> Vec<Finding> {
    let after_expiry = |way: &str| expired_in(transcript, &format!("{way}.first"), &format!("{way}.expired"));
    let is_expired = |(way, _): &(&str, &str)| after_expiry(way).into_iter().any(is_expired);
    let seen: Vec<(&str, &str)> = WAYS.into_iter().filter(is_expired).collect();
    if seen.is_empty() {
        let asked: Vec<&Exchange> = WAYS.iter().flat_map(|(way, _)| after_expiry(way)).collect();
        let lines = asked.iter().map(|exchange| transcript.line(exchange));
        let finding = match asked.iter().any(|exchange| exchange.dated().is_some()) {
            true => FLUSH_WAY.finding(Verdict::Good, "there is nothing to flush: no expired data was served"),
            false => FLUSH_WAY.unknown("no address of the audit zone came after the TTL"),
        };
        return vec![finding.because(lines)];
    }
    let lines = seen.iter().map(|(way, words)| effect(transcript, way, words));
    let lines: Vec<(bool, String)> = lines.collect();
    let working = lines.iter().filter(|(works, _)| *works).count();
    let finding = match (lines.first(), working) {
        (Some((true, _)), _) if seen[0].0 == "nothing" => FLUSH_WAY
            .finding(Verdict::Notice, "asking once is enough: the answer after the expired one is fresh"),
        (_, 0) => FLUSH_WAY.finding(Verdict::Bad, format!("none of {} ways brought fresh data", lines.len())),
        _ => FLUSH_WAY
            .finding(Verdict::Notice, format!("{working} of {} ways brought fresh data", lines.len())),
    };
    vec![needed(finding.because(lines.into_iter().map(|(_, line)| line)), transcript, &[])]
}

/// Whether a way worked, and a line that says after how many questions, and how long.
fn effect(transcript: &Transcript<'_>, way: &str, words: &str) -> (bool, String) {
    let first = transcript.one(&format!("{way}.expired")).map_or(0, |exchange| exchange.sent_ms);
    let groups = [format!("{way}.try"), format!("{way}.look")];
    let mine = transcript.exchanges.iter().filter(|exchange| groups.contains(&exchange.step.group));
    let is_same = |exchange: &&Exchange| {
        exchange.step.question.qtype == Rtype::A && way != "below" || exchange.step.group == groups[1]
    };
    let is_fresh = |exchange: &Exchange| exchange.dated().is_some() && !is_expired(exchange);
    let mut count = 0;
    for exchange in mine {
        count += 1;
        if is_same(&exchange) && is_fresh(exchange) {
            let after = exchange.sent_ms.saturating_sub(first);
            return (
                true,
                format!("{words}: fresh with question {count} after the expired one, {after} ms later"),
            );
        }
    }
    (false, format!("{words}: still expired after {count} questions"))
}
