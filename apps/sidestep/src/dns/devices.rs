//! Which devices the engines serve: kernel sockets, or an interface with its shadows (`interface.rs`).

use std::net::SocketAddr;

use anyhow::Context;
use device_kernel::KernelSockets;
use engine::{DeviceId, EngineHandle, Role};
use native::{Interface, SteeringCounts};

use super::config::{Config, DeviceChoice};
use super::interface;
use super::tcp::{self, TcpHandle};

/// The devices that a server serves.
pub(crate) enum Devices {
    /// Kernel sockets on these addresses.
    Kernel(Vec<SocketAddr>),
    /// An interface, followed by a thread of its own.
    Interface(Interface),
}

impl Devices {
    /// Opens what `config` names and hands it to the engines and to DNS over TCP.
    pub(crate) fn open(
        config: &Config,
        engines: &[EngineHandle],
        tcp: Option<&TcpHandle>,
    ) -> anyhow::Result<Devices> {
        match &config.device {
            DeviceChoice::Kernel(addresses) => open_kernel(addresses, engines, tcp),
            DeviceChoice::Interface(name, listens) => {
                interface::open(name, listens, config, engines.to_vec(), tcp.cloned()).map(Devices::Interface)
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

/// Every engine opens every address; the kernel spreads the clients over them (SO_REUSEPORT in socket(7)).
fn open_kernel(
    wanted: &[SocketAddr],
    engines: &[EngineHandle],
    tcp: Option<&TcpHandle>,
) -> anyhow::Result<Devices> {
    const KERNEL: DeviceId = DeviceId(0);
    let mut addresses = wanted.to_vec();
    for engine in engines {
        let config = device_kernel::Config { listen: addresses.clone(), ..device_kernel::Config::default() };
        let sockets = KernelSockets::open(config)?;
        addresses = sockets.local_addrs().collect(); // Port 0 has become a number, for the other engines too.
        engine.add_device(KERNEL, Role::Primary, Box::new(sockets));
    }
    if let Some(tcp) = tcp {
        for &address in &addresses {
            let listener = tcp::listen(address, false).with_context(|| format!("TCP at {address}"))?;
            tcp.add(address, listener);
        }
    }
    Ok(Devices::Kernel(addresses))
}

/// Addresses for people, or what to say when there are none.
pub(crate) fn join<'a>(addresses: impl IntoIterator<Item = &'a SocketAddr>) -> String {
    let texts: Vec<String> = addresses.into_iter().map(SocketAddr::to_string).collect();
    if texts.is_empty() { "no address yet".to_owned() } else { texts.join(" ") }
}
