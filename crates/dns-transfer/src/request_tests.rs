//! Requests for a zone of many names.

use std::collections::BTreeSet;

use clock::{Duration, Instant};
use dns_auth::compile::compile;
use dns_zone::ZoneBuilder;

use super::*;
use crate::TransferError;
use crate::access::{Prefix, Who};
use crate::tsig::{Algorithm, Key, sign_request};
use dns_message::{push_record, question_message};

const NOW: u64 = 1_700_000_000;
const CLIENT: &str = "192.0.2.1";
const SERIAL: u32 = 7;

fn name(text: &str) -> NameBuf {
    NameBuf::from_text(text.as_bytes(), None).unwrap()
}

fn soa_rdata(serial: u32) -> Vec<u8> {
    let numbers = [serial, 1, 2, 3, 4].map(u32::to_be_bytes).concat();
    [name("ns.Example.").as_name().as_bytes(), name("host.Example.").as_name().as_bytes(), &numbers].concat()
}

/// A zone with `hosts` names, each with two addresses.
fn catalog(hosts: u32) -> Catalog {
    Catalog::new([Arc::new(compile(version(SERIAL, hosts)))], 5)
}

fn version(serial: u32, hosts: u32) -> Zone {
    let origin = name("Example.");
    let mut builder = ZoneBuilder::new(origin.as_name(), 2);
    builder.add(origin.as_name(), 60, Rtype::NS, name("ns.Example.").as_name().as_bytes()).unwrap();
    builder.add(origin.as_name(), 60, Rtype::SOA, &soa_rdata(serial)).unwrap();
    for host in 0..hosts {
        let owner = name(&format!("host-{host}.sub.Example."));
        for last in [1, 2] {
            builder
                .add(owner.as_name(), 300, Rtype::A, &[host.to_be_bytes()[2], host.to_be_bytes()[3], 0, last])
                .unwrap();
        }
    }
    builder.finish().unwrap()
}

fn key() -> Arc<Key> {
    Arc::new(Key::new(name("key.").as_name(), Algorithm::Sha256, b"secret"))
}

/// Clients with the address or the key may transfer, two at once.
fn policy() -> Policy {
    let allowed = vec![
        Who::Address(Prefix::from_text(CLIENT).unwrap()).into(),
        Who::Key(Box::new(name("key."))).into(),
    ];
    let mut policy =
        Policy { allow_transfer: AccessList(allowed), slots: Some(Slots::new(2)), ..Policy::default() };
    Arc::make_mut(&mut policy.keys).insert(Key::new(name("key.").as_name(), Algorithm::Sha256, b"secret"));
    policy
}

fn axfr() -> Vec<u8> {
    question_message(1, 0, name("example.").as_name(), Rtype::AXFR)
}

fn ixfr(serial: u32) -> Vec<u8> {
    let mut request = question_message(1, 0, name("example.").as_name(), Rtype::IXFR);
    push_record(&mut request, name("example.").as_name(), Rtype::SOA, Class::IN, 0, &soa_rdata(serial));
    add_to_count(&mut request, 1, 1);
    request
}

fn ask(policy: &Policy, catalog: &Catalog, request: &[u8], client: &str, transport: Transport) -> Handled {
    handle(policy, catalog, request, Client::plain(client.parse().unwrap()), transport, NOW)
}

fn reply(handled: Handled) -> Vec<u8> {
    match handled {
        Handled::Reply(reply) => reply,
        other => panic!("{other:?}"),
    }
}

fn rcode(handled: Handled) -> u8 {
    reply(handled)[3] & 0xf
}

fn transfer(handled: Handled) -> Transfer {
    match handled {
        Handled::Transfer(transfer) => *transfer,
        other => panic!("{other:?}"),
    }
}

fn messages(mut transfer: Transfer) -> Vec<Vec<u8>> {
    let (mut compressor, mut messages) = (Compressor::default(), Vec::new());
    while !transfer.is_done() {
        let mut message = Vec::new();
        transfer.write_next(&mut compressor, &mut message, (Instant::ZERO, NOW)).unwrap();
        messages.push(message);
    }
    messages
}

fn records(messages: &[Vec<u8>]) -> Vec<(String, Rtype, u32, Vec<u8>)> {
    let mut records = Vec::new();
    for octets in messages {
        let mut message = Message::parse(octets).unwrap();
        for _ in 0..message.counts()[0] {
            let record = message.next_record().unwrap();
            records.push((record.owner.to_string(), record.rtype, record.ttl, record.rdata));
        }
        assert!(message.is_at_end() || message.counts()[2] == 1);
    }
    records
}

#[test]
fn a_transfer_has_every_record_once_between_two_soas_with_its_case() {
    let catalog = catalog(20_000);
    let messages = messages(transfer(ask(&policy(), &catalog, &axfr(), CLIENT, Transport::Tcp)));
    let octets: usize = messages.iter().map(Vec::len).sum();
    assert!(messages.len() > 20 && messages.iter().all(|message| message.len() <= (16 << 10) + 64));
    assert!(octets < 40_000 * 25, "names are compressed: {octets} octets");
    let records = records(&messages);
    assert_eq!(records.len(), 40_000 + 3);
    assert_eq!((records[0].1, &records[0]), (Rtype::SOA, &records[records.len() - 1]));
    let distinct: BTreeSet<_> =
        records.iter().map(|(owner, rtype, _, rdata)| (owner, rtype.0, rdata)).collect();
    assert_eq!(distinct.len(), 40_000 + 2);
    assert!(records.iter().all(|(owner, ..)| owner.ends_with("Example.")));
    for message in &messages {
        assert_eq!((&message[..2], message[2], message[3]), (&[0, 1][..], 0x84, 0));
    }
}

/// A policy that knows what leads from version 4 with 1000 hosts by version 5 to the served one.
fn policy_with_history(served: &Zone) -> Policy {
    policy_with_versions(&[&version(4, 1000), &version(5, 1500), served])
}

/// A policy that knows what leads from the first version over the others to the last one.
fn policy_with_versions(versions: &[&Zone]) -> Policy {
    let difference = |pair: &[&Zone]| Difference::between(pair[0], pair[1], usize::MAX).unwrap();
    let differences: Vec<_> = versions.windows(2).map(|pair| Arc::new(difference(pair))).collect();
    let history = Arc::new(History::default().with(&differences));
    Policy { histories: [Some(history)].into_iter().collect(), ..policy() }
}

#[test]
fn who_has_a_version_that_is_known_gets_the_differences_and_has_ours_then() {
    let catalog = catalog(1600);
    let served = catalog.zone(0).tree().unwrap();
    let policy = policy_with_history(served);
    for (serial, hosts) in [(4, 1000), (5, 1500)] {
        let messages = messages(transfer(ask(&policy, &catalog, &ixfr(serial), CLIENT, Transport::Tcp)));
        assert!(records(&messages).len() < 2000);
        let held = Arc::new(compile(version(serial, hosts)));
        let mut incoming = crate::Incoming::new(1, name("example.").as_name(), Some(held), 1 << 20, 3);
        let last: Vec<bool> = messages.iter().map(|message| incoming.on_message(message).unwrap()).collect();
        assert_eq!(last.iter().filter(|last| **last).count(), 1);
        let Ok(crate::Received::New(changed, _)) = incoming.finish(Some(serial)) else {
            panic!("it is newer")
        };
        assert_eq!(
            Difference::between(&changed.zone, served, 1000).unwrap().records().count(),
            2,
            "two SOAs"
        );
    }
}

#[test]
fn who_has_another_version_gets_the_whole_zone() {
    let catalog = catalog(1600);
    let policy = policy_with_history(catalog.zone(0).tree().unwrap());
    for request in [axfr(), ixfr(3), ixfr(6)] {
        let messages = messages(transfer(ask(&policy, &catalog, &request, CLIENT, Transport::Tcp)));
        assert_eq!(records(&messages).len(), 3200 + 3);
    }
}

#[test]
fn several_differences_across_the_end_of_serials_are_the_whole_zone_and_one_alone_is_not() {
    let served = version(1, 1003);
    let [first, second, third] = [(u32::MAX - 2, 1000), (u32::MAX - 1, 1001), (u32::MAX, 1002)]
        .map(|(serial, hosts)| version(serial, hosts));
    let policy = policy_with_versions(&[&first, &second, &third, &served]);
    let catalog = Catalog::new([Arc::new(compile(served))], 5);
    let count = |serial| {
        let transfer = transfer(ask(&policy, &catalog, &ixfr(serial), CLIENT, Transport::Tcp));
        records(&messages(transfer)).len()
    };
    assert_eq!([count(u32::MAX - 2), count(u32::MAX - 1)], [2 * 1003 + 3; 2]);
    assert_eq!(count(u32::MAX), 2 + 2 + 2, "four SOAs, and a host's addresses");
}

#[test]
fn a_record_of_the_longest_kind_has_a_message_of_its_own() {
    let origin = name("example.");
    let mut builder = ZoneBuilder::new(origin.as_name(), 2);
    builder.add(origin.as_name(), 60, Rtype::SOA, &soa_rdata(1)).unwrap();
    for number in 0..3 {
        builder
            .add(name(&format!("n{number}.example.")).as_name(), 60, Rtype(65_280), &[number; 60_000])
            .unwrap();
    }
    let catalog = Catalog::new([Arc::new(compile(builder.finish().unwrap()))], 5);
    let messages = messages(transfer(ask(&policy(), &catalog, &axfr(), CLIENT, Transport::Tcp)));
    assert_eq!(records(&messages).len(), 5);
    assert!(messages.iter().all(|message| message.len() <= 65_535));
}

#[test]
fn nobody_gets_a_transfer_without_being_allowed() {
    let catalog = catalog(1);
    for policy in [policy(), Policy::default()] {
        for transport in [Transport::Tcp, Transport::Udp] {
            assert_eq!(rcode(ask(&policy, &catalog, &axfr(), "192.0.2.2", transport)), 5);
            assert_eq!(rcode(ask(&policy, &catalog, &ixfr(1), "192.0.2.2", transport)), 5);
        }
    }
    let other = question_message(1, 0, name("sub.example.").as_name(), Rtype::AXFR);
    assert_eq!(rcode(ask(&policy(), &catalog, &other, CLIENT, Transport::Tcp)), 9, "no zone begins there");
}

#[test]
fn a_way_that_may_not_carry_transfers_gets_none() {
    let (policy, catalog) = (policy(), catalog(1));
    let client = Client { takes_transfers: false, ..Client::plain(CLIENT.parse().unwrap()) };
    for request in [axfr(), ixfr(1)] {
        assert_eq!(rcode(handle(&policy, &catalog, &request, client, Transport::Https, NOW)), 5);
    }
}

#[test]
fn a_zone_that_is_denied_compactly_is_transferred_to_nobody() {
    for next in ["\\000.example.", "example."] {
        let zone = version(SERIAL, 1);
        let mut editor = dns_zone::ZoneEditor::new(&zone);
        let rdata = [name(next).as_name().as_bytes(), &[0, 1, 0x40]].concat();
        editor.add(name("example.").as_name(), 60, Rtype::NSEC, &rdata).unwrap();
        let catalog = Catalog::new([Arc::new(compile(editor.finish().unwrap().zone))], 5);
        for request in [axfr(), ixfr(SERIAL - 1)] {
            let handled = ask(&policy(), &catalog, &request, CLIENT, Transport::Tcp);
            assert_eq!(matches!(handled, Handled::Transfer(_)), next == "example.", "{next}");
        }
    }
}

#[test]
fn the_list_of_a_zone_takes_the_place_of_that_for_all() {
    let mut policy = policy();
    let own = ZonePolicy { allow_transfer: Some(AccessList::default()), ..ZonePolicy::default() };
    Arc::make_mut(&mut policy.zones).insert(name("example."), own);
    assert_eq!(rcode(ask(&policy, &catalog(1), &axfr(), CLIENT, Transport::Tcp)), 5);
}

#[test]
fn a_key_allows_from_any_address_and_every_message_is_signed() {
    let catalog = catalog(2_000);
    let mut request = axfr();
    let mut verifier = sign_request(&mut request, &key(), NOW);
    let mut messages = messages(transfer(ask(&policy(), &catalog, &request, "203.0.113.1", Transport::Tcp)));
    assert!(messages.len() > 2);
    for message in &mut messages {
        verifier.verify(message, NOW).unwrap();
        assert!(verifier.is_complete());
    }
    assert_eq!(records(&messages).len(), 4_000 + 3);
}

#[test]
fn a_wrong_signature_is_answered_with_notauth() {
    let mut request = axfr();
    sign_request(&mut request, &Arc::new(Key::new(name("key.").as_name(), Algorithm::Sha256, b"other")), NOW);
    assert_eq!(rcode(ask(&policy(), &catalog(1), &request, CLIENT, Transport::Tcp)), 9);
}

#[test]
fn transfers_at_once_are_limited_and_one_that_ends_makes_room() {
    let (policy, catalog) = (policy(), catalog(1));
    let begin = || ask(&policy, &catalog, &axfr(), CLIENT, Transport::Tcp);
    let (first, _second) = (transfer(begin()), transfer(begin()));
    assert_eq!(rcode(begin()), 2);
    drop(first);
    transfer(begin());
}

/// Has a client take a message of a large zone every `seconds`; how long the transfer goes on, and how it ends.
fn taken_every(seconds: u64) -> (u64, Result<(), TransferError>) {
    let (policy, catalog) = (policy(), catalog(20_000));
    let mut transfer = transfer(ask(&policy, &catalog, &axfr(), CLIENT, Transport::Tcp));
    let (mut compressor, mut message, mut second) = (Compressor::default(), Vec::new(), 0);
    let outcome = loop {
        let now = Instant::ZERO + Duration::from_secs(5 + second);
        match transfer.write_next(&mut compressor, &mut message, (now, NOW)) {
            Ok(()) if transfer.is_done() => break Ok(()),
            Ok(()) => second += seconds,
            Err(error) => break Err(error),
        }
    };
    let slots = policy.slots.unwrap();
    assert_eq!(slots.ended_slow(), u64::from(outcome.is_err()));
    drop(transfer);
    assert!(slots.take().is_some() && slots.take().is_some());
    (second, outcome)
}

#[test]
fn a_client_that_takes_a_transfer_too_slowly_does_not_hold_its_slot_for_long() {
    let (second, outcome) = taken_every(27);
    assert_eq!(outcome, Err(TransferError::TooSlow));
    assert!((600..700).contains(&second), "600 octets a second are too few after {second} seconds");
    assert_eq!(taken_every(10).1, Ok(()), "ten minutes suffice for such a zone at any rate");
}

#[test]
fn an_incremental_request_is_answered_with_the_soa_for_who_is_current_and_else_with_the_zone() {
    let (policy, catalog) = (policy(), catalog(10));
    for (serial, transport) in [(SERIAL, Transport::Tcp), (SERIAL + 1, Transport::Tcp), (1, Transport::Udp)] {
        let answer = reply(ask(&policy, &catalog, &ixfr(serial), CLIENT, transport));
        let records = records(&[answer]);
        assert_eq!((records.len(), records[0].1), (1, Rtype::SOA));
        assert_eq!(records[0].3, soa_rdata(SERIAL));
    }
    let whole = transfer(ask(&policy, &catalog, &ixfr(SERIAL - 1), CLIENT, Transport::Tcp));
    assert_eq!(records(&messages(whole)).len(), 23);
    let without_serial = question_message(1, 0, name("example.").as_name(), Rtype::IXFR);
    assert_eq!(rcode(ask(&policy, &catalog, &without_serial, CLIENT, Transport::Tcp)), 1);
    assert_eq!(rcode(ask(&policy, &catalog, &axfr(), CLIENT, Transport::Udp)), 1);
}

#[test]
fn a_signed_question_is_answered_without_its_signature_and_an_unsigned_one_like_any() {
    let mut query = question_message(1, 0, name("example.").as_name(), Rtype::SOA);
    let plain = query.clone();
    assert!(matches!(ask(&policy(), &catalog(1), &query, CLIENT, Transport::Udp), Handled::Ordinary));
    sign_request(&mut query, &key(), NOW);
    match ask(&policy(), &catalog(1), &query, CLIENT, Transport::Udp) {
        Handled::Query(query, _) => assert_eq!(query, plain),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_notice_counts_from_a_primary_alone_and_if_it_is_signed_with_its_key() {
    let (catalog, mut policy) = (catalog(1), policy());
    let other = || Key::new(name("other.").as_name(), Algorithm::Sha256, b"other");
    Arc::make_mut(&mut policy.keys).insert(other());
    let notice = question_message(9, NOTIFY, name("example.").as_name(), Rtype::SOA);
    assert_eq!(rcode(ask(&policy, &catalog, &notice, CLIENT, Transport::Udp)), 9, "it is not secondary here");
    let primaries = vec![(CLIENT.parse().unwrap(), None), ("192.0.2.3".parse().unwrap(), Some(name("key.")))];
    Arc::make_mut(&mut policy.zones)
        .insert(name("example."), ZonePolicy { primaries, ..ZonePolicy::default() });
    match ask(&policy, &catalog, &notice, CLIENT, Transport::Udp) {
        Handled::Notified(notice, answer) => {
            let from = CLIENT.parse().unwrap();
            assert_eq!(*notice, Notice { zone: name("example."), from, is_signed: false });
            assert_eq!(answer[..4], [0, 9, 0xa0, 0]);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(rcode(ask(&policy, &catalog, &notice, "192.0.2.2", Transport::Udp)), 5);
    let is_signed = |request: &[u8]| match ask(&policy, &catalog, request, "192.0.2.3", Transport::Udp) {
        Handled::Notified(notice, _) => Some(notice.is_signed),
        _ => None,
    };
    assert_eq!(is_signed(&notice), Some(false), "primaries that sign transfers need not sign notices");
    for (key, counts) in [(key(), Some(true)), (Arc::new(other()), None)] {
        let mut signed = notice.clone();
        sign_request(&mut signed, &key, NOW);
        assert_eq!(is_signed(&signed), counts);
    }
}

/// An update that adds a host.
fn update() -> Vec<u8> {
    let mut request = question_message(1, UPDATE, name("example.").as_name(), Rtype::SOA);
    push_record(&mut request, name("new.example.").as_name(), Rtype::A, Class::IN, 60, &[192, 0, 2, 9]);
    // Whoever deletes a set names it by a record without data (RFC 2136, 2.5.2).
    push_record(&mut request, name("old.example.").as_name(), Rtype::A, Class::ANY, 0, &[]);
    add_to_count(&mut request, 1, 2);
    request
}

fn policy_with_update() -> Policy {
    let (mut policy, zone) = (policy(), name("example."));
    let allow_update = AccessList(vec![Who::Key(Box::new(name("key."))).into()]);
    Arc::make_mut(&mut policy.zones).insert(zone, ZonePolicy { allow_update, ..ZonePolicy::default() });
    policy
}

#[test]
fn an_update_is_accepted_from_those_who_may_and_its_answer_is_signed() {
    let (policy, catalog, mut request) = (policy_with_update(), catalog(1), update());
    assert_eq!(
        rcode(ask(&policy, &catalog, &request, CLIENT, Transport::Udp)),
        Rcode::Refused as u8,
        "no key"
    );
    let mut verifier = sign_request(&mut request, &key(), NOW);
    let Handled::Update(update) = ask(&policy, &catalog, &request, CLIENT, Transport::Udp) else { panic!() };
    assert_eq!(update.origin(), name("example.").as_name());
    let mut answer = update.answer(Rcode::NxRrset);
    assert_eq!((answer[2] & 0xf8, answer[3]), (0x80 | 5 << 3, 8));
    verifier.verify(&mut answer, NOW).unwrap();
    assert_eq!(answer.len(), 12 + 9 + 4, "header and zone section");
}

#[test]
fn an_update_of_no_zone_of_ours_or_of_another_shape_is_told_so() {
    let (mut policy, catalog) = (policy_with_update(), catalog(1));
    let everybody = AccessList(vec![Who::Address(Prefix::from_text("0.0.0.0/0").unwrap()).into()]);
    Arc::make_mut(&mut policy.zones).get_mut(&name("example.")).unwrap().allow_update = everybody;
    let code = |request: &[u8]| rcode(ask(&policy, &catalog, request, CLIENT, Transport::Tcp));
    let other = question_message(1, UPDATE, name("sub.example.").as_name(), Rtype::SOA);
    assert_eq!(code(&other), Rcode::NotAuth as u8);
    let no_soa = question_message(1, UPDATE, name("example.").as_name(), Rtype::A);
    assert_eq!(code(&no_soa), Rcode::FormErr as u8);
    assert_eq!(code(&[&update()[..], &[0]].concat()), Rcode::FormErr as u8);
}

/// RFC 6891, 6.1.1.
#[test]
fn an_answer_without_records_has_opt_if_the_request_has_it() {
    let (policy, catalog) = (policy_with_update(), catalog(1));
    let answer = |mut request: Vec<u8>, tail: &[u8]| {
        request.extend_from_slice(OPT);
        add_to_count(&mut request, 2, 1);
        request.extend_from_slice(tail);
        let answer = reply(ask(&policy, &catalog, &request, "203.0.113.9", Transport::Tcp));
        (answer[3] & 0xf, answer[11], answer.ends_with(OPT))
    };
    let notice = question_message(1, NOTIFY, name("example.").as_name(), Rtype::SOA);
    assert_eq!(answer(axfr(), &[]), (Rcode::Refused as u8, 1, true));
    assert_eq!(answer(update(), &[]), (Rcode::Refused as u8, 1, true));
    assert_eq!(answer(notice, &[]), (Rcode::NotAuth as u8, 1, true));
    let mut broken = update();
    add_to_count(&mut broken, 2, 1);
    assert_eq!(
        answer(broken, b"\0\0\xfa\0\xff\0\0\0\0\0\x01"),
        (Rcode::FormErr as u8, 1, true),
        "a TSIG record that ends early"
    );
    let plain = reply(ask(&policy, &catalog, &axfr(), "203.0.113.9", Transport::Tcp));
    assert_eq!((plain[3] & 0xf, plain[11]), (Rcode::Refused as u8, 0));
}

/// RFC 8945, 5.1 and 5.3: the Original ID is for the digest of the request alone. BIND forwards updates so.
#[test]
fn an_answer_has_the_id_of_the_header_that_a_forwarder_has_changed() {
    let (policy, catalog) = (policy_with_update(), catalog(1));
    const FORWARDED: [u8; 2] = [0x22, 0x22];
    let ask_forwarded = |mut request: Vec<u8>| {
        let verifier = sign_request(&mut request, &key(), NOW);
        request[..2].copy_from_slice(&FORWARDED);
        (ask(&policy, &catalog, &request, CLIENT, Transport::Tcp), verifier)
    };
    let soa = question_message(1, 0, name("example.").as_name(), Rtype::SOA);
    let (Handled::Query(query, mut signer), mut of_query) = ask_forwarded(soa) else { panic!() };
    let mut answer = answer_to(&query, Rcode::NoError);
    signer.sign(&mut answer, NOW);
    let (Handled::Update(request), mut of_update) = ask_forwarded(update()) else { panic!() };
    let mut updated = request.answer(Rcode::NoError);
    let (refusal, mut of_refusal) = ask_forwarded(question_message(1, UPDATE, Name::ROOT, Rtype::SOA));
    let mut refused = reply(refusal);
    let (transferred, mut of_transfer) = ask_forwarded(axfr());
    let mut message = messages(transfer(transferred)).remove(0);
    for (answer, verifier) in [
        (&mut answer, &mut of_query),
        (&mut updated, &mut of_update),
        (&mut refused, &mut of_refusal),
        (&mut message, &mut of_transfer),
    ] {
        assert_eq!(answer[..2], FORWARDED);
        verifier.verify(answer, NOW).unwrap();
    }
}

#[test]
fn a_sender_is_known_by_the_address_that_the_zone_names_for_such_a_request() {
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    let mut policy = policy();
    let update_list = AccessList(vec![Who::Address(Prefix::from_text("192.0.2.9").unwrap()).into()]);
    let primaries = vec![(address("192.0.2.7"), Some(name("key.")))];
    let zone = ZonePolicy { allow_update: update_list, primaries, ..ZonePolicy::default() };
    Arc::make_mut(&mut policy.zones).insert(name("example."), zone);
    let request = |flags| question_message(1, flags, name("example.").as_name(), Rtype::SOA);
    let knows = |request: &[u8], from: &str| policy.knows_sender(request, address(from));
    assert!(knows(&request(NOTIFY), "192.0.2.7") && knows(&request(NOTIFY), "::ffff:192.0.2.7"));
    assert!(knows(&request(UPDATE), "192.0.2.9") && knows(&axfr(), CLIENT));
    for (request, from) in [
        (request(NOTIFY), "192.0.2.9"),
        (request(UPDATE), "192.0.2.7"),
        (axfr(), "192.0.2.7"),
        (request(2 << 11), CLIENT),
        (question_message(1, NOTIFY, name("other.").as_name(), Rtype::SOA), "192.0.2.7"),
        (b"short".to_vec(), CLIENT),
    ] {
        assert!(!knows(&request, from), "{request:?} {from}");
    }
    let everybody = AccessList(vec![Who::Address(Prefix::from_text("0.0.0.0/0").unwrap()).into()]);
    let zone = ZonePolicy { allow_update: everybody.clone(), ..ZonePolicy::default() };
    let policy = Policy {
        allow_transfer: everybody,
        zones: Arc::new([(name("example."), zone)].into()),
        ..Policy::default()
    };
    let of_other = question_message(1, 0, name("other.").as_name(), Rtype::SOA);
    for request in [request(UPDATE), axfr(), of_other] {
        assert!(!policy.knows_sender(&request, address(CLIENT)), "{request:?}");
    }
}
