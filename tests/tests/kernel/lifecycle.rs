//! Start to end: signals.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use lab::{Zone, message};
use rustix::process::Signal;
use tests::Serving;

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
    assert!(!second.process.output().contains("nobody can look"), "{}", second.process.output());
}
