//! Datagrams that the kernel is to have, and for whom a client may speak.

use std::net::SocketAddr;

use clock::Instant;

use super::broker::Broker;
use super::helpers::Theirs;
use super::outcome::{Outcome, done};
use super::routes::is_local;
use super::{datagram, shadow};
use crate::protocol::{Purpose, Refusal};
use crate::registry::{ClientId, Shadow};

impl Broker {
    pub(super) fn examine_receiver(
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
        self.check_is_local(local)?;
        // With an address of this host, or of a group, it could intercept packets for other services.
        if remote.port() == 0 || remote.ip().is_multicast() || self.is_own(remote) {
            return Err(Refusal::Local);
        }
        datagram::deliver(local, remote, octets).map_err(|error| Refusal::NotTaken(error.to_string()))
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
