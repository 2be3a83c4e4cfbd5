//! Keys of zones that the server signs, over months that pass in moments: the times in their files are made older.

mod compact;
mod csync;
mod fake_parent;
mod late;
mod parent;
mod source;
mod token;
mod unsaved;
mod vanished;

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use lab::Directory;
use rustix::process::Signal;
use serde_json::Value;
use tests::{Dig, Serving, Transport, command, make_keys_older};

/// Nothing here takes longer, on a machine that does other work too.
const PATIENCE: Duration = Duration::from_secs(120);
const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;
const ORIGIN: &str = "one.test";

/// A server that signs one zone.
struct SignedZone {
    server: Serving,
    config: String,
    /// The command that started the server.
    by: Vec<String>,
}

impl SignedZone {
    /// With more about the zone.
    fn start(options: &str) -> SignedZone {
        SignedZone::start_by(Vec::new(), SignedZone::directory(options))
    }

    /// With a key-signing and a zone-signing key of BIND's tools.
    fn start_with_two_keys(options: &str) -> SignedZone {
        let directory = SignedZone::directory(options);
        for kind in [&["-f", "KSK"][..], &[]] {
            let mut keygen = Command::new("dnssec-keygen");
            keygen.args(["-q", "-a", "ECDSAP256SHA256", "-K"]).arg(directory.path()).args(kind).arg(ORIGIN);
            assert!(keygen.output().unwrap().status.success());
        }
        SignedZone::start_by(Vec::new(), directory)
    }

    /// By a command that replaces itself by the server.
    fn start_by(by: Vec<String>, directory: Directory) -> SignedZone {
        let config = directory.path().join("dns.toml").display().to_string();
        let words: Vec<&str> = by.iter().map(String::as_str).collect();
        let server = Serving::start_by(&words, directory, &["--config", &config], &[]);
        SignedZone { server, config, by }
    }

    /// The files of a server.
    fn directory(options: &str) -> Directory {
        let directory = Directory::new().unwrap();
        let text = "@ 60 SOA ns h 1 2 3 4 5\n@ 60 NS ns\nns 60 A 192.0.2.1\nwww 60 A 192.0.2.80\n";
        directory.write("one.test.zone", text).unwrap();
        directory.write("other.test.zone", "@ 60 SOA ns h 1 2 3 4 5\n@ 60 NS ns.one.test.\n").unwrap();
        let other = "[[zone]]\nfile = \"other.test.zone\"\n";
        let text = format!("{other}[[zone]]\nfile = \"one.test.zone\"\ndnssec = true\n{options}");
        directory.write("dns.toml", &text).unwrap();
        directory
    }

    /// The same with the configuration as it is now, after a crash.
    fn restart(self) -> SignedZone {
        let SignedZone { server: Serving { mut process, directory, .. }, by, .. } = self;
        process.kill();
        SignedZone::start_by(by, directory)
    }

    /// What `sidestep dns keys` says of each key; nothing while it cannot say.
    fn keys(&self) -> Vec<Value> {
        let output = command(&["dns", "keys", "--json", "--config", &self.config]);
        if !output.status.success() {
            return Vec::new();
        }
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Waits until the keys are as they should be.
    fn wait_for(&self, what: &str, is_so: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let began = Instant::now();
        loop {
            let keys = self.keys();
            if is_so(&keys) {
                return keys;
            }
            assert!(began.elapsed() < PATIENCE, "{what}: {keys:#?}\n{}", self.server.process.output());
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// The same when there are keys.
    fn wait_for_keys(&self, what: &str, are_so: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        self.wait_for(what, |keys| !keys.is_empty() && are_so(keys))
    }

    /// Has the server look at configuration, keys and parents.
    fn reload(&self) {
        self.server.process.signal(Signal::HUP);
    }

    /// Has a version with another key: the times that have to pass since then are counted from it.
    fn roll(&self) {
        let output = command(&["dns", "key", "roll", ORIGIN, "--config", &self.config]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        self.reload();
        self.wait_until_seen();
    }

    fn wait_until_seen(&self) {
        self.wait_for_keys("the server has all keys", |keys| {
            keys.iter().all(|key| word(key, "state") != "unseen")
        });
    }

    /// The data of the DS record that the parent should have.
    fn ds(&self) -> Vec<Vec<u8>> {
        self.wait_until_seen();
        let output = command(&["dns", "keys", "--ds", "--config", &self.config]);
        let text = String::from_utf8(output.stdout).unwrap();
        let record = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().skip(4).collect();
            let tag: u16 = words[0].parse().unwrap();
            let numbers = [words[1].parse().unwrap(), words[2].parse().unwrap()];
            let octet = |at: usize| u8::from_str_radix(&words[3][at..at + 2], 16).unwrap();
            let digest: Vec<u8> = (0..words[3].len()).step_by(2).map(octet).collect();
            [&tag.to_be_bytes()[..], &numbers, &digest].concat()
        };
        text.lines().map(record).collect()
    }

    /// Data of the apex's records of a type, as the server answers.
    fn at_apex(&self, rtype: &str) -> Vec<String> {
        let dig = Dig::ask(self.server.v4, Transport::Tcp, &[ORIGIN, rtype]);
        let data = |line: &String| line.split(' ').skip(4).collect::<Vec<_>>().join(" ");
        dig.section("ANSWER").iter().map(data).collect()
    }

    /// The serial of the version that is served.
    fn serial(&self) -> u32 {
        let soa = self.at_apex("SOA").remove(0);
        soa.split(' ').nth(2).unwrap().parse().unwrap()
    }

    /// Makes all times of keys older, and has the server look at them.
    fn let_pass(&self, seconds: u64) {
        make_keys_older(self.server.directory.path(), seconds);
        self.reload();
    }
}

/// Adds a host by an update; what nsupdate says.
fn update(zone: &SignedZone, host: &str) -> String {
    let port = zone.server.v4.port();
    let text =
        format!("server 127.0.0.1 {port}\nzone {ORIGIN}\nupdate add {host}.{ORIGIN} 60 A 192.0.2.9\nsend\n");
    let file = zone.server.directory.write("update", &text).unwrap();
    let output = Command::new("nsupdate").args(["-t", "60"]).arg(file).output().unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// What `sidestep dns zones` prints.
fn zones(zone: &SignedZone) -> String {
    let control = zone.server.directory.path().join("control.sock").display().to_string();
    String::from_utf8(command(&["dns", "zones", "--control", &control]).stdout).unwrap()
}

fn word<'v>(key: &'v Value, field: &str) -> &'v str {
    key[field].as_str().unwrap_or_default()
}

/// The key of a tag.
fn of_tag<'v>(keys: &'v [Value], tag: &Value) -> &'v Value {
    keys.iter().find(|key| key["tag"] == *tag).unwrap_or_else(|| panic!("no key {tag}: {keys:#?}"))
}
