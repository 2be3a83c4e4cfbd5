//! Servers: NSD, Knot and Sidestep, each with one worker on the server's core, without rate limits, logs and extras.

mod knot;
mod nsd;
mod sidestep;
pub(crate) mod version;

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use crate::{Child, Directory, Lab, LabError, SERVER_V4, Side, Zone, message};

pub use nsd::start as start_nsd;
pub use sidestep::{Device, Sidestep};

/// A server that can be started in a laboratory, on port 53 of its addresses.
#[derive(Clone, Debug)]
pub enum Peer {
    /// NSD on kernel sockets.
    Nsd,
    /// Knot DNS on kernel sockets.
    Knot,
    /// Knot DNS with UDP over AF_XDP.
    KnotXdp,
    /// Sidestep.
    Sidestep(Sidestep),
}

/// More of a server's own configuration, in its own language.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// For NSD lines of `server:`, for Knot sections in front of the zones, for Sidestep what stands in front of the zone's table.
    pub server: String,
    /// Lines of the zone's own section.
    pub zone: String,
}

impl Settings {
    /// Those of the server alone.
    pub fn of_server(lines: &str) -> Settings {
        Settings { server: lines.to_owned(), zone: String::new() }
    }
}

/// A server that answers. It ends when its owner drops it.
pub struct Server {
    /// The process.
    pub process: Child,
    /// Its configuration and output files; removed after the process.
    pub directory: Directory,
}

/// Time from start to first answer.
pub(crate) const START_MAX: Duration = Duration::from_secs(60);

impl Peer {
    /// Its name in tables.
    pub fn name(&self) -> String {
        match self {
            Peer::Nsd => format!("{}, kernel sockets", version::NSD.versioned()),
            Peer::Knot => format!("{}, kernel sockets", version::KNOT.versioned()),
            Peer::KnotXdp => format!("{}, AF_XDP", version::KNOT.versioned()),
            Peer::Sidestep(sidestep) => sidestep.name(),
        }
    }

    /// Starts it in the server's namespace; returns when it answers a query from the client's.
    pub fn start(&self, lab: &Lab, zone: &Zone) -> Result<Server, LabError> {
        self.start_with(lab, zone, &Settings::default())
    }

    /// The same with more of its own configuration.
    pub fn start_with(&self, lab: &Lab, zone: &Zone, more: &Settings) -> Result<Server, LabError> {
        let directory = Directory::new()?;
        let process = match self {
            Peer::Nsd => nsd::start(lab, zone, &directory, more)?,
            Peer::Knot => knot::start(lab, zone, &directory, false, more)?,
            Peer::KnotXdp => knot::start(lab, zone, &directory, true, more)?,
            Peer::Sidestep(sidestep) => sidestep.start(lab, zone, &directory, more)?,
        };
        let mut server = Server { process, directory };
        server.wait_until_it_answers(lab, zone)?;
        if !matches!(self, Peer::Sidestep(_)) {
            lab.keep_on_core(Side::Server)?; // Ours has the cores that its settings say.
        }
        Ok(server)
    }
}

impl Server {
    fn wait_until_it_answers(&mut self, lab: &Lab, zone: &Zone) -> Result<(), LabError> {
        const PAUSE: Duration = Duration::from_millis(50);
        let server = SocketAddr::new(SERVER_V4.parse().expect("an address"), 53);
        let query = message::query(0x5353, &zone.origin, message::SOA);
        let deadline = Instant::now() + START_MAX;
        while Instant::now() < deadline && self.process.try_wait().is_none() {
            let asked = Instant::now();
            if lab.inside(Side::Client, || message::ask(server, &query, Duration::from_millis(200))).is_ok() {
                return Ok(());
            }
            // Without a listener the answer is an ICMP error, at once.
            thread::sleep(PAUSE.saturating_sub(asked.elapsed()));
        }
        Err(self.process.not_seen("answer to a query".to_owned(), START_MAX))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{require_root_and_xdp, server_core};

    /// The cores that each thread in the server's namespace may use, as `/proc` writes them.
    fn cores_of_threads(lab: &Lab) -> Vec<String> {
        let pids = lab.pids(Side::Server).unwrap();
        let directories = pids.lines().map(|pid| format!("/proc/{}/task", pid.trim()));
        let threads = directories.flat_map(|tasks| fs::read_dir(tasks).unwrap().flatten());
        let status = threads.map(|thread| fs::read_to_string(thread.path().join("status")).unwrap());
        let cores = status.map(|status| {
            let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            line.unwrap().trim().to_owned()
        });
        cores.collect()
    }

    #[test]
    fn no_thread_of_a_peer_runs_on_the_generators_core() {
        if !require_root_and_xdp() {
            return;
        }
        for peer in [Peer::Nsd, Peer::Knot, Peer::KnotXdp] {
            let lab = Lab::with_queues(1).unwrap();
            let _server = peer.start(&lab, &Zone::sample()).unwrap();
            let cores = cores_of_threads(&lab);
            let own = server_core().to_string();
            assert!(!cores.is_empty() && cores.iter().all(|core| *core == own), "{}: {cores:?}", peer.name());
        }
    }
}
