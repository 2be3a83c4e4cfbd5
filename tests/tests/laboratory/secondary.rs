//! Secondary zones: Sidestep follows NSD and Knot, and keeps what it has when they fail.

use std::thread;
use std::time::{Duration, Instant};

use lab::{CLIENT_V4, Child, Device, Directory, Lab, Peer, SERVER_V4, Server, Side, Sidestep, Zone};
use rustix::process::Signal;

use crate::{PATIENCE, empty_lab};

const SECRET: &str = "c2l4dGVlbiBvY3RldHMgb2YgYSBzZWNyZXQh";
const ORIGIN: &str = "example.org";
/// An address that nobody has.
const NOBODY: &str = "10.53.0.99";
const HOSTS: u32 = 100_000;
/// Where a secondary of Sidestep's listens, for NSD.
const BEHIND: &str = "10.53.0.2@5301";

/// Sidestep on the server's side, and its primary on the client's.
struct Setting {
    // Dropped in this order.
    server: Option<Server>,
    primary: Option<Child>,
    behind: Option<Child>,
    directory: Directory,
    lab: Lab,
    _turn: std::sync::MutexGuard<'static, ()>,
}

impl Setting {
    fn new(timers: &str) -> Option<Setting> {
        let (lab, turn) = empty_lab()?;
        let directory = Directory::new().unwrap();
        let setting = Setting { server: None, primary: None, behind: None, directory, lab, _turn: turn };
        setting.write_zone(1, HOSTS, timers);
        Some(setting)
    }

    /// Writes the primary's zone. `timers` are REFRESH, RETRY and EXPIRE.
    fn write_zone(&self, serial: u32, hosts: u32, timers: &str) {
        let mut text = format!(
            "$ORIGIN {ORIGIN}.\n$TTL 60\n@ SOA ns1 host {serial} {timers} 1\n NS ns1\nns1 A 192.0.2.53\n"
        );
        text += &format!("version TXT \"{serial}\"\n");
        (0..hosts).for_each(|host| text += &format!("Host-{host} A 198.51.100.7\n"));
        self.directory.write("primary.zone", &text).unwrap();
    }

    fn start_sidestep(&mut self, key: &str) {
        self.start_sidestep_with(key, &[CLIENT_V4], "");
    }

    /// With more about the zone.
    fn start_sidestep_with(&mut self, key: &str, primaries: &[&str], rest: &str) {
        let text = format!(
            "allow-transfer = [\"{CLIENT_V4}\"]\n[[key]]\nname = \"transfer.key\"\nsecret = \"{SECRET}\"\n\
             [[key]]\nname = \"wrong.key\"\nsecret = \"{SECRET}\"\n\
             [[secondary]]\nzone = \"{ORIGIN}\"\nprimaries = {primaries:?}\nkey = \"{key}\"\nfile = \"secondary.zone\"\n{rest}"
        );
        let config = self.directory.write("sidestep.toml", &text).unwrap().display().to_string();
        let sidestep = Sidestep::on(Device::Xdp).with(&["--config", &config]);
        self.server = Some(Peer::Sidestep(sidestep).start(&self.lab, &Zone::sample()).unwrap());
    }

    fn start_nsd(&mut self) {
        let own = self.directory.path().display();
        let text = format!(
            "server:\n  server-count: 1\n  ip-address: {CLIENT_V4}@53\n  username: \"\"\n  chroot: \"\"\n  database: \"\"\n\
             \x20 zonesdir: \"{own}\"\n  pidfile: \"{own}/nsd.pid\"\n  xfrdfile: \"{own}/xfrd.state\"\n  xfrdir: \"{own}\"\n\
             \x20 zonelistfile: \"{own}/zone.list\"\n  rrl-ratelimit: 0\nremote-control:\n  control-enable: no\n\
             key:\n  name: transfer.key\n  algorithm: hmac-sha256\n  secret: \"{SECRET}\"\n\
             zone:\n  name: {ORIGIN}\n  zonefile: primary.zone\n  provide-xfr: {SERVER_V4} transfer.key\n\
             \x20 provide-xfr: {CLIENT_V4} NOKEY\n  notify: {SERVER_V4} transfer.key\n"
        );
        let config = self.directory.write("nsd.conf", &text).unwrap().display().to_string();
        self.primary = Some(self.lab.spawn_in(Side::Client, "nsd", &["-d", "-c", &config]).unwrap());
    }

    /// Knot makes differences of what changes in the file, and sends them to who asks for them.
    fn start_knot(&mut self) {
        let own = self.directory.path().display();
        let text = format!(
            "server:\n    rundir: \"{own}\"\n    listen: {CLIENT_V4}@53\n    udp-workers: 1\n    tcp-workers: 1\n\
             \x20   background-workers: 1\nlog:\n  - target: stderr\n    any: info\ndatabase:\n    storage: \"{own}\"\n\
             key:\n  - id: transfer.key\n    algorithm: hmac-sha256\n    secret: {SECRET}\n\
             remote:\n  - id: secondary\n    address: {SERVER_V4}@53\n    key: transfer.key\n\
             acl:\n  - id: secondary\n    address: {SERVER_V4}\n    key: transfer.key\n    action: transfer\n\
             \x20 - id: kdig\n    address: {CLIENT_V4}\n    action: transfer\n\
             zone:\n  - domain: {ORIGIN}\n    notify: secondary\n    acl: [ secondary, kdig ]\n    storage: \"{own}\"\n\
             \x20   file: primary.zone\n    zonefile-sync: -1\n    zonefile-load: difference\n    journal-content: changes\n"
        );
        let config = self.directory.write("knot.conf", &text).unwrap().display().to_string();
        self.primary = Some(self.lab.spawn_in(Side::Client, "knotd", &["-c", &config]).unwrap());
    }

    /// NSD beside the primary, at another port: it follows Sidestep.
    fn start_nsd_behind(&mut self) {
        let own = self.directory.path().join("behind");
        std::fs::create_dir(&own).unwrap();
        let own = own.display();
        let text = format!(
            "server:\n  server-count: 1\n  ip-address: {BEHIND}\n  username: \"\"\n  chroot: \"\"\n  database: \"\"\n\
             \x20 zonesdir: \"{own}\"\n  pidfile: \"{own}/nsd.pid\"\n  xfrdfile: \"{own}/xfrd.state\"\n  xfrdir: \"{own}\"\n\
             \x20 zonelistfile: \"{own}/zone.list\"\n  xfrd-reload-timeout: 0\n  rrl-ratelimit: 0\n\
             remote-control:\n  control-enable: no\n\
             zone:\n  name: {ORIGIN}\n  zonefile: behind.zone\n  request-xfr: {SERVER_V4} NOKEY\n\
             \x20 allow-notify: {SERVER_V4} NOKEY\n  provide-xfr: {CLIENT_V4} NOKEY\n"
        );
        let config = self.directory.write("behind.conf", &text).unwrap().display().to_string();
        self.behind = Some(self.lab.spawn_in(Side::Client, "nsd", &["-d", "-c", &config]).unwrap());
    }

    fn kdig(&self, server: &str, words: &[&str]) -> String {
        let at = format!("@{server}");
        let words = [&[&at, ORIGIN, "+time=60", "+retry=0"][..], words].concat();
        self.lab.run_in(Side::Client, "kdig", &words).unwrap_or_default()
    }

    /// Waits until Sidestep's answer for the SOA has `wanted` in it.
    fn wait_for(&self, wanted: &str) {
        self.wait_for_at(SERVER_V4, wanted);
    }

    fn wait_for_at(&self, server: &str, wanted: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = self.kdig(server, &["SOA", "+noall", "+answer", "+header", "+time=2"]);
            if answer.contains(wanted) {
                return;
            }
            let log = self.server.as_ref().map(|server| server.process.output());
            let behind = self.behind.as_ref().map(Child::output);
            assert!(Instant::now() < deadline, "no {wanted:?}: {answer}\n{log:?}\n{behind:?}");
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// The serial that Sidestep serves; `None` without an answer.
    fn serial(&self) -> Option<u32> {
        let answer = self.kdig(SERVER_V4, &["SOA", "+short", "+time=1"]);
        answer.split_whitespace().nth(2)?.parse().ok()
    }

    /// Both have the same records, whose number is `count`.
    fn assert_is_equal(&self, count: usize) {
        self.assert_is_equal_at(SERVER_V4, count);
    }

    fn assert_is_equal_at(&self, server: &str, count: usize) {
        let [primary, secondary] = [CLIENT_V4, server].map(|server| {
            let text = self.kdig(server, &["AXFR", "+noall", "+answer"]);
            let mut lines: Vec<String> =
                text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
            lines.retain(|line| !line.is_empty() && !line.starts_with(';'));
            lines.sort();
            lines
        });
        assert_eq!(secondary.len(), count + 1, "the SOA comes twice");
        assert!(primary == secondary, "primary and secondary differ");
    }

    fn log(&self) -> String {
        self.server.as_ref().unwrap().process.output()
    }

    fn end_sidestep(&mut self) {
        self.server.as_mut().unwrap().process.end();
        self.server = None;
    }
}

/// No timer comes: what changes is followed because of NOTIFY.
const SLOW: &str = "3600 3600 36000";

fn follows(start: fn(&mut Setting), primaries: &[&str]) -> Option<Setting> {
    let mut setting = Setting::new(SLOW)?;
    start(&mut setting);
    setting.start_sidestep_with("transfer.key", primaries, "");
    setting.wait_for(" 1 3600");
    setting.assert_is_equal(HOSTS as usize + 4);
    setting.write_zone(2, HOSTS + 5, SLOW);
    setting.primary.as_ref().unwrap().signal(Signal::HUP);
    setting.wait_for(" 2 3600");
    setting.assert_is_equal(HOSTS as usize + 9);
    Some(setting)
}

#[test]
fn a_zone_of_100_000_names_follows_nsd_by_notices() {
    follows(Setting::start_nsd, &[CLIENT_V4]);
}

#[test]
fn a_zone_of_100_000_names_follows_knot_by_notices_and_differences_and_outlives_a_restart() {
    let Some(mut setting) = follows(Setting::start_knot, &[NOBODY, CLIENT_V4]) else { return };
    let differences = setting.primary.as_ref().unwrap().output();
    assert!(differences.contains("IXFR, outgoing"), "{differences}");
    let journal = setting.directory.path().join("secondary.zone.journal");
    assert!(std::fs::metadata(&journal).unwrap().len() > 100, "the file has version 1");
    let passed_on = setting.kdig(SERVER_V4, &["IXFR=1", "+noall", "+answer"]);
    assert!((10..30).contains(&passed_on.lines().count()), "{passed_on}");
    assert!(setting.log().contains(NOBODY), "the first primary is tried first");
    setting.primary.as_mut().unwrap().kill();
    setting.end_sidestep();
    setting.start_sidestep("transfer.key");
    setting.wait_for(" 2 3600");
}

#[test]
fn a_server_that_is_killed_at_any_instant_still_has_what_it_has_served() {
    const STEP: Duration = Duration::from_millis(120);
    let Some(mut setting) = Setting::new(SLOW) else { return };
    setting.start_knot();
    setting.start_sidestep("transfer.key");
    setting.wait_for(" 1 3600");
    for round in 0..8u32 {
        let serial = 2 + round;
        setting.write_zone(serial, HOSTS + round, SLOW);
        setting.primary.as_ref().unwrap().signal(Signal::HUP);
        let (until, mut served) = (Instant::now() + round * STEP, None);
        while served.is_none() || Instant::now() < until {
            served = setting.serial().or(served);
        }
        setting.server.as_mut().unwrap().process.kill();
        setting.server = None;
        setting.start_sidestep_with("transfer.key", &[NOBODY], "");
        assert!(setting.serial() >= served, "{:?} is kept of {served:?}", setting.serial());
        setting.end_sidestep();
        setting.start_sidestep("transfer.key");
        setting.wait_for(&format!(" {serial} 3600"));
    }
    setting.assert_is_equal(HOSTS as usize + 4 + 7);
}

#[test]
fn a_zone_goes_on_to_the_next_secondary_by_notices() {
    let Some(mut setting) = Setting::new(SLOW) else { return };
    setting.start_knot();
    let notify = format!("notify = [\"{}\"]\n", BEHIND.replace('@', ":"));
    setting.start_sidestep_with("transfer.key", &[CLIENT_V4], &notify);
    setting.wait_for(" 1 3600");
    setting.start_nsd_behind();
    let behind = BEHIND.replace('@', "#");
    setting.wait_for_at(&behind, " 1 3600");
    setting.write_zone(2, HOSTS + 5, SLOW);
    setting.primary.as_ref().unwrap().signal(Signal::HUP);
    setting.wait_for_at(&behind, " 2 3600");
    setting.assert_is_equal_at(&behind, HOSTS as usize + 9);
}

#[test]
fn a_zone_whose_primary_dies_is_served_until_it_expires_and_comes_back_with_it() {
    const FAST: &str = "1 1 12";
    let Some(mut setting) = Setting::new(FAST) else { return };
    setting.start_knot();
    setting.start_sidestep("transfer.key");
    setting.wait_for(" 1 1 1 12");
    setting.primary.as_mut().unwrap().kill();
    setting.wait_for(" 1 1 1 12");
    setting.wait_for("SERVFAIL");
    assert!(setting.log().contains("has expired"), "{}", setting.log());
    setting.start_knot();
    setting.wait_for(" 1 1 1 12");
    assert!(setting.log().contains("is served again after it had expired"), "{}", setting.log());
}

#[test]
fn a_wrong_key_is_refused_and_said() {
    let Some(mut setting) = Setting::new(SLOW) else { return };
    setting.start_knot();
    setting.start_sidestep("wrong.key");
    setting.wait_for("SERVFAIL");
    let deadline = Instant::now() + PATIENCE;
    while !setting.log().contains("BADKEY") {
        assert!(Instant::now() < deadline, "{}", setting.log());
        thread::sleep(Duration::from_millis(100));
    }
}
