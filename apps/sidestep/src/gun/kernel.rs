//! Kernel sockets: needs no privileges.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::RangeInclusive;

use anyhow::{Context, bail, ensure};
use device_kernel::{Config, KernelSockets, OpenError};
use ipnet::IpNet;
use wire::{Endpoints, Envelope};

use super::load::Range;

/// Packets that wait in the sockets' buffers to be sent, of this many octets at most; fewer of longer ones.
const FRAMES: usize = 4096;
const PAYLOAD_MAX: u16 = 4096;
/// For one burst at least.
const FRAMES_MIN: usize = 256;

/// Ports are looked for from here on, where each has an address of its own: the kernel would give the same one to several.
const FIRST_PORT: u16 = 16384;

/// Sockets for so many ports, of the address that the kernel sends from, or of the addresses of `source` in turn.
/// Answers may have `payload` octets, or [`PAYLOAD_MAX`] if that is more; longer ones than sockets take are not read.
pub(crate) fn open(
    server: SocketAddr,
    ports: u16,
    source: Option<IpNet>,
    payload: u16,
) -> anyhow::Result<Range> {
    let payload_max = payload.clamp(PAYLOAD_MAX, device_kernel::PAYLOAD_MAX);
    let frames = (FRAMES * usize::from(PAYLOAD_MAX) / usize::from(payload_max)).max(FRAMES_MIN);
    let config = Config { payload_max, frames, ..Config::default() };
    let (sockets, locals) = sockets(config, server, local_for(server)?, ports, source)?;
    let ends = |own| Endpoints::new(own, server).context("both addresses are of one IP version");
    let ways = locals.into_iter().map(|own| Ok(Envelope::untagged(ends(own)?)));
    let ways = ways.collect::<anyhow::Result<Vec<Envelope>>>()?;
    let description = "kernel sockets".to_owned();
    Ok(Range::new(Box::new(sockets), description, ways, ports, ()))
}

/// The kernel's sockets at the ports that something else than they asks from, and their addresses: they hold the ports, and receive what is left to
/// the kernel.
pub(super) fn reserve(
    server: SocketAddr,
    local: SocketAddr,
    ports: u16,
    source: Option<IpNet>,
    payload: u16,
) -> anyhow::Result<(KernelSockets, Vec<SocketAddr>)> {
    let payload_max = payload.clamp(PAYLOAD_MAX, device_kernel::PAYLOAD_MAX);
    let config = Config { payload_max, frames: FRAMES_MIN, ..Config::default() };
    sockets(config, server, local, ports, source)
}

/// Sockets for so many ports of the address `local`, or of those of `source` in turn.
fn sockets(
    config: Config,
    server: SocketAddr,
    local: SocketAddr,
    ports: u16,
    source: Option<IpNet>,
) -> anyhow::Result<(KernelSockets, Vec<SocketAddr>)> {
    if let Some(source) = source {
        ensure!(
            source.addr().is_ipv4() == server.is_ipv4(),
            "{source} and {server} are of different IP versions"
        );
    }
    let mut sockets = KernelSockets::open(Config { share_port: false, ..config })?;
    let mut locals = Vec::with_capacity(usize::from(ports));
    let hosts: Vec<IpAddr> = source.iter().flat_map(IpNet::hosts).take(usize::from(ports)).collect();
    let mut free = FIRST_PORT..=u16::MAX;
    for number in 0..usize::from(ports) {
        locals.push(match hosts.get(number % hosts.len().max(1)) {
            None => sockets.add_address(local)?,
            Some(host) => add_with_free_port(&mut sockets, *host, &mut free)?,
        });
    }
    Ok((sockets, locals))
}

/// A socket of that address, with the first of these ports that nobody has there.
fn add_with_free_port(
    sockets: &mut KernelSockets,
    host: IpAddr,
    free: &mut RangeInclusive<u16>,
) -> anyhow::Result<SocketAddr> {
    for port in free {
        match sockets.add_address(SocketAddr::new(host, port)) {
            Err(OpenError::AddressInUse { .. }) => {}
            own => return own.with_context(|| format!("--source: is {host} an address of this host?")),
        }
    }
    bail!("no port is free")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_may_be_said_to_be_longer_than_sockets_take() {
        let server = ([127, 0, 0, 1], 9).into();
        assert!(open(server, 1, None, u16::MAX).is_ok());
    }
}
