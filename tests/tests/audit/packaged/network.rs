//! A root, the audit zone below it, and resolvers, in one namespace.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use dns_audit::report::Report;
use lab::{Child, Directory, Lab, ResolverMake, ResolverSetting, RunningResolver, Side, sidestep_binary};

/// The audit zone.
const ZONE: &str = "audit.";
const ROOT: Ipv4Addr = Ipv4Addr::new(10, 53, 1, 1);
/// The servers of the audit zone.
const SERVERS: [Ipv4Addr; 3] =
    [Ipv4Addr::new(10, 53, 1, 11), Ipv4Addr::new(10, 53, 1, 12), Ipv4Addr::new(10, 53, 1, 13)];
/// Where the first resolver listens.
const FIRST_PORT: u16 = 5300;
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct Network {
    lab: Lab,
    hints: String,
    anchor: String,
    _processes: [Child; 2],
    _directory: Directory,
}

impl Network {
    /// Starts the root and the authority; both are signed.
    pub(super) fn start() -> Network {
        let (lab, directory) = (Lab::new().unwrap(), Directory::new().unwrap());
        for address in SERVERS.iter().chain([&ROOT]) {
            lab.ip(Side::Client, &format!("address add {address}/32 dev lo")).unwrap();
        }
        let (authority, delegation) = start_authority(&lab, &directory);
        let zone = format!(
            "$TTL 3600\n. SOA ns.root. hostmaster.root. 1 3600 900 86400 60\n. NS ns.root.\nns.root. A {ROOT}\n{delegation}"
        );
        let (root, anchor) = start_root(&lab, &directory, &zone);
        let hints = format!(". 3600 NS ns.root.\nns.root. 3600 A {ROOT}\n");
        Network { lab, hints, anchor, _processes: [authority, root], _directory: directory }
    }

    pub(super) fn resolver(&self, number: u8, make: ResolverMake, more: &str) -> RunningResolver {
        let source = Ipv4Addr::new(10, 53, 2, 1 + number);
        self.lab.ip(Side::Client, &format!("address add {source}/32 dev lo")).unwrap();
        let port = FIRST_PORT + u16::from(number);
        let setting = ResolverSetting { port, source, hints: &self.hints, anchor: &self.anchor, more };
        make.start(&self.lab, Side::Client, &setting).unwrap()
    }

    /// What `sidestep dns audit probe` reports of resolvers.
    pub(super) fn probe(&self, resolvers: &[&RunningResolver], more: &[&str], within: Duration) -> Report {
        let mut words: Vec<String> =
            ["dns", "audit", "probe", "--zone", ZONE, "--json", "--signed", "--plain", "--together"]
                .map(str::to_owned)
                .into();
        words.extend(
            ["--rate", "200", "--total-rate", "10000", "--ttl", "6", "--samples", "12"].map(str::to_owned),
        );
        words.extend(more.iter().map(|word| (*word).to_owned()));
        words.extend(SERVERS.iter().flat_map(|server| ["--authority".to_owned(), server.to_string()]));
        // The name is for the reader: nothing is asked over TLS.
        let shown = |resolver: &&RunningResolver| {
            format!("{}#{}", resolver.address, resolver.make.name().to_lowercase().replace(' ', "-"))
        };
        words.extend(resolvers.iter().map(shown));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut process =
            self.lab.spawn_in(Side::Client, &sidestep_binary().display().to_string(), &words).unwrap();
        process.wait(within).unwrap();
        let output = process.output();
        serde_json::from_str(&output).unwrap_or_else(|error| panic!("{error}: {output}"))
    }
}

/// The authority, and the records that its parent needs.
fn start_authority(lab: &Lab, directory: &Directory) -> (Child, String) {
    let keys = directory.path().join("keys").display().to_string();
    let listen = SERVERS.map(|server| SocketAddr::new(server.into(), 53).to_string());
    let mut words = vec!["dns", "audit", "authority", "--zone", ZONE, "--keys", &keys, "--user", "root"];
    words.extend(listen.iter().flat_map(|listen| ["--listen", listen]));
    words.extend(["--rate-per-address", "0", "--rate-per-prefix", "0"]); // Ten resolvers are asked together.
    let mut process = lab.spawn_in(Side::Client, &sidestep_binary().display().to_string(), &words).unwrap();
    process.wait_for_line("ready: audit zone", PATIENCE).unwrap();
    let output = process.output();
    let records = output
        .lines()
        .filter_map(|line| line.split_once("parent: "))
        .map(|(_, record)| format!("{record}\n"));
    let records = records.collect();
    (process, records)
}

/// The root's server, and the DS record of its key.
fn start_root(lab: &Lab, directory: &Directory, zone: &str) -> (Child, String) {
    let file = directory.write("root.zone", zone).unwrap().display().to_string();
    let control = directory.path().join("root.sock").display().to_string();
    let config = format!(
        "listen = [\"{ROOT}:53\"]\nuser = \"root\"\ncontrol = \"{control}\"\n[[zone]]\nfile = \"{file}\"\norigin = \".\"\ndnssec = true\n"
    );
    let config = directory.write("root.toml", &config).unwrap().display().to_string();
    let program = sidestep_binary().display().to_string();
    let mut process = lab.spawn_in(Side::Client, &program, &["dns", "serve", "--config", &config]).unwrap();
    process.wait_for_line("ready:", PATIENCE).unwrap();
    let keys = lab.run_in(Side::Client, &program, &["dns", "keys", "--config", &config, "--ds"]).unwrap();
    let line =
        keys.lines().find(|line| line.contains("DS ")).unwrap_or_else(|| panic!("no DS record: {keys}"));
    let (_, data) = line.split_once("DS ").unwrap();
    (process, format!(". IN DS {data}"))
}
