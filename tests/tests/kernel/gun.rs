//! `sidestep gun` over connections of the loopback interface: DNS over TCP, TLS, HTTPS and QUIC, HTTP/3, and what Ctrl-C does.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use lab::{Directory, Zone, sidestep_binary};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tests::{Serving, command, make_certificate};

/// Nothing here takes longer, on a machine that does other work too.
const PATIENCE: Duration = Duration::from_secs(60);
/// Questions of a load.
const QUESTIONS: u64 = 200;

/// A server, and its addresses for TLS, HTTPS and QUIC.
fn serve() -> (Serving, [SocketAddr; 3]) {
    let directory = Directory::new().unwrap();
    make_certificate(&directory, "ns.test");
    let zone = Zone::sample().file.display().to_string();
    let any = "[\"127.0.0.1:0\"]";
    let config = format!(
        "[[zone]]\nfile = \"{zone}\"\n[encrypted]\ncertificate = \"certificate.pem\"\nkey = \"key.pem\"\n\
         tls = {any}\nhttps = {any}\nquic = {any}\n"
    );
    let config = directory.write("dns.toml", &config).unwrap().display().to_string();
    let serving = Serving::start_in(directory, &["--config", &config], &[]);
    let addresses = ["tls://", "https://", "quic://"].map(|protocol| {
        let address = serving.ready.split_whitespace().find_map(|word| word.strip_prefix(protocol));
        address.unwrap().trim_end_matches(',').parse().unwrap()
    });
    (serving, addresses)
}

/// Sends a load of DNS over connections, of which each question is answered by this code.
fn assert_all_answered(server: SocketAddr, transport: &str, name: &str, code: &str, more: &[&str]) {
    let (server, rate) = (server.to_string(), QUESTIONS.to_string());
    let words = ["gun", "dns", &server, "--transport", transport, "--name", name, "--rate", &rate];
    let fixed = ["--ports", "4", "--pipeline", "16", "--duration", "1s", "--timeout", "60s", "--json", "-"];
    let output = command(&[&words[..], &fixed, more].concat());
    assert!(output.status.success(), "{transport}: {}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let load = &report["loads"][0];
    assert_eq!(load["counts"]["sent"], QUESTIONS, "{transport} {name}: {report}");
    assert_eq!(load["rcodes"][code], QUESTIONS, "{transport} {name}: {report}");
    let counts = ["mismatched", "unexpected", "malformed", "unsent"];
    assert!(counts.iter().all(|count| load["counts"][count] == 0), "{transport} {name}: {report}");
    assert_eq!((load["lost"].as_u64(), &load["faults"]), (Some(0), &serde_json::json!({})), "{report}");
    for count in ["sent", "answered"] {
        assert_eq!(sum_of_seconds(load, count), QUESTIONS, "{transport} {name}: {count}: {report}");
    }
}

/// The last second is one of them.
fn sum_of_seconds(load: &Value, count: &str) -> u64 {
    load["seconds"].as_array().unwrap().iter().map(|second| second[count].as_u64().unwrap()).sum()
}

#[test]
fn questions_over_tcp_tls_https_and_quic_are_answered_and_matched() {
    let (serving, [tls, https, quic]) = serve();
    let trust = serving.directory.path().join("certificate.pem").display().to_string();
    for (transport, server) in [("tcp", serving.v4), ("tls", tls), ("https", https), ("quic", quic)] {
        for (name, code) in [("mail.example.com", "0"), ("{random}.example.com", "3")] {
            assert_all_answered(server, transport, name, code, &["--ca", &trust]);
        }
    }
}

/// Passes datagrams on between a server and its clients, and loses every tenth of each direction.
fn lossy_path(server: SocketAddr) -> SocketAddr {
    let listener = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let is_lost = |count: &mut u32| {
        *count += 1;
        count.is_multiple_of(10)
    };
    std::thread::spawn(move || {
        let mut ways: BTreeMap<SocketAddr, UdpSocket> = BTreeMap::new();
        let (mut datagram, mut count) = ([0; 2048], 0);
        while let Ok((len, client)) = listener.recv_from(&mut datagram) {
            let way = ways.entry(client).or_insert_with(|| {
                let way = UdpSocket::bind("127.0.0.1:0").unwrap();
                way.connect(server).unwrap();
                let (back, listener) = (way.try_clone().unwrap(), listener.try_clone().unwrap());
                std::thread::spawn(move || {
                    let (mut datagram, mut count) = ([0; 2048], 0);
                    while let Ok(len) = back.recv(&mut datagram) {
                        if !is_lost(&mut count) {
                            listener.send_to(&datagram[..len], client).unwrap();
                        }
                    }
                });
                way
            });
            if !is_lost(&mut count) {
                way.send(&datagram[..len]).unwrap();
            }
        }
    });
    address
}

#[test]
fn questions_over_quic_are_answered_although_datagrams_are_lost() {
    let (_serving, [_, _, quic]) = serve();
    assert_all_answered(lossy_path(quic), "quic", "mail.example.com", "0", &["--insecure"]);
}

/// A server of HTTP/3 that is not ours, and its URL.
fn serve_http3(directory: &Directory) -> (KilledOnDrop, String) {
    make_certificate(directory, "web.test");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = |name: &str| directory.path().join(name);
    let mut server = Command::new(root.parent().unwrap().join("target/programs/python/bin/python"));
    server.arg(root.join("tests/kernel/http3_server.py")).args([file("certificate.pem"), file("key.pem")]);
    let mut server = KilledOnDrop(server.stdout(Stdio::piped()).spawn().unwrap());
    let mut port = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut port).unwrap();
    (server, format!("https://127.0.0.1:{}", port.trim()))
}

struct KilledOnDrop(std::process::Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A load of HTTP/3, and its report.
fn http3(url: &str, more: &[&str]) -> Value {
    let fixed = ["gun", "http", url, "--http3", "--json", "-"];
    let connections = if more.contains(&"--connections") { &[][..] } else { &["--connections", "3"] };
    let output = command(&[&fixed[..], connections, more].concat());
    serde_json::from_slice::<Value>(&output.stdout).unwrap()["loads"][0].clone()
}

const FEW: [&str; 6] = ["--rate", "50", "--duration", "1s", "--timeout", "60s"];
const FEW_REQUESTS: u64 = 50;

#[test]
fn requests_of_http_3_are_answered_on_connections_that_are_kept_or_not() {
    let directory = Directory::new().unwrap();
    let (_server, url) = serve_http3(&directory);
    let trust = directory.path().join("certificate.pem").display().to_string();
    let trusting = ["--ca", &trust, "--tls-host", "web.test"];
    let answer = "Hello, world!\n".len() as u64;
    for (path, more, status, octets) in [
        ("/", &[][..], "200", answer),
        ("/missing", &["--pipeline", "4"], "404", answer),
        ("/", &["--close"], "200", answer),
        ("/interim", &[], "200", answer),
        ("/", &["--body", "64k", "--header", "X-Test: 1"], "200", 64 << 10),
    ] {
        let load = http3(&format!("{url}{path}"), &[&FEW[..], &trusting, more].concat());
        assert_eq!(load["rcodes"][status], FEW_REQUESTS, "{path} {more:?}: {load}");
        assert_eq!(load["counts"]["octets"], FEW_REQUESTS * octets, "{path} {more:?}: {load}");
        assert_eq!((&load["lost"], &load["faults"]), (&0.into(), &serde_json::json!({})), "{more:?}: {load}");
    }
    // Each connection ends while the next request waits for it, and has a successor at once.
    let busy = ["--rate", "200", "--duration", "1s", "--timeout", "60s", "--connections", "1", "--close"];
    let load = http3(&format!("{url}/"), &[&busy[..], &trusting].concat());
    assert_eq!((&load["rcodes"]["200"], &load["faults"]), (&200.into(), &serde_json::json!({})), "{load}");
    // More of them on a connection than the server lets begin before some have ended.
    let many = ["--insecure", "--body", "300k", "--connections", "1", "--rate", "200", "--duration", "1s"];
    let load = http3(&format!("{url}/stop"), &[&many[..], &["--pipeline", "8", "--timeout", "60s"]].concat());
    assert_eq!((&load["rcodes"]["413"], &load["lost"]), (&200.into(), &0.into()), "{load}");
    // More than the server takes before it has looked at some.
    let large = ["--insecure", "--body", "3M", "--rate", "3", "--duration", "1s", "--timeout", "60s"];
    let load = http3(&format!("{url}/"), &large);
    assert_eq!(load["counts"]["octets"], 9 << 20, "{load}");
}

#[test]
fn what_goes_wrong_over_http_3_has_a_name() {
    let directory = Directory::new().unwrap();
    let (_server, url) = serve_http3(&directory);
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let short = ["--insecure", "--rate", "50", "--duration", "300ms", "--timeout", "1s"];
    for (url, more, fault) in [
        (format!("{url}/close"), &short[..], "closed early"),
        (format!("{url}/reset"), &short, "streams reset"),
        (format!("{url}/silent"), &short, "timed out"),
        (format!("{url}/"), &short[1..], "TLS handshakes failed"),
        (format!("https://{nobody}/"), &short, "connections refused"),
    ] {
        let load = http3(&url, more);
        assert_eq!(load["counts"]["answered"], 0, "{url}: {load}");
        let faults: Vec<&String> = load["faults"].as_object().unwrap().keys().collect();
        assert_eq!(faults, [fault], "{url}: {load}");
    }
    for (url, more, why) in [
        (&url.replace("https", "http")[..], &[][..], "has to begin with https"),
        ("https://127.0.0.1:0/", &[], "port 0"),
        (&url, &["--header", "Host: h"], "has the host from the URL"),
    ] {
        let output = command(&[&["gun", "http", url, "--http3"], more].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{said}");
    }
}

/// A server that makes of each question what `answer` does, and sends it back; and the names that it was asked for, as they stand in messages.
fn answer_with(answer: fn(&mut [u8])) -> (SocketAddr, mpsc::Receiver<Vec<u8>>) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let (asked, names) = mpsc::channel();
    std::thread::spawn(move || {
        let mut room = [0; 512];
        while let Ok((len, client)) = socket.recv_from(&mut room) {
            let _ = asked.send(room[12..len - 4].to_vec()); // The test may be over.
            room[2] |= 0x80;
            answer(&mut room[..len]);
            socket.send_to(&room[..len], client).unwrap();
        }
    });
    (address, names)
}

#[test]
fn answers_to_other_questions_are_a_failure_and_carry_no_load() {
    let (server, _names) = answer_with(|message| {
        if message[14] == b'1' {
            message[14] = b'x';
        }
    });
    let server = server.to_string();
    let run = |name, more: &[&str]| {
        let words =
            ["gun", "dns", &server, "--name", name, "--rate", "50", "--timeout", "60s", "--json", "-"];
        command(&[&words[..], more].concat())
    };
    let output = run("h{1-2}.example", &["--duration", "200ms"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let expected =
        "5 of the 10 answers that were compared are to another question than was asked: about 5 of all 10";
    assert!(said.contains(expected), "{said}");

    let output = run("h1.example", &["--find-knee", "--step", "100ms"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["loads"][0]["offered"], 50, "it begins with the rate that was given: {report}");
    let knee = &report["knee"];
    assert_eq!((&knee["carried"], &knee["limit"]), (&Value::Null, &"answers".into()), "{report}");
}

#[test]
fn answers_that_are_none_are_a_failure() {
    let (server, _names) = answer_with(|message| {
        if message[14] == b'1' {
            message[2] &= 0x7f;
        }
    });
    let words = ["--name", "h{1-2}.example", "--rate", "50", "--duration", "200ms", "--timeout", "2s"];
    let output = command(&[&["gun", "dns", &server.to_string()], &words[..]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains(" answers are malformed"), "{said}");
}

/// A server over TCP that gives each answer an ID of its own.
fn answer_with_strange_ids() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((mut client, _)) = listener.accept() {
            std::thread::spawn(move || {
                let mut length = [0; 2];
                while client.read_exact(&mut length).is_ok() {
                    let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
                    client.read_exact(&mut message).unwrap();
                    (message[0], message[2]) = (0xee, message[2] | 0x80);
                    client.write_all(&[&length[..], &message].concat()).unwrap();
                }
            });
        }
    });
    address
}

#[test]
fn answers_over_tcp_with_ids_that_no_question_had_are_a_failure() {
    let server = answer_with_strange_ids().to_string();
    let words = ["gun", "dns", &server, "--transport", "tcp", "--rate", "50", "--duration", "200ms"];
    let output = command(&[&words[..], &["--timeout", "300ms"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("10 answers have an ID that no question had"), "{said}");
}

#[test]
fn why_tls_failed_and_what_https_answered_is_told() {
    let (serving, [tls, https, _]) = serve();
    let trust = serving.directory.path().join("certificate.pem").display().to_string();
    let run = |server: SocketAddr, transport, more: &[&str]| {
        let words = ["gun", "dns", &server.to_string(), "--transport", transport, "--rate", "50"];
        let fixed = ["--ports", "2", "--duration", "200ms", "--timeout", "1s"];
        let output = command(&[&words[..], &fixed, more].concat());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let said = run(tls, "tls", &[]);
    assert!(said.contains("TLS handshakes failed (the first: invalid peer certificate"), "{said}");
    let said = run(https, "https", &["--ca", &trust, "--path", "/elsewhere"]);
    assert!(said.contains("answers of HTTP with another status than 200 (the first: 404)"), "{said}");
}

#[test]
fn random_names_are_others_in_each_run_unless_its_seed_is_given() {
    let (server, names) = answer_with(|_| {});
    let server = server.to_string();
    let run = |more: &[&str]| {
        let words = ["gun", "dns", &server, "--name", "{random}.example", "--rate", "50", "--json", "-"];
        let output = command(&[&words[..], &["--duration", "200ms", "--timeout", "60s"], more].concat());
        assert!(output.status.success(), "{output:?}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let asked: BTreeSet<Vec<u8>> = names.try_iter().collect();
        assert_eq!(asked.len(), 10, "{report}");
        (asked, report["seed"].to_string())
    };
    let (first, seed) = run(&[]);
    assert!(first.is_disjoint(&run(&[]).0));
    assert_eq!(run(&["--seed", &seed]), (first, seed));
}

#[test]
fn a_search_that_is_interrupted_says_so_and_blames_nobody() {
    let (server, names) = answer_with(|_| {});
    let mut command = Command::new(sidestep_binary());
    command.args(["gun", "dns", &server.to_string(), "--find-knee", "--rate", "20", "--step", "1h"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    (0..2).for_each(|_| drop(names.recv_timeout(PATIENCE).unwrap()));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let expected = "knee      none: no load was carried; the search was stopped\n";
    assert!(said.starts_with(expected), "{said}");
}

/// The server sees as many clients as there are ports, each with an address of its own, and a client subnet in each question.
#[test]
fn questions_come_from_many_addresses_and_tell_many_subnets() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    let address = server.local_addr().unwrap().to_string();
    let seen = std::thread::spawn(move || {
        let (mut clients, mut subnets) = (BTreeSet::new(), BTreeSet::new());
        for _ in 0..QUESTIONS {
            let mut room = [0; 512];
            let (len, client) = server.recv_from(&mut room).unwrap();
            let query = dns_wire::Query::parse(&room[..len]).unwrap();
            subnets.insert(query.option(&room[..len], 8).unwrap().to_vec());
            clients.insert(client.ip());
            room[2] |= 0x80;
            server.send_to(&room[..len], client).unwrap();
        }
        (clients, subnets)
    });
    let rate = QUESTIONS.to_string();
    let words = ["gun", "dns", &address, "--source", "127.77.0.0/16", "--ports", "16", "--rate", &rate];
    let more = ["--subnet", "198.18.0.0/15", "--duration", "1s", "--timeout", "60s", "--json", "-"];
    let output = command(&[&words[..], &more].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["loads"][0]["counts"]["answered"], QUESTIONS, "{report}");
    let (clients, subnets) = seen.join().unwrap();
    let expected: BTreeSet<std::net::IpAddr> = (1..=16).map(|host| [127, 77, 0, host].into()).collect();
    assert_eq!(clients, expected);
    assert!(subnets.len() > 100, "{} subnets", subnets.len());
}

#[test]
fn an_address_of_somebody_else_is_no_source() {
    for (source, said) in
        [("192.0.2.0/24", "is 192.0.2.1 an address of this host?"), ("::1/128", "different IP versions")]
    {
        let output = command(&["gun", "dns", "127.0.0.1:5399", "--source", source]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(said), "{source}: {error}");
    }
}

/// A load of datagrams, and its report.
fn datagrams(server: SocketAddr, words: &[&str]) -> Value {
    let server = server.to_string();
    let fixed =
        ["gun", "udp", &server, "--rate", "200", "--duration", "1s", "--timeout", "60s", "--ports", "4"];
    let output = command(&[&fixed[..], &["--json", "-"], words].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice::<Value>(&output.stdout).unwrap()["loads"][0].clone()
}

#[test]
fn datagrams_that_come_back_are_answers() {
    let echo = Serving::start_in(Directory::new().unwrap(), &[], &["--responder", "echo"]);
    for server in [echo.v4, echo.v6] {
        for size in ["10", "1452"] {
            let load = datagrams(server, &["--size", size]);
            assert_eq!(load["counts"]["answered"], QUESTIONS, "{load}");
            assert_eq!(
                (load["lost"].as_u64(), &load["counts"]["mismatched"]),
                (Some(0), &0.into()),
                "{load}"
            );
        }
    }
}

#[test]
fn the_first_two_octets_of_a_file_are_an_id_that_answers_repeat() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let server = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut datagram = [0; 64];
        while let Ok((len, client)) = socket.recv_from(&mut datagram) {
            assert_eq!(&datagram[2..len], b" a request");
            socket.send_to(&[&datagram[..2], b"its answer"].concat(), client).unwrap();
        }
    });
    let directory = Directory::new().unwrap();
    let file = directory.write("request", "12 a request").unwrap().display().to_string();
    let load = datagrams(server, &["--payload", &file]);
    assert_eq!(
        (&load["counts"]["answered"], &load["counts"]["mismatched"]),
        (&QUESTIONS.into(), &0.into()),
        "{load}"
    );

    let output = command(&["gun", "udp", &server.to_string(), "--payload", "no-such-file"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("no-such-file: No such file"), "{said}");
}

/// A server of HTTP that answers one connection, and says when it has answered first.
fn answer_one_connection() -> (SocketAddr, mpsc::Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (answered, first) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut request = [0; 4096];
        while client.read(&mut request).is_ok_and(|len| len > 0) {
            let answer = client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            if answer.is_err() || answered.send(()).is_err() {
                return;
            }
        }
    });
    (address, first)
}

#[test]
fn a_load_that_is_interrupted_says_what_was_measured() {
    let (server, answered) = answer_one_connection();
    let url = format!("http://{server}/");
    let mut command = Command::new(sidestep_binary());
    command.args(["gun", "http", &url, "--connections", "1", "--rate", "50", "--duration", "1h"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    // The second one is asked for when the first one was read.
    (0..2).for_each(|_| answered.recv_timeout(PATIENCE).unwrap());
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("codes     200 "), "{said}");
}
