//! TLS, HTTPS and QUIC of a resolver, which the audit asks over sockets: our own one, before an authority of the audit zone.

use std::process::Command;
use std::time::Duration;

use dns_audit::checks::{Finding, Verdict};
use dns_audit::report::Report;
use lab::{Child, Directory, sidestep_binary};
use tests::make_certificate;

const PATIENCE: Duration = Duration::from_secs(60);
const NAME: &str = "resolver.test";

/// An authority of the audit zone, and a resolver that finds it.
struct Network {
    /// Of the resolver, over UDP and TCP.
    address: String,
    /// Its ports of TLS, HTTPS and QUIC; one that nobody listens at for those it does not have.
    ports: [String; 3],
    directory: Directory,
    _processes: [Child; 2],
}

fn spawn(words: &[&str], ready: &str) -> (Child, String) {
    let mut command = Command::new(sidestep_binary());
    command.arg("dns").args(words);
    if rustix::process::geteuid().is_root() {
        command.args(["--user", "root"]); // The files of a test are root's.
    }
    let mut process = Child::spawn("sidestep", &mut command).unwrap();
    let line = process.wait_for_line(ready, PATIENCE).unwrap();
    (process, line)
}

impl Network {
    /// With these encrypted fronts.
    fn start(fronts: &[&str]) -> Network {
        let directory = Directory::new().unwrap();
        make_certificate(&directory, NAME);
        let words = ["audit", "authority", "--zone", "probe.test", "--listen", "127.0.0.1:0"];
        let (authority, line) = spawn(&words, "ready: audit zone");
        let server = line.rsplit(' ').next().unwrap().to_owned();
        let fronts: String = fronts.iter().map(|front| format!("{front} = [\"127.0.0.1:0\"]\n")).collect();
        let encrypted = match fronts.is_empty() {
            true => String::new(),
            false => format!("[encrypted]\ncertificate = \"certificate.pem\"\nkey = \"key.pem\"\n{fronts}"),
        };
        let text = format!(
            "query-loopback = true\n[dnssec]\nenabled = false\n[[stub]]\nzone = \"probe.test.\"\nservers = [\"{server}\"]\n{encrypted}"
        );
        let config = directory.write("resolver.toml", &text).unwrap().display().to_string();
        let control = directory.path().join("control.sock").display().to_string();
        let words = ["resolve", "--listen", "127.0.0.1:0", "--config", &config, "--control", &control];
        let (resolver, line) = spawn(&words, "ready: resolving on");
        let port = |protocol: &str| {
            let address = line.split_whitespace().find_map(|word| word.strip_prefix(protocol));
            address.map_or("1", |address| address.rsplit(':').next().unwrap()).to_owned()
        };
        let plain = line.split_once("resolving on ").unwrap().1.split_whitespace().next().unwrap().to_owned();
        let ports = ["tls://", "https://", "quic://"].map(port);
        Network { address: plain, ports, directory, _processes: [authority, resolver] }
    }

    /// What the audit finds of a resolver whose certificate should have this name.
    fn audit(&self, name: &str) -> Finding {
        let trust = self.directory.path().join("certificate.pem").display().to_string();
        let target = format!("{}#{name}", self.address);
        let [tls, https, quic] = &self.ports;
        let words =
            ["dns", "audit", "probe", "--zone", "probe.test", "--only", "integrity", "--samples", "4"];
        let more = ["--rate", "100", "--json", "--tls-ca", &trust, "--tls-port", tls, "--https-port", https];
        let output = tests::command(&[&words[..], &more, &["--quic-port", quic, &target]].concat());
        let report: Report = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
        let mut findings = report.resolvers.into_iter().flat_map(|resolver| resolver.findings);
        findings.find(|finding| finding.check == "integrity.encrypted").unwrap()
    }
}

#[test]
fn all_three_with_a_good_certificate_are_good_and_a_certificate_for_another_name_is_told() {
    let network = Network::start(&["tls", "https", "quic"]);
    let good = network.audit(NAME);
    let wanted = ["TLS", "HTTPS", "QUIC"].map(|way| format!("{way}: answers, with a good certificate"));
    assert_eq!((good.verdict, &good.evidence[..]), (Verdict::Good, &wanted[..]), "{}", good.summary);
    let other = network.audit("another.test");
    let wanted = ["TLS", "HTTPS", "QUIC"]
        .map(|way| format!("{way}: answers, with a certificate that is not good for its address"));
    assert_eq!((other.verdict, &other.evidence[..]), (Verdict::Notice, &wanted[..]), "{}", other.summary);
}

#[test]
fn each_way_is_seen_by_itself_and_a_resolver_without_any_is_told() {
    for (fronts, verdict) in [
        (&["tls"][..], Verdict::Good),
        (&["https"], Verdict::Good),
        (&["quic"], Verdict::Good),
        (&[], Verdict::Notice),
    ] {
        let finding = Network::start(fronts).audit(NAME);
        assert_eq!(finding.verdict, verdict, "{fronts:?}: {}", finding.summary);
        let answers = finding.evidence.iter().filter(|line| line.contains("a good certificate"));
        let answers: Vec<String> =
            answers.map(|line| line.split(':').next().unwrap().to_lowercase()).collect();
        assert_eq!(answers, fronts, "{:?}", finding.evidence);
    }
}
