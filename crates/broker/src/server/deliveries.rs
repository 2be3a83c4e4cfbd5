//! Datagrams that the kernel is to have, and for whom a client may speak.

use std::net::{IpAddr, SocketAddr};

use clock::Instant;
use control::sock_diag::udp_owner_for;

use super::broker::Broker;
use super::helpers::Theirs;
use super::outcome::{Outcome, done};
use super::routes::is_local;
use super::{datagram, shadow};
use crate::protocol::{Purpose, Refusal};
use crate::registry::{ClientId, Shadow};

/// The number of the interface by which the kernel gets what the broker sends: `lo` is the first one of each network namespace.
const LOOPBACK: u32 = 1;

impl Broker {
    /// To a socket, or to whichever of the kernel's it is for.
    pub(super) fn deliver_to(
        &mut self,
        asker: (ClientId, u64),
        socket: Option<Theirs>,
        ends: (SocketAddr, SocketAddr),
        octets: Vec<u8>,
        now: Instant,
    ) -> Outcome {
        match socket {
            Some(socket) => self.examine_receiver(asker, socket, ends, octets, now),
            None => done(self.deliver_late(asker.0, ends, &octets, now)),
        }
    }

    fn examine_receiver(
        &mut self,
        (client, id): (ClientId, u64),
        socket: Theirs,
        (local, remote): (SocketAddr, SocketAddr),
        octets: Vec<u8>,
        now: Instant,
    ) -> Outcome {
        let namespace = self.namespace;
        let look = move |socket: Theirs| {
            let shadow = shadow::examine(&socket, steering::Transport::Udp, Purpose::Udp, namespace);
            socket.close();
            shadow
        };
        let then = move |broker: &mut Broker, shadow: Result<Shadow, Refusal>, _now: Instant| {
            done(broker.deliver(&shadow?, local, remote, &octets))
        };
        self.set_aside((client, id), move |_| look(socket), then, now)
    }

    fn deliver(
        &self,
        shadow: &Shadow,
        local: SocketAddr,
        remote: SocketAddr,
        octets: &[u8],
    ) -> Result<(), Refusal> {
        if !shadow.bound.covers(local) {
            return Err(Refusal::NotBound);
        }
        let (local, remote) = (datagram::canonical(local), datagram::canonical(remote));
        self.check_is_local(local)?;
        // With an address of this host, or of a group, it could intercept packets for other services.
        if remote.port() == 0 || remote.ip().is_multicast() || self.is_own(remote) {
            return Err(Refusal::Local);
        }
        self.check_is_received_here(local.ip())?;
        let not_taken = |error: std::io::Error| Refusal::NotTaken(error.to_string());
        // Of several sockets the kernel gives it to the one that matches best, which may be another user's.
        if local.is_ipv4() != remote.is_ipv4()
            || udp_owner_for(local, remote, LOOPBACK).map_err(not_taken)? != Some(shadow.owner)
        {
            return Err(Refusal::NotBound);
        }
        datagram::deliver(local, remote, octets).map_err(not_taken)
    }

    /// No datagrams come to a client but those to the addresses of our interfaces.
    fn check_is_received_here(&self, address: IpAddr) -> Result<(), Refusal> {
        let mirror = self.monitor.mirror();
        let has = |name: &str| mirror.local_addresses(name).iter().any(|local| local.address == address);
        self.ports.iter().any(|port| has(&port.name)).then_some(()).ok_or(Refusal::NotBound)
    }

    /// A client may speak for its peers, but to this host only: the address may have moved away.
    pub(super) fn check_is_local(&self, address: SocketAddr) -> Result<(), Refusal> {
        let ip = address.ip().to_canonical();
        let route = control::route_to(ip).map_err(|error| Refusal::NoRoute(error.to_string()))?;
        is_local(ip, route, self.monitor.mirror()).then_some(()).ok_or(Refusal::NotBound)
    }

    /// Whether it is an address of this host, as far as is known.
    pub(super) fn is_own(&self, address: SocketAddr) -> bool {
        let (ip, mirror) = (address.ip().to_canonical(), self.monitor.mirror());
        let is_on = |link: &control::Link| mirror.addresses(link.index).any(|address| address == ip);
        ip.is_loopback() || ip.is_unspecified() || mirror.links().any(is_on)
    }
}
