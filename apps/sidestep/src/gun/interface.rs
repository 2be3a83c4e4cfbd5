//! An interface by AF_XDP, or a port of DPDK with its interface in the kernel. Ours are the ports that we ask from, and nothing else.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, bail, ensure};
use clock::{Duration, Instant};
use control::{
    KernelRoute, Mirror, PortConfig, PortEvent, PortSupervisor, kernel_name, look_for_neighbour, route_to,
};
use device::{Burst, Device};
use device_xdp::{SteeringOptions, XdpOptions, XdpPath};
use engine::Clock;
use steering::{ListenAddress, Transport, VlanTags};
use wire::ethernet::ethertype;
use wire::{Endpoints, Envelope, MacAddress, VlanTag};

use super::kernel::{local_for, reserve};
use super::load::Range;
use super::next_hop::NextHop;
use super::options::Origin;
use crate::port::{OpenPort, PortOptions, port_name};

/// How long an interface's queues may take to become free.
const PATIENCE: Duration = Duration::from_secs(4);
/// How long the kernel may take to find the next hop: a port that was just opened may have its link some seconds later.
const PATIENCE_WITH_NEIGHBOUR: Duration = Duration::from_secs(10);
/// The kernel gives up after some seconds, and is asked again.
const ASKS_EVERY: Duration = Duration::from_secs(1);
/// Between two looks.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(20);
/// Questions and answers that may be on their way between kernel and generator.
const FRAMES: u32 = 8192;
/// Bursts that are passed on between two looks.
const BURSTS_MAX: usize = 64;

/// Answers may have `payload` octets if the kernel makes them of fragments.
pub(crate) fn open(device: &str, server: SocketAddr, origin: &Origin, payload: u16) -> anyhow::Result<Range> {
    let OpenPort { interface, path, queues } = match port_name(device) {
        Some(name) => origin.port.open(name)?,
        None => open_interface(device, &origin.port)?,
    };
    let local =
        local_for(server).with_context(|| format!("has {interface} an address and a route there?"))?;
    // The kernel's sockets hold the ports. What is claimed does not come to them, but fragments do, which are claimed by nobody.
    let (sockets, locals) = reserve(server, local, origin.ports, origin.source, payload)?;
    let listens = locals.iter().map(|own| {
        (Transport::Udp, ListenAddress { address: Some(own.ip().to_canonical()), port: own.port() })
    });
    let config = PortConfig { interface: interface.clone(), listens: listens.collect(), engines: 1 };
    let mut supervisor = PortSupervisor::new(config, path)?;
    let clock = Clock::start();
    let (mut device, mode) = first_device(&mut supervisor, &clock)?;
    let (way, route) = way(&mut supervisor, &mut *device, &interface, (&locals, server.ip()), &clock)?;
    let next_hop = NextHop::follow(route.interface, server.ip(), way.destination_mac)?;
    let ways = locals.into_iter().map(|own| Envelope { endpoints: ends(own, server), ..way }).collect();
    let description = format!("{interface}, {mode}");
    Ok(Range::new(device, description, ways, queues, supervisor).beside(sockets).following(next_hop))
}

fn open_interface(interface: &str, port: &PortOptions) -> anyhow::Result<OpenPort> {
    port.refuse(interface)?;
    let interface = kernel_name(interface);
    let queues = device_xdp::queue_pairs(&interface)?;
    let options = XdpOptions { frames_per_queue: FRAMES, ..XdpOptions::default() };
    let path = XdpPath::new(&interface, SteeringOptions::default(), options);
    Ok(OpenPort { interface, path: Box::new(path), queues })
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

/// The way to the server, but for the ends, and its route. Meanwhile `device` passes on what the kernel and the next hop have to say to each other.
fn way(
    supervisor: &mut PortSupervisor,
    device: &mut dyn Device,
    interface: &str,
    (ours, server): (&[SocketAddr], IpAddr),
    clock: &Clock,
) -> anyhow::Result<(Envelope, KernelRoute)> {
    let route = route_to(server).with_context(|| format!("no route to {server}"))?;
    if !supervisor.mirror().interfaces_on(interface).contains(&route.interface) {
        bail!("packets to {server} do not leave by {interface}");
    }
    let vlan = vlan_of(ours, supervisor.mirror(), interface)?;
    let next = route.gateway.unwrap_or(server);
    let until = clock.now() + PATIENCE_WITH_NEIGHBOUR;
    let mut asks_at = clock.now();
    let destination_mac = loop {
        let known = supervisor.mirror().neighbour(route.interface, next);
        if let Some(mac) = known.filter(|known| known.usable).and_then(|known| known.mac) {
            break MacAddress(mac);
        }
        let now = clock.now();
        ensure!(now < until, "{next} does not answer ARP or NDP");
        if now >= asks_at {
            let _ = look_for_neighbour(route.interface, next); // The mirror shows what came of it.
            asks_at = now + ASKS_EVERY;
        }
        pass_on(device, now);
        std::thread::sleep(PAUSE);
        supervisor.poll(now);
    };
    let mirror = supervisor.mirror();
    let source_mac = MacAddress(mirror.link(interface).and_then(|link| link.mac).unwrap_or_default());
    let tag = |control: u16| (control != 0).then_some(VlanTag { tpid: ethertype::VLAN, control });
    let tags = [tag(vlan.outer), tag(vlan.inner)];
    let nobody = Endpoints::new(([0, 0, 0, 0], 0).into(), ([0, 0, 0, 0], 0).into()).expect("one version");
    Ok((Envelope { source_mac, destination_mac, tags, endpoints: nobody }, route))
}

/// The tags in front of packets to our addresses, which have to be the interface's: packets to others are not claimed.
fn vlan_of(ours: &[SocketAddr], mirror: &Mirror, interface: &str) -> anyhow::Result<VlanTags> {
    let locals = mirror.local_addresses(interface);
    let mut vlan = None;
    for address in ours.iter().map(|own| own.ip().to_canonical()) {
        let Some(local) = locals.iter().find(|local| local.address == address) else {
            bail!("{address} is no address of {interface}: answers to it would not come to the device");
        };
        ensure!(*vlan.get_or_insert(local.vlan) == local.vlan, "{interface} has {address} in another VLAN");
    }
    Ok(vlan.unwrap_or_default())
}

/// Has the device take what has come. Nothing of it is ours yet.
fn pass_on(device: &mut dyn Device, now: Instant) {
    let mut burst = Burst::new();
    for _ in 0..BURSTS_MAX {
        if device.rx_burst(&mut burst, now) == 0 {
            return;
        }
        burst.drain(..).for_each(|frame| device.release(frame));
    }
}
