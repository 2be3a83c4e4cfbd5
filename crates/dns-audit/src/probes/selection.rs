//! Which of a zone's servers a resolver asks: at first, when the fastest dies, when it is back, and when queries are lost.
//!
//! The last server is the fastest. All names have the same delays and the same outage, so that what is learnt from one counts for the next.

use dns_wire::Rtype;

use crate::authority::{Entry, Servers};
use crate::checks::{Finding, SELECTION_LOSS, SELECTION_OUTAGE, SELECTION_RETURN, SELECTION_SHARE, Verdict};
use crate::plan::{Options, Planner, REPEAT_MS};
use crate::transcript::{Exchange, Transcript, seconds};

/// The delay of the fastest server, and how much later each other one is.
const FASTEST_MS: u16 = 5;
const APART_MS: u16 = 60;
/// More servers than this have the delay of the slowest.
const SERVERS_MAX: usize = 6;
/// Between two questions.
const PACE_MS: u64 = 120;
/// When the fastest server is silent, in tenths of a second.
const OUTAGE: (u32, u32) = (60, 110);
/// When the last question is asked of those without loss.
const END_MS: u64 = 20_000;
/// Names whose queries are lost now and then, and how many of a hundred queries are.
const LOSSY_NAMES: u64 = 40;
const LOSS: u8 = 25;
/// A question that leaves so much later than planned is late. Where more than one in so many is, the times mean nothing.
const LATE_MS: u64 = 500;
const LATE_SHARE: usize = 10;
/// At the start servers are tried out.
const LEARNING_MS: u64 = 2000;

pub(super) fn plan(planner: &mut Planner<'_>) {
    let count = planner.options.servers.min(SERVERS_MAX);
    if count < 2 || missing_servers(planner.options).is_some() {
        return;
    }
    let delay = |number: usize| FASTEST_MS + APART_MS * (count - 1 - number) as u16; // At most six.
    let outage = Some((count as u8 - 1, OUTAGE.0, OUTAGE.1));
    let servers = Servers { delays_ms: (0..count).map(delay).collect(), outage, loss: 0 };
    let mut at_ms = 0;
    while at_ms < END_MS {
        let mut spec = planner.spec(60);
        spec.servers = servers.clone();
        let name = planner.name(&spec);
        let group = match at_ms / 100 {
            tenths if tenths < u64::from(OUTAGE.0) => "before",
            tenths if tenths < u64::from(OUTAGE.1) => "during",
            _ => "after",
        };
        planner.ask(group, at_ms, &name, Rtype::A);
        at_ms += PACE_MS;
    }
    for number in 0..LOSSY_NAMES {
        let mut spec = planner.spec(60);
        spec.servers = Servers { outage: None, loss: LOSS, ..servers.clone() };
        let name = planner.name(&spec);
        planner.ask("lossy", END_MS + number * PACE_MS, &name, Rtype::A);
    }
}

pub(super) fn judge(transcript: &Transcript<'_>) -> Vec<Finding> {
    let all = [&SELECTION_SHARE, &SELECTION_OUTAGE, &SELECTION_RETURN, &SELECTION_LOSS];
    if let Some(reason) = missing_servers(transcript.options) {
        return all.map(|check| check.unknown(reason.clone())).into();
    }
    if transcript.exchanges.is_empty() {
        return all.map(|check| check.unknown("the authority has one address only")).into();
    }
    if let Err(reason) = &transcript.log {
        let reason = format!("the authority's log was not read: {reason}");
        return all.map(|check| check.unknown(reason.clone())).into();
    }
    if let Some(ms) = lateness(transcript) {
        let reason = format!(
            "not tested: questions left up to {} late. Raise --rate, or leave --together out",
            seconds(ms)
        );
        return all.map(|check| check.unknown(reason.clone())).into();
    }
    vec![share(transcript), outage(transcript), back(transcript), loss(transcript)]
}

/// Delays are by the servers' numbers: with some unnamed, another one than the last would be the fastest.
fn missing_servers(options: &Options) -> Option<String> {
    let Options { servers, zone_servers, .. } = *options;
    // Without any --authority there is no log, which says more.
    (servers > 0 && servers < zone_servers)
        .then(|| format!("not tested: the zone has {zone_servers} servers, name all of them by --authority"))
}

/// By how much the latest question was late, if too many were: the bound of rate has held them up.
fn lateness(transcript: &Transcript<'_>) -> Option<u64> {
    let lateness = |exchange: &Exchange| {
        let again_ms = u64::from(exchange.sends.saturating_sub(1)) * REPEAT_MS;
        exchange.sent_ms.saturating_sub(transcript.start_ms + exchange.step.at_ms + again_ms)
    };
    let late: Vec<u64> = transcript.exchanges.iter().map(lateness).filter(|ms| *ms > LATE_MS).collect();
    late.iter().max().copied().filter(|_| late.len() * LATE_SHARE > transcript.exchanges.len())
}

fn server_count(transcript: &Transcript<'_>) -> usize {
    transcript.options.servers.min(SERVERS_MAX)
}

fn since_start(transcript: &Transcript<'_>, entry: &Entry) -> u64 {
    entry.at_ms.saturating_sub(transcript.start_ms)
}

/// Milliseconds since the start of a time of the outage.
fn moment(tenths: u32) -> u64 {
    u64::from(tenths) * 100
}

fn share(transcript: &Transcript<'_>) -> Finding {
    let entries = transcript.logged_for("before");
    let settled: Vec<&&Entry> =
        entries.iter().filter(|entry| since_start(transcript, entry) > LEARNING_MS).collect();
    if settled.is_empty() {
        return SELECTION_SHARE.unknown("no question reached the authority");
    }
    let count = server_count(transcript);
    let of =
        |server: usize| settled.iter().filter(|entry| entry.server == server).count() * 100 / settled.len();
    let took: Vec<u64> = transcript
        .group("before")
        .filter(|exchange| exchange.dated().is_some())
        .map(Exchange::took_ms)
        .collect();
    let mean = took.iter().sum::<u64>() / (took.len() as u64).max(1);
    let best = of(count - 1);
    let summary = format!(
        "{best} % of the questions went to the fastest of {count} servers; a new name took {mean} ms, {FASTEST_MS} ms is possible"
    );
    let verdict = match best {
        50.. => Verdict::Good,
        10.. => Verdict::Notice,
        _ => Verdict::Bad,
    };
    let delay = |server: usize| FASTEST_MS + APART_MS * (count - 1 - server) as u16;
    let lines = (0..count)
        .map(|server| format!("server {}, {} ms away: {} %", server + 1, delay(server), of(server)));
    SELECTION_SHARE.finding(verdict, summary).because(lines)
}

fn outage(transcript: &Transcript<'_>) -> Finding {
    let during: Vec<&Exchange> = transcript.group("during").collect();
    let failed = during.iter().filter(|exchange| exchange.dated().is_none()).count();
    let dead = server_count(transcript) - 1;
    let tries = transcript.log.iter().flatten().filter(|entry| {
        entry.server == dead && (moment(OUTAGE.0)..moment(OUTAGE.1)).contains(&since_start(transcript, entry))
    });
    let tries = tries.count();
    let slowest = during.iter().map(|exchange| exchange.took_ms()).max().unwrap_or(0);
    let slow = during.iter().filter(|exchange| exchange.took_ms() > 1000).count();
    let summary = format!(
        "while the fastest server was silent, {failed} of {} names failed, {slow} took more than a second, the slowest {slowest} ms, \
         where the next server answers in {} ms; the silent server was asked {tries} times",
        during.len(),
        FASTEST_MS + APART_MS
    );
    let verdict = if failed * 10 > during.len() {
        Verdict::Bad
    } else if slow * 5 > during.len() {
        Verdict::Notice
    } else {
        Verdict::Good
    };
    SELECTION_OUTAGE.finding(verdict, summary)
}

fn back(transcript: &Transcript<'_>) -> Finding {
    let entries = transcript.logged_for("after");
    let dead = server_count(transcript) - 1;
    let end = moment(OUTAGE.1);
    let first = entries
        .iter()
        .filter(|entry| entry.server == dead)
        .map(|entry| since_start(transcript, entry))
        .find(|at| *at > end);
    match first {
        Some(at) => SELECTION_RETURN
            .finding(Verdict::Good, format!("it was asked again {} after it was back", seconds(at - end))),
        None if entries.is_empty() => SELECTION_RETURN.unknown("no question reached the authority"),
        None => {
            let rest = seconds(END_MS - end);
            SELECTION_RETURN
                .finding(Verdict::Notice, format!("it was not asked again in the {rest} after it was back"))
        }
    }
}

/// Every server loses queries; whoever asks again soon, and elsewhere, hardly notices.
fn loss(transcript: &Transcript<'_>) -> Finding {
    let exchanges: Vec<&Exchange> = transcript.group("lossy").collect();
    let queries = transcript.logged_for("lossy").len();
    if queries == 0 {
        return SELECTION_LOSS.unknown("no question reached the authority");
    }
    let names = exchanges.len();
    let failed = exchanges.iter().filter(|exchange| exchange.dated().is_none()).count();
    let slow = exchanges.iter().filter(|exchange| exchange.took_ms() > 1000).count();
    let took: Vec<u64> = exchanges.iter().map(|exchange| exchange.took_ms()).collect();
    let mean = took.iter().sum::<u64>() / (took.len() as u64).max(1);
    let tenths = |numerator: usize, denominator: usize| {
        format!("{}.{}", numerator / denominator.max(1), numerator * 10 / denominator.max(1) % 10)
    };
    let summary = format!(
        "while {LOSS} of 100 queries were lost, {failed} of {names} names failed, and {slow} took more than a second; a name took {mean} ms \
         and {} queries, {} are possible",
        tenths(queries, names),
        tenths(100, 100 - usize::from(LOSS))
    );
    let verdict = if failed * 10 > names {
        Verdict::Bad
    } else if slow * 5 > names || failed * 20 > names {
        Verdict::Notice
    } else {
        Verdict::Good
    };
    SELECTION_LOSS.finding(verdict, summary)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_servers_than_the_zone_has_are_named() {
        let missing =
            |servers, zone_servers| missing_servers(&Options { servers, zone_servers, ..Options::default() });
        assert!(missing(2, 3).is_some_and(|reason| reason.contains("the zone has 3 servers")));
        assert_eq!([missing(3, 3), missing(2, 0), missing(0, 3)], [None, None, None]);
    }
}
