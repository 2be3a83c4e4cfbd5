//! Start to end: signals.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lab::{Child, Directory, Zone, message, sidestep_binary};
use rustix::process::Signal;
use tests::{Serving, VERSION_NAME, VersionedZone};

const END_MAX: Duration = Duration::from_secs(60);

#[test]
fn sigterm_and_sigint_end_the_server_in_good_order() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut server = Serving::start(&Zone::sample().file, &[]);
        let control = server.directory.path().join("control.sock");
        assert!(control.exists());
        server.process.signal(signal);
        assert_eq!(server.process.wait(END_MAX).unwrap().code(), Some(0), "{signal:?}");
        assert!(!control.exists(), "the control socket goes with the server");
    }
}

/// Puts a zone file in place of what is at `path` that can be opened and never ends: a named pipe.
fn make_endless(path: &Path) {
    let _ = std::fs::remove_file(path);
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Returns once somebody reads the pipe at `path`; what comes to keep it open.
fn wait_for_reader(path: &Path) -> File {
    File::options().write(true).open(path).unwrap()
}

#[test]
fn sigterm_ends_a_server_that_still_loads_its_zones() {
    let directory = Directory::new().unwrap();
    let zone = directory.path().join("endless.zone");
    make_endless(&zone);
    let mut command = Command::new(sidestep_binary());
    let mut server = Child::spawn("sidestep", command.args(["dns", "serve", "--zone"]).arg(&zone)).unwrap();
    let _writer = wait_for_reader(&zone);
    server.signal(Signal::TERM);
    assert_eq!(server.wait(END_MAX).unwrap().code(), Some(0));
}

#[test]
fn a_host_without_ipv6_is_served_at_its_other_address() {
    const SCRIPT: &str = "sysctl -qw net.ipv6.conf.all.disable_ipv6=1; ip link set lo up
        exec \"$0\" dns serve --zone \"$1\"";
    if !rustix::process::geteuid().is_root() {
        return lab::skip("needs root for a network namespace");
    }
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-ec", SCRIPT]).arg(sidestep_binary()).arg(&Zone::sample().file);
    let mut server = Child::spawn("sidestep", &mut command).unwrap();
    let ready = server.wait_for_line("ready: ", END_MAX).unwrap();
    assert!(ready.contains(" on 127.0.0.1:5300 over kernel sockets"), "{ready}");
    server.signal(Signal::TERM);
    assert_eq!(server.wait(END_MAX).unwrap().code(), Some(0));
}

#[test]
fn a_server_answers_while_it_reloads_and_sigterm_ends_it() {
    let zone = VersionedZone::new(1, 0);
    let mut server = Serving::start(&zone.file(), &[]);
    make_endless(&zone.file());
    server.process.signal(Signal::HUP);
    let _writer = wait_for_reader(&zone.file());
    let query = message::query(1, VERSION_NAME, message::A);
    assert!(message::ask(server.v4, &query, END_MAX).is_ok());
    server.process.signal(Signal::TERM);
    assert_eq!(server.process.wait(END_MAX).unwrap().code(), Some(0));
}

#[test]
fn sigterm_lets_a_tcp_client_have_the_answers_to_what_it_sent() {
    const QUERIES: u16 = 200;
    let mut server = Serving::start(&Zone::sample().file, &[]);
    let mut client = TcpStream::connect(server.v4).unwrap();
    client.set_read_timeout(Some(END_MAX)).unwrap();
    let mut octets = Vec::new();
    for id in 0..QUERIES {
        let query = message::query(id, "mail.example.com", message::A);
        octets.extend_from_slice(&(query.len() as u16).to_be_bytes());
        octets.extend_from_slice(&query);
    }
    client.write_all(&octets).unwrap();
    server.process.signal(Signal::TERM);
    let mut answers = Vec::new();
    client.read_to_end(&mut answers).unwrap();
    let mut count = 0;
    let mut rest = answers.as_slice();
    while let Some((prefix, after)) = rest.split_first_chunk::<2>() {
        rest = &after[usize::from(u16::from_be_bytes(*prefix))..];
        count += 1;
    }
    assert_eq!(count, QUERIES);
    assert_eq!(server.process.wait(END_MAX).unwrap().code(), Some(0));
}

#[test]
fn a_server_that_was_killed_is_replaced_at_the_same_control_socket() {
    let mut first = Serving::start(&Zone::sample().file, &[]);
    first.process.kill();
    let Serving { directory, .. } = first;
    assert!(directory.path().join("control.sock").exists());
    let zone = Zone::sample().file.display().to_string();
    let second = Serving::start_in(directory, &["--zone", &zone], &[]);
    assert_eq!(second.counter("tcp_connections_open"), 0);
    assert!(!second.process.output().contains("control socket unavailable"), "{}", second.process.output());
}

/// Others have a meaning for them: NSD writes its statistics, and whoever moves from there may send one.
#[test]
fn signals_without_a_meaning_end_nothing() {
    let mut server = Serving::start(&Zone::sample().file, &[]);
    for signal in [Signal::USR1, Signal::USR2] {
        server.process.signal(signal);
        server.process.wait_for_line("SIGUSR1 and SIGUSR2 have no meaning here", END_MAX).unwrap();
    }
    let query = message::query(1, VERSION_NAME, message::A);
    assert!(message::ask(server.v4, &query, END_MAX).is_ok());
}
