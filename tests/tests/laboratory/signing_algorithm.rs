//! A change of algorithm (RFC 6781, 4.1.4): at each step dnssec-verify accepts the whole zone, and delv and Unbound, which demands every
//! algorithm of the DS set, an answer.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use lab::{Device, SERVER_V4, Side};
use tests::make_keys_older;

use crate::PATIENCE;
use crate::signing::Signer;
use crate::transfers::{KEY, ORIGIN};

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;
const OLD: &str = "13";
const NEW: &str = "15";

/// A zone whose algorithm changes, and the DS record that the parent has of it.
struct Change {
    signer: Signer,
    ds: String,
}

impl Change {
    /// The algorithms of the DNSKEY set.
    fn of_keys(&self) -> Vec<String> {
        let keys = self.signer.at_apex("DNSKEY");
        distinct(keys.iter().map(|key| key.split(' ').nth(2).unwrap().to_owned()))
    }

    /// Waits until so many keys are served.
    fn wait_for_keys(&self, count: usize) {
        let began = Instant::now();
        while self.signer.at_apex("DNSKEY").len() != count {
            assert!(began.elapsed() < PATIENCE, "{}", self.signer.primary.server.process.output());
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// The algorithms of the signatures of a set.
    fn of_signatures(&self, rtype: &str) -> Vec<String> {
        let words = [&format!("@{SERVER_V4}"), ORIGIN, rtype, "+dnssec", "+noall", "+answer"];
        let text = self.signer.primary.lab.run_in(Side::Client, "kdig", &words).unwrap();
        let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        distinct(lines.filter(|words| words.get(3) == Some(&"RRSIG")).map(|words| words[5].to_owned()))
    }

    /// The records that the parent is to have, without owner, TTL, class and type.
    fn wanted_ds(&self) -> Vec<String> {
        let config = self.signer.primary.directory.path().join("sidestep.toml").display().to_string();
        let output = tests::command(&["dns", "keys", "--config", &config, "--ds"]);
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(|line| line.split(' ').skip(4).collect::<Vec<_>>().join(" ")).collect()
    }

    /// Waits until keys and signatures have these algorithms, and validators accept that.
    fn assert_comes_to(&self, keys: &[&str], of_keys: &[&str], of_addresses: &[&str]) {
        let seen = || [self.of_keys(), self.of_signatures("DNSKEY"), self.of_signatures("SOA")];
        let wanted =
            [keys, of_keys, of_addresses].map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>());
        let began = Instant::now();
        while seen() != wanted {
            let output = self.signer.primary.server.process.output();
            assert!(began.elapsed() < PATIENCE, "{:?} is not {wanted:?}: {output}", seen());
            thread::sleep(Duration::from_millis(100));
        }
        self.assert_is_verified();
        self.assert_delv_accepts();
        self.assert_unbound_accepts();
    }

    fn assert_is_verified(&self) {
        let primary = &self.signer.primary;
        let records = primary.records_from(SERVER_V4, "AXFR", &KEY).unwrap();
        let text = format!("{}\n", records.join("\n"));
        let file = primary.directory.write("transferred", &text).unwrap().display().to_string();
        let words = ["-q", "-z", "-o", ORIGIN, &file];
        let verified = primary.lab.run_in(Side::Client, "dnssec-verify", &words);
        verified.unwrap_or_else(|error| panic!("{error}: {text}"));
    }

    fn assert_delv_accepts(&self) {
        let primary = &self.signer.primary;
        let words: Vec<&str> = self.ds.split(' ').collect();
        let text = format!(
            "trust-anchors {{ {ORIGIN} static-ds {} {} {} \"{}\"; }};\n",
            words[0], words[1], words[2], words[3]
        );
        let anchor = primary.directory.write("delv.anchor", &text).unwrap().display().to_string();
        let root = format!("+root={ORIGIN}");
        let words = [&format!("@{SERVER_V4}"), "-a", &anchor, &root, "ns1.example.com", "A"];
        let said = primary.lab.run_in(Side::Client, "delv", &words).unwrap();
        assert!(said.contains("; fully validated"), "{said}");
    }

    /// One that begins without a cache.
    fn assert_unbound_accepts(&self) {
        let primary = &self.signer.primary;
        let own = primary.directory.path().display();
        let text = format!(
            "server:\n  directory: \"{own}\"\n  chroot: \"\"\n  username: \"\"\n  pidfile: \"\"\n  use-syslog: no\n\
             \x20 interface: 127.0.0.1@5399\n  do-daemonize: no\n  do-not-query-localhost: no\n  num-threads: 1\n\
             \x20 module-config: \"validator iterator\"\n  harden-algo-downgrade: yes\n  val-log-level: 2\n\
             \x20 trust-anchor: \"{ORIGIN}. DS {}\"\n\
             remote-control:\n  control-enable: no\nstub-zone:\n  name: {ORIGIN}\n  stub-addr: {SERVER_V4}\n",
            self.ds
        );
        let config = primary.directory.write("unbound.conf", &text).unwrap().display().to_string();
        let unbound = primary.lab.spawn_in(Side::Client, "unbound", &["-d", "-c", &config]).unwrap();
        let began = Instant::now();
        loop {
            let words =
                ["@127.0.0.1", "-p", "5399", "ns1.example.com", "A", "+dnssec", "+time=2", "+retry=0"];
            let said = primary.lab.run_in(Side::Client, "kdig", &words).unwrap_or_default();
            if said.contains("status: NOERROR") {
                let flags = said.lines().find(|line| line.starts_with(";; Flags:")).unwrap_or_default();
                assert!(flags.contains(" ad"), "{said}");
                return;
            }
            // One that has just begun, on a busy machine, may have waited for an answer for too long.
            assert!(began.elapsed() < PATIENCE, "{said}: {}", unbound.output());
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Lets times of keys pass, and has the server look.
    fn let_pass(&mut self, seconds: u64) {
        make_keys_older(&self.signer.primary.directory.path().join("keys"), seconds);
        self.signer.reload();
    }
}

fn distinct(words: impl Iterator<Item = String>) -> Vec<String> {
    let mut words: Vec<String> = words.collect();
    words.sort();
    words.dedup();
    words
}

fn changes(has_zone_signing_key: bool) {
    let Some(signer) = Signer::start(Device::Kernel) else { return };
    let mut change = Change { signer, ds: String::new() };
    change.ds = change.wanted_ds().remove(0);
    if has_zone_signing_key {
        let keys = change.signer.primary.directory.path().join("keys").display().to_string();
        let words = ["-q", "-K", &keys, "-a", "ECDSAP256SHA256", ORIGIN];
        change.signer.primary.lab.run_in(Side::Server, "dnssec-keygen", &words).unwrap();
        change.signer.reload();
        change.wait_for_keys(2);
        // It signs when caches can have it.
        change.let_pass(3 * HOUR);
    }
    change.assert_comes_to(&[OLD], &[OLD], &[OLD]);
    let old_tag = change.ds.split(' ').next().unwrap().to_owned();

    let config = change.signer.primary.directory.path().join("sidestep.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("dnssec = true\n", "dnssec = true\nalgorithm = \"ED25519\"\n")).unwrap();
    change.signer.reload();
    change.assert_comes_to(&[OLD], &[OLD], &[OLD, NEW]);
    let refused = change.signer.key_command(&["retire", ORIGIN, &old_tag]).unwrap_err();
    assert!(refused.contains("no other key-signing key"), "{refused}");
    let refused = change.signer.key_command(&["roll", ORIGIN]).unwrap_err();
    assert!(refused.contains("a change is under way"), "{refused}");

    change.let_pass(8 * DAY);
    change.assert_comes_to(&[OLD, NEW], &[OLD, NEW], &[OLD, NEW]);
    change.let_pass(3 * HOUR);
    change.assert_comes_to(&[OLD, NEW], &[OLD, NEW], &[OLD, NEW]);
    // The parent takes the record that it is told of, and caches forget the old one.
    let [ds] = &change.wanted_ds()[..] else { panic!("one is wanted") };
    assert_eq!(ds.split(' ').nth(1), Some(NEW), "{ds}");
    change.ds = ds.clone();
    change.assert_comes_to(&[OLD, NEW], &[OLD, NEW], &[OLD, NEW]);

    change.signer.key_command(&["retire", ORIGIN, &old_tag]).unwrap();
    change.signer.reload();
    change.assert_comes_to(&[NEW], &[NEW], &[OLD, NEW]);
    change.let_pass(3 * HOUR);
    change.assert_comes_to(&[NEW], &[NEW], &[NEW]);
}

#[test]
fn a_zone_with_one_key_goes_to_another_algorithm_and_is_valid_at_each_step() {
    changes(false);
}

#[test]
fn a_zone_with_a_zone_signing_key_goes_to_another_algorithm_and_is_valid_at_each_step() {
    changes(true);
}
