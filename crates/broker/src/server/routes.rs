//! The route to a peer: the kernel's answer, and waiting for a neighbour.

use std::net::IpAddr;

use clock::{Duration, Instant};
use control::{KernelRoute, Mirror, Neighbour, look_for_neighbour, route_to};
use steering::VlanTags;

use super::port::Port;
use crate::protocol::{Refusal, Route};
use crate::registry::{ClientId, LinkNumber, is_link_local};

/// How long a neighbour may take to answer: the kernel asks three times, a second apart, and gives up a second after.
const NEIGHBOUR_MAX: Duration = Duration::from_millis(3200);
/// Questions of one client that wait at a time.
const WAITING_MAX: usize = 64;

/// Questions that wait for a neighbour.
#[derive(Default)]
pub(super) struct Routes {
    waiting: Vec<Waiting>,
}

struct Waiting {
    client: ClientId,
    /// The request's number.
    id: u64,
    local: IpAddr,
    link: LinkNumber,
    /// Index of the interface, which may be a VLAN on ours.
    interface: u32,
    neighbour: IpAddr,
    until: Instant,
}

/// An answer to the request `id` of a client. Whose the queues are is for the registry to say.
pub(super) struct Found {
    pub(super) client: ClientId,
    pub(super) id: u64,
    pub(super) outcome: Result<Route, Refusal>,
}

impl Routes {
    /// Starts to look; an error is the answer.
    pub(super) fn begin(
        &mut self,
        (client, id): (ClientId, u64),
        (remote, from): (IpAddr, Option<IpAddr>),
        ports: &[Port],
        mirror: &Mirror,
        now: Instant,
    ) -> Result<(), Refusal> {
        if self.waiting.iter().filter(|waiting| waiting.client == client).count() >= WAITING_MAX {
            return Err(Refusal::TooMany);
        }
        let remote = remote.to_canonical();
        if is_link_local(remote) {
            return Err(Refusal::LinkLocal);
        }
        let route = route_to(remote).map_err(|error| Refusal::NoRoute(error.to_string()))?;
        if is_local(remote, route, mirror) {
            return Err(Refusal::Local);
        }
        let leads_there = |port: &&Port| mirror.interfaces_on(&port.name).contains(&route.interface);
        let port = ports.iter().filter(|port| port.open.is_some()).find(leads_there);
        let port = port.ok_or(Refusal::OtherInterface)?;
        let local = from.map_or(route.source, |from| from.to_canonical());
        if !mirror.addresses(route.interface).any(|address| address == local) {
            return Err(Refusal::OtherSource);
        }
        let neighbour = route.gateway.unwrap_or(remote);
        if mirror.neighbour(route.interface, neighbour).is_none_or(Neighbour::is_to_be_looked_for) {
            // Nothing that we send tells the kernel whether a neighbour is still there: one that it has not heard of lately is used, and
            // looked for meanwhile. A kernel that does not look leaves us to find out by waiting.
            let _ = look_for_neighbour(route.interface, neighbour);
        }
        let (link, interface, until) = (port.link, route.interface, now + NEIGHBOUR_MAX);
        self.waiting.push(Waiting { client, id, local, link, interface, neighbour, until });
        Ok(())
    }

    /// Answers requests whose neighbour is known by now, and those that waited too long.
    pub(super) fn settle(&mut self, ports: &[Port], mirror: &Mirror, now: Instant) -> Vec<Found> {
        let mut found = Vec::new();
        self.waiting.retain(|waiting| {
            let outcome = waiting.look(ports, mirror, now);
            let is_over = outcome.is_some();
            let (client, id) = (waiting.client, waiting.id);
            found.extend(outcome.map(|outcome| Found { client, id, outcome }));
            !is_over
        });
        found
    }

    /// A client is gone.
    pub(super) fn forget(&mut self, client: ClientId) {
        self.waiting.retain(|waiting| waiting.client != client);
    }

    /// When the first request times out.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.waiting.iter().map(|waiting| waiting.until).min()
    }
}

impl Waiting {
    fn look(&self, ports: &[Port], mirror: &Mirror, now: Instant) -> Option<Result<Route, Refusal>> {
        let Some(port) = ports.iter().find(|port| port.link == self.link && port.open.is_some()) else {
            return Some(Err(Refusal::OtherInterface));
        };
        let known = mirror.neighbour(self.interface, self.neighbour).filter(|known| known.usable);
        match known.and_then(|known| known.mac) {
            Some(destination) => Some(Ok(self.route(port, destination, mirror))),
            None if now >= self.until => Some(Err(Refusal::NoNeighbour)),
            None => None,
        }
    }

    fn route(&self, port: &Port, destination: [u8; 6], mirror: &Mirror) -> Route {
        let link = mirror.links().find(|link| link.index == self.interface);
        let locals = mirror.local_addresses(&port.name);
        let local = locals.iter().find(|local| local.address == self.local);
        let VlanTags { outer, inner } = local.map(|local| local.vlan).unwrap_or_default();
        Route {
            local: self.local,
            link: self.link,
            source: link.and_then(|link| link.mac).unwrap_or_default(),
            destination,
            vlan: [outer, inner],
            mtu: link.map_or(0, |link| u16::try_from(link.mtu).unwrap_or(u16::MAX)),
            all_queues_yours: false,
            home_ports: None,
        }
    }
}

/// Whether packets to `remote` never leave this host.
pub(super) fn is_local(remote: IpAddr, route: KernelRoute, mirror: &Mirror) -> bool {
    let is_own = |link: &control::Link| mirror.addresses(link.index).any(|address| address == remote);
    let by_loopback = |link: &control::Link| link.index == route.interface && link.name == "lo";
    remote.is_loopback() || mirror.links().any(|link| is_own(link) || by_loopback(link))
}
