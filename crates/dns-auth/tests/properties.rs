//! What holds for every zone and every question: compiled answers are the tree's, and the tree's are the RFC's.
//!
//! Zones are those of `specs/zones` and some that chance makes from a fixed seed. A failure prints the zones as zone files
//! and the question; `PROPTEST_RNG_SEED=n PROPTEST_CASES=m cargo test -p dns-auth --test properties` tries others.

mod common;

use std::sync::Arc;

use common::random_zones::{QTYPES, config, names, zones};
use common::{Edns, Query, ZoneList, catalogs, check_with_domain, describe, model, responder, samples};
use dns_auth::fuzz::{Reply, check_reply};
use dns_auth::{Catalog, Counters, Responder, Settings, Transport};
use dns_wire::Rtype;
use proptest::test_runner::{TestCaseError, TestRunner};

#[test]
fn sample_zones_are_answered_alike_from_compiled_answers_and_from_the_tree() {
    let zones = samples();
    let mut both = Both::new(&zones, &settings());
    for name in names(&zones) {
        for qtype in all_types(&zones) {
            for (query, transport) in variants(&name, qtype) {
                both.compare(&query, transport).unwrap();
            }
        }
    }
}

#[test]
fn random_zones_are_answered_alike_from_compiled_answers_and_from_the_tree() {
    for_all_zones(60, 1, |zones| {
        let mut both = Both::new(zones, &settings());
        for name in names(zones) {
            for qtype in QTYPES {
                for (query, transport) in variants(&name, qtype) {
                    both.compare(&query, transport)?;
                }
            }
        }
        Ok(())
    });
}

#[test]
fn random_zones_are_answered_as_the_model_says() {
    for_all_zones(100, 2, |zones| {
        let mut both = Both::new(zones, &settings());
        names(zones)
            .iter()
            .try_for_each(|name| QTYPES.iter().try_for_each(|qtype| both.check_model(zones, name, *qtype)))
    });
}

#[test]
fn sample_zones_are_answered_as_the_model_says() {
    let zones = samples();
    let mut both = Both::new(&zones, &settings());
    for name in names(&zones) {
        for qtype in all_types(&zones) {
            both.check_model(&zones, &name, qtype).unwrap();
        }
    }
}

#[test]
fn questions_in_any_case_are_answered_from_the_table() {
    let zones = samples();
    let [catalog, _] = catalogs(&zones);
    let answered_from_table = |spell: fn(&[u8]) -> Vec<u8>| {
        let counters = Arc::new(Counters::default());
        let mut responder = Responder::new(Arc::new(settings()), Arc::clone(&counters));
        for name in names(&zones) {
            for qtype in all_types(&zones) {
                let wire = Query::new(&spell(&name), qtype).to_wire();
                common::respond(&mut responder, &catalog, &wire, Transport::Tcp).unwrap();
            }
        }
        let counts = counters.named();
        counts.into_iter().find(|(name, _)| name == "responses_precompiled").unwrap().1
    };
    let [lower, upper, mixed] =
        [<[u8]>::to_ascii_lowercase, <[u8]>::to_ascii_uppercase, <[u8]>::to_vec].map(answered_from_table);
    assert!(lower > 500 && upper == lower && mixed == lower, "{lower} {upper} {mixed}");
}

#[test]
fn rotation_changes_the_order_of_the_answer_and_nothing_else() {
    let zones = samples();
    let settings = Settings { rotate: true, ..settings() };
    let (mut both, mut plain) = (Both::new(&zones, &settings), Both::new(&zones, &self::settings()));
    for name in names(&zones) {
        for qtype in all_types(&zones) {
            let query = Query::new(&name, qtype);
            let expected = sorted(&plain.ask(&query, Transport::Tcp)[0]);
            for reply in both.ask(&query, Transport::Tcp) {
                assert_eq!(expected, sorted(&reply), "{query}");
            }
        }
    }
}

#[test]
fn rotation_brings_every_record_to_the_front() {
    let text = "@ 60 SOA ns h 1 2 3 4 5\n$GENERATE 1-5 a 60 A 192.0.2.$\n$GENERATE 1-5 m 60 MX $ a\n";
    let zones = [ZoneList::from_text("test.", text).unwrap()];
    for (qname, qtype) in [(&b"\x01a\x04test\0"[..], Rtype::A), (b"\x01m\x04test\0", Rtype::MX)] {
        let mut both = Both::new(&zones, &Settings { rotate: true, ..Settings::default() });
        for way in 0..2 {
            let query = Query::new(qname, qtype);
            let first = (0..5).map(|_| {
                let reply = Reply::read(&both.ask(&query, Transport::Udp)[way]).unwrap();
                reply.sections[0][0].rdata.clone()
            });
            assert_eq!(first.collect::<std::collections::BTreeSet<_>>().len(), 5, "{query}, way {way}");
        }
    }
}

fn settings() -> Settings {
    Settings {
        udp_payload_max: 4096,
        nsid: Some(b"an identifier".to_vec()),
        version: Some("some version".to_owned()),
        ..Settings::default()
    }
}

/// Runs `check` on random zones; a failure is told with the smallest zones that show it.
fn for_all_zones(cases: u32, seed: u64, check: impl Fn(&[ZoneList]) -> Result<(), String>) {
    let outcome = TestRunner::new(config(cases, seed)).run(&zones(), |zones| {
        check(&zones).map_err(|difference| {
            let texts = zones.iter().map(|zone| format!("\n; zone {}\n{}\n", zone.origin, zone.to_text()));
            TestCaseError::fail(format!("{}\n{difference}", texts.collect::<String>()))
        })
    });
    if let Err(proptest::test_runner::TestError::Fail(reason, _)) = outcome {
        panic!("{reason}");
    }
    outcome.unwrap();
}

/// The types of the zones, and those that have a meaning in questions.
fn all_types(zones: &[ZoneList]) -> std::collections::BTreeSet<Rtype> {
    let present = zones.iter().flat_map(|zone| &zone.records).map(|record| record.rtype);
    present.chain(QTYPES).chain([Rtype::AXFR, Rtype::MAILB, Rtype::OPT]).collect()
}

/// One question as clients may ask it.
fn variants(qname: &[u8], qtype: Rtype) -> Vec<(Query, Transport)> {
    let plain = Query::new(qname, qtype);
    let edns = |payload_size| plain.clone().with_edns(payload_size);
    let all = Edns { payload_size: 4096, version: 0, flags: 0x8000, options: vec![0, 3, 0, 0] };
    vec![
        (plain.clone(), Transport::Udp),
        (Query { flags: 0x110, ..plain.clone() }, Transport::Tcp),
        (edns(512), Transport::Udp),
        (edns(1232), Transport::Udp),
        (Query { edns: Some(all), ..plain }, Transport::Udp),
    ]
}

fn sorted(answer: &[u8]) -> Reply {
    let mut reply = Reply::read(answer).unwrap();
    for section in &mut reply.sections {
        section.iter_mut().for_each(|record| record.end = 0);
        section.sort();
    }
    reply
}

/// Two servers of the same zones, one without compiled answers.
struct Both {
    catalogs: [Catalog; 2],
    responders: [Responder; 2],
}

impl Both {
    fn new(zones: &[ZoneList], settings: &Settings) -> Both {
        Both { catalogs: catalogs(zones), responders: [responder(settings), responder(settings)] }
    }

    fn ask(&mut self, query: &Query, transport: Transport) -> [Vec<u8>; 2] {
        let wire = query.to_wire();
        let ask = |way: usize| {
            common::respond(&mut self.responders[way], &self.catalogs[way], &wire, transport)
                .expect("well-formed queries are answered")
        };
        [0, 1].map(ask)
    }

    fn compare(&mut self, query: &Query, transport: Transport) -> Result<(), String> {
        let [compiled, tree] = self.ask(query, transport);
        if compiled == tree {
            return Ok(());
        }
        let show = |answer: &[u8]| Reply::read(answer).map(|reply| describe(&reply));
        Err(format!("{query} {transport:?}\ncompiled: {:?}\ntree: {:?}", show(&compiled), show(&tree)))
    }

    /// Compares with the model what a client gets that takes answers of any size.
    fn check_model(&mut self, zones: &[ZoneList], qname: &[u8], qtype: Rtype) -> Result<(), String> {
        if matches!(qtype, Rtype::AXFR | Rtype::MAILB | Rtype::OPT) {
            return Ok(());
        }
        let query = Query::new(qname, qtype);
        let [compiled, _] = self.ask(&query, Transport::Tcp);
        check_reply(&query.to_wire(), &compiled, 65_535);
        check_with_domain(&compiled);
        let reply = Reply::read(&compiled)?;
        let expected = model::answer(zones, qname, qtype);
        if model::Answer::from_reply(&reply) == expected {
            return Ok(());
        }
        let flags = if expected.authoritative { 0x8400 } else { 0x8000 } | expected.rcode;
        let expected = Reply { flags, question: Vec::new(), sections: expected.sections, opt: None };
        Err(format!("{query}\nmodel: {}\nserver: {}", describe(&expected), describe(&reply)))
    }
}
