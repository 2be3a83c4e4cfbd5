//! How long answers take: for new names, and for one that the resolver has.

use dns_wire::Rtype;

use super::presence::needed;
use crate::checks::{Check, Finding, LATENCY_COLD, LATENCY_HOT, Verdict};
use crate::plan::Planner;
use crate::transcript::{Exchange, Transcript};

/// Between two questions.
const PACE_MS: u64 = 100;
/// A known name should not take longer.
const HOT_MAX_US: u64 = 100_000;
/// A new name should not take longer; the authority is somewhere in the world.
const COLD_MAX_US: u64 = 1_000_000;
/// Where more than one in so many is asked again, users wait often.
const REPEATS_SHARE: usize = 10;

pub(super) fn plan(planner: &mut Planner<'_>) {
    let samples = u64::from(planner.options.samples);
    let spec = planner.spec(300);
    let known = planner.name(&spec);
    planner.ask("prime", 0, &known, Rtype::A);
    for number in 1..=samples {
        let spec = planner.spec(60);
        let new = planner.name(&spec);
        planner.ask("cold", number * PACE_MS, &new, Rtype::A);
        planner.ask("hot", number * PACE_MS + PACE_MS / 2, &known, Rtype::A);
    }
}

pub(super) fn judge(transcript: &Transcript<'_>) -> Vec<Finding> {
    vec![
        needed(
            spread(&transcript.group("cold").collect::<Vec<_>>(), &LATENCY_COLD, COLD_MAX_US),
            transcript,
            &["cold"],
        ),
        hot(transcript),
    ]
}

/// Of the name that the resolver has: once it has it.
fn hot(transcript: &Transcript<'_>) -> Finding {
    let Some(first) = transcript.one("prime").filter(|first| first.dated().is_some()) else {
        return LATENCY_HOT.unknown("the name that was to be known had no answer");
    };
    let known = transcript.group("hot").filter(|exchange| exchange.follows(first, 0));
    spread(&known.collect::<Vec<_>>(), &LATENCY_HOT, HOT_MAX_US)
}

fn spread(exchanges: &[&Exchange], check: &'static Check, most_us: u64) -> Finding {
    let all = exchanges.len();
    let mut took: Vec<u64> = exchanges
        .iter()
        .filter(|exchange| exchange.reply().is_some())
        .map(|exchange| exchange.took_us)
        .collect();
    took.sort_unstable();
    if took.is_empty() {
        return check.unknown("no answer came");
    }
    let again: u32 = exchanges.iter().map(|exchange| exchange.sends.saturating_sub(1)).sum();
    let at = |percent: usize| took[(took.len() - 1) * percent / 100];
    let lost = all - took.len();
    let verdict = if lost * 20 > all {
        Verdict::Bad
    } else if at(50) > most_us || lost > 0 || again as usize * REPEATS_SHARE > all {
        Verdict::Notice
    } else {
        Verdict::Good
    };
    let [p50, p90, p99, max] = [at(50), at(90), at(99), at(100)].map(ms);
    check.finding(
        verdict,
        format!("median {p50}, 90 % {p90}, 99 % {p99}, longest {max}; {lost} of {all} without answer, {again} asked again"),
    )
}

fn ms(us: u64) -> String {
    format!("{}.{} ms", us / 1000, us % 1000 / 100)
}
