//! Wrong input: the message says what is wrong and where, and what can be served is served.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use lab::{Directory, Zone};
use rustix::process::Signal;
use tests::{Dig, Serving, Transport, command};

/// Runs `sidestep dns serve`, which is to fail, and returns what it says.
fn complaint(arguments: &[&str]) -> String {
    let output: Output = command(&[&["dns", "serve"], arguments].concat());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn bad_zone(directory: &Directory) -> String {
    let text = "$ORIGIN bad.example.\n@ 60 SOA ns host 1 1 1 1 1\n@ 60 NS ns\nns 60 A 192.0.2.256\n";
    directory.write("bad.zone", text).unwrap().display().to_string()
}

#[test]
fn a_missing_zone_file_is_named() {
    let message = complaint(&["--zone", "/nowhere/missing.zone"]);
    assert!(message.contains("/nowhere/missing.zone") && message.contains("none of the zones"), "{message}");
}

#[test]
fn nothing_to_serve_is_an_error_that_says_what_to_do() {
    let message = complaint(&[]);
    assert!(message.contains("--zone FILE"), "{message}");
}

#[test]
fn a_mistake_in_a_zone_is_shown_with_its_file_and_line() {
    let directory = Directory::new().unwrap();
    let file = bad_zone(&directory);
    let message = complaint(&["--zone", &file]);
    assert!(message.contains(&format!("{file}:4")) && message.contains("192.0.2.256"), "{message}");
}

#[test]
fn a_bad_zone_does_not_keep_the_others_from_being_served() {
    let directory = Directory::new().unwrap();
    let bad = bad_zone(&directory);
    let good = Zone::sample().file.display().to_string();
    let server = Serving::start_in(directory, &["--zone", &bad, "--zone", &good], &[]);
    let answer = Dig::ask(server.v4, Transport::Udp, &["mail.example.com", "A"]);
    assert_eq!(answer.status(), "NOERROR");
    let other = Dig::ask(server.v4, Transport::Udp, &["ns.bad.example", "A"]);
    assert_eq!(other.status(), "SERVFAIL");
    assert!(other.text.contains("EDE: 24"), "{}", other.text);
    let complaint = "zone bad.example. is answered with SERVFAIL until it can be loaded";
    assert!(server.process.output().contains(complaint), "{}", server.process.output());
}

/// The parent of a zone that cannot be read, and the file of that zone, which is not there yet.
fn parent_of_missing(directory: &Directory) -> (String, std::path::PathBuf) {
    let text = "$TTL 60\n@ SOA ns host 1 1 1 1 1\n NS ns\nns A 192.0.2.1\n* A 192.0.2.2\n";
    let parent = directory.write("example.zone", text).unwrap().display().to_string();
    (parent, directory.path().join("sub.example.zone"))
}

#[test]
fn the_parent_does_not_answer_for_a_zone_that_cannot_be_read_until_it_can() {
    let directory = Directory::new().unwrap();
    let (parent, child) = parent_of_missing(&directory);
    let sources = ["--zone", &parent, "--zone", &child.display().to_string()];
    let mut server = Serving::start_in(directory, &sources, &[]);
    let ask = |server: &Serving, transport| Dig::ask(server.v4, transport, &["www.sub.example", "A"]);
    for transport in [Transport::Udp, Transport::Tcp] {
        let answer = ask(&server, transport);
        assert!(answer.status() == "SERVFAIL" && answer.text.contains("EDE: 14"), "{}", answer.text);
    }
    std::fs::write(&child, "$TTL 60\n@ SOA ns host 1 1 1 1 1\nwww A 192.0.2.3\n").unwrap();
    server.process.signal(Signal::HUP);
    server.process.wait_for_line("reloaded: 2 zones", Duration::from_secs(60)).unwrap();
    let answer = ask(&server, Transport::Udp);
    assert_eq!(answer.section("ANSWER"), ["www.sub.example. 60 IN A 192.0.2.3"]);
}

#[test]
fn the_parent_does_not_answer_for_a_zone_that_is_new_and_bad_at_a_reload() {
    let directory = Directory::new().unwrap();
    let (parent, child) = parent_of_missing(&directory);
    let zone = |file: &str| format!("[[zone]]\nfile = {file:?}\n");
    let config = directory.write("dns.toml", &zone(&parent)).unwrap().display().to_string();
    let mut server = Serving::start_in(directory, &["--config", &config], &[]);
    std::fs::write(&child, "$TTL 60\n@ SOA ns host 1 1 1 1 1\nwww A nonsense\n").unwrap();
    std::fs::write(&config, zone(&parent) + &zone(&child.display().to_string())).unwrap();
    server.process.signal(Signal::HUP);
    server.process.wait_for_line("1 zone file with errors", Duration::from_secs(60)).unwrap();
    let answer = Dig::ask(server.v4, Transport::Udp, &["www.sub.example", "A"]);
    assert!(answer.status() == "SERVFAIL" && answer.text.contains("EDE: 24"), "{}", answer.text);
}

#[test]
fn an_address_in_use_is_an_error_that_names_it() {
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let zone = Zone::sample().file.display().to_string();
    let message = complaint(&["--zone", &zone, "--listen", &address]);
    assert!(message.contains(&address) && message.to_lowercase().contains("in use"), "{message}");
}

#[test]
fn a_tcp_address_in_use_is_an_error_that_names_it() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let zone = Zone::sample().file.display().to_string();
    let message = complaint(&["--zone", &zone, "--listen", &address]);
    assert!(message.contains(&address) && message.to_lowercase().contains("in use"), "{message}");
}

#[test]
fn an_interface_that_is_not_there_is_an_error_that_names_it() {
    let zone = Zone::sample().file.display().to_string();
    let message = complaint(&["--zone", &zone, "--device", "nosuch0"]);
    assert!(message.contains("nosuch0"), "{message}");
}

#[test]
fn an_unknown_option_in_the_configuration_is_named_with_its_line() {
    let directory = Directory::new().unwrap();
    let file = directory.write("dns.toml", "device = \"kernel\"\nlistne = []\n").unwrap();
    let message = complaint(&["--config", &file.display().to_string()]);
    assert!(message.contains("line 2") && message.contains("listne"), "{message}");
}

#[test]
fn statistics_of_no_server_are_an_error_that_names_the_socket() {
    let output = command(&["dns", "stats", "--control", "/nowhere/control.sock"]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && message.contains("/nowhere/control.sock"), "{message}");
}

#[test]
fn check_tells_good_zones_from_bad_ones() {
    let directory = Directory::new().unwrap();
    let good = Zone::sample().file;
    assert!(Path::new(&good).exists());
    let output = command(&["dns", "check", "--zone", &good.display().to_string()]);
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("example.com"));
    let output = command(&["dns", "check", "--zone", &bad_zone(&directory)]);
    assert_eq!(output.status.code(), Some(1));
}
