//! Whether the authority's clock ran on during a probe, or this host's did. All times of a transcript are by the authority's clock, which was read before:
//! if one of the two is set meanwhile, fresh data looks old, and old data fresh.
//!
//! A name that nobody has asked for before is in no cache. What comes for it was made between the question and the answer, by any clock that was not set.

use std::collections::BTreeSet;

use crate::checks::{Finding, SERVICE};
use crate::transcript::{CLOCK_SLACK_MS, Exchange, Transcript, seconds};

/// Addresses repeat after 11 minutes: of a clock that was set by more than this, nobody can say by how much.
const KNOWN_MS: u64 = 300_000;
/// One address may look like the authority's by chance.
const MIN: usize = 2;

/// The findings; if a clock was set, none but that the resolver serves this host, and why.
pub(super) fn judged(findings: Vec<Finding>, transcript: &Transcript<'_>) -> Vec<Finding> {
    let Some(first) = set_before(transcript) else { return findings };
    let after = seconds(first.sent_ms.saturating_sub(transcript.start_ms));
    let reason = format!(
        "the authority's clock was set, or this host's: {after} after the start an answer for a new name was {}",
        how_far(first)
    );
    let replace = |finding: Finding| match finding.check == SERVICE.id {
        true => finding,
        false => finding.not_tested(&reason),
    };
    findings.into_iter().map(replace).collect()
}

/// How far the time of an answer lies outside of its exchange.
fn how_far(exchange: &Exchange) -> String {
    let made_ms = exchange.dated().map_or(0, |dated| dated.made_ms);
    let (later_ms, earlier_ms) =
        (made_ms.saturating_sub(exchange.came_ms()), exchange.sent_ms.saturating_sub(made_ms));
    match (later_ms, earlier_ms) {
        (1..=KNOWN_MS, _) => format!("made {} after it came", seconds(later_ms)),
        (0, ..=KNOWN_MS) => format!("made {} before it was asked for", seconds(earlier_ms)),
        _ => "made at another time".to_owned(),
    }
}

/// The first of the answers that were made at another time than by the clock as it was read. `None`: it was not set, so far as can be seen.
pub(super) fn set_before<'t>(transcript: &'t Transcript<'_>) -> Option<&'t Exchange> {
    let mut known = BTreeSet::new();
    let is_new = |exchange: &&Exchange| exchange.spec().is_some_and(|spec| known.insert(spec.number));
    let odd: Vec<&Exchange> = transcript.exchanges.iter().filter(is_new).filter(is_off).collect();
    odd.first().copied().filter(|_| odd.len() >= MIN)
}

/// Whether the address that came for a new name was made before the question, or after the answer.
fn is_off(exchange: &&Exchange) -> bool {
    exchange.dated().is_some_and(|dated| {
        let earliest = exchange.sent_ms.saturating_sub(CLOCK_SLACK_MS);
        !(earliest..=exchange.came_ms() + CLOCK_SLACK_MS).contains(&dated.made_ms)
    })
}
