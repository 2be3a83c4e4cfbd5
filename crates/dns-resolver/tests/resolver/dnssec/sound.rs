//! What is as it should be: every algorithm, both kinds of denial, and what clients see of it.

use std::collections::BTreeSet;

use dns_wire::Rtype;

use super::authority::Zone;
use super::internet::{Internet, TODAY, anchor, options, suspended, trust};
use crate::rpl::message::{Message, name};
use dns_resolver::{Dnssec, Options, Trust};

const ALGORITHMS: [&str; 5] = ["rsasha256", "rsasha512", "ecdsap256sha256", "ecdsap384sha384", "ed25519"];

/// RCODE, AD, records of the answer without signatures, EDE.
fn digest(answer: &Message) -> (u16, bool, usize, Option<u16>) {
    let records = answer.sections[0].iter().filter(|record| record.rtype != Rtype::RRSIG).count();
    (answer.rcode, answer.has("AD"), records, answer.ede)
}

#[test]
fn every_algorithm_and_both_kinds_of_denial_validate() {
    let mut zones: Vec<String> = ALGORITHMS
        .iter()
        .flat_map(|name| ["nsec", "nsec3"].map(|kind| format!("{name}-{kind}.tld.")))
        .collect();
    zones.push("salted.tld.".to_owned());
    let mut internet = Internet::new();
    for zone in &zones {
        for (question, rcode, records, what) in [
            ("www.Z A", 0, 1, "an address"),
            ("Z MX", 0, 1, "a name with capital letters in its data"),
            ("Z DNSKEY", 0, 1, "keys"),
            ("alias.Z A", 0, 2, "an alias"),
            ("away.Z A", 0, 2, "an alias to another zone"),
            ("lost.Z A", 3, 1, "an alias to nowhere"),
            ("x.dname.Z A", 3, 2, "a redirected name"),
            ("x.wild.Z A", 0, 1, "a wildcard"),
            ("x.y.wild.Z A", 0, 1, "a wildcard two labels up"),
            ("x.wild.Z AAAA", 0, 0, "a wildcard without the type"),
            ("www.Z AAAA", 0, 0, "a name without the type"),
            ("ent.Z A", 0, 0, "an empty name"),
            ("nothing.Z A", 3, 0, "no name"),
            ("a.b.c.nothing.Z A", 3, 0, "no name, four labels deep"),
            ("unsigned.Z DS", 0, 0, "a delegation without DS"),
            ("www.Z DS", 0, 0, "no delegation"),
        ] {
            let answer = internet.ask(&question.replace('Z', zone), "RD DO");
            assert_eq!(digest(&answer), (rcode, true, records, None), "{zone}: {what}: {answer:#?}");
            let again = internet.ask(&question.replace('Z', zone), "RD DO");
            assert_eq!(digest(&again), digest(&answer), "{zone}: {what}, from the cache");
        }
    }
}

#[test]
fn what_is_below_an_unsigned_delegation_is_insecure() {
    let mut internet = Internet::new();
    for question in ["www.plain. A", "www.unsigned.ed25519-nsec.tld. A", "www.unsigned.ed25519-nsec3.tld. A"]
    {
        assert_eq!(digest(&internet.ask(question, "RD DO")), (0, false, 1, None), "{question}");
    }
    assert_eq!(digest(&internet.ask("nothing.plain. A", "RD DO")), (3, false, 0, None));
    assert_eq!(digest(&internet.ask("plain. DS", "RD DO")), (0, true, 0, None), "its absence is proven");
}

#[test]
fn opt_out_proves_no_delegation_and_no_name() {
    let mut internet = Internet::new();
    assert_eq!(digest(&internet.ask("www.optout.tld. A", "RD DO")), (0, true, 1, None));
    assert_eq!(digest(&internet.ask("www.unsigned.optout.tld. A", "RD DO")), (0, false, 1, None));
    assert_eq!(
        digest(&internet.ask("unsigned.optout.tld. DS", "RD DO")),
        (0, false, 0, None),
        "RFC 5155, 9.2"
    );
    assert_eq!(digest(&internet.ask("nothing.optout.tld. A", "RD DO")), (3, false, 0, None), "RFC 5155, 9.2");
}

#[test]
fn a_zone_of_unknown_algorithms_is_insecure_and_says_so() {
    let mut internet = Internet::new();
    for zone in ["ed448-nsec.tld.", "ed448-nsec3.tld.", "rsasha1-nsec.tld.", "rsasha1-nsec3.tld."] {
        assert_eq!(
            digest(&internet.ask(&format!("www.{zone} A"), "RD DO")),
            (0, false, 1, Some(1)),
            "{zone}"
        );
        assert_eq!(
            digest(&internet.ask(&format!("nothing.{zone} A"), "RD DO")),
            (3, false, 0, Some(1)),
            "{zone}"
        );
    }
}

#[test]
fn sha1_counts_for_those_who_want_it() {
    let dnssec = Dnssec { sha1: true, ..Dnssec::default() };
    let mut internet = Internet::with(Options { dnssec, ..options() }, trust());
    for zone in ["rsasha1-nsec.tld.", "rsasha1-nsec3.tld."] {
        assert_eq!(digest(&internet.ask(&format!("www.{zone} A"), "RD DO")), (0, true, 1, None), "{zone}");
        assert_eq!(
            digest(&internet.ask(&format!("nothing.{zone} A"), "RD DO")),
            (3, true, 0, None),
            "{zone}"
        );
    }
}

#[test]
fn denials_by_too_many_iterations_are_insecure() {
    let mut internet = Internet::new();
    assert_eq!(digest(&internet.ask("www.iterated.tld. A", "RD DO")), (0, true, 1, None));
    assert_eq!(digest(&internet.ask("nothing.iterated.tld. A", "RD DO")), (3, false, 0, Some(27)));
    assert_eq!(digest(&internet.ask("www.iterated.tld. AAAA", "RD DO")), (0, false, 0, Some(27)));
    assert_eq!(digest(&internet.ask("www.unsigned.iterated.tld. A", "RD DO")), (0, false, 1, Some(27)));
}

#[test]
fn signatures_and_proofs_are_for_those_who_ask_for_them() {
    let mut internet = Internet::new();
    for question in ["www.ed25519-nsec.tld. A", "x.wild.ed25519-nsec.tld. A", "nothing.ed25519-nsec3.tld. A"]
    {
        let with = internet.ask(question, "RD DO");
        let types = |answer: &Message| {
            let records = answer.sections.iter().flatten();
            let extra = [Rtype::RRSIG, Rtype::NSEC, Rtype::NSEC3];
            records.filter(|record| extra.contains(&record.rtype)).count()
        };
        assert!(types(&with) > 0 && with.has("AD"), "{question}");
        let without = internet.ask(question, "RD");
        assert!(types(&without) == 0 && !without.has("AD"), "{question}");
        let only_ad = internet.ask(question, "RD AD");
        assert!(types(&only_ad) == 0 && only_ad.has("AD"), "{question}: RFC 6840, 5.7");
    }
    let wildcard = internet.ask("x.wild.ed25519-nsec.tld. A", "RD DO");
    assert!(wildcard.sections[1].iter().any(|record| record.rtype == Rtype::NSEC), "no name is closer");
}

#[test]
fn a_negative_anchor_suspends_validation_until_it_ends() {
    let negative = vec![suspended("ed25519-nsec.tld.", Some(TODAY + 600))];
    let mut internet = Internet::with(options(), Trust { negative, ..trust() });
    internet.mangle = Box::new(|_, _, response| {
        response.sections[0].retain(|record| record.rtype != Rtype::RRSIG);
    });
    assert_eq!(digest(&internet.ask("www.ed25519-nsec.tld. A", "RD DO")), (0, false, 1, None));
    assert_eq!(internet.ask("www.ed25519-nsec3.tld. A", "RD DO").rcode, 2);
    internet.now += clock::Duration::from_secs(601);
    assert_eq!(internet.ask("www.ed25519-nsec.tld. A", "RD DO").rcode, 2);
}

#[test]
fn an_anchor_may_stand_below_the_root() {
    let anchors = vec![anchor(&Zone::load("ed25519-nsec.zone"))];
    let mut internet = Internet::with(options(), Trust { anchors, ..Trust::default() });
    assert_eq!(digest(&internet.ask("www.ed25519-nsec.tld. A", "RD DO")), (0, true, 1, None));
    assert_eq!(digest(&internet.ask("www.ed25519-nsec3.tld. A", "RD DO")), (0, false, 1, None));
    assert_eq!(digest(&internet.ask("www.plain. A", "RD DO")), (0, false, 1, None));
    let ds = internet.ask("ed25519-nsec.tld. DS", "RD DO");
    assert_eq!(
        (ds.rcode, ds.has("AD")),
        (0, false),
        "its DS set is in the zone above, which is not anchored"
    );
}

#[test]
fn without_an_anchor_nothing_is_validated_and_no_signature_asked_for() {
    let mut internet = Internet::with(options(), Trust::default());
    let answer = internet.ask("www.ed25519-nsec.tld. A", "RD DO");
    assert_eq!(digest(&answer), (0, false, 1, None));
    assert!(answer.sections[0].iter().all(|record| record.rtype == Rtype::A));
    assert!(internet.sent.iter().all(|(_, _, rtype)| ![Rtype::DNSKEY, Rtype::DS].contains(rtype)));
}

/// Names that a zone denies by the same records.
fn names_in_one_gap(zone: &Zone) -> Vec<String> {
    let gaps = |qname: &str| {
        let answer = zone.answer(&name(qname), Rtype::A);
        let gaps = answer.sections[1].iter();
        let gaps = gaps.filter(|record| matches!(record.rtype, Rtype::NSEC | Rtype::NSEC3));
        gaps.map(|record| record.owner.clone()).collect::<BTreeSet<_>>()
    };
    let names = (0..).map(|number| format!("nothing{number}.{}", zone.apex));
    names.filter(|qname| gaps(qname) == gaps(&format!("nothing0.{}", zone.apex))).take(3).collect()
}

/// Asks for what is not there, and then for what the proofs of that deny, too.
fn check_gaps(zone: &str, proof: Rtype) {
    let mut internet = Internet::new();
    let names = names_in_one_gap(internet.zone(zone));
    assert_eq!(digest(&internet.ask(&format!("{} A", names[0]), "RD DO")), (3, true, 0, None));
    assert_eq!(digest(&internet.ask(&format!("www.{zone} AAAA"), "RD DO")), (0, true, 0, None));
    let queries = internet.sent.len();
    let below = format!("a.{}", names[1]);
    for (name, rtype, rcode) in
        [(&names[1], "A", 3), (&names[2], "TXT", 3), (&below, "MX", 3), (&format!("www.{zone}"), "MX", 0)]
    {
        let answer = internet.ask(&format!("{name} {rtype}"), "RD DO");
        assert_eq!(digest(&answer), (rcode, true, 0, None), "{name} {rtype}: {answer:#?}");
        let has_proof = answer.sections[1].iter().any(|record| record.rtype == proof);
        assert!(has_proof, "{name} {rtype}: with its proof");
    }
    assert_eq!(internet.sent.len(), queries, "RFC 8198, 5");
    for (question, rcode, records) in
        [("www.Z A", 0, 1), ("x.wild.Z A", 0, 1), ("www.unsigned.Z A", 0, 1), ("ent.Z A", 0, 0)]
    {
        let answer = internet.ask(&question.replace('Z', zone), "RD");
        assert_eq!((answer.rcode, answer.sections[0].len()), (rcode, records), "{question} is there");
    }
    internet.now += clock::Duration::from_secs(61);
    let queries = internet.sent.len();
    assert_eq!(digest(&internet.ask(&format!("{} MX", names[2]), "RD DO")), (3, true, 0, None));
    assert!(internet.sent.len() > queries, "a gap lasts as long as its record");
}

#[test]
fn the_gaps_between_names_answer_for_what_is_in_them() {
    check_gaps("ed25519-nsec.tld.", Rtype::NSEC);
}

#[test]
fn the_gaps_between_hashes_answer_for_what_is_in_them() {
    check_gaps("ed25519-nsec3.tld.", Rtype::NSEC3);
}

#[test]
fn gaps_with_opt_out_and_of_unsigned_zones_answer_for_nothing() {
    let mut internet = Internet::new();
    for zone in ["optout.tld.", "plain."] {
        assert_eq!(internet.ask(&format!("nothing.{zone} A"), "RD").rcode, 3);
        let queries = internet.sent.len();
        assert_eq!(internet.ask(&format!("nothing2.{zone} A"), "RD").rcode, 3);
        assert!(internet.sent.len() > queries, "{zone}");
    }
}
