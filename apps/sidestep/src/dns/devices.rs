//! Which devices the engines serve: kernel sockets, or an interface with its shadows (`interface.rs`).

use std::net::{SocketAddr, TcpListener};

use anyhow::Context;
use device::DataPath;
use device_dpdk::DpdkOptions;
use device_kernel::KernelSockets;
use engine::{DeviceId, EngineHandle, Role};
use native::{Interface, SteeringCounts};

use super::config::{Config, DeviceChoice, Link};
use super::interface;
use super::options::ResponderKind;
use super::tcp::{self, TcpHandle};

/// What is opened while the process still has all its privileges, and nobody serves yet: kernel sockets, or a port of DPDK.
pub(crate) struct Bound {
    addresses: Vec<SocketAddr>,
    /// For each engine.
    udp: Vec<KernelSockets>,
    /// At each address.
    tcp: Vec<TcpListener>,
    port: Option<Box<dyn DataPath>>,
}

impl Bound {
    /// Binds what `config` names, while the process may still bind low ports. Every engine has every address; the kernel spreads the
    /// clients over them (SO_REUSEPORT in socket(7)).
    pub(crate) fn open(config: &Config, engines: usize) -> anyhow::Result<Bound> {
        let mut bound = Bound { addresses: Vec::new(), udp: Vec::new(), tcp: Vec::new(), port: None };
        let addresses = match &config.device {
            DeviceChoice::Kernel(addresses) => addresses,
            DeviceChoice::Interface(Link::Xdp(_), _) => return Ok(bound),
            DeviceChoice::Interface(Link::Dpdk(name, options), _) => {
                let options = DpdkOptions { queues: engines as u16, ..options.clone() };
                bound.port = Some(device_dpdk::open(name, &options)?);
                return Ok(bound);
            }
        };
        let has_tcp = config.responder == ResponderKind::Dns;
        tcp::on_free_ports(addresses, || Bound::open_kernel(addresses, engines, has_tcp))
    }

    fn open_kernel(addresses: &[SocketAddr], engines: usize, has_tcp: bool) -> anyhow::Result<Bound> {
        let mut bound = Bound { addresses: addresses.to_vec(), udp: Vec::new(), tcp: Vec::new(), port: None };
        for _ in 0..engines {
            let listen = bound.addresses.clone();
            let sockets = KernelSockets::open(device_kernel::Config { listen, ..Default::default() })?;
            bound.addresses = sockets.local_addrs().collect(); // Port 0 has become a number, for the other engines too.
            bound.udp.push(sockets);
        }
        if has_tcp {
            let listen = |&address| tcp::listen(address, false).with_context(|| format!("TCP at {address}"));
            bound.tcp = bound.addresses.iter().map(listen).collect::<Result<_, _>>()?;
        }
        Ok(bound)
    }

    /// Hands the sockets to the engines and to DNS over TCP.
    fn serve(self, engines: &[EngineHandle], tcp: Option<&TcpHandle>) -> Devices {
        const KERNEL: DeviceId = DeviceId(0);
        for (engine, sockets) in engines.iter().zip(self.udp) {
            engine.add_device(KERNEL, Role::Primary, Box::new(sockets));
        }
        if let Some(tcp) = tcp {
            self.addresses.iter().zip(self.tcp).for_each(|(&address, listener)| tcp.add(address, listener));
        }
        Devices::Kernel(self.addresses)
    }
}

/// The devices that a server serves.
pub(crate) enum Devices {
    /// Kernel sockets on these addresses.
    Kernel(Vec<SocketAddr>),
    /// An interface, followed by a thread of its own.
    Interface(Interface),
}

impl Devices {
    /// Opens the interface, if `config` names one, and hands that or what is bound to the engines and to DNS over TCP.
    pub(crate) fn open(
        config: &Config,
        bound: Bound,
        engines: &[EngineHandle],
        tcp: Option<&TcpHandle>,
    ) -> anyhow::Result<Devices> {
        match &config.device {
            DeviceChoice::Kernel(_) => Ok(bound.serve(engines, tcp)),
            DeviceChoice::Interface(link, listens) => {
                let name = link.interface();
                interface::open(name, bound.port, listens, config, engines.to_vec(), tcp.cloned())
                    .map(Devices::Interface)
            }
        }
    }

    /// Where, for the ready line.
    pub(crate) fn describe(&self) -> String {
        match self {
            Devices::Kernel(addresses) => format!("on {} over kernel sockets", join(addresses)),
            Devices::Interface(interface) => interface.describe().to_owned(),
        }
    }

    /// Counts of the steering program, if there is one.
    pub(crate) fn steering(&self) -> Option<SteeringCounts> {
        match self {
            Devices::Kernel(_) => None,
            Devices::Interface(interface) => Some(interface.steering()),
        }
    }

    /// Gives the interface back to the kernel, if there is one. Engines that it fed must have ended.
    pub(crate) fn stop(self) {
        match self {
            Devices::Kernel(_) => {}
            Devices::Interface(interface) => interface.stop(),
        }
    }
}

/// Addresses for people, or what to say when there are none.
pub(crate) fn join<'a>(addresses: impl IntoIterator<Item = &'a SocketAddr>) -> String {
    let texts: Vec<String> = addresses.into_iter().map(SocketAddr::to_string).collect();
    if texts.is_empty() { "no address yet".to_owned() } else { texts.join(" ") }
}
