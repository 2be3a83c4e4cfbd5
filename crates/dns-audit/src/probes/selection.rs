//! Which of a zone's servers a resolver asks: at first, when some are silent, when they are back, and when queries are lost. The authority says
//! how its servers differ ([`Condition`]); what was seen is held against the best that could be done with them.
//!
//! All names have the same conditions, so that what is learnt from one counts for the next.

use dns_wire::Rtype;

use super::presence::needed;
use crate::authority::{Condition, Entry, Servers};
use crate::checks::{Finding, SELECTION_LOSS, SELECTION_OUTAGE, SELECTION_RETURN, SELECTION_SHARE, Verdict};
use crate::plan::Planner;
use crate::transcript::{Exchange, Transcript, seconds};

/// Between two questions.
const PACE_MS: u64 = 120;
/// Without an outage, questions without loss are asked for so long; with one, until so long after it.
const CALM_MS: u64 = 6000;
const AFTER_MS: u64 = 9000;
/// Names whose queries are lost now and then.
const LOSSY_NAMES: u64 = 40;
/// A question that leaves so much later than planned is late. Where more than one in so many is, the times mean nothing.
const LATE_MS: u64 = 500;
const LATE_SHARE: usize = 10;
/// At the start servers are tried out.
const LEARNING_MS: u64 = 2000;
/// A name that takes so much longer than it could is slow.
const SLOW_MS: u64 = 1000;
/// Who does not ask a silent server first for so many names in a row, which take a second, has left it.
const LEFT_NAMES: usize = 8;

pub(super) fn plan(planner: &mut Planner<'_>) {
    let conditions = planner.options.conditions.clone();
    if conditions.len() < 2 {
        return;
    }
    let outage = Outage::of(&conditions);
    let end_ms = outage.map_or(CALM_MS, |outage| outage.until_ms + AFTER_MS);
    let mut at_ms = 0;
    while at_ms < end_ms {
        let mut spec = planner.spec(60);
        spec.servers = Servers::Apart;
        let name = planner.name(&spec);
        let group = match outage {
            Some(outage) if at_ms >= outage.until_ms => "after",
            Some(outage) if at_ms >= outage.from_ms => "during",
            _ => "before",
        };
        planner.ask(group, at_ms, &name, Rtype::A);
        at_ms += PACE_MS;
    }
    if conditions.iter().all(|condition| condition.loss == 0) {
        return;
    }
    for number in 0..LOSSY_NAMES {
        let mut spec = planner.spec(60);
        spec.servers = Servers::Lossy;
        let name = planner.name(&spec);
        planner.ask("lossy", end_ms + number * PACE_MS, &name, Rtype::A);
    }
}

/// From the start of the first outage of a server to the end of the last one, in milliseconds.
#[derive(Clone, Copy)]
struct Outage {
    from_ms: u64,
    until_ms: u64,
}

impl Outage {
    fn of(conditions: &[Condition]) -> Option<Outage> {
        let spans = || conditions.iter().filter_map(|condition| condition.outage);
        let (from, until) = (spans().map(|span| span.0).min()?, spans().map(|span| span.1).max()?);
        Some(Outage { from_ms: moment(from), until_ms: moment(until) })
    }
}

pub(super) fn judge(transcript: &Transcript<'_>) -> Vec<Finding> {
    let all = [&SELECTION_SHARE, &SELECTION_OUTAGE, &SELECTION_RETURN, &SELECTION_LOSS];
    match untested(transcript) {
        Some(reason) => all.map(|check| check.unknown(reason.clone())).into(),
        None => [share, outage, back, loss].map(|judge| needed(judge(transcript), transcript, &[])).into(),
    }
}

/// Why nothing can be said.
fn untested(transcript: &Transcript<'_>) -> Option<String> {
    if let Err(reason) = &transcript.log {
        return Some(format!("the authority's log was not read: {reason}"));
    }
    match transcript.options.conditions.len() {
        0 => return Some("the authority does not say how its servers differ".to_owned()),
        1 => return Some("the authority has one address only".to_owned()),
        _ => {}
    }
    lateness(transcript).map(|ms| {
        format!(
            "not tested: questions left up to {} late. Raise --rate, or leave --together out",
            seconds(ms)
        )
    })
}

/// By how much the latest question was late, if too many were: the bound of rate has held them up.
fn lateness(transcript: &Transcript<'_>) -> Option<u64> {
    let lateness =
        |exchange: &Exchange| exchange.sent_ms.saturating_sub(transcript.start_ms + exchange.step.at_ms);
    let late: Vec<u64> = transcript.exchanges.iter().map(lateness).filter(|ms| *ms > LATE_MS).collect();
    late.iter().max().copied().filter(|_| late.len() * LATE_SHARE > transcript.exchanges.len())
}

fn conditions<'t>(transcript: &'t Transcript<'_>) -> &'t [Condition] {
    &transcript.options.conditions
}

/// The delay of the fastest of all servers.
fn fastest_ms(transcript: &Transcript<'_>) -> u64 {
    conditions(transcript).iter().map(|condition| u64::from(condition.delay_ms)).min().unwrap_or(0)
}

fn is_fastest(transcript: &Transcript<'_>, server: usize) -> bool {
    let delay = conditions(transcript).get(server).map(|condition| u64::from(condition.delay_ms));
    delay == Some(fastest_ms(transcript))
}

fn since_start(transcript: &Transcript<'_>, at_ms: u64) -> u64 {
    at_ms.saturating_sub(transcript.start_ms)
}

/// Milliseconds since the start of a time of an outage.
fn moment(tenths: u32) -> u64 {
    u64::from(tenths) * 100
}

/// How long names took, on average, and how many of them had an answer.
fn mean_ms(exchanges: &[&Exchange]) -> (u64, usize) {
    let took =
        exchanges.iter().filter(|exchange| exchange.dated().is_some()).map(|exchange| exchange.took_ms());
    let took: Vec<u64> = took.collect();
    (took.iter().sum::<u64>() / (took.len() as u64).max(1), took.len())
}

/// A line for each server: its condition, and its part of the queries.
fn parts(transcript: &Transcript<'_>, entries: &[&Entry]) -> Vec<String> {
    let line = |(number, condition): (usize, &Condition)| {
        let count = entries.iter().filter(|entry| entry.server == number).count();
        let part = count * 100 / entries.len().max(1);
        format!("server {} ({condition}): {count} of {} queries, {part} %", number + 1, entries.len())
    };
    (0..).zip(conditions(transcript)).map(line).collect()
}

fn share(transcript: &Transcript<'_>) -> Finding {
    let mut settled = transcript.logged_for("before");
    settled.retain(|entry| since_start(transcript, entry.at_ms) > LEARNING_MS);
    if settled.is_empty() {
        let is_early = Outage::of(conditions(transcript)).is_some_and(|outage| outage.from_ms <= LEARNING_MS);
        return SELECTION_SHARE.unknown(match is_early {
            true => "an outage begins in the first two seconds, while servers are tried out",
            false => "no question reached the authority",
        });
    }
    let best =
        settled.iter().filter(|entry| is_fastest(transcript, entry.server)).count() * 100 / settled.len();
    let (mean, _) = mean_ms(&transcript.group("before").collect::<Vec<_>>());
    let summary = format!(
        "{best} % of the questions went to the fastest of {} servers, 100 % is the best; a new name took {mean} ms, {} ms is the best",
        conditions(transcript).len(),
        fastest_ms(transcript)
    );
    let verdict = match best {
        50.. => Verdict::Good,
        10.. => Verdict::Notice,
        _ => Verdict::Bad,
    };
    SELECTION_SHARE.finding(verdict, summary).because(parts(transcript, &settled))
}

/// What the best takes for a name that is asked for at that time: the delay of the fastest server that is not silent.
fn best_ms(transcript: &Transcript<'_>, exchange: &Exchange) -> Option<u64> {
    let tenths = since_start(transcript, exchange.sent_ms) / 100;
    let up = conditions(transcript).iter().filter(|condition| !condition.is_out(tenths));
    up.map(|condition| u64::from(condition.delay_ms)).min()
}

fn outage(transcript: &Transcript<'_>) -> Finding {
    let names: Vec<(&Exchange, u64)> = transcript
        .group("during")
        .filter_map(|exchange| Some((exchange, best_ms(transcript, exchange)?)))
        .collect();
    if names.is_empty() {
        return SELECTION_OUTAGE.unknown("the authority's servers have no outage, or all of them at once");
    }
    let is_silent = |entry: &Entry| {
        let own = conditions(transcript).get(entry.server);
        own.is_some_and(|own| own.is_out(since_start(transcript, entry.at_ms) / 100))
    };
    // Names without loss alone: those with it come later.
    let during = transcript.logged_for("during");
    if during.is_empty() {
        return SELECTION_OUTAGE.unknown("no question reached the authority");
    }
    let tries = during.iter().copied().filter(|entry| is_silent(entry)).count();
    let all: Vec<&Exchange> = names.iter().map(|(exchange, _)| *exchange).collect();
    let failed = all.iter().filter(|exchange| exchange.dated().is_none()).count();
    let slowest = all.iter().map(|exchange| exchange.took_ms()).max().unwrap_or(0);
    let slow = names.iter().filter(|(exchange, best)| exchange.took_ms() > best + SLOW_MS).count();
    let best = names.iter().map(|(_, best)| best).sum::<u64>() / names.len() as u64;
    let (mean, _) = mean_ms(&all);
    let summary = format!(
        "while servers were silent, {failed} of {} names failed, and {slow} took a second longer than they could; a name took {mean} ms, \
         the slowest {slowest} ms, {best} ms is the best; silent servers were asked {tries} times, and {}",
        names.len(),
        match left_ms(transcript, &all, is_silent) {
            Some(ms) => format!("left after {}", seconds(ms)),
            None => "never left for a second".to_owned(),
        }
    );
    let verdict = if failed * 10 > names.len() {
        Verdict::Bad
    } else if slow * 5 > names.len() {
        Verdict::Notice
    } else {
        Verdict::Good
    };
    SELECTION_OUTAGE.finding(verdict, summary).because(parts(transcript, &during))
}

/// How long after the first of these names none was asked for at a silent server first any more, for a second at least. Who asks one beside another
/// server, to see whether it is back, has left it.
fn left_ms(
    transcript: &Transcript<'_>,
    names: &[&Exchange],
    is_silent: impl Fn(&Entry) -> bool,
) -> Option<u64> {
    let began_ms = names.first()?.sent_ms;
    let is_clear = |exchange: &&Exchange| {
        exchange.spec().is_some_and(|spec| !transcript.logged(spec.number).next().is_some_and(&is_silent))
    };
    let clear: Vec<bool> = names.iter().map(is_clear).collect();
    let first = clear.windows(LEFT_NAMES).position(|row| row.iter().all(|is_clear| *is_clear))?;
    Some(names[first].sent_ms - began_ms)
}

/// The fastest servers, once they are back.
fn back(transcript: &Transcript<'_>) -> Finding {
    let all = (0..).zip(conditions(transcript));
    let spans = all.filter(|(server, _)| is_fastest(transcript, *server));
    let Some((dead, (_, until))) = spans.filter_map(|(server, own)| Some((server, own.outage?))).last()
    else {
        return SELECTION_RETURN.unknown("the fastest of the authority's servers has no outage");
    };
    let (end, entries) = (moment(until), transcript.logged_for("after"));
    let times = entries.iter().filter(|entry| entry.server == dead).map(|entry| entry.at_ms);
    match times.map(|at_ms| since_start(transcript, at_ms)).find(|at_ms| *at_ms > end) {
        Some(at) => {
            let summary =
                format!("it was asked again {} after it was back, 0.0 s is the best", seconds(at - end));
            SELECTION_RETURN.finding(Verdict::Good, summary)
        }
        None if entries.is_empty() => SELECTION_RETURN.unknown("no question reached the authority"),
        None => {
            let rest = seconds(AFTER_MS);
            SELECTION_RETURN
                .finding(Verdict::Notice, format!("it was not asked again in the {rest} after it was back"))
        }
    }
    .because(parts(transcript, &entries))
}

/// Servers lose queries; whoever asks again soon, and elsewhere, hardly notices.
fn loss(transcript: &Transcript<'_>) -> Finding {
    let exchanges: Vec<&Exchange> = transcript.group("lossy").collect();
    let entries = transcript.logged_for("lossy");
    if exchanges.is_empty() {
        return SELECTION_LOSS.unknown("no loss is set at the authority");
    }
    // With each server's delay and loss: the time until an answer, for who asks again as soon as one could have come.
    let part = |own: &Condition| u64::from(100 - own.loss.min(100));
    let usable = || conditions(transcript).iter().filter(|own| part(own) > 0);
    let time = usable().map(|own| u64::from(own.delay_ms) * 100 / part(own)).min();
    let (Some(best_ms), Some(kept)) = (time, usable().map(part).max()) else {
        return SELECTION_LOSS.unknown("the authority's servers lose all queries");
    };
    if entries.is_empty() {
        return SELECTION_LOSS.unknown("no question reached the authority");
    }
    let names = exchanges.len();
    let (mean, answered) = mean_ms(&exchanges);
    let failed = names - answered;
    let slow = exchanges.iter().filter(|exchange| exchange.took_ms() > best_ms + SLOW_MS).count();
    let tenths = |numerator: usize, denominator: usize| {
        format!("{}.{}", numerator / denominator.max(1), numerator * 10 / denominator.max(1) % 10)
    };
    let summary = format!(
        "while servers lost queries, {failed} of {names} names failed, and {slow} took a second longer than they could; a name took {mean} ms \
         and {} queries, {best_ms} ms and {} queries are the best",
        tenths(entries.len(), names),
        tenths(100, kept as usize)
    );
    let verdict = if failed * 10 > names {
        Verdict::Bad
    } else if slow * 5 > names || failed * 20 > names {
        Verdict::Notice
    } else {
        Verdict::Good
    };
    SELECTION_LOSS.finding(verdict, summary).because(parts(transcript, &entries))
}
