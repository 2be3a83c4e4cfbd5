//! DNS over TCP: RFC 7766.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use lab::message::{self, Answer};
use lab::{Directory, Zone};
use rustix::process::Signal;
use tests::{Serving, VersionedZone};

const PATIENCE: Duration = Duration::from_secs(60);

fn connect(server: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A query with its length in front.
fn framed(id: u16) -> Vec<u8> {
    let query = message::query(id, "mail.example.com", message::A);
    [&(query.len() as u16).to_be_bytes()[..], &query].concat()
}

fn read_answer(stream: &mut TcpStream) -> io::Result<Answer> {
    let mut prefix = [0; 2];
    stream.read_exact(&mut prefix)?;
    let mut octets = vec![0; usize::from(u16::from_be_bytes(prefix))];
    stream.read_exact(&mut octets)?;
    Ok(Answer::new(&octets).unwrap())
}

/// Serves the sample zone with a `[tcp]` table in the configuration.
fn serving_with(tcp: &str) -> Serving {
    let directory = Directory::new().unwrap();
    let text = format!("[tcp]\n{tcp}\n[[zone]]\nfile = {:?}\n", Zone::sample().file);
    let config = directory.write("dns.toml", &text).unwrap().display().to_string();
    Serving::start_in(directory, &["--config", &config], &[])
}

/// Asks on a connection of its own, which may be refused.
fn ask_once(server: SocketAddr, id: u16) -> io::Result<()> {
    let mut stream = connect(server);
    stream.write_all(&framed(id))?;
    read_answer(&mut stream).map(|answer| assert_eq!(answer.id(), id))
}

/// Whether the server has closed the connection: the end of the stream, or a reset.
fn is_closed(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn twenty_queries_in_one_segment_get_twenty_answers() {
    let server = Serving::start(&Zone::sample().file, &[]);
    let mut client = connect(server.v4);
    let octets: Vec<u8> = (0..20).flat_map(framed).collect();
    client.write_all(&octets).unwrap();
    let mut ids: Vec<u16> = (0..20).map(|_| read_answer(&mut client).unwrap().id()).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..20).collect::<Vec<_>>());
}

#[test]
fn a_query_that_comes_octet_by_octet_is_answered() {
    let server = Serving::start(&Zone::sample().file, &[]);
    let mut client = connect(server.v6);
    client.set_nodelay(true).unwrap();
    for octet in framed(7) {
        client.write_all(&[octet]).unwrap();
        thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(read_answer(&mut client).unwrap().id(), 7);
}

#[test]
fn a_connection_serves_many_queries_one_after_the_other() {
    let server = Serving::start(&Zone::sample().file, &[]);
    let mut client = connect(server.v4);
    for id in 0..500 {
        client.write_all(&framed(id)).unwrap();
        assert_eq!(read_answer(&mut client).unwrap().id(), id);
    }
    assert_eq!(server.counter("tcp_connections_accepted"), 1);
}

#[test]
fn an_idle_connection_is_closed_and_one_that_asks_is_not() {
    let server = serving_with("idle-timeout-s = 3"); // Longer than this thread may have to wait for a core.
    let (idle, mut busy, mut slow) = (connect(server.v4), connect(server.v4), connect(server.v4));
    slow.write_all(&framed(1)[..5]).unwrap(); // Half a query is no query.
    for mut silent in [idle, slow] {
        silent.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let deadline = Instant::now() + PATIENCE;
        while !is_closed(&mut silent) {
            assert!(Instant::now() < deadline, "it is open still");
            busy.write_all(&framed(2)).unwrap();
            read_answer(&mut busy).unwrap();
        }
    }
    busy.write_all(&framed(2)).unwrap();
    read_answer(&mut busy).unwrap();
    assert_eq!(server.counter("tcp_connections_closed_idle"), 2);
}

#[test]
fn beyond_the_limit_the_newest_connection_is_refused() {
    let server = serving_with("connections-max = 3");
    let mut first: Vec<TcpStream> = (0..3).map(|_| connect(server.v4)).collect();
    for (id, client) in (0..).zip(&mut first) {
        client.write_all(&framed(id)).unwrap();
        assert_eq!(read_answer(client).unwrap().id(), id);
    }
    assert!(is_closed(&mut connect(server.v4)));
    assert_eq!(server.counter("tcp_connections_refused"), 1);
    first.pop();
    let deadline = Instant::now() + PATIENCE;
    // Until the server knows that there is a place again.
    while ask_once(server.v4, 9).is_err() {
        assert!(Instant::now() < deadline, "the place is not free");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn one_client_cannot_take_all_connections() {
    let server = serving_with("connections-per-client-max = 2");
    let _taken = [connect(server.v4), connect(server.v4)];
    assert!(is_closed(&mut connect(server.v4)));
    let mut other = connect(server.v6);
    other.write_all(&framed(7)).unwrap();
    assert_eq!(read_answer(&mut other).unwrap().id(), 7);
}

/// Changes the zone, reloads, and waits until that has worked.
fn assert_reload_works(server: &mut Serving, zone: &VersionedZone) {
    zone.set(2, 0);
    server.process.signal(Signal::HUP);
    server.process.wait_for_line("reloaded: 1 zone, ", PATIENCE).unwrap();
    assert!(server.process.output().contains("0 zone files with errors"), "{}", server.process.output());
}

/// Serves with these limits of descriptors, the soft and the hard one.
fn serving_within(limits: &str, zone: &VersionedZone) -> Serving {
    let by = ["prlimit", &format!("--nofile={limits}")];
    let file = zone.file().display().to_string();
    Serving::start_by(&by, Directory::new().unwrap(), &["--zone", &file], &[])
}

#[test]
fn a_low_soft_limit_of_descriptors_limits_no_connections() {
    let zone = VersionedZone::new(1, 0);
    let mut server = serving_within("64:2048", &zone);
    let mut clients: Vec<TcpStream> = (0..100).map(|_| connect(server.v4)).collect();
    for (id, client) in (0..).zip(&mut clients) {
        client.write_all(&framed(id)).unwrap();
        assert_eq!(read_answer(client).unwrap().id(), id);
    }
    assert_eq!(server.counter("tcp_connections_open"), 100, "none had to go before another one came");
    assert_reload_works(&mut server, &zone);
}

#[test]
fn connections_leave_descriptors_for_reloads() {
    let zone = VersionedZone::new(1, 0);
    let mut server = serving_within("300", &zone);
    assert!(
        server.process.output().contains("300 descriptors are enough for 44 connections"),
        "{}",
        server.process.output()
    );
    let mut clients: Vec<TcpStream> = (0..44).map(|_| connect(server.v4)).collect();
    for (id, client) in (0..).zip(&mut clients) {
        client.write_all(&framed(id)).unwrap();
        assert_eq!(read_answer(client).unwrap().id(), id);
    }
    assert!(is_closed(&mut connect(server.v4)));
    assert_reload_works(&mut server, &zone);
}

#[test]
fn a_stop_waits_for_clients_as_long_as_it_is_configured() {
    const QUERIES: usize = 1500; // Their answers do not fit between server and client.
    let mut server = serving_huge_answers("linger-s = 60");
    let mut client = connect(server.v4);
    client.write_all(&queries_of_huge_answers(QUERIES)).unwrap();
    server.process.signal(Signal::TERM);
    thread::sleep(Duration::from_secs(4));
    (0..QUERIES).for_each(|_| assert_eq!(read_answer(&mut client).unwrap().id(), 1));
    assert!(is_closed(&mut client));
    assert_eq!(server.process.wait(PATIENCE).unwrap().code(), Some(0));
}

/// As many queries for an answer of several segments.
fn queries_of_big_answers(count: usize) -> Vec<u8> {
    let query = message::query(1, "big.example.com", message::TXT);
    [&(query.len() as u16).to_be_bytes()[..], &query].concat().repeat(count)
}

#[test]
fn queries_whose_answers_do_not_fit_at_once_are_all_answered() {
    const QUERIES: usize = 200;
    let server = Serving::start(&Zone::sample().file, &[]);
    let (mut open, mut half_closed) = (connect(server.v4), connect(server.v4));
    for client in [&mut open, &mut half_closed] {
        client.write_all(&queries_of_big_answers(QUERIES)).unwrap();
    }
    half_closed.shutdown(Shutdown::Write).unwrap();
    for client in [&mut open, &mut half_closed] {
        (0..QUERIES).for_each(|_| assert_eq!(read_answer(client).unwrap().id(), 1));
    }
    assert!(is_closed(&mut half_closed));
}

/// Serves answers of 20 KB, with a `[tcp]` table in the configuration.
fn serving_huge_answers(tcp: &str) -> Serving {
    let directory = Directory::new().unwrap();
    let text = "$TTL 60\n@ SOA ns h 1 2 3 4 5\n$GENERATE 1-200 t TXT \"a text of some length, so that the answer is long, number $\"\n";
    let zone = directory.write("big.zone", text).unwrap();
    let config = format!("[tcp]\n{tcp}\n[[zone]]\nfile = {zone:?}\n");
    let config = directory.write("dns.toml", &config).unwrap().display().to_string();
    Serving::start_in(directory, &["--config", &config], &[])
}

fn queries_of_huge_answers(count: usize) -> Vec<u8> {
    let query = message::query(1, "t.big", message::TXT);
    [&(query.len() as u16).to_be_bytes()[..], &query].concat().repeat(count)
}

#[test]
fn a_client_that_reads_slowly_gets_all_answers() {
    const QUERIES: usize = 250; // More than fits between server and client.
    let server = serving_huge_answers("idle-timeout-s = 1");
    let mut client = connect(server.v4);
    client.write_all(&queries_of_huge_answers(QUERIES)).unwrap();
    // When the last query is answered, reading the rest takes longer than the idle time-out.
    for number in 0..QUERIES {
        assert_eq!(read_answer(&mut client).unwrap().id(), 1, "answer {number}");
        if number % 3 == 0 {
            thread::sleep(Duration::from_millis(100));
        }
    }
}

#[test]
fn a_client_that_does_not_read_does_not_disturb_the_others() {
    let server = Serving::start(&Zone::sample().file, &[]);
    let mut greedy = connect(server.v4);
    greedy.set_nonblocking(true).unwrap();
    let flood = queries_of_big_answers(1000);
    // Until neither its buffers nor the server's take more.
    let (mut at, mut full) = (0, 0);
    while full < 20 {
        match greedy.write(&flood[at..]) {
            Ok(count) => (at, full) = ((at + count) % flood.len(), 0),
            Err(_) => {
                full += 1;
                thread::sleep(Duration::from_millis(10));
            }
        }
    }
    let mut other = connect(server.v4);
    other.write_all(&framed(3)).unwrap();
    assert_eq!(read_answer(&mut other).unwrap().id(), 3);
}

#[test]
fn a_length_of_zero_closes_the_connection() {
    let server = Serving::start(&Zone::sample().file, &[]);
    let mut client = connect(server.v4);
    client.write_all(&[0, 0]).unwrap();
    assert!(is_closed(&mut client));
}
