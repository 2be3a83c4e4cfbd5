//! Addresses that are given by weight and health, in signed zones too, as clients see them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use lab::Directory;
use rustix::process::Signal;
use tests::{Dig, Serving, Transport, command};

const PATIENCE: Duration = Duration::from_secs(60);

fn start(files: &[(&str, &str)]) -> (Serving, String) {
    let directory = Directory::new().unwrap();
    files.iter().for_each(|(name, text)| drop(directory.write(name, text).unwrap()));
    let config = directory.path().join("dns.toml").display().to_string();
    (Serving::start_in(directory, &["--config", &config], &[]), config)
}

/// The data of the answer to a question, in order.
fn ask(server: SocketAddr, question: &[&str]) -> Vec<String> {
    let dig = Dig::ask(server, Transport::Udp, &[question, &["+norecurse"]].concat());
    let data = dig.section("ANSWER").into_iter().map(|line| line.rsplit_once(' ').unwrap().1.to_owned());
    let mut data: Vec<String> = data.collect();
    data.sort();
    data
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A port that is free at all of these hosts, and listeners there.
fn listen(hosts: &[u8]) -> (u16, Vec<TcpListener>) {
    let bind = |host: u8, port| TcpListener::bind((Ipv4Addr::new(127, 0, 0, host), port));
    (0..100)
        .find_map(|_| {
            let first = bind(hosts[0], 0).ok()?;
            let port = first.local_addr().ok()?.port();
            let others =
                hosts[1..].iter().map(|host| bind(*host, port)).collect::<Result<Vec<_>, _>>().ok()?;
            Some((port, std::iter::once(first).chain(others).collect()))
        })
        .expect("some port is free")
}

const POOL: &str = "[[pool]]\nname = \"web\"\nnames = [\"www.example.com\"]\n";
const FAST: &str = "interval-ms = 100, timeout-ms = 100, rise = 2, fall = 2";

#[test]
fn a_host_that_takes_no_connection_leaves_its_set_until_it_takes_some() {
    let (port, mut listeners) = listen(&[2, 3]);
    let config = format!(
        "[[zone]]\nfile = \"example.com.zone\"\nlines = {{ local = \"local.zone\" }}\n\
         [[line]]\nname = \"local\"\nprefixes = [\"::1\"]\n{POOL}check = {{ tcp = {port}, {FAST} }}\n"
    );
    let zone = "@ 60 SOA ns h 1 2 3 4 5\n@ NS ns\n@ MX 5 www\nns A 192.0.2.1\nalias CNAME www\n\
        www A 127.0.0.1\nwww A 127.0.0.2\nwww A 127.0.0.3\n";
    let files = [
        ("example.com.zone", zone),
        ("local.zone", "www A 127.0.0.4\nwww A 127.0.0.2\n"),
        ("dns.toml", &config),
    ];
    let (server, config) = start(&files);
    let www = |at| ask(at, &["www.example.com", "A"]);
    wait_for("only two listen", || www(server.v4) == ["127.0.0.2", "127.0.0.3"]);
    wait_for("one of the line's listens", || www(server.v6) == ["127.0.0.2"]);
    let alias = || ask(server.v4, &["alias.example.com", "A"]);
    assert_eq!(alias(), ["127.0.0.2", "127.0.0.3", "www.example.com."]);
    let mx = Dig::ask(server.v4, Transport::Udp, &["example.com", "MX"]);
    assert_eq!(mx.section("ADDITIONAL").len(), 2, "{}", mx.text);

    let second = listeners.remove(0);
    drop(second);
    wait_for("one listens", || www(server.v4) == ["127.0.0.3"]);
    wait_for("the line's are all down: the zone's", || www(server.v6) == ["127.0.0.3"]);
    assert_eq!(alias(), ["127.0.0.3", "www.example.com."]);
    let control = server.directory.path().join("control.sock").display().to_string();
    let said = |words: &[&str]| {
        let output = command(&[words, &["--control", &control]].concat());
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    let zones = said(&["dns", "zones"]);
    assert!(zones.contains("1 of 4 addresses up"), "{zones}");
    let explained = said(&["dns", "explain", "www.example.com", "--from", "192.0.2.9"]);
    let tcp = format!("tcp {port}: connection refused");
    for part in ["pool     web: all that are up", "127.0.0.2: down since", "127.0.0.3: up since", &tcp] {
        assert!(explained.contains(part), "{part}: {explained}");
    }
    assert_eq!(server.counter("pool_up{pool=\"web\",address=\"127.0.0.2\"}"), 0);
    assert_eq!(server.counter("pool_up{pool=\"web\",address=\"127.0.0.3\"}"), 1);
    assert!(server.counter("pool_checks_failed{pool=\"web\",address=\"127.0.0.2\"}") > 1);

    drop(listeners);
    wait_for("nobody listens: all", || www(server.v4).len() == 3);
    wait_for("all of the line", || www(server.v6) == ["127.0.0.2", "127.0.0.4"]);
    let mut again = None;
    wait_for("the port is free, which another may have chosen meanwhile", || {
        again = TcpListener::bind((Ipv4Addr::new(127, 0, 0, 1), port)).ok();
        again.is_some()
    });
    wait_for("one listens again", || www(server.v4) == ["127.0.0.1"]);
    // A transfer has what the zone has.
    drop(again);
    let dump = said(&["dns", "zone", "dump", "example.com"]);
    assert_eq!(dump.matches("127.0.0.").count(), 3, "{dump}");
    // Without the pool all is as the files say.
    let text = std::fs::read_to_string(&config).unwrap();
    server.directory.write("dns.toml", &text[..text.find("[[pool]]").unwrap()]).unwrap();
    server.process.signal(Signal::HUP);
    wait_for("no pool", || www(server.v4).len() == 3 && www(server.v6) == ["127.0.0.2", "127.0.0.4"]);
    wait_for("no checks", || server.counter("pool_checks{pool=\"web\",address=\"127.0.0.1\"}") == 0);
}

/// Nobody connects to a multicast address: the kernel refuses at once.
#[test]
fn checks_that_cannot_be_carried_out_are_counted_apart_and_change_nothing() {
    let config = format!("[[zone]]\nfile = \"example.com.zone\"\n{POOL}check = {{ tcp = 80, {FAST} }}\n");
    let zone = "@ 60 SOA ns h 1 2 3 4 5\n@ NS ns\nns A 192.0.2.1\nwww A 224.0.0.1\n";
    let (server, _) = start(&[("example.com.zone", zone), ("dns.toml", &config)]);
    let count = |what: &str| server.counter(&format!("pool_{what}{{pool=\"web\",address=\"224.0.0.1\"}}"));
    wait_for("it is tried", || count("checks_impossible") > 3);
    assert_eq!(["up", "checks", "checks_failed"].map(count), [1, 0, 0]);
    let control = server.directory.path().join("control.sock").display().to_string();
    let words = ["dns", "explain", "www.example.com", "--from", "192.0.2.9", "--control", &control];
    let explained = String::from_utf8(command(&words).stdout).unwrap();
    assert!(explained.contains("cannot be checked: network is unreachable"), "{explained}");
}

#[test]
fn a_name_that_a_wildcard_answers_for_has_the_pool_of_the_wildcard() {
    let config = "[[zone]]\nfile = \"example.com.zone\"\n[[pool]]\nname = \"web\"\nnames = [\"*.cdn.example.com\"]\nanswers = 1\n";
    let zone = "@ 60 SOA ns h 1 2 3 4 5\n@ NS ns\nns A 192.0.2.1\n*.cdn A 192.0.2.2\n*.cdn A 192.0.2.3\n";
    let (server, _) = start(&[("example.com.zone", zone), ("dns.toml", config)]);
    let control = server.directory.path().join("control.sock").display().to_string();
    let words = ["dns", "explain", "a.cdn.example.com", "--from", "192.0.2.9", "--control", &control];
    let explained = String::from_utf8(command(&words).stdout).unwrap();
    assert!(explained.contains("pool     web: 1 of its addresses in an answer"), "{explained}");
}

/// Answers each request with the status that is in `status`.
fn serve_http(listener: TcpListener, status: Arc<AtomicU16>) {
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 1024];
            let count = stream.read(&mut request).unwrap_or(0);
            let is_ours = request[..count].starts_with(b"GET /health?x=1 HTTP/1.1\r\nHost: web.test\r\n");
            let status = if is_ours { status.load(Ordering::Relaxed) } else { 400 };
            let _ = write!(stream, "HTTP/1.1 {status} Because\r\nContent-Length: 0\r\n\r\n");
        }
    });
}

#[test]
fn a_host_is_up_while_its_pages_have_the_status_that_is_expected() {
    let (port, mut listeners) = listen(&[2, 3, 4]);
    let status = [200, 204, 200].map(|status| Arc::new(AtomicU16::new(status)));
    let silent = listeners.pop().unwrap(); // It takes connections, and says nothing.
    listeners
        .into_iter()
        .zip(&status)
        .for_each(|(listener, status)| serve_http(listener, Arc::clone(status)));
    let config = format!(
        "[[zone]]\nfile = \"example.com.zone\"\n{POOL}\
         check = {{ http = \"/health?x=1\", host = \"web.test\", port = {port}, status = [200, 204], {FAST} }}\n"
    );
    let zone = "@ 60 SOA ns h 1 2 3 4 5\n@ NS ns\nns A 192.0.2.1\nwww A 127.0.0.2\nwww A 127.0.0.3\nwww A 127.0.0.4\n";
    let (server, _) = start(&[("example.com.zone", zone), ("dns.toml", &config)]);
    let www = || ask(server.v4, &["www.example.com", "A"]);
    wait_for("the silent one is down", || www() == ["127.0.0.2", "127.0.0.3"]);
    status[1].store(503, Ordering::Relaxed);
    wait_for("an error", || www() == ["127.0.0.2"]);
    status[1].store(200, Ordering::Relaxed);
    wait_for("no error any more", || www() == ["127.0.0.2", "127.0.0.3"]);
    drop(silent);
}

/// How often each address of 127.0.0.0/24 is the answer to the same question.
fn tally(server: SocketAddr, count: usize) -> BTreeMap<u8, usize> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(server).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let query = b"\x12\x34\0\0\0\x01\0\0\0\0\0\0\x03www\x07example\x03com\0\0\x01\0\x01";
    let mut tally = BTreeMap::new();
    for _ in 0..count {
        socket.send(query).unwrap();
        let mut answer = [0; 512];
        let len = socket.recv(&mut answer).unwrap();
        assert_eq!(answer[7], 1, "one address");
        *tally.entry(answer[len - 1]).or_default() += 1;
    }
    tally
}

#[test]
fn addresses_are_given_as_often_as_their_weights_say() {
    let config = format!(
        "[[zone]]\nfile = \"example.com.zone\"\n{POOL}weights = {{ \"127.0.0.1\" = 6, \"127.0.0.2\" = 3, \"127.0.0.4\" = 0 }}\n"
    );
    let zone = "@ 60 SOA ns h 1 2 3 4 5\n@ NS ns\nns A 192.0.2.1\nalias CNAME www\n*.wild CNAME www\n\
        www A 127.0.0.1\nwww A 127.0.0.2\nwww A 127.0.0.3\nwww A 127.0.0.4\n";
    let (server, _) = start(&[("example.com.zone", zone), ("dns.toml", &config)]);
    let tally = tally(server.v4, 4000);
    // Of 4000 draws, within five times the deviation that chance has.
    for (host, expected) in [(1, 2400_i64), (2, 1200), (3, 400)] {
        let count = tally.get(&host).copied().unwrap_or(0) as i64;
        assert!((count - expected).abs() < 160, "{host}: {tally:?}");
    }
    assert_eq!(tally.len(), 3, "one has no weight: {tally:?}");
    for name in ["alias.example.com", "a.wild.example.com"] {
        assert_eq!(ask(server.v4, &[name, "A"]).len(), 2, "the alias, and an address");
    }
}

#[test]
fn a_pool_without_any_host_that_is_up_is_an_error_in_the_log() {
    let config = "[[zone]]\nfile = \"example.com.zone\"\n[[pool]]\nname = \"web\"\nnames = [\"www.example.com\"]\n\
        check = { tcp = 9, interval-ms = 100, timeout-ms = 100, fall = 1 }\n";
    let zone = "@ 3600 SOA ns h 1 2 3 4 5\n@ NS ns\nns A 192.0.2.1\nwww A 127.0.0.2\nwww A 127.0.0.3\n";
    let (mut server, config) = start(&[("example.com.zone", zone), ("dns.toml", config)]);
    server
        .process
        .wait_for_line(
            "pool web: none of its addresses is up, so all of them are given",
            Duration::from_secs(60),
        )
        .unwrap();
    let output = command(&["dns", "check", "--config", &config]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("pool web: warning: the addresses of www.example.com. have the TTL 3600"),
        "{text}"
    );
}

#[test]
fn what_is_wrong_with_pools_is_said() {
    let directory = Directory::new().unwrap();
    directory.write("example.com.zone", "@ 60 SOA ns h 1 2 3 4 5\n@ NS ns\nns A 192.0.2.1\n").unwrap();
    let check = |pool: &str| {
        let text = format!("[[zone]]\nfile = \"example.com.zone\"\n[[pool]]\nname = \"web\"\n{pool}");
        let config = directory.write("dns.toml", &text).unwrap().display().to_string();
        let output = command(&["dns", "check", "--config", &config]);
        (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    for (pool, good, expected) in [
        (
            "names = [\"www.example.com\"]\nanswers = 1\n",
            false,
            "pool web: error: www.example.com. has no A or AAAA records in any zone",
        ),
        (
            "names = [\"ns.example.com\"]\nweights = { \"192.0.2.7\" = 1 }\n",
            true,
            "pool web: warning: weights: 192.0.2.7 is not an address",
        ),
        (
            "names = [\"ns.example.com\"]\ncheck = { tcp = 80, fall = 0 }\n",
            false,
            "check.fall: 0 is out of range, expected 1 to 100",
        ),
        ("names = [\"ns.example.com\"]\ncheck = { tcp = 80, rises = 1 }\n", false, "unknown field `rises`"),
    ] {
        let (is_good, text) = check(pool);
        assert!(is_good == good && text.contains(expected), "{pool}: {text}");
    }
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ping_group_range").unwrap();
    let may_ping = range.split_whitespace().map(|bound| bound.parse::<u64>().unwrap()).collect::<Vec<_>>();
    let (is_good, text) = check("names = [\"ns.example.com\"]\ncheck = { ping = true }\n");
    if may_ping[0] > may_ping[1] {
        assert!(
            !is_good && text.contains("may not ping: have the sysctl net.ipv4.ping_group_range include it"),
            "{text}"
        );
    }
}

/// What BIND's validator says of an answer from a server of a zone that it trusts by `anchor`.
fn validate(at: SocketAddr, anchor: &str, question: &[&str]) -> String {
    let mut delv = Command::new("delv");
    delv.args([&format!("@{}", at.ip()), "-p", &at.port().to_string(), "-a", anchor, "+root=example.com"]);
    let output = delv.args(question).output().unwrap();
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

fn signed_by_lines_and_weights(more: &str) {
    let config = format!(
        "[[zone]]\nfile = \"example.com.zone\"\ndnssec = true\nallow-update = [\"127.0.0.0/8\", \"::1\"]\n{more}\
         lines = {{ local = \"local.zone\" }}\n[[line]]\nname = \"local\"\nprefixes = [\"::1\"]\n\
         [[pool]]\nname = \"web\"\nnames = [\"pool.example.com\"]\nweights = {{ \"192.0.2.11\" = 1, \"192.0.2.12\" = 1 }}\n"
    );
    let zone = "$TTL 300\n@ SOA ns h 1 3600 600 86400 60\n@ NS ns\n@ MX 5 www\nns A 192.0.2.53\nwww A 192.0.2.1\nwww TXT plain\n\
        alias CNAME www\n*.wild A 192.0.2.77\npool A 192.0.2.11\npool A 192.0.2.12\npool A 192.0.2.13\n";
    let line = "www 30 A 198.51.100.1\nwww A 198.51.100.2\n*.wild A 198.51.100.77\npool A 198.51.100.11\n";
    let files = [("example.com.zone", zone), ("local.zone", line), ("dns.toml", &config)];
    let (server, config) = start(&files);
    let keys = Dig::ask(server.v4, Transport::Tcp, &["example.com", "DNSKEY"]);
    let keys = keys.section("ANSWER");
    let words: Vec<&str> = keys[0].split_whitespace().collect();
    let anchor = format!(
        "trust-anchors {{ example.com. static-key {} {} {} \"{}\"; }};\n",
        words[4],
        words[5],
        words[6],
        words[7..].concat()
    );
    let anchor = server.directory.write("anchor", &anchor).unwrap().display().to_string();
    let assert_valid = |at, question: &[&str], expected: &str| {
        let text = validate(at, &anchor, question);
        assert!(text.contains("fully validated") && text.contains(expected), "{at} {question:?}: {text}");
    };
    for (at, own) in
        [(server.v4, ["192.0.2.1", "192.0.2.77"]), (server.v6, ["198.51.100.1", "198.51.100.77"])]
    {
        for (question, expected) in [
            (["www.example.com", "A"], own[0]),
            (["alias.example.com", "A"], own[0]),
            (["a.wild.example.com", "A"], own[1]),
            (["www.example.com", "TXT"], "plain"),
            (["www.example.com", "AAAA"], "ncache nxrrset"),
            (["pool.example.com", "AAAA"], "ncache nxrrset"),
            (["none.example.com", "A"], "ncache nxdomain"),
            (["a.wild.example.com", "AAAA"], "ncache nxrrset"),
        ] {
            assert_valid(at, &question, expected);
        }
    }
    let pool = || ask(server.v4, &["pool.example.com", "A"]).concat();
    let mut seen = BTreeSet::new();
    // One of the addresses, whichever.
    (0..6).for_each(|_| assert_valid(server.v4, &["pool.example.com", "A"], "192.0.2.1"));
    seen.extend((0..100).map(|_| pool()));
    assert_eq!(seen.len(), 3, "{seen:?}");
    for line in ["update add www.example.com 300 A 192.0.2.2", "update add pool.example.com 300 A 192.0.2.14"]
    {
        let text =
            format!("server {} {}\nzone example.com\n{line}\nsend\n", server.v4.ip(), server.v4.port());
        let script = server.directory.write("update", &text).unwrap();
        let output = Command::new("nsupdate").arg(script).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_valid(server.v4, &["www.example.com", "A"], "192.0.2.2");
    assert_valid(server.v6, &["www.example.com", "A"], "198.51.100.2");
    assert_valid(server.v6, &["pool.example.com", "A"], "198.51.100.11");
    seen.extend((0..200).map(|_| pool()));
    assert!(seen.contains("192.0.2.14"), "{seen:?}");
    assert_valid(server.v4, &["pool.example.com", "A"], "192.0.2.1");
    // Another file of the line, and a new key.
    server.directory.write("local.zone", "www A 198.51.100.3\n").unwrap();
    let rolled = command(&["dns", "key", "roll", "example.com", "--config", &config]);
    assert!(rolled.status.success(), "{}", String::from_utf8_lossy(&rolled.stderr));
    server.process.signal(Signal::HUP);
    wait_for("the other file", || ask(server.v6, &["www.example.com", "A"]) == ["198.51.100.3"]);
    assert_valid(server.v6, &["www.example.com", "A"], "198.51.100.3");
    assert_valid(server.v6, &["a.wild.example.com", "A"], "192.0.2.77");
    let signatures = |at| {
        let dig = Dig::ask(at, Transport::Tcp, &["www.example.com", "A", "+dnssec"]);
        dig.section("ANSWER").iter().filter(|line| line.contains("RRSIG")).count()
    };
    wait_for("both keys sign", || signatures(server.v4) == 2 && signatures(server.v6) == 2);
    // What other lines could not deny.
    server.directory.write("local.zone", "ns AAAA 2001:db8::1\n").unwrap();
    let output = command(&["dns", "check", "--config", &config]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!output.status.success() && text.contains("so it could not deny them there"), "{text}");
}

#[test]
fn lines_and_weights_of_a_signed_zone_are_signed_and_stay_so() {
    signed_by_lines_and_weights("");
}

#[test]
fn so_are_those_of_a_zone_with_nsec3() {
    signed_by_lines_and_weights("nsec3 = true\n");
}
