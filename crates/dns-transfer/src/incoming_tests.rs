//! Answers as primaries send them, and as they should not.

use dns_auth::compile::compile;

use super::*;

const ID: u16 = 77;

fn name(text: &str) -> NameBuf {
    NameBuf::from_text(text.as_bytes(), None).unwrap()
}

fn soa_rdata(serial: u32) -> Vec<u8> {
    [&[0, 0][..], &[serial, 1, 2, 3, 4].map(u32::to_be_bytes).concat()].concat()
}

/// A record of an answer: `soa 3`, `a host 7`, or its owner outside of the zone.
#[derive(Clone, Copy)]
enum R {
    Soa(u32),
    A(&'static str, u8),
}
use R::{A, Soa};

fn message(records: &[R]) -> Vec<u8> {
    let mut message = question_message(ID, flag::QR | flag::AA, name("example.").as_name(), Rtype::AXFR);
    for record in records {
        let (owner, rtype, rdata) = match record {
            Soa(serial) => ("example.", Rtype::SOA, soa_rdata(*serial)),
            A(owner, last) => (*owner, Rtype::A, vec![192, 0, 2, *last]),
        };
        push_record(&mut message, name(owner).as_name(), rtype, Class::IN, 60, &rdata);
        add_to_count(&mut message, 0, 1);
    }
    message
}

/// Version 3 with two addresses.
fn held() -> Arc<ServedZone> {
    let mut incoming = incoming(None);
    let whole = [Soa(3), A("a.example.", 1), A("B.example.", 2), Soa(3)];
    assert_eq!(incoming.on_message(&message(&whole)), Ok(true));
    Arc::new(compile(zone(incoming.finish(None))))
}

fn incoming(held: Option<Arc<ServedZone>>) -> Incoming {
    Incoming::new(ID, name("example.").as_name(), held, 1 << 20, 5)
}

fn zone(received: Result<Received, IncomingError>) -> Zone {
    match received {
        Ok(Received::New(changed, _)) => changed.zone,
        other => panic!("{other:?}"),
    }
}

/// What comes of messages that answer a request for the differences from version 3.
fn differences(messages: &[&[R]]) -> Result<Received, IncomingError> {
    let mut incoming = incoming(Some(held()));
    let mut is_last = false;
    for records in messages {
        assert!(!is_last);
        is_last = incoming.on_message(&message(records))?;
    }
    assert!(is_last, "all has come");
    incoming.finish(Some(3))
}

fn addresses(zone: &Zone) -> Vec<String> {
    let mut found = Vec::new();
    for node in zone.nodes() {
        for rdata in node.rrset(Rtype::A).iter().flat_map(|rrset| rrset.records()) {
            found.push(format!("{} {}", Name::from_wire(node.name()).unwrap(), rdata[3]));
        }
    }
    found.sort();
    found
}

#[test]
fn a_whole_zone_comes_in_one_message_or_in_many() {
    let records = [Soa(3), A("a.example.", 1), A("b.example.", 2), Soa(3)];
    for size in 1..=4 {
        let mut incoming = incoming(None);
        let last =
            records.chunks(size).map(|part| incoming.on_message(&message(part)).unwrap()).collect::<Vec<_>>();
        assert_eq!(last.iter().filter(|last| **last).count(), 1, "{last:?}");
        assert_eq!(addresses(&zone(incoming.finish(None))), ["a.example. 1", "b.example. 2"]);
    }
}

#[test]
fn differences_are_applied_over_several_versions() {
    let sequence: &[R] = &[
        Soa(5),
        Soa(3),
        A("a.example.", 1),
        Soa(4),
        A("c.example.", 3),
        A("d.example.", 4),
        Soa(4),
        A("c.example.", 3),
        Soa(5),
        A("a.example.", 9),
        Soa(5),
    ];
    let zone = zone(differences(&[sequence]));
    assert_eq!(zone.serial(), 5);
    assert_eq!(addresses(&zone), ["B.example. 2", "a.example. 9", "d.example. 4"]);
}

#[test]
fn what_came_and_went_between_versions_that_a_primary_sends_as_one_is_not_there() {
    // 3 to 4: 1 becomes 5, b goes; 4 to 5: 5 becomes 6, b comes back; 5 to 6: 6 becomes 5.
    let sequence: &[R] = &[
        Soa(6),
        Soa(3),
        A("a.example.", 1),
        A("B.example.", 2),
        A("a.example.", 5),
        A("a.example.", 6),
        Soa(6),
        A("a.example.", 5),
        A("a.example.", 6),
        A("B.example.", 2),
        A("a.example.", 5),
        Soa(6),
    ];
    let Ok(Received::New(changed, passed_on)) = differences(&[sequence]) else { panic!("they fit") };
    assert_eq!(addresses(&changed.zone), ["B.example. 2", "a.example. 5"]);
    assert_eq!(
        passed_on[0].records().count(),
        4,
        "secondaries of ours get what is removed and added at last"
    );
}

#[test]
fn a_request_for_differences_may_be_answered_with_the_whole_zone_or_with_nothing_new() {
    let whole = zone(differences(&[&[Soa(9)], &[A("x.example.", 1), Soa(9)]]));
    assert_eq!(addresses(&whole), ["x.example. 1"]);
    assert!(matches!(differences(&[&[Soa(3)]]), Ok(Received::Current)));
}

#[test]
fn an_answer_without_records_is_no_transfer_and_nothing_to_wait_for() {
    for held in [None, Some(held())] {
        assert_eq!(incoming(held).on_message(&message(&[])), Err(IncomingError::Empty));
    }
}

#[test]
fn a_newer_soa_alone_may_be_all_that_answers_a_request_for_differences() {
    let mut incoming_differences = incoming(Some(held()));
    assert!(!incoming_differences.is_soa_alone());
    assert_eq!(incoming_differences.on_message(&message(&[Soa(4)])), Ok(false));
    assert!(incoming_differences.is_soa_alone());
    assert_eq!(incoming_differences.on_message(&message(&[Soa(3)])), Ok(false));
    assert!(!incoming_differences.is_soa_alone(), "the rest comes in other messages");

    let mut incoming_whole = incoming(None);
    assert_eq!(incoming_whole.on_message(&message(&[Soa(4)])), Ok(false));
    assert!(!incoming_whole.is_soa_alone(), "a whole zone begins so");
}

#[test]
fn differences_that_do_not_fit_are_refused() {
    let unfit: [&[R]; 3] = [
        &[Soa(4), Soa(3), A("nobody.example.", 1), Soa(4), Soa(4)],
        &[Soa(5), Soa(3), Soa(4), Soa(5), Soa(5)],
        &[Soa(4), Soa(3), A("a.example.", 1), A("a.example.", 1), Soa(4), Soa(4)],
    ];
    for records in unfit {
        assert_eq!(differences(&[records]).unwrap_err(), IncomingError::Unfit(Unfit::Version));
    }
}

fn error(records: &[R], ours: Option<u32>) -> IncomingError {
    let mut incoming = incoming(None);
    incoming.on_message(&message(records)).and_then(|_| incoming.finish(ours)).unwrap_err()
}

#[test]
fn bad_transfers_are_refused_with_their_reason() {
    let outside = error(&[Soa(1), A("example.com.", 1), Soa(1)], None);
    assert_eq!(outside.to_string(), "the record example.com. A: the owner is outside of the zone");
    assert_eq!(error(&[A("a.example.", 1), Soa(1)], None), IncomingError::NoSoa);
    assert_eq!(error(&[Soa(1), A("a.example.", 1)], None), IncomingError::NoSoa, "its end is missing");
    assert_eq!(error(&[Soa(1), A("a.example.", 1), Soa(2)], None), IncomingError::Unrelated);
    assert_eq!(
        error(&[Soa(1), A("a.example.", 1), Soa(1), A("b.example.", 1)], None),
        IncomingError::BehindEnd
    );
    let back = error(&[Soa(1), A("a.example.", 1), Soa(1)], Some(2));
    assert_eq!(back, IncomingError::WentBack { ours: 2, theirs: 1 });
}

#[test]
fn an_endless_transfer_ends_at_its_limit() {
    let mut incoming = Incoming::new(ID, name("example.").as_name(), None, 10_000, 5);
    assert_eq!(incoming.on_message(&message(&[Soa(1)])), Ok(false));
    let outcome = (0..1000).try_for_each(|_| incoming.on_message(&message(&[A("a.example.", 1)])).map(drop));
    assert_eq!(outcome, Err(IncomingError::TooLong(10_000)));
}

#[test]
fn what_answers_something_else_is_refused() {
    let mut refused = message(&[]);
    refused[3] |= 5;
    assert_eq!(incoming(None).on_message(&refused), Err(IncomingError::Rcode(5)));
    for (at, bit) in [(0, 1), (2, 0x80), (2, 0x20), (2, 0x02), (13, 1)] {
        let mut other = message(&[Soa(1)]);
        other[at] ^= bit;
        assert_eq!(incoming(None).on_message(&other), Err(IncomingError::Unrelated), "{at}");
    }
}

#[test]
fn the_serial_is_read_from_an_authoritative_answer_and_from_nothing_else() {
    let origin = name("example.");
    let answer = message(&[Soa(9)]);
    assert_eq!(serial_in(&answer, ID, origin.as_name()), Ok(9));
    assert_eq!(serial_in(&answer, ID + 1, origin.as_name()), Err(IncomingError::Unrelated));
    let mut other = answer.clone();
    other[2] &= !4;
    assert_eq!(serial_in(&other, ID, origin.as_name()), Err(IncomingError::NoSoa), "not authoritative");
    for len in 0..answer.len() {
        assert!(serial_in(&answer[..len], ID, origin.as_name()).is_err(), "{len}");
    }
}

#[test]
fn a_request_names_the_version_that_is_held() {
    let held = held();
    let request = transfer_request(ID, held.origin(), held.tree().ok());
    let mut message = Message::parse(&request).unwrap();
    assert_eq!((message.question().unwrap().qtype, message.counts()), (Rtype::IXFR, [0, 1, 0]));
    assert_eq!(serial_of(&message.next_record().unwrap().rdata), Some(3));
}
