//! Updates of a small zone.

use std::sync::Arc;

use dns_message::{add_to_count, push_record, question_message};
use dns_zone::ZoneBuilder;

use super::*;
use crate::difference::apply;
use crate::text::write_zone;

fn name(text: &str) -> NameBuf {
    NameBuf::from_text(text.as_bytes(), None).unwrap()
}

fn wire(text: &str) -> Vec<u8> {
    name(text).as_name().as_bytes().to_vec()
}

fn soa(serial: u32) -> Vec<u8> {
    [wire("ns.example."), wire("h.example."), [serial, 1, 2, 3, 4].map(u32::to_be_bytes).concat()].concat()
}

const ONE: &[u8] = &[192, 0, 2, 1];
const TWO: &[u8] = &[192, 0, 2, 2];

/// Two name servers, a host with two addresses, an alias, and a name that only leads to another one.
fn zone() -> Zone {
    let origin = name("example.");
    let mut builder = ZoneBuilder::new(origin.as_name(), 2);
    let mut add = |owner: &str, rtype, rdata: &[u8]| {
        builder.add(name(owner).as_name(), 60, rtype, rdata).unwrap();
    };
    add("example.", Rtype::SOA, &soa(7));
    add("example.", Rtype::NS, &wire("ns.example."));
    add("example.", Rtype::NS, &wire("ns2.example."));
    add("example.", Rtype::MX, &[&[0, 1], &wire("host.example.")[..]].concat());
    add("host.example.", Rtype::A, ONE);
    add("host.example.", Rtype::A, TWO);
    add("alias.example.", Rtype::CNAME, &wire("host.example."));
    add("a.empty.example.", Rtype::A, ONE);
    builder.finish().unwrap()
}

fn record(owner: &str, class: Class, rtype: Rtype, ttl: u32, rdata: &[u8]) -> Record {
    Record { owner: name(owner), rtype, class, ttl, rdata: rdata.to_vec() }
}

fn add(owner: &str, rtype: Rtype, rdata: &[u8]) -> Record {
    record(owner, Class::IN, rtype, 60, rdata)
}

fn run(prerequisites: &[Record], changes: &[Record]) -> Result<Updated, Rcode> {
    Update { prerequisites: prerequisites.to_vec(), changes: changes.to_vec() }.apply(&zone())
}

fn prerequisite(owner: &str, class: Class, rtype: Rtype, rdata: &[u8]) -> Result<(), Rcode> {
    run(&[record(owner, class, rtype, 0, rdata)], &[]).map(|_| ())
}

/// The lines that the zone has less, and those that it has more. What leads there is checked to lead there.
fn lines(updated: Result<Updated, Rcode>) -> (Vec<String>, Vec<String>) {
    let text = |zone: &Zone| text(zone).lines().map(str::to_owned).collect::<Vec<_>>();
    let Updated::Next(changed, difference) = updated.unwrap() else { return Default::default() };
    let (old, new) = (text(&zone()), text(&changed.zone));
    assert_eq!(text(&apply(&zone(), &[Arc::new(*difference)]).unwrap().zone), new);
    let missing = |from: &[String], of: &[String]| {
        let mut missing: Vec<String> = from.iter().filter(|line| !of.contains(line)).cloned().collect();
        missing.retain(|line| !line.contains("SOA"));
        missing
    };
    (missing(&old, &new), missing(&new, &old))
}

/// The serial afterwards; `None` if nothing changed.
fn serial(changes: &[Record]) -> Option<u32> {
    match run(&[], changes).unwrap() {
        Updated::Nothing => None,
        Updated::Next(changed, difference) => {
            assert_eq!((difference.from(), difference.to()), (7, changed.zone.serial()));
            Some(changed.zone.serial())
        }
    }
}

#[test]
fn a_name_is_in_use_if_it_has_records() {
    for (owner, is_used) in [("host.example.", true), ("empty.example.", false), ("none.example.", false)] {
        let (used, unused) =
            if is_used { (Ok(()), Err(Rcode::YxDomain)) } else { (Err(Rcode::NxDomain), Ok(())) };
        assert_eq!(prerequisite(owner, Class::ANY, Rtype::ANY, &[]), used, "{owner}");
        assert_eq!(prerequisite(owner, Class::NONE, Rtype::ANY, &[]), unused, "{owner}");
    }
}

#[test]
fn a_set_may_be_demanded_or_be_demanded_not_to_be_there() {
    assert_eq!(prerequisite("host.example.", Class::ANY, Rtype::A, &[]), Ok(()));
    assert_eq!(prerequisite("host.example.", Class::ANY, Rtype::TXT, &[]), Err(Rcode::NxRrset));
    assert_eq!(prerequisite("host.example.", Class::NONE, Rtype::A, &[]), Err(Rcode::YxRrset));
    assert_eq!(prerequisite("host.example.", Class::NONE, Rtype::TXT, &[]), Ok(()));
}

#[test]
fn a_set_that_is_demanded_with_its_data_has_these_records_and_no_others() {
    let demand = |all: &[&[u8]]| {
        let records: Vec<Record> =
            all.iter().map(|rdata| record("HOST.example.", Class::IN, Rtype::A, 0, rdata)).collect();
        run(&records, &[]).map(|_| ())
    };
    assert_eq!(demand(&[TWO, ONE]), Ok(()));
    assert_eq!(demand(&[ONE]), Err(Rcode::NxRrset));
    assert_eq!(demand(&[ONE, TWO, &[192, 0, 2, 3]]), Err(Rcode::NxRrset));
}

#[test]
fn a_demand_compares_data_as_changes_do_names_without_case_and_other_octets_with_it() {
    let demand = |owner: &str, rtype, rdata: &[u8]| prerequisite(owner, Class::IN, rtype, rdata);
    let mx = |preference: u8, host: &str| [&[0, preference][..], &wire(host)].concat();
    assert_eq!(demand("alias.example.", Rtype::CNAME, &wire("HOST.Example.")), Ok(()));
    assert_eq!(demand("example.", Rtype::MX, &mx(1, "Host.EXAMPLE.")), Ok(()));
    assert_eq!(demand("example.", Rtype::MX, &mx(2, "Host.EXAMPLE.")), Err(Rcode::NxRrset));
    assert_eq!(demand("alias.example.", Rtype::CNAME, &wire("other.example.")), Err(Rcode::NxRrset));
    let removed = lines(run(&[], &[record("example.", Class::NONE, Rtype::MX, 0, &mx(1, "Host.EXAMPLE."))]));
    assert_eq!(removed.0.len(), 1, "what a demand takes for the record, a removal does");
}

#[test]
fn what_is_no_prerequisite_and_no_change_is_a_format_error_and_changes_nothing() {
    assert_eq!(prerequisite("host.example.", Class::ANY, Rtype::A, ONE), Err(Rcode::FormErr));
    assert_eq!(prerequisite("host.example.", Class::CH, Rtype::A, &[]), Err(Rcode::FormErr));
    assert_eq!(prerequisite("host.example.", Class::IN, Rtype::ANY, &[]), Err(Rcode::FormErr));
    assert_eq!(prerequisite("host.other.", Class::ANY, Rtype::A, &[]), Err(Rcode::NotZone));
    let late = record("host.example.", Class::ANY, Rtype::A, 5, &[]);
    assert_eq!(run(std::slice::from_ref(&late), &[]).unwrap_err(), Rcode::FormErr, "TTL");
    for (wrong, code) in [
        (late, Rcode::FormErr),
        (record("host.example.", Class::ANY, Rtype::A, 0, ONE), Rcode::FormErr),
        (record("host.example.", Class::NONE, Rtype::ANY, 0, &[]), Rcode::FormErr),
        (record("host.example.", Class::IN, Rtype::AXFR, 0, &[]), Rcode::FormErr),
        (record("host.example.", Class::CH, Rtype::A, 0, ONE), Rcode::FormErr),
        (add("host.example.", Rtype::MX, b"\x00"), Rcode::FormErr),
        (add("host.example.", Rtype::TXT, b"\x02x"), Rcode::FormErr),
        (add("host.example.", Rtype::TXT, b""), Rcode::FormErr),
        (record("host.example.", Class::IN, Rtype::A, 1 << 31, ONE), Rcode::FormErr),
        (add("host.other.", Rtype::A, ONE), Rcode::NotZone),
        (add("host.example.", Rtype::NSEC, b"\x00"), Rcode::Refused),
    ] {
        let error = run(&[], &[add("new.example.", Rtype::A, ONE), wrong.clone()]).unwrap_err();
        assert_eq!(error, code, "{wrong:?}");
    }
}

#[test]
fn records_are_added_and_their_set_takes_the_new_ttl() {
    let new = record("host.example.", Class::IN, Rtype::A, 300, &[192, 0, 2, 3]);
    let (less, more) = lines(run(&[], &[new]));
    assert_eq!((less.len(), more.len()), (2, 3), "{less:?} {more:?}");
    assert!(more.iter().all(|line| line.contains(" 300 ")), "{more:?}");
    let (less, more) = lines(run(&[], &[add("x.y.example.", Rtype::A, ONE)]));
    assert_eq!((less.len(), more.len()), (0, 1), "{more:?}");
}

#[test]
fn a_cname_replaces_a_cname_and_nothing_else() {
    let alias = |owner: &str| add(owner, Rtype::CNAME, &wire("other.example."));
    let (less, more) = lines(run(&[], &[alias("alias.example.")]));
    assert_eq!((less.len(), more.len()), (1, 1));
    assert_eq!(serial(&[alias("host.example.")]), None, "there are addresses");
    assert_eq!(serial(&[add("alias.example.", Rtype::A, ONE)]), None, "there is a CNAME");
}

#[test]
fn records_sets_and_names_are_deleted() {
    let one = record("host.example.", Class::NONE, Rtype::A, 0, ONE);
    assert_eq!(lines(run(&[], std::slice::from_ref(&one))).0.len(), 1);
    let two = record("host.example.", Class::NONE, Rtype::A, 0, TWO);
    assert_eq!(lines(run(&[], &[one, two])).0.len(), 2);
    assert_eq!(lines(run(&[], &[record("host.example.", Class::ANY, Rtype::A, 0, &[])])).0.len(), 2);
    assert_eq!(lines(run(&[], &[record("host.example.", Class::ANY, Rtype::ANY, 0, &[])])).0.len(), 2);
    assert_eq!(serial(&[record("none.example.", Class::ANY, Rtype::ANY, 0, &[])]), None);
}

#[test]
fn the_apex_keeps_its_soa_and_a_name_server() {
    let all = record("example.", Class::ANY, Rtype::ANY, 0, &[]);
    let (less, _) = lines(run(&[], &[all]));
    assert!(less.len() == 1 && less[0].contains("MX"), "{less:?}");
    assert_eq!(serial(&[record("example.", Class::ANY, Rtype::NS, 0, &[])]), None);
    assert_eq!(serial(&[record("example.", Class::ANY, Rtype::SOA, 0, &[])]), None);
    let server = |text| record("example.", Class::NONE, Rtype::NS, 0, &wire(text));
    let (less, _) = lines(run(&[], &[server("ns.example."), server("ns2.example.")]));
    assert!(less.len() == 1 && less[0].ends_with("ns.example."), "the last one stays: {less:?}");
}

#[test]
fn a_version_gets_a_serial_of_its_own() {
    let change = add("new.example.", Rtype::A, ONE);
    assert_eq!(serial(std::slice::from_ref(&change)), Some(8));
    assert_eq!(serial(&[change.clone(), add("example.", Rtype::SOA, &soa(20))]), Some(20));
    assert_eq!(
        serial(&[change, add("example.", Rtype::SOA, &soa(6))]),
        Some(8),
        "an older one is passed over"
    );
    assert_eq!(serial(&[add("example.", Rtype::SOA, &soa(9))]), Some(9), "the SOA alone");
}

#[test]
fn what_is_added_and_deleted_again_changes_nothing() {
    let deleted = record("new.example.", Class::ANY, Rtype::ANY, 0, &[]);
    assert_eq!(serial(&[add("new.example.", Rtype::A, ONE), deleted]), None);
    assert_eq!(serial(&[add("host.example.", Rtype::A, ONE)]), None, "it is there");
}

#[test]
fn a_long_message_about_one_long_set_is_carried_out_record_by_record() {
    let long = |number: u16| [&[9, b'x'], &number.to_be_bytes()[..], b"longer"].concat();
    let changes =
        |class, ttl| (0..2500).map(move |number| record("t.example.", class, Rtype::TXT, ttl, &long(number)));
    let added: Vec<Record> =
        changes(Class::IN, 60).zip(0..).map(|(one, ttl)| Record { ttl, ..one }).collect();
    let Updated::Next(with, _) = run(&[], &added).unwrap() else { panic!() };
    let set = |zone: &Zone| {
        zone.find(&wire("t.example."))
            .and_then(|node| node.rrset(Rtype::TXT))
            .map(|set| (set.count(), set.ttl()))
    };
    assert_eq!((set(&with.zone), with.zone.record_count()), (Some((2500, 2499)), 8 + 2500));
    let deleted = Update { prerequisites: Vec::new(), changes: changes(Class::NONE, 0).collect() };
    let Updated::Next(without, difference) = deleted.apply(&with.zone).unwrap() else { panic!() };
    assert_eq!((set(&without.zone), without.zone.record_count()), (None, 8));
    assert_eq!(difference.records().count(), 2 + 2500);
}

#[test]
fn a_message_is_read_up_to_its_end() {
    let mut message = question_message(1, 5 << 11, name("example.").as_name(), Rtype::SOA);
    let owner = name("host.example.");
    push_record(&mut message, owner.as_name(), Rtype::A, Class::ANY, 0, &[]);
    push_record(&mut message, owner.as_name(), Rtype::MX, Class::ANY, 0, &[]);
    add_to_count(&mut message, 0, 1);
    add_to_count(&mut message, 1, 1);
    let update = Update::read(&message).unwrap();
    assert_eq!(update.prerequisites, [record("host.example.", Class::ANY, Rtype::A, 0, &[])]);
    assert_eq!(update.changes, [record("host.example.", Class::ANY, Rtype::MX, 0, &[])]);
    for len in 12..message.len() {
        assert!(Update::read(&message[..len]).is_err(), "{len}");
    }
    message.push(0);
    assert!(Update::read(&message).is_err());
}

/// Octets that depend on nothing but the seed: SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed ^ mixed >> 27) % end as u64) as usize
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// A record that mostly makes sense.
    fn record(&mut self) -> Record {
        let owner = self.one_of(&[
            "example.",
            "host.example.",
            "alias.example.",
            "a.empty.example.",
            "b.empty.example.",
            "*.example.",
        ]);
        let class = self.one_of(&[Class::IN, Class::IN, Class::IN, Class::ANY, Class::NONE]);
        let rtype = self.one_of(&[
            Rtype::A,
            Rtype::TXT,
            Rtype::NS,
            Rtype::CNAME,
            Rtype::DNAME,
            Rtype::SOA,
            Rtype(65_280),
            Rtype::ANY,
        ]);
        let ttl = if class == Class::IN { self.below(3) as u32 } else { 0 };
        let data = match rtype {
            Rtype::A => vec![192, 0, 2, self.below(3) as u8],
            Rtype::NS | Rtype::CNAME | Rtype::DNAME => {
                wire(self.one_of(&["ns.example.", "NS2.example.", "t.example."]))
            }
            Rtype::SOA => soa(self.below(20) as u32),
            _ => vec![1, self.below(3) as u8],
        };
        record(owner, class, rtype, ttl, if class == Class::ANY { &[] } else { &data })
    }
}

/// A zone as text, which is also what its file would be.
fn text(zone: &Zone) -> String {
    let mut text = String::new();
    write_zone(zone, &mut text).unwrap();
    text
}

struct OneFile(String);

impl dns_zone::text::Files for OneFile {
    fn open(&mut self, _: &std::path::Path) -> std::io::Result<dns_zone::text::TextFile> {
        Ok(self.0.clone().into_bytes().into())
    }
}

#[test]
fn random_updates_lead_where_their_difference_leads_and_to_zones_that_can_be_read_again() {
    let sorted = |zone: &Zone| {
        let mut lines: Vec<String> = text(zone).lines().map(str::to_lowercase).collect();
        lines.sort();
        lines
    };
    let (mut applied, mut refused) = (0, 0);
    for seed in 0..100 {
        let (mut random, mut held) = (Random(seed), zone());
        for _ in 0..30 {
            let changes = (0..1 + random.below(6)).map(|_| random.record()).collect();
            let next = match (Update { prerequisites: Vec::new(), changes }).apply(&held) {
                Ok(Updated::Next(changed, difference)) => {
                    assert!(is_older(held.serial(), changed.zone.serial()), "seed {seed}");
                    let followed = apply(&held, &[Arc::new(*difference)])
                        .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                    assert_eq!(sorted(&followed.zone), sorted(&changed.zone), "seed {seed}");
                    changed.zone
                }
                Ok(Updated::Nothing) => continue,
                Err(_) => {
                    refused += 1;
                    continue;
                }
            };
            let limits = dns_zone::text::Limits::default();
            let read =
                dns_zone::load_zone(&mut OneFile(text(&next)), "z".as_ref(), Some(next.origin()), &limits, 1);
            let read = read.unwrap_or_else(|errors| panic!("seed {seed}: {errors}"));
            assert_eq!(
                (sorted(&read), read.record_count()),
                (sorted(&next), next.record_count()),
                "seed {seed}"
            );
            (applied, held) = (applied + 1, next);
        }
    }
    assert!(applied > 500 && refused > 100, "{applied} applied, {refused} refused");
}

#[test]
fn no_message_with_random_octets_panics() {
    let mut random = Random(1);
    for _ in 0..20_000 {
        let mut message = question_message(1, 5 << 11, name("example.").as_name(), Rtype::SOA);
        for _ in 0..2 {
            let Record { owner, rtype, class, ttl, rdata } = random.record();
            push_record(&mut message, owner.as_name(), rtype, class, ttl, &rdata);
            add_to_count(&mut message, 1, 1);
        }
        for _ in 0..random.below(4) {
            let at = 12 + random.below(message.len() - 12);
            message[at] = random.below(256) as u8;
        }
        let applied = Update::read(&message).map(|update| update.apply(&zone()));
        if let Ok(Ok(Updated::Next(changed, _))) = applied {
            let file = OneFile(text(&changed.zone));
            let limits = dns_zone::text::Limits::default();
            let read = dns_zone::load_zone(&mut { file }, "z".as_ref(), None, &limits, 1);
            read.unwrap_or_else(|errors| panic!("{errors}"));
        }
    }
}

#[test]
fn a_digest_of_the_zone_goes_with_the_version_that_it_is_of_unless_the_update_brings_one() {
    let digest = |serial: u32| [&serial.to_be_bytes()[..], &[1, 1], &[serial as u8; 48]].concat();
    let mut editor = ZoneEditor::new(&zone());
    editor.add(name("example.").as_name(), 60, Rtype::ZONEMD, &digest(7)).unwrap();
    let held = editor.finish().unwrap().zone;
    let digests_after = |changes: &[Record]| {
        let update = Update { prerequisites: Vec::new(), changes: changes.to_vec() };
        let Updated::Next(changed, difference) = update.apply(&held).unwrap() else { return None };
        assert_eq!(text(&apply(&held, &[Arc::new(*difference)]).unwrap().zone), text(&changed.zone));
        let apex = changed.zone.find(name("example.").as_name().as_bytes()).unwrap();
        Some(apex.rrset(Rtype::ZONEMD).map_or(0, |set| set.records().count()))
    };
    assert_eq!(digests_after(&[add("host.example.", Rtype::A, ONE)]), None, "it changes nothing");
    assert_eq!(digests_after(&[add("new.example.", Rtype::A, ONE)]), Some(0));
    let own = [
        add("new.example.", Rtype::A, ONE),
        record("example.", Class::ANY, Rtype::ZONEMD, 0, &[]),
        add("example.", Rtype::ZONEMD, &digest(8)),
    ];
    assert_eq!(digests_after(&own), Some(1));
}

/// RFC 4035, 2.4.
#[test]
fn a_ds_record_of_the_zone_itself_is_the_parents() {
    let digest = [0, 1, 13, 2, 7];
    let changes = vec![add("example.", Rtype::DS, &digest), add("new.example.", Rtype::DS, &digest)];
    let Ok(Updated::Next(changed, _)) = (Update { prerequisites: Vec::new(), changes }).apply(&zone()) else {
        panic!("something changes")
    };
    let has = |owner: &str| {
        let node = changed.zone.find(name(owner).as_name().as_bytes());
        node.is_some_and(|node| node.rrset(Rtype::DS).is_some())
    };
    assert_eq!((has("example."), has("new.example.")), (false, true));
}

/// RFC 4592, 4.2; as BIND has it.
#[test]
fn servers_at_a_wildcard_are_passed_over_and_go_where_they_are() {
    let servers = wire("ns.example.");
    let changes = [add("*.w.example.", Rtype::NS, &servers), add("new.example.", Rtype::A, ONE)];
    let update = Update { prerequisites: Vec::new(), changes: changes.to_vec() };
    let named: Vec<String> = update.wildcard_servers().map(|owner| owner.to_string()).collect();
    assert_eq!(named, ["*.w.example."]);
    let Ok(Updated::Next(changed, _)) = update.apply(&zone()) else { panic!("something changes") };
    let at = |owner: &str| changed.zone.find(name(owner).as_name().as_bytes()).is_some();
    assert_eq!((at("*.w.example."), at("new.example.")), (false, true));
    let mut builder = ZoneBuilder::new(name("example.").as_name(), 2);
    for (owner, rtype, rdata) in [("example.", Rtype::SOA, &soa(7)), ("*.w.example.", Rtype::NS, &servers)] {
        builder.add(name(owner).as_name(), 60, rtype, rdata).unwrap();
    }
    let removal = record("*.w.example.", Class::NONE, Rtype::NS, 0, &servers);
    let update = Update { prerequisites: Vec::new(), changes: vec![removal] };
    assert_eq!(update.wildcard_servers().count(), 0);
    assert!(matches!(update.apply(&builder.finish().unwrap()), Ok(Updated::Next(..))));
}
