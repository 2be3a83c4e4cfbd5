//! Small zones, signed from nothing and step by step.

use dns_message::push_canonical_set;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::*;
use crate::key::{Algorithm, Key, KeyError, KeyFiles, Role, State, Times};
use crate::key_set::{KeySet, Lost};
use crate::online::OnlineKeys;
use crate::roll::Needed;

const NOW: u64 = 1_800_000_000;
const DAY: u64 = 86_400;

fn name(text: &str) -> NameBuf {
    NameBuf::from_text(text.as_bytes(), None).unwrap()
}

fn wire(text: &str) -> Vec<u8> {
    name(text).as_name().as_bytes().to_vec()
}

fn key(role: Role, times: Times) -> Key {
    key_of(Algorithm::default(), role, times)
}

fn key_of(algorithm: Algorithm, role: Role, times: Times) -> Key {
    let files = KeyFiles::generate_by(algorithm, name("example.").as_name(), role, times).unwrap();
    Key::read(name("example.").as_name(), &files.public, &files.private).unwrap()
}

/// One key for all.
fn keys() -> KeySet {
    KeySet::new(vec![key(Role::KeySigning, Times::default())])
}

fn builder(serial: u32) -> ZoneBuilder {
    let origin = name("example.");
    let mut builder = ZoneBuilder::new(origin.as_name(), 2);
    let numbers = [serial, 1, 2, 3, 4].map(u32::to_be_bytes).concat();
    let soa = [wire("ns.example."), wire("h.example."), numbers].concat();
    builder.add(origin.as_name(), 60, Rtype::SOA, &soa).unwrap();
    builder.add(origin.as_name(), 60, Rtype::NS, &wire("NS.example.")).unwrap();
    builder
}

/// A zone with these records; each has the data that its type needs.
fn zone(serial: u32, records: &[(&str, Rtype)]) -> Zone {
    let mut builder = builder(serial);
    for (owner, rtype) in records {
        let data = match *rtype {
            Rtype::A => vec![192, 0, 2, 1],
            Rtype::DS => vec![0, 1, 13, 2, 7, 7],
            _ => wire("host.example."),
        };
        // What cannot stand beside the others is left out.
        let _ = builder.add(name(owner).as_name(), 60, *rtype, &data);
    }
    builder.finish().unwrap()
}

fn at(keys: &KeySet, now: u64, act: impl FnOnce(Signer<'_>)) {
    by(DenialBy::Nsec, keys, now, act);
}

fn by(denial: DenialBy, keys: &KeySet, now: u64, act: impl FnOnce(Signer<'_>)) {
    let (active, origin) = (keys.at(now).unwrap(), name("example."));
    act(Signer::new(origin.as_name(), &active, now, Lifetimes::default(), denial));
}

/// Owner, type, TTL and data of all records but signatures, in order.
fn unsigned(zone: &Zone) -> Vec<String> {
    let sets = zone.nodes().flat_map(|node| node.rrsets().map(move |set| (node, set)));
    let lines = sets.filter(|(_, set)| set.covered().is_none()).flat_map(|(node, set)| {
        let (owner, rtype, ttl) = (name_of(node), set.rtype(), set.ttl());
        set.records().map(move |rdata| format!("{owner} {rtype} {ttl} {rdata:?}").to_ascii_lowercase())
    });
    let mut lines: Vec<String> = lines.collect();
    lines.sort();
    lines
}

/// Owners and types of the sets that have signatures. Each signature is checked with the key that it names.
fn signed(zone: &Zone, keys: &KeySet) -> Vec<String> {
    let mut signed = Vec::new();
    for node in zone.nodes() {
        for (covered, signatures) in node.rrsets().filter_map(|set| Some((set.covered()?, set))) {
            signatures.records().for_each(|rdata| check(node, covered, rdata, keys));
            signed.push(format!("{} {covered} {}", name_of(node), signatures.count()));
        }
    }
    signed.sort();
    signed
}

fn check(node: Node<'_>, covered: Rtype, rrsig: &[u8], keys: &KeySet) {
    let set = node.rrset(covered).unwrap_or_else(|| panic!("{} has no {covered}", name_of(node)));
    let (_, signature) = Name::split_from(&rrsig[18..]).unwrap();
    let mut octets = rrsig[..rrsig.len() - signature.len()].to_vec();
    push_canonical_set(&mut octets, name_of(node), covered, set.ttl(), set.records());
    let key = keys.keys().iter().find(|key| key.tag().to_be_bytes() == rrsig[16..18]).unwrap();
    let point = [&[4], &key.dnskey()[4..]].concat();
    ring::signature::UnparsedPublicKey::new(&ring::signature::ECDSA_P256_SHA256_FIXED, point)
        .verify(&octets, signature)
        .unwrap_or_else(|_| panic!("a signature of {} {covered} is wrong", name_of(node)));
}

/// What the chain leads through, from the origin.
fn chain(zone: &Zone) -> Vec<String> {
    let mut names = vec![zone.origin().to_string()];
    let mut node = zone.apex();
    while let Some(next) = next_of(node).filter(|next| *next != zone.origin()) {
        names.push(next.to_string());
        node = zone.find(next.as_bytes()).unwrap();
    }
    names
}

const ALL_KINDS: &[(&str, Rtype)] = &[
    ("ns.example.", Rtype::A),
    ("Host.example.", Rtype::A),
    ("*.wild.example.", Rtype::A),
    ("below.an.empty.example.", Rtype::A),
    ("insecure.example.", Rtype::NS),
    ("ns.insecure.example.", Rtype::A),
    ("secure.example.", Rtype::NS),
    ("secure.example.", Rtype::DS),
    ("secure.example.", Rtype::A),
    ("redirected.example.", Rtype::DNAME),
    ("hidden.redirected.example.", Rtype::A),
];

#[test]
fn what_the_zone_is_authoritative_for_is_signed_and_linked() {
    let keys = keys();
    at(&keys, NOW, |signer| {
        let zone = signer.sign(&zone(7, ALL_KINDS), 8, 5).unwrap();
        assert_eq!(zone.serial(), 8);
        let expected = [
            "Host.example. A 1",
            "Host.example. NSEC 1",
            "*.wild.example. A 1",
            "*.wild.example. NSEC 1",
            "below.an.empty.example. A 1",
            "below.an.empty.example. NSEC 1",
            "example. DNSKEY 1",
            "example. NS 1",
            "example. NSEC 1",
            "example. SOA 1",
            "insecure.example. NSEC 1",
            "ns.example. A 1",
            "ns.example. NSEC 1",
            "redirected.example. DNAME 1",
            "redirected.example. NSEC 1",
            "secure.example. DS 1",
            "secure.example. NSEC 1",
        ];
        let mut expected = expected.map(str::to_owned);
        expected.sort();
        assert_eq!(signed(&zone, &keys), expected);
        let names = [
            "example.",
            "below.an.empty.example.",
            "host.example.",
            "insecure.example.",
            "ns.example.",
            "redirected.example.",
            "secure.example.",
            "*.wild.example.",
        ];
        assert_eq!(chain(&zone), names);
    });
}

#[test]
fn a_cut_says_of_itself_that_it_has_name_servers_and_no_more() {
    let keys = keys();
    at(&keys, NOW, |signer| {
        let zone = signer.sign(&zone(7, ALL_KINDS), 8, 5).unwrap();
        let node = zone.find(&wire("secure.example.")).unwrap();
        let rdata = node.rrset(Rtype::NSEC).unwrap().records().next().unwrap();
        // NS is 2, DS 43, RRSIG 46, NSEC 47: no A, though there is one.
        assert!(rdata.ends_with(&[0, 6, 0b0010_0000, 0, 0, 0, 0, 0b0001_0011]), "{rdata:?}");
    });
}

#[test]
fn what_a_source_has_of_signatures_and_chains_is_left_out() {
    let mut builder = builder(7);
    let origin = name("example.");
    builder
        .add(origin.as_name(), 60, Rtype::NSEC, &[&wire("z.example.")[..], &[0, 1, 0x40]].concat())
        .unwrap();
    builder.add(origin.as_name(), 60, Rtype::NSEC3PARAM, &[1, 0, 0, 0, 0]).unwrap();
    let source = builder.finish().unwrap();
    let keys = keys();
    at(&keys, NOW, |signer| {
        let signed = signer.sign(&source, 8, 5).unwrap();
        assert_eq!(chain(&signed), ["example."]);
        assert!(signed.apex().rrset(Rtype::NSEC3PARAM).is_none());
        assert!(signer.follow(&signed, &source, &differing(&signed, &source)).unwrap().is_none());
    });
}

#[test]
fn a_zone_that_is_as_it_should_be_has_no_next_version() {
    let keys = keys();
    at(&keys, NOW, |signer| {
        let source = zone(7, ALL_KINDS);
        let held = signer.sign(&source, 8, 5).unwrap();
        assert_eq!(differing(&held, &source), []);
        assert!(signer.follow(&held, &source, &[]).unwrap().is_none());
        let all: Vec<NameBuf> = source.nodes().map(|node| NameBuf::from(name_of(node))).collect();
        assert!(signer.follow(&held, &source, &all).unwrap().is_none());
    });
}

#[test]
fn the_serial_follows_the_source_when_that_is_ahead() {
    let keys = keys();
    at(&keys, NOW, |signer| {
        let held = signer.sign(&zone(7, &[]), 8, 5).unwrap();
        let serial = |source: &Zone| {
            let next = signer.follow(&held, source, &differing(&held, source)).unwrap();
            next.map(|signed| signed.changed.zone.serial())
        };
        let more = &[("a.example.", Rtype::A)];
        assert_eq!([8, 9, 100].map(|source| serial(&zone(source, more))), [Some(9), Some(9), Some(100)]);
        assert_eq!([8, 9, 100].map(|source| serial(&zone(source, &[]))), [None, Some(9), Some(100)]);
    });
}

#[test]
fn signatures_are_renewed_before_they_end_and_not_all_at_once() {
    let keys = keys();
    let hosts: Vec<String> = (0..200).map(|number| format!("h{number}.example.")).collect();
    let records: Vec<_> = hosts.iter().map(|host| (&**host, Rtype::A)).collect();
    let source = zone(7, &records);
    let mut held = None;
    at(&keys, NOW, |signer| held = Some(signer.sign(&source, 8, 5).unwrap()));
    let (mut held, mut now, mut batches) = (held.unwrap(), NOW, Vec::new());
    while now < NOW + 30 * DAY {
        at(&keys, now, |signer| {
            let due = signer.due(&held, &source, 1000);
            now += if due.is_all { DAY / 24 } else { 1 };
            if due.names.is_empty() {
                return;
            }
            let next = signer.follow(&held, &source, &due.names).unwrap().unwrap();
            batches.push(next.names.len());
            held = next.changed.zone;
        });
        let expirations = held.nodes().flat_map(Node::rrsets).filter(|set| set.covered().is_some());
        let first = expirations
            .flat_map(|set| set.records())
            .map(|rdata| u32::from_be_bytes(rdata[8..12].try_into().unwrap()))
            .min();
        assert!(u64::from(first.unwrap()) >= now + 7 * DAY - DAY / 24, "one ends soon");
    }
    assert_eq!(signed(&held, &keys).len(), 2 * 201 + 2);
    let most = batches.iter().max().unwrap();
    assert!(*most < 30, "{most} of 201 names at once");
}

#[test]
fn a_key_in_use_whose_files_are_gone_is_missed() {
    let both = [Times::default(), Times { delete: Some(NOW + DAY), ..Times::default() }];
    let [first, second] = both.map(|times| KeySet::new(vec![key(Role::ZoneSigning, times)]));
    let missed = |now| first.lacks(&second, now).map(Key::tag);
    assert_eq!(missed(NOW), Some(second.keys()[0].tag()));
    assert_eq!(missed(NOW + 2 * DAY), None, "it has left the zone");
    assert_eq!(second.lacks(&second, NOW).map(Key::tag), None);
}

#[test]
fn a_key_that_signs_a_zone_is_missed_where_nobody_remembers_it_and_so_is_one_that_its_source_does_not_have() {
    let (_, keys) = rolled(Role::ZoneSigning);
    let (served, mut all) = (sign(&keys, NOW + DAY / 24), keys.into_keys());
    for at in 0..3 {
        let gone = all.remove(at);
        let signs = gone.role() == Role::KeySigning || gone.times.inactive.is_some();
        let rest = KeySet::new(all);
        let mut builder = builder(7);
        builder.add(name("example.").as_name(), 60, Rtype::DNSKEY, gone.dnskey()).unwrap();
        let lost = Lost { file_stem: gone.file_stem(name("example.").as_name()), signs };
        assert_eq!(rest.lost(&served, &zone(7, &[])), Some(lost.clone()));
        let of_source = rest.lost(&served, &builder.finish().unwrap());
        assert_eq!(of_source, signs.then_some(lost), "the record stays, and nothing that is signed with it");
        all = rest.into_keys();
        all.insert(at, gone);
    }
    assert_eq!(KeySet::new(all).lost(&served, &zone(7, &[])), None);
}

#[test]
fn no_more_names_are_due_at_once_than_wanted() {
    let keys = keys();
    let (source, mut held) = (zone(7, ALL_KINDS), None);
    at(&keys, NOW, |signer| held = Some(signer.sign(&source, 8, 5).unwrap()));
    at(&keys, NOW + 20 * DAY, |signer| {
        let due = signer.due(held.as_ref().unwrap(), &source, 3);
        assert_eq!((due.names.len(), due.is_all), (3, false));
    });
}

/// A zone that is signed by NSEC3.
fn signed_by_nsec3(source: &Zone, keys: &KeySet) -> Zone {
    let mut held = None;
    by(DenialBy::Nsec3, keys, NOW, |signer| held = Some(signer.sign(source, 8, 5).unwrap()));
    held.unwrap()
}

/// The next version of a zone that is signed by NSEC3.
fn followed(held: &Zone, source: &Zone, keys: &KeySet) -> Zone {
    let mut next = None;
    by(DenialBy::Nsec3, keys, NOW, |signer| {
        next = signer.follow(held, source, &differing(held, source)).unwrap();
    });
    next.unwrap().changed.zone
}

const BELOW_SUB: &[(&str, Rtype)] =
    &[("ns.sub.example.", Rtype::A), ("b.sub.example.", Rtype::CNAME), ("a.a.sub.example.", Rtype::A)];

#[test]
fn a_cut_or_dname_over_names_signed_by_nsec3_takes_their_signatures_and_gives_them_back() {
    let keys = keys();
    let before = zone(7, BELOW_SUB);
    for rtype in [Rtype::NS, Rtype::DNAME] {
        let after = zone(7, &[BELOW_SUB, &[("sub.example.", rtype)]].concat());
        let held = signed_by_nsec3(&before, &keys);
        let next = followed(&held, &after, &keys);
        let left: Vec<String> =
            signed(&next, &keys).into_iter().filter(|line| line.contains(".sub.example. ")).collect();
        assert_eq!(left, Vec::<String>::new(), "{rtype}");
        assert_eq!(signed(&next, &keys), signed(&signed_by_nsec3(&after, &keys), &keys), "{rtype}");
        let back = followed(&next, &before, &keys);
        assert_eq!(signed(&back, &keys), signed(&held, &keys), "{rtype}");
    }
}

/// A zone as earlier versions left it: a cut hides names that have signatures still.
fn with_leftovers(hidden: &[(&str, Rtype)], source: &Zone, keys: &KeySet) -> Zone {
    let mut held = signed_by_nsec3(source, keys);
    let signed = signed_by_nsec3(&zone(7, hidden), keys);
    for (owner, rtype) in hidden {
        let mut editor = ZoneEditor::new(&held);
        let node = signed.find(&wire(owner)).unwrap();
        for rdata in node.signatures(*rtype).unwrap().records() {
            editor.add(name(owner).as_name(), 60, Rtype::RRSIG, rdata).unwrap();
        }
        held = editor.finish().unwrap().zone;
    }
    held
}

#[test]
fn signatures_that_a_cut_hides_are_due_to_go_though_they_are_good_and_hold_up_no_other_ones() {
    let keys = keys();
    let hosts: Vec<String> = (0..20).map(|number| format!("h{number}.sub.example.")).collect();
    let hidden: Vec<_> =
        hosts.iter().map(|host| (&**host, Rtype::A)).chain([("sub.example.", Rtype::A)]).collect();
    let source = zone(7, &[&hidden[..], &[("sub.example.", Rtype::NS), ("z.example.", Rtype::A)]].concat());
    for now in [NOW, NOW + 10 * DAY] {
        let mut held = with_leftovers(&hidden, &source, &keys);
        by(DenialBy::Nsec3, &keys, now, |signer| {
            assert!(!signer.due(&held, &source, 3).is_all);
            for _ in 0..20 {
                let due = signer.due(&held, &source, 3);
                if due.names.is_empty() {
                    break;
                }
                held = signer.follow(&held, &source, &due.names).unwrap().unwrap().changed.zone;
            }
            let due = signer.due(&held, &source, 3);
            assert_eq!(due, Due { names: Vec::new(), is_all: true });
        });
        let expected = signed(&signed_by_nsec3(&source, &keys), &keys);
        assert_eq!(signed(&held, &keys), expected, "{now}");
    }
}

#[test]
fn a_clock_that_goes_back_leaves_no_signature_that_has_not_begun() {
    let keys = keys();
    let source = zone(7, ALL_KINDS);
    let mut held = None;
    at(&keys, NOW, |signer| held = Some(signer.sign(&source, 8, 5).unwrap()));
    at(&keys, NOW - DAY, |signer| {
        let due = signer.due(held.as_ref().unwrap(), &source, 1000);
        assert_eq!(due.names.len(), 8);
        let next = signer.follow(held.as_ref().unwrap(), &source, &due.names).unwrap().unwrap();
        assert_eq!(signer.due(&next.changed.zone, &source, 1000).names, []);
    });
}

/// A key that is published, signs, ends to sign, and goes, on these days.
fn times(publish: u64, activate: u64, inactive: u64, delete: u64) -> Times {
    let at = |day: u64| Some(NOW + day * DAY);
    Times {
        publish: at(publish),
        activate: at(activate),
        inactive: at(inactive),
        delete: at(delete),
        ..Times::default()
    }
}

#[test]
fn keys_come_and_go_by_their_times() {
    let keys = KeySet::new(vec![
        key(Role::KeySigning, Times { sync_publish: Some(NOW + 2 * DAY), ..Times::default() }),
        key(Role::ZoneSigning, times(0, 0, 3, 5)),
        key(Role::ZoneSigning, times(2, 3, 90, 95)),
    ]);
    let source = zone(7, &[("a.example.", Rtype::A)]);
    let mut held = None;
    at(&keys, NOW, |signer| held = Some(signer.sign(&source, 8, 5).unwrap()));
    let mut held = held.unwrap();
    let mut by_day = Vec::new();
    for day in 0..7 {
        at(&keys, NOW + day * DAY, |signer| {
            let due = signer.due(&held, &source, 1000).names;
            if let Some(next) = signer.follow(&held, &source, &due).unwrap() {
                held = next.changed.zone;
            }
        });
        signed(&held, &keys);
        let count = |rtype| held.apex().rrset(rtype).map_or(0, |set| set.count());
        let signature = held.find(&wire("a.example.")).unwrap().signatures(Rtype::A).unwrap();
        let tag = signature.records().next().unwrap()[16..18].to_vec();
        let times = keys.keys().iter().find(|key| key.tag().to_be_bytes() == tag[..]).unwrap().times;
        let signs = (times.activate.unwrap() - NOW) / DAY;
        by_day.push((count(Rtype::DNSKEY), count(Rtype::CDS), count(Rtype::CDNSKEY), signs));
    }
    let expected =
        [(2, 0, 0, 0), (2, 0, 0, 0), (3, 1, 1, 0), (3, 1, 1, 3), (3, 1, 1, 3), (2, 1, 1, 3), (2, 1, 1, 3)];
    assert_eq!(by_day, expected);
    assert_eq!(keys.next_change(NOW), Some(NOW + 2 * DAY));
    assert_eq!(keys.at(NOW).unwrap().key_signing.len(), 1);
}

#[test]
fn a_zone_without_an_active_key_signing_key_is_not_signed() {
    let keys =
        KeySet::new(vec![key(Role::ZoneSigning, Times::default()), key(Role::KeySigning, times(1, 2, 3, 4))]);
    assert_eq!([0, 1, 2, 3].map(|day| keys.at(NOW + day * DAY).is_ok()), [false, false, true, false]);
}

/// What each of two keys does on the days after one takes the other's place on day 1, and whether the parent is told of it.
fn states(role: Role) -> Vec<[(State, bool); 2]> {
    let first = Times::first(NOW);
    let (old, new) = first.roll(role, NOW + DAY);
    let told = |times: Times, now: u64| {
        let is_past = |time: Option<u64>| time.is_some_and(|time| time <= now);
        is_past(times.sync_publish) && !is_past(times.sync_delete)
    };
    let days = [0, 1, 2, 9, 10].map(|day| NOW + day * DAY + DAY / 2);
    days.map(|now| [old, new].map(|times| (times.state(now), told(times, now)))).to_vec()
}

#[test]
fn a_zone_signing_key_is_seen_by_all_before_it_signs_and_until_its_signatures_are_gone() {
    use State::*;
    let states = states(Role::ZoneSigning).into_iter().map(|keys| keys.map(|(state, _)| state));
    let expected =
        [[Signing, Waiting], [Retired, Signing], [Retired, Signing], [Removed, Signing], [Removed, Signing]];
    assert_eq!(states.collect::<Vec<_>>(), expected);
    let (old, new) = Times::first(NOW).roll(Role::ZoneSigning, NOW + DAY);
    assert_eq!([old, new].map(|times| times.state(NOW + DAY + 3600)), [Signing, Published]);
}

#[test]
fn a_key_signing_key_signs_beside_the_old_one_until_that_is_retired() {
    use State::*;
    let expected = [
        [(Signing, true), (Waiting, false)],
        [(Signing, false), (Signing, true)],
        [(Signing, false), (Signing, true)],
        [(Signing, false), (Signing, true)],
        [(Signing, false), (Signing, true)],
    ];
    assert_eq!(states(Role::KeySigning), expected);
}

#[test]
fn a_key_that_signed_all_stays_published_until_its_signatures_are_gone() {
    use State::*;
    let (old, new) = Times::first(NOW).roll(Role::KeySigning, NOW + DAY);
    let days = |others: Vec<crate::Key>| {
        let keys = KeySet::new(
            [key(Role::KeySigning, old), key(Role::KeySigning, new)].into_iter().chain(others).collect(),
        );
        let old = keys.keys().iter().find(|key| key.times == old).unwrap();
        let [(_, times)] = keys.retired(old, NOW + 2 * DAY)[..] else { panic!() };
        [2, 8, 9].map(|day| times.state(NOW + day * DAY))
    };
    assert_eq!(days(Vec::new()), [Retired, Retired, Removed]);
    let zone_signing = key(Role::ZoneSigning, Times::first(NOW));
    assert_eq!(
        days(vec![zone_signing]),
        [Removed; 3],
        "its signatures are those of keys, and go with the set"
    );
}

/// A zone of two keys, signed at `NOW`, and its keys once that of a role has been rolled then.
fn rolled(role: Role) -> (Zone, KeySet) {
    let first = [Role::KeySigning, Role::ZoneSigning].map(|role| key(role, Times::first(NOW - 30 * DAY)));
    let keys = KeySet::new(first.into_iter().collect());
    let served = sign(&keys, NOW);
    let mut all = keys.into_keys();
    let old = all.iter_mut().find(|key| key.role() == role).unwrap();
    let (ending, new) = old.times.roll(role, NOW);
    old.times = ending;
    all.push(key(role, new));
    (served, KeySet::new(all))
}

fn sign(keys: &KeySet, now: u64) -> Zone {
    let mut signed = None;
    at(keys, now, |signer| signed = Some(signer.sign(&zone(7, &[]), 8, 5).unwrap()));
    signed.unwrap()
}

/// The keys with the times that they have when a server looks at `now` that has served this.
fn looked_at(keys: KeySet, served: &Zone, now: u64) -> KeySet {
    let late: Vec<(u16, Times)> =
        keys.late(served, now).iter().map(|(key, times)| (key.tag(), *times)).collect();
    let mut all = keys.into_keys();
    for (tag, times) in late {
        all.iter_mut().find(|key| key.tag() == tag).unwrap().times = times;
    }
    KeySet::new(all)
}

/// The times of the old key of a role and of the new one.
fn old_and_new(keys: &KeySet, role: Role) -> [Times; 2] {
    let mut times: Vec<Times> =
        keys.keys().iter().filter(|key| key.role() == role).map(|key| key.times).collect();
    times.sort_by_key(|times| times.created);
    [times[0], times[1]]
}

#[test]
fn a_zone_signing_key_does_not_sign_before_its_dnskey_record_was_served_for_as_long_as_caches_have_the_old_set()
 {
    use State::*;
    const HOUR: u64 = 3600;
    // The server looks at once; three hours late; when the old key should have been gone for a week.
    for (late, begin) in [(60, 0), (3 * HOUR, 3 * HOUR), (20 * DAY, 20 * DAY)] {
        let (served, keys) = rolled(Role::ZoneSigning);
        let keys = looked_at(keys, &served, NOW + late);
        let times = old_and_new(&keys, Role::ZoneSigning);
        let states = |after: u64| times.map(|times| times.state(NOW + begin + after));
        assert_eq!(states(61), [Signing, Published], "{late}");
        assert_eq!(states(2 * HOUR), [Retired, Signing], "{late}");
        assert_eq!(states(8 * DAY + 2 * HOUR - 1), [Retired, Signing], "{late}");
        assert_eq!(states(8 * DAY + 2 * HOUR), [Removed, Signing], "{late}");
        let next = sign(&keys, NOW + late);
        assert!(keys.late(&next, NOW + late).is_empty(), "{late}: it is served now");
        assert!(keys.late(&next, NOW + late + HOUR).is_empty(), "{late}");
    }
}

#[test]
fn a_key_stays_published_until_caches_have_lost_the_signatures_that_were_served_last() {
    let (_, keys) = rolled(Role::ZoneSigning);
    let served = sign(&keys, NOW + 60);
    let back = NOW + 20 * DAY;
    let keys = looked_at(keys, &served, back);
    let [old, new] = old_and_new(&keys, Role::ZoneSigning);
    assert_eq!([old, new].map(|times| times.state(back)), [State::Retired, State::Signing]);
    assert_eq!(old.delete, Some(back + 8 * DAY));
    assert!(keys.late(&sign(&keys, back), back + 60).is_empty());
}

#[test]
fn the_parent_is_told_of_a_key_when_caches_can_have_it() {
    let seen = |late: u64| {
        let (served, keys) = rolled(Role::KeySigning);
        let [old, new] = old_and_new(&looked_at(keys, &served, NOW + late), Role::KeySigning);
        assert_eq!(new.sync_publish, old.sync_delete);
        [new.activate, new.sync_publish].map(|time| time.unwrap() - NOW)
    };
    assert_eq!(seen(60), [0, 7200]);
    assert_eq!(seen(3 * 3600), [3 * 3600, 5 * 3600]);
}

#[test]
fn the_first_keys_of_a_zone_sign_at_once_and_so_do_those_whose_predecessors_are_lost() {
    let (_, keys) = rolled(Role::ZoneSigning);
    assert!(keys.late(&zone(7, &[]), NOW + DAY).is_empty(), "it was not signed");
    let (served, _) = rolled(Role::ZoneSigning);
    let late = keys.late(&served, NOW + DAY);
    assert!(late.iter().all(|(key, _)| key.role() == Role::KeySigning), "by others: the parent waits");
}

/// BIND gives a key of a limited lifetime its end when it makes it, and makes a successor in time.
#[test]
fn the_last_key_signing_key_signs_on_beyond_its_end_and_one_that_is_rolled_until_the_parent_has_the_other() {
    let ending = Times { inactive: Some(NOW + 10 * DAY), delete: Some(NOW + 20 * DAY), ..Times::first(NOW) };
    let keys = KeySet::new(vec![key(Role::KeySigning, ending)]);
    let served = sign(&keys, NOW);
    assert_eq!(keys.ends_alone(NOW).map(|(_, end)| end), Some(NOW + 10 * DAY));
    assert!(keys.late(&served, NOW + 10 * DAY - 1).is_empty());
    for days in [10, 15, 25] {
        let kept = looked_at(keys.clone(), &served, NOW + days * DAY);
        assert_eq!(kept.keys()[0].times.state(NOW + 100 * DAY), State::Signing, "{days}");
        assert!(kept.ends_alone(NOW + days * DAY).is_none());
    }
    assert!(keys.late(&zone(7, &[]), NOW + 25 * DAY).is_empty(), "nobody has seen it");
    let (old, new) = ending.roll(Role::KeySigning, NOW + DAY);
    assert_eq!((old.inactive, old.delete, old.sync_delete), (None, None, new.sync_publish));
    let followed = KeySet::new(vec![key(Role::KeySigning, ending), key(Role::KeySigning, Times::first(NOW))]);
    assert!(
        followed.late(&sign(&followed, NOW), NOW + 25 * DAY).is_empty() && followed.ends_alone(NOW).is_none()
    );
}

/// The keys of a zone that goes from ECDSAP256SHA256 to ED25519 since `NOW`, which began with keys of these roles.
fn changing(roles: &[Role]) -> KeySet {
    let old = KeySet::new(roles.iter().map(|role| key(*role, Times::first(NOW - DAY))).collect());
    let change = old.to_algorithm(Algorithm::Ed25519, NOW).unwrap();
    let drawn = change.drawn.iter().map(|(role, times)| key_of(Algorithm::Ed25519, *role, *times));
    let mut keys: Vec<Key> = drawn.collect();
    let timed: Vec<(u16, Times)> = change.timed.iter().map(|(key, times)| (key.tag(), *times)).collect();
    let mut left = old.into_keys();
    timed
        .iter()
        .for_each(|(tag, times)| left.iter_mut().find(|key| key.tag() == *tag).unwrap().times = *times);
    keys.extend(left);
    KeySet::new(keys)
}

/// The algorithms of the DNSKEY set, of its signatures, of those of CDS, of those of all else, and of the CDS records.
fn algorithms(keys: &KeySet, now: u64) -> [Vec<u8>; 5] {
    let active = keys.at(now).unwrap();
    let Active { published, key_signing, parent_signing, zone_signing, synced } = &active;
    [published, key_signing, parent_signing, zone_signing, synced].map(|keys| {
        let mut numbers: Vec<u8> = keys.iter().map(|key| key.algorithm()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    })
}

#[test]
fn a_change_of_algorithm_goes_by_signatures_keys_and_ds_and_back_by_keys_and_signatures() {
    for roles in [&[Role::KeySigning][..], &[Role::KeySigning, Role::ZoneSigning]] {
        let keys = changing(roles);
        let [old, new, both] = [vec![13], vec![15], vec![13, 15]];
        let signatures = [old.clone(), old.clone(), both.clone(), both.clone(), old.clone()];
        assert_eq!(algorithms(&keys, NOW), signatures, "{roles:?}");
        assert_eq!(algorithms(&keys, NOW + 8 * DAY - 1), signatures);
        let published = [both.clone(), both.clone(), both.clone(), both.clone(), old.clone()];
        assert_eq!(algorithms(&keys, NOW + 8 * DAY), published);
        let told = [both.clone(), both.clone(), both.clone(), both.clone(), new.clone()];
        assert_eq!(algorithms(&keys, NOW + 8 * DAY + 7200), told);
        let leaving = keys.keys().iter().find(|key| keys.is_leaving(key, NOW + 9 * DAY)).unwrap();
        assert_eq!(leaving.algorithm(), 13);

        let retired: Vec<(u16, Times)> =
            keys.retired(leaving, NOW + 9 * DAY).iter().map(|(key, times)| (key.tag(), *times)).collect();
        assert_eq!(retired.len(), roles.len());
        let mut left = keys.into_keys();
        retired
            .iter()
            .for_each(|(tag, times)| left.iter_mut().find(|key| key.tag() == *tag).unwrap().times = *times);
        let keys = KeySet::new(left);
        let unpublished = [new.clone(), new.clone(), both.clone(), both.clone(), new.clone()];
        assert_eq!(algorithms(&keys, NOW + 9 * DAY), unpublished);
        assert_eq!(algorithms(&keys, NOW + 9 * DAY + 7199), unpublished);
        assert_eq!(algorithms(&keys, NOW + 9 * DAY + 7200), [0; 5].map(|_| new.clone()));
    }
}

#[test]
fn a_change_of_algorithm_begins_once_and_not_while_keys_are_replaced() {
    let begins = |keys: &KeySet| keys.to_algorithm(Algorithm::Ed25519, NOW).is_some();
    let changing = changing(&[Role::KeySigning, Role::ZoneSigning]);
    assert!(!begins(&changing), "it is under way");
    assert!(!begins(&KeySet::new(vec![key_of(Algorithm::Ed25519, Role::KeySigning, Times::first(NOW))])));
    assert!(!begins(&KeySet::default()), "there is nothing to change");
    for role in [Role::KeySigning, Role::ZoneSigning] {
        let (old, new) = Times::first(NOW - DAY).roll(role, NOW - 60);
        let other = if role == Role::KeySigning { Role::ZoneSigning } else { Role::KeySigning };
        let keys = KeySet::new(vec![key(role, old), key(role, new), key(other, Times::first(NOW - DAY))]);
        assert!(!begins(&keys), "{role:?}");
    }
}

#[test]
fn a_change_of_algorithm_that_is_turned_back_leaves_the_parent_a_key() {
    for roles in [&[Role::KeySigning][..], &[Role::KeySigning, Role::ZoneSigning]] {
        let keys = changing(roles);
        for day in [0, 7, 8, 9] {
            assert!(keys.to_algorithm(Algorithm::default(), NOW + day * DAY).is_none(), "{roles:?} {day}");
        }
    }
}

#[test]
fn no_key_leaves_for_one_that_the_parent_is_never_told_of() {
    let untold = Times { sync_publish: None, ..Times::first(NOW) };
    let old = key(Role::KeySigning, Times::first(NOW - DAY));
    let keys = KeySet::new(vec![old, key_of(Algorithm::Ed25519, Role::KeySigning, untold)]);
    assert!(keys.to_algorithm(Algorithm::Ed25519, NOW + DAY).is_none());
}

#[test]
fn a_change_of_algorithm_goes_on_after_a_crash() {
    let first = Times::first(NOW - DAY);
    let old = || [key(Role::KeySigning, first), key(Role::ZoneSigning, first)];
    let whole = KeySet::new(old().into());
    let [(_, zone_signing), (_, key_signing)] =
        whole.to_algorithm(Algorithm::Ed25519, NOW).unwrap().drawn[..]
    else {
        panic!()
    };
    let left = |keys: Vec<Key>| KeySet::new(old().into_iter().chain(keys).collect());
    let zsk = || key_of(Algorithm::Ed25519, Role::ZoneSigning, zone_signing);
    let keys = left(vec![zsk()]);
    let change = keys.to_algorithm(Algorithm::Ed25519, NOW + DAY).unwrap();
    assert_eq!((change.drawn.len(), change.drawn[0].0, change.timed.len()), (1, Role::KeySigning, 2));
    let keys = left(vec![zsk(), key_of(Algorithm::Ed25519, Role::KeySigning, key_signing)]);
    let change = keys.to_algorithm(Algorithm::Ed25519, NOW + DAY).unwrap();
    let [(key, times)] = change.timed[..] else { panic!() };
    assert_eq!((key.algorithm(), times.sync_delete), (13, key_signing.sync_publish));
}

#[test]
fn a_key_is_not_retired_before_the_parent_is_told_of_another_one() {
    let (old, new) = Times::first(NOW).roll(Role::KeySigning, NOW + DAY);
    let keys = KeySet::new(vec![
        key(Role::KeySigning, old),
        key(Role::KeySigning, new),
        key(Role::ZoneSigning, Times::first(NOW)),
    ]);
    let tag = |times: Times| keys.keys().iter().find(|key| key.times == times).unwrap().tag();
    let may = |times, day| keys.may_retire(tag(times), NOW + day * DAY);
    assert_eq!([may(old, 0), may(old, 1), may(old, 2)], [Err(Needed::Only), Err(Needed::Only), Ok(())]);
    assert_eq!(may(new, 2), Err(Needed::Only), "the parent is not told of the old one any more");
    assert_eq!(may(Times::first(NOW), 2), Err(Needed::ZoneSigning));
    let other = (0..=u16::MAX).find(|tag| keys.keys().iter().all(|key| key.tag() != *tag)).unwrap();
    assert_eq!(keys.may_retire(other, NOW), Err(Needed::Unknown));
}

#[test]
fn the_times_of_a_key_are_written_in_place_of_those_that_it_had() {
    let files = KeyFiles::generate(name("example.").as_name(), Role::KeySigning, Times::first(NOW)).unwrap();
    let times = Times { inactive: Some(NOW + DAY), delete: Some(NOW + DAY), ..Times::first(NOW) };
    let private = times.written_into(&files.private);
    let read = Key::read(name("example.").as_name(), &files.public, &private).unwrap();
    assert_eq!(read.times, times);
    assert_eq!(private.lines().count(), files.private.lines().count() + 2);
    assert_eq!(times.next(NOW), Some(("SyncPublish", NOW + 7200)));
}

#[test]
fn files_that_are_not_of_a_key_of_the_zone_are_refused() {
    let origin = name("example.");
    let generate = |origin: &str| {
        KeyFiles::generate(name(origin).as_name(), Role::KeySigning, Times::first(NOW)).unwrap()
    };
    let (good, second, foreign) = (generate("example."), generate("example."), generate("other."));
    let read = |public: &str, private: &str| Key::read(origin.as_name(), public, private).err();
    assert_eq!(read(&good.public, &good.private), None);
    assert_eq!(read(&good.public, &second.private), Some(KeyError::Pair));
    assert_eq!(read(&foreign.public, &foreign.private), Some(KeyError::OtherZone));
    assert_eq!(read("; nothing\n", &good.private), Some(KeyError::Public));
    assert_eq!(read(&good.public, "Algorithm: 13"), Some(KeyError::Private));
    assert_eq!(read(&good.public, &good.private.replace("Publish: 2", "Publish: x")), Some(KeyError::Time));
}

#[test]
fn the_serial_of_csync_is_that_of_the_last_change_of_what_the_parent_copies() {
    let keys = keys();
    at(&keys, NOW, |signer| {
        let signer = signer.with_csync(true);
        let first = zone(7, &[("ns.example.", Rtype::A)]);
        let mut held = signer.sign(&first, 8, 5).unwrap();
        let mut step = |records: &[(&str, Rtype)]| {
            let source = zone(7, records);
            let next = signer.follow(&held, &source, &differing(&held, &source)).unwrap();
            held = next.map_or_else(|| held.clone(), |next| next.changed.zone);
            let csync = held.apex().rrset(Rtype::CSYNC).unwrap();
            let rdata = csync.records().next().unwrap().to_vec();
            // Immediate and soaminimum; A, NS and AAAA.
            assert_eq!((csync.count(), &rdata[4..]), (1, &[0, 3, 0, 4, 0x60, 0, 0, 8][..]));
            let numbers = (u32::from_be_bytes(*rdata.first_chunk().unwrap()), held.serial());
            assert!(signer.follow(&held, &source, &[]).unwrap().is_none(), "it is settled");
            signed(&held, &keys);
            numbers
        };
        assert_eq!(step(&[("ns.example.", Rtype::A)]), (8, 8));
        assert_eq!(step(&[("ns.example.", Rtype::A), ("host.example.", Rtype::A)]), (8, 9));
        assert_eq!(step(&[("host.example.", Rtype::A)]), (10, 10), "the server's address");
        assert_eq!(step(&[("host.example.", Rtype::A), ("example.", Rtype::NS)]), (11, 11), "the servers");
        assert_eq!(step(&[("example.", Rtype::NS)]), (12, 12), "the second server's address");
    });
}

#[test]
fn a_csync_record_of_the_zones_owner_counts_and_one_that_is_not_wanted_goes() {
    let keys = keys();
    at(&keys, NOW, |signer| {
        let own = [0, 0, 0, 9, 0, 1, 0, 1, 0x20];
        let mut builder = builder(7);
        builder.add(name("example.").as_name(), 60, Rtype::CSYNC, &own).unwrap();
        let source = builder.finish().unwrap();
        let held = signer.with_csync(true).sign(&source, 8, 5).unwrap();
        let of = |zone: &Zone| -> Vec<Vec<u8>> {
            zone.apex()
                .rrset(Rtype::CSYNC)
                .into_iter()
                .flat_map(|set| set.records().map(<[u8]>::to_vec))
                .collect()
        };
        assert_eq!(of(&held), [own.to_vec()]);
        let next = signer.with_csync(true).follow(&held, &zone(7, &[]), &[]).unwrap().unwrap().changed.zone;
        assert_eq!(of(&next)[0][..6], [0, 0, 0, 9, 0, 3], "its serial is that of the version");
        let next = signer.follow(&next, &zone(7, &[]), &[]).unwrap().unwrap().changed.zone;
        assert_eq!(of(&next), Vec::<Vec<u8>>::new());
    });
}

/// Names near each other, so that cuts, redirections, wildcards and empty non-terminals meet.
fn records() -> impl Strategy<Value = Vec<(String, Rtype)>> {
    let label = || prop::sample::select(vec!["a", "B", "c", "*", "\\001"]);
    let owner =
        prop::collection::vec(label(), 1..4).prop_map(|labels| format!("{}.example.", labels.join(".")));
    let rtype =
        prop::sample::select(vec![Rtype::A, Rtype::A, Rtype::NS, Rtype::DS, Rtype::DNAME, Rtype::CNAME]);
    prop::collection::vec((owner, rtype), 0..12)
}

#[test]
fn with_compact_denial_each_record_leads_to_the_name_that_directly_follows() {
    let keys = keys();
    by(DenialBy::Compact, &keys, NOW, |signer| {
        let source = zone(7, ALL_KINDS);
        let held = signer.sign(&source, 7, 5).unwrap();
        assert!(matches!(held.denial(), Some(Denial::Compact)));
        let next = |owner: &str| held.find(&wire(owner)).and_then(next_of).map(|next| next.to_string());
        let leads = |owner: &str, to: &str| assert_eq!(next(owner).as_deref(), Some(to), "{owner}");
        leads("example.", "\\000.example.");
        leads("HOST.example.", "\\000.host.example.");
        leads("*.wild.example.", "\\000.*.wild.example.");
        leads("redirected.example.", "\\000.redirected.example.");
        // RFC 9824, 3.4: what is below a cut is not the zone's.
        leads("insecure.example.", "insecure\\000.example.");
        leads("secure.example.", "secure\\000.example.");
        for owner in ["an.empty.example.", "ns.insecure.example.", "hidden.redirected.example."] {
            assert_eq!(next(owner), None, "{owner}");
        }
        assert!(signer.due(&held, &source, 9).names.is_empty());
    });
}

#[test]
fn sets_are_signed_for_one_answer_by_the_keys_that_sign_the_zone() {
    let keys = keys();
    let (active, origin, owner) = (keys.at(NOW).unwrap(), name("example."), name("X.example."));
    let online = OnlineKeys::new(origin.as_name(), &active).unwrap();
    let signatures = online.sign(owner.as_name(), Rtype::A, 60, &[&[192, 0, 2, 1]], NOW).unwrap();
    assert_eq!(signatures.len(), active.zone_signing.len());
    let mut builder = builder(7);
    builder.add(owner.as_name(), 60, Rtype::A, &[192, 0, 2, 1]).unwrap();
    let zone = builder.finish().unwrap();
    let node = zone.find(&wire("x.example.")).unwrap();
    for rdata in &signatures {
        check(node, Rtype::A, rdata, &keys);
        let time = |at: usize| u64::from(u32::from_be_bytes(rdata[at..at + 4].try_into().unwrap()));
        assert!(time(12) <= NOW - 3600 && time(8) > NOW + 86_400 && time(8) < NOW + 7 * 86_400);
    }
}

#[test]
fn a_key_in_a_token_signs_nothing_for_one_answer() {
    let (origin, label) = (name("example."), "pkcs11:token=a;object=b");
    let about = (Role::KeySigning, Times::default());
    let files = KeyFiles::of_token(origin.as_name(), about, (13, vec![7; 64]), label).unwrap();
    let key = Key::read(origin.as_name(), &files.public, &files.private).unwrap();
    let (tag, keys) = (key.tag(), KeySet::new(vec![key]));
    let refused = OnlineKeys::new(origin.as_name(), &keys.at(NOW).unwrap());
    assert_eq!(refused.unwrap_err(), crate::InToken { tag });
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: RngSeed::Fixed(1), failure_persistence: None, ..ProptestConfig::with_cases(300)
    })]

    #[test]
    fn a_zone_signed_step_by_step_is_as_one_signed_at_once(steps in prop::collection::vec(records(), 1..5)) {
        let keys = keys();
        let sources: Vec<Zone> = (7..).zip(&steps).map(|(serial, records)| {
            let records: Vec<_> = records.iter().map(|(owner, rtype)| (&**owner, *rtype)).collect();
            zone(serial, &records)
        }).collect();
        for denial in [DenialBy::Nsec, DenialBy::Nsec3, DenialBy::Compact] {
            by(denial, &keys, NOW, |signer| {
                let mut held = signer.sign(&sources[0], 7, 5).unwrap();
                for source in &sources[1..] {
                    let next = signer.follow(&held, source, &differing(&held, source)).unwrap().unwrap();
                    held = next.changed.zone;
                    let at_once = signer.sign(source, held.serial(), 6).unwrap();
                    assert_eq!(unsigned(&held), unsigned(&at_once));
                    assert_eq!(signed(&held, &keys), signed(&at_once, &keys));
                    assert_eq!(differing(&held, source), []);
                }
            });
        }
    }

    #[test]
    fn a_zone_may_be_denied_in_another_way(records in records()) {
        let keys = keys();
        let records: Vec<_> = records.iter().map(|(owner, rtype)| (&**owner, *rtype)).collect();
        let source = zone(7, &records);
        let ways = [DenialBy::Nsec, DenialBy::Nsec3, DenialBy::Compact];
        for (from, to) in ways.into_iter().flat_map(|from| ways.map(|to| (from, to))).filter(|(from, to)| from != to) {
            by(from, &keys, NOW, |signer| {
                let held = signer.sign(&source, 7, 5).unwrap();
                by(to, &keys, NOW, |signer| {
                    let next = signer.follow(&held, &source, &[]).unwrap().unwrap().changed.zone;
                    let at_once = signer.sign(&source, next.serial(), 6).unwrap();
                    assert_eq!(unsigned(&next), unsigned(&at_once));
                    assert_eq!(signed(&next, &keys), signed(&at_once, &keys));
                    assert!(signer.follow(&next, &source, &[]).unwrap().is_none());
                });
            });
        }
    }
}
