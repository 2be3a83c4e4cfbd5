//! Clients of a line get what a zone says that has the line's records in place of its own; others get what the zone says by itself.
//!
//! Zones and overlays are chance's, from a fixed seed; `PROPTEST_RNG_SEED=n PROPTEST_CASES=m cargo test -p dns-auth --test lines` tries others.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use common::random_zones::{QTYPES, config, names, zone};
use common::{Query, ZoneList, ZoneRecord, responder};
use dns_auth::compile::{compile, compile_changed, compile_views, compile_with_lines};
use dns_auth::fuzz::Reply;
use dns_auth::pools::{ADDRESS_TYPES, address_in};
use dns_auth::{Catalog, LineData, LineOverlays, Pool, ServedZone, Settings, Transport};
use dns_lines::{Line, LineId, LineTableBuilder, Lines};
use dns_wire::{NameBuf, Rtype};
use dns_zone::text::{Files, Limits, TextFile};
use dns_zone::{Changed, Overlay, ZoneEditor, load_overlay};
use proptest::test_runner::{TestCaseError, TestRunner};

const INSIDE: [u8; 4] = [10, 1, 2, 3];
const OUTSIDE: [u8; 4] = [192, 0, 2, 1];

struct Only(String);

impl Files for Only {
    fn open(&mut self, _: &Path) -> io::Result<TextFile> {
        Ok(self.0.clone().into_bytes().into())
    }
}

/// The overlay of those record sets of `other` that may be one's, and their records.
fn overlay(plain: &ZoneList, other: &ZoneList) -> (Overlay, Vec<ZoneRecord>) {
    let (tree, mut kept) = (plain.build(), Vec::new());
    let mut good = Overlay::default();
    for record in &other.records {
        let tried: Vec<ZoneRecord> = kept.iter().cloned().chain([record.clone()]).collect();
        let list = ZoneList { origin: plain.origin.clone(), records: tried.clone() };
        let of_zone = (tree.origin(), 60);
        let read =
            load_overlay(&mut Only(list.to_generic_text()), Path::new("x"), of_zone, &Limits::default());
        if let Ok(overlay) = read.map_err(drop)
            && overlay.misfits(&tree, false).is_empty()
        {
            (good, kept) = (overlay, tried);
        }
    }
    (good, kept)
}

/// The zone with those records in place of its own, by the words of the rule.
fn merged(plain: &ZoneList, own: &[ZoneRecord]) -> ZoneList {
    let lower = |record: &ZoneRecord| record.owner.as_name().as_bytes().to_ascii_lowercase();
    let gives_way = |record: &ZoneRecord| {
        own.iter().any(|own| {
            let either_leads = [own.rtype, record.rtype].contains(&Rtype::CNAME);
            lower(own) == lower(record) && (own.rtype == record.rtype || either_leads)
        })
    };
    let kept = plain.records.iter().filter(|record| !gives_way(record)).cloned();
    ZoneList { origin: plain.origin.clone(), records: kept.chain(own.iter().cloned()).collect() }
}

fn catalog(served: ServedZone) -> Catalog {
    let mut builder = LineTableBuilder::default();
    builder.add("10.0.0.0/8".parse().unwrap(), LineId(0), 0);
    let lines = vec![Line { name: "a".into(), fallback: None }];
    Catalog::new([Arc::new(served)], 3).by_lines(&Arc::new(Lines::new(lines, builder.finish().unwrap())))
}

/// Compares the answers of two catalogs for all names and types.
fn compare(
    (given, expected): (&Catalog, &Catalog),
    qnames: &BTreeSet<Vec<u8>>,
    client: [u8; 4],
) -> Result<(), String> {
    let mut responders = [responder(&Settings::default()), responder(&Settings::default())];
    for qname in qnames {
        // Of ANY the first set counts, and that of an overlay is not where the zone's was.
        for qtype in QTYPES.into_iter().filter(|qtype| *qtype != Rtype::ANY) {
            for transport in [Transport::Udp, Transport::Tcp] {
                let query = Query::new(qname, qtype).with_edns(1232);
                let mut ask = |number: usize, catalog| {
                    let address = IpAddr::from(client);
                    common::respond_to(&mut responders[number], catalog, &query.to_wire(), transport, address)
                        .unwrap()
                };
                let answers = [ask(0, given), ask(1, expected)];
                if answers[0] != answers[1] {
                    let [given, expected] =
                        answers.map(|answer| Reply::read(&answer).map(|reply| common::describe(&reply)));
                    return Err(format!("{query} from {client:?}\ngiven: {given:?}\nexpected: {expected:?}"));
                }
            }
        }
    }
    Ok(())
}

/// What an editor has made, and the same as one that had much to clear away has it.
fn both_ways(changed: Changed) -> [Changed; 2] {
    let anew = Changed { zone: changed.zone.rebuilt(), names: None };
    [changed, anew]
}

fn check(plain: &ZoneList, other: &ZoneList) -> Result<usize, String> {
    let (overlay, own) = overlay(plain, other);
    let data = |overlay: &Overlay| {
        let overlays = vec![Arc::new(overlay.clone())];
        Arc::new(LineData::new(vec![LineOverlays { line: "a".into(), overlays }]))
    };
    let (lined, merged) = (catalog(compile_with_lines(plain.build(), &data(&overlay))), merged(plain, &own));
    let qnames: BTreeSet<Vec<u8>> = names(&[plain.clone(), other.clone()]).into_iter().collect();
    compare((&lined, &catalog(compile(merged.build()))), &qnames, INSIDE)?;
    // What only the overlay has exists for others, too.
    let tree = plain.build();
    let all_exist = own.iter().all(|record| tree.find(record.owner.as_name().as_bytes()).is_some());
    if all_exist {
        compare((&lined, &catalog(compile(tree))), &qnames, OUTSIDE)?;
    }
    // The next version, whose plain zone has changed: whatever name, the line's records are where they were.
    let before = lined.zone(0);
    let mut editor = ZoneEditor::new(before.tree().unwrap());
    let mut next = plain.clone();
    let last = next
        .records
        .iter()
        .rposition(|record| !matches!(record.rtype, Rtype::SOA | Rtype::NS | Rtype::DNAME));
    if let Some(place) = last {
        let gone = next.records.remove(place);
        let removed = editor.remove(gone.owner.as_name(), gone.rtype, &gone.rdata);
        if removed == Ok(true) && !own.is_empty() {
            let anew = catalog(compile_with_lines(next.build(), &data(&overlay)));
            for changed in both_ways(editor.finish().unwrap()) {
                let changed = catalog(compile_changed(before, changed));
                compare((&changed, &anew), &qnames, INSIDE)?;
                compare((&changed, &anew), &qnames, OUTSIDE)?;
            }
        }
    }
    Ok(own.len())
}

/// Half of all names with addresses, half of whose addresses are down: which ones `salt` says.
fn pools(lists: [&[ZoneRecord]; 2], salt: usize) -> BTreeMap<NameBuf, Arc<Pool>> {
    let addresses = || lists.into_iter().flatten().filter(|record| ADDRESS_TYPES.contains(&record.rtype));
    let is_down = |record: &&ZoneRecord| {
        record.rdata.iter().map(|octet| usize::from(*octet)).sum::<usize>() & 1 == salt
    };
    let down = addresses().filter(is_down).filter_map(|record| address_in(&record.rdata)).collect();
    let pool = Arc::new(Pool { down, ..Pool::default() });
    let owners: BTreeSet<&NameBuf> = addresses().map(|record| &record.owner).collect();
    owners.into_iter().step_by(2).map(|owner| (owner.clone(), Arc::clone(&pool))).collect()
}

/// What is made step by step from views of before answers as what is made at once.
fn check_health(plain: &ZoneList, other: &ZoneList) -> Result<usize, String> {
    let (overlay, own) = overlay(plain, other);
    let line = LineOverlays { line: "a".into(), overlays: vec![Arc::new(overlay)] };
    let lines = LineData::new(vec![line]);
    let data = |salt| Arc::new(lines.with_pools(pools([&plain.records, &own], salt)));
    let qnames: BTreeSet<Vec<u8>> = names(&[plain.clone(), other.clone()]).into_iter().collect();
    let same = |given: ServedZone, expected: ServedZone| {
        let (given, expected) = (catalog(given), catalog(expected));
        compare((&given, &expected), &qnames, INSIDE)?;
        compare((&given, &expected), &qnames, OUTSIDE)
    };
    let first = || compile_with_lines(plain.build(), &data(0));
    same(compile_views(&compile_with_lines(plain.build(), &Arc::new(lines.clone())), &data(0)), first())?;
    same(compile_views(&first(), &data(1)), compile_with_lines(plain.build(), &data(1)))?;
    if plain.build().is_signed() {
        return Ok(0); // Its pools are left out, and signatures get the TTL of what they covered.
    }
    let is_address = |record: &ZoneRecord| ADDRESS_TYPES.contains(&record.rtype);
    let Some(place) = plain.records.iter().position(is_address) else { return Ok(0) };
    let (mut next, before) = (plain.clone(), first());
    let mut editor = ZoneEditor::new(before.tree().unwrap());
    let gone = next.records[place].clone();
    next.records.retain(|record| record.owner != gone.owner || record.rtype != gone.rtype);
    editor.remove_sets(gone.owner.as_name(), |set| set.rtype() == gone.rtype);
    for changed in both_ways(editor.finish().unwrap()) {
        let changed = compile_changed(&before, changed);
        let later = compile_views(&changed, &data(1));
        same(changed, compile_with_lines(next.build(), &data(0)))?;
        same(later, compile_with_lines(next.build(), &data(1)))?;
    }
    Ok(data(0).pools().len())
}

#[test]
fn health_and_updates_lead_to_what_would_be_made_at_once() {
    let pooled = std::cell::Cell::new(0);
    let outcome =
        TestRunner::new(config(40, 22)).run(&(zone(b"\x01t\0"), zone(b"\x01t\0")), |(plain, other)| {
            let (plain, other) = (plain.accepted(), other.accepted());
            let count = check_health(&plain, &other).map_err(|difference| {
                let text = format!("; zone\n{}\n; other\n{}\n{difference}", plain.to_text(), other.to_text());
                TestCaseError::fail(text)
            })?;
            pooled.set(pooled.get() + count);
            Ok(())
        });
    if let Err(proptest::test_runner::TestError::Fail(reason, _)) = outcome {
        panic!("{reason}");
    }
    outcome.unwrap();
    assert!(pooled.get() > 20, "{} names in pools show little", pooled.get());
}

#[test]
fn a_line_gets_the_zone_with_its_records_and_others_get_the_zone() {
    let counts = std::cell::RefCell::new((0, 0));
    let outcome =
        TestRunner::new(config(80, 21)).run(&(zone(b"\x01t\0"), zone(b"\x01t\0")), |(plain, other)| {
            let (plain, other) = (plain.accepted(), other.accepted());
            let count = check(&plain, &other).map_err(|difference| {
                let text = format!("; zone\n{}\n; other\n{}\n{difference}", plain.to_text(), other.to_text());
                TestCaseError::fail(text)
            })?;
            let mut counts = counts.borrow_mut();
            *counts = (counts.0 + 1, counts.1 + count);
            Ok(())
        });
    if let Err(proptest::test_runner::TestError::Fail(reason, _)) = outcome {
        panic!("{reason}");
    }
    outcome.unwrap();
    let (cases, records) = counts.into_inner();
    assert!(records > 2 * cases, "{records} records of lines in {cases} cases show little");
}

/// The table has no answer for an alias that leaves the zone, so the tree has to give it, and not the zone's own records.
#[test]
fn an_alias_of_a_line_that_leaves_the_zone_takes_the_place_of_addresses() {
    let text =
        |records: &'static str| Only(format!("@ 60 SOA ns h 1 2 3 4 5\n@ NS ns\nns A 192.0.2.1\n{records}"));
    let limits = Limits::default();
    let path = Path::new("t.zone");
    let plain =
        dns_zone::load_zone(&mut text("www A 192.0.2.2\nwww AAAA ::2\n"), path, None, &limits, 1).unwrap();
    let merged =
        dns_zone::load_zone(&mut text("www CNAME cdn.elsewhere.\n"), path, None, &limits, 1).unwrap();
    let mut own = Only("www CNAME cdn.elsewhere.\n".to_owned());
    let overlay = load_overlay(&mut own, path, (plain.origin(), 60), &limits).unwrap();
    let data = LineData::new(vec![LineOverlays { line: "a".into(), overlays: vec![Arc::new(overlay)] }]);
    let lined = catalog(compile_with_lines(plain, &Arc::new(data)));
    let qnames = BTreeSet::from([b"\x03www\x01t\0".to_vec()]);
    compare((&lined, &catalog(compile(merged))), &qnames, INSIDE).unwrap();
}
