//! An interface by AF_XDP. Ours are the ports that we ask from, and nothing else.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use anyhow::{Context, bail};
use clock::{Duration, Instant};
use control::{PortConfig, PortEvent, PortSupervisor, look_for_neighbour, route_to};
use device::Device;
use device_xdp::{SteeringOptions, XdpOptions, XdpPath};
use engine::Clock;
use steering::{ListenAddress, Transport};
use wire::ethernet::ethertype;
use wire::{Endpoints, Envelope, MacAddress, VlanTag};

use super::kernel::local_for;
use super::load::Range;

/// How long the kernel may take to find the next hop, and an interface's queues to become free.
const PATIENCE: Duration = Duration::from_secs(4);
/// Between two looks.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(20);
/// Questions and answers that may be on their way between kernel and generator.
const FRAMES: u32 = 8192;

pub(crate) fn open(interface: &str, server: SocketAddr, ports: u16) -> anyhow::Result<Range> {
    let queues = device_xdp::queue_pairs(interface)?;
    let local = local_for(server)?;
    // The kernel's sockets hold the ports; what is claimed does not come to them.
    let reserved: Vec<UdpSocket> =
        (0..ports).map(|_| UdpSocket::bind(local)).collect::<Result<_, _>>().context("reserving ports")?;
    let locals: Vec<SocketAddr> = reserved.iter().map(UdpSocket::local_addr).collect::<Result<_, _>>()?;
    let listens = locals.iter().map(|own| {
        (Transport::Udp, ListenAddress { address: Some(own.ip().to_canonical()), port: own.port() })
    });
    let config = PortConfig { interface: interface.to_owned(), listens: listens.collect(), engines: 1 };
    let options = XdpOptions { frames_per_queue: FRAMES, ..XdpOptions::default() };
    let path = XdpPath::new(interface, SteeringOptions::default(), options);
    let mut supervisor = PortSupervisor::new(config, Box::new(path))?;
    let clock = Clock::start();
    let (device, mode) = first_device(&mut supervisor, &clock)?;
    let way = way(&mut supervisor, interface, server.ip(), &clock)?;
    let ways = locals.into_iter().map(|own| Envelope { endpoints: ends(own, server), ..way }).collect();
    let description = format!("{interface}, {mode}");
    Ok(Range::new(device, description, ways, queues, (supervisor, reserved)))
}

fn ends(own: SocketAddr, server: SocketAddr) -> Endpoints {
    Endpoints::new(own, server).expect("the kernel sends from an address of the same version")
}

/// The device of all queues.
fn first_device(supervisor: &mut PortSupervisor, clock: &Clock) -> anyhow::Result<(Box<dyn Device>, String)> {
    let until = clock.now() + PATIENCE;
    loop {
        let now = clock.now();
        for event in supervisor.poll(now) {
            match event {
                PortEvent::QueuesOpened { device, mode, .. } => return Ok((device, mode)),
                PortEvent::Failed(error) => return Err(error.into()),
                _ => {}
            }
        }
        if now >= until {
            bail!("the interface gives no queues: is it up, and does it have an address?");
        }
        std::thread::sleep(PAUSE);
    }
}

/// The way to the server, but for the ends.
fn way(
    supervisor: &mut PortSupervisor,
    interface: &str,
    server: IpAddr,
    clock: &Clock,
) -> anyhow::Result<Envelope> {
    let route = route_to(server).with_context(|| format!("no route to {server}"))?;
    if !supervisor.mirror().interfaces_on(interface).contains(&route.interface) {
        bail!("packets to {server} do not leave by {interface}");
    }
    let next = route.gateway.unwrap_or(server);
    let _ = look_for_neighbour(route.interface, next); // The mirror shows what came of it.
    let until = clock.now() + PATIENCE;
    let destination_mac = loop {
        let known = supervisor.mirror().neighbour(route.interface, next);
        if let Some(mac) = known.filter(|known| known.usable).and_then(|known| known.mac) {
            break MacAddress(mac);
        }
        wait(supervisor, clock.now(), until, next)?;
    };
    let mirror = supervisor.mirror();
    let source_mac = MacAddress(mirror.link(interface).and_then(|link| link.mac).unwrap_or_default());
    let locals = mirror.local_addresses(interface);
    let vlan = locals.iter().find(|local| local.address == route.source).map(|local| local.vlan);
    let vlan = vlan.unwrap_or_default();
    let tag = |control: u16| (control != 0).then_some(VlanTag { tpid: ethertype::VLAN, control });
    let tags = [tag(vlan.outer), tag(vlan.inner)];
    let nobody = Endpoints::new(([0, 0, 0, 0], 0).into(), ([0, 0, 0, 0], 0).into()).expect("one version");
    Ok(Envelope { source_mac, destination_mac, tags, endpoints: nobody })
}

fn wait(supervisor: &mut PortSupervisor, now: Instant, until: Instant, next: IpAddr) -> anyhow::Result<()> {
    if now >= until {
        bail!("{next} does not answer ARP or NDP");
    }
    std::thread::sleep(PAUSE);
    supervisor.poll(now);
    Ok(())
}
