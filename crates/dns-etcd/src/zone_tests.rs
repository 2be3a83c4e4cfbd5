//! Zones follow what transactions do to their keys.

use std::sync::Arc;

use dns_transfer::difference::apply;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::*;
use crate::value::read_records;

const ORIGIN: &str = "example.org.";

fn name(text: &str) -> NameBuf {
    let origin = NameBuf::from_text(ORIGIN.as_bytes(), None).unwrap();
    NameBuf::from_text(text.as_bytes(), Some(origin.as_name())).unwrap()
}

/// `value` becomes the value of a key; an empty one deletes it.
fn change(owner: &str, rtype: Rtype, value: &str) -> SetChange {
    let (zone, owner) = (name("@"), name(owner));
    let read = || read_records(zone.as_name(), owner.as_name(), rtype, value.as_bytes());
    let set = (!value.is_empty()).then(read);
    SetChange { owner, rtype, set }
}

fn empty() -> EtcdZone {
    EtcdZone::new(name("@").as_name(), 7)
}

/// A zone at revision 10.
fn zone() -> EtcdZone {
    let mut zone = empty();
    let sets = [
        change("@", Rtype::NS, "300 ns2\n300 ns1"),
        change("ns1", Rtype::A, "300 192.0.2.1"),
        change("www", Rtype::A, "300 192.0.2.80"),
        change("ftp", Rtype::CNAME, "300 www"),
    ];
    assert!(matches!(zone.read(10, sets), Outcome { step: Step::First, refused } if refused.is_empty()));
    zone
}

/// All records but the SOA, in an order of their own.
fn records(zone: &Zone) -> Vec<(String, u16, u32, Vec<u8>)> {
    let mut all = Vec::new();
    for node in zone.nodes() {
        let owner = Name::from_wire(node.name()).unwrap().to_string();
        for set in node.rrsets().filter(|set| set.rtype() != Rtype::SOA) {
            all.extend(set.records().map(|rdata| (owner.clone(), set.rtype().0, set.ttl(), rdata.to_vec())));
        }
    }
    all.sort();
    all
}

fn soa(zone: &EtcdZone) -> (u32, u32, Vec<u8>) {
    let soa = zone.zone().unwrap().soa();
    (zone.zone().unwrap().serial(), soa.ttl(), soa.records().next().unwrap().to_vec())
}

fn has(zone: &EtcdZone, owner: &str, rtype: Rtype) -> bool {
    let node = zone.zone().unwrap().find(name(owner).as_name().as_bytes());
    node.is_some_and(|node| node.rrset(rtype).is_some())
}

fn refused(outcome: &Outcome) -> Vec<String> {
    assert!(outcome.refused.is_empty() || matches!(outcome.step, Step::Same));
    outcome.refused.iter().map(ToString::to_string).collect()
}

fn names_of(step: &Step) -> Vec<String> {
    let Step::Next(changed, difference) = step else { panic!("{step:?}") };
    assert!(changed.names.is_some(), "it was built anew");
    difference.records().map(|record| format!("{} {}", record.owner, record.rtype)).collect()
}

#[test]
fn a_soa_is_made_with_the_revision_as_serial() {
    let (serial, ttl, rdata) = soa(&zone());
    assert_eq!((serial, ttl), (10, SOA_TTL));
    let (server, rest) = Name::split_from(&rdata).unwrap();
    let (mailbox, _) = Name::split_from(rest).unwrap();
    assert_eq!((server, mailbox), (name("ns1").as_name(), name("hostmaster").as_name()));
}

#[test]
fn a_given_soa_adds_its_serial_to_the_revision() {
    let mut zone = zone();
    let given = |serial: u32| change("@", Rtype::SOA, &format!("60 ns1 admin {serial} 1 2 3 4"));
    zone.change(11, [given(2_026_000_000)]);
    assert_eq!((soa(&zone).0, soa(&zone).1), (2_026_000_011, 60));
    assert!(matches!(zone.change(12, [given(2_026_000_000)]).step, Step::Same));
    zone.change(13, [change("www", Rtype::A, "")]);
    assert_eq!(soa(&zone).0, 2_026_000_013);
    zone.change(14, [given(5)]);
    assert_eq!(soa(&zone).0, 19);
    zone.change(15, [change("@", Rtype::SOA, "")]);
    assert_eq!((soa(&zone).0, soa(&zone).1), (15, SOA_TTL));
}

#[test]
fn a_transaction_is_one_version_in_which_only_its_names_differ() {
    let mut zone = zone();
    let outcome =
        zone.change(20, [change("www", Rtype::A, "300 192.0.2.81"), change("new", Rtype::TXT, "60 hello")]);
    let soa = "example.org. SOA";
    let expected = [soa, "www.example.org. A", soa, "new.example.org. TXT", "www.example.org. A"];
    assert_eq!(names_of(&outcome.step), expected);
    assert_eq!(zone.zone().unwrap().serial(), 20);
    assert!(matches!(zone.change(21, [change("new", Rtype::TXT, "60 hello")]).step, Step::Same));
    assert_eq!(zone.zone().unwrap().serial(), 20, "nothing has changed");
}

#[test]
fn an_alias_gives_way_to_an_address_in_one_transaction_and_not_without() {
    let mut zone = zone();
    let address = || change("ftp", Rtype::A, "300 192.0.2.21");
    let outcome = zone.change(11, [address()]);
    assert_eq!(refused(&outcome), ["ftp.example.org. A: a CNAME and other data at the same name"]);
    assert!(has(&zone, "ftp", Rtype::CNAME) && zone.waiting() == 1);
    // What was missing comes later, and both are carried out.
    assert!(refused(&zone.change(12, [change("ftp", Rtype::CNAME, "")])).is_empty());
    assert!(has(&zone, "ftp", Rtype::A) && !has(&zone, "ftp", Rtype::CNAME) && zone.waiting() == 0);
    zone.change(13, [change("ftp", Rtype::A, ""), change("ftp", Rtype::CNAME, "60 www")]);
    assert!(has(&zone, "ftp", Rtype::CNAME));
}

#[test]
fn a_wrong_record_has_its_transaction_wait_and_no_other_one() {
    let mut zone = zone();
    let outcome = zone
        .change(11, [change("www", Rtype::A, "300 192.0.2.300"), change("mail", Rtype::A, "300 192.0.2.25")]);
    assert!(refused(&outcome)[0].starts_with("www.example.org. A: line 1: "));
    assert!(has(&zone, "www", Rtype::A) && !has(&zone, "mail", Rtype::A));
    assert_eq!((zone.zone().unwrap().serial(), zone.waiting()), (10, 2));
    assert!(refused(&zone.change(12, [change("other", Rtype::A, "300 192.0.2.9")])).is_empty());
    assert_eq!((zone.zone().unwrap().serial(), zone.waiting()), (12, 2));
    assert!(refused(&zone.change(13, [change("www", Rtype::A, "300 192.0.2.30")])).is_empty());
    assert!(has(&zone, "mail", Rtype::A) && zone.waiting() == 0, "what was right beside it came along");
}

#[test]
fn a_zone_that_loses_all_records_at_once_keeps_them_until_it_has_others() {
    let mut zone = zone();
    let all = || {
        [("@", Rtype::NS), ("ns1", Rtype::A), ("www", Rtype::A), ("ftp", Rtype::CNAME)]
            .map(|(owner, rtype)| change(owner, rtype, ""))
    };
    assert!(refused(&zone.change(11, all()))[0].contains("all of its 5 records at once"));
    assert!(has(&zone, "www", Rtype::A));
    assert!(refused(&zone.read(12, []))[0].contains("all of its 5 records"), "also when it is read anew");
    zone.change(13, [change("new", Rtype::A, "60 192.0.2.7")]);
    assert_eq!((zone.zone().unwrap().record_count(), zone.waiting()), (2, 0));
}

#[test]
fn a_zone_without_records_is_not_there_yet() {
    let mut zone = empty();
    assert!(matches!(zone.read(5, []).step, Step::Same) && zone.zone().is_none());
    let outcome = zone.change(6, [change("www", Rtype::A, "300 192.0.2.1")]);
    assert!(matches!(outcome.step, Step::First) && zone.zone().unwrap().serial() == 6);
}

#[test]
fn a_zone_with_wrong_records_begins_without_these_names_and_with_a_wrong_soa_not_at_all() {
    let good = || change("www", Rtype::A, "300 192.0.2.1");
    let mut zone = empty();
    let sets = [good(), change("bad", Rtype::A, "x"), change("bad", Rtype::TXT, "60 x")];
    let outcome = zone.read(5, sets);
    assert_eq!((outcome.refused.len(), zone.zone().unwrap().record_count(), zone.waiting()), (1, 2, 2));
    zone.change(6, [change("bad", Rtype::A, "60 192.0.2.2")]);
    assert_eq!((zone.zone().unwrap().record_count(), zone.waiting()), (4, 0));

    let mut zone = empty();
    assert_eq!(refused(&zone.read(5, [good(), change("@", Rtype::SOA, "60 ns host x 1 1 1 1")])).len(), 1);
    assert!(zone.zone().is_none());
    zone.change(6, [change("@", Rtype::SOA, "60 ns host 0 1 1 1 1")]);
    assert_eq!(zone.zone().unwrap().record_count(), 2);
}

#[test]
fn what_is_kept_over_a_restart_keeps_its_serial_unless_it_differs() {
    let kept = || EtcdZone::resumed(zone().held.unwrap(), 9);
    let same = [
        change("@", Rtype::NS, "300 ns1\n300 ns2"),
        change("ns1", Rtype::A, "300 192.0.2.1"),
        change("www", Rtype::A, "300 192.0.2.80"),
        change("ftp", Rtype::CNAME, "300 www"),
    ];
    let mut zone = kept();
    assert!(matches!(zone.read(50, same.clone()).step, Step::Same));
    assert_eq!(zone.zone().unwrap().serial(), 10);
    let outcome = kept().read(50, same[..3].to_vec());
    assert_eq!(names_of(&outcome.step), ["example.org. SOA", "ftp.example.org. CNAME", "example.org. SOA"]);
    // An etcd that has not come to that revision is another one, whose serials begin anew.
    let mut zone = kept();
    assert!(matches!(zone.read(7, same.clone()).step, Step::Next(..)));
    assert_eq!(zone.zone().unwrap().serial(), 7);
    let with_base = [&same[..], &[change("@", Rtype::SOA, "3600 ns1 hostmaster 1000 3600 600 1209600 300")]];
    let mut zone = kept();
    assert!(matches!(zone.read(50, with_base.concat()).step, Step::Next(..)));
    assert_eq!(zone.zone().unwrap().serial(), 1050);
}

#[test]
fn names_whose_values_are_wrong_stay_when_a_zone_is_read_anew() {
    let mut zone = zone();
    let sets = [
        change("www", Rtype::A, "nonsense"),
        change("ns1", Rtype::A, "300 192.0.2.2"),
        change("@", Rtype::NS, "300 ns1"),
    ];
    let outcome = zone.read(50, sets);
    assert_eq!(outcome.refused.len(), 1);
    assert!(
        matches!(outcome.step, Step::Next(..))
            && has(&zone, "www", Rtype::A)
            && !has(&zone, "ftp", Rtype::CNAME)
    );
    assert_eq!(zone.waiting(), 1);
}

#[test]
fn a_zone_is_read_without_the_names_that_are_wrong_however_many_kinds_of_errors_there_are() {
    let sets = |www: &str| {
        [
            change("www", Rtype::A, www),
            change("bad", Rtype::A, "garbage"),
            change("both", Rtype::A, "60 192.0.2.2"),
            change("both", Rtype::CNAME, "60 www"),
        ]
    };
    let mut zone = empty();
    let outcome = zone.read(5, sets("60 192.0.2.1"));
    assert_eq!((outcome.refused.len(), zone.waiting()), (2, 3));
    assert!(has(&zone, "www", Rtype::A) && !has(&zone, "both", Rtype::A));
    let outcome = zone.read(6, sets("60 192.0.2.9"));
    assert!(matches!(outcome.step, Step::Next(..)), "it is not held back when it is read anew either");
}

#[test]
fn a_zone_that_was_kept_stays_as_it_is_while_its_soa_is_wrong() {
    let mut first = empty();
    first.read(
        5,
        [change("@", Rtype::SOA, "60 ns host 1000 1 1 1 1"), change("www", Rtype::A, "60 192.0.2.1")],
    );
    let mut zone = EtcdZone::resumed(first.held.unwrap(), 9);
    let outcome =
        zone.read(7, [change("@", Rtype::SOA, "60 ns host"), change("www", Rtype::A, "60 192.0.2.1")]);
    assert!(matches!(outcome.step, Step::Same) && outcome.refused.len() == 1);
    assert_eq!(zone.zone().unwrap().serial(), 1005);
}

#[test]
fn another_content_has_another_serial_also_if_etcd_had_that_revision_before() {
    let mut zone = zone();
    // A backup was restored, and has come to the same revision by other changes.
    let sets = [change("@", Rtype::NS, "300 ns1"), change("ns1", Rtype::A, "300 192.0.2.77")];
    assert!(matches!(zone.read(10, sets.clone()).step, Step::Next(..)));
    assert_eq!(zone.zone().unwrap().serial(), 11);
    assert!(matches!(zone.read(10, sets).step, Step::Same));
    zone.change(11, [change("www", Rtype::A, "60 192.0.2.1")]);
    zone.change(13, [change("www", Rtype::A, "60 192.0.2.3")]);
    assert_eq!(zone.zone().unwrap().serial(), 13, "then they agree with those of others again");
}

#[test]
fn a_name_that_is_wrong_keeps_no_other_name_from_being_tried() {
    let mut zone = zone();
    zone.change(
        11,
        [
            change("www", Rtype::A, "x"),
            change("ftp", Rtype::A, "60 192.0.2.21"),
            change("m", Rtype::A, "60 192.0.2.1"),
        ],
    );
    // One of both is mended by another transaction, which is carried out alone.
    zone.change(12, [change("ftp", Rtype::CNAME, "")]);
    assert!(!has(&zone, "ftp", Rtype::CNAME) && zone.waiting() == 3);
    zone.change(13, [change("www", Rtype::A, "60 192.0.2.2")]);
    assert!(has(&zone, "ftp", Rtype::A) && has(&zone, "m", Rtype::A) && zone.waiting() == 0);
}

#[test]
fn what_was_put_and_deleted_while_it_waited_leaves_nothing() {
    let mut zone = zone();
    zone.change(11, [change("www", Rtype::A, "x")]);
    for number in 0..20 {
        let owner = format!("n{number}");
        zone.change(12, [change("bad", Rtype::A, "x"), change(&owner, Rtype::A, "60 192.0.2.1")]);
        zone.change(13, [change("bad", Rtype::A, "y"), change(&owner, Rtype::A, "")]);
    }
    assert_eq!(zone.waiting(), 2);
}

/// Owner, type and value of a key; some do not go together, and some are wrong.
fn any_change() -> impl Strategy<Value = (usize, usize, usize)> {
    (0usize..4, 0usize..5, 0usize..5)
}

/// `(number, value)` of what is drawn.
fn drawn((owner, rtype, value): (usize, usize, usize)) -> (&'static str, Rtype, &'static str) {
    let owner = ["@", "a", "b.a", "*"][owner];
    let (rtype, values) = [
        (Rtype::A, ["", "60 192.0.2.1", "60 192.0.2.2\n30 192.0.2.3", "x", "30 192.0.2.1"]),
        (Rtype::TXT, ["", "60 a", "60 b", "60 \"", "60 c\n60 a"]),
        (Rtype::CNAME, ["", "60 a", "60 b.a", "60 a\n60 b", "60 @"]),
        (Rtype::NS, ["", "60 ns1.a", "60 b.a", "", "60 ns.example.net."]),
        (Rtype::SOA, ["", "60 a b 0 1 1 1 1", "30 a c 0 1 1 1 1", "60 a b", ""]),
    ][rtype];
    (owner, rtype, values[value])
}

/// What etcd has.
type Store = BTreeMap<(&'static str, u16), &'static str>;

fn sets_of(store: &Store) -> Vec<SetChange> {
    store.iter().map(|((owner, rtype), value)| change(owner, Rtype(*rtype), value)).collect()
}

/// A zone that was read has all that etcd has, but for names of which something is wrong.
fn check_names(
    revision: u64,
    store: &Store,
    read: &EtcdZone,
    refused: &[Refusal],
) -> Result<(), TestCaseError> {
    let owners: Vec<_> = refused.iter().filter_map(|refusal| refusal.about.as_ref()).collect();
    if owners.len() < refused.len()
        || owners.iter().any(|(owner, rtype)| **owner == name("@") && *rtype == Rtype::SOA)
    {
        return Ok(()); // Nothing of it is served.
    }
    let is_right = |owner: &str| owners.iter().all(|(wrong, _)| **wrong != name(owner));
    let right: Store =
        store.iter().filter(|((owner, _), _)| is_right(owner)).map(|(key, value)| (*key, *value)).collect();
    let mut without = empty();
    prop_assert!(without.read(revision, sets_of(&right)).refused.is_empty());
    prop_assert_eq!(read.zone().map(records), without.zone().map(records));
    Ok(())
}

/// What does not wait is as etcd has it.
fn check_waiting(store: &Store, zone: &EtcdZone) -> Result<(), TestCaseError> {
    let Some(held) = zone.zone() else { return Ok(()) };
    for owner in ["@", "a", "b.a", "*"] {
        for rtype in [Rtype::A, Rtype::TXT, Rtype::CNAME, Rtype::NS] {
            if zone.waiting.contains_key(&(name(owner), rtype.0)) {
                continue;
            }
            let node = held.find(name(owner).as_name().as_bytes());
            let set = node.as_ref().and_then(|node| node.rrset(rtype));
            let expected =
                store.get(&(owner, rtype.0)).map(|value| change(owner, rtype, value).set.unwrap().unwrap());
            prop_assert_eq!(set.is_some(), expected.is_some(), "{} {}", owner, rtype);
            prop_assert!(set.zip(expected).is_none_or(|(set, own)| is_same(&own, &set)));
        }
    }
    Ok(())
}

/// Checks a zone that follows transactions against one that reads all that etcd has.
fn check(transactions: Vec<Vec<(usize, usize, usize)>>) -> Result<(), TestCaseError> {
    let (mut store, mut zone) = (Store::new(), empty());
    for (number, transaction) in transactions.into_iter().enumerate() {
        let revision = number as u64 + 1;
        let drawn: BTreeMap<_, _> = transaction
            .into_iter()
            .map(drawn)
            .map(|(owner, rtype, value)| ((owner, rtype.0), value))
            .collect();
        for (key, value) in &drawn {
            match value.is_empty() {
                true => store.remove(key),
                false => store.insert(*key, value),
            };
        }
        let before = zone.zone().cloned();
        let changes = drawn.iter().map(|((owner, rtype), value)| change(owner, Rtype(*rtype), value));
        let outcome = zone.change(revision, changes.collect::<Vec<_>>());
        if let (Step::Next(changed, difference), Some(before)) = (&outcome.step, &before) {
            prop_assert_eq!((difference.from(), difference.to()), (before.serial(), revision as u32));
            let applied = apply(before, &[Arc::new((**difference).clone())]).unwrap();
            prop_assert_eq!(records(&applied.zone), records(&changed.zone));
            prop_assert_eq!(applied.zone.soa().records().next(), changed.zone.soa().records().next());
        }
        // Nothing waits without a reason, and whoever waits for nothing has what whoever reads it all has.
        let mut other = empty();
        let read = other.read(revision, sets_of(&store));
        let is_right = read.refused.is_empty();
        let is_empty = store.keys().all(|(_, rtype)| *rtype == Rtype::SOA.0);
        check_names(revision, &store, &other, &read.refused)?;
        check_waiting(&store, &zone)?;
        if zone.waiting() == 0 {
            prop_assert!(is_right);
            prop_assert_eq!(zone.zone().map(records), other.zone().map(records));
        } else {
            prop_assert!(!is_right || is_empty, "{:?} waits", zone.waiting);
        }
        // What is held, with what waits in its place, is what etcd has. Read again, nothing else comes of it.
        let mut again = zone.zone().map_or_else(empty, |held| EtcdZone::resumed(held.clone(), 1));
        again.read(revision, sets_of(&store));
        if zone.waiting() == 0 {
            prop_assert_eq!(again.zone().map(Zone::serial), zone.zone().map(Zone::serial));
        }
        if is_right && !is_empty {
            prop_assert_eq!(again.zone().map(records), other.zone().map(records));
        }
    }
    Ok(())
}

#[test]
fn a_zone_that_follows_transactions_is_what_etcd_has_once_nothing_is_wrong() {
    let config = Config { cases: 300, failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[18; 32]);
    let transactions = prop::collection::vec(prop::collection::vec(any_change(), 1..4), 1..12);
    TestRunner::new_with_rng(config, rng).run(&transactions, check).unwrap();
}
