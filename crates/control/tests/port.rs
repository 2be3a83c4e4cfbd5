//! A supervised port on a real veth pair whose interface changes under it. Needs root and AF_XDP; skipped otherwise.

// The laboratory and the echo loop are device-xdp's: what is proved there is built upon here.
#[path = "../../device-xdp/tests/echo/mod.rs"]
#[allow(dead_code)]
mod echo;
#[path = "../../device-xdp/tests/support/mod.rs"]
#[allow(dead_code)]
mod support;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use control::{NeighbourMove, PortConfig, PortEvent, PortSupervisor};
use device::Device;
use device_xdp::{SteeringOptions, XdpOptions, XdpPath};
use steering::{ListenAddress, LocalAddress, Transport};

use echo::Echo;
use support::{Lab, lab};

const HOST_SEVEN: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 7));

/// Longer than anything takes that comes at all, on a machine that does other work too.
const PATIENCE: Duration = Duration::from_secs(60);

/// A supervisor, and an engine that echoes for each device it hands out.
struct Port {
    supervisor: PortSupervisor,
    started: Instant,
    echoes: Vec<(usize, Echo<Box<dyn Device>>)>,
    addresses: BTreeSet<LocalAddress>,
    gone: u32,
    mtus: Vec<u16>,
    moves: Vec<NeighbourMove>,
    failures: Vec<String>,
}

impl Port {
    fn open(lab: &Lab, engines: usize) -> Port {
        lab.enter_server();
        let config = PortConfig {
            interface: "vs".into(),
            listens: vec![(Transport::Udp, ListenAddress { address: None, port: 53 })],
            engines,
        };
        let path = XdpPath::new("vs", SteeringOptions::default(), XdpOptions::default());
        Port {
            supervisor: PortSupervisor::new(config, Box::new(path)).unwrap(),
            started: Instant::now(),
            echoes: Vec::new(),
            addresses: BTreeSet::new(),
            gone: 0,
            mtus: Vec::new(),
            moves: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// Runs the supervisor until `condition`.
    fn until(&mut self, condition: impl Fn(&Port) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.turn();
            if condition(self) {
                return;
            }
            assert!(Instant::now() < deadline, "failures: {:?}", self.failures);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn turn(&mut self) {
        let now = clock::Instant::ZERO + self.started.elapsed().into();
        for event in self.supervisor.poll(now) {
            match event {
                PortEvent::QueuesOpened { device, engine, .. } => {
                    self.echoes.push((engine, Echo::start(device)));
                }
                PortEvent::DeviceGone | PortEvent::Reopening => {
                    self.gone += 1;
                    self.echoes.drain(..).for_each(|(_, echo)| drop(echo.stop()));
                }
                PortEvent::AddressesChanged(addresses) => self.addresses = addresses,
                PortEvent::SourcesChanged(_) => {}
                PortEvent::MtuChanged(mtu) => self.mtus.push(mtu),
                PortEvent::SegmentsClamped(_) => {}
                PortEvent::NeighbourMoved(moved) => self.moves.push(moved),
                PortEvent::Failed(error) => self.failures.push(error.to_string()),
            }
        }
    }

    fn redirected(&self) -> u64 {
        let counters = self.supervisor.steering_counters().unwrap_or_default();
        counters.iter().find(|(name, _)| *name == "redirected").map_or(0, |(_, value)| *value)
    }

    fn claims(&self) -> usize {
        self.supervisor.claims()
    }
}

/// Whether somebody sends back what is sent, where the first may be lost.
fn is_echoed(lab: &Lab, server: &str) -> bool {
    is_echoed_within(lab, server, PATIENCE)
}

fn is_echoed_within(lab: &Lab, server: &str, time: Duration) -> bool {
    const TIMES: u32 = 6;
    lab.in_client(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.set_read_timeout(Some(time / TIMES)).unwrap();
        let mut answer = [0; 16];
        (0..TIMES).any(|_| {
            socket.send_to(b"hello", (server, 53)).is_ok()
                && socket.recv(&mut answer).is_ok_and(|len| &answer[..len] == b"hello")
        })
    })
}

#[test]
fn an_alternative_name_of_an_interface_leads_to_the_kernels_own() {
    let Some(lab) = lab(1) else { return };
    let long = "a-name-that-is-too-long-for-the-kernels-own";
    for name in ["short", long] {
        lab.ip_server(&format!("link property add dev vs altname {name}"));
    }
    lab.enter_server();
    assert_eq!(["short", long, "vs", "vc"].map(control::kernel_name), ["vs", "vs", "vs", "vc"]);
}

#[test]
fn claims_follow_the_addresses_of_the_interface() {
    let Some(lab) = lab(1) else { return };
    let mut port = Port::open(&lab, 1);
    port.until(|port| port.echoes.len() == 1 && port.claims() >= 2);
    assert!(is_echoed(&lab, "10.77.0.1"));
    lab.ip_server("address add 10.77.0.9/24 dev vs");
    let new: std::net::IpAddr = "10.77.0.9".parse().unwrap();
    port.until(|port| port.addresses.iter().any(|local| local.address == new));
    assert!(is_echoed(&lab, "10.77.0.9"));
    let before = port.redirected();
    lab.ip_server("address del 10.77.0.9/24 dev vs");
    port.until(|port| port.addresses.iter().all(|local| local.address != new));
    assert!(!is_echoed_within(&lab, "10.77.0.9", Duration::from_secs(3)));
    assert_eq!(port.redirected(), before);
    assert_eq!((port.gone, port.failures.len()), (0, 0));
}

#[test]
fn a_deleted_interface_is_served_again_when_it_is_back() {
    let Some(lab) = lab(1) else { return };
    let mut port = Port::open(&lab, 1);
    port.until(|port| port.echoes.len() == 1 && port.claims() >= 2);
    lab.ip_server("link delete vs");
    port.until(|port| port.gone == 1);
    assert!(port.supervisor.steering_counters().is_none());
    lab.connect(1);
    port.until(|port| port.echoes.len() == 1 && port.claims() >= 2);
    assert!(is_echoed(&lab, "10.77.0.1"));
}

#[test]
fn down_and_up_keeps_the_device() {
    let Some(lab) = lab(1) else { return };
    let mut port = Port::open(&lab, 1);
    port.until(|port| port.echoes.len() == 1 && port.claims() >= 2);
    lab.ip_server("link set vs down");
    port.turn();
    lab.ip_server("link set vs up");
    port.turn();
    assert!(is_echoed(&lab, "10.77.0.1"));
    assert_eq!((port.gone, port.echoes.len()), (0, 1));
}

#[test]
fn another_mtu_is_told_and_one_that_needs_larger_frames_brings_a_new_device() {
    let Some(lab) = lab(1) else { return };
    let mut port = Port::open(&lab, 1);
    port.until(|port| port.echoes.len() == 1 && port.claims() >= 2);
    lab.ip_server("link set vs mtu 1400");
    port.until(|port| port.mtus == [1400]);
    assert!(is_echoed(&lab, "10.77.0.1"));
    assert_eq!(port.gone, 0, "the device stays");
    lab.ip_server("link set vs mtu 3000");
    port.until(|port| port.gone == 1);
    assert!(port.claims() >= 2, "claims stay in force");
    port.until(|port| port.echoes.len() == 1);
    assert!(is_echoed(&lab, "10.77.0.1"));
    lab.ip_server("link set vs mtu 1500");
    port.until(|port| port.mtus == [1400, 3000, 1500]);
    assert!(is_echoed(&lab, "10.77.0.1"));
    assert_eq!((port.gone, port.failures.len()), (1, 0), "larger frames do");
    let (_, echo) = port.echoes.remove(0);
    assert_eq!(echo.stop().capabilities().mtu, 3000, "nobody told this one");
}

#[test]
fn a_neighbour_that_moves_is_told() {
    let Some(lab) = lab(1) else { return };
    let mut port = Port::open(&lab, 1);
    lab.ip_server("neigh replace 10.77.0.7 lladdr 02:00:00:00:00:01 dev vs");
    port.until(|port| port.supervisor.mirror().neighbours().any(|(key, _)| key.1 == HOST_SEVEN));
    lab.ip_server("neigh replace 10.77.0.7 lladdr 02:00:00:00:00:02 dev vs");
    port.until(|port| !port.moves.is_empty());
    assert_eq!(port.moves, [NeighbourMove { old: [2, 0, 0, 0, 0, 1], new: [2, 0, 0, 0, 0, 2] }]);
}

#[test]
fn new_queues_are_handed_to_their_engines() {
    let Some(lab) = lab(4) else { return };
    lab.run_in_client("ethtool -L vc rx 1 tx 1");
    assert!(
        lab.command_in_server("ethtool").args(["-L", "vs", "rx", "1", "tx", "1"]).status().unwrap().success()
    );
    let mut port = Port::open(&lab, 2);
    port.until(|port| port.echoes.len() == 1 && port.claims() >= 2);
    // The peer may not send on more queues than this end receives on, so this end grows first.
    assert!(
        lab.command_in_server("ethtool").args(["-L", "vs", "rx", "2", "tx", "2"]).status().unwrap().success()
    );
    port.until(|port| port.echoes.len() == 2);
    let engines: Vec<usize> = port.echoes.iter().map(|&(engine, _)| engine).collect();
    assert_eq!(engines, [0, 1]);
    lab.run_in_client("ethtool -L vc tx 2");
    for _ in 0..32 {
        assert!(is_echoed(&lab, "10.77.0.1"));
    }
    assert_eq!(port.failures, Vec::<String>::new());
}

#[test]
fn a_foreign_program_is_reported_once_and_the_port_opens_when_it_is_gone() {
    let Some(lab) = lab(1) else { return };
    lab.enter_server();
    let foreign = device_xdp::SteeringProgram::attach("vs", SteeringOptions::default()).unwrap();
    let mut port = Port::open(&lab, 1);
    let begun = Instant::now();
    port.until(|_| begun.elapsed() > Duration::from_millis(2500));
    assert_eq!(port.failures.len(), 1, "{:?}", port.failures);
    assert!(port.failures[0].contains("sidestep_steer"));
    drop(foreign);
    port.until(|port| port.echoes.len() == 1);
}
