//! Whether the authority was there. A verdict that needs it says nothing of a resolver while it is not: expired data is allowed then
//! (RFC 8767, 4), and names fail.
//!
//! It was there from one sign of life to the next ([`Presence`]): it has answered itself, where its address is known; it has logged a query; or a
//! resolver had an address that it made for that question. So plans that wait have questions for new names all the time, and all plans have some at
//! the end: no cache has them, and they show that this resolver reaches the authority, too. A finding counts if that is sure for as long as its own
//! questions were asked: what happens to the authority afterwards changes nothing.

use dns_wire::Rtype;

use crate::checks::{Finding, Verdict};
use crate::plan::Planner;
use crate::presence::{Doubt, Presence};
use crate::transcript::{Exchange, Transcript, seconds};

/// The group of the last questions.
const LAST: &str = "last";
/// How many there are, and the time between them: one may be lost at the resolver, and clocks are read with an error.
const COUNT: u64 = 2;
const PACE_MS: u64 = 500;
/// The group of questions for new names in between, and the time from one to the next: two of them, and a repetition, fit a gap.
const PULSE: &str = "pulse";
const PULSE_MS: u64 = 2000;

/// Adds questions in between, where a plan waits, and the last ones. A plan without questions gets none.
pub(super) fn plan(planner: &mut Planner<'_>, waits: bool) {
    let Some(end_ms) = planner.last_ms() else { return };
    let pulses = if waits { end_ms / PULSE_MS } else { 0 };
    let pulses = (1..=pulses).map(|number| (PULSE, number * PULSE_MS));
    let last = (1..=COUNT).map(|number| (LAST, end_ms + number * PACE_MS));
    for (group, at_ms) in pulses.chain(last) {
        let spec = planner.spec(60);
        let name = planner.name(&spec);
        planner.ask(group, at_ms, &name, Rtype::A);
    }
}

/// The finding, or why there is none, as it takes an authority for anything but a good verdict. `names` are the groups of its questions, without what
/// stands behind a point; none for all.
pub(super) fn needed(finding: Finding, transcript: &Transcript<'_>, names: &[&str]) -> Finding {
    match finding.verdict {
        Verdict::Bad | Verdict::Notice => needed_always(finding, transcript, names),
        Verdict::Good | Verdict::Unknown => finding,
    }
}

/// The same for a finding that is not even good without an authority.
pub(super) fn needed_always(finding: Finding, transcript: &Transcript<'_>, names: &[&str]) -> Finding {
    if finding.verdict == Verdict::Unknown {
        return finding;
    }
    match doubt(transcript, names) {
        Some(reason) => finding.not_tested(&reason),
        None => finding,
    }
}

/// Why it is not sure that the resolver could reach the authority while questions of these groups were asked.
fn doubt(transcript: &Transcript<'_>, names: &[&str]) -> Option<String> {
    let is_own = |exchange: &&Exchange| {
        let name = exchange.step.group.split('.').next().unwrap_or_default();
        ![LAST, PULSE].contains(&name) && (names.is_empty() || names.contains(&name))
    };
    let own = || transcript.exchanges.iter().filter(is_own);
    let (sent_ms, came_ms) = (own().map(|own| own.sent_ms).max()?, own().map(Exchange::came_ms).max()?);
    if let Some(reason) = absent(transcript, sent_ms, came_ms) {
        return Some(reason);
    }
    let is_reached = signs(transcript).any(|at_ms| at_ms >= sent_ms);
    (!is_reached).then(|| "later questions for new names did not reach the authority".to_owned())
}

/// Why it is not sure that the authority was there until the last question was sent, and not absent until the last answer came.
pub(super) fn absent(transcript: &Transcript<'_>, sent_ms: u64, came_ms: u64) -> Option<String> {
    let mut presence: Presence = transcript.presence.clone();
    signs(transcript).for_each(|at_ms| presence.add_sign(at_ms));
    let start_ms = transcript.start_ms;
    let is_sure =
        presence.is_sure(start_ms, sent_ms).and_then(|()| presence.is_not_absent(start_ms, came_ms));
    let after = |at_ms: u64| seconds(at_ms.saturating_sub(start_ms));
    is_sure.err().map(|doubt| match doubt {
        Doubt::Absent(at_ms) => {
            format!("the authority itself did not answer, {} after the start", after(at_ms))
        }
        Doubt::Unseen(at_ms) => {
            format!("it is not sure that the authority was there, {} after the start and later", after(at_ms))
        }
    })
}

/// When the resolver reached the authority.
fn signs(transcript: &Transcript<'_>) -> impl Iterator<Item = u64> {
    let made = transcript.exchanges.iter().filter_map(Exchange::authority_seen_ms);
    made.chain(transcript.log.iter().flatten().map(|entry| entry.at_ms))
}
