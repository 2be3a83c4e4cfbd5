//! Primaries that do not answer: others are asked at once, and zones of those that answer do not wait.

use std::fs::File;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::time::{Duration, Instant, SystemTime};

use lab::{Child, Directory};
use rustix::process::Signal;
use tests::{Serving, make_certificate};

use crate::fake_primary::{FakePrimary, ForDifferences};

const ZONE: &str = "@ 60 SOA ns host 1 3600 3600 7200 1\n 60 NS ns\nns 60 A 192.0.2.1\n";
const PATIENCE: Duration = Duration::from_secs(60);

/// A primary that takes connections and questions, and says nothing.
struct Hanging {
    address: SocketAddr,
    _sockets: (TcpListener, UdpSocket),
}

impl Hanging {
    fn new() -> Hanging {
        loop {
            let by_tcp = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = by_tcp.local_addr().unwrap();
            if let Ok(by_udp) = UdpSocket::bind(address) {
                return Hanging { address, _sockets: (by_tcp, by_udp) };
            }
        }
    }
}

fn primary() -> Serving {
    primary_of(ZONE, &[])
}

/// A primary of the zone of this text.
fn primary_of(zone: &str, arguments: &[&str]) -> Serving {
    let directory = Directory::new().unwrap();
    directory.write("good.test.zone", zone).unwrap();
    let text = "allow-transfer = [\"127.0.0.1\"]\n[[zone]]\nfile = \"good.test.zone\"\n";
    let config = directory.write("dns.toml", text).unwrap().display().to_string();
    Serving::start_in(directory, &["--config", &config], arguments)
}

/// The zone with this serial.
fn with_serial(serial: u32) -> String {
    ZONE.replace("host 1 ", &format!("host {serial} "))
}

fn wait_for(process: &Child, text: &str) {
    let deadline = Instant::now() + PATIENCE;
    while !process.output().contains(text) {
        assert!(Instant::now() < deadline, "{text:?} is missing in {}", process.output());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A secondary that has kept the zone of serial 3 for longer than it may be served.
fn with_expired_file(primaries: &[SocketAddr]) -> Serving {
    let directory = Directory::new().unwrap();
    let file = directory.write("good.zone", &format!("$ORIGIN good.test.\n{}", with_serial(3))).unwrap();
    let yesterday = SystemTime::now() - Duration::from_secs(86_400);
    File::options().append(true).open(file).unwrap().set_modified(yesterday).unwrap();
    let primaries: Vec<String> = primaries.iter().map(|address| format!("\"{address}\"")).collect();
    let text = format!(
        "[[secondary]]\nzone = \"good.test\"\nprimaries = [{}]\nfile = \"good.zone\"\n",
        primaries.join(", ")
    );
    let config = directory.write("dns.toml", &text).unwrap().display().to_string();
    Serving::start_in(directory, &["--config", &config], &[])
}

fn secondary(tables: &[(String, Vec<SocketAddr>)]) -> Serving {
    let table = |(zone, primaries): &(String, Vec<SocketAddr>)| {
        let primaries: Vec<String> = primaries.iter().map(|address| format!("\"{address}\"")).collect();
        format!("[[secondary]]\nzone = \"{zone}\"\nprimaries = [{}]\n", primaries.join(", "))
    };
    let directory = Directory::new().unwrap();
    let text: String = tables.iter().map(table).collect();
    let config = directory.write("dns.toml", &text).unwrap().display().to_string();
    Serving::start_in(directory, &["--config", &config], &[])
}

/// Where lines first stand in a log.
fn places(log: &str, lines: &[&str]) -> Vec<Option<usize>> {
    lines.iter().map(|line| log.find(line)).collect()
}

#[test]
fn a_zone_whose_primary_answers_does_not_wait_for_zones_whose_primaries_hang() {
    let (ours, hanging) = (primary(), Vec::from_iter((0..8).map(|_| Hanging::new())));
    let dead =
        hanging.iter().enumerate().map(|(number, one)| (format!("dead-{number}.test"), vec![one.address]));
    let tables: Vec<_> = dead.chain([("good.test".to_owned(), vec![ours.v4])]).collect();
    let mut theirs = secondary(&tables);
    theirs.process.wait_for_line("no whole message within 10 s", PATIENCE).unwrap();
    let log = theirs.process.output();
    let places = places(&log, &["zone good.test.: serial 1", "no whole message within"]);
    assert!(places[0].is_some() && places[0] < places[1], "{log}");
}

#[test]
fn a_primary_that_hangs_is_asked_behind_the_others_of_its_zones() {
    let (ours, first) = (primary(), Hanging::new());
    let mut theirs = secondary(&[("good.test".to_owned(), vec![first.address, ours.v4])]);
    theirs.process.wait_for_line("zone good.test.: serial 1", PATIENCE).unwrap();
    let silent = format!("zone good.test. from {}: no whole message within 10 s", first.address);
    assert!(theirs.process.output().contains(&silent), "{}", theirs.process.output());
    // Asked again, the other one answers, and the first is left in peace.
    ours.directory.write("good.test.zone", "@ 60 SOA ns host 2 3600 3600 7200 1\n").unwrap();
    ours.process.signal(Signal::HUP);
    let control = theirs.directory.path().join("control.sock").display().to_string();
    let reload = || tests::command(&["dns", "zone", "reload", "good.test", "--control", &control]);
    let deadline = Instant::now() + PATIENCE;
    while !theirs.process.output().contains("zone good.test.: serial 2") {
        assert!(reload().status.success() && Instant::now() < deadline, "{}", theirs.process.output());
        std::thread::sleep(Duration::from_millis(50));
    }
    let log = theirs.process.output();
    assert_eq!(log.matches(&format!("from {}: no", first.address)).count(), 1, "{log}");
}

#[test]
fn a_primary_that_answers_a_request_for_differences_with_nothing_of_use_is_asked_for_the_whole_zone() {
    for (behaviour, why) in [
        (ForDifferences::Empty, "the answer has no records"),
        (ForDifferences::SoaAlone, "the primary has a newer SOA, and sends nothing behind it"),
        (ForDifferences::End, "it ends the connection without an answer"),
    ] {
        let fake = FakePrimary::start(behaviour);
        let theirs = secondary(&[("good.test".to_owned(), vec![fake.address])]);
        wait_for(&theirs.process, "zone good.test.: serial 1 from");
        fake.set_serial(2);
        let control = theirs.directory.path().join("control.sock").display().to_string();
        let reload = tests::command(&["dns", "zone", "reload", "good.test", "--control", &control]);
        assert!(reload.status.success(), "{reload:?}");
        wait_for(&theirs.process, "zone good.test.: serial 2 from");
        let log = theirs.process.output();
        assert!(log.contains(&format!("not by differences ({why}")), "{behaviour:?}: {log}");
    }
}

#[test]
fn a_port_for_tls_says_which_option_it_needs() {
    let directory = Directory::new().unwrap();
    make_certificate(&directory, "ns.test");
    directory.write("good.test.zone", ZONE).unwrap();
    let text = "[[zone]]\nfile = \"good.test.zone\"\n[encrypted]\ncertificate = \"certificate.pem\"\nkey = \"key.pem\"\n\
                tls = [\"127.0.0.1:0\"]\n";
    let config = directory.write("dns.toml", text).unwrap().display().to_string();
    let ours = Serving::start_in(directory, &["--config", &config], &[]);
    let address = ours.ready.split_whitespace().find_map(|word| word.strip_prefix("tls://")).unwrap();
    let mut theirs = secondary(&[("good.test".to_owned(), vec![address.parse().unwrap()])]);
    theirs.process.wait_for_line("a port for TLS would need the option tls", PATIENCE).unwrap();
}

#[test]
fn a_restart_does_not_forget_when_a_zone_came() {
    let ours = primary();
    let directory = Directory::new().unwrap();
    let text =
        format!("[[secondary]]\nzone = \"good.test\"\nprimaries = [\"{}\"]\nfile = \"good.zone\"\n", ours.v4);
    let config = directory.write("dns.toml", &text).unwrap().display().to_string();
    let mut theirs = Serving::start_in(directory, &["--config", &config], &[]);
    theirs.process.wait_for_line("zone good.test.: serial 1", PATIENCE).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while !theirs.directory.path().join("good.zone").exists() {
        assert!(Instant::now() < deadline, "{}", theirs.process.output());
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(ours);
    theirs.process.signal(Signal::TERM);
    theirs.process.wait(PATIENCE).unwrap();
    let again = Serving::start_in(theirs.directory, &["--config", &config], &[]);
    let control = again.directory.path().join("control.sock").display().to_string();
    let text = String::from_utf8(tests::command(&["dns", "zones", "--control", &control]).stdout).unwrap();
    assert!(text.contains("transferred 20"), "{text}");
}

#[test]
fn a_zone_that_has_expired_is_had_again_from_a_primary_whose_serial_went_back() {
    // No other server is at this address, so that the port is free for both primaries.
    let at = UdpSocket::bind("127.0.0.53:0").unwrap().local_addr().unwrap();
    let short_lived = |serial: u32| with_serial(serial).replace("3600 3600 7200 1", "1 1 3 1");
    let start = |serial| primary_of(&short_lived(serial), &["--listen", &at.to_string()]);
    let mut ours = start(10);
    let theirs = secondary(&[("good.test".to_owned(), vec![at])]);
    wait_for(&theirs.process, "zone good.test.: serial 10 from");
    ours.process.signal(Signal::TERM);
    ours.process.wait(PATIENCE).unwrap();
    wait_for(&theirs.process, "zone good.test. has expired");
    let _ours = start(3);
    wait_for(&theirs.process, "zone good.test.: serial 3 from");
    wait_for(&theirs.process, "zone good.test. is served again after it had expired");
}

#[test]
fn a_zone_that_expired_before_the_start_is_had_from_a_primary_whose_serial_went_back() {
    let ours = primary_of(&with_serial(2), &[]);
    let theirs = with_expired_file(&[ours.v4]);
    wait_for(&theirs.process, "zone good.test. is served again after it had expired");
    wait_for(&theirs.process, &format!("the serial of {} went back, and is taken", ours.v4));
}

#[test]
fn a_zone_that_has_expired_is_had_from_a_primary_with_a_newer_serial_if_one_has_it() {
    let (older, newer) = (primary_of(&with_serial(2), &[]), primary_of(&with_serial(4), &[]));
    let theirs = with_expired_file(&[older.v4, newer.v4]);
    wait_for(&theirs.process, &format!("zone good.test.: serial 4 from {}", newer.v4));
    assert!(!theirs.process.output().contains("serial 2 from"), "{}", theirs.process.output());
}
