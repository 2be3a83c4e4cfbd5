//! Replays the corpus of the fuzz target `dns_message`, and checks what becomes of each message in it.
//!
//! The named cases below are the source of the files; others may be added beside them. After a change here:
//! `SIDESTEP_WRITE_CORPUS=1 cargo test -p dns-auth --test fuzz_corpus`.

mod common;

use std::path::PathBuf;
use std::{env, fs};

use common::{Edns, Query, catalogs, name, respond, responder, workspace};
use dns_auth::fuzz::Reply;
use dns_auth::{Settings, Transport, fuzz_message};
use dns_wire::{Rcode, Rtype};

/// A message, and the code of its answer where no zone is served; `None` if there is no answer.
type Case = (&'static str, Vec<u8>, Option<Rcode>);

#[test]
fn every_file_of_the_corpus_is_survived() {
    let mut replayed = 0;
    for file in fs::read_dir(corpus()).unwrap() {
        fuzz_message(&fs::read(file.unwrap().path()).unwrap());
        replayed += 1;
    }
    assert!(replayed >= 60, "only {replayed} files");
}

#[test]
fn every_case_is_in_the_corpus_and_comes_to_the_expected_end() {
    let [nothing, _] = catalogs(&[]);
    for (case, message, expected) in cases() {
        let path = corpus().join(case);
        if env::var_os("SIDESTEP_WRITE_CORPUS").is_some() {
            fs::write(&path, &message).unwrap();
        }
        assert!(fs::read(&path).is_ok_and(|octets| octets == message), "{case} is not as written here");
        let answer = respond(&mut responder(&Settings::default()), &nothing, &message, Transport::Udp);
        let rcode = answer.ok().map(|answer| Reply::read(&answer).unwrap().rcode());
        assert_eq!(rcode, expected.map(|rcode| rcode as u16), "{case}");
    }
}

fn corpus() -> PathBuf {
    workspace().join("fuzz/corpus/dns_message")
}

fn cases() -> Vec<Case> {
    [questions(), extended(), broken_names(), broken_counts(), headers()].concat()
}

fn ask(qname: &str, qtype: u16) -> Query {
    Query::new(name(qname).as_name().as_bytes(), Rtype(qtype))
}

/// Each way through the zones that `fuzz_message` serves.
fn questions() -> Vec<Case> {
    let questions = [
        ("apex_soa", "example.", 6),
        ("apex_ns", "example.", 2),
        ("apex_mx", "example.", 15),
        ("apex_any", "example.", 255),
        ("address", "a.example.", 1),
        ("address_mixed_case", "A.eXaMpLe.", 1),
        ("nodata", "a.example.", 16),
        ("nxdomain", "nope.example.", 1),
        ("nxdomain_below_data", "x.a.example.", 1),
        ("empty_non_terminal", "ent.example.", 1),
        ("cname", "c.example.", 1),
        ("cname_itself", "c.example.", 5),
        ("cname_chain", "cc.example.", 28),
        ("cname_out_of_zones", "loop.example.", 1),
        ("cname_to_dname", "dd.example.", 1),
        ("cname_through_two_zones", "out.example.", 1),
        ("cname_into_child", "to-child.example.", 1),
        ("child_back_to_parent", "www.child.example.", 28),
        ("dname_below", "x.d.example.", 1),
        ("dname_itself", "d.example.", 39),
        ("dname_growing", "x.back.example.", 1),
        ("dname_at_apex", "a.other.", 1),
        ("wildcard", "x.w.example.", 16),
        ("wildcard_itself", "*.w.example.", 16),
        ("wildcard_cname", "x.y.v.example.", 1),
        ("referral", "x.sub.example.", 1),
        ("referral_at_cut", "sub.example.", 2),
        ("referral_with_much_glue", "x.many.example.", 1),
        ("ds_at_cut", "child.example.", 43),
        ("ds_below_cut", "x.sub.example.", 43),
        ("srv", "_s._udp.example.", 33),
        ("large_answer", "big.example.", 28),
        ("refused", "com.", 1),
        ("root", ".", 2),
    ];
    let refused = |(case, qname, qtype)| (case, ask(qname, qtype).to_wire(), Some(Rcode::Refused));
    let mut cases: Vec<Case> = questions.map(refused).to_vec();
    let longest = |len: usize| [&[len as u8], vec![b'x'; len].as_slice()].concat();
    let longest = [longest(63), longest(63), longest(63), longest(61), vec![0]].concat();
    let many_labels = [b"\x01x".repeat(127), vec![0]].concat();
    cases.extend([
        ("longest_name", Query::new(&longest, Rtype::A).to_wire(), Some(Rcode::Refused)),
        ("most_labels", Query::new(&many_labels, Rtype::A).to_wire(), Some(Rcode::Refused)),
        ("octets_of_all_kinds", Query::new(b"\x05\0.\\\xff\x80\0", Rtype::A).to_wire(), Some(Rcode::Refused)),
        ("class_chaos", Query { qclass: 3, ..ask("version.bind.", 16) }.to_wire(), Some(Rcode::Refused)),
        ("class_any", Query { qclass: 255, ..ask("a.example.", 1) }.to_wire(), Some(Rcode::Refused)),
        ("type_axfr", ask("example.", 252).to_wire(), Some(Rcode::Refused)),
        ("type_maila", ask("example.", 254).to_wire(), Some(Rcode::NotImp)),
        ("type_opt", ask("example.", 41).to_wire(), Some(Rcode::FormErr)),
        ("type_nxname", ask("example.", 128).to_wire(), Some(Rcode::FormErr)),
        ("type_unknown", ask("a.example.", 65_280).to_wire(), Some(Rcode::Refused)),
    ]);
    cases
}

/// OPT records, right and wrong.
fn extended() -> Vec<Case> {
    let with = |edns: Edns| Query { edns: Some(edns), ..ask("a.example.", 1) }.to_wire();
    let plain = Edns { payload_size: 1232, ..Edns::default() };
    let options = |octets: &[u8]| with(Edns { options: octets.to_vec(), ..plain.clone() });
    let mut twice = ask("a.example.", 1).with_edns(512).to_wire();
    twice[11] = 2;
    twice.extend_from_slice(b"\0\0\x29\x02\0\0\0\0\0\0\0");
    let mut owned = ask("a.example.", 1).to_wire();
    owned[11] = 1;
    owned.extend_from_slice(b"\x01x\0\0\x29\x02\0\0\0\0\0\0\0");
    let mut behind_another = ask("big.example.", 28).to_wire();
    behind_another[11] = 2;
    behind_another
        .extend_from_slice(b"\xc0\x0c\0\x01\0\x01\0\0\0\0\0\x04\x7f\0\0\x01\0\0\x29\x10\0\0\0\x80\0\0\0");
    vec![
        ("edns", with(plain.clone()), Some(Rcode::Refused)),
        ("edns_dnssec_ok", with(Edns { flags: 0x8000, ..plain.clone() }), Some(Rcode::Refused)),
        ("edns_compact_ok", with(Edns { flags: 0xc000, ..plain.clone() }), Some(Rcode::Refused)),
        ("edns_all_flags", with(Edns { flags: 0xffff, ..plain.clone() }), Some(Rcode::Refused)),
        ("edns_size_0", with(Edns::default()), Some(Rcode::Refused)),
        ("edns_size_65535", with(Edns { payload_size: 65_535, ..plain.clone() }), Some(Rcode::Refused)),
        ("edns_version_1", with(Edns { version: 1, ..plain.clone() }), Some(Rcode::BadVers)),
        ("edns_nsid", options(&[0, 3, 0, 0]), Some(Rcode::Refused)),
        ("edns_many_options", options(&[0, 10, 0, 1, 7, 0, 3, 0, 0, 255, 255, 0, 0]), Some(Rcode::Refused)),
        ("edns_option_too_long", options(&[0, 3, 0, 9]), Some(Rcode::FormErr)),
        ("edns_option_cut_short", options(&[0, 3, 0]), Some(Rcode::FormErr)),
        ("edns_twice", twice, Some(Rcode::FormErr)),
        ("edns_below_a_name", owned, Some(Rcode::FormErr)),
        ("edns_behind_another_record", behind_another, Some(Rcode::Refused)),
    ]
}

fn broken_names() -> Vec<Case> {
    let question = |octets: &[u8]| [b"\0\x01\0\0\0\x01\0\0\0\0\0\0", octets].concat();
    let additional = |octets: &[u8]| [b"\0\x01\0\0\0\x01\0\0\0\0\0\x01\x01a\0\0\x01\0\x01", octets].concat();
    let format = Some(Rcode::FormErr);
    vec![
        ("name_missing", question(b""), format),
        ("name_cut_short", question(b"\x05abc"), format),
        ("name_without_root", question(b"\x01a"), format),
        ("name_without_type", question(b"\x01a\0"), format),
        ("name_without_class", question(b"\x01a\0\0\x01\0"), format),
        ("name_too_long", question(&[&b"\x3f".repeat(256), &b"\0\0\x01\0\x01"[..]].concat()), format),
        ("label_of_64", question(&[&[64], &b"x".repeat(64)[..], b"\0\0\x01\0\x01"].concat()), format),
        ("label_of_another_kind", question(b"\x80\0\0\x01\0\x01"), format),
        ("pointer_to_itself", question(b"\xc0\x0c\0\x01\0\x01"), format),
        ("pointer_to_the_header", question(b"\x01a\xc0\0\0\x01\0\x01"), format),
        ("pointer_beyond_the_end", question(b"\xff\xff\0\x01\0\x01"), format),
        ("pointer_cut_short", additional(b"\xc0"), format),
        (
            "pointer_loop_in_additional",
            additional(b"\xc0\x13\0\x01\0\x01\0\0\0\0\0\x02\xc0\x13"),
            Some(Rcode::Refused),
        ),
        ("record_data_too_long", additional(b"\0\0\x01\0\x01\0\0\0\0\xff\xff\x7f"), format),
        ("record_cut_short", additional(b"\0\0\x01\0\x01\0\0"), format),
    ]
}

fn broken_counts() -> Vec<Case> {
    let with = |counts: [u8; 4], tail: &[u8]| {
        let mut message = ask("a.example.", 1).to_wire();
        (0..4).for_each(|section| message[5 + 2 * section] = counts[section]);
        [&message, tail].concat()
    };
    let format = Some(Rcode::FormErr);
    vec![
        ("no_question", with([0, 0, 0, 0], b""), format),
        ("two_questions", with([2, 0, 0, 0], b"\x01a\0\0\x01\0\x01"), format),
        ("answer_that_is_not_there", with([1, 1, 0, 0], b""), format),
        ("authority_that_is_not_there", with([1, 0, 1, 0], b""), format),
        ("additional_that_is_not_there", with([1, 0, 0, 255], b""), format),
        ("octets_that_nothing_counts", with([1, 0, 0, 0], b"rest"), format),
        (
            "records_in_all_sections",
            with([1, 1, 1, 1], &b"\0\0\x01\0\x01\0\0\0\0\0\0".repeat(3)),
            Some(Rcode::Refused),
        ),
    ]
}

fn headers() -> Vec<Case> {
    let flags = |flags| Query { flags, ..ask("a.example.", 1) }.to_wire();
    vec![
        ("header_alone", flags(0)[..12].to_vec(), Some(Rcode::FormErr)),
        ("header_in_part", flags(0)[..11].to_vec(), None),
        ("nothing", Vec::new(), None),
        ("response", flags(0x8000), None),
        ("response_all_flags", flags(0xffff), None),
        ("all_other_flags", flags(0x07ff), Some(Rcode::Refused)),
        ("opcode_notify", flags(4 << 11), Some(Rcode::NotImp)),
        ("opcode_update", flags(5 << 11), Some(Rcode::NotImp)),
        ("opcode_15", flags(15 << 11), Some(Rcode::NotImp)),
        ("zeros", vec![0; 512], Some(Rcode::FormErr)),
        ("ones", vec![0x7f; 512], Some(Rcode::NotImp)),
    ]
}
