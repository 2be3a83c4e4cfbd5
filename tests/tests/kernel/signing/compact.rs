//! Compact denial (RFC 9824): what validators make of it, and what a flood of names does to others.

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lab::{Child, message, quiet_port};

use super::*;

const TEXT: &str = "@ 60 SOA ns h 1 2 3 4 5\n@ 60 NS ns\nns 60 A 192.0.2.1\nwww 60 A 192.0.2.80\nalias 60 CNAME nowhere\n\
    a.ent 60 A 192.0.2.3\n*.wild 60 A 192.0.2.4\n*.walias 60 CNAME www\nsub 60 NS ns.sub\nns.sub 60 A 192.0.2.7\n";

const OPTIONS: &str = "denial = \"compact\"\n";

/// The files of a server of a zone with compact denial.
fn directory(more: &str) -> Directory {
    let directory = SignedZone::directory(&format!("{OPTIONS}{more}"));
    directory.write("one.test.zone", TEXT).unwrap();
    directory
}

/// The keys that the parent would know, as words for an anchor of delv and of Unbound.
fn anchors(zone: &SignedZone) -> [String; 2] {
    let words = zone.ds().into_iter().map(|ds| {
        let digest: String = ds[4..].iter().map(|octet| format!("{octet:02X}")).collect();
        (u16::from_be_bytes([ds[0], ds[1]]), ds[2], ds[3], digest)
    });
    let words: Vec<_> = words.collect();
    let of_delv = words.iter().map(|(tag, algorithm, kind, digest)| {
        format!("trust-anchors {{ {ORIGIN} static-ds {tag} {algorithm} {kind} \"{digest}\"; }};\n")
    });
    let of_unbound = words.iter().map(|(tag, algorithm, kind, digest)| {
        format!(" trust-anchor: \"{ORIGIN}. DS {tag} {algorithm} {kind} {digest}\"\n")
    });
    [of_delv.collect(), of_unbound.collect()]
}

/// What delv says of an answer.
fn delv(zone: &SignedZone, name: &str, rtype: &str) -> String {
    let [anchor, _] = anchors(zone);
    let anchor = zone.server.directory.write("delv.anchor", &anchor).unwrap().display().to_string();
    let (port, root) = (zone.server.v4.port().to_string(), format!("+root={ORIGIN}"));
    let words = ["@127.0.0.1", "-p", &port, "-a", &anchor, &root, name, rtype];
    let output = Command::new("delv").args(words).output().unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// Unbound, which resolves by this server alone, and its port.
fn unbound(zone: &SignedZone) -> (Child, u16) {
    let (port, [_, anchor], own) = (quiet_port(), anchors(zone), zone.server.directory.path().display());
    let text = format!(
        "server:\n directory: \"{own}\"\n chroot: \"\"\n username: \"\"\n pidfile: \"\"\n use-syslog: no\n do-daemonize: no\n \
         interface: 127.0.0.1@{port}\n do-not-query-localhost: no\n num-threads: 1\n do-ip6: no\n local-zone: \"test.\" nodefault\n module-config: \"validator iterator\"\n\
         {anchor}remote-control:\n control-enable: no\nstub-zone:\n name: {ORIGIN}\n stub-addr: 127.0.0.1@{}\n",
        zone.server.v4.port()
    );
    let config = zone.server.directory.write("unbound.conf", &text).unwrap();
    let process = Child::spawn("unbound", Command::new("unbound").arg("-d").arg("-c").arg(config)).unwrap();
    let began = Instant::now();
    let answers = || {
        let words = ["@127.0.0.1", "-p", &port.to_string(), "+time=1", "+tries=1", "www.one.test"];
        let output = Command::new("dig").args(words).output().unwrap();
        String::from_utf8_lossy(&output.stdout).contains("status: NOERROR")
    };
    while !answers() {
        assert!(began.elapsed() < PATIENCE, "{}", process.output());
        thread::sleep(Duration::from_millis(100));
    }
    (process, port)
}

/// A question, what delv calls the answer, and the code that Unbound gives.
const QUESTIONS: [(&str, &str, &str); 13] = [
    ("www.one.test", "A", "; fully validated"),
    ("missing.one.test", "A", "; negative response, fully validated"),
    ("a.b.missing.one.test", "TXT", "; negative response, fully validated"),
    ("missing.www.one.test", "A", "; negative response, fully validated"),
    ("www.one.test", "AAAA", "; negative response, fully validated"),
    ("ent.one.test", "A", "; negative response, fully validated"),
    ("alias.one.test", "CNAME", "; fully validated"),
    ("x.wild.one.test", "A", "; fully validated"),
    ("x.y.wild.one.test", "AAAA", "; negative response, fully validated"),
    ("x.walias.one.test", "A", "; fully validated"),
    ("*.missing.one.test", "A", "; negative response, fully validated"),
    ("sub.one.test", "DS", "; negative response, fully validated"),
    ("missing.one.test", "NSEC", "; fully validated"),
];

/// Signs with each algorithm that there is.
#[test]
fn validators_accept_what_a_zone_with_compact_denial_says() {
    for algorithm in ["ECDSAP256SHA256", "ECDSAP384SHA384", "ED25519", "RSASHA256", "RSASHA512"] {
        let directory = directory("");
        let mut keygen = Command::new("dnssec-keygen");
        keygen.args(["-q", "-f", "KSK", "-a", algorithm, "-K"]).arg(directory.path());
        let bits: &[&str] = if algorithm.starts_with("RSA") { &["-b", "2048"] } else { &[] };
        assert!(keygen.args(bits).arg(ORIGIN).output().unwrap().status.success());
        let zone = SignedZone::start_by(Vec::new(), directory);
        zone.wait_for_keys("it is signed", |_| !zone.at_apex("DNSKEY").is_empty());
        let (_unbound, port) = unbound(&zone);
        for (name, rtype, expected) in QUESTIONS {
            let said = delv(&zone, name, rtype);
            assert!(said.contains(expected), "{algorithm} {name} {rtype}: {said}");
            let words =
                ["@127.0.0.1", "-p", &port.to_string(), "+dnssec", "+time=10", "+tries=1", name, rtype];
            let output = Command::new("dig").args(words).output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            let flags = said.lines().find(|line| line.starts_with(";; flags:")).unwrap_or_default();
            assert!(
                said.contains("status: NOERROR") && flags.contains(" ad"),
                "{algorithm} {name} {rtype}: {said}"
            );
        }
        // What is delegated without keys is no business of the zone: nobody answers there, and nothing is bogus.
        let referral = Dig::ask(zone.server.v4, Transport::Udp, &["+dnssec", "www.sub.one.test", "A"]);
        let denies =
            |line: &String| line.starts_with(r"sub.one.test. 5 IN NSEC sub\000.one.test. NS RRSIG NSEC");
        assert!(referral.section("AUTHORITY").iter().any(denies), "{:?}", referral.section("AUTHORITY"));
    }
}

#[test]
fn who_understands_compact_answers_gets_nxdomain_and_nobody_learns_names() {
    let zone = SignedZone::start_by(Vec::new(), directory(""));
    let ask = |words: &[&str]| Dig::ask(zone.server.v4, Transport::Udp, words);
    let denied = ask(&["+dnssec", "missing.one.test"]);
    let denials = denied.section("AUTHORITY");
    let denies = |line: &String| {
        line.starts_with(r"missing.one.test. 5 IN NSEC \000.missing.one.test. RRSIG NSEC TYPE128")
            || line.starts_with(r"missing.one.test. 5 IN NSEC \000.missing.one.test. RRSIG NSEC NXNAME")
    };
    assert_eq!((denied.status(), denials.len()), ("NOERROR", 4), "{denials:?}");
    assert!(denials.iter().any(denies), "{denials:?}");
    let code = |flags: [u8; 2]| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(zone.server.v4).unwrap();
        socket.send(&query(1, "missing.one.test", flags)).unwrap();
        let mut answer = [0; 4096];
        let len = socket.recv(&mut answer).unwrap();
        let of_opt = [answer[len - 4], answer[len - 3]];
        (answer[3] & 0xf, of_opt)
    };
    assert_eq!([DO, DO_AND_CO].map(code), [(0, DO), (3, DO_AND_CO)]);
    assert_eq!(ask(&["missing.one.test"]).status(), "NXDOMAIN");
    assert_eq!(ask(&["+dnssec", "TYPE128", "missing.one.test"]).status(), "FORMERR");
    // From name to name along the records: each leads to a name that is not there.
    let mut next = ORIGIN.to_owned();
    for _ in 0..5 {
        let record = ask(&["+dnssec", &next, "NSEC"]).section("ANSWER").remove(0);
        next = record.split(' ').nth(4).unwrap().to_owned();
        assert!(next.starts_with(r"\000.") && next.ends_with("one.test."), "{record}");
    }
    let axfr = Dig::ask(zone.server.v4, Transport::Tcp, &[ORIGIN, "AXFR"]);
    assert!(axfr.section("ANSWER").is_empty());
}

/// Flags of EDNS.
const DO: [u8; 2] = [0x80, 0];
const DO_AND_CO: [u8; 2] = [0xc0, 0];

/// A query for an address, with EDNS.
fn query(id: u16, name: &str, [high, low]: [u8; 2]) -> Vec<u8> {
    let mut query = message::query(id, name, message::A);
    query[11] = 1;
    query.extend_from_slice(&[0, 0, 41, 4, 208, 0, 0, high, low, 0, 0]);
    query
}

/// Asks for names that nobody has, 32 at a time, until told to stop. Counts answers with proof, and truncated ones.
fn flood(zone: &SignedZone, stop: &AtomicBool, counts: &[AtomicU64; 2]) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(zone.server.v4).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut buffer = [0; 4096];
    for round in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        for number in 0..32 {
            let query = query(number, &format!("x{round}-{number}.one.test"), DO);
            socket.send(&query).unwrap();
        }
        for _ in 0..32 {
            let Ok(len) = socket.recv(&mut buffer) else { break };
            let is_truncated = buffer[2] & 2 != 0;
            assert_eq!(buffer[..len][9], if is_truncated { 0 } else { 4 }, "all or nothing");
            counts[usize::from(is_truncated)].fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn a_flood_of_names_is_cut_off_and_others_are_answered() {
    let zone = SignedZone::start_by(Vec::new(), directory("[answers]\nonline-signing-percent = 1\n"));
    let (stop, counts) = (AtomicBool::new(false), [AtomicU64::new(0), AtomicU64::new(0)]);
    thread::scope(|scope| {
        scope.spawn(|| flood(&zone, &stop, &counts));
        for _ in 0..20 {
            let www = Dig::ask(zone.server.v4, Transport::Udp, &["+dnssec", "www.one.test"]);
            assert_eq!((www.status(), www.section("ANSWER").len()), ("NOERROR", 2));
        }
        // Who comes by a connection does not suffer from who forges addresses.
        let named = Dig::ask(zone.server.v4, Transport::Tcp, &["+dnssec", "by-tcp.one.test"]);
        assert_eq!((named.status(), named.section("AUTHORITY").len()), ("NOERROR", 4));
        stop.store(true, Ordering::Relaxed);
    });
    let [denied, truncated] = counts.map(AtomicU64::into_inner);
    assert!(denied > 0 && truncated > denied, "{denied} denied, {truncated} truncated");
    let counter = |name: &str| zone.server.counter(name);
    assert!(counter("dns_online_signatures") >= denied);
    assert!(counter("dns_online_signatures_over_budget") >= truncated);
}

/// The tags of the keys that have signed an answer's section.
fn tags(dig: &Dig, section: &str) -> BTreeSet<String> {
    let lines = dig.section(section);
    let signatures = lines.iter().map(|line| line.split(' ').collect::<Vec<_>>());
    signatures.filter(|words| words[3] == "RRSIG").map(|words| words[10].to_owned()).collect()
}

#[test]
fn denials_are_signed_by_the_key_that_signs_the_zone_while_keys_change() {
    let directory = directory("allow-update = [\"127.0.0.1\"]\n");
    for kind in [&["-f", "KSK"][..], &[]] {
        let mut keygen = Command::new("dnssec-keygen");
        keygen.args(["-q", "-a", "ECDSAP256SHA256", "-K"]).arg(directory.path()).args(kind).arg(ORIGIN);
        assert!(keygen.output().unwrap().status.success());
    }
    let zone = SignedZone::start_by(Vec::new(), directory);
    let ask = |name: &str| Dig::ask(zone.server.v4, Transport::Udp, &["+dnssec", name, "A"]);
    let check = |host: &str| {
        for name in ["missing.one.test", "x.wild.one.test", "ent.one.test"] {
            let said = delv(&zone, name, "A");
            assert!(said.contains("fully validated"), "{name}: {said}");
        }
        // A name that comes is not denied any more, and one that goes is.
        assert!(
            delv(&zone, &format!("{host}.one.test"), "A").contains("; negative response, fully validated")
        );
        assert_eq!(update(&zone, host), "");
        assert!(delv(&zone, &format!("{host}.one.test"), "A").contains("; fully validated"));
    };
    check("first");
    let first = tags(&ask("missing.one.test"), "AUTHORITY");
    assert_eq!(first.len(), 1);
    let rolled = command(&["dns", "key", "roll", ORIGIN, "--zsk", "--config", &zone.config]);
    assert!(rolled.status.success(), "{}", String::from_utf8_lossy(&rolled.stderr));
    zone.reload();
    zone.wait_until_seen();
    check("second");
    assert_eq!(tags(&ask("missing2.one.test"), "AUTHORITY"), first, "the new key waits for caches");
    zone.let_pass(2 * DAY);
    let began = Instant::now();
    while tags(&ask("missing.one.test"), "AUTHORITY") == first {
        assert!(began.elapsed() < PATIENCE, "{}", zone.server.process.output());
        thread::sleep(Duration::from_millis(50));
    }
    let soa = Dig::ask(zone.server.v4, Transport::Udp, &["+dnssec", ORIGIN, "SOA"]);
    let second = tags(&soa, "ANSWER");
    assert_eq!(tags(&ask("missing3.one.test"), "AUTHORITY"), second);
    assert_eq!(tags(&ask("x3.wild.one.test"), "ANSWER"), second);
    check("third");

    // To NSEC and back, without a moment in which a validator misses something.
    let config = std::fs::read_to_string(&zone.config).unwrap();
    for (from, to, status) in [("compact", "nsec", "NXDOMAIN"), ("nsec", "compact", "NOERROR")] {
        let text = std::fs::read_to_string(&zone.config).unwrap();
        std::fs::write(&zone.config, text.replace(&format!("\"{from}\""), &format!("\"{to}\""))).unwrap();
        zone.reload();
        let began = Instant::now();
        while ask("missing.one.test").status() != status {
            assert!(began.elapsed() < PATIENCE, "{}", zone.server.process.output());
            thread::sleep(Duration::from_millis(50));
        }
        assert!(delv(&zone, "missing.one.test", "A").contains("; negative response, fully validated"));
    }
    assert_eq!(std::fs::read_to_string(&zone.config).unwrap(), config);
    let zone = zone.restart();
    assert!(delv(&zone, "missing.one.test", "A").contains("; negative response, fully validated"));
}

#[test]
fn settings_that_cannot_be_together_are_errors() {
    for (options, error) in [
        ("denial = \"lies\"\n", "denial: \"lies\" is not nsec, nsec3 or compact"),
        (
            "denial = \"compact\"\nnsec3 = true\n",
            "denial = \"compact\" and nsec3 = true contradict each other",
        ),
        (
            "denial = \"compact\"\nkey-uri = \"pkcs11:token=a;object=b?module-path=/m&pin-source=file:/p\"\n",
            "denial = \"compact\" and key-uri do not go together",
        ),
        (
            "denial = \"compact\"\nallow-transfer = [\"127.0.0.1\"]\n",
            "allow-transfer has no use with denial = \"compact\"",
        ),
        ("denial = \"compact\"\nnotify = [\"127.0.0.1\"]\n", "notify has no use with denial = \"compact\""),
        (
            "denial = \"compact\"\n[answers]\nonline-signing-percent = 51\n",
            "answers.online-signing-percent: 51 is out of range, expected 1 to 50",
        ),
    ] {
        let directory = SignedZone::directory(options);
        let config = directory.path().join("dns.toml").display().to_string();
        let output = command(&["dns", "check", "--config", &config]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(error), "{options}: {said}");
    }
    let directory = Directory::new().unwrap();
    directory.write("one.test.zone", TEXT).unwrap();
    let text = "[[zone]]\nfile = \"one.test.zone\"\ndenial = \"compact\"\n";
    let config = directory.write("dns.toml", text).unwrap().display().to_string();
    let said = String::from_utf8(command(&["dns", "check", "--config", &config]).stderr).unwrap();
    assert!(said.contains("denial and nsec3 have no use without dnssec = true"), "{said}");
}
