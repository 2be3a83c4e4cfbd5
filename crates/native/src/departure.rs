//! Outgoing connections: a local port that is ours, and the route to the peer.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use clock::{Duration, Instant};
use control::{Mirror, Neighbour, look_for_neighbour, route_to};
use socket2::Socket;
use stack::{Hop, LinkHeader, LinkId};
use steering::{ListenAddress, Transport, VlanTags};
use wire::ethernet::ethertype;
use wire::{MacAddress, VlanTag};

use crate::interface::Request;
use crate::shadow::bind_tcp;

/// How long a neighbour may take to answer: the kernel asks three times, a second apart.
const NEIGHBOUR_MAX: Duration = Duration::from_secs(4);

/// What an outgoing connection needs. Dropping it returns the port to the kernel: keep it as long as the connection lives.
#[derive(Debug)]
pub struct Departure {
    /// Our end: the address that the kernel would send from, and a port that no other socket has.
    pub local: SocketAddr,
    /// The next hop: the peer, or the router in front of it.
    pub hop: Hop,
    /// The shadow, which keeps the port.
    _socket: Socket,
    requests: Sender<Request>,
    wake: Arc<OwnedFd>,
}

/// Why an outgoing connection is impossible.
#[derive(Debug, thiserror::Error)]
pub enum DepartureError {
    /// The kernel has no route there.
    #[error("no route: {0}")]
    Route(io::Error),
    /// The route uses another interface.
    #[error("the route uses another interface")]
    OtherInterface,
    /// No local port is available.
    #[error("no local port: {0}")]
    Port(io::Error),
    /// The peer, or the router in front of it, did not answer ARP or NDP.
    #[error("the next hop does not answer")]
    NoNeighbour,
    /// Answers would arrive on the queues of all engines, and only one knows the connection.
    #[error("an interface with several engines takes no outgoing connections yet")]
    SeveralEngines,
    /// The interface is closed.
    #[error("the interface is no longer open")]
    Closed,
}

impl Drop for Departure {
    fn drop(&mut self) {
        // The requester may have ended, and dropped everything.
        let _ = self.requests.send(Request::GiveBack(self.local));
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }
}

/// Where the answer to a request for an outgoing connection goes.
pub(crate) type Answer = Sender<Result<Departure, DepartureError>>;

/// State of the interface's thread about outgoing connections.
pub(crate) struct Departures {
    interface: String,
    link: LinkId,
    requests: Sender<Request>,
    wake: Arc<OwnedFd>,
    /// Ports in use.
    claimed: BTreeMap<SocketAddr, ListenAddress>,
    waiting: Vec<Waiting>,
}

/// An outgoing connection whose neighbour is not known yet.
struct Waiting {
    answer: Answer,
    socket: Socket,
    local: SocketAddr,
    /// Index of the interface, which may be a VLAN on ours.
    interface: u32,
    neighbour: IpAddr,
    until: Instant,
}

impl Departures {
    pub(crate) fn new(
        interface: &str,
        link: LinkId,
        requests: Sender<Request>,
        wake: Arc<OwnedFd>,
    ) -> Departures {
        let interface = interface.to_owned();
        Departures { interface, link, requests, wake, claimed: BTreeMap::new(), waiting: Vec::new() }
    }

    /// The claims for outgoing connections.
    pub(crate) fn listens(&self) -> impl Iterator<Item = (Transport, ListenAddress)> + '_ {
        self.claimed.values().map(|&listen| (Transport::Tcp, listen))
    }

    /// Takes a port for a connection to `remote`, and looks up the route to it.
    pub(crate) fn begin(&mut self, remote: IpAddr, answer: Answer, mirror: &Mirror, now: Instant) {
        match self.prepare(remote, mirror) {
            Ok((socket, local, interface, neighbour)) => {
                let listen = ListenAddress { address: Some(local.ip()), port: local.port() };
                self.claimed.insert(local, listen);
                let until = now + NEIGHBOUR_MAX;
                self.waiting.push(Waiting { answer, socket, local, interface, neighbour, until });
            }
            Err(error) => drop(answer.send(Err(error))), // Who asked may have given up.
        }
    }

    fn prepare(
        &self,
        remote: IpAddr,
        mirror: &Mirror,
    ) -> Result<(Socket, SocketAddr, u32, IpAddr), DepartureError> {
        let route = route_to(remote).map_err(DepartureError::Route)?;
        if !mirror.interfaces_on(&self.interface).contains(&route.interface) {
            return Err(DepartureError::OtherInterface);
        }
        let bind = || -> io::Result<(Socket, SocketAddr)> {
            let socket = bind_tcp(SocketAddr::new(route.source, 0))?;
            let local = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::InvalidData)?;
            Ok((socket, local))
        };
        let (socket, local) = bind().map_err(DepartureError::Port)?;
        let neighbour = route.gateway.unwrap_or(remote);
        if mirror.neighbour(route.interface, neighbour).is_none_or(Neighbour::is_to_be_looked_for) {
            // A neighbour that the kernel has not heard from lately is used, and the kernel is asked to look for it meanwhile: our
            // packets tell the kernel nothing. If the kernel does not look for it, we wait for the answer.
            let _ = look_for_neighbour(route.interface, neighbour);
        }
        Ok((socket, local, route.interface, neighbour))
    }

    pub(crate) fn give_back(&mut self, local: SocketAddr) {
        self.claimed.remove(&local);
    }

    /// Answers requests whose neighbour is known by now, and those that waited too long. The claims must be in force before.
    pub(crate) fn settle(&mut self, mirror: &Mirror, now: Instant) {
        for waiting in std::mem::take(&mut self.waiting) {
            let known = mirror.neighbour(waiting.interface, waiting.neighbour);
            match known.filter(|known| known.usable).and_then(|known| known.mac) {
                Some(mac) => self.answer(waiting, MacAddress(mac), mirror),
                None if now >= waiting.until => {
                    self.give_back(waiting.local);
                    let _ = waiting.answer.send(Err(DepartureError::NoNeighbour)); // As above.
                }
                None => self.waiting.push(waiting),
            }
        }
    }

    fn answer(&self, waiting: Waiting, destination: MacAddress, mirror: &Mirror) {
        let source = mirror.link(&self.interface).and_then(|link| link.mac).unwrap_or_default();
        let locals = mirror.local_addresses(&self.interface);
        let local = locals.iter().find(|local| local.address == waiting.local.ip());
        let tags = tags_of(local.map(|local| local.vlan).unwrap_or_default());
        let header = LinkHeader { destination, source: MacAddress(source), tags };
        // If nobody receives the answer, dropping it returns the port at once.
        let _ = waiting.answer.send(Ok(Departure {
            local: waiting.local,
            hop: Hop { link: self.link, header },
            _socket: waiting.socket,
            requests: self.requests.clone(),
            wake: Arc::clone(&self.wake),
        }));
    }

    /// When the first request times out.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.waiting.iter().map(|waiting| waiting.until).min()
    }
}

/// VLAN tags as they are in packets.
fn tags_of(vlan: VlanTags) -> [Option<VlanTag>; 2] {
    let tag = |control: u16| (control != 0).then_some(VlanTag { tpid: ethertype::VLAN, control });
    [tag(vlan.outer), tag(vlan.inner)]
}
