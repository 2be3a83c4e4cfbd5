//! Compact denial (RFC 9824): one NSEC record that matches the name says all, and names that do not exist get theirs with the answer.

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clock::{Duration, Instant};
use common::random_zones::{QTYPES, config, names, zones};
use common::{Edns, Query, ZoneList, check_with_domain, describe, respond, responder};
use dns_auth::compile::{compile, compile_anew, compile_changed};
use dns_auth::fuzz::{Record, Reply, check_reply};
use dns_auth::table::Tables;
use dns_auth::{
    Catalog, Counters, OnlineSet, Prepared, Responder, ServedZone, Settings, SignOnline, Transport,
};
use dns_sign::{DenialBy, Key, KeyFiles, KeySet, Lifetimes, Role, Signer, Times};
use dns_wire::{Name, NameBuf, Rcode, Rtype};
use dns_zone::{Zone, ZoneEditor, next_name};
use proptest::test_runner::{TestCaseError, TestRunner};

const NOW: u64 = 1_800_000_000;
const DO: u16 = 0x8000;
const CO: u16 = 0x4000;

/// Has the owner in place of a signature. Each costs a millisecond.
#[derive(Debug, Default)]
struct Fake(AtomicU64);

impl SignOnline for Fake {
    fn id(&self) -> u64 {
        7
    }

    fn cost(&self) -> Duration {
        Duration::from_millis(1)
    }

    fn sign(&self, set: &OnlineSet<'_>) -> Option<Vec<Vec<u8>>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let owner = set.owner.as_bytes().to_ascii_lowercase();
        let [covered, ttl] = [&set.rtype.0.to_be_bytes()[..], &set.ttl.to_be_bytes()];
        // Algorithm and labels, times and tag, and the root in place of the signer's name.
        Some(vec![[covered, &[13, 2], ttl, &[0; 10], &[0], &owner].concat()])
    }
}

/// A zone as its signer makes it; `None` of one that cannot be signed.
fn signed(zone: &ZoneList) -> Option<Zone> {
    let origin = zone.origin.as_name();
    let files = KeyFiles::generate(origin, Role::KeySigning, Times::default()).unwrap();
    let keys = KeySet::new(vec![Key::read(origin, &files.public, &files.private).unwrap()]);
    let active = keys.at(NOW).unwrap();
    let signer = Signer::new(origin, &active, NOW, Lifetimes::default(), DenialBy::Compact);
    signer.sign(&zone.build(), 7, 5).ok()
}

fn served(zone: ServedZone) -> Arc<ServedZone> {
    zone.sign_online_by(Arc::new(Fake::default()));
    Arc::new(zone)
}

const TEXT: &str = "@ 300 SOA ns host 1 2 3 4 60\n@ NS ns\nns A 192.0.2.1\nwww A 192.0.2.2\nalias CNAME nowhere\n\
    to-wild CNAME x.wild\na.ent A 192.0.2.3\n*.wild A 192.0.2.4\n*.wild TXT \"w\"\n*.walias CNAME www\n*.went.x A 192.0.2.5\n\
    a.*.empty A 192.0.2.6\nsub NS ns.sub\nns.sub A 192.0.2.7\nsecure NS ns.sub\nsecure DS 1 8 2 00\nd DNAME www\n";

fn catalog() -> Catalog {
    let zone = signed(&ZoneList::from_text("example.", TEXT).unwrap()).unwrap();
    Catalog::new([served(compile(zone))], 3)
}

fn query(qname: &str, qtype: Rtype, flags: u16) -> Query {
    let edns = Edns { payload_size: 4096, flags, ..Edns::default() };
    Query { edns: Some(edns), ..Query::new(common::name(qname).as_name().as_bytes(), qtype) }
}

/// The answer over TCP to a new responder.
fn ask(catalog: &Catalog, query: &Query) -> Reply {
    let wire = query.to_wire();
    let answer = respond(&mut responder(&Settings::default()), catalog, &wire, Transport::Tcp).unwrap();
    check_reply(&wire, &answer, 65_535);
    check_with_domain(&answer);
    Reply::read(&answer).unwrap()
}

/// Owner, next name and types of an NSEC record.
fn nsec(record: &Record) -> (String, String, Vec<u16>) {
    let (next, mut maps) = Name::split_from(&record.rdata).unwrap();
    let mut types = Vec::new();
    while let [window, len, rest @ ..] = maps {
        let (bits, rest) = rest.split_at(usize::from(*len));
        let is_set = |number: &u16| bits[usize::from(number / 8)] & 0x80 >> (number % 8) != 0;
        types.extend((0..u16::from(*len) * 8).filter(is_set).map(|number| u16::from(*window) << 8 | number));
        maps = rest;
    }
    (Name::from_wire(&record.owner).unwrap().to_string(), next.to_string(), types)
}

/// The only NSEC record of a section, which has a signature.
fn only_nsec(section: &[Record]) -> (String, String, Vec<u16>) {
    let of_nsec: Vec<&Record> = section.iter().filter(|record| record.rtype == Rtype::NSEC).collect();
    assert_eq!(of_nsec.len(), 1, "{section:?}");
    let covers = |record: &&Record| record.rtype == Rtype::RRSIG && record.rdata[..2] == [0, 47];
    assert_eq!(section.iter().filter(covers).count(), 1, "{section:?}");
    nsec(of_nsec[0])
}

const NOTHING: [u16; 2] = [46, 47];
const NO_NAME: [u16; 3] = [46, 47, 128];

#[test]
fn each_denial_is_one_record_at_the_name_in_question() {
    let catalog = catalog();
    let a_rrsig_nsec = vec![1, 46, 47];
    // Question; owner, next name and types of what denies.
    for (qname, qtype, owner, next, types) in [
        ("missing.example.", Rtype::A, "missing.example.", r"\000.missing.example.", NO_NAME.to_vec()),
        (
            "A.B.Missing.example.",
            Rtype::A,
            "A.B.Missing.example.",
            r"\000.a.b.missing.example.",
            NO_NAME.to_vec(),
        ),
        (
            "missing.www.example.",
            Rtype::ANY,
            "missing.www.example.",
            r"\000.missing.www.example.",
            NO_NAME.to_vec(),
        ),
        ("missing.example.", Rtype::RRSIG, "missing.example.", r"\000.missing.example.", NO_NAME.to_vec()),
        ("www.example.", Rtype::AAAA, "www.example.", r"\000.www.example.", a_rrsig_nsec),
        ("ent.example.", Rtype::A, "ent.example.", r"\000.ent.example.", NOTHING.to_vec()),
        ("x.wild.example.", Rtype::MX, "x.wild.example.", r"\000.x.wild.example.", vec![1, 16, 46, 47]),
        ("x.wild.example.", Rtype::RRSIG, "x.wild.example.", r"\000.x.wild.example.", vec![1, 16, 46, 47]),
        ("*.wild.example.", Rtype::MX, "*.wild.example.", r"\000.*.wild.example.", vec![1, 16, 46, 47]),
        ("x.empty.example.", Rtype::A, "x.empty.example.", r"\000.x.empty.example.", NOTHING.to_vec()),
        ("www.sub.example.", Rtype::A, "sub.example.", r"sub\000.example.", vec![2, 46, 47]),
        ("sub.example.", Rtype::DS, "sub.example.", r"sub\000.example.", vec![2, 46, 47]),
    ] {
        let reply = ask(&catalog, &query(qname, qtype, DO));
        assert_eq!(reply.rcode(), Rcode::NoError as u16, "{qname} {qtype}: {}", describe(&reply));
        assert!(reply.sections[0].is_empty(), "{}", describe(&reply));
        let expected = (owner.to_owned(), next.to_owned(), types);
        assert_eq!(only_nsec(&reply.sections[1]), expected, "{qname} {qtype}");
        let is_referral = qname.contains(".sub");
        let soa = reply.sections[1].iter().filter(|record| record.rtype == Rtype::SOA).count();
        assert_eq!(soa, usize::from(!is_referral), "{}", describe(&reply));
    }
}

#[test]
fn a_wildcard_makes_names_that_are_signed_as_their_own() {
    let catalog = catalog();
    for (qname, types) in [
        ("x.wild.example.", vec![Rtype::A, Rtype::RRSIG]),
        ("to-wild.example.", vec![Rtype::CNAME, Rtype::RRSIG, Rtype::A, Rtype::RRSIG]),
        ("x.walias.example.", vec![Rtype::CNAME, Rtype::RRSIG, Rtype::A, Rtype::RRSIG]),
    ] {
        let reply = ask(&catalog, &query(qname, Rtype::A, DO));
        let found: Vec<Rtype> = reply.sections[0].iter().map(|record| record.rtype).collect();
        assert_eq!(found, types, "{}", describe(&reply));
        assert!(reply.sections[1].is_empty(), "nothing denies a closer name: {}", describe(&reply));
        let made = reply.sections[0]
            .iter()
            .find(|record| record.rdata.ends_with(b"\x07example\0") && record.rtype == Rtype::RRSIG);
        let made = made.unwrap_or_else(|| panic!("{}", describe(&reply)));
        assert!(made.rdata.ends_with(&made.owner), "signed for this name: {}", describe(&reply));
    }
    let reply = ask(&catalog, &query("x.wild.example.", Rtype::ANY, DO));
    assert_eq!(reply.sections[0][0].rtype, Rtype::A, "{}", describe(&reply));
}

#[test]
fn the_code_is_nxdomain_for_who_can_bear_it_or_cannot_tell() {
    let catalog = catalog();
    for (qname, exists) in [("missing.example.", false), ("alias.example.", false), ("ent.example.", true)] {
        for (flags, says_so) in [(0, true), (CO, true), (DO, false), (DO | CO, true)] {
            let reply = ask(&catalog, &query(qname, Rtype::A, flags));
            let expected = if exists || !says_so { Rcode::NoError } else { Rcode::NxDomain };
            assert_eq!(reply.rcode(), expected as u16, "{qname} {flags:x}");
            let answered = reply.opt.as_ref().unwrap().ttl & u32::from(CO) != 0;
            assert_eq!(answered, flags == DO | CO, "CO for {qname} {flags:x}");
            let denies = reply.sections[1].iter().any(|record| record.rtype == Rtype::NSEC);
            assert_eq!(denies, flags & DO != 0, "{}", describe(&reply));
        }
    }
    let reply = ask(&catalog, &query("www.example.", Rtype::A, DO | CO));
    assert_ne!(reply.opt.unwrap().ttl & u32::from(CO), 0, "in positive answers, too");
}

#[test]
fn other_zones_do_not_have_the_flag_of_compact_answers() {
    let zones = [ZoneList::from_text("example.", "@ 60 SOA a a 1 2 3 4 5\n").unwrap()];
    let [catalog, _] = common::catalogs(&zones);
    for qname in ["example.", "x.example.", "elsewhere."] {
        let reply = ask(&catalog, &query(qname, Rtype::SOA, DO | CO));
        assert_eq!(reply.opt.unwrap().ttl & 0xffff, u32::from(DO), "{qname}");
    }
}

#[test]
fn who_asks_for_the_record_gets_it() {
    let catalog = catalog();
    for (qname, types) in [
        ("missing.example.", NO_NAME.to_vec()),
        ("ent.example.", NOTHING.to_vec()),
        ("x.walias.example.", vec![5, 46, 47]),
        ("www.example.", vec![1, 46, 47]),
    ] {
        let reply = ask(&catalog, &query(qname, Rtype::NSEC, DO | CO));
        assert_eq!((reply.rcode(), reply.sections[1].len()), (0, 0), "{}", describe(&reply));
        let next = format!(r"\000.{qname}");
        assert_eq!(only_nsec(&reply.sections[0]), (qname.to_owned(), next, types));
    }
}

#[test]
fn nobody_can_ask_for_the_sign_of_no_name() {
    let catalog = catalog();
    for qname in ["missing.example.", "www.example.", "elsewhere."] {
        let reply = ask(&catalog, &query(qname, Rtype::NXNAME, DO));
        assert_eq!(reply.rcode(), Rcode::FormErr as u16);
        assert_eq!(reply.opt.unwrap().rdata, [0, 15, 0, 2, 0, 30], "Invalid Query Type (RFC 9824, 3.5)");
    }
}

/// Random names over UDP and TCP, and among them one that exists.
#[test]
fn a_flood_of_names_is_cut_off_and_leaves_other_answers_alone() {
    let (catalog, counters) = (catalog(), Arc::new(Counters::default()));
    let mut responder = Responder::new(Arc::default(), Arc::clone(&counters));
    responder.set_time(Instant::ZERO + Duration::from_secs(9));
    let mut ask = |qname: &str, transport| {
        let answer = respond(&mut responder, &catalog, &query(qname, Rtype::A, DO).to_wire(), transport);
        Reply::read(&answer.unwrap()).unwrap()
    };
    let mut seen = Vec::new();
    for number in 0..20 {
        for transport in [Transport::Udp, Transport::Tcp] {
            let reply = ask(&format!("{transport:?}{number}.example."), transport);
            let is_denied = reply.sections[1].len() == 4;
            let is_truncated = reply.flags & 0x200 != 0;
            let records = reply.sections.iter().flatten().count();
            assert_eq!(is_denied, records != 0, "all or nothing: {}", describe(&reply));
            seen.push((is_denied, is_truncated, reply.rcode()));
            let other = ask("www.example.", transport);
            assert_eq!((other.rcode(), other.sections[0].len()), (0, 2));
        }
    }
    // Five are what a hundred milliseconds have: a twentieth of that, at a millisecond each.
    let (denied, truncated, failed) = ((true, false, 0), (false, true, 0), (false, false, 2));
    let expected: Vec<_> =
        (0..20).flat_map(|number| if number < 5 { [denied; 2] } else { [truncated, failed] }).collect();
    assert_eq!(seen, expected);
    assert_eq!(ask("udp2.example.", Transport::Udp).sections[1].len(), 4, "what was signed is there");
    let counted = counters.named();
    let count = |name: &str| counted.iter().find(|(own, _)| own == name).map(|(_, count)| *count);
    assert_eq!(count("online_signatures"), Some(10));
    assert_eq!(count("online_signatures_reused"), Some(1));
    assert_eq!(count("online_signatures_over_budget"), Some(30));
}

#[test]
fn without_keys_names_are_denied_to_nobody_who_wants_proof() {
    let zone = signed(&ZoneList::from_text("example.", TEXT).unwrap()).unwrap();
    let catalog = Catalog::new([Arc::new(compile(zone))], 3);
    for (qname, flags, expected) in [
        ("missing.example.", DO, Rcode::ServFail),
        ("x.wild.example.", DO, Rcode::ServFail),
        ("to-wild.example.", DO, Rcode::ServFail),
        ("missing.example.", 0, Rcode::NxDomain),
        ("www.example.", DO, Rcode::NoError),
    ] {
        let reply = ask(&catalog, &query(qname, Rtype::A, flags));
        assert_eq!(reply.rcode(), expected as u16, "{qname} {flags:x}: {}", describe(&reply));
    }
}

#[test]
fn aliases_that_lead_to_what_a_wildcard_makes_are_left_to_the_tree() {
    let text = format!("{TEXT}$GENERATE 1-300 alias$ CNAME x$.wild\n");
    let zone = signed(&ZoneList::from_text("example.", &text).unwrap()).unwrap();
    let catalog = Catalog::new([served(compile(zone))], 3);
    for number in [1, 300] {
        let reply = ask(&catalog, &query(&format!("alias{number}.example."), Rtype::A, DO));
        assert_eq!(reply.sections[0].len(), 4, "{}", describe(&reply));
    }
}

#[test]
fn aliases_from_other_zones_lead_to_signatures_too() {
    let zone = signed(&ZoneList::from_text("example.", TEXT).unwrap()).unwrap();
    let other = ZoneList::from_text("other.", "@ 60 SOA a a 1 2 3 4 5\na CNAME gone.example.\n").unwrap();
    let plain = Arc::new(compile(other.build()));
    let catalog = Catalog::new([Arc::clone(&plain), served(compile(zone))], 3);
    let wire = query("a.other.", Rtype::A, DO).to_wire();
    let may_sign = |catalog: &Catalog| {
        let (responder, mut prepared) = (responder(&Settings::default()), Prepared::default());
        responder.prepare(catalog, &wire, wire.len(), &mut prepared);
        responder.may_sign(catalog, &prepared)
    };
    assert!(may_sign(&catalog) && !may_sign(&Catalog::new([plain], 3)));
    let reply = ask(&catalog, &query("a.other.", Rtype::A, DO));
    assert_eq!((reply.rcode(), reply.sections[0].len(), reply.sections[1].len()), (0, 1, 4));
}

#[test]
fn the_signer_goes_on_with_the_same_records_and_not_with_others() {
    let zone = signed(&ZoneList::from_text("example.", TEXT).unwrap()).unwrap();
    let before = served(compile(zone));
    assert!(compile_anew(&before).unwrap().signer().is_some());
    let mut editor = ZoneEditor::new(before.tree().unwrap());
    editor.add(common::name("new.example.").as_name(), 60, Rtype::A, &[192, 0, 2, 9]).unwrap();
    assert!(compile_changed(&before, editor.finish().unwrap()).signer().is_none());
}

#[test]
fn random_zones_are_denied_compactly_alike_from_compiled_answers_and_from_the_tree() {
    let outcome = TestRunner::new(config(6, 3)).run(&zones(), |lists| {
        let Some(trees) = lists.iter().map(signed).collect::<Option<Vec<Zone>>>() else { return Ok(()) };
        let catalog = |serve: &dyn Fn(Zone) -> ServedZone| {
            Catalog::new(trees.iter().map(|zone| served(serve(zone.clone()))), 3)
        };
        let both = [catalog(&compile), catalog(&|zone| ServedZone::new(zone, Tables::default()))];
        let texts = || lists.iter().map(ZoneList::to_text).collect::<Vec<_>>().join("\n\n");
        for qname in names(&lists) {
            for qtype in QTYPES.into_iter().chain([Rtype::NSEC]) {
                let check = check_question(&both, &qname, qtype);
                check.map_err(|error| TestCaseError::fail(format!("{error}\n{}", texts())))?;
            }
        }
        Ok(())
    });
    if let Err(proptest::test_runner::TestError::Fail(reason, _)) = outcome {
        panic!("{reason}");
    }
    outcome.unwrap();
}

/// Both give the same; what is said without proof is also proven, by records of the name that it is about.
fn check_question(both: &[Catalog; 2], qname: &[u8], qtype: Rtype) -> Result<(), String> {
    let query = |flags| {
        let edns = Edns { payload_size: 4096, flags, ..Edns::default() };
        Query { edns: Some(edns), ..Query::new(qname, qtype) }
    };
    let [plain, proven, signalled] = [0, DO, DO | CO].map(query);
    for query in [&plain, &proven, &signalled] {
        let [compiled, tree] = both.each_ref().map(|catalog| ask(catalog, query));
        if compiled != tree {
            return Err(format!("{query}\ncompiled: {}\ntree: {}", describe(&compiled), describe(&tree)));
        }
    }
    let [plain, proven, signalled] = [plain, proven, signalled].map(|query| ask(&both[1], &query));
    let is_missing = plain.rcode() == Rcode::NxDomain as u16;
    let fail = |what: &str| Err(format!("{what} {qtype}\n{}\n{}", describe(&plain), describe(&proven)));
    if qtype == Rtype::NSEC {
        return Ok(());
    }
    if signalled.rcode() != plain.rcode() || proven.rcode() == Rcode::NxDomain as u16 && is_signed(&proven) {
        return fail("the code is wrong");
    }
    let denials: Vec<_> =
        proven.sections[1].iter().filter(|record| record.rtype == Rtype::NSEC).map(nsec).collect();
    let has_soa = proven.sections[1].iter().any(|record| record.rtype == Rtype::SOA);
    match denials.as_slice() {
        [] if has_soa => fail("nothing denies"),
        [_, _, ..] => fail("several records deny"),
        [(_, _, types)] if types.contains(&128) != is_missing => fail("NXNAME is where it should not be"),
        [(_, _, types)] if has_soa && types.contains(&qtype.0) && qtype != Rtype::RRSIG => {
            fail("it says that there is one")
        }
        [(owner, next, _)] if !leads_on(owner, next) => fail("it denies more than one name"),
        _ => Ok(()),
    }
}

fn is_signed(reply: &Reply) -> bool {
    reply.sections[1].iter().any(|record| record.rtype == Rtype::NSEC)
}

/// Whether a name is the one behind the owner, or behind all below a cut.
fn leads_on(owner: &str, next: &str) -> bool {
    let name = |text: &str| NameBuf::from_text(text.as_bytes(), None).unwrap();
    let (owner, next) = (name(owner), name(next));
    let behind: BTreeSet<NameBuf> =
        [false, true].map(|is_cut| next_name(owner.as_name(), Name::from_wire(&[0]).unwrap(), is_cut)).into();
    behind.contains(&next)
}
