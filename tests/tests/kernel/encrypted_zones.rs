//! Zones over TLS, HTTPS and QUIC.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use lab::{Child, Directory, sidestep_binary, workspace_root};
use rustix::process::Signal;

use crate::encrypted::make_certificate;

const PATIENCE: Duration = Duration::from_secs(60);

struct Server {
    process: Child,
    directory: Directory,
    /// Of TLS, HTTPS and QUIC.
    addresses: [SocketAddr; 3],
}

impl Server {
    fn start() -> Server {
        let directory = Directory::new().unwrap();
        make_certificate(&directory, "ns.test");
        let zone = workspace_root().join("specs/lab/example.com.zone");
        let any = "[\"127.0.0.1:0\"]";
        let config = format!(
            "listen = {any}\ncontrol = \"control.sock\"\nallow-transfer = [\"127.0.0.1\"]\n[[zone]]\nfile = \"{}\"\n\
             [encrypted]\ncertificate = \"certificate.pem\"\nkey = \"key.pem\"\ntls = {any}\nhttps = {any}\nquic = {any}\n",
            zone.display()
        );
        let config = directory.write("dns.toml", &config).unwrap().display().to_string();
        let control = directory.path().join("control.sock").display().to_string();
        let mut command = Command::new(sidestep_binary());
        command.args(["dns", "serve", "--cores", "0", "--config", &config, "--control", &control]);
        if rustix::process::geteuid().is_root() {
            command.args(["--user", "root"]); // The files of a test are root's.
        }
        let mut process = Child::spawn("sidestep", &mut command).unwrap();
        let ready = process.wait_for_line("ready: 1 zone", PATIENCE).unwrap();
        let addresses = ["tls://", "https://", "quic://"].map(|protocol| {
            let address = ready.split_whitespace().find_map(|word| word.strip_prefix(protocol)).unwrap();
            address.trim_end_matches(',').parse().unwrap()
        });
        Server { process, directory, addresses }
    }

    fn kdig(&self, number: usize, words: &[&str]) -> String {
        let address = self.addresses[number];
        let mut command = Command::new("kdig");
        let (at, port) = (format!("@{}", address.ip()), address.port().to_string());
        let output =
            command.args([&at, "-p", &port, "+timeout=30", "+retry=0"]).args(words).output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    fn count(&self, name: &str) -> u64 {
        let control = self.directory.path().join("control.sock").display().to_string();
        let output = tests::command(&["dns", "stats", "--control", &control]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let value = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        value.unwrap_or_else(|| panic!("no {name} in {text}")).trim().parse().unwrap()
    }
}

#[test]
fn zones_are_served_over_tls_https_and_quic_in_whole_blocks() {
    let server = Server::start();
    for (number, way) in [(0, "+tls"), (1, "+https"), (2, "+quic")] {
        let answer = server.kdig(number, &[way, "+edns", "ftp.example.com", "A"]);
        assert!(answer.contains("status: NOERROR") && answer.contains("ANSWER: 3"), "{way}: {answer}");
        assert!(answer.contains("qr aa") && answer.contains("Received 468 B"), "{way}: {answer}");
        let missing = server.kdig(number, &[way, "nobody.example.com", "A"]);
        assert!(missing.contains("status: NXDOMAIN"), "{way}: {missing}");
        // Larger than any datagram.
        let big = server.kdig(number, &[way, "big.example.com", "TXT"]);
        assert!(big.contains("ANSWER: 8"), "{way}: {big}");
    }
    assert_eq!(server.count("encrypted_connections_accepted"), 9);
    assert!(server.count("dns_queries_tcp") >= 9);
}

#[test]
fn transfers_are_refused_there_whoever_may_have_them_elsewhere() {
    let server = Server::start();
    let refused = server.kdig(0, &["+tls", "example.com", "AXFR"]);
    assert!(refused.contains("REFUSED"), "{refused}");
    let address = server.addresses[0];
    assert!(address.port() != 0 && server.kdig(0, &["+tls", "example.com", "SOA"]).contains("ANSWER: 1"));
}

#[test]
fn a_reload_brings_a_new_certificate_and_a_broken_one_changes_nothing() {
    let mut server = Server::start();
    server.directory.write("certificate.pem", "nothing").unwrap();
    server.process.signal(Signal::HUP);
    server.process.wait_for_line("the certificate stays as it was", PATIENCE).unwrap();
    server.process.wait_for_line("reloaded: 1 zone", PATIENCE).unwrap();
    assert!(server.kdig(0, &["+tls", "example.com", "SOA"]).contains("status: NOERROR"));
    make_certificate(&server.directory, "renewed.test");
    server.process.signal(Signal::HUP);
    server.process.wait_for_line("reloaded: 1 zone", PATIENCE).unwrap();
    let trust = format!("+tls-ca={}", server.directory.path().join("certificate.pem").display());
    let renewed = server.kdig(0, &["+tls", &trust, "+tls-hostname=renewed.test", "example.com", "SOA"]);
    assert!(renewed.contains("status: NOERROR"), "{renewed}");
    server.process.signal(Signal::TERM);
    assert!(server.process.wait(PATIENCE).unwrap().success());
}
