//! `sidestep dns zone reload`, `retransfer`, `freeze`, `thaw` and `check`.

use std::process::Command;
use std::time::{Duration, Instant};

use lab::Directory;
use rustix::process::Signal;
use tests::{Dig, Serving, Transport, command};

const PATIENCE: Duration = Duration::from_secs(60);

/// A server of `one.test`, which this host may change, and `two.test`.
struct Server {
    serving: Serving,
}

impl Server {
    fn start() -> Server {
        let directory = Directory::new().unwrap();
        let text = "[[zone]]\nfile = \"one.test.zone\"\nallow-update = [\"127.0.0.1\"]\n[[zone]]\nfile = \"two.test.zone\"\n";
        let text = format!("allow-transfer = [\"127.0.0.1\"]\n{text}");
        let config = directory.write("dns.toml", &text).unwrap().display().to_string();
        ["one.test", "two.test"].iter().for_each(|zone| write_zone(&directory, zone, 1, ""));
        Server { serving: Serving::start_in(directory, &["--config", &config], &[]) }
    }

    /// What a command about a zone prints, and whether it succeeds.
    fn zone(&self, verb: &str, zone: &str) -> (bool, String) {
        let control = self.serving.directory.path().join("control.sock").display().to_string();
        let output = command(&["dns", "zone", verb, zone, "--control", &control]);
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).trim().to_owned())
    }

    fn zones(&self) -> String {
        let control = self.serving.directory.path().join("control.sock").display().to_string();
        String::from_utf8(command(&["dns", "zones", "--control", &control]).stdout).unwrap()
    }

    fn serial(&self, zone: &str) -> String {
        let dig = Dig::ask(self.serving.v4, Transport::Udp, &[zone, "SOA", "+short"]);
        dig.text.split_whitespace().nth(2).unwrap_or_default().to_owned()
    }

    /// Adds a name by nsupdate; whether it was carried out.
    fn add(&self, name: &str) -> bool {
        let (at, port) = (self.serving.v4.ip(), self.serving.v4.port());
        let text = format!("server {at} {port}\nzone one.test\nupdate add {name} 60 A 192.0.2.9\nsend\n");
        let file = self.serving.directory.write("update", &text).unwrap();
        Command::new("nsupdate").arg(file).output().unwrap().status.success()
    }

    fn file(&self, zone: &str) -> String {
        std::fs::read_to_string(self.serving.directory.path().join(format!("{zone}.zone"))).unwrap()
    }
}

fn write_zone(directory: &Directory, zone: &str, serial: u32, rest: &str) {
    let text = format!(
        "$ORIGIN {zone}.\n@ 60 SOA ns host {serial} 1 1 1000 1\n 60 NS ns\nns 60 A 192.0.2.1\n{rest}"
    );
    directory.write(&format!("{zone}.zone"), &text).unwrap();
}

#[test]
fn a_zone_that_is_frozen_is_changed_by_hand_and_loses_no_update() {
    let server = Server::start();
    assert!(server.add("before.one.test."));
    assert!(!server.file("one.test").contains("before"), "it is in the journal");
    let (done, said) = server.zone("freeze", "one.test");
    assert!(done && said.contains("zone one.test. is frozen"), "{said}");
    assert!(server.file("one.test").contains("before"));
    assert!(server.zones().lines().any(|line| line.starts_with("one.test.") && line.ends_with("frozen")));
    assert!(!server.add("meanwhile.one.test."), "updates are refused");

    let by_hand = format!("{}byhand.one.test. 60 A 192.0.2.8\n", server.file("one.test"))
        .replace(" 2 1 1 1000 1", " 10 1 1 1000 1");
    server.serving.directory.write("one.test.zone", &by_hand).unwrap();
    let (done, said) = server.zone("thaw", "one.test");
    assert!(done && said == "zone one.test. is read and thawed: serial 10", "{said}");
    assert!(server.add("after.one.test.") && server.serial("one.test") == "11");
    for name in ["before", "byhand", "after"] {
        let dig = Dig::ask(server.serving.v4, Transport::Udp, &[&format!("{name}.one.test"), "A", "+short"]);
        assert!(dig.text.starts_with("192.0.2."), "{name}: {}", dig.text);
    }
    assert!(!server.zones().contains("frozen"));
}

#[test]
fn a_zone_that_is_frozen_stays_as_it_is_also_when_its_options_change() {
    let mut server = Server::start();
    assert!(server.zone("freeze", "one.test").0);
    write_zone(&server.serving.directory, "one.test", 10, "half 60 A 192.0.2.8\n");
    let config = std::fs::read_to_string(server.serving.directory.path().join("dns.toml")).unwrap();
    let file = "file = \"one.test.zone\"\n";
    let changed = config.replace(file, &format!("{file}dnssec = true\n"));
    assert_ne!(config, changed);
    server.serving.directory.write("dns.toml", &changed).unwrap();
    server.serving.process.signal(Signal::HUP);
    server.serving.process.wait_for_line("reloaded: ", PATIENCE).unwrap();
    assert_eq!(server.serial("one.test"), "1");
    let (done, said) = server.zone("thaw", "one.test");
    assert!(done, "{said}");
    let dig = Dig::ask(server.serving.v4, Transport::Udp, &["one.test", "DNSKEY", "+short"]);
    assert!(!dig.text.trim().is_empty() && server.serial("one.test") != "1", "{}", dig.text);
}

#[test]
fn a_zone_is_read_again_alone() {
    let server = Server::start();
    ["one.test", "two.test"].iter().for_each(|zone| write_zone(&server.serving.directory, zone, 2, ""));
    let (done, said) = server.zone("reload", "two.test.");
    assert!(done && said == "zone two.test. is read: serial 2", "{said}");
    assert_eq!((server.serial("one.test"), server.serial("two.test")), ("1".into(), "2".into()));

    write_zone(&server.serving.directory, "two.test", 3, "wrong record\n");
    let (done, said) = server.zone("reload", "two.test");
    assert!(!done && said.contains("is served as it was"), "{said}");
    assert_eq!(server.serial("two.test"), "2");
    for (verb, zone) in [("reload", "three.test"), ("freeze", "three.test"), ("check", "three.test")] {
        let (done, said) = server.zone(verb, zone);
        assert!(!done && said.contains("three.test."), "{verb}: {said}");
    }
    assert!(server.zone("reload", "a..b").1.contains("is no name"));
}

#[test]
fn the_primaries_of_a_secondary_zone_are_asked_at_once() {
    let server = Server::start();
    let directory = Directory::new().unwrap();
    // REFRESH is a day.
    let day = "$ORIGIN two.test.\n@ 60 SOA ns host 5 86400 86400 900000 1\n 60 NS ns\nns 60 A 192.0.2.1\n";
    server.serving.directory.write("two.test.zone", day).unwrap();
    assert!(server.zone("reload", "two.test").0);
    let text = format!("[[secondary]]\nzone = \"two.test\"\nprimaries = [\"{}\"]\n", server.serving.v4);
    let config = directory.write("dns.toml", &text).unwrap().display().to_string();
    let behind = Server { serving: Serving::start_in(directory, &["--config", &config], &[]) };
    let wait_for = |serial: &str| {
        let deadline = Instant::now() + PATIENCE;
        while behind.serial("two.test") != serial {
            assert!(Instant::now() < deadline, "{}", behind.serving.process.output());
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    wait_for("5");
    assert!(behind.zones().contains("transferred 20"), "{}", behind.zones());
    server.serving.directory.write("two.test.zone", &day.replace(" 5 ", " 6 ")).unwrap();
    assert!(server.zone("reload", "two.test").0);
    let (done, said) = behind.zone("reload", "two.test");
    assert!(done && said.contains("its primaries are asked"), "{said}");
    wait_for("6");
    // A serial that went back is followed by order only.
    server.serving.directory.write("two.test.zone", &day.replace(" 5 ", " 4 ")).unwrap();
    assert!(server.zone("reload", "two.test").0 && behind.zone("reload", "two.test").0);
    let deadline = Instant::now() + PATIENCE;
    while !behind.serving.process.output().contains("has the older serial 4") {
        assert!(Instant::now() < deadline, "{}", behind.serving.process.output());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(behind.serial("two.test"), "6");
    let (done, said) = behind.zone("retransfer", "two.test");
    assert!(done && said.contains("all of it is transferred"), "{said}");
    wait_for("4");
    let (done, said) = server.zone("retransfer", "two.test");
    assert!(!done && said.contains("there is no secondary zone two.test. here"), "{said}");
    assert!(!behind.zone("freeze", "two.test").0, "a secondary takes no updates");
}

#[test]
fn what_works_badly_in_a_zone_is_reported_as_it_is_served() {
    let server = Server::start();
    assert_eq!(server.zone("check", "one.test"), (true, "zone one.test.: nothing to report".into()));
    write_zone(&server.serving.directory, "one.test", 2, "@ 60 MX 1 alias\nalias 60 CNAME ns\n");
    assert!(server.zone("reload", "one.test").0);
    let (done, said) = server.zone("check", "one.test");
    assert!(done && said.contains("warning") && said.contains("alias"), "{said}");
}

#[test]
fn an_order_says_that_other_records_came_with_the_same_serial() {
    let server = Server::start();
    write_zone(&server.serving.directory, "two.test", 1, "new 60 A 192.0.2.9\n");
    let (done, said) = server.zone("reload", "two.test");
    assert!(done, "{said}");
    assert!(said.starts_with("zone two.test. is read: serial 1\nwarning: it has other records"), "{said}");
    assert!(server.zone("freeze", "two.test").0);
    write_zone(&server.serving.directory, "two.test", 1, "");
    let (done, said) = server.zone("thaw", "two.test");
    assert!(done && said.contains("warning: it has other records, and the same serial 1"), "{said}");
}

#[test]
fn updates_that_a_file_lacks_whose_serial_is_one_of_theirs_are_set_aside_and_an_order_says_so() {
    let server = Server::start();
    (1..=3).for_each(|host| assert!(server.add(&format!("host{host}.one.test."))));
    write_zone(&server.serving.directory, "one.test", 2, "byhand 60 A 192.0.2.8\n");
    let (done, said) = server.zone("reload", "one.test");
    assert!(
        done && said
            .starts_with("zone one.test. is read: serial 2\nwarning: its journal is not for its file"),
        "{said}"
    );
    let aside = server.serving.directory.path().join("one.test.zone.journal.unfit");
    assert!(aside.exists() && said.contains(&aside.display().to_string()), "{said}");
    assert!(server.add("after.one.test.") && server.serial("one.test") == "3");
}

#[test]
fn updates_that_lead_round_the_circle_of_serials_outlive_a_restart() {
    let server = Server::start();
    let (at, port) = (server.serving.v4.ip(), server.serving.v4.port());
    for (host, serial) in [("a", "2147483648"), ("b", "4294967295"), ("c", "1")] {
        let text = format!(
            "server {at} {port}\nzone one.test\nupdate add {host}.one.test 60 A 192.0.2.9\n\
             update add one.test 60 SOA ns.one.test host.one.test {serial} 1 1 1000 1\nsend\n"
        );
        let file = server.serving.directory.write("update", &text).unwrap();
        assert!(Command::new("nsupdate").arg(file).output().unwrap().status.success());
        assert_eq!(server.serial("one.test"), serial);
    }
    let mut serving = server.serving;
    serving.process.signal(rustix::process::Signal::TERM);
    serving.process.wait(PATIENCE).unwrap();
    let config = serving.directory.path().join("dns.toml").display().to_string();
    let server = Server { serving: Serving::start_in(serving.directory, &["--config", &config], &[]) };
    for host in ["a", "b", "c"] {
        let dig = Dig::ask(server.serving.v4, Transport::Udp, &[&format!("{host}.one.test"), "A", "+short"]);
        assert_eq!(dig.text.trim(), "192.0.2.9", "{host}");
    }
}

#[test]
fn a_zone_that_is_not_there_is_an_error_with_its_name() {
    let server = Server::start();
    let control = server.serving.directory.path().join("control.sock").display().to_string();
    let output = command(&["dns", "zones", "nope.test", "--control", &control]);
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("there is no zone nope.test. here"), "{said}");
    let (done, said) = server.zone("reload", "nope.test");
    assert!(!done && said.contains("one that is new in the configuration comes with SIGHUP"), "{said}");
}
