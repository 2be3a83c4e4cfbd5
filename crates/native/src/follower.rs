//! Turns changes of the interface into commands for the engines and the shadows.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use std::net::SocketAddr;

use control::{NeighbourMove, PortError, PortEvent, SegmentClamp, Sources};
use device::Device;
use device_kernel::KernelSockets;
use dispatch::Scatter;
use engine::{DeviceId, EngineHandle, Role};
use stack::{RouteClamp, SourceFilter};
use steering::claim::resolve;
use steering::{LocalAddress, Transport};
use wire::MacAddress;

use crate::interface::{Dispatch, InterfaceConfig};
use crate::shadow::{Owner, socket_address};

/// Frames of a shadow's socket: few packets arrive there.
const SHADOW_FRAMES: usize = 192;

/// A change at an interface, for people.
#[derive(Debug)]
pub enum Notice {
    /// Queues are open, and an engine serves them.
    QueuesOpened {
        /// The interface.
        interface: String,
        /// Its queues.
        queues: Vec<u16>,
        /// The engine that serves them.
        engine: usize,
        /// How their packets come.
        mode: String,
    },
    /// The interface is gone, or must be attached again. The kernel receives its packets meanwhile.
    Gone {
        /// The interface.
        interface: String,
    },
    /// The interface accepts packets that need larger frames. It is opened again with larger ones, and TCP waits for that.
    Reopening {
        /// The interface.
        interface: String,
    },
    /// The MTU of the interface, and of the engines, has changed.
    MtuChanged {
        /// The interface.
        interface: String,
        /// Octets of its longest IP packet.
        mtu: u16,
    },
    /// Something failed and is tried again.
    Failed {
        /// The interface.
        interface: String,
        /// The error.
        error: PortError,
    },
    /// Workers could not be joined to queues, for want of descriptors: those queues are not served, and the kernel receives their packets.
    NotShared {
        /// The interface.
        interface: String,
        /// The error.
        error: String,
    },
    /// Packets that the kernel receives at this address are not served.
    NoShadow {
        /// The address and port.
        address: SocketAddr,
        /// Why its socket could not be opened.
        error: String,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::QueuesOpened { interface, queues, engine, mode } => {
                write!(f, "{interface}: queues {queues:?} by engine {engine}, {mode}")
            }
            Notice::Gone { interface } => {
                write!(f, "{interface}: closed; it is opened again if it comes back")
            }
            Notice::Reopening { interface } => {
                write!(f, "{interface}: its MTU exceeds the frames; opening it with larger frames")
            }
            Notice::MtuChanged { interface, mtu } => write!(f, "{interface}: MTU {mtu}"),
            Notice::NotShared { interface, error } => {
                write!(f, "{interface}: queues are left to the kernel, as they cannot be shared: {error}")
            }
            Notice::Failed { interface, error } => write!(f, "{interface}: {error}; trying again"),
            Notice::NoShadow { address, error } => {
                write!(f, "{address}: what the kernel receives there is not answered: {error}")
            }
        }
    }
}

pub(crate) struct Follower<O> {
    config: InterfaceConfig,
    engines: Vec<EngineHandle>,
    owner: O,
    next_id: u32,
    /// The devices in use, each with its engine.
    devices: Vec<(usize, DeviceId)>,
    /// Shadows of UDP; every engine has a device of the same number.
    udp_shadows: BTreeMap<SocketAddr, DeviceId>,
    /// Shadows of TCP; the owner has their sockets.
    tcp_shadows: BTreeSet<SocketAddr>,
    /// How packets come.
    modes: BTreeSet<String>,
}

impl<O: Owner> Follower<O> {
    pub(crate) fn new(config: InterfaceConfig, engines: Vec<EngineHandle>, owner: O) -> Follower<O> {
        Follower {
            config,
            engines,
            owner,
            next_id: 0,
            devices: Vec::new(),
            udp_shadows: BTreeMap::new(),
            tcp_shadows: BTreeSet::new(),
            modes: BTreeSet::new(),
        }
    }

    pub(crate) fn on_event(&mut self, event: PortEvent) {
        let interface = self.config.name.clone();
        match event {
            PortEvent::QueuesOpened { device, engine, queues, mode } => {
                self.modes.insert(mode.clone());
                self.add_device(engine, device);
                self.owner.on_notice(&Notice::QueuesOpened { interface, queues, engine, mode });
            }
            PortEvent::DeviceGone => {
                self.remove_devices();
                self.owner.on_notice(&Notice::Gone { interface });
            }
            PortEvent::Reopening => {
                self.remove_devices();
                self.owner.on_notice(&Notice::Reopening { interface });
            }
            PortEvent::MtuChanged(mtu) => {
                self.engines.iter().for_each(|engine| engine.set_mtu(self.config.link, mtu));
                self.owner.on_notice(&Notice::MtuChanged { interface, mtu });
            }
            PortEvent::NeighbourMoved(NeighbourMove { old, new }) => {
                let (old, new) = (MacAddress(old), MacAddress(new));
                self.engines.iter().for_each(|engine| engine.replace_neighbour(self.config.link, old, new));
            }
            PortEvent::SegmentsClamped(clamps) => self.clamp_segments(&clamps),
            PortEvent::AddressesChanged(addresses) => self.follow_addresses(&addresses),
            PortEvent::SourcesChanged(sources) => {
                let filters: Vec<_> = sources.into_iter().map(filter_of).collect();
                self.engines.iter().for_each(|engine| engine.set_sources(self.config.link, filters.clone()));
            }
            PortEvent::Failed(error) => self.owner.on_notice(&Notice::Failed { interface, error }),
        }
    }

    /// Gives a device to its engine, and to the workers as well if there are some.
    fn add_device(&mut self, engine: usize, device: Box<dyn Device>) {
        let Some(Dispatch { dispatchers, own_percent, key }) = self.config.dispatch else {
            return self.add_link(engine, device);
        };
        let workers = dispatchers..self.engines.len();
        let scatter = Scatter::new(workers.len(), own_percent, key);
        match dispatch::share(device, workers.len(), scatter) {
            Ok((dispatcher, made)) => {
                // Workers stand first: they go first, too.
                workers.zip(made).for_each(|(worker, device)| self.add_link(worker, Box::new(device)));
                self.add_link(engine, Box::new(dispatcher));
            }
            Err(error) => self.owner.on_notice(&Notice::NotShared {
                interface: self.config.name.clone(),
                error: error.to_string(),
            }),
        }
    }

    fn add_link(&mut self, engine: usize, device: Box<dyn Device>) {
        let id = self.new_id();
        self.engines[engine].set_mss_clamp(self.config.link, self.config.mss_clamp);
        self.engines[engine].add_link(id, self.config.link, device);
        self.devices.push((engine, id));
    }

    fn clamp_segments(&self, clamps: &[SegmentClamp]) {
        let route_clamp = |clamp: &SegmentClamp| {
            let SegmentClamp { network, prefix_len, mss } = *clamp;
            RouteClamp { network, prefix_len, mss }
        };
        let clamps: Vec<RouteClamp> = clamps.iter().map(route_clamp).collect();
        self.engines.iter().for_each(|engine| engine.set_route_clamps(clamps.clone()));
    }

    fn remove_devices(&mut self) {
        for (engine, id) in self.devices.drain(..) {
            self.engines[engine].remove_device(id);
        }
    }

    fn new_id(&mut self) -> DeviceId {
        self.next_id += 1;
        DeviceId(self.next_id)
    }

    /// Opens and closes shadows so that every claimed address has one.
    fn follow_addresses(&mut self, addresses: &BTreeSet<LocalAddress>) {
        let wanted = self.claimed(Transport::Udp, addresses);
        let open: BTreeSet<SocketAddr> = self.udp_shadows.keys().copied().collect();
        open.difference(&wanted).for_each(|&address| self.close_udp(address));
        for &address in wanted.difference(&open) {
            let outcome = self.open_udp(address);
            self.note_outcome(address, outcome);
        }
        let wanted = self.claimed(Transport::Tcp, addresses);
        let open = std::mem::replace(&mut self.tcp_shadows, wanted.clone());
        open.difference(&wanted).for_each(|&address| self.owner.close_shadow(address));
        for &address in wanted.difference(&open) {
            let outcome = self.owner.open_shadow(address).map_err(|error| format!("TCP: {error}"));
            self.note_outcome(address, outcome);
        }
    }

    /// The addresses that need a shadow.
    fn claimed(&self, transport: Transport, addresses: &BTreeSet<LocalAddress>) -> BTreeSet<SocketAddr> {
        let of_transport = self.config.listens.iter().filter(|(own, _)| *own == transport);
        let listens: Vec<_> = of_transport.map(|(_, listen)| *listen).collect();
        let claims = resolve(transport, &listens, addresses);
        let addresses = claims.iter().filter_map(|c| socket_address(&self.config.name, &c.local, c.port));
        addresses.collect()
    }

    fn note_outcome(&mut self, address: SocketAddr, outcome: Result<(), String>) {
        if let Err(error) = outcome {
            self.owner.on_notice(&Notice::NoShadow { address, error });
        }
    }

    fn open_udp(&mut self, address: SocketAddr) -> Result<(), String> {
        let config = device_kernel::Config {
            listen: vec![address],
            free_bind: true,
            frames: SHADOW_FRAMES,
            ..device_kernel::Config::default()
        };
        let open = |_: &EngineHandle| KernelSockets::open(config.clone());
        let sockets: Result<Vec<KernelSockets>, _> = self.engines.iter().map(open).collect();
        let sockets = sockets.map_err(|error| error.to_string())?;
        let id = self.new_id();
        for (engine, sockets) in self.engines.iter().zip(sockets) {
            engine.add_device(id, Role::Shadow, Box::new(sockets));
        }
        self.udp_shadows.insert(address, id);
        Ok(())
    }

    fn close_udp(&mut self, address: SocketAddr) {
        if let Some(id) = self.udp_shadows.remove(&address) {
            self.engines.iter().for_each(|engine| engine.remove_device(id));
        }
    }

    pub(crate) fn describe(&self) -> String {
        let modes: Vec<&str> = self.modes.iter().map(String::as_str).collect();
        let modes = if modes.is_empty() { "no queue yet".to_owned() } else { modes.join(", ") };
        let addresses: BTreeSet<SocketAddr> =
            self.udp_shadows.keys().chain(&self.tcp_shadows).copied().collect();
        let texts: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
        let texts = if texts.is_empty() { "no address yet".to_owned() } else { texts.join(" ") };
        format!("on {texts} at {} by {modes}", self.config.name)
    }
}

fn filter_of(Sources { vlan, allowed, routed }: Sources) -> SourceFilter {
    SourceFilter { vlan: [vlan.outer, vlan.inner], allowed, routed }
}
