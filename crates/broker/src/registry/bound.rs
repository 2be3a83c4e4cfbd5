//! Where sockets are bound, and the addresses of an interface that this covers.

use std::net::{IpAddr, SocketAddr};

use steering::{LocalAddress, VlanTags};

use super::View;
use crate::protocol::Refusal;

/// Where a socket is bound, as the kernel told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bound {
    /// To which addresses.
    pub scope: Scope,
    /// To which port; not zero.
    pub port: u16,
    /// To which interface, by the kernel's number, if to one: SO_BINDTODEVICE, or the scope of a link-local address.
    pub device: Option<u32>,
}

/// See [`Bound::match_of`]; the better one is the greater one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Match(bool, bool, bool);

/// The addresses of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// All of these families.
    Any {
        /// IPv4.
        v4: bool,
        /// IPv6.
        v6: bool,
    },
    /// One; an IPv4 address is never written as a mapped one.
    One(IpAddr),
}

/// Whether only the kernel serves an address.
fn is_kernels(address: IpAddr) -> bool {
    address.is_loopback() || is_link_local(address)
}

/// Whether an address means nothing without its interface, which neither the stack's connections nor our messages name (RFC 4007).
pub(crate) fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

impl Bound {
    /// The addresses of an interface that packets to the socket come to, as far as the interface has them.
    pub(super) fn addresses_on<'v>(&self, view: &'v View) -> impl Iterator<Item = LocalAddress> + use<'v> {
        let (bound, index) = (*self, view.index);
        let locals = view.addresses.iter().copied();
        locals.filter(move |local| bound.has(index, *local) && !is_kernels(local.address))
    }

    /// Whether packets to an address of the interface with this index come to the socket.
    fn has(&self, index: u32, local: LocalAddress) -> bool {
        // Which tags belong to a VLAN interface is not known here, so a socket bound to one has no addresses.
        let on_device = self.device.is_none_or(|device| device == index && local.vlan == VlanTags::default());
        on_device && self.scope.contains(local.address)
    }

    /// How well a socket with this address matches a packet to an address of the interface with this index; `None` if not at all. Of several
    /// sockets the kernel gives a packet to those that match best: by address, by interface, by family (Linux, `inet_lhash2_lookup` and
    /// `udp4_lib_lookup2`).
    pub(super) fn match_of(&self, index: u32, local: LocalAddress) -> Option<Match> {
        let is_one = matches!(self.scope, Scope::One(_));
        let is_of_both = matches!(self.scope, Scope::Any { v4: true, v6: true }) && local.address.is_ipv4();
        self.has(index, local).then_some(Match(is_one, self.device.is_some(), !is_of_both))
    }

    /// Whether a connection with this end belongs to the socket.
    pub(crate) fn covers(&self, local: SocketAddr) -> bool {
        self.port == local.port() && self.scope.contains(local.ip().to_canonical())
    }

    /// Whether packets of one interface may be for both.
    pub(super) fn may_meet(&self, other: Bound) -> bool {
        self.device.is_none() || other.device.is_none() || self.device == other.device
    }

    /// Whether a socket which the kernel has at `local` may be bound so.
    pub(crate) fn is_at(&self, local: SocketAddr) -> bool {
        let address = match self.scope {
            Scope::One(address) => address == local.ip().to_canonical(),
            Scope::Any { .. } => true,
        };
        address && self.port == local.port()
    }

    /// Why the socket can never be ours while the interfaces have these addresses.
    pub(super) fn obstacle<'v>(&self, mut views: impl Iterator<Item = &'v View>) -> Option<Refusal> {
        match self.scope {
            Scope::One(address) if address.is_loopback() => Some(Refusal::Loopback),
            Scope::One(address) if is_link_local(address) => Some(Refusal::LinkLocal),
            Scope::Any { .. } if self.device.is_none() => None, // Addresses may come.
            _ => {
                let found = views.any(|view| self.addresses_on(view).next().is_some());
                (!found).then_some(Refusal::ForeignAddress)
            }
        }
    }
}

impl Scope {
    fn contains(self, address: IpAddr) -> bool {
        match self {
            Scope::Any { v4, v6 } => {
                if address.is_ipv4() {
                    v4
                } else {
                    v6
                }
            }
            Scope::One(own) => own == address,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn view() -> View {
        let local = |address: &str, outer| LocalAddress {
            address: address.parse().unwrap(),
            vlan: VlanTags { outer, inner: 0 },
        };
        let addresses = [local("192.0.2.1", 0), local("2001:db8::1", 0), local("192.0.2.9", 7)];
        View { index: 2, queues: 1, addresses: addresses.into_iter().collect(), merges_datagrams: false }
    }

    fn on(scope: Scope, device: Option<u32>) -> BTreeSet<String> {
        let bound = Bound { scope, port: 80, device };
        bound.addresses_on(&view()).map(|local| local.address.to_string()).collect()
    }

    fn set(addresses: &[&str]) -> BTreeSet<String> {
        addresses.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_wildcard_takes_the_addresses_of_its_families() {
        let any = |v4, v6| on(Scope::Any { v4, v6 }, None);
        assert_eq!(any(true, true), set(&["192.0.2.1", "2001:db8::1", "192.0.2.9"]));
        assert_eq!(any(true, false), set(&["192.0.2.1", "192.0.2.9"]));
        assert_eq!(any(false, true), set(&["2001:db8::1"]));
    }

    #[test]
    fn a_socket_of_one_interface_takes_nothing_elsewhere() {
        let any = Scope::Any { v4: true, v6: true };
        assert_eq!(on(any, Some(2)), set(&["192.0.2.1", "2001:db8::1"]));
        assert_eq!(on(any, Some(3)), set(&[]));
    }

    #[test]
    fn loopback_and_foreign_addresses_are_told_apart() {
        let obstacle = |address: &str| {
            let scope = Scope::One(address.parse().unwrap());
            Bound { scope, port: 80, device: None }.obstacle([view()].iter())
        };
        assert_eq!(obstacle("127.0.0.1"), Some(Refusal::Loopback));
        assert_eq!(obstacle("::1"), Some(Refusal::Loopback));
        assert_eq!(obstacle("192.0.2.2"), Some(Refusal::ForeignAddress));
        assert_eq!(obstacle("192.0.2.1"), None);
    }

    #[test]
    fn link_local_addresses_are_the_kernels() {
        let local = |text: &str| LocalAddress { address: text.parse().unwrap(), vlan: VlanTags::default() };
        let view = View {
            index: 3,
            addresses: [local("fe80::1"), local("2001:db8::1"), local("10.0.0.1")].into(),
            ..View::default()
        };
        let any = Bound { scope: Scope::Any { v4: true, v6: true }, port: 80, device: None };
        let claimed: Vec<_> = any.addresses_on(&view).collect();
        assert_eq!(claimed, [local("10.0.0.1"), local("2001:db8::1")]);
        let one = Bound { scope: Scope::One(local("fe80::1").address), port: 80, device: Some(3) };
        assert_eq!(one.obstacle([&view].into_iter()), Some(Refusal::LinkLocal));
    }
}
