//! The Internet: zones, name servers of four makes, and an address for each server.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lab::{Child, Directory, Lab, LabError, SERVER_INTERFACE, Side, sidestep_binary};

use crate::servers::{Fault, Server};
use crate::zones::{self, SERVERS, SLOW, TOP, UPPER_SERVERS, ZONES, Zone, Zones};

/// How far the servers of a zone are away, in milliseconds.
pub(crate) const DISTANCES: [u64; SERVERS] = [5, 12, 60, 180];
/// Those of the root, and of the top-level domains.
const ROOT_DISTANCES: [u64; UPPER_SERVERS] = [5, 30];
const TOP_DISTANCES: [u64; UPPER_SERVERS] = [8, 40];
/// Those of the slow zone: far, and reachable.
const SLOW_DISTANCE: u64 = 600;
/// What is wrong from the start: zone, server, fault.
const FAULTS: [(usize, usize, Fault); 3] =
    [(17, 2, Fault::Lossy), (18, 2, Fault::Lame), (19, 1, Fault::DropsEdns)];
const START_MAX: Duration = Duration::from_secs(30);

/// The makes of name servers.
#[derive(Clone, Copy)]
enum Make {
    Nsd,
    Knot,
    Bind,
    Sidestep,
}

/// What serves the zones of one level, and where.
struct Host {
    _process: Child,
    _directory: Directory,
    address: SocketAddr,
}

/// All of it.
pub(crate) struct Internet {
    pub(crate) zones: Zones,
    /// Those of the twenty zones and of the slow one.
    pub(crate) leaves: Vec<[Arc<Server>; SERVERS]>,
    upper: Vec<Arc<Server>>,
    _hosts: Vec<Host>,
    _directory: Directory,
}

impl Internet {
    /// Makes the zones, with so many names each, and starts the name servers.
    pub(crate) fn start(lab: &Lab, names: usize) -> Result<Internet, LabError> {
        let directory = Directory::new()?;
        let zones = Zones::make(&directory, names)?;
        let root = Host::start(lab, Make::Nsd, 1, std::slice::from_ref(&zones.root))?;
        let top = Host::start(lab, Make::Knot, 2, &zones.top)?;
        let makes = [Make::Nsd, Make::Knot, Make::Bind, Make::Sidestep].into_iter().zip(3..);
        let leaf: Vec<Host> = makes
            .map(|(make, number)| Host::start(lab, make, number, &zones.leaves))
            .collect::<Result<_, _>>()?;
        let mut upper = Vec::new();
        for server in 0..UPPER_SERVERS {
            upper.push(server_at(zones::root_server(server), &root, ROOT_DISTANCES[server]));
            for domain in 0..TOP.len() {
                upper.push(server_at(zones::top_server(domain, server), &top, TOP_DISTANCES[server]));
            }
        }
        let leaves = (0..=SLOW).map(|zone| {
            std::array::from_fn(|server| {
                let distance = if zone == SLOW { SLOW_DISTANCE } else { DISTANCES[server] };
                // Each make is somewhere the nearest one.
                let host = &leaf[(zone + server) % leaf.len()];
                server_at(zones::leaf_server(zone, server), host, distance)
            })
        });
        let leaves: Vec<[Server; SERVERS]> = leaves.collect();
        for (zone, server, fault) in FAULTS {
            leaves[zone][server].suffer(fault);
        }
        let shared = |server: Server| Arc::new(server);
        let internet = Internet {
            zones,
            leaves: leaves.into_iter().map(|servers| servers.map(shared)).collect(),
            upper: upper.into_iter().map(shared).collect(),
            _hosts: [root, top].into_iter().chain(leaf).collect(),
            _directory: directory,
        };
        for server in internet.servers() {
            lab.ip(Side::Server, &format!("address add {}/32 dev {SERVER_INTERFACE}", server.address()))?;
        }
        Ok(internet)
    }

    /// All servers.
    pub(crate) fn servers(&self) -> Vec<Arc<Server>> {
        self.upper.iter().chain(self.leaves.iter().flatten()).cloned().collect()
    }

    /// For one server of each of the twenty zones.
    pub(crate) fn of_each_zone(&self, server: usize, action: impl Fn(&Server)) {
        self.leaves[..ZONES].iter().for_each(|servers| action(&servers[server]));
    }
}

fn server_at(address: Ipv4Addr, host: &Host, distance: u64) -> Server {
    Server::new(address, host.address, Duration::from_millis(distance))
}

impl Host {
    fn start(lab: &Lab, make: Make, number: u8, zones: &[Zone]) -> Result<Host, LabError> {
        let directory = Directory::new()?;
        let ip = Ipv4Addr::new(127, 0, 1, number);
        // BIND listens only at addresses that an interface has.
        lab.ip(Side::Server, &format!("address add {ip}/32 dev lo"))?;
        let process = match make {
            Make::Nsd => start_nsd(lab, ip, zones, &directory)?,
            Make::Knot => start_knot(lab, ip, zones, &directory)?,
            Make::Bind => start_bind(lab, ip, zones, &directory)?,
            Make::Sidestep => start_sidestep(lab, ip, zones, &directory)?,
        };
        let address = SocketAddr::new(IpAddr::V4(ip), 53);
        wait_for(lab, address, &zones[0].origin, &process)?;
        Ok(Host { _process: process, _directory: directory, address })
    }
}

fn start_nsd(lab: &Lab, ip: Ipv4Addr, zones: &[Zone], directory: &Directory) -> Result<Child, LabError> {
    let own = directory.path().display();
    let mut config = format!(
        "server:\n  server-count: 1\n  ip-address: {ip}@53\n  username: \"\"\n  chroot: \"\"\n  database: \"\"\n  \
         pidfile: \"{own}/nsd.pid\"\n  xfrdfile: \"{own}/xfrd.state\"\n  xfrdir: \"{own}\"\n  \
         zonelistfile: \"{own}/zone.list\"\n  logfile: \"{own}/nsd.log\"\n  verbosity: 0\n  rrl-ratelimit: 0\n\
         remote-control:\n  control-enable: no\n"
    );
    for Zone { origin, file, .. } in zones {
        config += &format!("zone:\n  name: \"{origin}\"\n  zonefile: \"{file}\"\n");
    }
    let config = directory.write("nsd.conf", &config)?.display().to_string();
    lab.spawn_in(Side::Server, "nsd", &["-d", "-c", &config])
}

fn start_knot(lab: &Lab, ip: Ipv4Addr, zones: &[Zone], directory: &Directory) -> Result<Child, LabError> {
    let own = directory.path().display();
    let mut config = format!(
        "server:\n    rundir: \"{own}\"\n    listen: {ip}@53\n    udp-workers: 1\n    tcp-workers: 1\n    \
         background-workers: 1\nlog:\n  - target: stderr\n    any: error\ndatabase:\n    storage: \"{own}\"\nzone:\n"
    );
    for Zone { origin, file, .. } in zones {
        config += &format!(
            "  - domain: {origin}\n    file: \"{file}\"\n    zonefile-sync: -1\n    journal-content: none\n    \
             semantic-checks: off\n"
        );
    }
    let config = directory.write("knot.conf", &config)?.display().to_string();
    lab.spawn_in(Side::Server, "knotd", &["-c", &config])
}

fn start_bind(lab: &Lab, ip: Ipv4Addr, zones: &[Zone], directory: &Directory) -> Result<Child, LabError> {
    let own = directory.path().display();
    let mut config = format!(
        "options {{ directory \"{own}\"; pid-file none; session-keyfile none; listen-on {{ {ip}; }}; listen-on-v6 {{ none; }}; \
         recursion no; dnssec-validation no; notify no; }};\ncontrols {{ }};\n"
    );
    for Zone { origin, file, .. } in zones {
        config += &format!("zone \"{origin}\" {{ type primary; file \"{file}\"; }};\n");
    }
    let config = directory.write("named.conf", &config)?.display().to_string();
    lab.spawn_in(Side::Server, "named", &["-g", "-4", "-n", "1", "-c", &config])
}

fn start_sidestep(lab: &Lab, ip: Ipv4Addr, zones: &[Zone], directory: &Directory) -> Result<Child, LabError> {
    let control = directory.path().join("control.sock").display().to_string();
    let listen = format!("{ip}:53");
    let mut words: Vec<String> =
        ["dns", "serve", "--listen", &listen, "--cores", "1", "--user", "root", "--control", &control]
            .map(str::to_owned)
            .to_vec();
    for Zone { origin, file, .. } in zones {
        words.extend(["--zone".to_owned(), format!("{origin}={file}")]);
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    lab.spawn_in(Side::Server, &sidestep_binary().display().to_string(), &words)
}

fn wait_for(lab: &Lab, server: SocketAddr, origin: &str, process: &Child) -> Result<(), LabError> {
    let query = lab::message::query(1, origin, lab::message::SOA);
    let deadline = Instant::now() + START_MAX;
    let ask = || lab.inside(Side::Server, || lab::message::ask(server, &query, Duration::from_millis(200)));
    while !ask().is_ok_and(|answer| answer.rcode() == 0) {
        if Instant::now() > deadline {
            let output = format!("no answer for {origin}: {}", process.output());
            return Err(LabError::Command { command: server.to_string(), output });
        }
    }
    Ok(())
}
