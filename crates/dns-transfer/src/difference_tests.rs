//! Differences are found, written, read and applied.

use dns_zone::ZoneBuilder;

use super::*;

fn name(text: &str) -> NameBuf {
    NameBuf::from_text(text.as_bytes(), None).unwrap()
}

/// Version `serial`, with an address for each host.
fn zone(serial: u32, hosts: &[(&str, u8)]) -> Zone {
    let mut builder = ZoneBuilder::new(name("example.").as_name(), 3);
    let soa = [&[0, 0][..], &[serial, 1, 2, 3, 4].map(u32::to_be_bytes).concat()].concat();
    builder.add(name("example.").as_name(), 60, Rtype::SOA, &soa).unwrap();
    for (host, last) in hosts {
        builder.add(name(host).as_name(), 60, Rtype::A, &[192, 0, 2, *last]).unwrap();
    }
    builder.finish().unwrap()
}

fn addresses(zone: &Zone) -> Vec<(String, u8)> {
    let of_node = |node: Node<'_>| {
        let name = Name::from_wire(node.name()).unwrap().to_string();
        let records = node.rrset(Rtype::A).into_iter().flat_map(Rrset::records);
        records.map(|rdata| (name.clone(), rdata[3])).collect::<Vec<_>>()
    };
    let mut all: Vec<_> = zone.nodes().flat_map(of_node).collect();
    all.sort();
    all
}

fn between(old: &Zone, new: &Zone) -> Arc<Difference> {
    Arc::new(Difference::between(old, new, 10_000).unwrap())
}

#[test]
fn what_differs_leads_from_one_version_to_the_other_also_when_it_was_written_and_read() {
    let old = zone(1, &[("a.example.", 1), ("a.example.", 2), ("b.example.", 3)]);
    let new = zone(2, &[("a.example.", 2), ("c.d.example.", 4)]);
    let difference = Difference::between(&old, &new, 10_000).unwrap();
    assert_eq!((difference.from(), difference.to(), difference.records().count()), (1, 2, 5));
    let read = Difference::decode(difference.encode()).unwrap();
    assert_eq!(read, difference);
    let changed = apply(&old, &[Arc::new(read)]).unwrap();
    assert_eq!((changed.zone.serial(), addresses(&changed.zone)), (2, addresses(&new)));
    assert!(changed.zone.find(name("b.example.").as_name().as_bytes()).is_none());
}

#[test]
fn versions_with_the_same_records_differ_by_nothing() {
    let hosts = [("a.example.", 1), ("b.example.", 2)];
    assert!(between(&zone(1, &hosts), &zone(1, &hosts)).is_empty());
    assert!(!between(&zone(1, &hosts), &zone(2, &hosts[1..])).is_empty());
}

#[test]
fn a_set_with_another_ttl_is_removed_and_added() {
    let old = zone(1, &[("a.example.", 1)]);
    let mut builder = ZoneEditor::new(&zone(2, &[]));
    builder.add(name("a.example.").as_name(), 5, Rtype::A, &[192, 0, 2, 1]).unwrap();
    let new = builder.finish().unwrap().zone;
    let changed = apply(&old, &[between(&old, &new)]).unwrap();
    let node = changed.zone.find(name("a.example.").as_name().as_bytes()).unwrap();
    assert_eq!((node.rrset(Rtype::A).unwrap().ttl(), node.rrset(Rtype::A).unwrap().count()), (5, 1));
}

#[test]
fn differences_for_another_version_are_refused() {
    let [one, two, three] =
        [(1, 1), (2, 2), (3, 3)].map(|(serial, last)| zone(serial, &[("a.example.", last)]));
    let differences = [between(&one, &two), between(&two, &three)];
    assert_eq!(apply(&one, &differences).unwrap().zone.serial(), 3);
    assert_eq!(apply(&two, &differences).unwrap_err(), Unfit::Version);
    let other = zone(1, &[("a.example.", 9)]);
    assert_eq!(apply(&other, &differences).unwrap_err(), Unfit::Version, "what it removes is not there");
}

#[test]
fn more_octets_than_are_wanted_make_no_difference() {
    let new = zone(2, &[("a.example.", 1), ("b.example.", 2)]);
    assert_eq!(Difference::between(&zone(1, &[]), &new, 100), None);
}

#[test]
fn octets_that_are_no_difference_are_refused() {
    let difference = between(&zone(1, &[("a.example.", 1)]), &zone(2, &[("b.example.", 1)]));
    let octets = difference.encode();
    for len in 0..octets.len() {
        let read = Difference::decode(&octets[..len]);
        assert!(read.is_none_or(|read| read.records().count() < difference.records().count()), "{len}");
    }
    assert_eq!(Difference::decode(&[octets, octets].concat()), None, "four SOA records");
}

#[test]
fn a_history_leads_from_each_version_that_it_knows_to_the_last_one() {
    let versions: Vec<Zone> = (1..6).map(|serial| zone(serial, &[("a.example.", serial as u8)])).collect();
    let differences: Vec<_> = versions.windows(2).map(|pair| between(&pair[0], &pair[1])).collect();
    let history = History::default().with(&differences[..2]).with(&differences[2..]);
    for (from, count) in [(1, 4), (2, 3), (4, 1)] {
        let found = history.between(from, 5).unwrap();
        assert_eq!(found.len(), count);
        let changed = apply(&versions[from as usize - 1], found).unwrap();
        assert_eq!(addresses(&changed.zone), addresses(&versions[4]));
    }
    assert!(history.between(0, 5).is_none() && history.between(1, 4).is_none());
    let gap = History::default().with(&differences[..1]).with(&differences[2..]);
    assert!(gap.between(1, 5).is_none() && gap.between(3, 5).is_some(), "what is behind a gap counts");
}

#[test]
fn a_history_forgets_what_is_too_much() {
    let large = |serial: u32| {
        let mut editor = ZoneEditor::new(&zone(serial, &[]));
        for number in 0..100u32 {
            let rdata = [&serial.to_be_bytes()[..], &number.to_be_bytes(), &[0; 12_000]].concat();
            editor.add(name(&format!("n{number}.example.")).as_name(), 60, Rtype(65_280), &rdata).unwrap();
        }
        editor.finish().unwrap().zone
    };
    let versions: Vec<Zone> = (1..6).map(large).collect();
    let mut history = History::default();
    for pair in versions.windows(2) {
        let difference = Difference::between(&pair[0], &pair[1], usize::MAX).unwrap();
        history = history.with(&[Arc::new(difference)]);
    }
    assert!(history.between(1, 5).is_none() && history.between(4, 5).is_some());
}
