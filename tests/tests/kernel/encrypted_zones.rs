//! Zones over TLS, HTTPS and QUIC.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use lab::{Directory, Zone};
use rustix::process::Signal;
use tests::{Dig, Serving, Transport, make_certificate};

const PATIENCE: Duration = Duration::from_secs(60);

struct Server {
    serving: Serving,
    /// Of TLS, HTTPS and QUIC.
    addresses: [SocketAddr; 3],
}

impl Server {
    fn start() -> Server {
        let directory = Directory::new().unwrap();
        make_certificate(&directory, "ns.test");
        let zone = Zone::sample().file.display().to_string();
        let any = "[\"127.0.0.1:0\"]";
        let config = format!(
            "allow-transfer = [\"127.0.0.1\"]\n[[zone]]\nfile = \"{zone}\"\n[encrypted]\ncertificate = \"certificate.pem\"\n\
             key = \"key.pem\"\ntls = {any}\nhttps = {any}\nquic = {any}\n"
        );
        let config = directory.write("dns.toml", &config).unwrap().display().to_string();
        let serving = Serving::start_in(directory, &["--config", &config], &[]);
        let addresses = ["tls://", "https://", "quic://"].map(|protocol| {
            let address = serving.ready.split_whitespace().find_map(|word| word.strip_prefix(protocol));
            address.unwrap().trim_end_matches(',').parse().unwrap()
        });
        Server { serving, addresses }
    }

    fn kdig(&self, number: usize, words: &[&str]) -> String {
        let address = self.addresses[number];
        let mut command = Command::new("kdig");
        let (at, port) = (format!("@{}", address.ip()), address.port().to_string());
        let output =
            command.args([&at, "-p", &port, "+timeout=30", "+retry=0"]).args(words).output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
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
    assert_eq!(server.serving.counter("encrypted_connections_accepted"), 9);
    for transport in ["tls", "https", "quic"] {
        assert!(server.serving.counter(&format!("dns_queries_{transport}")) >= 3, "{transport}");
    }
    assert_eq!(server.serving.counter("dns_queries_tcp"), 0);
}

#[test]
fn transfers_are_refused_over_https_whoever_may_have_them_elsewhere() {
    let server = Server::start();
    let refused = server.kdig(1, &["+https", "example.com", "AXFR"]);
    assert!(refused.contains("REFUSED"), "{refused}");
    let elsewhere = Dig::ask(server.serving.v4, Transport::Tcp, &["example.com", "AXFR"]);
    assert!(elsewhere.text.contains("XFR size"), "{}", elsewhere.text);
}

#[test]
fn a_reload_brings_a_new_certificate_and_a_broken_one_changes_nothing() {
    let mut server = Server::start();
    server.serving.directory.write("certificate.pem", "nothing").unwrap();
    server.serving.process.signal(Signal::HUP);
    server.serving.process.wait_for_line("the certificate stays as it was", PATIENCE).unwrap();
    server.serving.process.wait_for_line("reloaded: 1 zone", PATIENCE).unwrap();
    assert!(server.kdig(0, &["+tls", "example.com", "SOA"]).contains("status: NOERROR"));
    make_certificate(&server.serving.directory, "renewed.test");
    server.serving.process.signal(Signal::HUP);
    server.serving.process.wait_for_line("reloaded: 1 zone", PATIENCE).unwrap();
    let trust = format!("+tls-ca={}", server.serving.directory.path().join("certificate.pem").display());
    let renewed = server.kdig(0, &["+tls", &trust, "+tls-hostname=renewed.test", "example.com", "SOA"]);
    assert!(renewed.contains("status: NOERROR"), "{renewed}");
    server.serving.process.signal(Signal::TERM);
    assert!(server.serving.process.wait(PATIENCE).unwrap().success());
}
