//! `sidestep dns resolve` by itself on loopback, where it has nobody to ask: what it answers on its own, and how it starts and ends.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

use lab::{Child, Directory, sidestep_binary};
use rustix::process::Signal;
use tests::{Dig, Transport, command};

const PATIENCE: Duration = Duration::from_secs(60);

struct Resolver {
    process: Child,
    address: SocketAddr,
    _directory: Directory,
}

/// A resolver at a free port, whose root is at an address of loopback where nobody listens.
fn start(config: &str) -> Resolver {
    let directory = Directory::new().unwrap();
    directory.write("root.hints", ". 3600 NS a.root.\na.root. 3600 A 127.0.0.9\n").unwrap();
    let text =
        format!("root-hints = \"root.hints\"\nquery-loopback = true\n{config}\n[dnssec]\nenabled = false\n");
    let config = directory.write("resolver.toml", &text).unwrap().display().to_string();
    let control = directory.path().join("control.sock").display().to_string();
    let mut command = Command::new(sidestep_binary());
    command.args(["dns", "resolve", "--listen", "127.0.0.1:0", "--config", &config, "--control", &control]);
    if rustix::process::geteuid().is_root() {
        command.args(["--user", "root"]); // The files of a test are root's.
    }
    let mut process = Child::spawn("sidestep", &mut command).unwrap();
    let ready = process.wait_for_line("ready: resolving on", PATIENCE).unwrap();
    let address = ready.split_whitespace().find_map(|word| word.parse().ok()).unwrap();
    Resolver { process, address, _directory: directory }
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

    let refused = command(&["dns", "resolve", "--listen", "0.0.0.0"]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains("name each address"), "{text}");
    let refused = command(&["dns", "resolve", "--allow", "10.0.0.0/40"]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains("allow: \"10.0.0.0/40\" is not a network"), "{text}");
}
