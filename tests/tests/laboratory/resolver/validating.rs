//! Zones that BIND's tools signed, served by NSD: what the resolver says of them, and what `delv` makes of what it says.

use lab::{Child, Directory, Lab, Side, sidestep_binary};
use tests::{Dig, Transport};

use crate::{PATIENCE, empty_lab};

const RESOLVER: &str = "127.0.0.1:5300";
/// Octets behind 198.51.100. of the servers that the zones name.
const SERVERS: [std::ops::RangeInclusive<u8>; 3] = [1..=3, 10..=24, 110..=124];

struct Signed {
    // Dropped in this order.
    _resolver: Child,
    _servers: Child,
    directory: Directory,
    lab: Lab,
    _turn: std::sync::MutexGuard<'static, ()>,
}

impl Signed {
    fn start() -> Option<Signed> {
        let (lab, turn) = empty_lab()?;
        let directory = Directory::new().unwrap();
        for host in SERVERS.into_iter().flatten() {
            lab.ip(Side::Server, &format!("address add 198.51.100.{host}/32 dev lo")).unwrap();
        }
        let zones = concat!(env!("CARGO_MANIFEST_DIR"), "/../specs/dns/dnssec");
        let servers = serve(&lab, &directory, zones);
        let root = std::fs::read_to_string(format!("{zones}/root.zone")).unwrap();
        let is_key =
            |line: &&str| line.starts_with(". ") && line.contains(" DNSKEY 257 ") && !line.contains("RRSIG");
        let key = root.lines().find(is_key).unwrap();
        directory.write("root.key", &format!("{key}\n")).unwrap();
        directory.write("root.hints", ". 3600 NS a.root.\na.root. 3600 A 198.51.100.1\n").unwrap();
        directory.write("delv.keys", &delv_anchor(key)).unwrap();
        let config = "root-hints = \"root.hints\"\n[dnssec]\ntrust-anchors = \"root.key\"\n";
        let config = directory.write("resolver.toml", config).unwrap().display().to_string();
        let control = directory.path().join("control.sock").display().to_string();
        let options = ["--listen", RESOLVER, "--user", "root", "--config", &config, "--control", &control];
        let command = [&["dns", "resolve"][..], &options].concat();
        let mut resolver =
            lab.spawn_in(Side::Server, &sidestep_binary().display().to_string(), &command).unwrap();
        resolver.wait_for_line("ready: resolving on", PATIENCE).unwrap();
        Some(Signed { _resolver: resolver, _servers: servers, directory, lab, _turn: turn })
    }

    fn dig(&self, question: &[&str]) -> Dig {
        let dig = self.lab.command(Side::Server, "dig");
        Dig::ask_by(dig, RESOLVER.parse().unwrap(), Transport::Udp, question)
    }

    /// What a validator of its own says that asks through the resolver.
    fn delv(&self, name: &str, rtype: &str) -> String {
        let keys = self.directory.path().join("delv.keys").display().to_string();
        let mut delv = self.lab.command(Side::Server, "delv");
        let output =
            delv.args(["@127.0.0.1", "-p", "5300", "-a", &keys, "+root=.", name, rtype]).output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }
}

/// All zones at all addresses.
fn serve(lab: &Lab, directory: &Directory, zones: &str) -> Child {
    let own = directory.path().display();
    let mut config = format!(
        "server:\n  server-count: 1\n  username: \"\"\n  chroot: \"\"\n  database: \"\"\n  pidfile: \"{own}/nsd.pid\"\n  \
         xfrdfile: \"{own}/xfrd.state\"\n  xfrdir: \"{own}\"\n  zonelistfile: \"{own}/zone.list\"\n  rrl-ratelimit: 0\n"
    );
    for host in SERVERS.into_iter().flatten() {
        config += &format!("  ip-address: 198.51.100.{host}@53\n");
    }
    config += "remote-control:\n  control-enable: no\n";
    for entry in std::fs::read_dir(zones).unwrap() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        let Some(name) = file.strip_suffix(".zone") else { continue };
        let origin = match name {
            "root" => ".".to_owned(),
            "tld" => "tld.".to_owned(),
            _ => format!("{name}.tld."),
        };
        config += &format!("zone:\n  name: \"{origin}\"\n  zonefile: \"{zones}/{file}\"\n");
    }
    let config = directory.write("nsd.conf", &config).unwrap().display().to_string();
    let mut servers = lab.spawn_in(Side::Server, "nsd", &["-d", "-c", &config]).unwrap();
    servers.wait_for_line("nsd started", PATIENCE).unwrap();
    servers
}

/// The key of a DNSKEY record, as `delv` reads it.
fn delv_anchor(key: &str) -> String {
    let words: Vec<&str> = key.split_whitespace().skip_while(|word| *word != "DNSKEY").collect();
    let [_, flags, protocol, algorithm, ref data @ ..] = words[..] else { panic!("{key}") };
    format!("trust-anchors {{ . static-key {flags} {protocol} {algorithm} \"{}\"; }};", data.concat())
}

#[test]
fn signed_zones_validate_here_and_again_behind_the_resolver() {
    let Some(signed) = Signed::start() else { return };
    for zone in ["rsasha256-nsec.tld", "ecdsap256sha256-nsec3.tld", "ed25519-nsec.tld", "salted.tld"] {
        for (name, rtype, status) in [
            ("www", "A", "NOERROR"),
            ("x.wild", "A", "NOERROR"),
            ("nothing", "A", "NXDOMAIN"),
            ("www", "MX", "NOERROR"),
        ] {
            let name = format!("{name}.{zone}");
            let answer = signed.dig(&["+dnssec", &name, rtype]);
            assert!(answer.status() == status && answer.has_flag("ad"), "{name} {rtype}: {}", answer.text);
            let verdict = signed.delv(&name, rtype);
            assert!(verdict.contains("fully validated"), "{name} {rtype}: {verdict}");
        }
        let plain = signed.dig(&["+noedns", "+noadflag", &format!("www.{zone}"), "A"]);
        assert!(!plain.has_flag("ad") && plain.section("ANSWER").len() == 1, "{}", plain.text);
    }
}

#[test]
fn what_cannot_be_validated_says_why() {
    let Some(signed) = Signed::start() else { return };
    let unknown = signed.dig(&["www.ed448-nsec.tld", "A"]);
    assert!(unknown.status() == "NOERROR" && unknown.text.contains("EDE: 1"), "{}", unknown.text);
    let iterated = signed.dig(&["nothing.iterated.tld", "A"]);
    assert!(iterated.status() == "NXDOMAIN" && iterated.text.contains("EDE: 27"), "{}", iterated.text);
    assert!(!iterated.has_flag("ad"), "{}", iterated.text);
}
