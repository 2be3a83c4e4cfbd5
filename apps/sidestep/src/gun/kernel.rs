//! Kernel sockets: needs no privileges.

use std::net::{SocketAddr, UdpSocket};

use anyhow::Context;
use device_kernel::{Config, KernelSockets};
use wire::{Endpoints, Envelope};

use super::load::Range;

/// Packets that wait in the sockets' buffers to be sent.
const FRAMES: usize = 4096;
const PAYLOAD_MAX: u16 = 4096;

pub(crate) fn open(server: SocketAddr, ports: u16) -> anyhow::Result<Range> {
    let local = local_for(server)?;
    let config = Config {
        listen: Vec::new(),
        share_port: false,
        payload_max: PAYLOAD_MAX,
        frames: FRAMES,
        ..Config::default()
    };
    let mut sockets = KernelSockets::open(config)?;
    let mut ways = Vec::with_capacity(usize::from(ports));
    for _ in 0..ports {
        let own = sockets.add_address(local)?;
        let ends = Endpoints::new(own, server).context("both addresses are of one IP version")?;
        ways.push(Envelope::untagged(ends));
    }
    let description = "kernel sockets".to_owned();
    Ok(Range::new(Box::new(sockets), description, ways, ports, ()))
}

/// The address that the kernel sends from to this server, with any port.
pub(super) fn local_for(server: SocketAddr) -> anyhow::Result<SocketAddr> {
    let any: SocketAddr = if server.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0; 8], 0).into() };
    let ask = || -> std::io::Result<SocketAddr> {
        let socket = UdpSocket::bind(any)?;
        socket.connect(server)?;
        let mut local = socket.local_addr()?;
        local.set_port(0);
        Ok(local)
    };
    ask().with_context(|| format!("no way to {server}"))
}
