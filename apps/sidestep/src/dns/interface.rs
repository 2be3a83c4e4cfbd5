//! One interface served over AF_XDP or DPDK: what is claimed on it, and who serves what the steering program leaves to the kernel
//! (fragments, IP options, queues that are not ours, an interface without program).

use std::io;
use std::net::SocketAddr;

use anyhow::Context;
use device::DataPath;
use device_xdp::{SteeringOptions, XdpOptions};
use engine::EngineHandle;
use native::{Interface, InterfaceConfig, Notice, Owner};
use steering::{ListenAddress, Transport};

use super::config::Config;
use super::options::{BusyPoll, ResponderKind};
use super::tcp::{self, TcpHandle};
use crate::xdp_mode::XdpMode;

/// Attaches to the interface `name`, by `path` if it is not AF_XDP, and has `engines` serve UDP and TCP there; `tcp` serves what its kernel
/// accepts.
pub(crate) fn open(
    name: &str,
    path: Option<Box<dyn DataPath>>,
    listens: &[ListenAddress],
    config: &Config,
    engines: Vec<EngineHandle>,
    tcp: Option<TcpHandle>,
) -> anyhow::Result<Interface> {
    let transports: &[Transport] = match config.responder {
        ResponderKind::Dns => &[Transport::Udp, Transport::Tcp],
        ResponderKind::Echo(_) => &[Transport::Udp],
    };
    let both = |&listen: &ListenAddress| transports.iter().map(move |&transport| (transport, listen));
    let device = XdpOptions {
        busy_poll: (config.busy_poll != BusyPoll::Off).then(device_xdp::BusyPoll::default),
        ..XdpOptions::default()
    };
    let claimed = InterfaceConfig {
        device,
        steering: SteeringOptions {
            mode: config.xdp_mode.map(XdpMode::attach),
            ..SteeringOptions::default()
        },
        mss_clamp: config.mss_clamp,
        dispatch: config.sharing.dispatch(),
        ..InterfaceConfig::new(name, listens.iter().flat_map(both).collect())
    };
    let opened = match path {
        Some(path) => Interface::open_by(path, claimed, engines, Shadows { tcp }),
        None => Interface::open(claimed, engines, Shadows { tcp }),
    };
    opened.with_context(|| format!("device {name}"))
}

/// Kernel sockets for DNS over TCP.
struct Shadows {
    tcp: Option<TcpHandle>,
}

impl Owner for Shadows {
    fn open_shadow(&mut self, address: SocketAddr) -> io::Result<()> {
        if let Some(tcp) = &self.tcp {
            tcp.add(address, tcp::listen(address, true)?);
        }
        Ok(())
    }

    fn close_shadow(&mut self, address: SocketAddr) {
        if let Some(tcp) = &self.tcp {
            tcp.remove(address);
        }
    }

    fn on_notice(&mut self, notice: &Notice) {
        match notice {
            Notice::Failed { .. } | Notice::NoShadow { .. } => log::warn!("{notice}"),
            _ => log::info!("{notice}"),
        }
    }
}
