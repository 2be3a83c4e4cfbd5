//! Expired data: while the authority answers, while it is slow, while it is down, and when a name is gone (RFC 8767).
//!
//! Each name has a TTL of T. It is asked for at the start, so that it is cached, and again when it has long expired. What happens to it from T
//! on is in the name.

use dns_wire::{Rcode, Rtype};

use super::presence::needed;
use crate::authority::{Behaviour, Phase};
use crate::checks::{
    Finding, STALE_GONE, STALE_LABEL, STALE_OUTAGE, STALE_REACHABLE, STALE_RECOVERY, STALE_REFRESH,
    STALE_SLOW, STALE_TTL, Verdict,
};
use crate::plan::Planner;
use crate::transcript::{Exchange, Reply, Transcript, seconds};

/// How long a slow authority takes: less than the 1.8 s that a resolver should wait (RFC 8767, 5).
const SLOW_MS: u16 = 1000;
/// Who waits so long before it serves expired data does as RFC 8767, 5 recommends: 1.8 s, read with an error.
const WAIT_MS: u64 = 1700;
/// How much older than its TTL an answer may be: caches count whole seconds.
pub(super) const SLACK_MS: u64 = 1200;
/// After the TTL, when a name is asked for again.
pub(super) const LATER_MS: u64 = 2500;
/// How long an outage lasts after the TTL.
const OUTAGE_MS: u64 = 4500;
/// After the TTL, when the name is asked for whose authority comes back.
const RECOVERY_MS: [u64; 4] = [LATER_MS, 7000, 9500, 36_000];
/// The TTL that expired data should have at most (RFC 8767, 4).
pub(super) const STALE_TTL_MAX: u32 = 30;
/// Extended errors: stale answer, stale NXDOMAIN answer (RFC 8914, 4.4 and 4.20).
const MARKS: [u16; 2] = [3, 19];

pub(super) fn plan(planner: &mut Planner<'_>) {
    let ttl = planner.ttl_ms();
    let later = ttl + LATER_MS;
    prime_and_ask(planner, "up", None, &[ttl / 2, later, later + 400, later + 1400]);
    prime_and_ask(planner, "slow", Some((Behaviour::Slow(SLOW_MS), None)), &[later]);
    prime_and_ask(planner, "down", Some((Behaviour::Silent, None)), &[later]);
    prime_and_ask(planner, "failing", Some((Behaviour::ServFail, None)), &[later]);
    prime_and_ask(planner, "gone", Some((Behaviour::NxDomain, None)), &[later, later + 600, later + 1600]);
    let back = RECOVERY_MS.iter().filter(|ms| planner.options.ttl_s >= 5 || **ms < 10_000).map(|ms| ttl + ms);
    let back: Vec<u64> = back.collect();
    prime_and_ask(planner, "back", Some((Behaviour::Silent, Some(ttl + OUTAGE_MS))), &back);
}

/// Asks for a name at the start and then, and has something happen to it from its TTL on.
fn prime_and_ask(
    planner: &mut Planner<'_>,
    group: &str,
    then: Option<(Behaviour, Option<u64>)>,
    times: &[u64],
) {
    let tenths = |ms: u64| (ms / 100) as u32; // Plans are short.
    let from = tenths(planner.ttl_ms()) + 1;
    let mut spec = planner.spec(planner.options.ttl_s);
    spec.phases.extend(then.map(|(behaviour, until)| Phase { behaviour, from, until: until.map(tenths) }));
    let name = planner.name(&spec);
    planner.ask(&format!("{group}.first"), 0, &name, Rtype::A);
    for at in times {
        planner.ask(&format!("{group}.later"), *at, &name, Rtype::A);
    }
}

pub(super) fn judge(transcript: &Transcript<'_>) -> Vec<Finding> {
    let missing = |group: &str| transcript.one(&format!("{group}.first")).and_then(Exchange::dated).is_none();
    if missing("up") {
        let said = transcript.one("up.first").map_or_else(String::new, Exchange::said);
        return vec![
            STALE_REACHABLE.unknown(format!("the first answer was no address of the audit zone: {said}")),
        ];
    }
    if let Some(raised) = raised(transcript) {
        return vec![raised];
    }
    let (reachable, is_stale) = reachable(transcript);
    let mut findings = vec![needed(reachable, transcript, &["up"])];
    findings.extend(is_stale.then(|| needed(refresh(transcript), transcript, &["up"])));
    findings.push(needed(slow(transcript), transcript, &["slow"]));
    findings.push(outage(transcript));
    findings.extend(manners(transcript));
    findings.push(needed(gone(transcript), transcript, &["gone"]));
    findings.push(needed(recovery(transcript), transcript, &["back"]));
    findings
}

/// The resolver has raised the TTL: to it nothing expires, and all that follows would say the same again.
fn raised(transcript: &Transcript<'_>) -> Option<Finding> {
    let first = transcript.one("up.first")?;
    let (given, got) = (transcript.options.ttl_s, first.dated()?.ttl);
    let lines = transcript.exchanges.iter().filter(|exchange| exchange.step.group.starts_with("up."));
    let lines = lines.map(|exchange| transcript.line(exchange));
    let summary = format!("a TTL of {given} s became {got} s: data stays for longer than its owner allows");
    (got > given).then(|| STALE_REACHABLE.finding(Verdict::Bad, summary).because(lines))
}

/// Whether an exchange brought data that had expired when it was asked for.
pub(super) fn is_expired(exchange: &Exchange) -> bool {
    let ttl_ms = exchange.spec().map_or(0, |spec| u64::from(spec.ttl) * 1000);
    exchange.dated().is_some_and(|dated| dated.age_ms > ttl_ms + SLACK_MS)
}

/// The exchanges of a name after the TTL of what the first one brought. A bound of rate, or a slow way, may have made that one late.
fn after_expiry<'t>(transcript: &'t Transcript<'_>, name: &str) -> Vec<&'t Exchange> {
    expired_in(transcript, &format!("{name}.first"), &format!("{name}.later"))
}

/// The exchanges of the group `later` that were sent when what `first` brought had expired.
pub(super) fn expired_in<'t>(transcript: &'t Transcript<'_>, first: &str, later: &str) -> Vec<&'t Exchange> {
    let ttl_ms = u64::from(transcript.options.ttl_s) * 1000;
    let Some(cached) = transcript.one(first).map(Exchange::came_ms) else { return Vec::new() };
    let own = transcript.exchanges.iter().filter(|exchange| exchange.step.group == later);
    own.filter(|exchange| exchange.sent_ms > cached + ttl_ms + SLACK_MS).collect()
}

fn reachable(transcript: &Transcript<'_>) -> (Finding, bool) {
    let later: Vec<&Exchange> = after_expiry(transcript, "up");
    let stale: Vec<&&Exchange> = later.iter().filter(|exchange| is_expired(exchange)).collect();
    let oldest = stale.iter().filter_map(|exchange| exchange.dated()).map(|dated| dated.age_ms).max();
    let lines = || later.iter().map(|exchange| transcript.line(exchange));
    let ttl = transcript.options.ttl_s;
    match oldest {
        Some(age) => {
            let summary = format!(
                "{} of {} answers had expired: data up to {} old with a TTL of {ttl} s, while the authority answered",
                stale.len(),
                later.len(),
                seconds(age)
            );
            (STALE_REACHABLE.finding(Verdict::Bad, summary).because(lines()), true)
        }
        None if later.iter().any(|exchange| exchange.dated().is_some()) => {
            let summary = format!("after its TTL of {ttl} s data was fetched anew");
            (STALE_REACHABLE.finding(Verdict::Good, summary).because(lines()), false)
        }
        None => (STALE_REACHABLE.unknown("no address came after the TTL").because(lines()), false),
    }
}

/// Of a name that was served expired once: whether that has made the resolver look.
fn refresh(transcript: &Transcript<'_>) -> Finding {
    let later: Vec<&Exchange> = after_expiry(transcript, "up");
    let fresh = later.iter().position(|exchange| exchange.dated().is_some() && !is_expired(exchange));
    let lines = later.iter().map(|exchange| transcript.line(exchange));
    let finding = match fresh {
        Some(count) => {
            STALE_REFRESH.finding(Verdict::Good, format!("the answer was fresh after {count} expired ones"))
        }
        None => STALE_REFRESH
            .finding(Verdict::Bad, format!("{} questions in a row brought expired data", later.len())),
    };
    finding.because(lines)
}

fn slow(transcript: &Transcript<'_>) -> Finding {
    let Some(exchange) = after_expiry(transcript, "slow").first().copied() else {
        return STALE_SLOW.unknown("not asked");
    };
    let line = [transcript.line(exchange)];
    if is_expired(exchange) {
        let took = exchange.took_ms();
        let (verdict, words) = waited(took);
        let summary =
            format!("expired data came after {took} ms, while the authority needed {SLOW_MS} ms{words}");
        return STALE_SLOW.finding(verdict, summary).because(line);
    }
    let (verdict, words) = match exchange.dated() {
        Some(_) => (Verdict::Good, format!("it waited {SLOW_MS} ms for the authority")),
        None => (Verdict::Notice, format!("a name whose authority needs {SLOW_MS} ms fails")),
    };
    STALE_SLOW.finding(verdict, words).because(line)
}

/// Expired data after so many milliseconds: what it is, and what there is to say besides.
fn waited(took_ms: u64) -> (Verdict, &'static str) {
    if took_ms >= WAIT_MS {
        (Verdict::Good, ": it waited as RFC 8767 recommends")
    } else {
        (Verdict::Notice, "")
    }
}

fn outage(transcript: &Transcript<'_>) -> Finding {
    let exchanges = ["down", "failing"].into_iter().flat_map(|name| after_expiry(transcript, name));
    let exchanges: Vec<&Exchange> = exchanges.collect();
    let lines = exchanges.iter().map(|exchange| transcript.line(exchange));
    let served = exchanges.iter().filter(|exchange| is_expired(exchange)).count();
    let silent = exchanges.iter().filter(|exchange| exchange.reply().is_none()).count();
    let finding = match (served, silent) {
        _ if exchanges.is_empty() => STALE_OUTAGE.unknown("not asked after the TTL"),
        (0, 0) => STALE_OUTAGE
            .finding(Verdict::Good, "without the authority it answers SERVFAIL: it serves no expired data"),
        (0, _) => {
            STALE_OUTAGE.finding(Verdict::Notice, "without the authority clients get no answer for 6 s")
        }
        _ => STALE_OUTAGE
            .finding(Verdict::Good, "without the authority it serves expired data, as RFC 8767 allows"),
    };
    finding.because(lines)
}

/// TTL and mark of the expired answers that there were.
fn manners(transcript: &Transcript<'_>) -> Vec<Finding> {
    let names = ["up", "slow", "down", "failing", "back"];
    let expired =
        names.iter().flat_map(|name| after_expiry(transcript, name)).filter(|exchange| is_expired(exchange));
    let replies: Vec<(Reply, u32)> =
        expired.filter_map(|exchange| Some((exchange.reply()?, exchange.dated()?.ttl))).collect();
    let Some(ttl) = replies.iter().map(|(_, ttl)| *ttl).max() else { return Vec::new() };
    let is_marked =
        |(reply, _): &&(Reply, u32)| reply.extended_errors().iter().any(|code| MARKS.contains(code));
    let marked = replies.iter().filter(is_marked).count();
    let verdict = if ttl > STALE_TTL_MAX {
        Verdict::Bad
    } else if ttl == 0 {
        Verdict::Notice
    } else {
        Verdict::Good
    };
    let label = if marked == replies.len() { Verdict::Good } else { Verdict::Notice };
    vec![
        STALE_TTL.finding(verdict, format!("expired data has a TTL of up to {ttl} s")),
        STALE_LABEL.finding(
            label,
            format!("{marked} of {} expired answers have an extended error that says so", replies.len()),
        ),
    ]
}

fn gone(transcript: &Transcript<'_>) -> Finding {
    let later: Vec<&Exchange> = after_expiry(transcript, "gone");
    let lines = later.iter().map(|exchange| transcript.line(exchange));
    let alive = later.iter().filter(|exchange| exchange.dated().is_some()).count();
    let is_gone =
        later.iter().any(|exchange| exchange.reply().is_some_and(|reply| reply.is(Rcode::NxDomain)));
    let finding = match (alive, is_gone) {
        (0, true) => STALE_GONE.finding(Verdict::Good, "a name that was removed is gone after its TTL"),
        (0, false) => STALE_GONE.unknown("neither an address nor NXDOMAIN came"),
        (count, true) if count < later.len() => STALE_GONE.finding(
            Verdict::Notice,
            format!("a name that was removed came {count} more times after its TTL"),
        ),
        (count, _) => STALE_GONE
            .finding(Verdict::Bad, format!("a name that was removed still has its address, {count} times")),
    };
    finding.because(lines)
}

fn recovery(transcript: &Transcript<'_>) -> Finding {
    let end = transcript.start_ms + u64::from(transcript.options.ttl_s) * 1000 + OUTAGE_MS;
    let later: Vec<&Exchange> =
        transcript.group("back.later").filter(|exchange| exchange.sent_ms > end).collect();
    let lines = later.iter().map(|exchange| transcript.line(exchange));
    let fresh = later.iter().find(|exchange| exchange.dated().is_some() && !is_expired(exchange));
    let finding = match (fresh, later.last()) {
        (Some(first), _) => {
            let after = seconds(first.sent_ms - end);
            STALE_RECOVERY
                .finding(Verdict::Good, format!("data was fresh when asked for {after} after an outage"))
        }
        (None, Some(last)) => {
            let after_ms = last.sent_ms - end;
            let verdict = if after_ms > 30_000 { Verdict::Bad } else { Verdict::Notice };
            STALE_RECOVERY
                .finding(verdict, format!("still no fresh data {} after an outage", seconds(after_ms)))
        }
        (None, None) => STALE_RECOVERY.unknown("not asked"),
    };
    finding.because(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expired_data_after_the_recommended_wait_is_good() {
        let verdicts = [20, 1699, 1700, 1800, 2500].map(|took_ms| waited(took_ms).0);
        let (notice, good) = (Verdict::Notice, Verdict::Good);
        assert_eq!(verdicts, [notice, notice, good, good, good]);
    }
}
