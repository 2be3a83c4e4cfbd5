//! Zones that the server signs: BIND's dnssec-verify checks what NSD has of them, after updates, changes of the file, crashes and new keys.

use std::fs;
use std::path::PathBuf;

use lab::{CLIENT_V4, Device, SERVER_V4, Side, Zone};
use rustix::process::Signal;
use tests::VersionedZone;

use crate::transfers::{KEY, ORIGIN, Primary};

/// A server that signs a zone, and NSD behind it.
pub(crate) struct Signer {
    pub(crate) primary: Primary,
    zone: VersionedZone,
    /// A zone beside it, which is not signed.
    other: VersionedZone,
    device: Device,
}

impl Signer {
    pub(crate) fn start(device: Device) -> Option<Signer> {
        Signer::start_with(device, "")
    }

    /// With more about the zone.
    fn start_with(device: Device, more: &str) -> Option<Signer> {
        let (zone, other) = (VersionedZone::new(1, 0), VersionedZone::new(1, 0));
        write(&zone, 3, 10);
        other.set_text("@ 60 SOA ns1 host 1 1 1 1 1\n NS ns1\nns1 A 192.0.2.53\n");
        let rest = format!(
            "[[zone]]\nfile = {:?}\norigin = \"{ORIGIN}\"\ndnssec = true\nkeys = \"keys\"\nnotify = [\"{CLIENT_V4}\"]\n\
             allow-update = [\"transfer.key\"]\n{more}",
            zone.file()
        );
        let mut primary = Primary::start_with(device, unsigned(&other), r#""transfer.key""#, &rest)?;
        assert!(primary.serial_at(SERVER_V4).is_some(), "{}", primary.server.process.output());
        primary.start_nsd();
        Some(Signer { primary, zone, other, device })
    }

    /// NSD gets the version of this serial, and all of it is signed as it should be.
    fn assert_is_signed(&self, serial: u32) {
        self.primary.wait_for_serial(&serial.to_string());
        let records = self.primary.transfer_from(CLIENT_V4, &[]).unwrap();
        let text = format!("{}\n", records.join("\n"));
        let file = self.primary.directory.write("transferred", &text).unwrap().display().to_string();
        // -z: one key signs all.
        let verified =
            self.primary.lab.run_in(Side::Client, "dnssec-verify", &["-q", "-z", "-o", ORIGIN, &file]);
        verified.unwrap_or_else(|error| panic!("{error}: {text}"));
    }

    fn update(&self, lines: &[&str]) {
        self.primary.update("nsupdate", &KEY, lines).unwrap();
    }

    /// The data of the apex's records of a type, in order.
    pub(crate) fn at_apex(&self, rtype: &str) -> Vec<String> {
        let words = [&format!("@{SERVER_V4}"), ORIGIN, rtype, "+short"];
        let text = self.primary.lab.run_in(Side::Client, "kdig", &words).unwrap();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }

    /// The files of keys that end so.
    fn key_files(&self, ending: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.primary.directory.path().join("keys")).unwrap();
        let files = entries.map(|entry| entry.unwrap().path());
        files.filter(|path| path.extension().is_some_and(|other| other == ending)).collect()
    }

    /// The tags of all keys, in the order of their files.
    fn tags(&self) -> Vec<String> {
        let stem = |file: &PathBuf| file.file_stem().unwrap().to_str().unwrap().to_owned();
        let number = |file| stem(file).rsplit('+').next().unwrap().trim_start_matches('0').to_owned();
        self.key_files("key").iter().map(number).collect()
    }

    /// Runs `sidestep dns key`; `Err` has what it says on stderr.
    pub(crate) fn key_command(&self, words: &[&str]) -> Result<(), String> {
        let config = self.primary.directory.path().join("sidestep.toml").display().to_string();
        let output = tests::command(&[&["dns", "key"], words, &["--config", &config]].concat());
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(error) }
    }

    /// Makes all times in the files of keys a year older.
    fn let_a_year_pass(&self) {
        for file in self.key_files("private") {
            let text = fs::read_to_string(&file).unwrap();
            let older = |line: &str| match line.split_once(": 2") {
                Some((word, time)) if time.len() == 13 => {
                    format!("{word}: {}\n", year_before(&format!("2{time}")))
                }
                _ => format!("{line}\n"),
            };
            fs::write(&file, text.lines().map(older).collect::<String>()).unwrap();
        }
    }

    fn kill_and_restart(&mut self) {
        self.primary.kill_and_restart(self.device, &unsigned(&self.other));
    }

    pub(crate) fn reload(&mut self) {
        self.primary.server.process.signal(Signal::HUP);
        self.primary.server.process.wait_for_line("reloaded", crate::PATIENCE).unwrap();
    }
}

fn unsigned(zone: &VersionedZone) -> Zone {
    Zone { origin: "other.test".to_owned(), file: zone.file() }
}

/// A time written YYYYMMDDHHMMSS a year earlier.
fn year_before(time: &str) -> String {
    let year: u32 = time[..4].parse().unwrap();
    format!("{}{}", year - 1, if &time[4..8] == "0229" { "0228" } else { &time[4..8] }) + &time[8..]
}

/// A version with so many hosts.
fn write(zone: &VersionedZone, serial: u32, hosts: u32) {
    let hosts = (0..hosts).map(|host| format!("h{host} A 198.51.100.7\n")).collect::<String>();
    zone.set_text(&format!(
        "$ORIGIN {ORIGIN}.\n@ 60 SOA ns1 host {serial} 3600 3600 36000 60\n NS ns1\nns1 A 192.0.2.53\n{hosts}"
    ));
}

fn follows(device: Device, more: &str) {
    let Some(mut signer) = Signer::start_with(device, more) else { return };
    signer.assert_is_signed(4);
    signer.update(&[
        "update add new.example.com. 60 A 192.0.2.7",
        "update add a.b.new2.example.com. 60 A 192.0.2.8",
    ]);
    signer.assert_is_signed(5);
    signer.update(&["update delete h3.example.com. A", "update add cut.example.com. 60 NS ns1.example.com."]);
    signer.assert_is_signed(6);
    let differences = signer.primary.records_from(SERVER_V4, "IXFR=5", &KEY).unwrap();
    assert!(differences.len() < 30, "what did not change is sent: {differences:?}");

    signer.kill_and_restart();
    assert_eq!(signer.primary.addresses_of("new.example.com"), "192.0.2.7");
    signer.assert_is_signed(6);
    signer.update(&["update delete cut.example.com."]);
    signer.assert_is_signed(7);
    signer.reload();
    signer.assert_is_signed(7);
}

#[test]
fn a_zone_that_is_denied_by_hashes_follows_updates_and_may_change_to_names() {
    follows(Device::Xdp, "nsec3 = true\n");
    let Some(mut signer) = Signer::start_with(Device::Kernel, "nsec3 = true\n") else { return };
    signer.assert_is_signed(4);
    assert_eq!(signer.at_apex("NSEC3PARAM"), ["1 0 0 -"]);
    let config = signer.primary.directory.path().join("sidestep.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("nsec3 = true\n", "")).unwrap();
    signer.reload();
    signer.assert_is_signed(5);
    assert_eq!(signer.at_apex("NSEC3PARAM"), [] as [&str; 0]);
}

#[test]
fn a_signed_zone_follows_updates_on_our_stack() {
    follows(Device::Xdp, "");
}

#[test]
fn a_signed_zone_follows_updates_on_kernel_sockets() {
    follows(Device::Kernel, "");
}

#[test]
fn a_signed_zone_follows_its_file_and_its_keys() {
    let Some(mut signer) = Signer::start(Device::Kernel) else { return };
    signer.assert_is_signed(4);
    write(&signer.zone, 9, 20);
    signer.reload();
    signer.assert_is_signed(9);
    write(&signer.zone, 9, 5); // Whoever forgets the serial is helped, as signing has serials of its own.
    signer.reload();
    signer.assert_is_signed(10);

    let own = signer.primary.directory.path().join("keys").display().to_string();
    for words in [&["-f", "KSK"][..], &[]] {
        let words = [&["-q", "-K", &own, "-a", "ECDSAP256SHA256"], words, &[ORIGIN]].concat();
        signer.primary.lab.run_in(Side::Server, "dnssec-keygen", &words).unwrap();
    }
    signer.reload();
    signer.assert_is_signed(11);
    assert_eq!(signer.at_apex("DNSKEY").len(), 3, "keys that BIND's tools made are taken");
}

#[test]
fn a_key_is_replaced_while_the_zone_stays_valid() {
    let Some(mut signer) = Signer::start(Device::Kernel) else { return };
    signer.assert_is_signed(4);
    let [old] = &signer.at_apex("DNSKEY")[..] else { panic!() };
    let tag = signer.tags()[0].clone();
    signer.key_command(&["roll", ORIGIN]).unwrap();
    let refused = signer.key_command(&["retire", ORIGIN, &tag]).unwrap_err();
    assert!(refused.contains("no other key-signing key"), "{refused}");
    let refused = signer.key_command(&["roll", ORIGIN]).unwrap_err();
    assert!(refused.contains("a change is under way"), "{refused}");
    signer.reload();
    signer.assert_is_signed(5);
    assert_eq!((signer.at_apex("DNSKEY").len(), signer.at_apex("CDS").len()), (2, 0));

    signer.let_a_year_pass();
    signer.reload();
    signer.assert_is_signed(6);
    let cds = signer.at_apex("CDS");
    assert_eq!(
        (cds.len(), cds[0].starts_with(&tag)),
        (1, false),
        "the parent is told of the new key: {cds:?}"
    );
    signer.key_command(&["retire", ORIGIN, &tag]).unwrap();
    signer.reload();
    signer.assert_is_signed(7);
    let new = signer.at_apex("DNSKEY");
    assert_eq!((new.len(), new.contains(old)), (1, false));
}

#[test]
fn a_zone_whose_keys_vanish_is_served_as_it_was_signed() {
    let Some(mut signer) = Signer::start(Device::Kernel) else { return };
    signer.assert_is_signed(4);
    let keys = signer.at_apex("DNSKEY");
    for ending in ["key", "private"] {
        signer
            .key_files(ending)
            .iter()
            .for_each(|file| fs::rename(file, file.with_extension("away")).unwrap());
    }
    write(&signer.zone, 9, 20);
    signer.kill_and_restart();
    signer.assert_is_signed(4);
    assert_eq!((signer.at_apex("DNSKEY"), signer.key_files("key")), (keys, Vec::new()));
}
