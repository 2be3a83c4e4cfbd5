//! What must not pass for a proof, with records made by hand.

use dns_wire::{NameBuf, Rtype};

use super::*;
use crate::message::Rdatas;

fn name(text: &str) -> NameBuf {
    NameBuf::from_text(text.as_bytes(), None).unwrap()
}

/// An NSEC set; the types are all below 256.
fn nsec(owner: &str, next: &str, types: &[Rtype]) -> Rrset {
    let mut bits = [0u8; 32];
    for &Rtype(rtype) in types {
        bits[usize::from(rtype / 8)] |= 0x80 >> (rtype % 8);
    }
    let rdata = [name(next).as_name().as_bytes(), &[0, 32], &bits].concat();
    Rrset::unsigned(name(owner), Rtype::NSEC, 60, Rdatas::pack([&rdata[..]]))
}

fn proves(claim: Claim<'_>, sets: &[Rrset]) -> bool {
    nsec::proves(claim, name("example.").as_name(), sets)
}

#[test]
fn the_record_of_a_delegation_denies_nothing_but_its_ds() {
    // RFC 6840, 4.1.
    let parent = [nsec("sub.example.", "z.example.", &[Rtype::NS, Rtype::NSEC, Rtype::RRSIG])];
    let (sub, below) = (name("sub.example."), name("www.sub.example."));
    assert!(proves(Claim::NoData(sub.as_name(), Rtype::DS), &parent));
    assert!(!proves(Claim::NoData(sub.as_name(), Rtype::A), &parent));
    assert!(!proves(Claim::NoName(below.as_name()), &parent));
    assert!(!proves(Claim::NoData(below.as_name(), Rtype::A), &parent));
    assert!(is_delegation(sub.as_name(), &parent) && !is_delegation(below.as_name(), &parent));
}

#[test]
fn the_record_of_a_childs_apex_does_not_deny_its_ds() {
    let child = [nsec("sub.example.", "a.sub.example.", &[Rtype::NS, Rtype::SOA])];
    let sub = name("sub.example.");
    assert!(!proves(Claim::NoData(sub.as_name(), Rtype::DS), &child));
    assert!(proves(Claim::NoData(sub.as_name(), Rtype::A), &child));
    assert!(!is_delegation(sub.as_name(), &child));
}

#[test]
fn the_record_of_a_dname_does_not_deny_what_it_redirects() {
    let sets =
        [nsec("d.example.", "e.example.", &[Rtype::DNAME]), nsec("example.", "a.example.", &[Rtype::SOA])];
    assert!(!proves(Claim::NoName(name("x.d.example.").as_name()), &sets));
    assert!(proves(Claim::NoName(name("dd.example.").as_name()), &sets));
}

#[test]
fn an_alias_has_every_type() {
    let sets = [nsec("www.example.", "z.example.", &[Rtype::CNAME])];
    let www = name("www.example.");
    assert!(!proves(Claim::NoData(www.as_name(), Rtype::A), &sets));
    assert!(!proves(Claim::NoData(www.as_name(), Rtype::CNAME), &sets));
}

#[test]
fn a_wildcard_answers_only_from_the_closest_name() {
    let sets = [nsec("a.b.example.", "c.example.", &[Rtype::A])];
    let x = name("x.b.example.");
    assert!(proves(Claim::NoCloser(x.as_name(), 2), &sets), "*.b.example.");
    assert!(!proves(Claim::NoCloser(x.as_name(), 1), &sets), "*.example.: b.example. exists");
}

#[test]
fn the_last_record_denies_what_follows_it_in_its_own_zone_only() {
    let sets = [nsec("z.example.", "example.", &[Rtype::A]), nsec("example.", "a.example.", &[Rtype::SOA])];
    assert!(proves(Claim::NoName(name("zz.example.").as_name()), &sets));
    assert!(!proves(Claim::NoName(name("b.example.").as_name()), &sets));
    let foreign = [nsec("a.other.", "z.other.", &[Rtype::A]), nsec("other.", "a.other.", &[Rtype::SOA])];
    assert!(!proves(Claim::NoName(name("b.other.").as_name()), &foreign));
}

#[test]
fn types_beyond_the_first_block_are_found() {
    let types = Types(&[0, 1, 0x40, 1, 1, 0x40]); // A, CAA
    assert!(types.contains(Rtype::A) && types.contains(Rtype::CAA));
    assert!(!types.contains(Rtype::NS) && !types.contains(Rtype::URI));
    assert!(!Types(&[0, 9, 0x40]).contains(Rtype::A), "a block that is cut short");
}
