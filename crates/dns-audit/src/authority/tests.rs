//! The authority, asked as resolvers ask it.

use dns_message::Message;
use dns_sign::{KeyFiles, Role, Times};

use super::*;
use crate::plan::Question;
use crate::transcript::Reply;

const NOW_MS: u64 = 1_795_632_000_000;

fn zone(is_signed: bool) -> Zone {
    let origin = NameBuf::from_text(b"probe.example.", None).unwrap();
    let keys = is_signed.then(|| {
        let files = KeyFiles::generate(origin.as_name(), Role::KeySigning, Times::default()).unwrap();
        Key::read(origin.as_name(), &files.public, &files.private).unwrap()
    });
    Zone::new(origin, vec![IpAddr::from([192, 0, 2, 1])], KeySet::new(keys.into_iter().collect()))
}

fn ask(zone: &Zone, log: &mut Log, name: &str, qtype: Rtype, via: Via) -> Option<Reply> {
    let name = NameBuf::from_text(format!("{name}.probe.example.").as_bytes(), None).unwrap();
    let message = Question::new(name, qtype).with_dnssec().message(7);
    let asked = Asked { message: &message, source: ([192, 0, 2, 9], 4242).into(), server: 0, via };
    zone.answer(&asked, log, NOW_MS).message.map(|octets| Reply::read(&octets).unwrap())
}

fn spec() -> Spec {
    Spec::new(Nonce(7), 3, NOW_MS, 30)
}

#[test]
fn an_address_is_the_time_and_who_asked_is_logged_and_read_over_tcp_only() {
    let (zone, mut log) = (zone(false), Log::new(10));
    let reply = ask(&zone, &mut log, &spec().to_string(), Rtype::A, Via::Udp).unwrap();
    let record = reply.record(Rtype::A).unwrap();
    assert_eq!((made_ms(&record.rdata, &spec(), NOW_MS), record.ttl), (Some(NOW_MS), 30));
    let page = |log: &mut Log, from: usize, via| {
        ask(&zone, log, &format!("log-{}-{from}", Nonce(7)), Rtype::TXT, via).unwrap()
    };
    assert!(page(&mut log, 0, Via::Udp).is_truncated());
    let entry: Entry = serde_json::from_slice(&page(&mut log, 0, Via::Tcp).answers[0].rdata[1..]).unwrap();
    assert_eq!((entry.number, entry.id, entry.source.port(), entry.dnssec_ok), (3, 7, 4242, true));
    assert_eq!(page(&mut log, 1, Via::Tcp).answers[0].rdata, [0]);
}

#[test]
fn a_name_does_what_its_label_says() {
    let (zone, mut log) = (zone(false), Log::new(10));
    let mut rcode = |behaviour| {
        let spec = Spec { phases: vec![Phase::always(behaviour)], ..spec() };
        ask(&zone, &mut log, &spec.to_string(), Rtype::A, Via::Udp)
            .map(|reply| (reply.rcode, reply.answers.len()))
    };
    assert_eq!(rcode(Behaviour::Silent), None);
    assert_eq!(rcode(Behaviour::ServFail), Some((2, 0)));
    assert_eq!(rcode(Behaviour::NxDomain), Some((3, 0)));
    assert_eq!(rcode(Behaviour::NoData), Some((0, 0)));
    assert_eq!(rcode(Behaviour::Slow(10)), Some((0, 1)));
}

/// RFC 4470, 4: the range has the name, and its end is no name below it, which would say that the name exists.
#[test]
fn a_denial_covers_the_name_and_not_more_than_the_name() {
    let (zone, mut log) = (zone(true), Log::new(10));
    let spec = Spec { phases: vec![Phase::always(Behaviour::NxDomain)], ..spec() };
    let reply = ask(&zone, &mut log, &spec.to_string(), Rtype::A, Via::Udp).unwrap();
    let name = NameBuf::from_text(format!("{spec}.probe.example.").as_bytes(), None).unwrap();
    let nsec: Vec<&dns_message::Record> =
        reply.authority.iter().filter(|record| record.rtype == Rtype::NSEC).collect();
    assert_eq!(nsec.len(), 2);
    let (next, _) = Name::split_from(&nsec[0].rdata).unwrap();
    assert!(
        nsec[0].owner.as_name() < name.as_name() && name.as_name() < next && !next.ends_with(name.as_name())
    );
    let signatures = reply.authority.iter().filter(|record| record.rtype == Rtype::RRSIG).count();
    assert_eq!(signatures, 3, "of the SOA record and both NSEC records");
}

#[test]
fn what_is_no_query_and_what_is_elsewhere_is_refused_and_never_a_panic() {
    let (zone, mut log) = (zone(true), Log::new(10));
    let name = NameBuf::from_text(b"www.example.", None).unwrap();
    let elsewhere = Question::new(name, Rtype::A).message(7);
    let mut answer = |message: &[u8]| {
        let asked = Asked { message, source: ([192, 0, 2, 9], 1).into(), server: 9, via: Via::Udp };
        let answer = zone.answer(&asked, &mut log, NOW_MS).message?;
        Message::parse(&answer).ok().map(|message| message.flags() & 0xf)
    };
    assert_eq!(answer(&elsewhere), Some(5));
    for len in 0..elsewhere.len() {
        let expected = (len >= 12).then_some(1);
        assert_eq!(answer(&elsewhere[..len]), expected, "{len} octets");
    }
}

/// The bound of amplification is there for TXT records that are filled up; signed answers and denials stay below it, over UDP.
#[test]
fn a_datagram_has_ten_times_the_octets_of_its_query_at_most_and_only_fillings_are_cut_for_it() {
    let (zone, mut log) = (zone(true), Log::new(10));
    let behaviours = [Behaviour::Slow(1), Behaviour::NxDomain, Behaviour::NoData].map(Phase::always);
    let mut labels: Vec<(String, bool)> =
        behaviours.map(|phase| (Spec { phases: vec![phase], ..spec() }.to_string(), false)).into();
    labels.push(("ns1".to_owned(), false));
    labels.push((Spec { size: 900, ..spec() }.to_string(), true));
    for (label, is_filled) in labels {
        for (qtype, padding) in [(Rtype::A, 0), (Rtype::TXT, 0), (Rtype::SOA, 0), (Rtype::TXT, 200)] {
            let name = NameBuf::from_text(format!("{label}.probe.example.").as_bytes(), None).unwrap();
            let question = Question::new(name, qtype).with_dnssec().with_option(12, vec![0; padding]);
            let message = question.message(7);
            let asked =
                Asked { message: &message, source: ([192, 0, 2, 9], 1).into(), server: 0, via: Via::Udp };
            let answer = zone.answer(&asked, &mut log, NOW_MS).message.unwrap();
            let is_cut = Reply::read(&answer).unwrap().is_truncated();
            assert!(
                answer.len() <= 10 * message.len(),
                "{label} {qtype}: {} for {}",
                answer.len(),
                message.len()
            );
            assert_eq!(
                is_cut,
                is_filled && qtype == Rtype::TXT && padding == 0,
                "{label} {qtype}: {}",
                answer.len()
            );
        }
    }
}

#[test]
fn a_client_that_asks_for_too_much_is_sent_to_tcp() {
    let name = NameBuf::from_text(b"www.probe.example.", None).unwrap();
    let message = Question::new(name, Rtype::A).message(7);
    let asked = Asked { message: &message, source: ([192, 0, 2, 9], 1).into(), server: 0, via: Via::Udp };
    let reply = Reply::read(&Zone::cut(&asked).unwrap()).unwrap();
    assert!(reply.is_truncated() && reply.answers.is_empty());
    assert_eq!(Zone::cut(&Asked { message: b"no query", ..asked }), None);
}

#[test]
fn no_answer_waits_for_longer_than_five_seconds() {
    let (zone, mut log) = (zone(false), Log::new(10));
    let mut delay = |ms| {
        let label = Spec { phases: vec![Phase::always(Behaviour::Slow(ms))], ..spec() }.to_string();
        let name = NameBuf::from_text(format!("{label}.probe.example.").as_bytes(), None).unwrap();
        let message = Question::new(name, Rtype::A).message(7);
        let asked = Asked { message: &message, source: ([192, 0, 2, 9], 1).into(), server: 0, via: Via::Udp };
        zone.answer(&asked, &mut log, NOW_MS).delay_ms
    };
    assert_eq!((delay(4000), delay(60_000)), (4000, 5000));
}
