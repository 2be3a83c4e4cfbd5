//! What a forger would have to guess of the resolver's queries: source port and ID (RFC 5452).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use dns_wire::Rtype;

use crate::authority::{Entry, Via};
use crate::checks::{Check, Finding, INTEGRITY_IDS, INTEGRITY_PORTS, Verdict};
use crate::plan::Planner;
use crate::transcript::Transcript;

/// Fewer queries say nothing.
const SAMPLES_MIN: usize = 8;
/// From one number to the next, where numbers are counted and not drawn.
const STEP_MAX: u16 = 16;

pub(super) fn plan(planner: &mut Planner<'_>) {
    for number in 0..u64::from(planner.options.samples.max(SAMPLES_MIN as u32 + 4)) {
        let spec = planner.spec(60);
        let name = planner.name(&spec);
        planner.ask("queries", 1700 + 100 * number, &name, Rtype::A);
    }
}

pub(super) fn judge(transcript: &Transcript<'_>) -> Vec<Finding> {
    let mut by_address: BTreeMap<IpAddr, Vec<&Entry>> = BTreeMap::new();
    for entry in transcript.logged_for("queries").into_iter().filter(|entry| entry.via == Via::Udp) {
        by_address.entry(entry.source.ip()).or_default().push(entry);
    }
    // A forger takes the easiest of several addresses; here it is the one that asks most.
    let most = by_address.into_values().max_by_key(Vec::len).unwrap_or_default();
    if most.len() < SAMPLES_MIN {
        let reason =
            format!("{} questions from one address are too few (or the log was not read)", most.len());
        return vec![INTEGRITY_PORTS.unknown(reason.clone()), INTEGRITY_IDS.unknown(reason)];
    }
    let ports: Vec<u16> = most.iter().map(|entry| entry.source.port()).collect();
    let ids: Vec<u16> = most.iter().map(|entry| entry.id).collect();
    vec![randomness(&INTEGRITY_PORTS, &ports), randomness(&INTEGRITY_IDS, &ids)]
}

/// Whether numbers look drawn: most are different, they do not count up, and they spread.
fn randomness(check: &'static Check, numbers: &[u16]) -> Finding {
    let distinct: BTreeSet<&u16> = numbers.iter().collect();
    let counted =
        numbers.windows(2).filter(|pair| (1..=STEP_MAX).contains(&pair[1].wrapping_sub(pair[0]))).count();
    let range = numbers.iter().max().unwrap_or(&0) - numbers.iter().min().unwrap_or(&0);
    let (verdict, words) = if distinct.len() == 1 {
        (Verdict::Bad, "always the same")
    } else if counted * 2 > numbers.len() {
        (Verdict::Bad, "counted up")
    } else if distinct.len() * 2 < numbers.len() || range < 1024 {
        (Verdict::Notice, "from a small range, or often the same")
    } else {
        (Verdict::Good, "drawn from a wide range")
    };
    let summary =
        format!("{words}: {} different ones in {} queries, {range} apart", distinct.len(), numbers.len());
    let shown: Vec<String> = numbers.iter().take(12).map(u16::to_string).collect();
    check.finding(verdict, summary).because([shown.join(" ")])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_numbers_are_told_from_counted_and_repeated_ones() {
        let drawn = [41_000, 12_345, 60_001, 33, 52_222, 18_000, 9000, 44_444, 27_777];
        let verdict = |numbers: &[u16]| randomness(&INTEGRITY_IDS, numbers).verdict;
        assert_eq!(verdict(&drawn), Verdict::Good);
        assert_eq!(verdict(&[7; 9]), Verdict::Bad);
        assert_eq!(verdict(&[65_530, 65_532, 65_535, 1, 3, 4, 8, 9, 12]), Verdict::Bad);
        assert_eq!(verdict(&drawn.map(|number| number % 500)), Verdict::Notice);
    }
}
