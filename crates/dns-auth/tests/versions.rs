//! A zone that was changed record by record says the same as one that is built of the records it has then: its tree, its compiled answers, what
//! denies in it.
//!
//! Zones and what becomes of them are chance's, from a fixed seed; `PROPTEST_RNG_SEED=n PROPTEST_CASES=m cargo test -p dns-auth --test versions`
//! tries others.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use common::random_zones::{QTYPES, config, names, zone};
use common::{Query, ZoneList, ZoneRecord, responder};
use dns_auth::compile::{compile, compile_anew, compile_changed};
use dns_auth::fuzz::Reply;
use dns_auth::table::Tables;
use dns_auth::{Catalog, ServedZone, Settings, Transport};
use dns_wire::{LabelStarts, Name, NameBuf, Rtype};
use dns_zone::{Changed, Zone, ZoneEditor};
use nsec3::Parameters;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRunner};

/// How a version denies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Denying {
    Nothing,
    Nsec,
    Nsec3,
}
use Denying::{Nothing, Nsec, Nsec3};

/// A record as it is compared: owner in lower case, type, data in lower case. One TTL for all.
type Key = (Vec<u8>, u16, Vec<u8>);
type Records = BTreeMap<Key, ZoneRecord>;

const TTL: u32 = 300;

#[test]
fn a_changed_zone_answers_as_one_that_is_built_of_its_records() {
    let chosen = || proptest::collection::vec(any::<bool>(), 60);
    let denying = || prop_oneof![2 => Just(Nothing), 3 => Just(Nsec), 3 => Just(Nsec3)];
    let versions = (zone(b"\x01t\0"), zone(b"\x01t\0"), denying(), proptest::collection::vec(chosen(), 2..5));
    let switched = proptest::option::weighted(0.2, (0usize..5, denying()));
    let outcome = TestRunner::new(config(60, 11)).run(
        &(versions, switched),
        |((one, other, denying, choices), switched)| {
            let all: Vec<ZoneRecord> = [one, other].concat_records();
            let mut kind = denying;
            let mut versions = Vec::new();
            for (number, choice) in choices.iter().enumerate() {
                kind = switched.filter(|(at, _)| *at == number).map_or(kind, |(_, kind)| kind);
                versions.push(version(&all, choice, number as u32, kind));
            }
            check_versions(&versions).map_err(TestCaseError::fail)
        },
    );
    if let Err(proptest::test_runner::TestError::Fail(reason, _)) = outcome {
        panic!("{reason}");
    }
    outcome.unwrap();
}

trait ConcatRecords {
    fn concat_records(self) -> Vec<ZoneRecord>;
}

impl ConcatRecords for [ZoneList; 2] {
    fn concat_records(self) -> Vec<ZoneRecord> {
        self.into_iter().flat_map(|zone| zone.records).filter(|record| record.rtype != Rtype::SOA).collect()
    }
}

/// The zone that some of the records make, with a SERIAL and what denies.
fn version(all: &[ZoneRecord], choice: &[bool], serial: u32, denying: Denying) -> Records {
    let origin = common::name("t.");
    let mut rdata = b"\x02ns\x01t\0\0".to_vec();
    [serial, 1, 2, 3, 60].iter().for_each(|number| rdata.extend_from_slice(&number.to_be_bytes()));
    let soa = ZoneRecord { owner: origin.clone(), ttl: TTL, rtype: Rtype::SOA, rdata };
    let chosen =
        all.iter().zip(choice).filter(|(_, is_chosen)| **is_chosen).map(|(record, _)| record.clone());
    let one_ttl = |record: ZoneRecord| ZoneRecord { ttl: TTL, ..record };
    let records = std::iter::once(soa).chain(chosen).map(one_ttl).collect();
    let list = ZoneList { origin, records }.accepted();
    let denials = denials(&list.build(), denying);
    list.records.into_iter().chain(denials).map(|record| (key(&record), record)).collect()
}

fn key(record: &ZoneRecord) -> Key {
    let lower = |octets: &[u8]| octets.to_ascii_lowercase();
    (lower(record.owner.as_name().as_bytes()), record.rtype.0, lower(&record.rdata))
}

/// Records that deny: one for each name that is not below a boundary.
fn denials(zone: &Zone, denying: Denying) -> Vec<ZoneRecord> {
    let nodes = zone.nodes().filter(|node| !node.is_occluded());
    let record =
        |owner: NameBuf, rtype, rdata: &[u8]| ZoneRecord { owner, ttl: TTL, rtype, rdata: rdata.to_vec() };
    let name = |node: dns_zone::Node<'_>| NameBuf::from(Name::from_wire(node.name()).unwrap());
    match denying {
        Nothing => Vec::new(),
        Nsec => {
            let named = nodes.filter(|node| node.rrsets().next().is_some());
            named.map(|node| record(name(node), Rtype::NSEC, b"\x01t\0\0\x01\x40")).collect()
        }
        Nsec3 => {
            let parameters = Parameters { iterations: 1, salt: b"ab" };
            let head = [1, 0, 0, 1, 2, b'a', b'b'];
            let parameter = record(common::name("t."), Rtype::NSEC3PARAM, &head);
            let of_hash = nodes.map(|node| {
                let hash = parameters.hash(name(node).as_name());
                let mut owner = common::name("t.");
                owner.prepend(&nsec3::to_base32hex(&hash)).unwrap();
                record(owner, Rtype::NSEC3, &[&head[..], &[20], &hash].concat())
            });
            std::iter::once(parameter).chain(of_hash).collect()
        }
    }
}

fn check_versions(versions: &[Records]) -> Result<(), String> {
    let built = |records: &Records| {
        let records = records.values().cloned().collect();
        ZoneList { origin: common::name("t."), records }.build()
    };
    let mut served = Arc::new(compile(built(&versions[0])));
    // Built anew of what was served first, while all that follows was changed already.
    let mut anew = Arc::new(compile_anew(&served).expect("it has data"));
    for pair in versions.windows(2) {
        let changed = changed(served.tree().unwrap(), &pair[0], &pair[1])?;
        if changed.names.is_none() && is_alike(&pair[0], &pair[1]) {
            return Err(format!("built anew for no reason{}", explain(pair)));
        }
        let tree_alone = ServedZone::new(changed.zone.clone(), Tables::default());
        let next = compile_changed(&served, changed);
        let rebuilt = compile(built(&pair[1]));
        let explain = |difference| format!("{difference}\n{}", explain(pair));
        check_trees(next.tree().unwrap(), rebuilt.tree().unwrap()).map_err(explain)?;
        let behind = self::changed(anew.tree().unwrap(), &pair[0], &pair[1])?;
        anew = Arc::new(compile_changed(&anew, behind));
        check_trees(anew.tree().unwrap(), rebuilt.tree().unwrap()).map_err(explain)?;
        let [next, tree_alone, rebuilt] = [next, tree_alone, rebuilt].map(Arc::new);
        let zones = [next, tree_alone, Arc::clone(&anew), rebuilt];
        served = check_answers(zones, &pair[1]).map_err(explain)?;
        anew = Arc::new(compile_anew(&anew).expect("it has data"));
    }
    Ok(())
}

/// Whether two versions deny alike, and the second one is not the first with signatures.
fn is_alike(old: &Records, new: &Records) -> bool {
    let apex_has = |records: &Records, rtype: Rtype| {
        records.keys().any(|(owner, own_type, _)| owner == b"\x01t\0" && *own_type == rtype.0)
    };
    let is_signed = |records: &Records| records.keys().any(|(_, rtype, _)| *rtype == Rtype::RRSIG.0);
    [Rtype::NSEC, Rtype::NSEC3PARAM].iter().all(|rtype| apex_has(old, *rtype) == apex_has(new, *rtype))
        && is_signed(old) >= is_signed(new)
}

fn changed(before: &Zone, old: &Records, new: &Records) -> Result<Changed, String> {
    let mut editor = ZoneEditor::new(before);
    for (_, record) in old.iter().filter(|(key, _)| !new.contains_key(*key)) {
        let removed = editor.remove(record.owner.as_name(), record.rtype, &record.rdata);
        if removed != Ok(true) {
            return Err(format!("{record:?} is not removed: {removed:?}"));
        }
    }
    for (_, record) in new.iter().filter(|(key, _)| !old.contains_key(*key)) {
        let added = editor.add(record.owner.as_name(), record.ttl, record.rtype, &record.rdata);
        added.map_err(|error| format!("{record:?}: {error}"))?;
    }
    editor.finish().map_err(|error| error.to_string())
}

/// What a failure is told with.
fn explain(versions: &[Records]) -> String {
    let text = |records: &Records| {
        let records = records.values().cloned().collect();
        ZoneList { origin: common::name("t."), records }.to_text()
    };
    versions.iter().map(|version| format!("\n; version\n{}", text(version))).collect()
}

fn check_trees(changed: &Zone, rebuilt: &Zone) -> Result<(), String> {
    let content = |zone: &Zone| {
        let node = |node: dns_zone::Node<'_>| {
            let flags =
                [node.is_cut(), node.has_dname(), node.has_cname(), node.is_occluded(), node.is_hashed()];
            let mut sets: Vec<_> = node.rrsets().map(|set| (set.rtype(), set.count(), set.ttl())).collect();
            sets.sort_unstable();
            (node.name().to_ascii_lowercase(), (flags, node.wildcard().is_some(), sets))
        };
        zone.nodes().map(node).collect::<BTreeMap<_, _>>()
    };
    if content(changed) != content(rebuilt) || changed.record_count() != rebuilt.record_count() {
        return Err(format!("changed: {:?}\nrebuilt: {:?}", content(changed), content(rebuilt)));
    }
    let mut seen = BTreeSet::new();
    for node in changed.nodes() {
        let is_in_order = node.parent().is_none_or(|parent| seen.contains(parent.name()));
        if !is_in_order {
            return Err(format!("{:?} precedes its parent", Name::from_wire(node.name())));
        }
        seen.insert(node.name());
    }
    Ok(())
}

/// Asks all of them the same, and returns the first one: as it was changed, the tree alone, one that was built anew before that change, and one that is
/// built of the records.
fn check_answers(zones: [Arc<ServedZone>; 4], records: &Records) -> Result<Arc<ServedZone>, String> {
    let list = ZoneList { origin: common::name("t."), records: records.values().cloned().collect() };
    let catalogs = zones.map(|served| Catalog::new([served], 3));
    let mut responder = responder(&Settings::default());
    let lower: BTreeSet<Vec<u8>> = names(&[list]).into_iter().map(|name| name.to_ascii_lowercase()).collect();
    let qtypes = QTYPES.into_iter().chain([Rtype::NSEC, Rtype::NSEC3]).filter(|qtype| *qtype != Rtype::ANY);
    for name in &lower {
        for qtype in qtypes.clone() {
            for query in [Query::new(name, qtype), Query::new(name, qtype).with_edns(4096).with_dnssec()] {
                let mut ask = |catalog: &Catalog| {
                    let answer = common::respond(&mut responder, catalog, &query.to_wire(), Transport::Tcp);
                    sorted(&answer.expect("well-formed queries are answered"))
                };
                let [changed, tree, anew, rebuilt] = [0, 1, 2, 3].map(|which| ask(&catalogs[which]));
                if changed != rebuilt || tree != rebuilt || anew != rebuilt {
                    return Err(format!(
                        "{query}\nchanged: {changed:?}\ntree: {tree:?}\nanew: {anew:?}\nrebuilt: {rebuilt:?}"
                    ));
                }
            }
        }
    }
    Ok(Arc::clone(catalogs[0].zone(0)))
}

/// An answer without what may differ: the order of records, letters of names, and with these what can be compressed.
fn sorted(answer: &[u8]) -> Reply {
    let mut reply = Reply::read(answer).unwrap();
    reply.opt.iter_mut().for_each(|opt| opt.end = 0);
    for section in &mut reply.sections {
        for record in section.iter_mut() {
            record.end = 0;
            record.owner.make_ascii_lowercase();
            record.rdata.make_ascii_lowercase();
        }
        section.sort();
    }
    reply
}

#[test]
fn a_hash_is_a_name_while_there_is_one_below_it() {
    let without = version(&[], &[], 1, Nsec3);
    let mut with = without.clone();
    let hash = without.values().find(|record| record.rtype == Rtype::NSEC3).unwrap();
    let mut below = ZoneRecord { rtype: Rtype::A, rdata: vec![192, 0, 2, 1], ..hash.clone() };
    below.owner.prepend(b"x").unwrap();
    with.insert(key(&below), below);
    check_versions(&[with.clone(), without, with]).unwrap();
}

#[test]
fn one_name_of_a_large_zone_is_changed_and_the_rest_is_shared() {
    let mut list = ZoneList { origin: common::name("t."), records: Vec::new() };
    let chosen = version(&[], &[], 1, Nothing);
    list.records.extend(chosen.into_values());
    for number in 0..200_000u32 {
        let owner = common::name(&format!("h{number}.t."));
        let rdata = number.to_be_bytes().to_vec();
        list.records.push(ZoneRecord { owner, ttl: TTL, rtype: Rtype::A, rdata });
    }
    let before = compile(list.build());
    let mut editor = ZoneEditor::new(before.tree().unwrap());
    let owner = common::name("h100000.t.");
    assert_eq!(editor.remove(owner.as_name(), Rtype::A, &100_000u32.to_be_bytes()), Ok(true));
    editor.add(owner.as_name(), TTL, Rtype::A, &[192, 0, 2, 1]).unwrap();
    let changed = editor.finish().unwrap();
    assert_eq!(changed.names.as_ref().map(Vec::len), Some(1));
    let more = changed.zone.memory() - before.tree().unwrap().memory();
    assert!(more < 40_000, "{more} octets more for the tree");
    let after = compile_changed(&before, changed);
    let more = after.tables().memory() - before.tables().memory();
    assert!(more < 20_000, "{more} octets more for the answers");
    let labels = LabelStarts::of(owner.as_name());
    let found = after.tree().unwrap().closest_encloser(owner.as_name().as_bytes(), &labels);
    assert_eq!(found.rrset(Rtype::A).unwrap().records().collect::<Vec<_>>(), [[192, 0, 2, 1]]);
}
