//! Zone transfers over TLS (RFC 9103), with BIND at either end and between two of ours, and over QUIC (RFC 9250).

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lab::{Child, Directory, quiet_port};
use rustix::process::Signal;
use tests::{Dig, Serving, Transport, make_certificate};

const PATIENCE: Duration = Duration::from_secs(60);
const ORIGIN: &str = "example.org";
/// Names of a zone that takes some hundred messages.
const HOSTS: u32 = 50_000;
const NAME: &str = "ns.test";
const REFUSED: u8 = 5;
/// A question for the whole zone, with its length.
const AXFR: &[u8] = b"\0\x1d\x12\x34\0\0\0\x01\0\0\0\0\0\0\x07example\x03org\0\0\xfc\0\x01";

fn zone_text(serial: u32) -> String {
    let hosts = (0..HOSTS).map(|host| format!("Host-{host} A 198.51.100.7\n")).collect::<String>();
    format!(
        "$ORIGIN {ORIGIN}.\n$TTL 60\n@ SOA ns1 host {serial} 1 1 1000 1\n NS ns1\nns1 A 192.0.2.53\n{hosts}"
    )
}

/// A primary of ours with TLS and QUIC; whoever `allowed` names may transfer the zone.
struct Primary {
    serving: Serving,
    tls: SocketAddr,
    quic: SocketAddr,
}

impl Primary {
    fn start(allowed: &str) -> Primary {
        let directory = Directory::new().unwrap();
        make_certificate(&directory, NAME);
        directory.write("primary.zone", &zone_text(1)).unwrap();
        let config = format!(
            "allow-transfer = [{allowed}]\n[[zone]]\nfile = \"primary.zone\"\norigin = \"{ORIGIN}\"\n[encrypted]\n\
             certificate = \"certificate.pem\"\nkey = \"key.pem\"\ntls = [\"127.0.0.1:0\"]\nquic = [\"127.0.0.1:0\"]\n"
        );
        let config = directory.write("dns.toml", &config).unwrap().display().to_string();
        let serving = Serving::start_in(directory, &["--config", &config], &[]);
        let [tls, quic] = ["tls://", "quic://"].map(|protocol| {
            let address = serving.ready.split_whitespace().find_map(|word| word.strip_prefix(protocol));
            address.unwrap().trim_end_matches(',').parse().unwrap()
        });
        Primary { serving, tls, quic }
    }

    fn certificate(&self) -> String {
        self.serving.directory.path().join("certificate.pem").display().to_string()
    }

    /// What a client prints that asks for the whole zone.
    fn transfer(&self, tool: &str, address: SocketAddr, options: &[&str]) -> String {
        let (at, port) = (format!("@{}", address.ip()), address.port().to_string());
        let words = [&[&at, "-p", &port, ORIGIN, "AXFR", "+time=60"], options].concat();
        let output = Command::new(tool).args(&words).output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }
}

impl Primary {
    /// The response code of the first message that OpenSSL's client gets of a transfer.
    fn rcode_by_openssl(&self, options: &[&str]) -> u8 {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-quiet", "-connect", &self.tls.to_string()]).args(options);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut client = command.spawn().unwrap();
        client.stdin.as_mut().unwrap().write_all(AXFR).unwrap();
        let mut head = [0; 2 + 12];
        client.stdout.as_mut().unwrap().read_exact(&mut head).unwrap();
        client.kill().unwrap();
        client.wait().unwrap();
        head[5] & 0xf
    }
}

/// How many messages, SOA records and records a client gets.
fn transfer_over_quic(port: u16) -> Vec<usize> {
    numbers_of("quic_transfer.py", port, &[])
}

/// The numbers that a client of aioquic prints, which `make setup` installs.
fn numbers_of(script: &str, port: u16, more: &[&str]) -> Vec<usize> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = root.parent().unwrap().join("target/programs/python/bin/python");
    let script = root.join("tests/kernel").join(script);
    let output =
        Command::new(python).arg(script).args([&port.to_string(), ORIGIN]).args(more).output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let numbers = text.split_whitespace().map(|word| word.parse().unwrap_or_else(|_| panic!("{text}")));
    numbers.collect()
}

fn hosts_in(text: &str) -> usize {
    text.lines().filter(|line| line.to_ascii_lowercase().starts_with("host-")).count()
}

/// Waits until the server at `address` has that serial of the zone.
fn wait_for_serial(address: SocketAddr, serial: u32, process: &Child) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let dig = Dig::ask(address, Transport::Tcp, &[ORIGIN, "SOA", "+short", "+retry=0", "+time=1"]);
        if dig.text.split_whitespace().nth(2) == Some(&serial.to_string()) {
            return;
        }
        assert!(Instant::now() < deadline, "no serial {serial}: {}\n{}", dig.text, process.output());
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// BIND with one zone at a port of 127.0.0.1, and another one for TLS if it has a certificate.
fn start_bind(directory: &Directory, zone: &str, listen: &str) -> (Child, SocketAddr) {
    let (own, port) = (directory.path().display(), quiet_port());
    let text = format!(
        "options {{ directory \"{own}\"; pid-file none; session-keyfile none; recursion no; dnssec-validation no;\n\
         listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }}; allow-transfer {{ any; }}; notify no;\n\
         {listen} }};\ncontrols {{ }};\n{zone}"
    );
    let config = directory.write("named.conf", &text).unwrap().display().to_string();
    let mut command = Command::new("named");
    command.args(["-g", "-n", "1", "-c", &config]);
    (Child::spawn("named", &mut command).unwrap(), ([127, 0, 0, 1], port).into())
}

#[test]
fn a_question_over_quic_that_its_client_cancels_ends_alone() {
    let primary = Primary::start("");
    assert_eq!(numbers_of("quic_cancel.py", primary.quic.port(), &[]), [0; 5], "the codes of the others");
}

/// RFC 9250, 4.3.3.
#[test]
fn a_question_over_quic_with_keepalive_of_tcp_ends_the_connection() {
    const PROTOCOL_ERROR: usize = 2;
    let primary = Primary::start("");
    assert_eq!(numbers_of("quic_keepalive.py", primary.quic.port(), &[]), [PROTOCOL_ERROR]);
}

#[test]
fn a_client_over_quic_is_who_shook_hands_whatever_address_its_later_packets_come_from() {
    let transfer = |allowed: &str, later: &str| {
        let primary = Primary::start(&format!("\"{allowed}\""));
        numbers_of("quic_transfer.py", primary.quic.port(), &[later])
    };
    assert_eq!(transfer("127.0.0.2", "127.0.0.2"), [1, 0, 0], "one message, which refuses");
    assert_eq!(transfer("127.0.0.1", "127.0.0.2")[1..], [2, HOSTS as usize + 4]);
}

#[test]
fn a_zone_goes_to_clients_over_tls_1_3_and_over_quic() {
    let primary = Primary::start("\"127.0.0.1\"");
    let over_tls = primary.transfer("dig", primary.tls, &["+tls"]);
    assert_eq!(hosts_in(&over_tls), HOSTS as usize, "{}", over_tls.lines().last().unwrap_or_default());
    let over_quic = transfer_over_quic(primary.quic.port());
    // The SOA twice, the name server and its address.
    assert_eq!(over_quic[1..], [2, HOSTS as usize + 4]);
    assert!(over_quic[0] > 10, "many messages: {over_quic:?}");
    let over_tcp = primary.transfer("dig", primary.serving.v4, &["+tcp"]);
    assert_eq!(hosts_in(&over_tcp), HOSTS as usize, "and over TCP as before");
    assert_eq!(primary.rcode_by_openssl(&["-tls1_3", "-alpn", "dot"]), 0);
    assert_eq!(primary.rcode_by_openssl(&["-tls1_2", "-alpn", "dot"]), REFUSED);
    assert_eq!(primary.rcode_by_openssl(&["-tls1_3"]), REFUSED, "without ALPN");
}

#[test]
fn who_may_transfer_by_encrypted_transports_only_is_refused_over_tcp() {
    let primary = Primary::start("\"encrypted:127.0.0.0/8\"");
    let plain = primary.transfer("dig", primary.serving.v4, &["+tcp"]);
    assert!(hosts_in(&plain) == 0 && plain.contains("Transfer failed"), "{plain}");
    assert_eq!(hosts_in(&primary.transfer("dig", primary.tls, &["+tls"])), HOSTS as usize);
}

#[test]
fn bind_follows_over_tls() {
    let primary = Primary::start("\"encrypted:127.0.0.1\"");
    let directory = Directory::new().unwrap();
    let (address, port, ca) = (primary.tls.ip(), primary.tls.port(), primary.certificate());
    let zone = format!(
        "tls strict {{ ca-file \"{ca}\"; remote-hostname \"{NAME}\"; protocols {{ TLSv1.3; }}; }};\n\
         zone \"{ORIGIN}\" {{ type secondary; file \"secondary.zone\"; primaries {{ {address} port {port} tls strict; }}; }};\n"
    );
    let (mut named, at) = start_bind(&directory, &zone, "");
    wait_for_serial(at, 1, &named);
    assert_eq!(hosts_in(&primary.transfer("dig", at, &["+tcp"])), HOSTS as usize);
    named.end();
}

/// A secondary of ours that asks `primary` by TLS, and trusts `ca` about `name`.
fn follow(primary: SocketAddr, ca: &str, name: &str) -> Serving {
    let directory = Directory::new().unwrap();
    let config = format!(
        "allow-transfer = [\"127.0.0.1\"]\n[[secondary]]\nzone = \"{ORIGIN}\"\nprimaries = [\"{primary}\"]\n\
         tls = \"{name}\"\ntls-ca = \"{ca}\"\nfile = \"secondary.zone\"\n"
    );
    let config = directory.write("dns.toml", &config).unwrap().display().to_string();
    Serving::start_in(directory, &["--config", &config], &[])
}

#[test]
fn a_secondary_follows_bind_and_one_of_ours_over_tls() {
    let directory = Directory::new().unwrap();
    make_certificate(&directory, NAME);
    directory.write("primary.zone", &zone_text(1)).unwrap();
    let zone = format!(
        "tls own {{ cert-file \"certificate.pem\"; key-file \"key.pem\"; }};\n\
         zone \"{ORIGIN}\" {{ type primary; file \"primary.zone\"; }};\n"
    );
    let tls_port = quiet_port();
    let (mut named, _) =
        start_bind(&directory, &zone, &format!("listen-on port {tls_port} tls own {{ 127.0.0.1; }};"));
    let ca = directory.path().join("certificate.pem").display().to_string();
    let behind_bind = follow(([127, 0, 0, 1], tls_port).into(), &ca, NAME);
    let ours = Primary::start("\"encrypted:127.0.0.1\"");
    let behind_ours = follow(ours.tls, &ours.certificate(), NAME);
    for secondary in [&behind_bind, &behind_ours] {
        wait_for_serial(secondary.v4, 1, &secondary.process);
        assert_eq!(hosts_in(&ours.transfer("dig", secondary.v4, &["+tcp"])), HOSTS as usize);
    }
    named.end();
}

#[test]
fn a_secondary_takes_nothing_from_a_primary_with_another_name_or_an_unknown_certificate() {
    let ours = Primary::start("\"127.0.0.1\"");
    let other = Directory::new().unwrap();
    make_certificate(&other, NAME);
    let unknown = other.path().join("certificate.pem").display().to_string();
    for (ca, name) in [(ours.certificate(), "other.test"), (unknown, NAME)] {
        let mut secondary = follow(ours.tls, &ca, name);
        let line = secondary.process.wait_for_line("invalid peer certificate", PATIENCE).unwrap();
        assert!(line.contains(ORIGIN), "{line}");
        let dig = Dig::ask(secondary.v4, Transport::Udp, &[ORIGIN, "SOA"]);
        assert_eq!(dig.status(), "SERVFAIL");
    }
}

#[test]
fn a_secondary_trusts_what_the_file_has_after_a_sighup() {
    let ours = Primary::start("\"127.0.0.1\"");
    let other = Directory::new().unwrap();
    make_certificate(&other, NAME);
    let trusted = other.path().join("certificate.pem");
    let mut secondary = follow(ours.tls, &trusted.display().to_string(), NAME);
    secondary.process.wait_for_line("invalid peer certificate", PATIENCE).unwrap();
    std::fs::copy(ours.certificate(), trusted).unwrap();
    secondary.process.signal(Signal::HUP);
    wait_for_serial(secondary.v4, 1, &secondary.process);
}
