//! Whether the authority was there. A verdict that needs it says nothing of a resolver while it is not: expired data is allowed then
//! (RFC 8767, 4), and names fail.
//!
//! Three things show it. The authority itself is asked all the time, where its address is known. Its log is read at the end. And the last
//! questions of each plan are for new names, which no cache has: their answers, or their lines in the log, show that the resolver reaches it.

use dns_wire::Rtype;

use crate::checks::{Finding, Verdict};
use crate::plan::Planner;
use crate::transcript::{Exchange, Transcript, seconds};

/// The group of the last questions.
const LAST: &str = "last";
/// How many there are, and the time between them: one may be lost at the resolver.
const COUNT: u64 = 2;
const PACE_MS: u64 = 50;

/// Adds the last questions to a plan that has some.
pub(super) fn plan(planner: &mut Planner<'_>) {
    let Some(end_ms) = planner.last_ms() else { return };
    for number in 1..=COUNT {
        let spec = planner.spec(60);
        let name = planner.name(&spec);
        planner.ask(LAST, end_ms + number * PACE_MS, &name, Rtype::A);
    }
}

/// The finding, or why there is none, as it takes an authority for anything but a good verdict.
pub(super) fn needed(finding: Finding, transcript: &Transcript<'_>) -> Finding {
    match finding.verdict {
        Verdict::Bad | Verdict::Notice => needed_always(finding, transcript),
        Verdict::Good | Verdict::Unknown => finding,
    }
}

/// The same for a finding that is not even good without an authority.
pub(super) fn needed_always(finding: Finding, transcript: &Transcript<'_>) -> Finding {
    match absent(transcript) {
        Some(reason) if finding.verdict != Verdict::Unknown => finding.not_tested(&reason),
        _ => finding,
    }
}

/// Why it is not sure that the resolver could reach the authority all the time.
fn absent(transcript: &Transcript<'_>) -> Option<String> {
    if let Some(absences) = &transcript.absences {
        let end_ms = transcript.exchanges.iter().map(Exchange::came_ms).max().unwrap_or(transcript.start_ms);
        let during = absences.iter().find(|(from, until)| *from <= end_ms && *until >= transcript.start_ms);
        if let Some((from, _)) = during {
            let after = seconds(from.saturating_sub(transcript.start_ms));
            return Some(format!("the authority itself did not answer, {after} after the start"));
        }
        if let Err(reason) = &transcript.log {
            return Some(format!("the authority was not there at the end: {reason}"));
        }
    }
    let mut last = transcript.group(LAST).peekable();
    last.peek()?;
    let is_reached =
        last.any(|exchange| exchange.dated().is_some()) || !transcript.logged_for(LAST).is_empty();
    (!is_reached).then(|| "the last questions for new names did not reach the authority".to_owned())
}
