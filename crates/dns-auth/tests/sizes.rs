//! At every limit of size: the message keeps to it, is a message, and says TC exactly when something is missing that
//! belongs to the answer (RFC 2181, 9; RFC 9471, 3).
//!
//! What belongs to it is read off the unlimited answer: the answer and authority sections, and in a referral the addresses
//! of servers below the cut. They stand in front of all else, so where the last of them ends is the room that they need.

mod common;

use std::collections::BTreeSet;

use common::{Query, ZoneList, catalogs, describe, respond, responder, samples};
use dns_auth::fuzz::{Record, Reply, check_reply};
use dns_auth::{Settings, Transport};
use dns_wire::header::flag;
use dns_wire::{Name, Rtype};

/// Answers of all sizes up to beyond 4096: with aliases, denials, referrals, additional records.
const LARGE: &str = "\
@ 60 SOA a-name-server-with-a-long-name a-mailbox-with-a-long-name 1 2 3 4 5
@ 60 NS ns
ns 60 A 192.0.2.1
$GENERATE 1-90 a3 60 A 192.0.2.$
$GENERATE 1-200 big 60 A 192.0.2.$
$GENERATE 1-90 v6 60 AAAA 2001:db8::$
$GENERATE 1-40 txt 60 TXT \"some text that is rather long, number $\"
$GENERATE 1-30 mx 60 MX $ host$
$GENERATE 1-30 srv 60 SRV 0 0 $ host$
$GENERATE 1-30 host$ 60 A 192.0.2.$
$GENERATE 1-30 host$ 60 AAAA 2001:db8:1::$
c1 60 CNAME c2
c2 60 CNAME a3
c3 60 CNAME x.below.cut
c4 60 CNAME no-such-name-in-this-zone
$GENERATE 1-20 cut 60 NS server-$.cut
$GENERATE 1-20 server-$.cut 60 A 192.0.2.$
$GENERATE 1-20 server-$.cut 60 AAAA 2001:db8:2::$
mixed 60 NS a.mixed
mixed 60 NS big
mixed 60 NS b.mixed
mixed 60 NS server-1.cut
a.mixed 60 A 192.0.2.7
$GENERATE 1-30 b.mixed 60 AAAA 2001:db8:3::$
sibling 60 NS big
sibling 60 NS v6
$GENERATE 1-60 wide 60 NS a-server-with-a-long-name-$.elsewhere.
d 60 DNAME txt-of-this-zone.a3
*.w 60 CNAME big
";

#[test]
fn answers_keep_to_every_limit_and_say_when_something_is_missing() {
    let large = ZoneList::from_text("large.test.", LARGE).unwrap();
    for zone in samples().into_iter().chain([large]) {
        check_zone(&zone);
    }
}

fn check_zone(zone: &ZoneList) {
    let settings = Settings { udp_payload_max: 4096, nsid: Some(vec![b'n'; 9]), ..Settings::default() };
    let catalogs = catalogs(std::slice::from_ref(zone));
    let mut responder = responder(&settings);
    for query in queries(zone) {
        for catalog in &catalogs {
            let wire = query.clone().with_edns(4096).to_wire();
            let octets = respond(&mut responder, catalog, &wire, Transport::Tcp).unwrap();
            let full = Reply::read(&octets).unwrap();
            // Beyond the size of the whole answer nothing changes any more.
            let interesting = octets.len().clamp(512, 4095) as u16 + 1;
            for limit in (512..=interesting).chain([4096]) {
                let wire = query.clone().with_edns(limit).to_wire();
                let answer = respond(&mut responder, catalog, &wire, Transport::Udp).unwrap();
                check_reply(&wire, &answer, usize::from(limit));
                check_contents(&query, &Reply::read(&answer).unwrap(), &full, limit);
            }
        }
    }
}

fn check_contents(query: &Query, reply: &Reply, full: &Reply, limit: u16) {
    let place = || format!("{query} within {limit}:\n{}\nof\n{}", describe(reply), describe(full));
    let required = required(full);
    let opt_len = 11 + full.opt.as_ref().unwrap().rdata.len();
    let needed = required.iter().map(|record| record.end).max().unwrap_or(0) + opt_len;
    let truncated = reply.flags & flag::TC != 0;
    assert_eq!(truncated, needed > usize::from(limit), "TC, where {needed} are needed: {}", place());
    assert_eq!(reply.rcode() | reply.flags & flag::AA, full.rcode() | full.flags & flag::AA, "{}", place());
    for (part, whole) in reply.sections.iter().zip(&full.sections) {
        for record in part {
            assert!(whole.contains(record), "of which {record:?} is no part: {}", place());
            let is_of_set = |other: &&Record| other.owner == record.owner && other.rtype == record.rtype;
            let count = |records: &[Record]| records.iter().filter(is_of_set).count();
            assert_eq!(count(part), count(whole), "a set in parts: {}", place());
        }
    }
    if !truncated {
        let here = |record: &&Record| reply.sections.iter().any(|section| section.contains(record));
        assert!(required.iter().all(here), "something is missing: {}", place());
    }
}

/// The records of an unlimited answer without which it is truncated.
fn required(full: &Reply) -> Vec<&Record> {
    let [answer, authority, additional] = &full.sections;
    let servers: Vec<&Record> = authority.iter().filter(|record| record.rtype == Rtype::NS).collect();
    let is_glue = |record: &&Record| {
        let owner = Name::from_wire(&record.owner).unwrap();
        servers.iter().any(|server| owner.ends_with(Name::from_wire(&server.owner).unwrap()))
    };
    answer.iter().chain(authority).chain(additional.iter().filter(is_glue)).collect()
}

fn queries(zone: &ZoneList) -> Vec<Query> {
    let mut questions = BTreeSet::new();
    for record in &zone.records {
        let owner = record.owner.as_name().as_bytes();
        questions.insert((owner.to_ascii_lowercase(), record.rtype));
        questions.insert(([b"\x07no-such", owner].concat(), Rtype::A));
        for rtype in [Rtype::A, Rtype::AAAA, Rtype::MX, Rtype::ANY] {
            questions.insert((owner.to_ascii_lowercase(), rtype));
        }
    }
    // Names that are generated are all alike: a few of them will do.
    let few = questions.len().div_ceil(200);
    let all = questions.into_iter().step_by(few).filter(|(qname, _)| qname.len() <= 255);
    all.map(|(qname, qtype)| Query::new(&qname, qtype)).collect()
}
