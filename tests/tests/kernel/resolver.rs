//! `sidestep dns resolve` by itself on loopback, where it has nobody to ask: what it answers on its own, and how it starts and ends.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use lab::{Child, Directory, Zone, sidestep_binary};
use rustix::process::Signal;
use tests::{Dig, Serving, Transport, command};

const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Resolver {
    process: Child,
    address: SocketAddr,
    pub(crate) directory: Directory,
}

/// A resolver at a free port, whose root is at an address of loopback where nobody listens.
pub(crate) fn start(config: &str) -> Resolver {
    start_at("127.0.0.1:0", config)
}

fn start_at(listen: &str, config: &str) -> Resolver {
    start_in(Directory::new().unwrap(), listen, config)
}

/// The same with the files that an earlier one may have left.
fn start_in(directory: Directory, listen: &str, config: &str) -> Resolver {
    directory.write("root.hints", ". 3600 NS a.root.\na.root. 3600 A 127.0.0.9\n").unwrap();
    let text =
        format!("root-hints = \"root.hints\"\nquery-loopback = true\n{config}\n[dnssec]\nenabled = false\n");
    let config = directory.write("resolver.toml", &text).unwrap().display().to_string();
    let control = directory.path().join("control.sock").display().to_string();
    let mut command = Command::new(sidestep_binary());
    command.args(["dns", "resolve", "--listen", listen, "--config", &config, "--control", &control]);
    if rustix::process::geteuid().is_root() {
        command.args(["--user", "root"]); // The files of a test are root's.
    }
    let mut process = Child::spawn("sidestep", &mut command).unwrap();
    let ready = process.wait_for_line("ready: resolving on", PATIENCE).unwrap();
    let address = ready.split_whitespace().find_map(|word| word.parse().ok()).unwrap();
    Resolver { process, address, directory }
}

#[test]
fn what_needs_nobody_is_answered_over_udp_and_tcp() {
    let resolver = start("");
    for transport in [Transport::Udp, Transport::Tcp] {
        let localhost = Dig::ask(resolver.address, transport, &["localhost", "A"]);
        assert_eq!(localhost.section("ANSWER"), ["localhost. 10800 IN A 127.0.0.1"], "{}", localhost.text);
        let private = Dig::ask(resolver.address, transport, &["-x", "10.1.2.3"]);
        assert_eq!(private.status(), "NXDOMAIN", "{}", private.text);
        let any = Dig::ask(resolver.address, transport, &["example.com", "ANY"]);
        assert_eq!(any.section("ANSWER"), ["example.com. 3600 IN HINFO \"RFC8482\" \"\""], "{}", any.text);
    }
}

/// dig takes no answer from another address than the one that it asked.
#[test]
fn a_resolver_at_all_addresses_answers_from_the_one_that_was_asked() {
    let resolver = start_at("0.0.0.0:0", "");
    for host in [1, 2, 99] {
        let asked = SocketAddr::from(([127, 0, 0, host], resolver.address.port()));
        for transport in [Transport::Udp, Transport::Tcp] {
            let localhost = Dig::ask(asked, transport, &["localhost", "A"]);
            assert_eq!(localhost.status(), "NOERROR", "{}", localhost.text);
        }
    }
}

#[test]
fn a_client_gets_a_cookie_that_another_resolver_with_the_same_secret_takes() {
    let secrets = Directory::new().unwrap();
    let file = secrets.write("secrets", "e5e973e5a6b2a43f48e7dc849e37bfcf\n").unwrap().display().to_string();
    let config = format!("[cookies]\nrequire = true\nsecrets-file = \"{file}\"");
    let [one, other] = [start(&config), start(&config)];
    let ask = |resolver: &Resolver, option: &str| {
        Dig::ask(resolver.address, Transport::Udp, &["+nobadcookie", option, "localhost", "A"])
    };
    let first = ask(&one, "+cookie=0102030405060708");
    assert_eq!(first.status(), "BADCOOKIE", "{}", first.text);
    let line = first.text.lines().find_map(|line| line.strip_prefix("; COOKIE: ")).unwrap();
    let (cookie, judgement) = line.split_once(' ').unwrap();
    assert_eq!((cookie.len(), judgement), (48, "(good)"));
    for resolver in [&one, &other] {
        let answer = ask(resolver, &format!("+cookie={cookie}"));
        assert_eq!(answer.status(), "NOERROR", "{}", answer.text);
    }
    let without = ask(&one, "+nocookie");
    assert_eq!(without.status(), "NOERROR", "{}", without.text);
    let malformed = ask(&one, "+cookie=01020304050607");
    assert_eq!(malformed.status(), "FORMERR", "{}", malformed.text);
}

#[test]
fn beyond_its_rate_a_client_is_truncated_over_udp_and_refused_over_tcp() {
    let limits = "[rate]\nper-address = 1\nslip = 1\nburst-ms = 10000\nexempt = [\"192.0.2.1\"]";
    let resolver = start(limits);
    let ask = |transport, client: &str| {
        Dig::ask(resolver.address, transport, &["+nocookie", "-b", client, "localhost", "A"])
    };
    let answers: Vec<Dig> = (0..30).map(|_| ask(Transport::Udp, "127.0.0.1")).collect();
    let truncated = answers.iter().find(|answer| answer.has_flag("tc")).expect("there were more than ten");
    assert!(truncated.section("ANSWER").is_empty(), "{}", truncated.text);
    assert_eq!(ask(Transport::Udp, "127.0.0.2").status(), "NOERROR");
    let over_tcp: Vec<Dig> = (0..30).map(|_| ask(Transport::Tcp, "127.0.0.3")).collect();
    let refused =
        over_tcp.iter().find(|answer| answer.status() == "REFUSED").expect("there were more than ten");
    assert!(refused.text.contains("EDE: 18"), "{}", refused.text);
}

#[test]
fn a_root_that_is_not_there_is_a_failure_with_its_reason() {
    let resolver = start("");
    let failed = Dig::ask(resolver.address, Transport::Udp, &["www.example.com", "A"]);
    assert_eq!(failed.status(), "SERVFAIL", "{}", failed.text);
    assert!(failed.text.contains("EDE: 22"), "{}", failed.text);
}

#[test]
fn malformed_messages_get_formerr_or_silence_and_never_an_end() {
    let resolver = start("");
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let ask = |octets: &[u8]| {
        socket.send_to(octets, resolver.address).unwrap();
        let mut answer = [0; 512];
        socket.recv(&mut answer).ok().map(|_| answer[3] & 0xf)
    };
    assert_eq!(ask(b"\0\x01\x01\0\0\x01\0\0\0\0\0\0"), Some(1));
    assert_eq!(ask(b"\0\x01\x81\0\0\x01\0\0\0\0\0\0"), None);
    assert_eq!(ask(b"?"), None);
    let mut stream = TcpStream::connect(resolver.address).unwrap();
    stream.write_all(b"\0\0").unwrap();
    assert_eq!(stream.read(&mut [0; 16]).unwrap(), 0, "an empty message ends the connection");
    let localhost = Dig::ask(resolver.address, Transport::Udp, &["localhost", "A"]);
    assert_eq!(localhost.status(), "NOERROR", "{}", localhost.text);
}

#[test]
fn a_stop_ends_well_and_a_wrong_configuration_never_starts() {
    let mut resolver = start("");
    resolver.process.signal(Signal::TERM);
    assert!(resolver.process.wait(PATIENCE).unwrap().success());

    let refused = command(&["dns", "resolve", "--listen", "0.0.0"]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains("listen: \"0.0.0\" is not an address"), "{text}");
    let refused = command(&["dns", "resolve", "--allow", "10.0.0.0/40"]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains("allow: \"10.0.0.0/40\" is not a network"), "{text}");
}

#[test]
fn each_answer_has_a_line_in_the_query_log() {
    let authority = Serving::start(&Zone::sample().file, &[]);
    let config = format!(
        "query-log = \"queries.json\"\n[[stub]]\nzone = \"example.com.\"\nservers = [\"{}\"]\n",
        authority.v4
    );
    let mut resolver = start(&config);
    let directory = resolver.directory.path().to_owned();
    let lines = |file: &str| {
        let text = std::fs::read_to_string(directory.join(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let address = resolver.address;
    let ask = |name: &str, transport| Dig::ask(address, transport, &[name, "A"]);
    ask("mail.example.com", Transport::Udp);
    ask("nobody.example.com", Transport::Tcp);
    until(|| lines("queries.json").len() == 2);
    let [first, second] = lines("queries.json").try_into().unwrap();
    for said in [
        r#""client":"127.0.0.1:"#,
        r#""via":"udp""#,
        r#""name":"mail.example.com.""#,
        r#""type":"A""#,
        r#""rcode":"NOERROR""#,
        r#""flags":["qr","rd","ra"]"#,
        r#""answers":1"#,
        r#""ede":[]"#,
    ] {
        assert!(first.contains(said), "{said}: {first}");
    }
    assert!(second.contains(r#""via":"tcp""#) && second.contains("NXDOMAIN"), "{second}");

    // Who rotates the file gives it another name, and says so.
    std::fs::rename(directory.join("queries.json"), directory.join("old")).unwrap();
    resolver.process.signal(Signal::HUP);
    until(|| directory.join("queries.json").exists());
    drop(authority);
    ask("ns1.example.com", Transport::Udp);
    resolver.process.signal(Signal::TERM);
    assert!(resolver.process.wait(PATIENCE).unwrap().success(), "{}", resolver.process.output());
    let failed = lines("queries.json").join(" ");
    assert!(failed.contains("SERVFAIL") && failed.contains(r#""ede":[2"#), "{failed}");
    assert_eq!(lines("old").len(), 2);
}

fn until(holds: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "it does not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_query_log_that_cannot_be_written_is_an_error_at_the_start() {
    let directory = Directory::new().unwrap();
    let config = directory.write("resolver.toml", "query-log = \"nowhere/queries.json\"\n").unwrap();
    let config = config.display().to_string();
    let refused = command(&["dns", "resolve", "--listen", "127.0.0.1:0", "--config", &config]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains("query-log: ") && text.contains("nowhere"), "{text}");
}

#[test]
fn the_cache_outlives_a_restart_and_forgets_what_it_is_told_to() {
    let authority = Serving::start(&Zone::sample().file, &[]);
    let config = format!(
        "[[stub]]\nzone = \"example.com.\"\nservers = [\"{}\"]\n[cache]\nfile = \"cache\"\n",
        authority.v4
    );
    let mut resolver = start(&config);
    let ask = |resolver: &Resolver, name: &str| Dig::ask(resolver.address, Transport::Udp, &[name, "A"]);
    for name in ["mail.example.com", "ns1.example.com"] {
        assert_eq!(ask(&resolver, name).section("ANSWER").len(), 1, "{name}");
    }
    assert_eq!(ask(&resolver, "nobody.example.com").status(), "NXDOMAIN");
    drop(authority);
    resolver.process.signal(Signal::TERM);
    assert!(resolver.process.wait(PATIENCE).unwrap().success(), "{}", resolver.process.output());

    let mut resolver = start_in(resolver.directory, "127.0.0.1:0", &config);
    let mail = ask(&resolver, "mail.example.com");
    assert_eq!(mail.section("ANSWER").len(), 1, "{}", mail.text);
    assert!(!mail.text.contains("EDE"), "{}", mail.text);
    assert_eq!(ask(&resolver, "nobody.example.com").status(), "NXDOMAIN");

    let control = resolver.directory.path().join("control.sock").display().to_string();
    let flush = |words: &[&str]| {
        let output = command(&[&["dns", "flush", "--control", &control], words].concat());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(flush(&["mail.example.com"]), "1 entries dropped\n");
    assert_eq!(ask(&resolver, "mail.example.com").status(), "SERVFAIL");
    assert_eq!(ask(&resolver, "ns1.example.com").section("ANSWER").len(), 1);
    let below = flush(&["EXAMPLE.com", "--below"]);
    assert!(!below.starts_with("0 "), "{below}");
    assert_eq!(ask(&resolver, "ns1.example.com").status(), "SERVFAIL");
    flush(&["--all"]);
    let wrong = command(&["dns", "flush", "--control", &control, "a..b"]);
    assert_eq!(wrong.status.code(), Some(1), "{wrong:?}");
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("a..b: "), "{wrong:?}");

    // A damaged file is left aside.
    resolver.process.signal(Signal::TERM);
    resolver.process.wait(PATIENCE).unwrap();
    resolver.directory.write("cache", "no cache").unwrap();
    let damaged = start_in(resolver.directory, "127.0.0.1:0", &config);
    assert!(damaged.process.output().contains("the cache starts empty"), "{}", damaged.process.output());
}
