//! DNS over TLS, HTTPS and QUIC, asked by the clients that people have: kdig and curl.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use lab::{Child, Directory, sidestep_binary};
use rustix::process::Signal;
use tests::make_certificate;

const PATIENCE: Duration = Duration::from_secs(60);

struct Resolver {
    process: Child,
    directory: Directory,
    /// Of TLS, HTTPS and QUIC.
    addresses: [SocketAddr; 3],
}

fn start(config: &str) -> Resolver {
    let directory = Directory::new().unwrap();
    make_certificate(&directory, "resolver.test");
    let any = "[\"127.0.0.1:0\"]";
    let text = format!(
        "[encrypted]\ncertificate = \"certificate.pem\"\nkey = \"key.pem\"\ntls = {any}\nhttps = {any}\nquic = {any}\n{config}"
    );
    let config = directory.write("resolver.toml", &text).unwrap().display().to_string();
    let control = directory.path().join("control.sock").display().to_string();
    let mut command = Command::new(sidestep_binary());
    command.args(["dns", "resolve", "--listen", "127.0.0.1:0", "--config", &config, "--control", &control]);
    if rustix::process::geteuid().is_root() {
        command.args(["--user", "root"]); // The files of a test are root's.
    }
    let mut process = Child::spawn("sidestep", &mut command).unwrap();
    let ready = process.wait_for_line("ready: resolving on", PATIENCE).unwrap();
    let addresses = ["tls://", "https://", "quic://"].map(|protocol| {
        let address = ready.split_whitespace().find_map(|word| word.strip_prefix(protocol)).unwrap();
        address.parse().unwrap()
    });
    Resolver { process, directory, addresses }
}

impl Resolver {
    fn kdig(&self, number: usize, arguments: &[&str]) -> String {
        let address = self.addresses[number];
        let mut command = Command::new("kdig");
        command.args([
            &format!("@{}", address.ip()),
            "-p",
            &address.port().to_string(),
            "+timeout=30",
            "+retry=0",
        ]);
        let output = command.args(arguments).args(["localhost", "A"]).output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    fn certificate(&self) -> String {
        self.directory.path().join("certificate.pem").display().to_string()
    }
}

const WAYS: [(usize, &str); 4] = [(0, "+tls"), (1, "+https"), (1, "+https-get"), (2, "+quic")];

#[test]
fn kdig_is_answered_over_tls_https_and_quic_and_trusts_the_right_name_alone() {
    let resolver = start("");
    let trust = format!("+tls-ca={}", resolver.certificate());
    for (number, way) in WAYS {
        let mut arguments = vec![way];
        if way != "+quic" {
            arguments.extend([&trust[..], "+tls-hostname=resolver.test"]); // kdig 3.2 asks nothing over QUIC with these.
        }
        if way == "+https-get" {
            arguments.push("+https");
        }
        let answer = resolver.kdig(number, &arguments);
        assert!(answer.contains("status: NOERROR") && answer.contains("127.0.0.1"), "{way}: {answer}");
    }
    let stranger = resolver.kdig(0, &["+tls", &trust, "+tls-hostname=another.test"]);
    assert!(!stranger.contains("status: NOERROR"), "{stranger}");
}

#[test]
fn our_own_client_is_answered_by_all_three_and_trusts_the_right_name_alone() {
    let resolver = start("");
    let trust = format!("+tls-ca={}", resolver.certificate());
    let query = |number: usize, words: &[&str]| {
        let address = resolver.addresses[number];
        let (at, port) = (format!("@{}", address.ip()), address.port().to_string());
        let output = tests::command(
            &[&["dns", "query", &at, "-p", &port, "localhost", "+timeout=30"], words].concat(),
        );
        (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    for (number, way) in [(0, "+tls"), (1, "+https"), (2, "+quic")] {
        for trusted in [&[&trust[..]][..], &[&trust, "+tls-host=resolver.test"], &["+insecure"]] {
            let (code, answer) = query(number, &[&[way, "+short"], trusted].concat());
            assert_eq!((code, &answer[..]), (Some(0), "127.0.0.1\n"), "{way} {trusted:?}");
        }
        for stranger in [&[&trust[..], "+tls-host=another.test"][..], &[]] {
            let (code, said) = query(number, &[&[way], stranger].concat());
            assert_eq!(code, Some(1), "{way} {stranger:?}: {said}");
            assert!(said.contains("certificate"), "{way} {stranger:?}: {said}");
        }
    }
    let (code, said) = query(1, &["+https=elsewhere", "+insecure"]);
    assert!(code == Some(1) && said.contains("HTTP: status 404"), "{said}");
}

#[test]
fn answers_are_padded_and_say_over_tls_how_long_the_connection_may_be_idle() {
    let resolver = start("idle-timeout-s = 7\n");
    for (number, way) in WAYS {
        let arguments = if way == "+https-get" { vec!["+https", way, "+edns"] } else { vec![way, "+edns"] };
        let answer = resolver.kdig(number, &arguments);
        assert!(answer.contains("Received 468 B"), "{way}: {answer}");
    }
    let keepalive = resolver.kdig(0, &["+tls", "+ednsopt=11:"]);
    assert!(keepalive.contains("Option (11): 0046"), "{keepalive}");
    let malformed = resolver.kdig(0, &["+tls", "+ednsopt=11:0001"]);
    assert!(malformed.contains("status: FORMERR"), "{malformed}");
}

#[test]
fn curl_is_told_what_is_wrong_with_its_request() {
    let resolver = start("");
    let base = format!("https://{}", resolver.addresses[1]);
    let status = |arguments: &[&str]| {
        let mut command = Command::new("curl");
        command.args([
            "--cacert",
            &resolver.certificate(),
            "-s",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code} %{http_version}",
        ]);
        String::from_utf8(command.args(arguments).output().unwrap().stdout).unwrap()
    };
    let url = |rest: &str| format!("{base}{rest}");
    let good = url("/dns-query?dns=AAABAAABAAAAAAAACWxvY2FsaG9zdAAAAQAB");
    assert_eq!(status(&[&good]), "200 2");
    assert_eq!(status(&[&url("/dns-query")]), "400 2");
    assert_eq!(status(&[&url("/dns-query?dns=a+b")]), "400 2");
    assert_eq!(status(&[&url("/elsewhere")]), "404 2");
    assert_eq!(status(&["-X", "DELETE", &good]), "405 2");
    assert_eq!(status(&["-d", "x", &url("/dns-query")]), "415 2");
    let long = resolver.directory.write("long", &"x".repeat(70_000)).unwrap().display().to_string();
    let post = ["-H", "content-type: application/dns-message", "--data-binary"];
    assert_eq!(status(&[&post[..], &[&format!("@{long}"), &url("/dns-query")]].concat()), "413 2");
}

#[test]
fn a_reload_brings_a_new_certificate_and_a_broken_one_changes_nothing() {
    let mut resolver = start("");
    let hangup = |resolver: &mut Resolver, line: &str| {
        resolver.process.signal(Signal::HUP);
        resolver.process.wait_for_line(line, PATIENCE).unwrap();
    };
    resolver.directory.write("certificate.pem", "nothing").unwrap();
    hangup(&mut resolver, "the certificate stays as it was");
    assert!(resolver.kdig(0, &["+tls"]).contains("status: NOERROR"));
    make_certificate(&resolver.directory, "renewed.test");
    hangup(&mut resolver, "reloaded: the cache stays");
    let trust = format!("+tls-ca={}", resolver.certificate());
    let renewed = resolver.kdig(0, &["+tls", &trust, "+tls-hostname=renewed.test"]);
    assert!(renewed.contains("status: NOERROR"), "{renewed}");
}
