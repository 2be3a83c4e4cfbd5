//! The small Internet, in the server's namespace; the clients of the resolver are in the client's, and so is the resolver, unless it serves
//! the server's interface.
//!
//! | address, 10.53.0. | what is there |
//! | --- | --- |
//! | 11 | the root (NSD) |
//! | 12 | `lab.` (Knot, which answers no query without its cookie: RFC 7873, 5.2.3) |
//! | 13, 14 | `one.lab.`, `wide.lab.`, `lame.lab.` and, at its old place, `moved.lab.` (NSD, one process each) |
//! | 15 | `two.lab.` alone (Knot, which wants cookies, too): lame for `lame.lab.` |
//! | 16 | `moved.lab.`, as the zone itself says (NSD) |
//! | 19 | nobody who answers |

use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use lab::{CLIENT_INTERFACE, Child, Directory, Lab, SERVER_INTERFACE, Side, sidestep_binary};
use tests::{Dig, Transport};

use crate::{PATIENCE, empty_lab};

/// Where a resolver on kernel sockets listens, in the client's namespace.
const BY_SOCKETS: (Side, &[&str], &str) = (Side::Client, &[], "127.0.0.1:5300");
/// And one that serves the interface, in the server's.
const BY_INTERFACE: (Side, &[&str], &str) =
    (Side::Server, &["--device", SERVER_INTERFACE, "--allow", "10.53.0.0/24"], "10.53.0.1:53");

/// A second address of the client's interface.
pub(super) const OTHER_SOURCE: &str = "10.53.0.77";

/// Origin and records of zones.
type Zones<'a> = &'a [(&'a str, &'a str)];

const ROOT: Zones<'_> = &[(
    ".",
    "@ 3600 IN SOA a.root. host.lab. 1 3600 900 86400 60\n@ 3600 NS a.root.\na.root. 3600 A 10.53.0.11\n\
     lab. 3600 NS ns.lab.\nns.lab. 3600 A 10.53.0.12\n",
)];
const TLD: Zones<'_> = &[(
    "lab.",
    "@ 3600 IN SOA ns host 1 3600 900 86400 60\n@ NS ns\nns A 10.53.0.12\n\
     one NS ns1.one\none NS ns2.one\none NS ns3.one\nns1.one A 10.53.0.13\nns2.one A 10.53.0.14\nns3.one A 10.53.0.19\n\
     two NS ns.two\nns.two A 10.53.0.15\n\
     wide NS ns.one\nlame NS ns1.lame\nlame NS ns2.lame\nns1.lame A 10.53.0.15\nns2.lame A 10.53.0.13\n\
     dead NS ns.dead\nns.dead A 10.53.0.19\n\
     moved NS ns.moved\nns.moved A 10.53.0.13\n",
)];
const HOSTED: Zones<'_> = &[
    (
        "one.lab.",
        "@ 3600 IN SOA ns1 host 1 3600 900 86400 2\n@ NS ns1\n@ NS ns2\n@ NS ns3\nns A 10.53.0.14\nns1 A 10.53.0.13\n\
         ns2 A 10.53.0.14\nns3 A 10.53.0.19\nwww 1 A 192.0.2.1\nalias CNAME www.two.lab.\nold DNAME two.lab.\n\
         a.b.c TXT \"deep\"\nBIG",
        // BIG is a set of records that fits no datagram.
    ),
    (
        "lame.lab.",
        "@ 3600 IN SOA ns2 host 1 3600 900 86400 60\n@ NS ns2\nns2 A 10.53.0.13\nwww A 192.0.2.3\n",
    ),
    (
        "moved.lab.",
        "@ 3600 IN SOA ns host 1 3600 900 86400 60\n@ NS ns\nns A 10.53.0.16\nwww A 192.0.2.66\nfirst A 192.0.2.4\n",
    ),
];
const TWO: Zones<'_> =
    &[("two.lab.", "@ 3600 IN SOA ns host 1 3600 900 86400 60\n@ NS ns\nns A 10.53.0.15\nwww A 192.0.2.2\n")];
const MOVED: Zones<'_> = &[(
    "moved.lab.",
    "@ 3600 IN SOA ns host 2 3600 900 86400 60\n@ NS ns\nns A 10.53.0.16\nwww A 192.0.2.5\nfirst A 192.0.2.66\n",
)];

/// A server with its files.
type Server = (Child, Directory);

/// The Internet, and a resolver in it.
pub(super) struct Internet {
    // Dropped in this order.
    resolver: Child,
    pub(super) hosts: Vec<Server>,
    _others: Vec<Server>,
    pub(super) silent: UdpSocket,
    directory: Directory,
    address: SocketAddr,
    pub(super) lab: Lab,
    _turn: MutexGuard<'static, ()>,
}

impl Internet {
    /// Starts it; `None` if there can be no laboratory. `config` is more for the resolver's configuration file.
    pub(super) fn start(config: &str) -> Option<Internet> {
        Internet::start_with(config, BY_SOCKETS)
    }

    /// The same with a resolver that serves the interface over AF_XDP.
    pub(super) fn start_by_interface() -> Option<Internet> {
        Internet::start_with("", BY_INTERFACE)
    }

    fn start_with(config: &str, (side, words, address): (Side, &[&str], &str)) -> Option<Internet> {
        let (lab, turn) = empty_lab()?;
        for host in [11, 12, 13, 14, 15, 16, 19] {
            lab.ip(Side::Server, &format!("address add 10.53.0.{host}/24 dev {SERVER_INTERFACE}")).unwrap();
        }
        lab.ip(Side::Client, &format!("address add {OTHER_SOURCE}/24 dev {CLIENT_INTERFACE}")).unwrap();
        let silent = lab.inside(Side::Server, || UdpSocket::bind("10.53.0.19:53").unwrap());
        let others =
            vec![nsd(&lab, 11, ROOT), knot(&lab, 12, TLD), knot(&lab, 15, TWO), nsd(&lab, 16, MOVED)];
        let hosts = vec![host(&lab, 13), host(&lab, 14)];
        let directory = Directory::new().unwrap();
        directory.write("root.hints", ". 3600 NS a.root.\na.root. 3600 A 10.53.0.11\n").unwrap();
        let config = directory.write("resolver.toml", &whole(config)).unwrap();
        let control = directory.path().join("control.sock");
        let config = config.display().to_string();
        let control = control.display().to_string();
        let own = [
            "dns",
            "resolve",
            "--listen",
            address,
            "--user",
            "root",
            "--config",
            &config,
            "--control",
            &control,
        ];
        let words = [&own[..], words].concat();
        let mut resolver = lab.spawn_in(side, &sidestep_binary().display().to_string(), &words).unwrap();
        resolver.wait_for_line("ready: resolving", PATIENCE).unwrap();
        let address = address.parse().unwrap();
        Some(Internet { resolver, hosts, _others: others, silent, directory, address, lab, _turn: turn })
    }

    /// Asks the resolver with dig.
    pub(super) fn dig(&self, transport: Transport, question: &[&str]) -> Dig {
        Dig::ask_by(self.lab.command(Side::Client, "dig"), self.address, transport, question)
    }

    /// What `sidestep dns query` says of a question to the resolver.
    pub(super) fn query(&self, words: &[&str]) -> String {
        let (at, port) = (format!("@{}", self.address.ip()), self.address.port().to_string());
        let words = [&["dns", "query", &at, "-p", &port], words].concat();
        self.lab.run_in(Side::Client, &sidestep_binary().display().to_string(), &words).unwrap()
    }

    /// The answer section, over UDP.
    pub(super) fn answer(&self, name: &str, rtype: &str) -> Vec<String> {
        self.dig(Transport::Udp, &[name, rtype]).section("ANSWER")
    }

    /// What a command of `sidestep dns` prints about the resolver.
    pub(super) fn tool(&self, tool: &str) -> String {
        let control = self.directory.path().join("control.sock").display().to_string();
        let output =
            Command::new(sidestep_binary()).args(["dns", tool, "--control", &control]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The line of `sidestep dns servers` for a server.
    pub(super) fn server_line(&self, address: &str) -> Option<String> {
        let start = format!("{address}:53 ");
        self.tool("servers").lines().find(|line| line.starts_with(&start)).map(str::to_owned)
    }

    pub(super) fn resolver(&mut self) -> &mut Child {
        &mut self.resolver
    }

    /// Writes another file beside it; its path.
    pub(super) fn write(&self, name: &str, text: &str) -> String {
        self.directory.write(name, text).unwrap().display().to_string()
    }

    /// Writes the configuration anew.
    pub(super) fn configure(&self, config: &str) {
        self.directory.write("resolver.toml", &whole(config)).unwrap();
    }

    /// Starts the servers of the hosted zones again.
    pub(super) fn revive_hosts(&mut self) {
        self.hosts = vec![host(&self.lab, 13), host(&self.lab, 14)];
    }
}

/// The configuration file. The zones of this Internet are not signed, and its root is not the one that is trusted.
fn whole(config: &str) -> String {
    format!("root-hints = \"root.hints\"\n{config}\n[dnssec]\nenabled = false\n")
}

fn host(lab: &Lab, number: u8) -> Server {
    nsd(lab, number, HOSTED)
}

/// Twenty records of some 200 octets.
fn big() -> String {
    (0..20).map(|number| format!("big TXT \"{}{number}\"\n", "t".repeat(200))).collect()
}

/// Writes the zones' files; origin and file name of each.
fn write_zones<'a>(directory: &Directory, zones: Zones<'a>) -> Vec<(&'a str, String)> {
    let write = |(index, (origin, text)): (usize, &(&'a str, &'a str))| {
        let text = format!("$ORIGIN {origin}\n$TTL 3600\n{}", text.replace("BIG", &big()));
        (*origin, directory.write(&format!("{index}.zone"), &text).unwrap().display().to_string())
    };
    zones.iter().enumerate().map(write).collect()
}

fn nsd(lab: &Lab, number: u8, zones: Zones<'_>) -> Server {
    let directory = Directory::new().unwrap();
    let own = directory.path().display().to_string();
    let mut config = format!(
        "server:\n  server-count: 1\n  ip-address: 10.53.0.{number}@53\n  username: \"\"\n  chroot: \"\"\n  database: \"\"\n  \
         zonesdir: \"{own}\"\n  pidfile: \"{own}/nsd.pid\"\n  xfrdfile: \"{own}/xfrd.state\"\n  xfrdir: \"{own}\"\n  \
         zonelistfile: \"{own}/zone.list\"\n  logfile: \"{own}/nsd.log\"\n  verbosity: 0\n  rrl-ratelimit: 0\n\
         remote-control:\n  control-enable: no\n"
    );
    for (origin, file) in write_zones(&directory, zones) {
        config += &format!("zone:\n  name: \"{origin}\"\n  zonefile: \"{file}\"\n");
    }
    let config = directory.write("nsd.conf", &config).unwrap().display().to_string();
    let process = lab.spawn_in(Side::Server, "nsd", &["-d", "-c", &config]).unwrap();
    wait_for(lab, number, zones[0].0);
    (process, directory)
}

fn knot(lab: &Lab, number: u8, zones: Zones<'_>) -> Server {
    let directory = Directory::new().unwrap();
    let own = directory.path().display().to_string();
    let mut config = format!(
        "server:\n    rundir: \"{own}\"\n    listen: 10.53.0.{number}@53\n    udp-workers: 1\n    tcp-workers: 1\n    \
         background-workers: 1\nlog:\n  - target: stderr\n    any: error\ndatabase:\n    storage: \"{own}\"\n\
         template:\n  - id: default\n    global-module: mod-cookies\nzone:\n"
    );
    for (origin, file) in write_zones(&directory, zones) {
        config += &format!(
            "  - domain: {origin}\n    file: \"{file}\"\n    zonefile-sync: -1\n    journal-content: none\n    \
             semantic-checks: off\n"
        );
    }
    let config = directory.write("knot.conf", &config).unwrap().display().to_string();
    let process = lab.spawn_in(Side::Server, "knotd", &["-c", &config]).unwrap();
    wait_for(lab, number, zones[0].0);
    (process, directory)
}

/// Waits until a server answers for a zone.
fn wait_for(lab: &Lab, number: u8, origin: &str) {
    let server = SocketAddr::new([10, 53, 0, number].into(), 53);
    let query = lab::message::query(1, origin, lab::message::SOA);
    let deadline = Instant::now() + PATIENCE;
    let ask = || lab.inside(Side::Client, || lab::message::ask(server, &query, Duration::from_millis(200)));
    while !ask().is_ok_and(|answer| answer.rcode() == 0) {
        assert!(Instant::now() < deadline, "10.53.0.{number} does not answer for {origin}");
    }
}
