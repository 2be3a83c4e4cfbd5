//! Zone transfers to real secondaries, and updates by real clients: NSD, Knot, kdig, nsupdate and knsupdate, with keys and without, over our own
//! stack and over kernel sockets.

use std::collections::BTreeSet;
use std::thread;
use std::time::Instant;

use lab::{CLIENT_V4, Child, Device, Directory, Lab, Peer, SERVER_V4, Server, Side, Sidestep, Zone};
use rustix::process::Signal;
use tests::VersionedZone;

use crate::{PATIENCE, empty_lab};

const SECRET: &str = "c2l4dGVlbiBvY3RldHMgb2YgYSBzZWNyZXQh";
pub(crate) const ORIGIN: &str = "example.com";
/// Names of a zone that takes many messages.
const HOSTS: u32 = 100_000;

/// A primary, Sidestep, in a laboratory.
pub(crate) struct Primary {
    // Dropped in this order.
    secondary: Option<Child>,
    pub(crate) server: Server,
    pub(crate) directory: Directory,
    pub(crate) lab: Lab,
    _turn: std::sync::MutexGuard<'static, ()>,
}

impl Primary {
    /// Serves `zone` by `device`; whoever `allowed` names may transfer it.
    fn start(device: Device, zone: &VersionedZone, allowed: &str) -> Option<Primary> {
        Primary::start_with(device, served(zone), allowed, "")
    }

    /// With more in its configuration.
    pub(crate) fn start_with(device: Device, zone: Zone, allowed: &str, rest: &str) -> Option<Primary> {
        let (lab, turn) = empty_lab()?;
        let directory = Directory::new().unwrap();
        let text = format!(
            "allow-transfer = [{allowed}]\n[[key]]\nname = \"transfer.key\"\nsecret = \"{SECRET}\"\n\
             [[key]]\nname = \"long.key\"\nalgorithm = \"hmac-sha512\"\nsecret = \"{SECRET}\"\n{rest}"
        );
        directory.write("sidestep.toml", &text).unwrap();
        let server = start_in(&directory, device, &lab, &zone);
        Some(Primary { secondary: None, server, directory, lab, _turn: turn })
    }

    /// Kills the server at once, and starts another one with the same files.
    pub(crate) fn kill_and_restart(&mut self, device: Device, zone: &Zone) {
        self.server.process.kill();
        self.server = start_in(&self.directory, device, &self.lab, zone);
    }

    /// What kdig prints of a transfer from `server`: its records, one a line.
    pub(crate) fn transfer_from(&self, server: &str, options: &[&str]) -> Result<Vec<String>, String> {
        self.records_from(server, "AXFR", options)
    }

    pub(crate) fn records_from(
        &self,
        server: &str,
        qtype: &str,
        options: &[&str],
    ) -> Result<Vec<String>, String> {
        let at = format!("@{server}");
        let words = [&[&at, ORIGIN, qtype, "+noall", "+answer", "+time=60"], options].concat();
        let text = self.lab.run_in(Side::Client, "kdig", &words).map_err(|error| error.to_string())?;
        let records = text.lines().filter(|line| !line.is_empty() && !line.starts_with(';'));
        Ok(records.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect())
    }

    /// Whether kdig gets the zone.
    fn gives(&self, options: &[&str]) -> bool {
        self.transfer_from(SERVER_V4, options).is_ok_and(|records| !records.is_empty())
    }

    /// The serial that `server` has; kdig prints nothing of what is not there.
    pub(crate) fn serial_at(&self, server: &str) -> Option<String> {
        let words = [&format!("@{server}"), ORIGIN, "SOA", "+short", "+time=1", "+retry=0"];
        let text = self.lab.run_in(Side::Client, "kdig", &words).ok()?;
        text.split_whitespace().nth(2).map(str::to_owned)
    }

    pub(crate) fn wait_for_serial(&self, serial: &str) {
        let deadline = Instant::now() + PATIENCE;
        while self.serial_at(CLIENT_V4).as_deref() != Some(serial) {
            let secondary = self.secondary.as_ref().map(Child::output);
            let primary = || self.server.process.output();
            assert!(Instant::now() < deadline, "no serial {serial}: {secondary:?}\n{}", primary());
            thread::sleep(std::time::Duration::from_millis(100));
        }
    }

    /// The secondary has what the primary has, which is `records` records.
    fn assert_is_equal(&self, records: usize) {
        let own = self.transfer_from(SERVER_V4, &KEY).unwrap();
        let theirs = self.transfer_from(CLIENT_V4, &[]).unwrap();
        assert_eq!(own.len(), records + 1, "the SOA comes twice");
        let sets = [own, theirs].map(|lines| lines.into_iter().collect::<BTreeSet<_>>());
        assert_eq!(sets[0].len(), records);
        assert!(sets[0] == sets[1], "primary and secondary differ");
    }

    /// Sends an update; `Err` says why it was not carried out.
    pub(crate) fn update(&self, tool: &str, options: &[&str], lines: &[&str]) -> Result<String, String> {
        let text = format!("server {SERVER_V4}\nzone {ORIGIN}\n{}\nsend\n", lines.join("\n"));
        let file = self.directory.write("update", &text).unwrap().display().to_string();
        let words = [options, &[&file]].concat();
        self.lab.run_in(Side::Client, tool, &words).map_err(|error| error.to_string())
    }

    /// The addresses of a name.
    pub(crate) fn addresses_of(&self, name: &str) -> String {
        let words = [&format!("@{SERVER_V4}"), name, "A", "+short"];
        self.lab.run_in(Side::Client, "kdig", &words).unwrap().trim().to_owned()
    }

    pub(crate) fn start_nsd(&mut self) {
        let own = self.directory.path().display();
        let text = format!(
            "server:\n  server-count: 1\n  ip-address: {CLIENT_V4}@53\n  username: \"\"\n  chroot: \"\"\n  database: \"\"\n\
             \x20 zonesdir: \"{own}\"\n  pidfile: \"{own}/nsd.pid\"\n  xfrdfile: \"{own}/xfrd.state\"\n  xfrdir: \"{own}\"\n\
             \x20 zonelistfile: \"{own}/zone.list\"\n  xfrd-reload-timeout: 0\n  rrl-ratelimit: 0\n\
             remote-control:\n  control-enable: no\n\
             key:\n  name: transfer.key\n  algorithm: hmac-sha256\n  secret: \"{SECRET}\"\n\
             zone:\n  name: {ORIGIN}\n  zonefile: secondary.zone\n  request-xfr: {SERVER_V4} transfer.key\n  allow-notify: {SERVER_V4} NOKEY\n\
             \x20 provide-xfr: {CLIENT_V4} NOKEY\n  provide-xfr: 127.0.0.1 NOKEY\n"
        );
        let config = self.directory.write("nsd.conf", &text).unwrap().display().to_string();
        self.secondary = Some(self.lab.spawn_in(Side::Client, "nsd", &["-d", "-c", &config]).unwrap());
    }

    fn start_knot(&mut self) {
        let own = self.directory.path().display();
        let text = format!(
            "server:\n    rundir: \"{own}\"\n    listen: {CLIENT_V4}@53\n    udp-workers: 1\n    tcp-workers: 1\n\
             \x20   background-workers: 1\nlog:\n  - target: stderr\n    any: info\ndatabase:\n    storage: \"{own}\"\n\
             key:\n  - id: transfer.key\n    algorithm: hmac-sha256\n    secret: {SECRET}\n\
             remote:\n  - id: primary\n    address: {SERVER_V4}@53\n    key: transfer.key\n\
             acl:\n  - id: anybody\n    action: transfer\n\
             zone:\n  - domain: {ORIGIN}\n    master: primary\n    acl: anybody\n    storage: \"{own}\"\n    zonefile-sync: -1\n"
        );
        let config = self.directory.write("knot.conf", &text).unwrap().display().to_string();
        self.secondary = Some(self.lab.spawn_in(Side::Client, "knotd", &["-c", &config]).unwrap());
    }
}

/// The server in front of the files in `directory`.
fn start_in(directory: &Directory, device: Device, lab: &Lab, zone: &Zone) -> Server {
    let config = directory.path().join("sidestep.toml").display().to_string();
    Peer::Sidestep(Sidestep::on(device).with(&["--config", &config])).start(lab, zone).unwrap()
}

fn served(zone: &VersionedZone) -> Zone {
    Zone { origin: ORIGIN.to_owned(), file: zone.file() }
}

pub(crate) const KEY: [&str; 2] = ["-y", "hmac-sha256:transfer.key:c2l4dGVlbiBvY3RldHMgb2YgYSBzZWNyZXQh"];

/// A secondary gets a zone of many messages, and what changes in it.
fn follows(device: Device, start: fn(&mut Primary)) {
    let zone = VersionedZone::new(1, HOSTS);
    let Some(mut primary) = Primary::start(device, &zone, r#""transfer.key""#) else { return };
    start(&mut primary);
    primary.wait_for_serial("1");
    primary.assert_is_equal(HOSTS as usize + 4);
    zone.set(2, HOSTS + 7);
    primary.server.process.signal(Signal::HUP);
    primary.wait_for_serial("2");
    primary.assert_is_equal(HOSTS as usize + 11);
    let differences = primary.records_from(SERVER_V4, "IXFR=1", &KEY).unwrap();
    assert!((10..30).contains(&differences.len()), "{differences:?}");
    let whole = primary.records_from(SERVER_V4, "IXFR=0", &KEY).unwrap();
    assert_eq!(whole.len(), HOSTS as usize + 12, "version 0 is not known");
}

#[test]
fn nsd_follows_a_zone_of_100_000_names_on_our_stack() {
    follows(Device::Xdp, Primary::start_nsd);
}

#[test]
fn nsd_follows_a_zone_of_100_000_names_on_kernel_sockets() {
    follows(Device::Kernel, Primary::start_nsd);
}

#[test]
fn knot_follows_a_zone_of_100_000_names_on_our_stack() {
    follows(Device::Xdp, Primary::start_knot);
}

#[test]
fn knot_follows_a_zone_of_100_000_names_on_kernel_sockets() {
    follows(Device::Kernel, Primary::start_knot);
}

#[test]
fn nsd_hears_of_a_change_by_a_notice() {
    let zone = VersionedZone::new(1, 1);
    let set = |serial| {
        zone.set_text(&format!("$ORIGIN {ORIGIN}.\n@ 60 SOA ns1 host {serial} 3600 3600 36000 1\n NS ns1\n"))
    };
    set(1);
    let rest =
        format!("[[zone]]\nfile = {:?}\norigin = \"{ORIGIN}\"\nnotify = [\"{CLIENT_V4}\"]\n", zone.file());
    let Some(mut primary) = Primary::start_with(Device::Xdp, served(&zone), r#""transfer.key""#, &rest)
    else {
        return;
    };
    primary.start_nsd();
    primary.wait_for_serial("1");
    set(2);
    primary.server.process.signal(Signal::HUP);
    primary.wait_for_serial("2");
}

#[test]
fn transfers_go_to_the_keys_that_are_named_and_to_nobody_else() {
    let zone = VersionedZone::new(1, 1000);
    for device in [Device::Xdp, Device::Kernel] {
        let allowed = r#""transfer.key", "long.key", "203.0.113.0/24""#;
        let Some(primary) = Primary::start(device, &zone, allowed) else { return };
        assert!(primary.gives(&KEY));
        assert!(primary.gives(&["-y", &format!("hmac-sha512:long.key:{SECRET}")]));
        assert!(!primary.gives(&[]), "neither key nor address");
        assert!(!primary.gives(&["-y", "hmac-sha256:transfer.key:d3Jvbmc="]), "another secret");
        assert!(!primary.gives(&["-y", &format!("hmac-sha256:other.key:{SECRET}")]), "an unknown key");
        assert!(!primary.gives(&["-y", &format!("hmac-sha512:transfer.key:{SECRET}")]), "another algorithm");
    }
}

#[test]
fn transfers_go_to_the_addresses_that_are_named() {
    let zone = VersionedZone::new(1, 1000);
    for (allowed, gives) in [(format!("\"{CLIENT_V4}\""), true), (String::new(), false)] {
        let Some(primary) = Primary::start(Device::Xdp, &zone, &allowed) else { return };
        assert_eq!(primary.gives(&[]), gives, "{allowed}");
    }
}

#[test]
fn signed_questions_get_signed_answers_by_udp_and_tcp() {
    let zone = VersionedZone::new(1, 1);
    let Some(primary) = Primary::start(Device::Xdp, &zone, "") else { return };
    for transport in ["+notcp", "+tcp"] {
        // kdig checks the signature of the answer.
        let words = ["@10.53.0.1", ORIGIN, "SOA", transport, "+noall", "+answer", "+header", "+tsig"];
        let text = primary.lab.run_in(Side::Client, "kdig", &[&words[..], &KEY].concat()).unwrap();
        for wanted in ["NOERROR", "ns1.example.com.", "hmac-sha256."] {
            assert!(text.contains(wanted), "no {wanted}: {text}");
        }
    }
}

/// A zone of one name server that `transfer.key` may change.
fn updated(device: Device) -> Option<(Primary, VersionedZone)> {
    let zone = VersionedZone::new(1, 1);
    zone.set_text(&format!(
        "$ORIGIN {ORIGIN}.\n@ 60 SOA ns1 host 1 3600 3600 36000 1\n NS ns1\nns1 A 10.53.0.1\n"
    ));
    let rest = format!(
        "[[zone]]\nfile = {:?}\norigin = \"{ORIGIN}\"\nnotify = [\"{CLIENT_V4}\"]\nallow-update = [\"transfer.key\"]\n",
        zone.file()
    );
    let primary = Primary::start_with(device, served(&zone), r#""transfer.key""#, &rest)?;
    Some((primary, zone))
}

fn is_changed_by_updates(device: Device) {
    let Some((mut primary, _zone)) = updated(device) else { return };
    primary.start_nsd();
    primary.wait_for_serial("1");
    let (by_tcp, mut serial) = ([KEY[0], KEY[1], "-v"], 1);
    for (tool, options) in
        [("nsupdate", &KEY[..]), ("nsupdate", &by_tcp), ("knsupdate", &KEY), ("knsupdate", &by_tcp)]
    {
        serial += 1;
        let (name, address) = (format!("host-{serial}.{ORIGIN}"), format!("192.0.2.{serial}"));
        let add = format!("update add {name}. 60 A {address}");
        primary.update(tool, options, &[&format!("prereq nxdomain {name}."), &add]).unwrap();
        assert_eq!(primary.addresses_of(&name), address, "{tool} {options:?}");
        let refused = primary.update(tool, options, &[&format!("prereq nxdomain {name}."), &add]);
        assert!(refused.unwrap_err().contains("YXDOMAIN"), "{tool} {options:?}");
        primary.wait_for_serial(&serial.to_string());
    }
    primary.assert_is_equal(7);
    let differences = primary.records_from(SERVER_V4, "IXFR=1", &KEY).unwrap();
    assert_eq!(differences.len(), 2 + 4 * 3, "{differences:?}");
    let refused = primary.update("nsupdate", &[], &["update delete ns1.example.com."]);
    assert!(refused.unwrap_err().contains("REFUSED"), "no key");
}

#[test]
fn a_zone_is_changed_by_updates_on_our_stack() {
    is_changed_by_updates(Device::Xdp);
}

#[test]
fn a_zone_is_changed_by_updates_on_kernel_sockets() {
    is_changed_by_updates(Device::Kernel);
}

#[test]
fn an_update_that_was_answered_outlives_the_server() {
    let Some((mut primary, zone)) = updated(Device::Kernel) else { return };
    for number in 1..=20 {
        let add = format!("update add host-{number}.{ORIGIN}. 60 A 192.0.2.{number}");
        primary.update("nsupdate", &KEY, &[&add]).unwrap();
    }
    primary.kill_and_restart(Device::Kernel, &served(&zone));
    assert_eq!(primary.serial_at(SERVER_V4).as_deref(), Some("21"));
    assert_eq!(primary.addresses_of(&format!("host-20.{ORIGIN}")), "192.0.2.20");
}
