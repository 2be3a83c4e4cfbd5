use std::net::SocketAddr;

use proptest::prelude::*;
use wire::{Endpoints, Envelope, protocol, write_udp};

use super::*;

fn tcp(local: &str, remote: &str) -> Subject {
    Subject::of_socket(protocol::TCP, local.parse().unwrap(), Some(remote.parse().unwrap()))
}

fn is_meant(filter: &str, subject: &Subject) -> bool {
    filter.parse::<Filter>().unwrap_or_else(|error| panic!("{error}")).matches(subject)
}

fn problem(filter: &str) -> (String, usize) {
    let error = filter.parse::<Filter>().unwrap_err();
    (error.problem, error.at)
}

#[test]
fn either_end_is_looked_at_unless_a_direction_is_named() {
    let subject = tcp("192.0.2.1:80", "198.51.100.7:4000");
    for yes in ["host 192.0.2.1", "host 198.51.100.7", "src host 192.0.2.1", "dst port 4000", "port 80"] {
        assert!(is_meant(yes, &subject), "{yes}");
    }
    for no in ["dst host 192.0.2.1", "src port 4000", "port 81", "host 192.0.2.2", "udp", "icmp", "ip6"] {
        assert!(!is_meant(no, &subject), "{no}");
    }
}

#[test]
fn and_binds_closer_than_or_and_may_be_left_out() {
    let subject = tcp("192.0.2.1:80", "198.51.100.7:4000");
    for yes in
        ["tcp port 80", "udp or tcp port 80", "udp and port 1 or tcp", "not udp", "!udp && (port 1 || ip)"]
    {
        assert!(is_meant(yes, &subject), "{yes}");
    }
    for no in ["(udp or tcp) port 81", "not (tcp or udp)", "tcp and not port 80"] {
        assert!(!is_meant(no, &subject), "{no}");
    }
}

#[test]
fn nets_and_ranges_have_ends() {
    let subject = tcp("192.0.2.1:80", "[2001:db8::7]:4000");
    for yes in ["net 192.0.2.0/24", "net 0.0.0.0/0", "net 2001:db8::/32", "net ::/0", "portrange 80-81"] {
        assert!(is_meant(yes, &subject), "{yes}");
    }
    for no in ["net 192.0.3.0/24", "net 192.0.2.2/32", "net 2001:db9::/32", "portrange 81-3999"] {
        assert!(!is_meant(no, &subject), "{no}");
    }
}

#[test]
fn nothing_means_everything() {
    for text in ["", "  "] {
        let filter: Filter = text.parse().unwrap();
        assert!(filter.is_everything() && filter.matches_frame(&[]));
    }
}

#[test]
fn frames_are_looked_at_behind_their_headers() {
    let ends = |port| SocketAddr::new("192.0.2.1".parse().unwrap(), port);
    let endpoints = Endpoints::new(ends(53), "192.0.2.9:5353".parse().unwrap()).unwrap();
    let mut frame = [0; 128];
    let len = write_udp(&mut frame, &Envelope::untagged(endpoints), b"hello").unwrap();
    let filter: Filter = "udp src port 53 dst host 192.0.2.9".parse().unwrap();
    assert!(filter.matches_frame(&frame[..len]));
    assert!(!filter.matches_frame(&frame[..20]), "cut off");
    assert!("not udp".parse::<Filter>().unwrap().matches_frame(&[]), "what holds no packet is no UDP");
}

#[test]
fn an_error_says_where_it_is() {
    let cases = [
        ("tcp host foo", "expected an address, not `foo`", 9),
        ("port 65536", "expected a number from 0 to 65535, not `65536`", 5),
        ("(tcp", "ends where `)` is to follow", 4),
        ("tcp and", "ends where a test, `not` or `(` is to follow", 7),
        ("net 192.0.2.0/33", "expected ADDRESS/LENGTH, not `192.0.2.0/33`", 4),
        ("portrange 9-1", "expected FIRST-LAST, not `9-1`", 10),
        ("tcp) udp", "expected `and`, `or` or the end, not `)`", 3),
        ("src tcp", "expected `host`, `net`, `port` or `portrange`, not `tcp`", 4),
        ("http", "expected a test, such as `tcp` or `port 80`, not `http`", 0),
    ];
    for (text, wanted, at) in cases {
        assert_eq!(problem(text), (wanted.to_owned(), at), "{text}");
    }
    let error = "tcp host foo".parse::<Filter>().unwrap_err();
    assert!(error.to_string().ends_with("\n  tcp host foo\n           ^"), "{error}");
}

#[test]
fn size_and_depth_are_bounded() {
    assert!(vec!["tcp"; TESTS_MAX].join(" or ").parse::<Filter>().is_ok());
    assert!(problem(&vec!["tcp"; TESTS_MAX + 1].join(" or ")).0.contains("more than 64 tests"));
    assert!(problem(&format!("{}tcp", "not ".repeat(DEPTH_MAX))).0.contains("nested deeper"));
    assert!(problem(&"(".repeat(TEXT_MAX)).0.contains("nested deeper"));
    assert!(problem(&" ".repeat(TEXT_MAX + 1)).0.contains("longer than"));
}

proptest! {
    #[test]
    fn no_text_panics_and_every_error_lies_within_it(text in any::<String>()) {
        if let Err(error) = text.parse::<Filter>() {
            prop_assert!(error.at <= text.len());
            let _ = error.to_string();
        }
    }

    #[test]
    fn no_sequence_of_words_panics(
        words in prop::collection::vec(
            prop::sample::select(vec![
                "tcp", "udp", "icmp", "not", "!", "and", "or", "(", ")", "host", "net", "port", "src", "dst", "::1",
                "10.0.0.0/8", "portrange", "1-2", "80", "ip6", "é",
            ]),
            0..30,
        ),
        frame in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        match words.join(" ").parse::<Filter>() {
            Ok(filter) => drop(filter.matches_frame(&frame)),
            Err(error) => drop(error.to_string()),
        }
    }
}
