//! A table says of each address what a look at all prefixes says, and its lengths are right for caches: whatever shares so many bits with the
//! address belongs to the same line, and a bit less would not do.
//!
//! `PROPTEST_RNG_SEED=n PROPTEST_CASES=m cargo test -p dns-lines` tries other prefixes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use dns_lines::{Found, LineId, LineTable, LineTableBuilder, Prefix};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};

/// A prefix, its rank and its line.
type Entry = (Prefix, u8, u16);

/// The line by the words of the rule: highest rank first, then longest prefix.
fn model(entries: &[Entry], address: IpAddr) -> Option<LineId> {
    let holding = entries.iter().filter(|(prefix, ..)| prefix.contains(address));
    holding.max_by_key(|(prefix, rank, _)| (*rank, prefix.length())).map(|(.., line)| LineId(*line))
}

/// Addresses close together, so that prefixes lie within each other, of both families.
fn address() -> impl Strategy<Value = IpAddr> {
    let v4 = (0u32..4, any::<u8>(), 0u32..3).prop_map(|(high, low, middle)| {
        IpAddr::V4(Ipv4Addr::from_bits(10 << 24 | high << 22 | middle << 8 | u32::from(low)))
    });
    let v6 = (0u128..4, any::<u8>(), 0u128..3).prop_map(|(high, low, middle)| {
        IpAddr::V6(Ipv6Addr::from_bits(0x2001_0db8 << 96 | high << 90 | middle << 40 | u128::from(low)))
    });
    prop_oneof![v4, v6]
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let entry = (address(), 0u8..=128, 0u8..3, 0u16..4);
    let entry = entry.prop_map(|(address, length, rank, line)| {
        let width = if address.is_ipv4() { 32 } else { 128 };
        (Prefix::new(address, length % (width + 1)), rank, line)
    });
    proptest::collection::vec(entry, 0..25).prop_map(|mut entries| {
        // A prefix belongs to one line.
        let mut seen = std::collections::HashSet::new();
        entries.retain(|(prefix, rank, _)| seen.insert((*prefix, *rank)));
        entries
    })
}

fn table(entries: &[Entry]) -> LineTable {
    let mut builder = LineTableBuilder::default();
    entries.iter().for_each(|&(prefix, rank, line)| builder.add(prefix, LineId(line), rank));
    builder.finish().unwrap()
}

/// The address with its bit number `bit` from the left turned over.
fn flipped(address: IpAddr, bit: u8) -> IpAddr {
    match address {
        IpAddr::V4(own) => Ipv4Addr::from_bits(own.to_bits() ^ 1 << (31 - bit)).into(),
        IpAddr::V6(own) => Ipv6Addr::from_bits(own.to_bits() ^ 1 << (127 - bit)).into(),
    }
}

/// Addresses among those with the first `length` bits of `address`, at least one of each block whose addresses are alike: whatever is next to an end of
/// a prefix, and what branches off on the way to `address`.
fn within(address: IpAddr, length: u8, entries: &[Entry]) -> Vec<IpAddr> {
    let width = |address: IpAddr| if address.is_ipv4() { 32 } else { 128 };
    let block = Prefix::new(address, length);
    let ends = entries.iter().flat_map(|(prefix, ..)| {
        let first = prefix.address();
        let last = (prefix.length()..width(first)).fold(first, flipped);
        let others = prefix.length().checked_sub(1).map(|bit| [flipped(first, bit), flipped(last, bit)]);
        [first, last].into_iter().chain(others.into_iter().flatten())
    });
    let beside = (length..width(address)).map(|bit| flipped(address, bit));
    ends.chain(beside).filter(|address| block.contains(*address)).collect()
}

#[test]
fn a_table_is_what_all_of_its_prefixes_say() {
    let config =
        Config { cases: 400, rng_seed: RngSeed::Fixed(7), failure_persistence: None, ..Config::default() };
    let tested = (entries(), proptest::collection::vec(address(), 1..30));
    TestRunner::new(config)
        .run(&tested, |(entries, others)| {
            let table = table(&entries);
            let edges = entries.iter().flat_map(|(prefix, ..)| {
                [prefix.address()]
                    .into_iter()
                    .chain(prefix.length().checked_sub(1).map(|bit| flipped(prefix.address(), bit)))
            });
            for address in edges.chain(others) {
                let Found { line, length } = table.find(address);
                prop_assert_eq!(line, model(&entries, address), "{}", address);
                for other in within(address, length, &entries) {
                    prop_assert_eq!(model(&entries, other), line, "{}/{} has {}", address, length, other);
                }
                if let Some(shorter) = length.checked_sub(1) {
                    let all = within(address, shorter, &entries);
                    let differs = all.iter().any(|other| model(&entries, *other) != line);
                    prop_assert!(differs, "{}/{} could be shorter", address, length);
                }
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_prefix_within_another_makes_the_answers_for_its_neighbours_narrower() {
    let entries = ["10.0.0.0/8", "10.1.0.0/16"].map(|text| text.parse().unwrap());
    let table = table(&[(entries[0], 0, 0), (entries[1], 0, 1)]);
    let found = |text: &str| {
        let Found { line, length } = table.find(text.parse().unwrap());
        (line.map(|line| line.0), length)
    };
    assert_eq!(found("10.1.2.3"), (Some(1), 16));
    assert_eq!(found("10.0.2.3"), (Some(0), 16), "its neighbour with 15 common bits is another line's");
    assert_eq!(found("10.2.0.1"), (Some(0), 15));
    assert_eq!(found("10.128.0.1"), (Some(0), 9));
    assert_eq!(found("11.0.0.1"), (None, 8));
    assert_eq!(found("::1"), (None, 0));
    assert_eq!(found("::ffff:10.1.2.3"), (Some(1), 16));
}

#[test]
fn neighbours_of_one_line_are_one_block() {
    let halves = ["192.0.2.0/25", "192.0.2.128/25"].map(|text| (text.parse().unwrap(), 0, 3));
    let found = table(&halves).find("192.0.2.200".parse().unwrap());
    assert_eq!(found, Found { line: Some(LineId(3)), length: 24 });
}

#[test]
fn a_higher_rank_counts_before_a_longer_prefix() {
    let own = ("198.51.100.0/24".parse().unwrap(), 3, 0);
    let country = ("198.51.100.64/26".parse().unwrap(), 0, 1);
    let found = table(&[own, country]).find("198.51.100.70".parse().unwrap());
    assert_eq!(found, Found { line: Some(LineId(0)), length: 24 });
}

#[test]
fn a_prefix_of_two_lines_is_an_error_that_names_both() {
    let mut builder = LineTableBuilder::default();
    for line in [4, 2] {
        builder.add("192.0.2.0/24".parse().unwrap(), LineId(line), 1);
    }
    let error = builder.finish().unwrap_err();
    assert_eq!(error.to_string(), "192.0.2.0/24 is in two lines");
    assert!(error.lines.contains(&LineId(2)) && error.lines.contains(&LineId(4)));
}

#[test]
fn the_whole_of_both_families_can_be_a_line_each() {
    let table = table(&[("0.0.0.0/0".parse().unwrap(), 0, 1), ("::/0".parse().unwrap(), 0, 2)]);
    for (address, line) in [("0.0.0.0", 1), ("255.255.255.255", 1), ("::", 2), ("ffff::ffff", 2)] {
        let found = table.find(address.parse().unwrap());
        assert_eq!(found, Found { line: Some(LineId(line)), length: 0 }, "{address}");
    }
}
