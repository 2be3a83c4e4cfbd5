//! Whether a resolver serves this host at all, and resolves names of the audit zone. Of one that does not, nothing else can be said.

use dns_wire::header::flag;
use dns_wire::{Class, Rcode};

use super::identity::ODD_GROUPS;
use super::presence;
use crate::checks::{Finding, INTEGRITY_OPEN, SERVICE, Verdict};
use crate::transcript::{Exchange, Reply, Transcript};

/// The findings, behind the one of whether the resolver serves this host. If it does not, the reason stands in place of what they say.
pub(super) fn judged(findings: Vec<Finding>, transcript: &Transcript<'_>) -> Vec<Finding> {
    if !transcript.exchanges.iter().any(is_ordinary) {
        return findings;
    }
    let unserved = unserved(transcript);
    let replace = |finding: Finding| match &unserved {
        Some(unserved) if finding.check != INTEGRITY_OPEN.id => finding.not_tested(&unserved.reason),
        _ => finding,
    };
    // A stranger should not be served: `integrity.open` says so.
    let service = (!transcript.options.is_outside).then(|| service(transcript, unserved.as_ref()));
    service.into_iter().chain(findings.into_iter().map(replace)).collect()
}

/// Why a resolver cannot be judged.
struct Unserved {
    reason: String,
    /// It says so by itself, whatever the authority does.
    is_refusal: bool,
}

/// Bad only if it is sure that the authority was there: without it good resolvers fail, too, or are silent.
fn service(transcript: &Transcript<'_>, unserved: Option<&Unserved>) -> Finding {
    let Some(Unserved { reason, is_refusal }) = unserved else {
        return SERVICE.finding(Verdict::Good, "it resolves names of the audit zone");
    };
    let asked = || transcript.exchanges.iter().filter(|exchange| exchange.sends > 0);
    let (sent_ms, came_ms) = (asked().map(|own| own.sent_ms).max(), asked().map(Exchange::came_ms).max());
    let (Some(sent_ms), Some(came_ms)) = (sent_ms, came_ms) else { return SERVICE.unknown(reason.clone()) };
    match presence::absent(transcript, sent_ms, came_ms).filter(|_| !is_refusal) {
        Some(doubt) => SERVICE.unknown(format!("{reason}; {doubt}")),
        None => SERVICE.finding(Verdict::Bad, reason.clone()),
    }
}

/// `None` if it resolved something.
fn unserved(transcript: &Transcript<'_>) -> Option<Unserved> {
    let replies = transcript.exchanges.iter().filter(|exchange| is_ordinary(exchange));
    let replies: Vec<Reply> = replies.filter_map(Exchange::reply).collect();
    if replies.iter().any(has_resolved) {
        return None;
    }
    let is_refusal = !replies.is_empty() && replies.iter().all(is_refusal);
    let last = replies.iter().rfind(|reply| !self::is_refusal(reply));
    let reason = match last {
        None if is_refusal => format!("it refuses this host, with all of its {} answers", replies.len()),
        None => "it answers nothing".to_owned(),
        Some(reply) if is_denial(reply) && replies.iter().all(is_denial) => {
            format!("it denies all names of the audit zone: {}", reply.rcode_name())
        }
        Some(reply) => format!("it resolves no name of the audit zone: {}", reply.rcode_name()),
    };
    Some(Unserved { reason, is_refusal })
}

/// What servers make of odd questions says nothing of others, nor do answers for names outside of the audit zone.
fn is_ordinary(exchange: &Exchange) -> bool {
    let is_odd = exchange.step.question.class != Class::IN || exchange.step.group.starts_with(ODD_GROUPS);
    !is_odd && exchange.spec().is_some()
}

fn is_refusal(reply: &Reply) -> bool {
    // A server that offers no recursion may also send its client elsewhere (RFC 1034, 4.3.1).
    let is_referral = reply.flags & RA == 0 && reply.is(Rcode::NoError) && reply.answers.is_empty();
    reply.is(Rcode::Refused) || is_referral && reply.flags & flag::AA == 0 && !reply.is_truncated()
}

/// All plans have names that exist: whoever denies all of them has looked for none.
fn is_denial(reply: &Reply) -> bool {
    reply.is(Rcode::NxDomain) || reply.is(Rcode::NoError) && reply.answers.is_empty()
}

fn has_resolved(reply: &Reply) -> bool {
    reply.is(Rcode::NoError) && (!reply.answers.is_empty() || reply.is_truncated())
}

/// RA: recursion is available (RFC 1035, 4.1.1).
const RA: u16 = 0x0080;
