//! Answers by line: by the address of the client, and by the network that a resolver names for it (RFC 7871), as dig sees them.

use std::process::Command;

use dns_wire::Edns;
use lab::Directory;
use rustix::process::Signal;
use tests::mmdb::{Value, mmdb};
use tests::{Dig, Serving, Transport, command};

use crate::updates::nsupdate;

const ZONE: &str = "$TTL 300\n@ SOA ns host 1 3600 600 86400 60\n@ NS ns\nns A 192.0.2.53\nwww A 192.0.2.1\nwww TXT plain\n\
    mail A 192.0.2.25\n@ MX 10 www\nalias CNAME www\n*.wild A 192.0.2.77\n";
const TELECOM: &str = "www A 198.51.100.1\nwww A 198.51.100.2\nonly A 198.51.100.3\n*.wild A 198.51.100.77\n";
const MOBILE: &str = "www 30 A 203.0.113.1\n";
const LIST: &str = "# networks of the telecom\n10.0.0.0/8\n2001:db8::/32\n";
const CONFIG: &str = "[[zone]]\nfile = \"example.com.zone\"\n\
    lines = { telecom = \"telecom.zone\", mobile = \"mobile.zone\" }\n\
    [[zone]]\nfile = \"plain.example.zone\"\n\
    [[line]]\nname = \"telecom\"\nprefixes-file = \"telecom.txt\"\n\
    [[line]]\nname = \"mobile\"\nprefixes = [\"10.1.0.0/16\"]\nfallback = \"telecom\"\n\
    [[line]]\nname = \"local\"\nprefixes = [\"::1\"]\nfallback = \"mobile\"\n";

fn files() -> (Directory, String) {
    let directory = Directory::new().unwrap();
    for (name, text) in [
        ("example.com.zone", ZONE),
        ("plain.example.zone", "@ 60 SOA ns host 1 2 3 4 5\nwww A 192.0.2.9\n"),
        ("telecom.zone", TELECOM),
        ("mobile.zone", MOBILE),
        ("telecom.txt", LIST),
    ] {
        directory.write(name, text).unwrap();
    }
    let config = directory.write("dns.toml", CONFIG).unwrap().display().to_string();
    (directory, config)
}

fn start() -> Serving {
    let (directory, config) = files();
    Serving::start_in(directory, &["--config", &config], &[])
}

/// The data of the answer to a question, and what comes back about the client's network.
fn ask(server: std::net::SocketAddr, question: &[&str]) -> (Vec<String>, Option<String>) {
    let dig = Dig::ask(server, Transport::Udp, &[question, &["+norecurse"]].concat());
    let mut data: Vec<String> =
        dig.section("ANSWER").iter().map(|line| line.rsplit_once(' ').unwrap().1.to_owned()).collect();
    data.sort();
    let network = dig.text.lines().find_map(|line| line.strip_prefix("; CLIENT-SUBNET: "));
    (data, network.map(str::to_owned))
}

#[test]
fn a_network_that_the_query_names_gets_the_records_of_its_line_and_the_scope_of_what_is_alike() {
    let server = start();
    for (question, network, data, scope) in [
        ("www.example.com", "10.128.0.0/24", &["198.51.100.1", "198.51.100.2"][..], "10.128.0.0/24/9"),
        ("www.example.com", "10.1.2.0/24", &["203.0.113.1"], "10.1.2.0/24/16"),
        ("www.example.com", "10.0.2.0/24", &["198.51.100.1", "198.51.100.2"], "10.0.2.0/24/16"),
        ("www.example.com", "11.0.0.0/24", &["192.0.2.1"], "11.0.0.0/24/8"),
        ("www.example.com", "2001:db8:5::/48", &["198.51.100.1", "198.51.100.2"], "2001:db8:5::/48/32"),
        ("mail.example.com", "10.1.2.0/24", &["192.0.2.25"], "10.1.2.0/24/0"),
        ("only.example.com", "10.1.2.0/24", &["198.51.100.3"], "10.1.2.0/24/16"),
        ("only.example.com", "192.0.2.0/24", &[], "192.0.2.0/24/1"),
        ("nobody.example.com", "10.1.2.0/24", &[], "10.1.2.0/24/0"),
        ("alias.example.com", "10.1.2.0/24", &["203.0.113.1", "www.example.com."], "10.1.2.0/24/16"),
        ("a.wild.example.com", "10.1.2.0/24", &["198.51.100.77"], "10.1.2.0/24/16"),
        ("a.wild.example.com", "172.16.0.0/12", &["192.0.2.77"], "172.16.0.0/12/1"),
        ("www.plain.example", "10.1.2.0/24", &["192.0.2.9"], "10.1.2.0/24/0"),
    ] {
        let (answer, network) = ask(server.v4, &[question, "A", &format!("+subnet={network}")]);
        assert_eq!(answer, data, "{question} {network:?}");
        assert_eq!(network.as_deref(), Some(scope), "{question}");
    }
    let (mut answer, network) = ask(server.v4, &["www.example.com", "A", "+subnet=0"]);
    assert_eq!(
        (answer.remove(0).as_str(), network.as_deref()),
        ("192.0.2.1", Some("0.0.0.0/0/0")),
        "a client that hides"
    );
    let (_, network) = ask(server.v4, &["www.example.com", "A"]);
    assert_eq!(network, None);
    let mx = Dig::ask(server.v4, Transport::Tcp, &["example.com", "MX", "+subnet=10.1.2.0/24"]);
    assert_eq!(mx.section("ADDITIONAL"), ["www.example.com. 30 IN A 203.0.113.1"]);
    assert!(mx.text.contains("10.1.2.0/24/16"), "{}", mx.text);
}

#[test]
fn without_such_a_network_the_address_of_who_asks_counts() {
    let server = start();
    assert_eq!(ask(server.v4, &["www.example.com", "A"]).0, ["192.0.2.1"], "of no line");
    assert_eq!(
        ask(server.v6, &["www.example.com", "A"]).0,
        ["203.0.113.1"],
        "its line falls back on another"
    );
    assert_eq!(ask(server.v6, &["only.example.com", "A"]).0, ["198.51.100.3"], "and that one on a third");
    assert_eq!(ask(server.v6, &["www.example.com", "TXT"]).0, ["\"plain\""]);
}

#[test]
fn a_malformed_network_is_a_format_error() {
    let server = start();
    for option in ["0001180a0102", "00011800", "0001170a0102ff", "000118180a0102", "0003080a"] {
        let dig = Dig::ask(
            server.v4,
            Transport::Udp,
            &["www.example.com", "A", &format!("+ednsopt={}:{option}", Edns::CLIENT_SUBNET)],
        );
        assert_eq!(dig.status(), "FORMERR", "{option}");
    }
}

#[test]
fn explain_says_which_line_answers_and_why() {
    let (directory, config) = files();
    let explain = |arguments: &[&str]| {
        let words = [&["dns", "explain", "--config", &config][..], arguments].concat();
        let output = command(&words);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        (output.status.success(), text)
    };
    let (found, text) = explain(&["www.example.com", "--from", "192.0.2.1", "--ecs", "10.1.2.0/24"]);
    for part in [
        "10.1.2.0/24, which the query names",
        "mobile: 10.1.0.0/16 decides, of its prefixes",
        "all of 10.1.0.0/16 is alike",
        "of line mobile: ",
        "mobile.zone:1",
        "www.example.com. 30 IN A 203.0.113.1",
        "scope    16: caches may give it to all of 10.1.0.0/16",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(found);
    let (_, text) = explain(&["www.example.com", "--from", "::1"]);
    let by = "of line mobile, on which the line falls back: ";
    assert!(text.contains("line local has none") && text.contains(by), "{text}");
    let (_, text) = explain(&["mail.example.com", "--from", "10.9.9.9"]);
    let list = format!(
        "telecom: 10.0.0.0/8 decides, of its prefixes-file {}/telecom.txt",
        directory.path().display()
    );
    assert!(text.contains(&list) && text.contains("zone's own file: no line has any"), "{text}");
    assert!(!explain(&["www.elsewhere.example", "--from", "10.9.9.9"]).0);
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let (directory, config) = files();
    let check = || {
        let output = command(&["dns", "check", "--config", &config]);
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    };
    let (good, text) = check();
    assert!(good, "{text}");
    for (file, text, expected) in [
        (
            "mobile.zone",
            "www A 192.0.2.1\n@ NS x\n",
            "mobile.zone:2:1: error: NS records are the same for all lines",
        ),
        ("telecom.txt", "10.0.0.0/8\n10.0.0.1/8\n", "line 2: \"10.0.0.1/8\" has bits beyond its length"),
        ("telecom.txt", "10.1.0.0/16\n", "10.1.0.0/16 is in line telecom and in line mobile"),
        ("telecom.txt", "\u{0}\u{1}\u{2}", "is not a prefix"),
        (
            "dns.toml",
            "[[line]]\nname = \"a b\"\n[[zone]]\nfile = \"x\"\n",
            "line.name: \"a b\" is not a name of",
        ),
        (
            "dns.toml",
            "[[line]]\nname = \"a\"\nfallback = \"b\"\n[[line]]\nname = \"b\"\nfallback = \"a\"\n[[zone]]\nfile = \"x\"\n",
            "line.fallback: \"b\" is not a line that does not fall back on this one",
        ),
        (
            "dns.toml",
            "[[zone]]\nfile = \"x\"\nlines = { y = \"z\" }\n",
            "lines: \"y\" is not the name of a [[line]]",
        ),
        (
            "dns.toml",
            "[[line]]\nname = \"a\"\ncountries = [\"DE\"]\n[[zone]]\nfile = \"x\"\n",
            "needs geo.country",
        ),
    ] {
        let before = std::fs::read(directory.path().join(file)).unwrap();
        directory.write(file, text).unwrap();
        let (good, said) = check();
        assert!(!good && said.contains(expected), "{expected}: {said}");
        std::fs::write(directory.path().join(file), before).unwrap();
    }
}

#[test]
fn countries_regions_and_systems_are_those_of_the_databases_and_lists_count_before_them() {
    let directory = Directory::new().unwrap();
    let code = |code| Value::Map(vec![("iso_code", Value::Text(code))]);
    let country = |name| Value::Map(vec![("country", code(name)), ("continent", Value::Map(Vec::new()))]);
    let city = Value::Map(vec![("country", code("US")), ("subdivisions", Value::List(vec![code("CA")]))]);
    let asn = |number| {
        let organization = ("autonomous_system_organization", Value::Text("Example"));
        Value::Map(vec![("autonomous_system_number", number), organization])
    };
    // Some databases have numbers in the smallest size that they fit in.
    let (short, whole) = (asn(Value::Short(64496)), asn(Value::Number(64500)));
    let files = [
        (
            "country.mmdb",
            mmdb(&[
                ("203.0.113.0", 24, country("CN")),
                ("2001:db8::", 32, country("CN")),
                ("198.51.100.0", 24, country("US")),
            ]),
        ),
        ("city.mmdb", mmdb(&[("198.51.100.0", 25, city)])),
        ("asn.mmdb", mmdb(&[("203.0.113.128", 25, short), ("100.64.0.0", 10, whole)])),
    ];
    files.iter().for_each(|(name, octets)| std::fs::write(directory.path().join(name), octets).unwrap());
    directory.write("example.com.zone", ZONE).unwrap();
    let mut config =
        "[geo]\ncountry = \"country.mmdb\"\ncity = \"city.mmdb\"\nasn = \"asn.mmdb\"\n".to_owned();
    let lines = [
        ("china", "countries = [\"cn\"]"),
        ("states", "countries = [\"US\"]"),
        ("california", "regions = [\"US-CA\"]"),
        ("system", "asns = [64496, 64500]"),
        ("ours", "prefixes = [\"203.0.113.0/28\", \"198.51.100.0/24\"]\nfallback = \"states\""),
    ];
    let mut zone = String::new();
    for (number, (name, what)) in lines.iter().enumerate() {
        directory.write(&format!("{name}.zone"), &format!("www A 192.0.2.{}\n", 101 + number)).unwrap();
        config += &format!("[[line]]\nname = \"{name}\"\n{what}\n");
        zone += &format!("{name} = \"{name}.zone\", ");
    }
    config +=
        &format!("[[zone]]\nfile = \"example.com.zone\"\nlines = {{ {} }}\n", zone.trim_end_matches(", "));
    let path = directory.write("dns.toml", &config).unwrap().display().to_string();
    let server = Serving::start_in(directory, &["--config", &path], &[]);
    let ask = |network: &str| {
        let (data, network) = ask(server.v4, &["www.example.com", "A", &format!("+subnet={network}")]);
        (
            data.concat(),
            network
                .unwrap_or_else(|| panic!("{}", server.process.output()))
                .rsplit_once('/')
                .unwrap()
                .1
                .to_owned(),
        )
    };
    let expect = |network, data: &str, scope: &str| {
        assert_eq!(ask(network), (data.to_owned(), scope.to_owned()), "{network}")
    };
    expect("203.0.113.64/32", "192.0.2.101", "26");
    expect("2001:db8:7::/48", "192.0.2.101", "32");
    expect("203.0.113.200/32", "192.0.2.104", "25");
    expect("100.64.0.1/32", "192.0.2.104", "10");
    expect("203.0.113.1/32", "192.0.2.105", "28");
    expect("198.51.100.1/32", "192.0.2.105", "24");
    expect("192.0.2.1/32", "192.0.2.1", "6");
    // Without the list, the region counts before its country.
    let shorter = config.replace(", \"198.51.100.0/24\"", "");
    server.directory.write("dns.toml", &shorter).unwrap();
    server.process.signal(Signal::HUP);
    let reloaded = || ask("198.51.100.1/32") == ("192.0.2.103".to_owned(), "25".to_owned());
    let began = std::time::Instant::now();
    while !reloaded() {
        assert!(began.elapsed().as_secs() < 60, "{:?}", ask("198.51.100.1/32"));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    expect("198.51.100.200/32", "192.0.2.102", "25");
    let text = String::from_utf8(
        command(&["dns", "explain", "www.example.com", "--from", "203.0.113.200", "--config", &path]).stdout,
    );
    assert!(text.unwrap().contains("system: 203.0.113.128/25 decides, of its asns, by geo.asn"));
    // A file that is something else leaves the lines as they are.
    std::fs::write(server.directory.path().join("asn.mmdb"), b"nonsense").unwrap();
    let output = command(&["dns", "check", "--config", &path]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!output.status.success() && text.contains("asn.mmdb: this is no MMDB file"), "{text}");
}

/// Signs a zone by BIND's tools; a line for each record.
fn sign(directory: &Directory, text: &str) -> String {
    directory.write("unsigned", text).unwrap();
    let run = |words: &[&str]| {
        let output = Command::new(words[0]).args(&words[1..]).current_dir(directory.path()).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    if !directory.path().join("keyed").exists() {
        run(&["dnssec-keygen", "-q", "-a", "ECDSAP256SHA256", "-f", "KSK", "example.com"]);
        directory.write("keyed", "").unwrap();
    }
    run(&[
        "dnssec-signzone",
        "-q",
        "-S",
        "-z",
        "-O",
        "full",
        "-o",
        "example.com",
        "-f",
        "signed",
        "unsigned",
    ]);
    std::fs::read_to_string(directory.path().join("signed")).unwrap()
}

#[test]
fn a_zone_that_somebody_has_signed_varies_with_the_signatures_of_its_lines() {
    let directory = Directory::new().unwrap();
    let signed = sign(&directory, ZONE);
    let other = sign(&directory, &ZONE.replace("192.0.2.1\n", "198.51.100.1\n"));
    let is_own = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_set = matches!(words[..], [_, _, _, "A", ..] | [_, _, _, "RRSIG", "A", ..]);
        words.first() == Some(&"www.example.com.") && is_set
    };
    let own: Vec<&str> = other.lines().filter(is_own).collect();
    assert_eq!(own.len(), 2, "{other}");
    directory.write("example.com.zone", &signed).unwrap();
    directory.write("local.zone", &own.join("\n")).unwrap();
    let config = "[[zone]]\nfile = \"example.com.zone\"\nlines = { local = \"local.zone\" }\n\
        [[line]]\nname = \"local\"\nprefixes = [\"::1\"]\n";
    let path = directory.write("dns.toml", config).unwrap().display().to_string();
    let key =
        signed.lines().find(|line| line.contains("DNSKEY\t257") || line.contains("DNSKEY 257")).unwrap();
    let key = key.split_whitespace().skip(7).collect::<String>();
    let key = key.split(';').next().unwrap().trim_matches(['(', ')']).to_owned();
    let anchor = format!("trust-anchors {{ example.com. static-key 257 3 13 \"{key}\"; }};\n");
    let anchor = directory.write("anchor", &anchor).unwrap().display().to_string();
    let server = Serving::start_in(directory, &["--config", &path], &[]);
    for (at, address) in [(server.v4, "192.0.2.1"), (server.v6, "198.51.100.1")] {
        for (name, expected) in [("www.example.com", address), ("none.example.com", "ncache nxdomain")] {
            let mut delv = Command::new("delv");
            delv.args([&format!("@{}", at.ip()), "-p", &at.port().to_string(), "-a", &anchor]);
            let output = delv.args(["+root=example.com", name, "A"]).output().unwrap();
            let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
            assert!(text.contains("fully validated") && text.contains(expected), "{at} {name}: {text}");
        }
    }
    // Without the signature, and for what other lines could not deny.
    let check = |text: &str| {
        server.directory.write("local.zone", text).unwrap();
        let output = command(&["dns", "check", "--config", &path]);
        assert!(!output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(
        check("www A 198.51.100.1\n")
            .contains("local.zone:1:1: error: the zone is signed and these A records are not")
    );
    assert!(check("mail AAAA ::5\n").contains("so it could not deny them there"));
}

/// A server of a zone that takes updates, with a line for ::1.
fn start_with_updates(signing: &str) -> Serving {
    let directory = Directory::new().unwrap();
    let zone = "$ORIGIN up.test.\n@ 60 SOA ns host 1 1 1 1000 1\n 60 NS ns\nns 60 A 192.0.2.1\nother 60 A 192.0.2.2\n\
        www 60 A 192.0.2.3\nwww.sub 60 A 192.0.2.4\n";
    directory.write("up.test.zone", zone).unwrap();
    directory.write("local.zone", "www 60 A 198.51.100.3\nwww.sub 60 A 198.51.100.4\n").unwrap();
    let config = format!(
        "[[zone]]\nfile = \"up.test.zone\"\nallow-update = [\"127.0.0.1\"]\nlines = {{ local = \"local.zone\" }}\n{signing}\
         [[line]]\nname = \"local\"\nprefixes = [\"::1\"]\n"
    );
    directory.write("dns.toml", &config).unwrap();
    start_again(directory)
}

fn start_again(directory: Directory) -> Serving {
    let config = directory.path().join("dns.toml").display().to_string();
    Serving::start_in(directory, &["--config", &config], &[])
}

/// What a server says to a command about its zones.
fn about_zones(server: &Serving, words: &[&str]) -> String {
    let control = server.directory.path().join("control.sock").display().to_string();
    let output = command(&[&["dns"], words, &["--control", &control]].concat());
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

fn update(server: &Serving, lines: &str) {
    let output = nsupdate(server.v4, &["-v"], &format!("{lines}send\n"));
    assert!(output.status.success(), "{lines}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn lines_that_cannot_be_loaded_are_an_alarm_until_they_can() {
    let (directory, config) = files();
    directory.write("telecom.txt", "foo\n").unwrap();
    let server = Serving::start_in(directory, &["--config", &config], &[]);
    let explained = || about_zones(&server, &["explain", "www.example.com", "--from", "10.2.3.4"]);
    let reload = |list: &str, problems| {
        server.directory.write("telecom.txt", list).unwrap();
        server.process.signal(Signal::HUP);
        let began = std::time::Instant::now();
        while server.counter("zones_with_problem") != problems {
            assert!(began.elapsed().as_secs() < 60, "{}", server.process.output());
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    };
    let none = "lines cannot be loaded, so every client gets what belongs to no line: line telecom: ";
    let alarms = || (server.counter("zones_with_problem"), server.counter("lines_have_problem"));
    assert_eq!(alarms(), (1, 1), "no line has records in the other zone");
    for (words, said) in [
        (&["zones", "example.com"][..], format!("not up to date: {none}")),
        (&["zone", "check", "example.com"], format!("example.com.: error: {none}")),
        (&["zone", "reload", "example.com"], format!("serial 1\nwarning: {none}")),
    ] {
        let text = about_zones(&server, words);
        assert!(text.contains(&said), "{text}");
    }
    assert!(explained().contains(&format!("line     none: {none}")), "{}", explained());
    reload(LIST, 0);
    assert_eq!(alarms(), (0, 0));
    assert!(explained().contains("line     telecom: 10.0.0.0/8 decides"), "{}", explained());
    reload("foo\n", 1);
    let text = about_zones(&server, &["zones", "example.com"]);
    assert!(text.contains("not up to date: lines stay as they are, as they cannot be loaded: "), "{text}");
    assert!(explained().contains("lines stay as they are, as they cannot be loaded: "), "{}", explained());
    assert_eq!(ask(server.v4, &["www.example.com", "A", "+subnet=10.128.0.0/24"]).0.len(), 2, "of the line");
}

#[test]
fn a_set_of_a_line_that_an_update_leaves_no_place_is_left_out_also_after_a_restart() {
    let signed = "dnssec = true\n";
    for (signing, lines, (name, back)) in [
        (signed, "update delete www.up.test A\n", ("www", "update add www.up.test 60 A 192.0.2.3\n")),
        (
            signed,
            "update delete www.up.test A\nupdate add www.up.test 60 CNAME other\n",
            ("www", "update delete www.up.test CNAME\nupdate add www.up.test 60 A 192.0.2.3\n"),
        ),
        (
            signed,
            "update add sub.up.test 60 DNAME x.test.\n",
            ("www.sub", "update delete sub.up.test DNAME\n"),
        ),
        ("", "update add sub.up.test 60 DNAME x.test.\n", ("www.sub", "update delete sub.up.test DNAME\n")),
        ("", "update add www.up.test 60 NS ns.up.test.\n", ("www", "update delete www.up.test NS\n")),
    ] {
        let server = start_with_updates(signing);
        let name = format!("{name}.up.test");
        let of_line = |server: &Serving| ask(server.v6, &[&name, "A"]).0.concat().contains("198.51.100.");
        let zones = |server: &Serving| about_zones(server, &["zones"]);
        let has_problem =
            |server: &Serving| zones(server).contains("not up to date: 1 set of a line is left out: ");
        assert!(of_line(&server) && !has_problem(&server), "{}", zones(&server));
        update(&server, lines);
        assert!(!of_line(&server) && has_problem(&server), "{lines}: {}", zones(&server));
        assert_eq!(server.counter("zones_with_problem"), 1);
        let told = "by an update, 1 set of a line is left out: ";
        assert!(server.process.output().contains(told), "{lines}: {}", server.process.output());
        for (action, done) in
            [("freeze", "is frozen"), ("thaw", "is read and thawed"), ("freeze", "is frozen")]
        {
            let said = about_zones(&server, &["zone", action, "up.test"]);
            assert!(said.contains(done), "{lines}: {said}");
            assert_eq!(action == "thaw", said.contains("\nwarning: 1 set of a line is left out: "), "{said}");
        }
        let Serving { mut process, directory, .. } = server;
        process.end();
        let server = start_again(directory);
        let output = server.process.output();
        assert!(output.contains("zone up.test.: 1 set of a line is left out: "), "{lines}: {output}");
        assert!(!of_line(&server) && has_problem(&server), "{lines}: {}", zones(&server));
        assert_eq!(ask(server.v6, &["other.up.test", "A"]).0, ["192.0.2.2"]);
        update(&server, back);
        assert!(of_line(&server) && !has_problem(&server), "{back}: {}", zones(&server));
    }
}
