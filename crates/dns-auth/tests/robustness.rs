//! Bad input gets the kind of answer that it is due, or none, and nothing else: no panic, no answer that is no message. `fuzz_message`
//! checks all of that.

mod common;

use common::random_zones::{absolute, config, zones};
use common::{Query, catalogs, name, respond, responder};
use dns_auth::fuzz::{Reply, check_reply, fuzz_message};
use dns_auth::{Catalog, Dropped, Settings, Transport};
use dns_wire::{Rcode, Rtype};
use proptest::prelude::*;

proptest! {
    #![proptest_config(config(20_000, 3))]

    #[test]
    fn any_octets_get_the_answer_that_they_are_due(message in proptest::collection::vec(any::<u8>(), 0..600)) {
        fuzz_message(&message);
    }

    #[test]
    fn any_octets_behind_a_good_header_get_the_answer_that_they_are_due(
        counts in proptest::collection::vec(0..4u8, 4),
        tail in proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(0xc0), Just(0x0c), any::<u8>()], 0..120),
    ) {
        let mut message = vec![1, 2, 1, 0];
        message.extend(counts.iter().flat_map(|count| [0, *count]));
        message.extend(tail);
        fuzz_message(&message);
    }

    #[test]
    fn mutated_queries_get_the_answer_that_they_are_due(
        query in query(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in proptest::option::of(any::<prop::sample::Index>()),
        tail in proptest::collection::vec(any::<u8>(), 0..8),
    ) {
        let mut message = query.to_wire();
        for (at, octet) in changes {
            let at = at.index(message.len());
            message[at] = octet;
        }
        if let Some(cut) = cut {
            message.truncate(cut.index(message.len()));
        }
        message.extend(tail);
        fuzz_message(&message);
    }
}

proptest! {
    #![proptest_config(config(100, 4))]

    #[test]
    fn random_questions_of_random_zones_get_answers(
        zones in zones(),
        questions in proptest::collection::vec((absolute(), any::<u16>(), 0..5000u16), 100),
    ) {
        let catalogs = catalogs(&zones);
        let mut responder = responder(&Settings { udp_payload_max: 4096, ..Settings::default() });
        for (qname, qtype, size) in questions {
            let wire = Query::new(&qname, Rtype(qtype)).with_edns(size).to_wire();
            for catalog in &catalogs {
                for (transport, limit) in [(Transport::Udp, usize::from(size.clamp(512, 4096))), (Transport::Tcp, 65_535)] {
                    let answer = respond(&mut responder, catalog, &wire, transport).unwrap();
                    check_reply(&wire, &answer, limit);
                }
            }
        }
    }
}

fn query() -> impl Strategy<Value = Query> {
    let names = [
        "example.",
        "a.example.",
        "c.example.",
        "x.w.example.",
        "x.d.example.",
        "x.sub.example.",
        "many.example.",
        "big.example.",
        "dd.example.",
        "x.back.example.",
        "www.child.example.",
        "x.other.",
        "to-child.example.",
        "t.",
    ];
    let qtype =
        prop_oneof![Just(1u16), Just(2), Just(5), Just(15), Just(255), Just(43), 0..300u16, any::<u16>()];
    (prop::sample::select(names.to_vec()), qtype, proptest::option::of(any::<u16>())).prop_map(
        |(qname, qtype, size)| {
            let query = Query::new(name(qname).as_name().as_bytes(), Rtype(qtype));
            match size {
                Some(size) => query.with_edns(size),
                None => query,
            }
        },
    )
}

/// What becomes of `message` over UDP, where `a.test.` is served.
fn answer(message: &[u8]) -> Result<Reply, Dropped> {
    let catalog = catalog();
    let answer = respond(&mut responder(&Settings::default()), &catalog, message, Transport::Udp)?;
    check_reply(message, &answer, 1232);
    fuzz_message(message);
    Ok(Reply::read(&answer).unwrap())
}

fn catalog() -> Catalog {
    let text = "@ 60 SOA . . 1 2 3 4 5\na 60 A 192.0.2.1\n* 60 TXT wild\n";
    let zone = common::ZoneList::from_text("test.", text).unwrap();
    let [compiled, _] = catalogs(&[zone]);
    compiled
}

#[test]
fn a_pointer_loop_in_the_additional_section_is_skipped_not_followed() {
    let mut message = Query::new(b"\x01a\x04test\0", Rtype::A).to_wire();
    let loop_at = message.len() as u8;
    message[11] = 2;
    message.extend_from_slice(&[0xc0, loop_at, 0, 1, 0, 1, 0, 0, 0, 0, 0, 2, 0xc0, loop_at]);
    message.extend_from_slice(&[1, b'x', 0xc0, loop_at, 0, 5, 0, 1, 0, 0, 0, 0, 0, 2, 0xc0, loop_at]);
    assert_eq!(answer(&message).unwrap().sections[0].len(), 1);
}

#[test]
fn counts_that_lie_are_format_errors_whichever_way() {
    for section in 1..4 {
        for count in [1u16, 2, 0x7fff, 0xffff] {
            let mut message = Query::new(b"\x01a\x04test\0", Rtype::A).to_wire();
            message[4 + 2 * section..6 + 2 * section].copy_from_slice(&count.to_be_bytes());
            assert_eq!(
                answer(&message).unwrap().rcode(),
                Rcode::FormErr as u16,
                "{count} in section {section}"
            );
        }
    }
    let mut uncounted = Query::new(b"\x01a\x04test\0", Rtype::A).with_edns(1232).to_wire();
    uncounted[11] = 0;
    assert_eq!(answer(&uncounted).unwrap().rcode(), Rcode::FormErr as u16);
}

#[test]
fn the_longest_names_are_answered() {
    let fill = |labels: &[usize]| -> Vec<u8> {
        let label = |len: &usize| [vec![*len as u8], vec![b'x'; *len]].concat();
        labels.iter().flat_map(label).chain(*b"\x04test\0").collect()
    };
    for labels in [vec![63, 63, 63, 56], vec![1; 124], [vec![2], vec![1; 123]].concat()] {
        let qname = fill(&labels);
        assert!(qname.len() >= 254 && qname.len() <= 255, "{}", qname.len());
        for size in [None, Some(512)] {
            let query = Query::new(&qname, Rtype::TXT);
            let query = size.map_or(query.clone(), |size| query.with_edns(size));
            assert_eq!(answer(&query.to_wire()).unwrap().sections[0][0].owner, qname);
        }
        assert_eq!(answer(&Query::new(&qname, Rtype::MX).to_wire()).unwrap().rcode(), 0);
    }
    let too_long = fill(&[63, 63, 63, 57]);
    assert_eq!(answer(&Query::new(&too_long, Rtype::TXT).to_wire()).unwrap().rcode(), Rcode::FormErr as u16);
}

#[test]
fn every_octet_may_stand_in_a_name() {
    for octet in 0..=255 {
        let qname = [&[3, octet, b'a', octet][..], b"\x04test\0"].concat();
        let reply = answer(&Query::new(&qname, Rtype::TXT).to_wire()).unwrap();
        assert_eq!(reply.sections[0][0].owner, qname, "octet {octet}");
        let outside = [&[1, octet][..], b"\0"].concat();
        let reply = answer(&Query::new(&outside, Rtype::TXT).to_wire()).unwrap();
        assert_eq!(reply.rcode(), Rcode::Refused as u16, "octet {octet}");
    }
}

#[test]
fn every_type_class_opcode_and_flag_is_answered() {
    for number in 0..=65_535u16 {
        let by_type = Query::new(b"\x01a\x04test\0", Rtype(number));
        let by_class = Query { qclass: number, ..Query::new(b"\x01a\x04test\0", Rtype::A) };
        let by_flags = Query { flags: number & 0x7fff, ..Query::new(b"\x01a\x04test\0", Rtype::A) };
        let catalog = catalog_once();
        for query in [by_type, by_class, by_flags] {
            let wire = query.to_wire();
            let answer = respond(&mut responder(&Settings::default()), catalog, &wire, Transport::Udp);
            check_reply(&wire, &answer.expect("well-formed queries are answered"), 1232);
        }
    }
}

fn catalog_once() -> &'static Catalog {
    static CATALOG: std::sync::OnceLock<Catalog> = std::sync::OnceLock::new();
    CATALOG.get_or_init(catalog)
}

#[test]
fn responses_and_headers_in_parts_are_dropped() {
    let mut message = Query::new(b"\x01a\x04test\0", Rtype::A).to_wire();
    assert_eq!(answer(&message[..11]), Err(Dropped::Short));
    assert_eq!(answer(&[]), Err(Dropped::Short));
    message[2] |= 0x80;
    assert_eq!(answer(&message), Err(Dropped::Response));
}

#[test]
fn a_record_longer_than_a_message_is_no_reason_to_panic() {
    let hex = "00".repeat(65_535);
    let text = format!("@ 60 SOA . . 1 2 3 4 5\na 60 TYPE65280 \\# 65535 {hex}\n");
    let Ok(zone) = common::ZoneList::from_text("test.", &text) else { return };
    let zone = zone.accepted();
    for catalog in catalogs(&[zone]) {
        let query = Query::new(b"\x01a\x04test\0", Rtype(65280)).to_wire();
        for transport in [Transport::Udp, Transport::Tcp] {
            let answer = respond(&mut responder(&Settings::default()), &catalog, &query, transport).unwrap();
            Reply::read(&answer).unwrap();
        }
    }
}
