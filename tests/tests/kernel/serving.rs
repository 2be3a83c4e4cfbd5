//! Answers, as dig sees them.

use std::collections::BTreeSet;
use std::process::Command;

use lab::{Directory, Zone};
use tests::{Dig, Serving, Transport, command};

#[test]
fn dig_gets_answers_by_udp_and_tcp_over_ipv4_and_ipv6() {
    let server = Serving::start(&Zone::sample().file, &[]);
    for address in [server.v4, server.v6] {
        for transport in [Transport::Udp, Transport::Tcp] {
            let answer = Dig::ask(address, transport, &["mail.example.com", "A"]);
            assert_eq!(answer.status(), "NOERROR", "{address} {transport:?}: {}", answer.text);
            assert!(answer.has_flag("aa") && !answer.has_flag("tc"));
            assert_eq!(answer.section("ANSWER"), ["mail.example.com. 3600 IN A 192.0.2.3"]);
        }
    }
}

#[test]
fn the_ready_line_says_what_is_served_and_where() {
    let server = Serving::start(&Zone::sample().file, &[]);
    for part in ["1 zone", "over kernel sockets", "1 engine", &server.v4.to_string()] {
        assert!(server.ready.contains(part), "{part:?} in {:?}", server.ready);
    }
}

#[test]
fn every_kind_of_answer_comes_as_the_zone_says() {
    let server = Serving::start(&Zone::sample().file, &[]);
    let ask = |question: &[&str]| Dig::ask(server.v4, Transport::Udp, question);

    let chain = ask(&["ftp.example.com", "A"]);
    let wanted = [
        "ftp.example.com. 3600 IN CNAME www.example.com.",
        "www.example.com. 3600 IN CNAME example.com.",
        "example.com. 3600 IN A 192.0.2.1",
    ];
    assert_eq!(chain.section("ANSWER"), wanted);

    let wildcard = ask(&["any.thing.wild.example.com", "TXT"]);
    assert_eq!(wildcard.section("ANSWER"), ["any.thing.wild.example.com. 3600 IN TXT \"from the wildcard\""]);

    let no_name = ask(&["missing.example.com", "A"]);
    assert_eq!((no_name.status(), no_name.section("AUTHORITY").len()), ("NXDOMAIN", 1));
    // Nothing is at deep.example.com, but something is below it: RFC 8020.
    let no_data = ask(&["deep.example.com", "A"]);
    assert_eq!((no_data.status(), no_data.section("ANSWER").len()), ("NOERROR", 0));
    // The negative TTL is the SOA's minimum: RFC 2308, 5.
    assert!(no_data.section("AUTHORITY")[0].starts_with("example.com. 300 IN SOA "), "{}", no_data.text);

    let referral = ask(&["x.sub.example.com", "A"]);
    assert!(!referral.has_flag("aa"));
    assert_eq!(referral.section("AUTHORITY"), ["sub.example.com. 3600 IN NS ns.sub.example.com."]);
    assert_eq!(referral.section("ADDITIONAL"), ["ns.sub.example.com. 3600 IN A 192.0.2.5"]);

    assert_eq!(ask(&["example.net", "A"]).status(), "REFUSED");
}

#[test]
fn an_answer_too_large_for_udp_is_truncated_and_whole_by_tcp() {
    let server = Serving::start(&Zone::sample().file, &[]);
    let question = ["big.example.com", "TXT"];
    let short = Dig::ask(server.v4, Transport::Udp, &question);
    assert!(short.has_flag("tc"), "{}", short.text);
    let whole = Dig::ask(server.v4, Transport::Tcp, &question);
    assert_eq!((whole.has_flag("tc"), whole.section("ANSWER").len()), (false, 8));
}

#[test]
fn statistics_count_what_was_asked() {
    let server = Serving::start(&Zone::sample().file, &[]);
    let before = tests::stats(server.directory.path());
    for _ in 0..5 {
        Dig::ask(server.v4, Transport::Udp, &["mail.example.com", "A"]);
    }
    Dig::ask(server.v4, Transport::Tcp, &["mail.example.com", "A"]);
    let after = tests::stats(server.directory.path());
    let grown = |name: &str| {
        let value =
            |list: &[(String, u64)]| list.iter().find(|(own, _)| own == name).map(|(_, value)| *value);
        value(&after).unwrap_or_else(|| panic!("{name} in {after:?}")) - value(&before).unwrap_or(0)
    };
    assert_eq!(grown("dns_queries_udp") + grown("dns_queries_tcp"), 6, "{after:?}");
    assert_eq!(grown("tcp_connections_accepted"), 1);
}

/// What a server of this file of `example.com` prints of it.
fn served_and_dumped(file: &str) -> String {
    let server =
        Serving::start_in(Directory::new().unwrap(), &["--zone", &format!("example.com={file}")], &[]);
    let control = server.directory.path().join("control.sock").display().to_string();
    let dump = command(&["dns", "zone", "dump", "example.com", "--control", &control]);
    String::from_utf8(dump.stdout).unwrap()
}

#[test]
fn a_zone_is_printed_as_a_file_that_has_the_same_records() {
    let sample = Zone::sample().file.display().to_string();
    let sources = ["--zone", &sample, "--zone", "bad.example=/nowhere"];
    let server = Serving::start_in(Directory::new().unwrap(), &sources, &[]);
    let control = server.directory.path().join("control.sock").display().to_string();
    let dump = |zone: &str| command(&["dns", "zone", "dump", zone, "--control", &control]);
    let text = String::from_utf8(dump("EXAMPLE.com").stdout).unwrap();
    let file = server.directory.write("dumped", &text).unwrap().display().to_string();
    assert_eq!(served_and_dumped(&file), text);
    // BIND reads the same records in it, in another order.
    let of_bind = format!("{file}.bind");
    let lenient =
        ["-i", "none", "-k", "ignore", "-n", "ignore", "-m", "ignore", "-M", "ignore", "-S", "ignore"];
    let compiled =
        Command::new("named-compilezone").args(lenient).args(["-o", &of_bind, "example.com", &file]).output();
    let compiled = compiled.unwrap();
    assert!(compiled.status.success(), "{compiled:?}");
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<String>>();
    assert_eq!(lines(&served_and_dumped(&of_bind)), lines(&text));
    for (zone, error) in
        [("nothing.example", "there is no zone nothing.example."), ("bad.example", "has no version")]
    {
        let output = dump(zone);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && said.contains(error), "{said}");
    }
}

#[test]
fn the_zones_of_a_server_are_listed_with_their_serials_and_without_where_they_have_no_version() {
    let sample = Zone::sample().file.display().to_string();
    let sources = ["--zone", &sample, "--zone", "bad.example=/nowhere"];
    let server = Serving::start_in(Directory::new().unwrap(), &sources, &[]);
    let control = server.directory.path().join("control.sock").display().to_string();
    let zones = |words: &[&str]| command(&[&["dns", "zones", "--control", &control], words].concat());
    let text = String::from_utf8(zones(&[]).stdout).unwrap();
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["zone", "source", "serial", "records", "names", "signed", "state"]);
    assert_eq!(lines[1][..3], ["example.com.", "file", "1"]);
    let bad = lines[2].join(" ");
    assert!(
        bad.starts_with("bad.example. file no version: answered with SERVFAIL: ") && bad.contains("/nowhere"),
        "{bad}"
    );
    let one = String::from_utf8(zones(&["EXAMPLE.com", "--json"]).stdout).unwrap();
    assert!(one.lines().count() == 1 && one.contains("\"serial\":1,"), "{one}");
    assert_eq!(zones(&["nothing.example"]).status.code(), Some(1));
}

#[test]
fn the_version_of_the_zone_comes_with_the_answer_and_only_with_one_of_a_zone() {
    let server = Serving::start(&Zone::sample().file, &[]);
    let asked = |words: &[&str]| {
        let dig = Dig::ask(server.v4, Transport::Udp, &[words, &["+ednsopt=19"]].concat());
        dig.text.lines().find_map(|line| Some(line.split_once("OPT=19: ")?.1.to_owned()))
    };
    // Two labels, a serial of an SOA, which is 1.
    for name in ["www.example.com", "nothing.example.com", "EXAMPLE.com"] {
        assert!(asked(&[name]).is_some_and(|option| option.starts_with("02 00 00 00 00 01")), "{name}");
    }
    assert_eq!(asked(&["www.example.net"]), None);
}
