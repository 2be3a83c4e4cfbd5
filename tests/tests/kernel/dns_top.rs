//! `sidestep dns top`: what a server is asked, seen by captures of its answers.

use std::process::Command;
use std::time::{Duration, Instant};

use lab::{Child, Zone, sidestep_binary};
use rustix::process::Signal;
use tests::{Dig, Serving, Transport, command};

/// Nothing here takes longer, on a machine that does other work too.
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn names_clients_types_and_codes_of_answers_are_counted() {
    let server = Serving::start(&Zone::sample().file, &[]);
    let control = server.directory.path().join("control.sock").display().to_string();
    let mut command = Command::new(sidestep_binary());
    command.args(["dns", "top", "--control", &control, "--count", "1000"]);
    let mut top = Child::spawn("dns top", &mut command).unwrap();
    let lines = [
        "name mail.example.com. ",
        "name nowhere.mail.example.com. ",
        "above example.com. ",
        "client 127.0.0.1 100.0% ",
        "type A 100.0% ",
        "code NOERROR ",
        "code NXDOMAIN ",
    ];
    let is_said = |output: &str, line: &str| output.lines().any(|it| it.starts_with(line));
    let deadline = Instant::now() + PATIENCE;
    while !lines.iter().all(|line| is_said(&top.output(), line)) {
        assert!(Instant::now() < deadline, "{}", top.output());
        assert!(top.try_wait().is_none(), "{}", top.output());
        for name in ["mail.example.com", "NOWHERE.mail.example.com"] {
            Dig::ask(server.v4, Transport::Udp, &[name, "A"]);
        }
    }
    top.end();
}

#[test]
fn a_server_that_is_silent_for_a_while_does_not_end_it() {
    let server = Serving::start(&Zone::sample().file, &[]);
    let control = server.directory.path().join("control.sock").display().to_string();
    let mut command = Command::new(sidestep_binary());
    command.args(["dns", "top", "--control", &control, "--count", "1000"]);
    let mut top = Child::spawn("dns top", &mut command).unwrap();
    top.wait_for_line("over UDP from dns/", PATIENCE).unwrap();
    server.process.signal(Signal::STOP);
    top.wait_for_line("does not answer", PATIENCE).unwrap();
    server.process.signal(Signal::CONT);
    top.wait_for_line("over UDP from dns/", PATIENCE).unwrap();
    top.end();
}

#[test]
fn a_resolver_is_refused_with_the_reason() {
    let resolver = crate::resolver::start("");
    let control = resolver.directory.path().join("control.sock").display().to_string();
    let output = command(&["dns", "top", "--control", &control, "--once"]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("is a resolver, whose answers no capture sees"), "{message}");
}
