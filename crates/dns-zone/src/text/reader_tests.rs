//! The rules of master files, one by one.

use std::collections::HashMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use dns_wire::{NameBuf, Rtype};

use super::testing::{SOA, Texts, errors, read, records, records_of};
use super::{Files, Limits, Problem, Record, TextFile, read_zone};
use crate::load_zone;

fn owners(text: &str) -> Vec<String> {
    records(text).iter().map(|record| record.split(' ').next().unwrap().to_string()).collect()
}

fn ttls(text: &str) -> Vec<String> {
    records(text).iter().map(|record| record.split(' ').nth(1).unwrap().to_string()).collect()
}

#[test]
fn a_record_is_owner_ttl_class_type_data() {
    assert_eq!(records("www 60 IN A 192.0.2.1"), ["www.example. 60 A c0000201"]);
}

#[test]
fn ttl_and_class_come_in_either_order_or_not_at_all() {
    for text in ["w 60 IN A 1.2.3.4", "w IN 60 A 1.2.3.4", "w 1m class1 a 1.2.3.4", "$TTL 60\nw A 1.2.3.4"] {
        assert_eq!(records(text), ["w.example. 60 A 01020304"], "{text}");
    }
    assert!(errors("w IN IN A 1.2.3.4")[0].ends_with("expected a TTL, a class or a type, found \"IN\""));
    assert!(errors("w 1 2 A 1.2.3.4")[0].ends_with("expected a TTL, a class or a type, found \"2\""));
    assert!(errors("w IN")[0].ends_with("expected a TTL, a class or a type, found the end of the line"));
    assert!(errors("w FOO x")[0].ends_with("expected a TTL, a class or a type, found \"FOO\""));
}

#[test]
fn a_blank_start_repeats_the_owner() {
    assert_eq!(
        owners("a A 1.2.3.4\n A 1.2.3.5\n\tTXT x\nb TXT x\n"),
        ["a.example.", "a.example.", "a.example.", "b.example."]
    );
    let errors = records_of(&[("example.zone", &format!(" {SOA}"))]).unwrap_err();
    assert_eq!(errors.errors[0].problem, Problem::NoPreviousOwner);
}

#[test]
fn names_are_relative_to_the_last_origin() {
    assert_eq!(
        owners(
            "a A 1.2.3.4\n$ORIGIN sub\na A 1.2.3.4\n@ A 1.2.3.4\n$ORIGIN example.\na A 1.2.3.4\n*.b A 1.2.3.4"
        ),
        ["a.example.", "a.sub.example.", "sub.example.", "a.example.", "*.b.example."]
    );
}

#[test]
fn escapes_make_special_octets_plain() {
    assert_eq!(
        owners("a\\.b A 1.2.3.4\n\\$ttl A 1.2.3.4\n\\@ A 1.2.3.4"),
        ["a\\.b.example.", "\\$ttl.example.", "\\@.example."]
    );
}

#[test]
fn the_ttl_comes_from_the_record_then_from_the_directive_then_from_before() {
    assert_eq!(ttls("a A 1.2.3.4\nb 5 A 1.2.3.4\nc A 1.2.3.4"), ["3600", "5", "5"]);
    assert_eq!(
        ttls("$TTL 1d\na A 1.2.3.4\nb 5 A 1.2.3.4\nc A 1.2.3.4\n$TTL 7\nd TXT x"),
        ["86400", "5", "86400", "7"]
    );
    // RFC 1035 without any TTL: the minimum of the SOA, also for the SOA itself.
    let records = records_of(&[("example.zone", "@ SOA . . 1 2 3 4 300\na A 1.2.3.4\n")]).unwrap();
    assert!(records[0].starts_with("example. 300 SOA") && records[1].starts_with("a.example. 300 A"));
}

#[test]
fn a_ttl_has_31_bits() {
    assert_eq!(ttls("a 2147483647 A 1.2.3.4"), ["2147483647"]);
    assert_eq!(
        errors("a 2147483648 A 1.2.3.4"),
        ["example.zone:2:3: the TTL 2147483648 is above 2147483647"]
    );
    assert_eq!(errors("$TTL 9999w"), ["example.zone:2:6: the TTL 9999w is above 2147483647"]);
    assert!(errors("a 1h30 A 1.2.3.4")[0].ends_with("expected a TTL such as 3600 or 1h30m, found \"1h30\""));
}

#[test]
fn only_class_in_and_types_of_zones_are_taken() {
    assert_eq!(errors("a CH TXT x"), ["example.zone:2:3: class CH is not supported, only IN is"]);
    assert_eq!(errors("a CLASS7 TXT x"), ["example.zone:2:3: class CLASS7 is not supported, only IN is"]);
    assert_eq!(errors("a ANY x"), ["example.zone:2:3: ANY records cannot be in a zone"]);
    assert_eq!(errors("a TYPE0 \\# 0"), ["example.zone:2:3: TYPE0 records cannot be in a zone"]);
}

#[test]
fn an_error_names_file_line_column_and_what_was_found() {
    assert_eq!(
        errors("\nwww.example.  A 192.0.2.300"),
        ["example.zone:3:17: expected an IPv4 address, found \"192.0.2.300\""]
    );
}

#[test]
fn reading_goes_on_with_the_next_entry() {
    let errors = errors("a A x\nb TXT (\"y\"\nz) \nc MX (\nfoo\n) a A\nd A 1.2.3.4.5\n");
    let places: Vec<&str> = errors.iter().map(|error| error.split(": ").next().unwrap()).collect();
    assert_eq!(places, ["example.zone:2:5", "example.zone:6:1", "example.zone:8:5"]);
}

#[test]
fn an_owner_that_is_no_name_is_one_error() {
    assert_eq!(errors("a..b A 1.2.3.4\n A 1.2.3.5\n A 1.2.3.6").len(), 1);
}

#[test]
fn reading_stops_after_enough_errors() {
    let text = format!("{SOA}{}", "a A x\n".repeat(50));
    let errors = records_of(&[("example.zone", &text)]).unwrap_err();
    assert_eq!(errors.errors.len(), 20);
    assert!(errors.stopped_early && errors.to_string().ends_with("too many errors"));
}

#[test]
fn the_soa_comes_first_and_once() {
    let error_of = |text: &str| records_of(&[("example.zone", text)]).unwrap_err().to_string();
    assert_eq!(error_of("a 1 A 1.2.3.4\n"), "example.zone:1:5: the first record must be the SOA, found A");
    assert_eq!(error_of("; nothing\n"), "example.zone:1:1: there is no SOA record");
    let other = SOA.replace(" 1 ", " 2 ");
    assert_eq!(errors(&other), ["example.zone:2:11: a second SOA record"]);
    // A SOA that cannot be read is one error, not two.
    assert_eq!(error_of("@ 1 SOA . x\na 1 A 1.2.3.4").lines().count(), 1);
}

#[test]
fn the_receiver_sees_the_soa_first_even_after_errors() {
    let mut rtypes = Vec::new();
    let text = format!("a 1 A 1.2.3.4\nb 1 A 1.2.3.4\n{SOA}c A 1.2.3.4\n");
    read(&[("example.zone", &text)], &Limits::default(), |record| rtypes.push(record.rtype)).unwrap_err();
    assert_eq!(rtypes, [Rtype::SOA, Rtype::A]);
}

#[test]
fn all_records_are_in_the_zone_of_the_soa() {
    assert_eq!(errors("a.test. A 1.2.3.4"), ["example.zone:2:1: a.test. is outside of the zone example."]);
    assert_eq!(owners("a.EXAMPLE. A 1.2.3.4"), ["a.EXAMPLE."]);
    let records = records_of(&[("x.zone", "sub.y. 1 SOA . . 1 2 3 4 5\na.sub.y. A 1.2.3.4")]).unwrap();
    assert_eq!(records.len(), 2);
}

#[test]
fn an_origin_that_was_asked_for_is_the_one_of_the_soa() {
    let read = |origin: &str, text: &str| {
        let mut files = Texts(HashMap::from([(PathBuf::from("dir/db"), text.as_bytes().to_vec())]));
        let origin = NameBuf::from_text(origin.as_bytes(), None).unwrap();
        let receive = |_: Record<'_>| Ok::<(), String>(());
        read_zone(&mut files, Path::new("dir/db"), Some(origin.as_name()), &Limits::default(), receive)
    };
    assert_eq!(read("Example.", SOA).unwrap().origin.to_string(), "Example.");
    assert_eq!(
        read("example.", "$ORIGIN test.\n@ 1 SOA . . 1 2 3 4 5").unwrap_err().to_string(),
        "dir/db:2:1: the SOA is that of test., and the zone is example."
    );
}

#[test]
fn without_an_origin_a_file_name_that_ends_in_zone_is_it() {
    let origin_of = |path: &str| {
        read(&[(path, SOA)], &Limits::default(), |_| ()).map(|summary| summary.origin.to_string())
    };
    assert_eq!(origin_of("zones/example.com.zone").unwrap(), "example.com.");
    for path in ["example.com", "db.example", "zone", "a..b.zone", ".zone"] {
        let error = origin_of(path).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("{path}:1:1: \"@\" is relative")) && error.contains("ORIGIN="),
            "{error}"
        );
    }
}

#[test]
fn without_any_origin_names_are_absolute_up_to_the_first_directive() {
    let soa = "example. 60 SOA ns.example. h.example. 1 2 3 4 5\n";
    let read = |text: &str| records_of(&[("db", &format!("{soa}{text}"))]);
    let records = read("a.example. A 192.0.2.1\n$ORIGIN example.\nb A 192.0.2.1\n").unwrap();
    assert_eq!(records.len(), 3);
    // One error says it, whatever follows.
    let errors = read("www A 192.0.2.1\nmail A 192.0.2.1\n@ MX 1 mail").unwrap_err().errors;
    assert_eq!(errors[0].problem, Problem::NoOrigin("www".to_owned()));
    assert_eq!(errors.len(), 1, "{errors:?}");
    let whole = "@ 60 IN SOA ns h 1 2 3 4 5\n 60 NS ns\n 60 MX 10 mail\nns 60 A 192.0.2.1\n";
    let errors = records_of(&[("db", whole)]).unwrap_err().errors;
    assert_eq!(errors.len(), 1, "records without owner are none: {errors:?}");
    let errors = read("a.example. CNAME b").unwrap_err().errors;
    assert_eq!(errors[0].problem, Problem::NoOrigin("b".to_owned()));
    assert!(read("$ORIGIN sub").unwrap_err().to_string().contains("\"sub\" is relative"));
}

#[test]
fn a_file_as_dig_prints_a_transfer_is_read() {
    let text = "\n; <<>> DiG 9.18 <<>> AXFR example.\n;; global options: +cmd\n\
        Example.\t\t3600\tIN\tSOA\tns.example. h.example. 1 2 3 4 5\n\
        example.\t\t3600\tIN\tNS\tns.example.\n\
        Example.\t\t3600\tIN\tSOA\tns.example. h.example. 1 2 3 4 5\n\
        ;; Query time: 0 msec\n;; XFR size: 3 records\n\n";
    assert_eq!(records_of(&[("transfer.txt", text)]).unwrap().len(), 2);
}

#[test]
fn included_files_are_found_beside_the_file_that_includes_them() {
    let zone = format!("{SOA}a TXT x\n$INCLUDE sub/hosts.inc sub\n TXT y\nb TXT z\n");
    let hosts = "h A 1.2.3.4\n$ORIGIN other.example.\n$INCLUDE more.inc\nk A 1.2.3.4\n";
    let files =
        [("z/example.zone", zone.as_str()), ("z/sub/hosts.inc", hosts), ("z/sub/more.inc", "m A 1.2.3.4")];
    let owners: Vec<String> = records_of(&files)
        .unwrap()
        .iter()
        .map(|record| record.split(' ').next().unwrap().to_string())
        .collect();
    assert_eq!(
        owners,
        [
            "example.",
            "a.example.",
            "h.sub.example.",
            "m.other.example.",
            "k.other.example.",
            "a.example.",
            "b.example."
        ]
    );
}

#[test]
fn a_file_that_includes_itself_is_an_error() {
    let zone = format!("{SOA}$INCLUDE a.inc\n");
    let errors =
        records_of(&[("example.zone", &zone), ("a.inc", "\n$INCLUDE b.inc"), ("b.inc", "$INCLUDE a.inc")]);
    assert_eq!(errors.unwrap_err().to_string(), "b.inc:1:10: a.inc includes itself");
    let missing = records_of(&[("example.zone", &zone)]).unwrap_err().to_string();
    assert!(missing.starts_with("example.zone:2:10: cannot read a.inc: "), "{missing}");
}

#[test]
fn includes_are_bounded_in_depth_and_number() {
    let zone = format!("{SOA}$INCLUDE a\n$INCLUDE a\n");
    let files = [("example.zone", zone.as_str()), ("a", "$INCLUDE b"), ("b", "x A 1.2.3.4")];
    let error_with = |limits: Limits| read(&files, &limits, |_| ()).unwrap_err().errors[0].problem.clone();
    assert_eq!(error_with(Limits { include_depth_max: 1, ..Limits::default() }), Problem::IncludeTooDeep(1));
    assert_eq!(error_with(Limits { includes_max: 3, ..Limits::default() }), Problem::TooManyIncludes(3));
    assert!(
        read(&files, &Limits { includes_max: 4, include_depth_max: 2, ..Limits::default() }, |_| ()).is_ok()
    );
}

#[test]
fn what_is_no_text_is_refused() {
    assert_eq!(errors("a A 1.2.3.4\nb \0"), ["example.zone:3:3: a NUL octet: this is not a text file"]);
}

/// A device that never ends, nor its first line: what is behind some of it must not be read.
#[test]
fn what_is_no_text_is_refused_before_its_line_ends() {
    struct Device;
    impl Read for Device {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::OutOfMemory.into())
        }
    }
    impl Files for Device {
        fn open(&mut self, _: &Path) -> io::Result<TextFile> {
            Ok(TextFile { text: Box::new(io::repeat(0).take(1000).chain(Device)), len: 0 })
        }
    }
    let error = load_zone(&mut Device, Path::new("example.zone"), None, &Limits::default(), 1).unwrap_err();
    assert_eq!(error.to_string(), "example.zone:1:1: a NUL octet: this is not a text file");
}

#[test]
fn directives_have_their_words() {
    assert_eq!(errors("$FOO 1"), ["example.zone:2:1: unknown directive $FOO"]);
    assert_eq!(errors("$TTL"), ["example.zone:2:5: expected a TTL, found the end of the line"]);
    assert_eq!(errors("$ORIGIN a b"), ["example.zone:2:11: expected the end of the line, found \"b\""]);
    assert_eq!(owners("$origin x.example.\na TXT x"), ["a.x.example."]);
}

#[test]
fn what_the_receiver_refuses_is_an_error_at_the_record() {
    let mut files = Texts(HashMap::from([(PathBuf::from("example.zone"), SOA.as_bytes().to_vec())]));
    let read =
        read_zone(&mut files, Path::new("example.zone"), None, &Limits::default(), |_| Err("not today"));
    assert_eq!(read.unwrap_err().to_string(), "example.zone:1:1: not today");
}

#[test]
fn absurd_names_are_errors() {
    let label = "x".repeat(64);
    assert!(errors(&format!("{label} A 1.2.3.4"))[0].ends_with("a label is longer than 63 octets"));
    assert!(
        errors(&format!("{} A 1.2.3.4", "x.".repeat(150)))[0].ends_with("the name is longer than 255 octets")
    );
}

#[test]
fn the_same_owner_text_under_another_origin_is_another_owner() {
    assert_eq!(owners("a A 1.2.3.4\n$ORIGIN b.example.\na A 1.2.3.4"), ["a.example.", "a.b.example."]);
    assert_eq!(owners("a A 1.2.3.4\n$GENERATE 1-1 c$ A 1.2.3.4\na A 1.2.3.4")[2], "a.example.");
}
