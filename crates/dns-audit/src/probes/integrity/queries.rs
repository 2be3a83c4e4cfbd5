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
/// Numbers that are apart by less than this are from a small range.
const RANGE_MIN: u16 = 1024;
/// So many pairs of numbers may have one repetition more. Of the 28 000 ports that Linux draws from, as many pairs have 0.125 by chance.
const PAIRS_OF_A_REPETITION: usize = 3500;

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
    let of_each = by_address.into_values().map(without_repeated_queries);
    let most = of_each.max_by_key(Vec::len).unwrap_or_default();
    if most.len() < SAMPLES_MIN {
        let reason =
            format!("{} questions from one address are too few (or the log was not read)", most.len());
        return vec![INTEGRITY_PORTS.unknown(reason.clone()), INTEGRITY_IDS.unknown(reason)];
    }
    let ports: Vec<u16> = most.iter().map(|entry| entry.source.port()).collect();
    let ids: Vec<u16> = most.iter().map(|entry| entry.id).collect();
    vec![randomness(&INTEGRITY_PORTS, &ports), randomness(&INTEGRITY_IDS, &ids)]
}

/// Each query once: one that came twice, by a copy on its way or as it was sent again, shows nothing of how numbers are drawn.
fn without_repeated_queries(entries: Vec<&Entry>) -> Vec<&Entry> {
    let mut seen = BTreeSet::new();
    entries
        .into_iter()
        .filter(|entry| seen.insert((entry.source.port(), entry.id, &entry.qname, entry.qtype)))
        .collect()
}

/// How many of so many drawn numbers may have come before: one of a few dozens is chance, two are a small set (the birthday paradox).
fn repetitions_max(count: usize) -> usize {
    1 + count * count.saturating_sub(1) / 2 / PAIRS_OF_A_REPETITION
}

/// Whether numbers look drawn from a wide range: they hardly repeat, do not count up, and spread.
fn randomness(check: &'static Check, numbers: &[u16]) -> Finding {
    let distinct: BTreeSet<&u16> = numbers.iter().collect();
    let counted =
        numbers.windows(2).filter(|pair| (1..=STEP_MAX).contains(&pair[1].wrapping_sub(pair[0]))).count();
    let range = numbers.iter().max().unwrap_or(&0) - numbers.iter().min().unwrap_or(&0);
    let (verdict, words) = if distinct.len() == 1 {
        (Verdict::Bad, "always the same")
    } else if counted * 2 > numbers.len() {
        (Verdict::Bad, "counted up")
    } else if numbers.len() - distinct.len() > repetitions_max(numbers.len()) {
        (Verdict::Bad, "from a small set")
    } else if range < RANGE_MIN {
        (Verdict::Notice, "from a small range")
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
        let near = [41_000, 41_345, 41_001, 41_033, 41_222, 41_100, 41_444, 41_277, 41_050];
        assert_eq!(verdict(&near), Verdict::Notice);
    }

    #[test]
    fn sixteen_ports_are_a_small_set_and_one_repetition_is_chance() {
        let verdict = |numbers: &[u16]| randomness(&INTEGRITY_PORTS, numbers).verdict;
        let ports: Vec<u16> = (0..20).map(|number: u16| number.wrapping_mul(40_503)).collect();
        assert_eq!(verdict(&ports), Verdict::Good);
        let with_repeated = |count: usize| [&ports[..20 - count], &ports[..count]].concat();
        assert_eq!(verdict(&with_repeated(1)), Verdict::Good);
        assert_eq!(verdict(&with_repeated(2)), Verdict::Bad);
        assert_eq!(verdict(&with_repeated(8)), Verdict::Bad, "12 different ones in 20");
        assert_eq!([20, 40, 200, 1000].map(repetitions_max), [1, 1, 6, 143]);
    }
}
