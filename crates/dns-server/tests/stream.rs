//! The stream of one client: RFC 7766.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use clock::{Duration, Instant};
use dns_auth::compile::compile;
use dns_auth::{Catalog, Counters};
use dns_server::{
    DnsResponder, Published, QueryStream, SpecialRequest, StreamResponder, TransferService, Unanswerable,
    Wanted,
};
use dns_transfer::{AccessList, Policy, Prefix, Slots, Who};
use dns_wire::{NameBuf, Rtype};
use dns_zone::ZoneBuilder;

const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 4000);

fn name(text: &str) -> NameBuf {
    NameBuf::from_text(text.as_bytes(), None).unwrap()
}

/// Answers from a zone in which `example.` has an address.
fn responder() -> StreamResponder {
    responder_of(0, TransferService::default())
}

/// The same with `hosts` more names, which may be transferred as `transfers` says.
fn responder_of(hosts: u32, transfers: TransferService) -> StreamResponder {
    let mut builder = ZoneBuilder::new(name("example.").as_name(), 2);
    let soa = [&[0, 0][..], &[0; 20]].concat();
    for (rtype, rdata) in [(Rtype::SOA, soa), (Rtype::A, vec![192, 0, 2, 1])] {
        builder.add(name("example.").as_name(), 60, rtype, &rdata).unwrap();
    }
    for host in 0..hosts {
        let owner = name(&format!("host-{host}.example."));
        builder.add(owner.as_name(), 60, Rtype::A, &[192, 0, 2, 1]).unwrap();
    }
    let catalog = Arc::new(Catalog::new([Arc::new(compile(builder.finish().unwrap()))], 5));
    let transfers = Arc::new(transfers);
    let published = Published { catalog, settings: Arc::default(), transfers, guard: None, log: None };
    let published = Arc::new(ArcSwap::from_pointee(published));
    StreamResponder::new(
        DnsResponder::new(&published, Arc::new(Counters::default())),
        Duration::from_secs(10),
    )
}

/// A query for the address with its length in front.
fn framed(id: u16) -> Vec<u8> {
    framed_of(id, Rtype::A)
}

/// The same of another type.
fn framed_of(id: u16, qtype: Rtype) -> Vec<u8> {
    let header = [&id.to_be_bytes()[..], &[0, 0, 0, 1, 0, 0, 0, 0, 0, 0]].concat();
    let [high, low] = qtype.0.to_be_bytes();
    let query = [&header[..], name("example.").as_name().as_bytes(), &[high, low, 0, 1]].concat();
    [&(query.len() as u16).to_be_bytes()[..], &query].concat()
}

/// The same query with an OPT record that has empty options of these codes.
fn framed_with_options(codes: &[u8]) -> Vec<u8> {
    let mut query = framed(7)[2..].to_vec();
    query[11] = 1;
    let options: Vec<u8> = codes.iter().flat_map(|code| [0, *code, 0, 0]).collect();
    query
        .extend_from_slice(&[&[0, 0, 41, 4, 208, 0, 0, 0, 0, 0, options.len() as u8][..], &options].concat());
    [&(query.len() as u16).to_be_bytes()[..], &query].concat()
}

/// Identifiers of the answers in an output, in order.
fn ids(mut output: &[u8]) -> Vec<u16> {
    let mut ids = Vec::new();
    while let [a, b, rest @ ..] = output {
        let (message, behind) = rest.split_at(usize::from(u16::from_be_bytes([*a, *b])));
        ids.push(u16::from_be_bytes([message[0], message[1]]));
        output = behind;
    }
    ids
}

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

#[test]
fn queries_that_come_together_are_answered_together_and_in_order() {
    let (mut stream, mut responder) = (QueryStream::new(CLIENT, at(0)), responder());
    let input: Vec<u8> = (0..20).flat_map(framed).collect();
    assert_eq!(stream.answer(&input, &mut responder, at(0)), Ok(input.len()));
    assert_eq!(ids(stream.output()), (0..20).collect::<Vec<_>>());
}

#[test]
fn a_query_that_comes_in_parts_is_answered_when_it_is_whole() {
    let (mut stream, mut responder) = (QueryStream::new(CLIENT, at(0)), responder());
    let input = framed(7);
    for end in 0..input.len() {
        assert_eq!(stream.answer(&input[..end], &mut responder, at(0)), Ok(0), "{end}");
    }
    assert_eq!(stream.answer(&input, &mut responder, at(0)), Ok(input.len()));
    assert_eq!(ids(stream.output()), [7]);
}

#[test]
fn a_message_without_octets_is_nonsense() {
    let (mut stream, mut responder) = (QueryStream::new(CLIENT, at(0)), responder());
    assert_eq!(stream.answer(&[0, 0], &mut responder, at(0)), Err(Unanswerable));
}

#[test]
fn a_client_that_does_not_read_is_not_answered_until_it_does() {
    let (mut stream, mut responder) = (QueryStream::new(CLIENT, at(0)), responder());
    let input: Vec<u8> = (0..4000).flat_map(framed).collect();
    let answered = stream.answer(&input, &mut responder, at(0)).unwrap();
    assert!(answered > 0 && answered < input.len() && !stream.has_room());
    assert_eq!(stream.answer(&input[answered..], &mut responder, at(0)), Ok(0));
    let waiting = stream.output().len();
    stream.on_sent(waiting, &mut responder);
    assert!(stream.answer(&input[answered..], &mut responder, at(0)).unwrap() > 0);
}

const IDLE: Duration = Duration::from_secs(10);

#[test]
fn idle_is_measured_in_whole_queries() {
    let (mut stream, mut responder) = (QueryStream::new(CLIENT, at(1)), responder());
    let ask = |stream: &mut QueryStream, responder: &mut StreamResponder, octets: &[u8], now| {
        stream.answer(octets, responder, now).unwrap();
        stream.on_sent(stream.output().len(), responder);
    };
    assert_eq!(stream.idle_until(0, IDLE, at(1)), at(11));
    ask(&mut stream, &mut responder, &framed(1)[..5], at(4));
    assert_eq!(stream.idle_until(0, IDLE, at(4)), at(11));
    ask(&mut stream, &mut responder, &framed(1), at(5));
    assert_eq!(stream.idle_until(0, IDLE, at(11)), at(15));
}

/// A stream of which a client took its last query at second 0 and has `count` answers to take.
fn with_answers(count: u16) -> (QueryStream, StreamResponder) {
    let (mut stream, mut responder) = (QueryStream::new(CLIENT, at(0)), responder());
    let input: Vec<u8> = (0..count).flat_map(framed).collect();
    stream.answer(&input, &mut responder, at(0)).unwrap();
    (stream, responder)
}

#[test]
fn a_client_that_takes_answers_is_not_idle_and_becomes_so_when_it_has_them() {
    let (mut stream, mut responder) = with_answers(100);
    assert_eq!(stream.idle_until(0, IDLE, at(10)), at(20));
    stream.on_sent(1, &mut responder);
    assert_eq!(stream.idle_until(0, IDLE, at(20)), at(30));
    stream.on_sent(stream.output().len(), &mut responder);
    assert_eq!(stream.idle_until(1, IDLE, at(30)), at(40), "an octet is on its way");
    assert!(stream.is_waiting());
    assert_eq!(stream.idle_until(0, IDLE, at(40)), at(50), "it begins to be idle");
    assert!(!stream.is_waiting());
    assert_eq!(stream.idle_until(0, IDLE, at(50)), at(50));
}

#[test]
fn a_client_that_takes_nothing_is_idle() {
    let (mut stream, _) = with_answers(100);
    assert_eq!(stream.idle_until(0, IDLE, at(10)), at(20));
    assert_eq!(stream.idle_until(0, IDLE, at(20)), at(20));
}

#[test]
fn a_client_that_takes_too_little_is_idle_after_twelve_time_outs() {
    let (mut stream, mut responder) = with_answers(100);
    let mut now = at(10);
    let end = loop {
        let until = stream.idle_until(0, IDLE, now);
        if until <= now {
            break now;
        }
        now = until;
        stream.on_sent(1, &mut responder);
    };
    assert_eq!(end, at(130));
}

#[test]
fn a_client_that_takes_its_share_may_go_on_for_ever() {
    let (mut stream, mut responder) = with_answers(0);
    let input: Vec<u8> = (0..2000).flat_map(framed).collect();
    let mut now = at(0);
    for _ in 0..1000 {
        stream.answer(&input, &mut responder, now).unwrap();
        let until = stream.idle_until(0, IDLE, now);
        assert!(until > now, "{now:?}");
        now = until;
        stream.on_sent(stream.output().len() / 2, &mut responder);
    }
}

#[test]
fn a_client_that_takes_a_transfer_slowly_loses_it_and_the_log_hears_of_that() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let (slots, log) = (Slots::new(1), Arc::clone(&heard));
    let client = Who::Address(Prefix::from_text("192.0.2.1").unwrap());
    let allow_transfer = AccessList(vec![client.into()]);
    let policy = Policy { allow_transfer, slots: Some(Arc::clone(&slots)), ..Policy::default() };
    let on_special = Box::new(move |_: &Policy, request: &SpecialRequest| {
        log.lock().unwrap().push((request.zone.to_string(), request.client, request.wanted));
    });
    let mut responder =
        responder_of(50_000, TransferService { policy, on_special, ..TransferService::default() });
    let mut stream = QueryStream::new(CLIENT, at(0));
    stream.answer(&framed_of(1, Rtype::AXFR), &mut responder, at(0)).unwrap();
    let mut second = 0;
    let outcome = loop {
        second += 60;
        stream.on_sent(stream.output().len().min(32 << 10), &mut responder);
        match stream.answer(&[], &mut responder, at(second)) {
            Ok(_) => assert!(second < 3600, "half a kilobyte a second for an hour"),
            Err(error) => break error,
        }
    };
    assert_eq!((outcome, slots.ended_slow(), slots.take().is_some()), (Unanswerable, 1, true));
    let wanted: Vec<Wanted> = heard.lock().unwrap().iter().map(|(_, _, wanted)| *wanted).collect();
    assert_eq!(wanted, [Wanted::Transfer, Wanted::SlowTransfer]);
    assert_eq!(heard.lock().unwrap()[1].0, "example.");
}

#[test]
fn clients_are_told_how_long_they_may_be_idle_and_the_version_of_the_zone_if_they_ask() {
    let (keepalive, version) = ([0, 11, 0, 2, 0, 100], [0, 19, 0, 6, 1, 0, 0, 0, 0, 0]);
    let both = [&keepalive[..], &version].concat();
    for (codes, options) in
        [(&[11, 19][..], &both[..]), (&[19, 11], &both), (&[11], &keepalive), (&[19], &version), (&[3], &[])]
    {
        let (mut stream, mut responder) = (QueryStream::new(CLIENT, at(0)), responder());
        stream.answer(&framed_with_options(codes), &mut responder, at(0)).unwrap();
        let opt = [&[0, 0, 41, 4, 208, 0, 0, 0, 0, 0, options.len() as u8][..], options].concat();
        assert!(stream.output().ends_with(&opt), "{codes:?}: {:?}", stream.output());
        assert_eq!(stream.output()[2 + 6..][..6], [0, 1, 0, 0, 0, 1], "an answer and an OPT record");
    }
}
