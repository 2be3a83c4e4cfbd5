//! Wrong input: the message says what is wrong and where, and what can be served is served.

use std::path::Path;
use std::process::Output;

use lab::{Directory, Zone};
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
    assert_eq!(other.status(), "REFUSED");
    assert!(server.process.output().contains("bad.zone is not served"), "{}", server.process.output());
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
