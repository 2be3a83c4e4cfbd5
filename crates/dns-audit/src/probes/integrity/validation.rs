//! Validation: good, bogus and expired signatures, and zones of algorithms that are not supported. The audit zone has to be signed, and its parent to say so.

use dns_wire::{Rcode, Rtype};

use super::super::presence::{needed, needed_always};
use crate::authority::{Signature, UNKNOWN};
use crate::checks::{
    Check, Finding, INTEGRITY_BOGUS, INTEGRITY_EXPIRED, INTEGRITY_UNKNOWN, INTEGRITY_VALID, Verdict,
};
use crate::plan::{Planner, Question};
use crate::transcript::{Reply, Transcript};

pub(super) fn plan(planner: &mut Planner<'_>) {
    if !planner.options.is_signed {
        return;
    }
    let signatures =
        [("good", Signature::Good), ("bogus", Signature::Bogus), ("expired", Signature::Expired)];
    for (at, (group, signature)) in signatures.into_iter().enumerate() {
        let mut spec = planner.spec(60);
        spec.signature = signature;
        let question = Question::new(planner.name(&spec), Rtype::A).with_dnssec();
        planner.ask_question(group, 1200 + 100 * at as u64, question);
    }
    for (at, (zone, _)) in UNKNOWN.into_iter().enumerate() {
        let label = planner.spec(60).to_string();
        let name = planner.name_below(&[label.as_bytes(), zone.as_bytes()]);
        planner.ask_question(
            &group(zone),
            1600 + 25 * at as u64,
            Question::new(name, Rtype::A).with_dnssec(),
        );
    }
}

/// Of the question in a zone of unknown algorithm.
fn group(zone: &str) -> String {
    format!("unknown.{zone}")
}

pub(super) fn judge(transcript: &Transcript<'_>) -> Vec<Finding> {
    let all = [&INTEGRITY_VALID, &INTEGRITY_BOGUS, &INTEGRITY_EXPIRED, &INTEGRITY_UNKNOWN];
    if !transcript.options.is_signed {
        return all.map(|check| check.unknown("the audit zone is not signed (--signed)")).into();
    }
    // Without an authority all names fail, as those do that have to.
    let refused = |group, check| needed_always(refused(transcript, group, check), transcript, &[group]);
    vec![
        needed(valid(transcript), transcript, &["good"]),
        refused("bogus", &INTEGRITY_BOGUS),
        refused("expired", &INTEGRITY_EXPIRED),
        needed(unknown(transcript), transcript, &["unknown"]),
    ]
}

fn reply(transcript: &Transcript<'_>, group: &str) -> Option<Reply> {
    transcript.one(group)?.reply()
}

fn valid(transcript: &Transcript<'_>) -> Finding {
    match reply(transcript, "good") {
        None => INTEGRITY_VALID.unknown("no answer came"),
        Some(reply) if !reply.is(Rcode::NoError) => {
            INTEGRITY_VALID.finding(Verdict::Bad, format!("good signatures bring {}", reply.rcode_name()))
        }
        Some(reply) if reply.is_authentic() => {
            INTEGRITY_VALID.finding(Verdict::Good, "good signatures are validated: AD is set")
        }
        Some(reply) if reply.record(Rtype::RRSIG).is_some() => {
            INTEGRITY_VALID.finding(Verdict::Notice, "it does not validate; signatures are passed on")
        }
        Some(_) => {
            INTEGRITY_VALID.finding(Verdict::Notice, "it does not validate, and passes no signatures on")
        }
    }
}

fn refused(transcript: &Transcript<'_>, group: &str, check: &'static Check) -> Finding {
    let exchange = transcript.one(group);
    let line = exchange.map(|exchange| transcript.line(exchange));
    let finding = match reply(transcript, group) {
        None => check.unknown("no answer came"),
        Some(reply) if reply.is(Rcode::ServFail) => check.finding(Verdict::Good, "SERVFAIL"),
        Some(reply) if reply.answers.is_empty() => check.finding(Verdict::Notice, reply.rcode_name()),
        Some(_) => check.finding(Verdict::Bad, "the data was given to the client"),
    };
    finding.because(line)
}

/// Zones of algorithms that a validator does not support are as good as not signed (RFC 4035, 5.2).
fn unknown(transcript: &Transcript<'_>) -> Finding {
    let seen = UNKNOWN
        .into_iter()
        .filter_map(|(zone, algorithm)| Some((algorithm, reply(transcript, &group(zone))?)));
    let seen: Vec<(u8, Reply)> = seen.collect();
    let is_fine = |reply: &Reply| reply.is(Rcode::NoError) && !reply.answers.is_empty();
    let failing: Vec<&(u8, Reply)> = seen.iter().filter(|(_, reply)| !is_fine(reply)).collect();
    let numbers =
        |own: &mut dyn Iterator<Item = u8>| own.map(|own| own.to_string()).collect::<Vec<_>>().join(", ");
    let all = numbers(&mut seen.iter().map(|(algorithm, _)| *algorithm));
    let finding = match failing.first() {
        _ if seen.is_empty() => INTEGRITY_UNKNOWN.unknown("no answer came"),
        None => INTEGRITY_UNKNOWN
            .finding(Verdict::Good, format!("zones of algorithms {all} are treated as not signed")),
        Some((_, reply)) => {
            let which = numbers(&mut failing.iter().map(|(algorithm, _)| *algorithm));
            INTEGRITY_UNKNOWN.finding(
                Verdict::Bad,
                format!("of zones of algorithms {all} those of {which} fail: {}", reply.rcode_name()),
            )
        }
    };
    finding.because(
        seen.iter().map(|(algorithm, reply)| format!("algorithm {algorithm}: {}", reply.rcode_name())),
    )
}
