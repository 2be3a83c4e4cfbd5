//! What happens on the simulated network, made of a seed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use clock::{Duration, Instant};
use stack::config::SynCookies;

use super::host::Host;
use super::link::LinkSettings;
use super::our_host::{OurHost, OurSettings};
use super::random::Random;
use super::simulation::{Change, Place, Simulation};
use super::smoltcp_host::{SmoltcpHost, SmoltcpSettings};
use super::traffic::{Connection, Opening};
use super::violation::{Broken, Violation};
use super::{plans, settings, weather};

pub use super::weather::Weather;

/// Which stacks the hosts run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peers {
    /// Ours on both.
    Ours,
    /// Ours on both, and connections leave their stacks for others while they are used.
    OursMoving,
    /// Ours connects to smoltcp.
    SmoltcpServer,
    /// smoltcp connects to ours.
    SmoltcpClient,
}

impl Peers {
    fn are_ours(self) -> bool {
        matches!(self, Peers::Ours | Peers::OursMoving)
    }
}

/// How one host is set up.
#[derive(Clone, Debug)]
enum HostSettings {
    Ours(Box<OurSettings>),
    Smoltcp(SmoltcpSettings),
}

/// Everything that a seed decides.
#[derive(Clone, Debug)]
pub struct Scenario {
    seed: u64,
    weather: Weather,
    hosts: [HostSettings; 2],
    mtus: [u16; 2],
    ahead: [Duration; 2],
    links: [LinkSettings; 2],
    changes: Vec<(Duration, Change)>,
    connections: Vec<Connection>,
    /// By when all must be over.
    limit: Duration,
}

/// What a scenario came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Segments sent by both hosts.
    pub segments: u64,
    /// Octets that applications received.
    pub octets: u64,
    /// Connections that were begun.
    pub connections: usize,
    /// Those of which both ends did all that they were to do.
    pub complete: usize,
    /// Time until the last trace of a connection was gone.
    pub took: Duration,
}

/// A network that lives that long with an open connection has lost it.
const LIMIT: Duration = Duration::from_secs(24 * 3600);

impl Scenario {
    /// The scenario of `seed`, with these stacks, in this weather.
    pub fn new(seed: u64, peers: Peers, weather: Weather) -> Scenario {
        let mut random = Random::new(seed);
        let v6 = random.one_in(2);
        let mtus = [0, 1].map(|_| if random.one_in(3) { random.pick(&[1280, 1400, 9000]) } else { 1500 });
        let connections = connections(&mut random, peers, v6);
        let hosts = [0, 1].map(|place| host_settings(&mut random, peers, place, mtus[place]));
        let mut scenario = Scenario {
            seed,
            weather,
            hosts,
            mtus,
            ahead: [Duration::ZERO; 2],
            links: [0, 1].map(|_| weather::link(&mut random)),
            changes: Vec::new(),
            connections,
            limit: LIMIT,
        };
        weather::spoil(&mut scenario.links, &mut scenario.changes, weather, &mut random);
        scenario.spare_smoltcp(peers);
        scenario.excuse_cookies(weather);
        scenario.probe_for_lost_resets();
        scenario.set_clocks(peers, &mut random);
        if peers == Peers::OursMoving {
            scenario.move_connections(&mut random);
        }
        scenario
    }

    /// Has the hosts move what is established from one stack to another, at times from the first milliseconds on.
    fn move_connections(&mut self, random: &mut Random) {
        for _ in 0..random.between(1, 5) {
            let place = random.below(2) as Place;
            let after = Duration::from_micros(random.magnitude(1000, 60_000_000));
            let late = Duration::from_micros(random.magnitude(1, 1_000_000));
            self.changes.push((after, Change::Move(place, late)));
        }
    }

    /// smoltcp knows no path MTU discovery: the path takes what its interface does.
    fn spare_smoltcp(&mut self, peers: Peers) {
        let place = match peers {
            Peers::Ours | Peers::OursMoving => return,
            Peers::SmoltcpServer => 1,
            Peers::SmoltcpClient => 0,
        };
        self.links[place].mtu = u16::MAX;
        for (_, change) in &mut self.changes {
            if let Change::Link(at, settings) = change
                && *at == place
            {
                settings.mtu = u16::MAX;
            }
        }
    }

    /// A server with SYN cookies knows a connection only by its first segment: if that is lost, or comes again, the two do not
    /// agree on whether there is one. With Fast Open a SYN that comes again may open a connection again.
    fn excuse_cookies(&mut self, weather: Weather) {
        let HostSettings::Ours(server) = &self.hosts[1] else {
            return;
        };
        let cookies = server.config.syn_cookies == SynCookies::Always;
        let fast_open = server.options.iter().any(|options| options.fast_open_queue > 0);
        for connection in &mut self.connections {
            connection.may_hang = cookies && weather != Weather::Calm;
            connection.may_repeat = cookies || fast_open;
        }
    }

    /// A reset is sent once. Where it may be lost, only probes find out.
    fn probe_for_lost_resets(&mut self) {
        if !self.connections.iter().any(Connection::may_fail) {
            return;
        }
        for host in &mut self.hosts {
            match host {
                HostSettings::Ours(settings) => {
                    settings.options.iter_mut().for_each(|options| options.keepalive = true);
                }
                HostSettings::Smoltcp(settings) => settings.gives_up_after = Some(Duration::from_secs(300)),
            }
        }
    }

    /// Sets the hosts' clocks, often so that sequence numbers or timestamps wrap soon.
    fn set_clocks(&mut self, peers: Peers, random: &mut Random) {
        for place in [0, 1] {
            let base = random.span(Duration::from_millis(1), Duration::from_secs(1 << 20));
            self.ahead[place] = base;
            let HostSettings::Ours(settings) = &self.hosts[place] else {
                continue;
            };
            let connection = &self.connections[0];
            let (local, remote) = connection.ends(place);
            let (isn, timestamp) = settings.first_numbers(local, remote, Instant::ZERO + base);
            let distance = random.magnitude(1, 100_000) as u32;
            // smoltcp 0.12 panics on selective acknowledgements around the wrap.
            let may_wrap = peers.are_ours() || !settings.config.sack;
            self.ahead[place] += match random.below(3) {
                0 if may_wrap => {
                    Duration::from_micros(u64::from(isn.wrapping_add(distance).wrapping_neg()) * 4)
                }
                1 => Duration::from_millis(timestamp.wrapping_add(distance / 64).wrapping_neg().into()),
                _ => Duration::ZERO,
            };
        }
    }

    /// Plays it to the end.
    pub fn run(&self) -> Result<Report, Violation> {
        let mut simulation = self.build();
        simulation.run(self.limit)?;
        let took = simulation.elapsed();
        let broken = |Broken(text)| Violation { at: took, text, hosts: String::new() };
        if self.weather == Weather::Calm || !simulation.is_stuck() {
            simulation.check_over()?;
        }
        let octets = simulation.applications().map(|application| application.received()).sum();
        let (connections, complete) = (self.connections.len(), simulation.complete());
        let report = Report { segments: simulation.segments(), octets, connections, complete, took };
        self.check_effort(&simulation, &report).map_err(broken)?;
        Ok(report)
    }

    /// Hosts do not throw packets at each other for nothing.
    fn check_effort(&self, simulation: &Simulation, report: &Report) -> Result<(), Broken> {
        let connections = self.connections.len() as u64;
        let seconds = report.took.as_secs();
        let enough = 200 * connections + 12 * simulation.calls() + report.octets / 20 + seconds * connections;
        super::violation::require!(report.segments <= enough, "{report:?} is more than {enough} segments");
        Ok(())
    }

    fn build(&self) -> Simulation {
        let start = Instant::ZERO;
        let host = |place: Place| -> (Box<dyn Host>, u16, Duration) {
            let ahead = self.ahead[place];
            let (local, _) = self.connections[0].ends(place);
            let host: Box<dyn Host> = match &self.hosts[place] {
                HostSettings::Ours(settings) => Box::new(OurHost::new(settings, start + ahead)),
                HostSettings::Smoltcp(settings) => {
                    Box::new(SmoltcpHost::new(settings.clone(), local.ip(), start + ahead))
                }
            };
            (host, self.mtus[place], ahead)
        };
        let mut simulation = Simulation::new([host(0), host(1)], self.links.clone(), start, self.seed);
        simulation.listen(self.connections[0].server);
        for connection in &self.connections {
            simulation.add(connection.clone());
        }
        for (after, change) in &self.changes {
            simulation.change(*after, change.clone());
        }
        simulation
    }
}

/// The hosts' addresses.
fn addresses(v6: bool) -> [IpAddr; 2] {
    [1, 2].map(|host| match v6 {
        false => Ipv4Addr::new(192, 0, 2, host).into(),
        true => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host.into()).into(),
    })
}

fn connections(random: &mut Random, peers: Peers, v6: bool) -> Vec<Connection> {
    let [client, server] = addresses(v6);
    let kind = plans::Kind::any(random);
    let count = kind.connections(random);
    let spread = random.span(Duration::ZERO, Duration::from_millis(500));
    let simultaneous = peers.are_ours() && count == 1 && random.one_in(10);
    let make = |number: u64| Connection {
        client: SocketAddr::new(client, 40_000 + number as u16),
        server: SocketAddr::new(server, if simultaneous { 8080 } else { 80 }),
        begins: random.span(Duration::ZERO, spread),
        opening: if simultaneous { Opening::Simultaneous } else { Opening::Client },
        plans: kind.plans(random),
        key: random.bits(),
        early_data: peers != Peers::SmoltcpClient && random.one_in(4),
        may_hang: false,
        may_repeat: false,
    };
    (0..count).map(make).collect()
}

fn host_settings(random: &mut Random, peers: Peers, place: Place, mtu: u16) -> HostSettings {
    let smoltcp = match peers {
        Peers::Ours | Peers::OursMoving => None,
        Peers::SmoltcpServer => Some(1),
        Peers::SmoltcpClient => Some(0),
    };
    match smoltcp == Some(place) {
        true => HostSettings::Smoltcp(settings::smoltcp(random, mtu)),
        false => HostSettings::Ours(Box::new(settings::ours(random, mtu))),
    }
}
