//! TTLs: caps at both ends, counting down, zero, negative answers, refreshing ahead of time.

use dns_wire::{Rcode, Rtype};

use super::presence::needed;
use super::stale::{SLACK_MS, STALE_TTL_MAX};
use crate::authority::{Behaviour, Phase};
use crate::checks::{
    Finding, TTL_DECREMENT, TTL_MAXIMUM, TTL_MINIMUM, TTL_NEGATIVE, TTL_NEGATIVE_CAP, TTL_PREFETCH, TTL_ZERO,
    Verdict,
};
use crate::plan::Planner;
use crate::transcript::{Exchange, Reply, Transcript, seconds};

const WEEK_S: u32 = 604_800;
/// RFC 2308, 5: values of one to three hours have been found to work well.
const NEGATIVE_MAX_S: u32 = 10_800;
/// TTL of the name that is to be refreshed ahead of time; resolvers begin in its last tenth, or its last two seconds.
const POPULAR_S: u32 = 12;
/// A TTL has counted down after so long.
const COUNTED_MS: u64 = 1000;
/// The negative answer's TTL, and when the name comes into being, in tenths of a second.
const NEGATIVE_S: u32 = 2;
const BORN: u32 = 10;
/// The groups of both kinds of negative answers, and what people call them.
const NEGATIVE: [(&str, &str); 2] = [("missing", "NXDOMAIN"), ("empty", "NODATA")];

pub(super) fn plan(planner: &mut Planner<'_>) {
    for (group, ttl_s, times) in [
        ("steady", 60, &[0, 3000][..]),
        ("short", 1, &[0, 3000]),
        ("zero", 0, &[0, 2500]),
        ("long", 2 * WEEK_S, &[0]),
        ("popular", POPULAR_S, &[0, 11_000, 11_800]),
    ] {
        let spec = planner.spec(ttl_s);
        let name = planner.name(&spec);
        for at in times {
            planner.ask(group, *at, &name, Rtype::A);
        }
    }
    let soon = (NEGATIVE_S, Some(BORN), &[0, 600, 4000, 4900][..]);
    for (group, behaviour, (ttl_s, until, times)) in [
        (NEGATIVE[0].0, Behaviour::NxDomain, soon),
        (NEGATIVE[1].0, Behaviour::NoData, soon),
        ("never", Behaviour::NxDomain, (2 * WEEK_S, None, &[0])),
    ] {
        let mut spec = planner.spec(ttl_s);
        spec.phases.push(Phase { behaviour, from: 0, until });
        let name = planner.name(&spec);
        for at in times {
            planner.ask(group, *at, &name, Rtype::A);
        }
    }
}

pub(super) fn judge(transcript: &Transcript<'_>) -> Vec<Finding> {
    vec![
        decrement(transcript),
        minimum(transcript),
        zero(transcript),
        maximum(transcript),
        negative(transcript),
        negative_cap(transcript),
        prefetch(transcript),
    ]
}

/// Why the second of two questions says nothing.
const EARLY: &str = "the first answer took so long that the second question left too early";

/// The exchanges of a group, and what they brought.
fn dated<'t>(
    transcript: &'t Transcript<'_>,
    group: &'t str,
) -> Vec<(&'t Exchange, crate::transcript::Dated)> {
    transcript.group(group).filter_map(|exchange| Some((exchange, exchange.dated()?))).collect()
}

fn lines<'t>(transcript: &'t Transcript<'_>, group: &'t str) -> impl Iterator<Item = String> {
    transcript.group(group).map(|exchange| transcript.line(exchange))
}

fn decrement(transcript: &Transcript<'_>) -> Finding {
    let seen = dated(transcript, "steady");
    let [(asked, first), (again, second)] = seen[..] else {
        return TTL_DECREMENT.unknown("no two answers came");
    };
    let finding = if !again.follows(asked, COUNTED_MS) {
        TTL_DECREMENT.unknown(EARLY)
    } else if first.made_ms != second.made_ms {
        TTL_DECREMENT.finding(
            Verdict::Notice,
            "two questions in 3 s brought two answers: the name was not cached, or in several caches",
        )
    } else if second.ttl < first.ttl {
        TTL_DECREMENT.finding(Verdict::Good, format!("from {} s to {} s in 3 s", first.ttl, second.ttl))
    } else {
        TTL_DECREMENT.finding(
            Verdict::Bad,
            format!("data {} old still has a TTL of {} s", seconds(second.age_ms), second.ttl),
        )
    };
    finding.because(lines(transcript, "steady"))
}

fn minimum(transcript: &Transcript<'_>) -> Finding {
    let seen = dated(transcript, "short");
    let Some((asked, first)) = seen.first() else { return TTL_MINIMUM.unknown("no answer came") };
    let is_early = seen.get(1).is_some_and(|(again, _)| !again.follows(asked, 1000 + SLACK_MS));
    let kept = seen.get(1).map(|(_, second)| second).filter(|second| second.age_ms > 1000 + SLACK_MS);
    let finding = match kept {
        _ if first.ttl > 1 => {
            TTL_MINIMUM.finding(Verdict::Bad, format!("a TTL of 1 s became {} s", first.ttl))
        }
        _ if is_early => TTL_MINIMUM.unknown(EARLY),
        None => TTL_MINIMUM.finding(Verdict::Good, "data with a TTL of 1 s was fetched anew after 3 s"),
        Some(second) => {
            // With a TTL up to that of expired data it may be expired data: the probe for it tells.
            let verdict = if second.ttl > STALE_TTL_MAX { Verdict::Bad } else { Verdict::Notice };
            let (age, ttl) = (seconds(second.age_ms), second.ttl);
            let summary = format!("data with a TTL of 1 s was {age} old, and had a TTL of {ttl} s");
            needed(TTL_MINIMUM.finding(verdict, summary), transcript, &["short"])
        }
    };
    finding.because(lines(transcript, "short"))
}

fn zero(transcript: &Transcript<'_>) -> Finding {
    let seen = dated(transcript, "zero");
    let [(asked, first), (again, second)] = seen[..] else { return TTL_ZERO.unknown("no two answers came") };
    let finding = if !again.follows(asked, SLACK_MS) {
        TTL_ZERO.unknown(EARLY)
    } else if second.made_ms == first.made_ms && second.age_ms > SLACK_MS {
        let summary = format!("data with TTL 0 was {} old", seconds(second.age_ms));
        needed(TTL_ZERO.finding(Verdict::Bad, summary), transcript, &["zero"])
    } else if first.ttl > 0 {
        TTL_ZERO.finding(Verdict::Notice, format!("TTL 0 became {} s", first.ttl))
    } else {
        TTL_ZERO.finding(Verdict::Good, "each question brought a new answer")
    };
    finding.because(lines(transcript, "zero"))
}

fn maximum(transcript: &Transcript<'_>) -> Finding {
    let Some((_, first)) = dated(transcript, "long").into_iter().next() else {
        return TTL_MAXIMUM.unknown("no answer came");
    };
    let ttl = first.ttl;
    let (verdict, words) = match ttl {
        0..3600 => (Verdict::Notice, "more questions than need be"),
        3600..=WEEK_S => (Verdict::Good, "within the week that is recommended"),
        _ => (Verdict::Notice, "longer than the week that is recommended"),
    };
    TTL_MAXIMUM.finding(verdict, format!("a TTL of two weeks became {ttl} s: {words}"))
}

/// Of both kinds, as caches keep them apart. What is bad of one counts, then what was not seen.
fn negative(transcript: &Transcript<'_>) -> Finding {
    let [first, second] = NEGATIVE.map(|(group, kind)| negative_of(transcript, group, kind));
    let weight = |finding: &Finding| match finding.verdict {
        Verdict::Bad => 3,
        Verdict::Notice => 2,
        Verdict::Unknown => 1,
        Verdict::Good => 0,
    };
    let finding = if weight(&second) > weight(&first) { second } else { first };
    let lines = NEGATIVE.iter().flat_map(|(group, kind)| {
        lines(transcript, group).map(move |line| format!("{kind} with a TTL of {NEGATIVE_S} s: {line}"))
    });
    finding.because(lines)
}

fn negative_of(transcript: &Transcript<'_>, group: &'static str, kind: &str) -> Finding {
    let exchanges: Vec<&Exchange> = transcript.group(group).collect();
    let [first, .., before, last] = exchanges[..] else { return TTL_NEGATIVE.unknown("not asked") };
    let is_absent = |exchange: &Exchange| exchange.reply().is_some_and(|reply| is_negative(&reply, kind));
    let is_denied = |exchange: &Exchange| exchange.reply().is_some_and(|reply| reply.is(Rcode::NxDomain));
    if group == NEGATIVE[1].0 && is_denied(first) {
        let summary = "NODATA became NXDOMAIN: a name that exists is denied";
        needed(TTL_NEGATIVE.finding(Verdict::Notice, summary), transcript, &[group])
    } else if !is_absent(first) {
        TTL_NEGATIVE.unknown(format!("the first answer was not {kind}"))
    } else if !before.follows(first, u64::from(NEGATIVE_S) * 1000 + SLACK_MS) {
        TTL_NEGATIVE.unknown(EARLY)
    } else if is_absent(before) && is_absent(last) {
        let summary =
            format!("{kind} with a TTL of {NEGATIVE_S} s was still there after {}", after(first, last));
        needed(TTL_NEGATIVE.finding(Verdict::Bad, summary), transcript, &[group])
    } else if let Some(late) = [before, last].into_iter().find(|exchange| is_absent(exchange)) {
        // It may be expired data, for which there is a probe of its own, or another cache's.
        let summary =
            format!("{kind} with a TTL of {NEGATIVE_S} s was there once more after {}", after(first, late));
        needed(TTL_NEGATIVE.finding(Verdict::Notice, summary), transcript, &[group])
    } else if last.dated().is_some() {
        let [(_, name), (_, data)] = NEGATIVE;
        let summary = format!("{name} and {data} with a TTL of {NEGATIVE_S} s ended in time");
        TTL_NEGATIVE.finding(Verdict::Good, summary)
    } else {
        TTL_NEGATIVE.unknown(format!("the last answer was neither {kind} nor an address"))
    }
}

fn after(first: &Exchange, later: &Exchange) -> String {
    seconds(later.sent_ms.saturating_sub(first.sent_ms))
}

fn is_negative(reply: &Reply, kind: &str) -> bool {
    match kind == NEGATIVE[0].1 {
        true => reply.is(Rcode::NxDomain),
        false => reply.is(Rcode::NoError) && reply.answers.is_empty() && !reply.is_truncated(),
    }
}

fn negative_cap(transcript: &Transcript<'_>) -> Finding {
    let reply = transcript.one("never").and_then(Exchange::reply).filter(|reply| reply.is(Rcode::NxDomain));
    let soa =
        reply.as_ref().and_then(|reply| reply.authority.iter().find(|record| record.rtype == Rtype::SOA));
    let Some(soa) = soa else { return TTL_NEGATIVE_CAP.unknown("no NXDOMAIN with an SOA record came") };
    let verdict = if soa.ttl > NEGATIVE_MAX_S { Verdict::Notice } else { Verdict::Good };
    TTL_NEGATIVE_CAP.finding(verdict, format!("a negative TTL of two weeks became {} s", soa.ttl))
}

fn prefetch(transcript: &Transcript<'_>) -> Finding {
    let seen = dated(transcript, "popular");
    let [(_, first), (_, second), (_, third)] = seen[..] else {
        return TTL_PREFETCH.unknown("no three answers came");
    };
    let words = if first.made_ms != second.made_ms {
        "the name was not in the cache for its whole TTL"
    } else if third.made_ms == second.made_ms {
        "a question in the last tenth of the TTL brings no refresh"
    } else {
        "a question in the last tenth of the TTL brings a refresh"
    };
    TTL_PREFETCH.finding(Verdict::Good, words).because(lines(transcript, "popular"))
}
