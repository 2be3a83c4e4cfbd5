//! A zone finds its place in a journal by what it has, not by its serial alone.

use dns_zone::ZoneEditor;

use super::*;
use crate::difference::apply;

fn name(text: &str) -> NameBuf {
    NameBuf::from_text(text.as_bytes(), None).unwrap()
}

/// Version `serial`, with an address for each host and a TTL.
fn zone(serial: u32, hosts: &[(&str, u32)]) -> Zone {
    let mut builder = dns_zone::ZoneBuilder::new(name("example.").as_name(), 3);
    let soa = [&[0, 0][..], &[serial, 1, 2, 3, 4].map(u32::to_be_bytes).concat()].concat();
    builder.add(name("example.").as_name(), 60, Rtype::SOA, &soa).unwrap();
    for (host, ttl) in hosts {
        builder.add(name(&format!("{host}.example.")).as_name(), *ttl, Rtype::A, &[192, 0, 2, 1]).unwrap();
    }
    builder.finish().unwrap()
}

fn journal(versions: &[Zone]) -> Vec<Arc<Difference>> {
    let between = |pair: &[Zone]| Arc::new(Difference::between(&pair[0], &pair[1], 10_000).unwrap());
    versions.windows(2).map(between).collect()
}

/// How many differences a zone lacks.
fn lacks(zone: &Zone, journal: &[Arc<Difference>]) -> Option<usize> {
    lacking(zone, journal).map(<[_]>::len)
}

const HOSTS: [(&str, u32); 3] = [("host1", 60), ("host2", 60), ("host3", 60)];

#[test]
fn each_version_finds_its_place() {
    let versions: Vec<Zone> = (0..=3).map(|count| zone(count + 1, &HOSTS[..count as usize])).collect();
    let journal = journal(&versions);
    for (place, version) in versions.iter().enumerate() {
        assert_eq!(lacks(version, &journal), Some(3 - place));
    }
    assert_eq!(lacks(&versions[0], &[]), None, "it has no version at all");
}

#[test]
fn a_file_with_the_serial_of_a_version_and_without_its_records_has_no_place() {
    let journal =
        journal(&(0..=3).map(|count| zone(count + 1, &HOSTS[..count as usize])).collect::<Vec<_>>());
    for serial in 2..=4 {
        assert_eq!(lacks(&zone(serial, &[]), &journal), None, "{serial}");
        assert_eq!(lacks(&zone(serial, &[("byhand", 60)]), &journal), None, "{serial}");
    }
    assert_eq!(
        lacks(&zone(3, &[HOSTS[0], HOSTS[1], ("byhand", 60)]), &journal),
        Some(1),
        "it has all of them"
    );
    assert_eq!(lacks(&zone(3, &[HOSTS[0], ("host2", 61)]), &journal), None, "another TTL");
    assert_eq!(lacks(&zone(9, &HOSTS), &journal), None, "another serial");
}

#[test]
fn what_was_removed_has_to_be_gone() {
    let journal = journal(&[zone(1, &HOSTS), zone(2, &HOSTS[1..]), zone(3, &HOSTS[2..])]);
    assert_eq!(lacks(&zone(3, &HOSTS[2..]), &journal), Some(0));
    assert_eq!(lacks(&zone(3, &HOSTS[1..]), &journal), None);
    assert_eq!(lacks(&zone(2, &HOSTS), &journal), None);
}

#[test]
fn serials_that_come_round_again_hide_no_version() {
    let serials = [1, 1 << 31, u32::MAX, 1, 5];
    let hosts = [&[][..], &HOSTS[..1], &HOSTS[..2], &HOSTS[..3], &HOSTS[..3]];
    let versions: Vec<Zone> =
        serials.into_iter().zip(hosts).map(|(serial, hosts)| zone(serial, hosts)).collect();
    let journal = journal(&versions[..4]);
    assert_eq!(lacks(&versions[0], &journal), Some(3), "the file is from before");
    assert_eq!(lacks(&versions[3], &journal), Some(0), "the file has it all");
    let longer = self::journal(&versions);
    assert_eq!((lacks(&versions[0], &longer), lacks(&versions[3], &longer)), (Some(4), Some(1)));
}

#[test]
fn differences_that_do_not_follow_each_other_are_no_journal() {
    let mut journal = journal(&[zone(1, &[]), zone(2, &HOSTS[..1]), zone(3, &HOSTS[..2])]);
    journal.swap(0, 1);
    assert_eq!(lacks(&zone(1, &[]), &journal), None);
}

#[test]
fn names_in_data_are_compared_without_case() {
    let target = |zone: &Zone, serial: u32, text: &[u8]| {
        let soa = zone.soa().records().next().unwrap().to_vec();
        let next = self::zone(serial, &[]).soa().records().next().unwrap().to_vec();
        let mut editor = ZoneEditor::new(zone);
        editor.remove(zone.origin(), Rtype::SOA, &soa).unwrap();
        editor.add(zone.origin(), 60, Rtype::SOA, &next).unwrap();
        editor.add(zone.origin(), 60, Rtype::NS, text).unwrap();
        editor.finish().unwrap().zone
    };
    let (first, ours) = (zone(1, &[]), target(&zone(1, &[]), 2, b"\x02ns\x00"));
    let journal = journal(&[first.clone(), ours.clone()]);
    assert_eq!(lacks(&target(&first, 2, b"\x02NS\x00"), &journal), Some(0));
    assert_eq!(lacks(&target(&first, 2, b"\x02mx\x00"), &journal), None);
    let applied = apply(&first, lacking(&first, &journal).unwrap()).unwrap().zone;
    assert!(Difference::between(&applied, &ours, 1000).unwrap().is_nothing());
}
