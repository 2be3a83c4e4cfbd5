//! Whether a resolver serves this host at all. Of one that does not, nothing else can be said.

use dns_wire::header::flag;
use dns_wire::{Class, Rcode};

use super::identity::ODD_GROUPS;
use crate::checks::{Finding, INTEGRITY_OPEN};
use crate::transcript::{Exchange, Reply, Transcript};

/// Findings of a resolver that does not serve this host, with the reason in place of what they say.
pub(super) fn not_tested(findings: Vec<Finding>, transcript: &Transcript<'_>) -> Vec<Finding> {
    let Some(reason) = reason(transcript) else { return findings };
    let replace = |finding: Finding| match finding.check == INTEGRITY_OPEN.id {
        true => finding,
        false => finding.not_tested(&reason),
    };
    findings.into_iter().map(replace).collect()
}

/// Why the resolver cannot be judged; `None` if it resolved something.
fn reason(transcript: &Transcript<'_>) -> Option<String> {
    let asked = transcript.exchanges.iter().filter(|exchange| is_ordinary(exchange));
    let mut replies = asked.clone().filter_map(|exchange| exchange.reply()).peekable();
    asked.clone().next()?;
    if replies.peek().is_none() {
        return Some("it answers nothing".to_owned());
    }
    let mut refusals = 0;
    let mut last = String::new();
    for reply in replies {
        if is_refusal(&reply) {
            refusals += 1;
        } else if has_resolved(&reply) {
            return None;
        } else {
            last = reply.rcode_name();
        }
    }
    Some(match last.is_empty() {
        true => format!("it refuses this host, with all of its {refusals} answers"),
        false => format!("it resolves no name of the audit zone: {last}"),
    })
}

/// What servers make of odd questions says nothing of others.
fn is_ordinary(exchange: &Exchange) -> bool {
    exchange.step.question.class == Class::IN && !exchange.step.group.starts_with(ODD_GROUPS)
}

fn is_refusal(reply: &Reply) -> bool {
    // A server that offers no recursion may also send its client elsewhere (RFC 1034, 4.3.1).
    let is_referral = reply.flags & RA == 0 && reply.is(Rcode::NoError) && reply.answers.is_empty();
    reply.is(Rcode::Refused) || is_referral && reply.flags & flag::AA == 0 && !reply.is_truncated()
}

fn has_resolved(reply: &Reply) -> bool {
    reply.is(Rcode::NoError) || reply.is(Rcode::NxDomain)
}

/// RA: recursion is available (RFC 1035, 4.1.1).
const RA: u16 = 0x0080;
