//! Every zone in `specs/zones/` is read as it says; every one in `broken/` fails as it says.

mod common;

use common::{OwnedRecord, Workspace, records, workspace};
use dns_wire::Rtype;
use dns_zone::text::Position;

fn zone(name: &str) -> Vec<OwnedRecord> {
    let path = format!("specs/zones/{name}.zone");
    let (summary, records) = records(&mut Workspace, &path).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(summary.origin.to_string(), format!("{name}."));
    assert_eq!(summary.record_count, records.len() as u64);
    records
}

/// Owner, TTL and type of each record.
fn heads(records: &[OwnedRecord]) -> Vec<String> {
    records.iter().map(|record| format!("{} {} {}", record.owner, record.ttl, record.rtype)).collect()
}

#[test]
fn the_realistic_zone_is_read() {
    let records = zone("example.com");
    assert!(records.len() >= 110, "{}", records.len());
    let mut rtypes: Vec<Rtype> = records.iter().map(|record| record.rtype).collect();
    rtypes.sort_unstable();
    rtypes.dedup();
    assert!(rtypes.len() >= 50, "{rtypes:?}");
    let ttl_of = |owner: &str| records.iter().find(|record| record.owner.to_string() == owner).unwrap().ttl;
    assert_eq!(ttl_of("ns1.example.com."), 86400);
    assert_eq!(ttl_of("mail.example.com."), 3600);
    assert!(heads(&records).contains(&String::from("Shop.example.com. 3600 CNAME")));
}

#[test]
fn the_reverse_zone_is_generated() {
    let records = zone("2.0.192.in-addr.arpa");
    assert_eq!(records.len(), 3 + 9 + 3 + 1 + 64 + 2 + 1);
    assert_eq!(records[3].owner.to_string(), "1.2.0.192.in-addr.arpa.");
    assert_eq!(records[3].rdata, b"\x08host-001\x07example\x03com\x00");
    assert_eq!(heads(&records[12..13]), ["10.2.0.192.in-addr.arpa. 300 PTR"]);
    let net1 = records.iter().find(|record| record.owner.to_string().starts_with("net1.")).unwrap();
    assert_eq!(net1.rdata, b"\x0enetwork 1 of 2\x09192.0.2.0");
}

#[test]
fn the_zone_in_parts_keeps_origin_and_owner() {
    let heads = heads(&zone("included.example"));
    assert_eq!(
        heads[2..],
        [
            "ns.included.example. 600 A",
            "a.hosts.included.example. 600 A",
            "b.hosts.included.example. 600 A",
            "c.rack1.hosts.included.example. 600 A",
            "d.rack1.hosts.included.example. 600 A",
            "rack1.hosts.included.example. 600 TXT",
            "ns.included.example. 600 AAAA",
            "included.example. 600 MX",
            "mail.included.example. 600 A",
            "last.included.example. 600 TXT",
        ]
    );
}

#[test]
fn the_text_of_exotic_types_becomes_its_generic_form() {
    let (_, generic) = records(&mut Workspace, "specs/zones/exotic.example.generic.zone").unwrap();
    let records = zone("exotic.example");
    assert_eq!(records.len(), generic.len());
    for (record, expected) in records.iter().zip(&generic) {
        let without_place =
            |record: &OwnedRecord| OwnedRecord { position: Position::default(), ..record.clone() };
        assert_eq!(without_place(record), without_place(expected), "{} {}", record.owner, record.rtype);
    }
}

#[test]
fn line_ends_of_other_systems_are_read() {
    assert_eq!(
        heads(&zone("windows.example")),
        ["windows.example. 3600 SOA", "windows.example. 3600 NS", "ns.windows.example. 3600 A"]
    );
}

#[test]
fn broken_zones_fail_as_they_say() {
    let directory = workspace().join("specs/zones/broken");
    let mut count = 0;
    let mut wrong = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let file_name = entry.unwrap().file_name().into_string().unwrap();
        let path = format!("specs/zones/broken/{file_name}");
        let text = std::fs::read_to_string(workspace().join(&path)).unwrap();
        let expected: Vec<String> = text
            .lines()
            .filter_map(|line| line.strip_prefix("; expect "))
            .map(|line| format!("{path}:{line}"))
            .collect();
        assert!(!expected.is_empty(), "{path} does not say what is wrong with it");
        let errors = records(&mut Workspace, &path).expect_err(&path).to_string();
        if errors.lines().ne(&expected) {
            wrong.push(format!("{path} says:\n{errors}"));
        }
        count += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count >= 20);
}
