//! Clients that do not do what they should, and sockets that are not what they seem.

mod common;

use std::io::ErrorKind::{TimedOut, WouldBlock};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use common::{CLIENT, World, capture, eventually};
use observe::client::{ClientError, connect_in, read_report};
use observe::protocol::Request;
use observe::{Program, serve_at};

fn is_well(world: &World) -> bool {
    world.replies(&Request::Counters).is_ok()
}

#[test]
fn whoever_sends_nonsense_is_told_and_disconnected() {
    let world = World::new();
    let nonsense: [&[u8]; 5] = [
        b"GET / HTTP/1.1\r\n\r\n",
        &[0xff; 64],
        b"\x04\0\0\0J{}}}",
        b"\x09\0\0\0J\"nothing\"",
        b"\x01\0\0\0Px",
    ];
    for octets in nonsense {
        let mut stream = UnixStream::connect(world.path()).unwrap();
        stream.set_read_timeout(Some(common::PATIENCE)).unwrap();
        stream.write_all(octets).unwrap();
        let mut answer = Vec::new();
        // The rest of what we sent may be unread there: then the connection is reset.
        let _ = stream.read_to_end(&mut answer);
        assert!(String::from_utf8_lossy(&answer).contains("error"), "{octets:?}");
    }
    assert!(is_well(&world));
}

#[test]
fn clients_that_ask_nothing_are_let_go_and_their_places_are_free_again() {
    let world = World::new();
    let idle: Vec<UnixStream> = (0..16).map(|_| UnixStream::connect(world.path()).unwrap()).collect();
    let (mut full, mut text) = (UnixStream::connect(world.path()).unwrap(), String::new());
    let _ = full.read_to_string(&mut text);
    assert!(text.contains("16 others are looking already"), "{text}");
    eventually(|| {
        let counters = world.connection().ask(&Request::Counters);
        counters.is_ok_and(|(_, mut answer)| answer.next_message().is_ok())
    });
    drop(idle);
}

#[test]
fn a_client_that_does_not_read_holds_up_neither_engine_nor_end() {
    /// Who waits for a client that does not read waits for five seconds.
    const HELD_UP: Duration = Duration::from_secs(4);
    let mut world = World::new();
    for port in 0..1000 {
        world.client().connect(10_000 + port);
    }
    let request = Request::Sockets { filter: String::new(), listening: false };
    let lazy: Vec<_> = (0..8).map(|_| world.connection().ask(&request).unwrap()).collect();
    let connection = world.client().connect(CLIENT.port());
    let start = Instant::now();
    world.client().exchange(connection, b"are you there?");
    assert!(start.elapsed() < HELD_UP, "{:?}", start.elapsed());
    let start = Instant::now();
    drop(world.control.take());
    assert!(start.elapsed() < HELD_UP, "{:?}", start.elapsed());
    drop(lazy);
}

#[test]
fn octets_behind_a_request_end_a_capture_and_nothing_else() {
    let world = World::with_bare_wire();
    let mut answer = capture(&world, "", 100);
    let _ = rustix::io::write(answer.fd(), &[0xff; 10_000]);
    while answer.next_message().unwrap().is_some() {}
    assert!(is_well(&world));
}

#[test]
fn a_socket_is_its_users_alone_and_goes_with_the_program() {
    let mut world = World::new();
    let mode = std::fs::metadata(world.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(world.control.take());
    assert!(!world.path().exists());
    assert_eq!(std::fs::read_dir(world.directory.path()).unwrap().count(), 0);
}

#[test]
fn sockets_of_the_dead_are_removed_and_replaced_and_those_of_the_living_are_not() {
    let world = World::new();
    let directory = world.directory.path().to_owned();
    let dead = directory.join("2.sock");
    drop(UnixListener::bind(&dead).unwrap());
    let found = connect_in(std::slice::from_ref(&directory), None).unwrap();
    assert_eq!(found.len(), 1);
    assert!(!dead.exists() && world.path().exists());

    drop(UnixListener::bind(&dead).unwrap());
    let replaced = serve_at(&dead, Program::new("other", Vec::new())).unwrap();
    assert!(serve_at(&dead, Program::new("third", Vec::new())).is_err(), "it is in use");
    assert_eq!(connect_in(std::slice::from_ref(&directory), Some(2)).unwrap().len(), 1);
    drop(replaced);
}

#[test]
fn it_is_told_where_nothing_was_found() {
    let directory = lab::Directory::new().unwrap();
    let places = [directory.path().to_owned(), directory.path().join("not there")];
    let nothing = connect_in(&places, None).unwrap_err();
    assert!(matches!(nothing, ClientError::NothingRuns { .. }));
    assert!(nothing.to_string().starts_with("no Sidestep process is running here; looked in /"), "{nothing}");
    let nobody = connect_in(&places, Some(77)).unwrap_err();
    assert!(nobody.to_string().starts_with("no Sidestep process 77 is running here"), "{nobody}");
}

#[test]
fn a_program_that_is_none_is_not_waited_for() {
    let directory = lab::Directory::new().unwrap();
    let listener = UnixListener::bind(directory.path().join("5.sock")).unwrap();
    let impostor = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&[0xff; 100]).unwrap();
    });
    let connection = connect_in(&[directory.path().to_owned()], None).unwrap().remove(0);
    let error = connection.ask(&Request::Counters).unwrap_err();
    assert!(matches!(error, ClientError::Protocol(_) | ClientError::Connection(_)), "{error}");
    impostor.join().unwrap();
}

/// A socket at which an impostor sends what is `first`, and then a space again and again, but not for ever.
fn dripping(first: &'static [u8]) -> (lab::Directory, std::thread::JoinHandle<()>) {
    let directory = lab::Directory::new().unwrap();
    let listener = UnixListener::bind(directory.path().join("5.sock")).unwrap();
    let impostor = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(first).unwrap();
        for _ in 0..1000 {
            if stream.write_all(b" ").is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    (directory, impostor)
}

#[test]
fn an_answer_that_comes_by_drops_is_given_up_in_time() {
    let (directory, impostor) = dripping(b"\xff\xff\0\0J");
    let connection = connect_in(&[directory.path().to_owned()], None).unwrap().remove(0);
    let error = connection.within(Duration::from_millis(100)).ask(&Request::NameServers).unwrap_err();
    let is_late = matches!(&error, ClientError::Connection(it) if matches!(it.kind(), TimedOut | WouldBlock));
    assert!(is_late, "{error:?}");
    impostor.join().unwrap();
}

#[test]
fn a_report_that_comes_by_drops_is_given_up_in_time() {
    let (directory, impostor) = dripping(b"");
    let path = directory.path().join("5.sock");
    let error = read_report::<Vec<u64>>(&path, Duration::from_millis(100)).unwrap_err();
    let is_late = matches!(&error, ClientError::Connection(it) if matches!(it.kind(), TimedOut | WouldBlock));
    assert!(is_late, "{error:?}");
    impostor.join().unwrap();
}
