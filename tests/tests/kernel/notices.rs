//! NOTIFY between two of ours with a key (RFC 1996, 8945), and what the logs say of transfers, updates and refusals.

use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use lab::{Child, Directory, quiet_port};
use rustix::process::Signal;
use tests::{Dig, Serving, Transport};

const PATIENCE: Duration = Duration::from_secs(60);
const KEYS: &str = "[[key]]\nname = \"transfer.key\"\nsecret = \"c2VjcmV0IHNlY3JldA==\"\n\
                    [[key]]\nname = \"other.key\"\nsecret = \"b3RoZXIgc2VjcmV0\"\n";

fn write_zone(directory: &Directory, serial: u32) {
    write_zone_with_retry(directory, serial, 3600);
}

/// Whoever hears of no change asks again in an hour, and whoever fails after `retry` seconds.
fn write_zone_with_retry(directory: &Directory, serial: u32, retry: u32) {
    let text = format!(
        "$ORIGIN one.test.\n@ 60 SOA ns host {serial} 3600 {retry} 7200 1\n 60 NS ns\nns 60 A 192.0.2.1\n"
    );
    directory.write("one.test.zone", &text).unwrap();
}

fn serve(directory: Directory, text: &str, arguments: &[&str]) -> Serving {
    let config = directory.write("dns.toml", text).unwrap().display().to_string();
    Serving::start_in(directory, &["--config", &config], arguments)
}

/// A primary that says of changes to `notify`; who has the key may transfer the zone.
fn primary(notify: &str, rest: &str) -> Serving {
    let directory = Directory::new().unwrap();
    write_zone(&directory, 1);
    let text = format!(
        "allow-transfer = [\"transfer.key\"]\nnotify = [{notify}]\n{KEYS}[[zone]]\nfile = \"one.test.zone\"\n{rest}"
    );
    serve(directory, &text, &[])
}

/// A secondary at `port`, which has a key for its primary, and no other address for it.
fn secondary(port: u16, primary: SocketAddr) -> Serving {
    let text = format!(
        "listen = [\"127.0.0.1:{port}\"]\n{KEYS}[[secondary]]\nzone = \"one.test\"\nprimaries = [\"{primary}\"]\nkey = \"transfer.key\"\n"
    );
    serve(Directory::new().unwrap(), &text, &["--listen", &format!("127.0.0.1:{port}")])
}

fn until_serial(at: SocketAddr, serial: u32, process: &Child) {
    let deadline = Instant::now() + PATIENCE;
    let wanted = serial.to_string();
    loop {
        let dig = Dig::ask(at, Transport::Udp, &["one.test", "SOA", "+short", "+retry=0", "+time=2"]);
        if dig.text.split_whitespace().nth(2) == Some(&wanted) {
            return;
        }
        assert!(Instant::now() < deadline, "{}", process.output());
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn change(primary: &mut Serving, serial: u32) {
    write_zone(&primary.directory, serial);
    primary.process.signal(Signal::HUP);
    primary.process.wait_for_line("reloaded: ", PATIENCE).unwrap();
}

#[test]
fn a_secondary_with_a_key_hears_of_a_change_at_once_from_a_primary_that_has_the_key_for_it() {
    let port = quiet_port();
    let at = SocketAddr::from(([127, 0, 0, 1], port));
    let mut ours = primary(&format!("\"127.0.0.1:{port} key transfer.key\""), "");
    let theirs = secondary(port, ours.v4);
    assert!(theirs.ready.contains("ready: 0 zones, 0 records, 1 secondary zone, on "), "{}", theirs.ready);
    until_serial(at, 1, &theirs.process);
    change(&mut ours, 2);
    until_serial(at, 2, &theirs.process);
}

#[test]
fn a_secret_that_a_reload_replaces_is_what_a_secondary_signs_with() {
    let port = quiet_port();
    let at = SocketAddr::from(([127, 0, 0, 1], port));
    let mut ours = primary(&format!("\"127.0.0.1:{port} key transfer.key\""), "");
    let mut theirs = secondary(port, ours.v4);
    until_serial(at, 1, &theirs.process);
    for server in [&mut theirs, &mut ours] {
        let config = server.directory.path().join("dns.toml");
        let text = std::fs::read_to_string(&config).unwrap();
        let rotated = text.replace("c2VjcmV0IHNlY3JldA==", "bmV3IHNlY3JldA==");
        assert_ne!(text, rotated);
        std::fs::write(&config, rotated).unwrap();
        server.process.signal(Signal::HUP);
        server.process.wait_for_line("reloaded: ", PATIENCE).unwrap();
    }
    change(&mut ours, 2);
    until_serial(at, 2, &theirs.process);
}

#[test]
fn the_primary_that_tells_of_a_change_is_asked_before_one_that_has_not_heard_of_it() {
    let port = quiet_port();
    let zone = "allow-transfer = [\"127.0.0.0/8\"]\n[[zone]]\nfile = \"one.test.zone\"\n";
    let start = |notify: &str, arguments: &[&str]| {
        let directory = Directory::new().unwrap();
        write_zone(&directory, 1);
        serve(directory, &format!("notify = [{notify}]\n{zone}"), arguments)
    };
    let stale = start("", &["--listen", "127.0.0.2:0"]);
    let mut telling = start(&format!("\"127.0.0.1:{port}\""), &[]);
    let is_other = |word: &&str| word.starts_with("127.0.0.2:");
    let first = stale.ready.split_whitespace().find(is_other).unwrap().trim_end_matches(',');
    let text = format!("[[secondary]]\nzone = \"one.test\"\nprimaries = [\"{first}\", \"{}\"]\n", telling.v4);
    let theirs = serve(Directory::new().unwrap(), &text, &["--listen", &format!("127.0.0.1:{port}")]);
    let at = SocketAddr::from(([127, 0, 0, 1], port));
    until_serial(at, 1, &theirs.process);
    change(&mut telling, 2);
    until_serial(at, 2, &theirs.process);
}

#[test]
fn a_primary_that_tells_of_a_change_and_gives_nothing_is_asked_again_though_another_has_our_version() {
    let port = quiet_port();
    let text = |clients: &str| {
        format!(
            "notify = [\"127.0.0.1:{port}\"]\nallow-transfer = [{clients}]\n[[zone]]\nfile = \"one.test.zone\"\n"
        )
    };
    let start = |text: &str, arguments: &[&str]| {
        let directory = Directory::new().unwrap();
        write_zone_with_retry(&directory, 1, 1);
        serve(directory, text, arguments)
    };
    let stale = start(&text("\"127.0.0.0/8\"").replace(&format!("notify = [\"127.0.0.1:{port}\"]"), ""), &[]);
    let telling = start(&text("\"192.0.2.1\""), &[]);
    let secondary =
        format!("[[secondary]]\nzone = \"one.test\"\nprimaries = [\"{}\", \"{}\"]\n", stale.v4, telling.v4);
    let mut theirs =
        serve(Directory::new().unwrap(), &secondary, &["--listen", &format!("127.0.0.1:{port}")]);
    let at = SocketAddr::from(([127, 0, 0, 1], port));
    until_serial(at, 1, &theirs.process);
    write_zone_with_retry(&telling.directory, 2, 1);
    telling.process.signal(Signal::HUP);
    theirs.process.wait_for_line(&format!("from {}:", telling.v4), PATIENCE).unwrap(); // It is refused.
    telling.directory.write("dns.toml", &text("\"127.0.0.0/8\"")).unwrap();
    telling.process.signal(Signal::HUP);
    until_serial(at, 2, &theirs.process);
}

#[test]
fn a_secondary_with_a_key_hears_of_a_change_at_once_from_a_primary_that_signs_no_notices() {
    let port = quiet_port();
    let at = SocketAddr::from(([127, 0, 0, 1], port));
    let mut ours = primary(&format!("\"127.0.0.1:{port}\""), "");
    let theirs = secondary(port, ours.v4);
    until_serial(at, 1, &theirs.process);
    change(&mut ours, 2);
    until_serial(at, 2, &theirs.process);
}

#[test]
fn both_logs_say_that_a_notice_is_signed_with_another_key_than_that_of_its_primary() {
    let port = quiet_port();
    let mut ours = primary(&format!("\"127.0.0.1:{port} key other.key\""), "");
    let mut theirs = secondary(port, ours.v4);
    until_serial(SocketAddr::from(([127, 0, 0, 1], port)), 1, &theirs.process);
    ours.process.wait_for_line("zone one.test.: transfer to 127.0.0.1", PATIENCE).unwrap();
    change(&mut ours, 2);
    theirs
        .process
        .wait_for_line(
            "WARN  sidestep dns: zone one.test.: NOTIFY from 127.0.0.1 is answered with REFUSED",
            PATIENCE,
        )
        .unwrap();
    let said = "answers NOTIFY with REFUSED";
    if !ours.process.output().contains(said) {
        ours.process.wait_for_line(said, PATIENCE).unwrap();
    }
}

#[test]
fn the_log_says_who_changes_a_zone_and_who_may_not() {
    let mut ours = primary("", "allow-update = [\"other.key\"]\n");
    let update = |words: &[&str]| {
        let text = format!(
            "server 127.0.0.1 {}\nzone one.test\nupdate add new.one.test 60 A 192.0.2.9\nsend\n",
            ours.v4.port()
        );
        let file = ours.directory.write("update", &text).unwrap();
        Command::new("nsupdate").args(words).arg(file).output().unwrap().status.success()
    };
    assert!(!update(&[]));
    assert!(update(&["-y", "hmac-sha256:other.key:b3RoZXIgc2VjcmV0"]));
    Dig::ask(ours.v4, Transport::Tcp, &["one.test", "AXFR"]);
    for line in [
        "zone one.test.: update of 127.0.0.1 is answered with REFUSED",
        "zone one.test.: update of 127.0.0.1: NOERROR",
        "zone one.test.: transfer to 127.0.0.1 is answered with REFUSED",
    ] {
        ours.process.wait_for_line(line, PATIENCE).unwrap();
    }
}

#[test]
fn the_log_names_zones_that_a_reload_brings_and_takes_away() {
    let mut ours = primary("", "");
    let two = "@ 60 SOA ns host 1 1 1 1 1\n";
    ours.directory.write("two.test.zone", two).unwrap();
    for (file, line) in [
        ("two.test.zone", "zones that this reload brings: two.test."),
        ("one.test.zone", "zones that this reload takes away: two.test."),
    ] {
        let text = format!("[[zone]]\nfile = \"{file}\"\norigin = \"{}\"\n", file.trim_end_matches(".zone"));
        ours.directory.write("dns.toml", &text).unwrap();
        ours.process.signal(Signal::HUP);
        ours.process.wait_for_line(line, PATIENCE).unwrap();
    }
}

/// A NOTIFY about a zone of this name (RFC 1996, 3.6), as its primary sends it.
fn notify(id: u16, zone: &str) -> Vec<u8> {
    const FLAGS: u16 = 4 << 11 | 0x0400;
    let head = [id, FLAGS, 1, 0, 0, 0].map(u16::to_be_bytes).concat();
    let labels = zone.split('.').flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat());
    head.into_iter().chain(labels).chain([0, 0, 6, 0, 1]).collect()
}

/// Sends NOTIFY about all zones at once, and those again that get no answer, as primaries do.
fn notify_of_all(zones: &[String], server: SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let deadline = Instant::now() + PATIENCE;
    let mut waiting: BTreeSet<u16> = (0..zones.len() as u16).collect();
    while !waiting.is_empty() {
        assert!(Instant::now() < deadline, "{} have no answer", waiting.len());
        // As many as the buffer of its socket takes for sure.
        for id in waiting.iter().take(256) {
            socket.send_to(&notify(*id, &zones[usize::from(*id)]), server).unwrap();
        }
        let (sent, mut answer) = (waiting.len().min(256), [0; 512]);
        for _ in 0..sent {
            let Ok(12..) = socket.recv(&mut answer) else { break };
            assert_eq!(answer[3] & 0xf, 0, "NOERROR");
            waiting.remove(&u16::from_be_bytes([answer[0], answer[1]]));
        }
    }
}

#[test]
fn of_thousands_of_zones_that_change_at_once_every_one_whose_notice_is_answered_is_asked_for() {
    let zones: Vec<String> = (0..6000).map(|number| format!("zone-{number}.test")).collect();
    let directory = Directory::new().unwrap();
    let write = |directory: &Directory, serial: u32| {
        for zone in &zones {
            let text = format!(
                "$ORIGIN {zone}.\n@ 60 SOA ns host {serial} 3600 3600 7200 1\n 60 NS ns\nns 60 A 192.0.2.1\n"
            );
            directory.write(&format!("{zone}.zone"), &text).unwrap();
        }
    };
    write(&directory, 1);
    let tables: String = zones.iter().map(|zone| format!("[[zone]]\nfile = \"{zone}.zone\"\n")).collect();
    let text = format!("allow-transfer = [\"127.0.0.0/8\"]\n[catalog]\nzone = \"made.test\"\n{tables}");
    let mut ours = serve(directory, &text, &[]);
    let text = format!(
        "zone-metrics-max = 10000\n[[secondary]]\nzone = \"made.test\"\ncatalog = true\nprimaries = [\"{}\"]\n",
        ours.v4
    );
    let theirs = serve(Directory::new().unwrap(), &text, &[]);
    let have = |serial: u64| {
        let stats = tests::stats(theirs.directory.path());
        let is_there =
            |(name, value): &&(String, u64)| name.starts_with("zone_serial{zone=\"zone-") && *value == serial;
        stats.iter().filter(is_there).count()
    };
    let until_all_have = |serial: u64| {
        let deadline = Instant::now() + PATIENCE;
        while have(serial) < zones.len() {
            assert!(
                Instant::now() < deadline,
                "{} of {} zones have serial {serial}",
                have(serial),
                zones.len()
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    };
    until_all_have(1);
    write(&ours.directory, 2);
    ours.process.signal(Signal::HUP);
    ours.process.wait_for_line("reloaded: ", PATIENCE).unwrap();
    notify_of_all(&zones, theirs.v4);
    until_all_have(2);
}
