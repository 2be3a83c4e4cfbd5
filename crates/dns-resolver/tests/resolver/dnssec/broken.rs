//! What is not as it should be: each way to break a zone, and each attack, ends in SERVFAIL with a reason.

use std::net::SocketAddr;

use clock::Duration;
use dns_wire::{NameBuf, Rtype};

use super::authority::{Zone, covers};
use super::internet::{Internet, TODAY, anchor, options, suspended, trust};
use crate::rpl::message::{Message, Record, name, record};
use dns_resolver::{Options, Stale, Trust, TrustAnchor};

/// What an attacker, or a broken signer, does to the responses about the zone `Z`.
type Break = fn(&Internet, &NameBuf, &mut Message);

const BOGUS: u16 = 6;
const EXPIRED: u16 = 7;
const NOT_YET_VALID: u16 = 8;
const DNSKEY_MISSING: u16 = 9;
const RRSIGS_MISSING: u16 = 10;
const NSEC_MISSING: u16 = 12;

const WAYS: &[(&str, &str, u16, Break)] = &[
    ("no signatures at all", "www.Z A", RRSIGS_MISSING, |_, _, m| each(m, |r| r.rtype != Rtype::RRSIG)),
    ("an answer without its signature", "www.Z A", RRSIGS_MISSING, |_, _, m| strip(m, Rtype::A)),
    ("an alias without its signature", "alias.Z A", RRSIGS_MISSING, |_, _, m| strip(m, Rtype::CNAME)),
    ("a redirection without its signature", "x.dname.Z A", RRSIGS_MISSING, |_, _, m| strip(m, Rtype::DNAME)),
    ("another address", "www.Z A", BOGUS, |_, _, m| alter(m, Rtype::A, |r| r.rdata[3] ^= 1)),
    ("one address more", "www.Z A", BOGUS, |_, _, m| {
        if let Some(own) = m.sections[0].iter().find(|r| r.rtype == Rtype::A).cloned() {
            m.sections[0].push(Record { rdata: vec![192, 0, 2, 66], ..own });
        }
    }),
    ("another target", "alias.Z A", BOGUS, |_, _, m| alter(m, Rtype::CNAME, |r| r.rdata[1] ^= 1)),
    ("a broken signature", "www.Z A", BOGUS, |_, _, m| sig(m, Rtype::A, |r| *last(r) ^= 1)),
    ("a signature cut short", "www.Z A", BOGUS, |_, _, m| {
        sig(m, Rtype::A, |r| r.rdata.truncate(r.rdata.len() - 1));
    }),
    ("an empty signature", "www.Z A", BOGUS, |_, z, m| {
        let len = 18 + z.as_name().len();
        sig(m, Rtype::A, |r| r.rdata.truncate(len));
    }),
    ("a signature of fewer labels", "www.Z A", BOGUS, |_, _, m| sig(m, Rtype::A, |r| r.rdata[3] -= 1)),
    ("a signature of more labels", "www.Z A", BOGUS, |_, _, m| sig(m, Rtype::A, |r| r.rdata[3] += 1)),
    ("a signature with another TTL", "www.Z A", BOGUS, |_, _, m| sig(m, Rtype::A, |r| r.rdata[7] ^= 1)),
    ("a signature made to have expired", "www.Z A", EXPIRED, |_, _, m| {
        sig(m, Rtype::A, |r| r.rdata[8] = 0x60)
    }),
    ("a signature made to come later", "www.Z A", NOT_YET_VALID, |_, _, m| {
        sig(m, Rtype::A, |r| r.rdata[12] = 0x70);
    }),
    ("a signature by an unknown algorithm", "www.Z A", DNSKEY_MISSING, |_, _, m| {
        sig(m, Rtype::A, |r| r.rdata[2] = 99)
    }),
    ("a signature by a missing key", "www.Z A", DNSKEY_MISSING, |_, _, m| {
        sig(m, Rtype::A, |r| r.rdata[17] ^= 1)
    }),
    ("a signature by the zone above", "www.Z A", DNSKEY_MISSING, |_, z, m| {
        let above = z.as_name().parent().expect("a zone above").into();
        let keep = z.as_name().len();
        sig(m, Rtype::A, |r| set_signer(r, keep, &above));
    }),
    ("a signature by the name itself", "www.Z A", DNSKEY_MISSING, |_, z, m| {
        let keep = z.as_name().len();
        sig(m, Rtype::A, |r| {
            let owner = r.owner.clone();
            set_signer(r, keep, &owner);
        });
    }),
    ("a signature by a zone elsewhere", "www.Z A", RRSIGS_MISSING, |_, z, m| {
        let keep = z.as_name().len();
        sig(m, Rtype::A, |r| set_signer(r, keep, &name("plain.")));
    }),
    ("the answer of another zone", "www.Z A", RRSIGS_MISSING, |net, _, m| {
        let other = net.zone("optout.tld.").set(&name("www.optout.tld."), Rtype::A);
        replace(m, Rtype::A, &other);
    }),
    ("the answer of another name", "www.Z A", BOGUS, |net, z, m| {
        let other = net.zone(&z.to_string()).set(&name(&format!("ns.{z}")), Rtype::A);
        replace(m, Rtype::A, &other);
    }),
    ("keys denied, by their own signature", "www.Z A", DNSKEY_MISSING, |net, z, m| {
        if asks(m, Rtype::DNSKEY) {
            m.sections = net.zone(&z.to_string()).answer(z, Rtype::AAAA).sections;
        }
    }),
    ("no keys", "www.Z A", RRSIGS_MISSING, |_, _, m| {
        if asks(m, Rtype::DNSKEY) {
            each(m, |r| r.rtype != Rtype::DNSKEY && covers(r) != Some(Rtype::DNSKEY));
        }
    }),
    ("keys without signature", "www.Z A", RRSIGS_MISSING, |_, _, m| strip(m, Rtype::DNSKEY)),
    ("keys with a broken signature", "www.Z A", BOGUS, |_, _, m| sig(m, Rtype::DNSKEY, |r| *last(r) ^= 1)),
    ("another key", "www.Z A", DNSKEY_MISSING, |_, _, m| alter(m, Rtype::DNSKEY, |r| *last(r) ^= 1)),
    ("a key that is no zone key", "www.Z A", DNSKEY_MISSING, |_, _, m| {
        alter(m, Rtype::DNSKEY, |r| r.rdata[0] = 0)
    }),
    ("a revoked key", "www.Z A", DNSKEY_MISSING, |_, _, m| alter(m, Rtype::DNSKEY, |r| r.rdata[1] |= 0x80)),
    ("the keys of another zone", "www.Z A", DNSKEY_MISSING, |net, _, m| {
        if asks(m, Rtype::DNSKEY) {
            let other = net.zone("optout.tld.").set(&name("optout.tld."), Rtype::DNSKEY);
            replace(m, Rtype::DNSKEY, &other);
        }
    }),
    ("another digest in DS", "www.Z A", BOGUS, |_, _, m| alter(m, Rtype::DS, |r| *last(r) ^= 1)),
    ("DS without signature", "www.Z A", RRSIGS_MISSING, |_, _, m| strip(m, Rtype::DS)),
    ("DS of an unknown algorithm", "www.Z A", BOGUS, |_, _, m| alter(m, Rtype::DS, |r| r.rdata[2] = 99)),
    ("DS denied without proof", "www.Z A", NSEC_MISSING, |net, z, m| {
        if m.question == Some((z.clone(), Rtype::DS)) {
            m.sections = [Vec::new(), net.zone("tld.").set(&name("tld."), Rtype::SOA), Vec::new()];
        }
    }),
    ("DS denied with the proof of another name", "www.Z A", NSEC_MISSING, |net, z, m| {
        if m.question == Some((z.clone(), Rtype::DS)) {
            let other = net.zone("tld.").answer(&name("www.tld."), Rtype::DS);
            m.sections = other.sections;
        }
    }),
    ("YXDOMAIN in place of DS, and no signatures", "www.Z A", BOGUS, |_, z, m| {
        if m.question == Some((z.clone(), Rtype::DS)) {
            (m.rcode, m.sections) = (6, Default::default());
        }
        each(m, |r| r.rtype != Rtype::RRSIG);
    }),
    ("no proof of NXDOMAIN", "nothing.Z A", NSEC_MISSING, |_, _, m| each(m, |r| !is_denial(r))),
    ("proofs without signatures", "nothing.Z A", NSEC_MISSING, |_, _, m| {
        each(m, |r| !matches!(covers(r), Some(Rtype::NSEC | Rtype::NSEC3)));
    }),
    ("proofs with broken signatures", "nothing.Z A", NSEC_MISSING, |_, _, m| {
        sig(m, Rtype::NSEC, |r| *last(r) ^= 1);
        sig(m, Rtype::NSEC3, |r| *last(r) ^= 1);
    }),
    ("one proof too few", "nothing.Z A", NSEC_MISSING, |_, _, m| {
        let first = m.sections[1].iter().find(|r| matches!(r.rtype, Rtype::NSEC | Rtype::NSEC3));
        if let Some(owner) = first.map(|r| r.owner.clone()).filter(|_| m.rcode == 3) {
            each(m, |r| r.owner != owner || !is_denial(r));
        }
    }),
    ("NXDOMAIN with the proof of another name", "www.Z A", NSEC_MISSING, |net, z, m| {
        deny_by(net, z, m, "nothing")
    }),
    ("NXDOMAIN under a wildcard", "x.wild.Z A", NSEC_MISSING, |net, z, m| deny_by(net, z, m, "nothing")),
    ("NXDOMAIN for an empty name", "ent.Z A", NSEC_MISSING, |_, _, m| {
        m.rcode = if m.has("AA") && m.sections[0].is_empty() { 3 } else { m.rcode };
    }),
    ("a denial without SOA", "nothing.Z A", NSEC_MISSING, |_, _, m| {
        each(m, |r| r.rtype != Rtype::SOA && covers(r) != Some(Rtype::SOA));
    }),
    ("a denial with another SOA", "nothing.Z A", BOGUS, |_, _, m| alter(m, Rtype::SOA, |r| *last(r) ^= 1)),
    ("NODATA for a type that is there", "www.Z A", NSEC_MISSING, |net, z, m| {
        if m.question == Some((name(&format!("www.{z}")), Rtype::A)) {
            m.sections = net.zone(&z.to_string()).answer(&name(&format!("www.{z}")), Rtype::AAAA).sections;
        }
    }),
    ("NODATA with the proof of another name", "www.Z MX", NSEC_MISSING, |net, z, m| {
        if asks(m, Rtype::MX) {
            m.sections = net.zone(&z.to_string()).answer(&name(&format!("ns.{z}")), Rtype::MX).sections;
        }
    }),
    ("NODATA in place of an alias", "alias.Z A", NSEC_MISSING, |net, z, m| {
        if m.question == Some((name(&format!("alias.{z}")), Rtype::A)) {
            m.sections = net.zone(&z.to_string()).answer(&name(&format!("alias.{z}")), Rtype::DS).sections;
        }
    }),
    ("a wildcard without the proof that no name is closer", "x.wild.Z A", NSEC_MISSING, |_, _, m| {
        each(m, |r| !is_denial(r));
    }),
    ("a wildcard in place of a name that is there", "www.Z A", BOGUS, |net, z, m| {
        let wildcard = net.zone(&z.to_string()).set(&name(&format!("*.wild.{z}")), Rtype::A);
        replace(m, Rtype::A, &wildcard);
    }),
];

fn each(message: &mut Message, keep: impl Fn(&Record) -> bool) {
    message.sections.iter_mut().for_each(|section| section.retain(&keep));
}

fn strip(message: &mut Message, rtype: Rtype) {
    each(message, |record| covers(record) != Some(rtype));
}

/// Changes records, but not glue.
fn alter(message: &mut Message, rtype: Rtype, change: impl Fn(&mut Record)) {
    let records = message.sections[..2].iter_mut().flatten();
    records.filter(|record| record.rtype == rtype).for_each(change);
}

fn sig(message: &mut Message, rtype: Rtype, change: impl Fn(&mut Record)) {
    let records = message.sections.iter_mut().flatten();
    records.filter(|record| covers(record) == Some(rtype)).for_each(change);
}

fn last(record: &mut Record) -> &mut u8 {
    record.rdata.last_mut().expect("it has data")
}

fn set_signer(record: &mut Record, old_len: usize, signer: &NameBuf) {
    record.rdata.splice(18..18 + old_len, signer.as_name().as_bytes().iter().copied());
}

/// Puts the data of `other` in the place of the set in the answer.
fn replace(message: &mut Message, rtype: Rtype, other: &[Record]) {
    let Some(owner) = message.sections[0].iter().find(|r| r.rtype == rtype).map(|r| r.owner.clone()) else {
        return;
    };
    message.sections[0] =
        other.iter().map(|record| Record { owner: owner.clone(), ..record.clone() }).collect();
}

fn asks(message: &Message, rtype: Rtype) -> bool {
    message.question.as_ref().is_some_and(|question| question.1 == rtype)
}

fn is_denial(record: &Record) -> bool {
    let denials = [Rtype::NSEC, Rtype::NSEC3];
    denials.contains(&record.rtype) || covers(record).is_some_and(|rtype| denials.contains(&rtype))
}

/// NXDOMAIN for every address, by the proof for another name.
fn deny_by(internet: &Internet, zone: &NameBuf, message: &mut Message, other: &str) {
    if asks(message, Rtype::A) && message.has("AA") {
        let denial = internet.zone(&zone.to_string()).answer(&name(&format!("{other}.{zone}")), Rtype::A);
        (message.rcode, message.sections) = (3, denial.sections);
    }
}

/// An Internet in which responses about `zone`, or about its keys, are broken.
fn broken(zone: &str, break_it: Break) -> Internet {
    let zone = name(zone);
    Internet::mangled(move |internet, _, response| {
        let is_about = |(qname, _): &(NameBuf, Rtype)| qname.as_name().ends_with(zone.as_name());
        if response.question.as_ref().is_some_and(is_about) {
            break_it(internet, &zone, response);
        }
    })
}

#[test]
fn each_way_to_break_a_zone_ends_in_servfail_with_its_reason() {
    let mut complaints = Vec::new();
    for zone in ["ed25519-nsec.tld.", "ed25519-nsec3.tld."] {
        for (what, question, ede, break_it) in WAYS {
            let question = question.replace('Z', zone);
            let mut internet = broken(zone, *break_it);
            let answer = internet.ask(&question, "RD DO");
            let queries = internet.sent.len();
            if (answer.rcode, answer.ede) != (2, Some(*ede)) || queries > 30 {
                complaints.push(format!(
                    "{zone} {what}: RCODE {}, EDE {:?}, expected {ede}; {queries} queries",
                    answer.rcode, answer.ede
                ));
            }
            let again = internet.ask(&question, "RD DO");
            if again.rcode != 2 || internet.sent.len() != queries {
                complaints.push(format!("{zone} {what}: the failure is not remembered"));
            }
        }
    }
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
    assert!(WAYS.len() >= 30);
}

/// With an anchor for one zone only, no chain of trust leads to the root: a signature that says it is the root's must not end the matter.
#[test]
fn who_is_above_the_anchor_signs_nothing_below_it() {
    let anchors = vec![anchor(&Zone::load("ed25519-nsec.zone"))];
    let mut internet = Internet::with(options(), Trust { anchors, ..Trust::default() });
    internet.mangle = Box::new(|_, _, response| {
        alter(response, Rtype::A, |record| record.rdata[3] ^= 1);
        sig(response, Rtype::A, |record| set_signer(record, "ed25519-nsec.tld.".len() + 1, &NameBuf::root()));
    });
    let answer = internet.ask("www.ed25519-nsec.tld. A", "RD DO");
    assert_eq!((answer.rcode, answer.ede), (2, Some(RRSIGS_MISSING)));
}

#[test]
fn a_denial_that_nobody_could_check_is_not_authentic() {
    let target = "ecdsap256sha256-nsec.tld.";
    let mut internet =
        Internet::with(options(), Trust { negative: vec![suspended(target, None)], ..trust() });
    internet.mangle = Box::new(move |_, _, response| {
        if response.question.as_ref().is_some_and(|(qname, _)| *qname == name(&format!("www.{target}"))) {
            (response.rcode, response.sections) = (3, Default::default());
        }
    });
    let answer = internet.ask("away.ed25519-nsec.tld. A", "RD DO");
    assert_eq!((answer.rcode, answer.has("AD")), (3, false), "the alias was checked, and the denial was not");
}

#[test]
fn a_broken_zone_leaves_others_alone() {
    let mut internet = broken("ed25519-nsec.tld.", WAYS[0].3);
    assert_eq!(internet.ask("www.ed25519-nsec.tld. A", "RD DO").rcode, 2);
    assert!(internet.ask("www.ed25519-nsec3.tld. A", "RD DO").has("AD"));
    let answer = internet.ask("away.ed25519-nsec3.tld. A", "RD DO");
    assert!(answer.has("AD"));
}

#[test]
fn a_client_that_validates_itself_gets_what_is_bogus() {
    let mut internet = broken("ed25519-nsec.tld.", |_, _, m| alter(m, Rtype::A, |r| r.rdata[3] ^= 1));
    let answer = internet.ask("www.ed25519-nsec.tld. A", "RD CD DO");
    assert_eq!((answer.rcode, answer.sections[0].len(), answer.has("AD")), (0, 2, false));
    assert_eq!(internet.ask("www.ed25519-nsec.tld. A", "RD DO").rcode, 2, "it is for nobody else");
    assert_eq!(internet.ask("www.ed25519-nsec.tld. A", "RD CD").rcode, 0, "nor is the failure for it");
}

#[test]
fn another_server_may_have_the_truth() {
    let mut internet = Internet::mangled(|_, server, response| {
        if server.ip().to_string().parse::<std::net::Ipv4Addr>().is_ok_and(|ip| ip.octets()[3] > 100) {
            alter(response, Rtype::A, |record| record.rdata[3] ^= 1);
        }
    });
    for number in 0..20 {
        let answer = internet.ask(&format!("x{number}.wild.ed25519-nsec.tld. A"), "RD DO");
        assert_eq!((answer.rcode, answer.has("AD")), (0, true));
    }
    let is_second = |(server, ..): &(SocketAddr, NameBuf, Rtype)| server.ip().to_string() == "198.51.100.118";
    assert!(internet.sent.iter().any(is_second), "the broken server was asked, too");
}

#[test]
fn what_is_bogus_is_never_replaced_by_expired_data() {
    let mut internet = Internet::new();
    assert!(internet.ask("www.ed25519-nsec.tld. A", "RD DO").has("AD"));
    internet.now += Duration::from_secs(400);
    internet.mangle = Box::new(|_, _, response| alter(response, Rtype::A, |record| record.rdata[3] ^= 1));
    for _ in 0..2 {
        let answer = internet.ask("www.ed25519-nsec.tld. A", "RD DO");
        assert_eq!((answer.rcode, answer.ede), (2, Some(BOGUS)));
    }
}

#[test]
fn signatures_are_judged_by_the_calendar() {
    const YEAR: u64 = 365 * 86_400;
    for (wall_secs, ede) in [(TODAY - 2 * YEAR, NOT_YET_VALID), (TODAY + 25 * YEAR, EXPIRED)] {
        let mut internet = Internet::new();
        internet.resolver.on_wall_clock(wall_secs, internet.now);
        assert_eq!(internet.ask("www.ed25519-nsec.tld. A", "RD DO").ede, Some(ede));
    }
}

#[test]
fn data_is_kept_no_longer_than_it_was_signed_for() {
    let mut internet = Internet::mangled(|_, _, response| {
        response.sections.iter_mut().flatten().for_each(|record| record.ttl = 80_000);
    });
    let answer = internet.ask("www.ed25519-nsec.tld. A", "RD DO");
    assert_eq!((answer.has("AD"), answer.sections[0][0].ttl), (true, 300), "RFC 4035, 5.3.3");
    let denial = internet.ask("nothing.ed25519-nsec.tld. A", "RD DO");
    assert_eq!((denial.has("AD"), denial.sections[1][0].ttl), (true, 60), "RFC 9077");
}

#[test]
fn a_root_that_is_not_the_trusted_one_is_bogus() {
    let anchors = vec![TrustAnchor::root()];
    let mut internet = Internet::with(options(), Trust { anchors, ..Trust::default() });
    let answer = internet.ask("www.ed25519-nsec.tld. A", "RD DO");
    assert_eq!((answer.rcode, answer.ede), (2, Some(DNSKEY_MISSING)));
}

#[test]
fn keys_that_nobody_gives_are_a_failure_of_the_servers() {
    let stale = Stale { enabled: false, ..Stale::default() };
    let mut internet = Internet::with(Options { stale, ..options() }, trust());
    internet.mangle = Box::new(|_, _, response| {
        if asks(response, Rtype::DNSKEY) {
            (response.rcode, response.sections) = (5, Default::default());
        }
    });
    let answer = internet.ask("www.ed25519-nsec.tld. A", "RD DO");
    assert_eq!((answer.rcode, answer.ede), (2, Some(22)));
}

#[test]
fn a_hundred_keys_and_signatures_of_one_tag_are_bogus() {
    // KeyTrap: all keys and signatures have one tag, so each signature might be of each key.
    let mut internet = broken("ed25519-nsec.tld.", |_, _, m| {
        let keys: Vec<Record> = m.sections[0].iter().filter(|r| r.rtype == Rtype::DNSKEY).cloned().collect();
        for (key, number) in keys.iter().flat_map(|key| (1..=100u8).map(move |number| (key, number))) {
            let mut key = key.clone();
            // The tag is a sum: what one half of a pair gains, another loses.
            key.rdata[5] = key.rdata[5].wrapping_add(number);
            key.rdata[7] = key.rdata[7].wrapping_sub(number);
            m.sections[0].push(key);
        }
        let sigs: Vec<Record> = m.sections[0].iter().filter(|r| r.rtype == Rtype::RRSIG).cloned().collect();
        for (sig, number) in sigs.iter().flat_map(|sig| (1..=100u8).map(move |number| (sig, number))) {
            let mut sig = sig.clone();
            *last(&mut sig) ^= number;
            m.sections[0].insert(0, sig);
        }
    });
    assert_eq!(internet.ask("www.ed25519-nsec.tld. A", "RD DO").rcode, 2);
    assert!(internet.sent.len() < 30);
}

#[test]
fn an_unsigned_name_in_a_signed_zone_cannot_hide_behind_a_delegation_that_is_not_there() {
    let mut internet = broken("ed25519-nsec.tld.", |_, z, m| {
        if m.question.as_ref().is_some_and(|(qname, rtype)| qname != z && *rtype == Rtype::A) {
            let (qname, _) = m.question.clone().expect("it has one");
            m.sections = [vec![record(&format!("{qname} 60 A 192.0.2.66"))], Vec::new(), Vec::new()];
        }
    });
    let answer = internet.ask("a.b.c.ed25519-nsec.tld. A", "RD DO");
    assert_eq!((answer.rcode, answer.ede), (2, Some(RRSIGS_MISSING)));
    let below_cut = internet.ask("www.unsigned.ed25519-nsec.tld. A", "RD DO");
    assert_eq!(below_cut.rcode, 0);
}

#[test]
fn octets_changed_at_random_never_make_another_answer() {
    let mut random = dns_resolver::Random::new([9; 16]);
    for round in 0..300 {
        let seeds: Vec<u64> = (0..64).map(|_| random.draw()).collect();
        let mut internet = Internet::mangled(move |internet, _, response| {
            let seed = seeds[internet.sent.len() % seeds.len()];
            let records = response.sections[..2].iter_mut().flatten();
            let mut records: Vec<&mut Record> = records.filter(|record| !record.rdata.is_empty()).collect();
            if seed.is_multiple_of(3) && !records.is_empty() {
                let index = seed as usize / 7 % records.len();
                let at = seed as usize / 101 % records[index].rdata.len();
                records[index].rdata[at] ^= 1 << (seed >> 40 & 7);
            }
        });
        let zone = ["ed25519-nsec.tld.", "ed25519-nsec3.tld.", "ecdsap256sha256-nsec.tld."][round % 3];
        let answer = internet.ask(&format!("www.{zone} A"), "RD DO");
        let addresses: Vec<&Record> = answer.sections[0].iter().filter(|r| r.rtype == Rtype::A).collect();
        match answer.rcode {
            0 => assert!(addresses.len() == 1 && addresses[0].rdata == [192, 0, 2, 80] && answer.has("AD")),
            rcode => assert!(rcode == 2 && addresses.is_empty(), "round {round}: {answer:#?}"),
        }
        assert_eq!(internet.ask(&format!("nothing.{zone} A"), "RD DO").sections[0], []);
    }
}
