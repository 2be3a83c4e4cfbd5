//! Catalog zones (RFC 9432): made for BIND, followed from Knot, and between two of ours, as zones join, leave and change places.

use std::fmt::Write;
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use lab::{Child, Directory, quiet_port};
use rustix::process::Signal;
use tests::{Dig, Serving, Transport};

const PATIENCE: Duration = Duration::from_secs(60);

fn until(what: &str, process: &Child, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}: {}", process.output());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The text of the TXT record of `zone` at a server; none while it does not have the zone.
fn text_of(server: SocketAddr, zone: &str) -> Option<String> {
    let dig = Dig::ask(server, Transport::Udp, &[zone, "TXT", "+norec", "+retry=0", "+time=2"]);
    dig.section("ANSWER").first().and_then(|line| Some(line.split_once("TXT")?.1.trim().to_owned()))
}

fn status_of(server: SocketAddr, zone: &str) -> String {
    Dig::ask(server, Transport::Udp, &[zone, "SOA", "+norec", "+time=2"]).status().to_owned()
}

fn write_zone(directory: &Directory, zone: &str, text: &str) {
    let text = format!(
        "$ORIGIN {zone}.\n@ 60 SOA ns host 1 1 1 1000 1\n 60 NS ns\nns 60 A 192.0.2.1\n@ 60 TXT \"{text}\"\n"
    );
    directory.write(&format!("{zone}.zone"), &text).unwrap();
}

/// A catalog of version 2 with members `(label, zone)`.
fn write_catalog(directory: &Directory, serial: u32, version: &str, members: &[(&str, &str)]) {
    let mut text =
        format!("$ORIGIN catalog.test.\n@ 0 SOA invalid. invalid. {serial} 1 1 1000 1\n 0 NS invalid.\n");
    writeln!(text, "version 0 TXT \"{version}\"").unwrap();
    members.iter().for_each(|(label, zone)| writeln!(text, "{label}.zones 0 PTR {zone}.").unwrap());
    directory.write("catalog.test.zone", &text).unwrap();
}

fn tables(zones: &[&str]) -> String {
    zones.iter().map(|zone| format!("[[zone]]\nfile = \"{zone}.zone\"\n")).collect()
}

/// A primary of ours, of these zones; what it has besides is in `rest`.
fn primary(directory: Directory, zones: &[&str], rest: &str) -> Serving {
    let text = format!("allow-transfer = [\"127.0.0.0/8\"]\n{}{rest}", tables(zones));
    let config = directory.write("dns.toml", &text).unwrap().display().to_string();
    Serving::start_in(directory, &["--config", &config], &[])
}

/// A secondary of ours that follows a catalog.
fn follower(directory: Directory, primary: SocketAddr, catalog: &str) -> Serving {
    let text = format!(
        "[[secondary]]\nzone = \"{catalog}\"\ncatalog = true\nprimaries = [\"{primary}\"]\nfile = \"catalog\"\nmembers = \"members\"\n"
    );
    std::fs::create_dir_all(directory.path().join("members")).unwrap();
    let config = directory.write("dns.toml", &text).unwrap().display().to_string();
    Serving::start_in(directory, &["--config", &config], &[])
}

fn reload(serving: &mut Serving) {
    serving.process.signal(Signal::HUP);
    serving.process.wait_for_line("reloaded: ", PATIENCE).unwrap();
}

#[test]
fn bind_has_the_zones_of_a_catalog_that_is_made_and_follows_when_one_joins() {
    let (directory, port) = (Directory::new().unwrap(), quiet_port());
    ["one.test", "two.test"].iter().for_each(|zone| write_zone(&directory, zone, zone));
    let rest = format!("[catalog]\nzone = \"made.test\"\nnotify = [\"127.0.0.1:{port}\"]\n");
    let mut ours = primary(directory, &["one.test"], &rest);
    let (own, at) = (Directory::new().unwrap(), SocketAddr::from(([127, 0, 0, 1], port)));
    let text = format!(
        "options {{ directory \"{own}\"; pid-file none; session-keyfile none; recursion no; dnssec-validation no;\n\
         listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }}; allow-notify {{ any; }};\n\
         catalog-zones {{ zone \"made.test\" default-primaries {{ 127.0.0.1 port {primary}; }} min-update-interval 0; }}; }};\n\
         controls {{ }};\n\
         zone \"made.test\" {{ type secondary; file \"made\"; primaries {{ 127.0.0.1 port {primary}; }}; }};\n",
        own = own.path().display(),
        primary = ours.v4.port(),
    );
    let config = own.write("named.conf", &text).unwrap().display().to_string();
    let named = Child::spawn("named", Command::new("named").args(["-g", "-n", "1", "-c", &config])).unwrap();
    until("BIND has the zone", &named, || text_of(at, "one.test").is_some());
    assert_eq!(status_of(at, "two.test"), "REFUSED");

    let text = format!("allow-transfer = [\"127.0.0.0/8\"]\n{}{rest}", tables(&["one.test", "two.test"]));
    ours.directory.write("dns.toml", &text).unwrap();
    reload(&mut ours);
    until("BIND has the new zone, too", &named, || text_of(at, "two.test").is_some());
}

#[test]
fn the_zones_of_a_catalog_that_knot_makes_are_served() {
    let (directory, port) = (Directory::new().unwrap(), quiet_port());
    ["one.test", "two.test", "three.test"].iter().for_each(|zone| write_zone(&directory, zone, zone));
    let own = directory.path().display();
    let text = format!(
        "server:\n    rundir: \"{own}\"\n    listen: 127.0.0.1@{port}\n    udp-workers: 1\n    tcp-workers: 1\n\
         \x20   background-workers: 1\nlog:\n  - target: stderr\n    any: info\ndatabase:\n    storage: \"{own}\"\n\
         acl:\n  - id: anybody\n    action: transfer\n\
         template:\n  - id: default\n    storage: \"{own}\"\n    acl: anybody\n    zonefile-sync: -1\n\
         \x20   file: \"%s.zone\"\n  - id: member\n    storage: \"{own}\"\n    acl: anybody\n    catalog-role: member\n    catalog-zone: made.test\n\
         \x20   file: \"%s.zone\"\n    zonefile-sync: -1\n\
         zone:\n  - domain: made.test\n    catalog-role: generate\n    zonefile-load: none\n\
         \x20 - domain: one.test\n    template: member\n  - domain: two.test\n    template: member\n"
    );
    let config = directory.write("knot.conf", &text).unwrap().display().to_string();
    let knot = Child::spawn("knotd", Command::new("knotd").args(["-c", &config])).unwrap();
    let at = SocketAddr::from(([127, 0, 0, 1], port));
    until("Knot serves", &knot, || text_of(at, "two.test").is_some());
    let ours = follower(Directory::new().unwrap(), at, "made.test");
    for zone in ["one.test", "two.test"] {
        until(zone, &ours.process, || text_of(ours.v4, zone) == Some(format!("\"{zone}\"")));
    }

    // Another version is found, too, though Knot says nothing of this catalog by UDP.
    let control = ours.directory.path().join("control.sock").display().to_string();
    let look = || tests::command(&["dns", "zone", "reload", "made.test", "--control", &control]);
    assert_eq!(status_of(at, "made.test"), "REFUSED");
    directory.write("knot.conf", &text.replace("domain: two.test", "domain: three.test")).unwrap();
    knot.signal(Signal::HUP);
    until("three joins", &ours.process, || {
        look().status.success() && text_of(ours.v4, "three.test") == Some("\"three.test\"".to_owned())
    });
    until("two leaves", &ours.process, || status_of(ours.v4, "two.test") == "REFUSED");
}

#[test]
fn zones_join_leave_and_change_places_as_the_catalog_says() {
    let zones = ["catalog.test", "one.test", "two.test", "three.test"];
    let directory = Directory::new().unwrap();
    zones[1..].iter().for_each(|zone| write_zone(&directory, zone, "first"));
    write_catalog(&directory, 1, "2", &[("a", "one.test"), ("b", "two.test")]);
    let mut ours = primary(directory, &zones, "");
    let mut follower = follower(Directory::new().unwrap(), ours.v4, "catalog.test");
    let file = |zone: &str| follower.directory.path().join(format!("members/{zone}.zone"));
    let [one, two, three] = ["one.test", "two.test", "three.test"].map(file);
    let at = follower.v4;
    for zone in &zones[1..3] {
        until(zone, &follower.process, || text_of(at, zone).is_some());
    }
    assert!(one.exists() && two.exists());
    assert_eq!(status_of(at, "three.test"), "REFUSED");

    // REFRESH is a second: the follower sees the change by itself.
    write_catalog(&ours.directory, 2, "2", &[("b", "two.test"), ("c", "three.test")]);
    reload(&mut ours);
    until("three joins", &follower.process, || text_of(at, "three.test").is_some());
    until("one leaves", &follower.process, || status_of(at, "one.test") == "REFUSED");
    assert!(!one.exists() && two.exists() && three.exists());

    // Broken: what there is stays. So it does if nothing is left.
    write_catalog(&ours.directory, 3, "1", &[("b", "two.test")]);
    reload(&mut ours);
    follower
        .process
        .wait_for_line("its zones stay as they are: not a catalog of version 2", PATIENCE)
        .unwrap();
    let control = follower.directory.path().join("control.sock").display().to_string();
    let is_said = |what: &str| {
        let output = tests::command(&["dns", "zones", "--control", &control]).stdout;
        String::from_utf8_lossy(&output).contains(what)
    };
    until("why is said", &follower.process, || {
        is_said("not up to date: its zones stay as they are: not a catalog of version 2")
    });
    write_catalog(&ours.directory, 4, "2", &[]);
    reload(&mut ours);
    follower.process.wait_for_line("has lost all of its zones at once", PATIENCE).unwrap();
    until("that is said", &follower.process, || is_said("it has lost all of its zones at once"));
    assert!(text_of(at, "two.test").is_some() && text_of(at, "three.test").is_some());

    // Another label is another zone (RFC 9432, 5.4): it is transferred anew, though its serial is the same.
    write_zone(&ours.directory, "two.test", "second");
    write_catalog(&ours.directory, 5, "2", &[("d", "two.test"), ("c", "three.test")]);
    reload(&mut ours);
    until("two is new", &follower.process, || text_of(at, "two.test").as_deref() == Some("\"second\""));
    until("all is well", &follower.process, || !is_said("not up to date"));

    // A restart without the primary has all of them.
    ours.process.end();
    follower.process.kill();
    let config = follower.directory.path().join("dns.toml").display().to_string();
    let mut again = Serving::start_in(follower.directory, &["--config", &config], &[]);
    for zone in ["two.test", "three.test"] {
        assert!(text_of(again.v4, zone).is_some(), "{zone} is there at once");
    }

    // One that is configured by itself from now on, with the file that it had there, keeps that.
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text + "[[zone]]\nfile = \"members/two.test.zone\"\n").unwrap();
    again.process.signal(Signal::HUP);
    again.process.wait_for_line("zone two.test. has left its catalog", PATIENCE).unwrap();
    again.process.end();
    assert!(two.exists());
    let alone = Serving::start_in(again.directory, &["--config", &config], &[]);
    assert_eq!(text_of(alone.v4, "two.test").as_deref(), Some("\"second\""));
}

#[test]
fn ten_thousand_zones_come_from_one_catalog() {
    let directory = Directory::new().unwrap();
    let names: Vec<String> = (0..10_000).map(|number| format!("zone-{number}.test")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.iter().for_each(|zone| write_zone(&directory, zone, zone));
    let ours = primary(directory, &names, "[catalog]\nzone = \"made.test\"\n");
    let began = Instant::now();
    let follower = follower(Directory::new().unwrap(), ours.v4, "made.test");
    let socket = follower.directory.path().join("control.sock").display().to_string();
    let is_complete = || {
        let output = tests::command(&["dns", "zones", "--control", &socket]).stdout;
        let lines = String::from_utf8_lossy(&output).into_owned();
        lines.lines().filter(|line| line.starts_with("zone-") && !line.contains("no version")).count()
            == names.len()
    };
    until("all zones", &follower.process, is_complete);
    println!("ten thousand zones came in {:?}", began.elapsed());
    assert_eq!(text_of(follower.v4, "zone-9999.test").as_deref(), Some("\"zone-9999.test\""));
}
