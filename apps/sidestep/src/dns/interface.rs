//! One interface served over AF_XDP, with its shadows: kernel sockets for all that the steering program leaves to the
//! kernel (fragments, IP options, queues that are not ours, an interface without program).
//!
//! A thread follows the kernel: it hands devices to the engines, takes them back, and opens and closes the shadows as
//! addresses come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use anyhow::Context;
use control::{PortConfig, PortEvent, PortSupervisor};
use device_kernel::KernelSockets;
use device_xdp::{SteeringCounters, SteeringOptions, XdpOptions};
use engine::{Clock, DeviceId, EngineHandle, Role};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType};
use steering::claim::resolve;
use steering::{ListenAddress, LocalAddress, Transport, VlanTags};

use super::config::Config;
use super::options::BusyPoll;
use super::ports::join;
use super::tcp::{self, TcpHandle};

/// Frames of a shadow's socket: what comes there is little.
const SHADOW_FRAMES: usize = 192;

/// What the steering program counted, a second ago at most; `None` while it is not attached.
pub(crate) type SteeringCounts = Arc<Mutex<Option<SteeringCounters>>>;

/// The interface as the main thread sees it.
pub(crate) struct InterfacePort {
    description: String,
    steering: SteeringCounts,
    stop: Arc<OwnedFd>,
    thread: JoinHandle<()>,
}

impl InterfacePort {
    /// Attaches to the interface and opens what there is now. What fails at the start is an error; what fails later is
    /// logged and tried again.
    pub(crate) fn open(
        name: &str,
        listens: &[ListenAddress],
        config: &Config,
        engines: Vec<EngineHandle>,
        tcp: Option<TcpHandle>,
    ) -> anyhow::Result<InterfacePort> {
        device_xdp::queue_pairs(name)?; // Is there such an interface at all?
        let port_config = PortConfig {
            interface: name.to_owned(),
            listens: listens.iter().map(|&listen| (Transport::Udp, listen)).collect(),
            engines: engines.len(),
            steering: SteeringOptions::default(),
            device: XdpOptions {
                busy_poll: (config.busy_poll != BusyPoll::Off).then(device_xdp::BusyPoll::default),
                ..XdpOptions::default()
            },
        };
        let supervisor = PortSupervisor::new(port_config)?;
        let follower = Follower {
            name: name.to_owned(),
            listens: listens.to_vec(),
            engines,
            tcp,
            next_id: 0,
            devices: Vec::new(),
            shadows: BTreeMap::new(),
            modes: BTreeSet::new(),
        };
        start(supervisor, follower)
    }

    /// Where, for the ready line.
    pub(crate) fn describe(&self) -> String {
        self.description.clone()
    }

    /// The steering program's counts, for the statistics.
    pub(crate) fn steering(&self) -> SteeringCounts {
        Arc::clone(&self.steering)
    }

    /// Detaches from the interface: what comes from now on is the kernel's.
    pub(crate) fn stop(self) {
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes()); // Only fails if it is stopping already.
        let _ = self.thread.join(); // A panic there has been reported; the rest is to end all the same.
    }
}

fn start(mut supervisor: PortSupervisor, mut follower: Follower) -> anyhow::Result<InterfacePort> {
    let clock = Clock::start();
    for event in supervisor.poll(clock.now()) {
        match event {
            PortEvent::Failed(error) => return Err(error.into()),
            event => follower.on_event(event),
        }
    }
    let description = follower.describe();
    let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).context("making an eventfd")?);
    let stopped = Arc::clone(&stop);
    let steering = SteeringCounts::default();
    let counted = Arc::clone(&steering);
    let follow = move || {
        while wait(&supervisor, &stopped, &clock) {
            for event in supervisor.poll(clock.now()) {
                follower.on_event(event);
            }
            let counts = supervisor.program().and_then(|program| program.counters().ok());
            *counted.lock().unwrap_or_else(PoisonError::into_inner) = counts;
        }
    };
    let thread = std::thread::Builder::new().name("port".to_owned()).spawn(follow)?;
    Ok(InterfacePort { description, steering, stop, thread })
}

/// Sleeps until there is news; false when it is time to end.
fn wait(supervisor: &PortSupervisor, stop: &OwnedFd, clock: &Clock) -> bool {
    let left = supervisor.poll_timeout().since(clock.now());
    let timeout = Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    };
    let mut fds = [
        PollFd::from_borrowed_fd(supervisor.fd(), PollFlags::IN),
        PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN),
    ];
    // A signal ends the wait early, which does no harm.
    let _ = poll(&mut fds, Some(&timeout));
    !fds[1].revents().contains(PollFlags::IN)
}

/// Turns what happens to the interface into what engines and DNS over TCP are to do.
struct Follower {
    name: String,
    listens: Vec<ListenAddress>,
    engines: Vec<EngineHandle>,
    tcp: Option<TcpHandle>,
    next_id: u32,
    /// The AF_XDP devices that are out, each with its engine.
    devices: Vec<(usize, DeviceId)>,
    /// The shadows, by address; every engine has one of the same number.
    shadows: BTreeMap<SocketAddr, DeviceId>,
    /// How packets come in, for people.
    modes: BTreeSet<String>,
}

impl Follower {
    fn on_event(&mut self, event: PortEvent) {
        match event {
            PortEvent::QueuesOpened { device, engine, queues, mode } => {
                let text = format!("{mode}");
                println!("sidestep dns: {}: queues {queues:?} by engine {engine}, {text}", self.name);
                self.modes.insert(text);
                let id = self.new_id();
                self.engines[engine].add_device(id, Role::Primary, device);
                self.devices.push((engine, id));
            }
            PortEvent::DeviceGone => {
                println!("sidestep dns: {}: gone, or to be opened anew", self.name);
                for (engine, id) in self.devices.drain(..) {
                    self.engines[engine].remove_device(id);
                }
            }
            PortEvent::MtuChanged(_) | PortEvent::NeighbourMoved(_) => {}
            PortEvent::AddressesChanged(addresses) => self.follow_addresses(&addresses),
            PortEvent::Failed(error) => eprintln!("sidestep dns: {}: {error}; trying again", self.name),
        }
    }

    fn new_id(&mut self) -> DeviceId {
        self.next_id += 1;
        DeviceId(self.next_id)
    }

    /// Opens and closes shadows so that there is one for every address that is claimed.
    fn follow_addresses(&mut self, addresses: &BTreeSet<LocalAddress>) {
        let claims = resolve(Transport::Udp, &self.listens, addresses);
        let wanted: BTreeSet<SocketAddr> =
            claims.iter().filter_map(|claim| socket_address(&self.name, &claim.local, claim.port)).collect();
        let gone: Vec<SocketAddr> =
            self.shadows.keys().filter(|address| !wanted.contains(address)).copied().collect();
        for address in gone {
            self.close_shadow(address);
        }
        for address in wanted {
            if !self.shadows.contains_key(&address)
                && let Err(error) = self.open_shadow(address)
            {
                eprintln!(
                    "sidestep dns: {address}: what the kernel receives there is not answered: {error:#}"
                );
            }
        }
    }

    fn open_shadow(&mut self, address: SocketAddr) -> anyhow::Result<()> {
        let config = device_kernel::Config {
            listen: vec![address],
            free_bind: true,
            frames: SHADOW_FRAMES,
            ..device_kernel::Config::default()
        };
        let open = |_: &EngineHandle| KernelSockets::open(config.clone());
        let sockets: Vec<KernelSockets> = self.engines.iter().map(open).collect::<Result<_, _>>()?;
        if let Some(tcp) = &self.tcp {
            let listener = tcp::listen(address, true).with_context(|| format!("TCP at {address}"))?;
            tcp.add(address, listener);
        }
        let id = self.new_id();
        for (engine, sockets) in self.engines.iter().zip(sockets) {
            engine.add_device(id, Role::Shadow, Box::new(sockets));
        }
        self.shadows.insert(address, id);
        Ok(())
    }

    fn close_shadow(&mut self, address: SocketAddr) {
        let Some(id) = self.shadows.remove(&address) else { return };
        self.engines.iter().for_each(|engine| engine.remove_device(id));
        if let Some(tcp) = &self.tcp {
            tcp.remove(address);
        }
    }

    fn describe(&self) -> String {
        let modes: Vec<&str> = self.modes.iter().map(String::as_str).collect();
        let modes = if modes.is_empty() { "no queue yet".to_owned() } else { modes.join(", ") };
        format!("on {} at {} by {modes}", join(self.shadows.keys()), self.name)
    }
}

/// The address that a socket is bound to. A link-local one needs its interface; behind VLAN tags that is another interface,
/// which is not known here: such an address has no shadow.
fn socket_address(interface: &str, local: &LocalAddress, port: u16) -> Option<SocketAddr> {
    match local.address {
        IpAddr::V6(address) if address.is_unicast_link_local() => {
            if local.vlan != VlanTags::default() {
                return None;
            }
            let any = rustix::net::socket(AddressFamily::INET6, SocketType::DGRAM, None).ok()?;
            let index = name_to_index(any, interface).ok()?;
            Some(SocketAddrV6::new(address, port, 0, index).into())
        }
        address => Some(SocketAddr::new(address, port)),
    }
}
