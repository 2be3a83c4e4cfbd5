//! SIGHUP: the next version, or the last good one.

use std::time::Duration;

use lab::{Directory, Zone, message};
use rustix::process::Signal;
use tests::{Dig, Load, Serving, Transport, VERSION_NAME, VersionedZone, reload_under_load};

const TURN_MAX: Duration = Duration::from_secs(60);

fn served_version(server: &Serving) -> Vec<String> {
    Dig::ask(server.v4, Transport::Udp, &[VERSION_NAME, "A"]).section("ANSWER")
}

#[test]
fn sighup_picks_up_a_changed_zone() {
    let zone = VersionedZone::new(1, 0);
    let mut server = Serving::start(&zone.file(), &[]);
    assert_eq!(served_version(&server), ["version.example.com. 60 IN A 192.0.2.1"]);
    zone.set(2, 0);
    server.process.signal(Signal::HUP);
    server.process.wait_for_line("reloaded: 1 zone,", TURN_MAX).unwrap();
    assert_eq!(served_version(&server), ["version.example.com. 60 IN A 192.0.2.2"]);
    let by_tcp = Dig::ask(server.v4, Transport::Tcp, &[VERSION_NAME, "A"]);
    assert_eq!(by_tcp.section("ANSWER"), ["version.example.com. 60 IN A 192.0.2.2"]);
}

#[test]
fn a_bad_zone_at_a_reload_is_reported_and_the_last_good_version_served() {
    let zone = VersionedZone::new(1, 0);
    let mut server = Serving::start(&zone.file(), &[]);
    for bad in ["$ORIGIN example.com.\n@ 60 SOA ns host 2 1 1 1 1\nversion 60 A nonsense\n", "", "\0\u{1}("] {
        zone.set_text(bad);
        server.process.signal(Signal::HUP);
        server.process.wait_for_line("1 zone file with errors", TURN_MAX).unwrap();
        assert_eq!(served_version(&server), ["version.example.com. 60 IN A 192.0.2.1"], "{bad:?}");
    }
    assert!(server.process.output().contains("keeps its last good version"), "{}", server.process.output());
    zone.set(3, 0);
    server.process.signal(Signal::HUP);
    server.process.wait_for_line("0 zone files with errors", TURN_MAX).unwrap();
    assert_eq!(served_version(&server), ["version.example.com. 60 IN A 192.0.2.3"]);
}

#[test]
fn a_zone_whose_new_file_is_missing_keeps_its_last_good_version() {
    let directory = lab::Directory::new().unwrap();
    let zone = VersionedZone::new(1, 0);
    let good = format!("[[zone]]\nfile = {:?}\norigin = \"example.com\"\n", zone.file());
    let config = directory.write("dns.toml", &good).unwrap().display().to_string();
    let mut server = Serving::start_in(directory, &["--config", &config], &[]);
    std::fs::write(&config, "[[zone]]\nfile = \"missing\"\norigin = \"example.com\"\n").unwrap();
    server.process.signal(Signal::HUP);
    server.process.wait_for_line("1 zone file with errors", TURN_MAX).unwrap();
    assert_eq!(served_version(&server), ["version.example.com. 60 IN A 192.0.2.1"]);
    std::fs::write(&config, "[[zone]]\nfile = \"missing\"\norigin = \"example.org\"\n").unwrap();
    server.process.signal(Signal::HUP);
    server
        .process
        .wait_for_line("reload failed, and nothing changed: no zone would be left", TURN_MAX)
        .unwrap();
    assert_eq!(served_version(&server), ["version.example.com. 60 IN A 192.0.2.1"]);
}

#[test]
fn the_last_zone_of_a_file_may_go_where_others_come_from_elsewhere() {
    let directory = lab::Directory::new().unwrap();
    let zone = VersionedZone::new(1, 0);
    let secondary = "[[secondary]]\nzone = \"two.test\"\nprimaries = [\"127.0.0.1:1\"]\n";
    let both = format!("{secondary}[[zone]]\nfile = {:?}\norigin = \"example.com\"\n", zone.file());
    let config = directory.write("dns.toml", &both).unwrap().display().to_string();
    let mut server = Serving::start_in(directory, &["--config", &config], &[]);
    assert_eq!(served_version(&server), ["version.example.com. 60 IN A 192.0.2.1"]);
    std::fs::write(&config, secondary).unwrap();
    server.process.signal(Signal::HUP);
    server.process.wait_for_line("reloaded: ", TURN_MAX).unwrap();
    assert!(served_version(&server).is_empty());
}

#[test]
fn a_second_file_for_a_zone_that_is_bad_does_not_bring_back_an_old_version() {
    let directory = lab::Directory::new().unwrap();
    let zone = VersionedZone::new(1, 0);
    let good = format!("[[zone]]\nfile = {:?}\norigin = \"example.com\"\n", zone.file());
    let config = directory.write("dns.toml", &good).unwrap().display().to_string();
    let mut server = Serving::start_in(directory, &["--config", &config], &[]);
    zone.set(2, 0);
    let bad = "[[zone]]\nfile = \"missing\"\norigin = \"example.com\"\n";
    std::fs::write(&config, format!("{good}{bad}")).unwrap();
    server.process.signal(Signal::HUP);
    server.process.wait_for_line("1 zone file with errors", TURN_MAX).unwrap();
    assert_eq!(served_version(&server), ["version.example.com. 60 IN A 192.0.2.2"]);
}

#[test]
fn a_configuration_that_cannot_be_read_at_a_reload_changes_nothing() {
    let directory = lab::Directory::new().unwrap();
    let zone = VersionedZone::new(1, 0);
    let good = format!("[[zone]]\nfile = {:?}\n", zone.file());
    let config = directory.write("dns.toml", &good).unwrap().display().to_string();
    let mut server = Serving::start_in(directory, &["--config", &config], &[]);
    std::fs::write(&config, "[[zone]\n").unwrap();
    zone.set(2, 0);
    server.process.signal(Signal::HUP);
    server.process.wait_for_line("reload failed, and nothing changed", TURN_MAX).unwrap();
    assert_eq!(served_version(&server), ["version.example.com. 60 IN A 192.0.2.1"]);
}

#[test]
fn options_that_need_a_restart_are_named_at_a_reload() {
    let directory = lab::Directory::new().unwrap();
    let zones = format!("[[zone]]\nfile = {:?}\n", Zone::sample().file);
    let config = directory.write("dns.toml", &zones).unwrap().display().to_string();
    let mut server = Serving::start_in(directory, &["--config", &config], &[]);
    let options = [
        ("spin-us", "spin-us = 30\n"),
        ("busy-poll", "busy-poll = \"on\"\n"),
        ("mss-clamp", "mss-clamp = 1300\n"),
        ("tcp", "[tcp]\nlinger-s = 4\n"),
    ];
    for (name, line) in options {
        std::fs::write(&config, format!("{line}{zones}")).unwrap();
        server.process.signal(Signal::HUP);
        server.process.wait_for_line("reloaded: 1 zone,", TURN_MAX).unwrap();
        let named = format!("{name} changed in the configuration: takes effect after a restart");
        assert!(server.process.output().contains(&named), "{}", server.process.output());
    }
}

#[test]
fn over_a_hundred_reloads_every_query_is_answered_from_one_version() {
    let zone = VersionedZone::new(1, 100);
    let mut server = Serving::start(&zone.file(), &[]);
    let load = Load::new(server.v4, VERSION_NAME);
    let tally = reload_under_load(&mut server.process, &zone, &load, |run| run());
    assert_eq!((tally.answered, tally.lost, tally.wrong), (tally.sent, 0, 0), "{tally:?}");
    assert_eq!(tally.stepped_back, 0, "{tally:?}");
    assert!(tally.versions.into_keys().eq(1..=100), "each version has answered");
    assert!(message::ask(server.v4, &message::query(1, VERSION_NAME, message::A), TURN_MAX).is_ok());
}

/// BIND and Knot warn, too: whoever has the version with this serial never asks for the other one.
#[test]
fn other_records_with_the_same_serial_are_served_with_a_warning() {
    let zone = VersionedZone::new(1, 0);
    let mut server = Serving::start(&zone.file(), &[]);
    let text = std::fs::read_to_string(zone.file()).unwrap();
    zone.set_text(&text.replace("192.0.2.1", "192.0.2.9"));
    server.process.signal(Signal::HUP);
    let said = "WARN  sidestep dns: zone example.com.: it has other records, and the same serial 1";
    server.process.wait_for_line(said, TURN_MAX).unwrap();
    assert_eq!(served_version(&server), ["version.example.com. 60 IN A 192.0.2.9"]);
}

#[test]
fn zones_show_that_the_configuration_was_bad_until_it_is_good() {
    let directory = Directory::new().unwrap();
    directory.write("one.test.zone", "@ 60 SOA ns h 1 2 3 4 5\n").unwrap();
    let good = "[[zone]]\nfile = \"one.test.zone\"\n";
    let config = directory.write("dns.toml", good).unwrap().display().to_string();
    let mut server = Serving::start_in(directory, &["--config", &config], &[]);
    let control = server.directory.path().join("control.sock").display().to_string();
    let run = |words: &[&str]| {
        let output = tests::command(&[&["dns"], words, &["--control", &control]].concat());
        String::from_utf8(output.stdout).unwrap()
    };
    server.directory.write("dns.toml", &format!("nonsense = 1\n{good}")).unwrap();
    server.process.signal(Signal::HUP);
    server.process.wait_for_line("reload failed, and nothing changed", TURN_MAX).unwrap();
    let said = "not up to date: the last reload failed: ";
    assert!(run(&["zones"]).contains(said), "{}", run(&["zones"]));
    assert!(run(&["zone", "reload", "one.test"]).contains("is read: serial 1"));
    assert!(run(&["zones"]).contains(said), "one zone that is read again is no good configuration");
    server.directory.write("dns.toml", good).unwrap();
    server.process.signal(Signal::HUP);
    let deadline = std::time::Instant::now() + TURN_MAX;
    while run(&["zones"]).contains(said) {
        assert!(std::time::Instant::now() < deadline, "{}", server.process.output());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn zones_and_metrics_show_that_a_reload_was_bad() {
    let zone = VersionedZone::new(1, 0);
    let mut server = Serving::start(&zone.file(), &[]);
    let control = server.directory.path().join("control.sock").display().to_string();
    let zones =
        || String::from_utf8(tests::command(&["dns", "zones", "--control", &control]).stdout).unwrap();
    assert!(!zones().contains("not up to date"), "{}", zones());
    zone.set_text("@ 60 SOA ns host 2 1 1 1 1\nversion 60 A nonsense\n");
    server.process.signal(Signal::HUP);
    server.process.wait_for_line("1 zone file with errors", TURN_MAX).unwrap();
    assert!(zones().contains("not up to date: ") && zones().contains("nonsense"), "{}", zones());
    assert_eq!(server.counter("zone_has_problem{zone=\"example.com.\"}"), 1);
    zone.set(3, 0);
    server.process.signal(Signal::HUP);
    server.process.wait_for_line("0 zone files with errors", TURN_MAX).unwrap();
    assert!(!zones().contains("not up to date"), "{}", zones());
    assert_eq!(server.counter("zone_has_problem{zone=\"example.com.\"}"), 0);
}
