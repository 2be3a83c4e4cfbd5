//! Claims: a transport, a port, and the local address it is bound to.

use std::collections::BTreeSet;
use std::net::IpAddr;

/// Transport protocols that can be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    /// Protocol number 17.
    Udp,
    /// Protocol number 6.
    Tcp,
}

impl Transport {
    /// The protocol's number in IPv4's protocol field and IPv6's next-header field.
    pub const fn number(self) -> u8 {
        match self {
            Transport::Udp => 17,
            Transport::Tcp => 6,
        }
    }
}

/// VLAN identifiers in front of a packet, outermost first; 0 where there is no tag.
///
/// An address of a VLAN interface is local only behind the tags of that interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VlanTags {
    /// Identifier of the outer tag, 1 to 4094, or 0.
    pub outer: u16,
    /// Identifier of the inner tag, 1 to 4094, or 0.
    pub inner: u16,
}

/// An address of this host, where the steering program can see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalAddress {
    /// The address.
    pub address: IpAddr,
    /// Tags that packets to it carry on the device.
    pub vlan: VlanTags,
}

/// What a service listens on: a port on one address or on every address of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenAddress {
    /// `None`: every address of the device, also those it will get later.
    pub address: Option<IpAddr>,
    /// UDP or TCP port.
    pub port: u16,
}

/// One flow set taken from the kernel: packets to this address and port, behind these tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Claim {
    /// UDP or TCP.
    pub transport: Transport,
    /// Destination address and the tags in front of it.
    pub local: LocalAddress,
    /// Destination port.
    pub port: u16,
}

/// The claims that `listens` amount to while the device has the addresses `locals`.
///
/// A listen on an address that the device does not have claims nothing: what is not ours stays the kernel's.
pub fn resolve(
    transport: Transport,
    listens: &[ListenAddress],
    locals: &BTreeSet<LocalAddress>,
) -> BTreeSet<Claim> {
    let wanted = |listen: &ListenAddress, local: &LocalAddress| {
        listen.address.is_none_or(|address| address == local.address)
    };
    listens
        .iter()
        .flat_map(|listen| {
            let matching = locals.iter().filter(move |local| wanted(listen, local));
            matching.map(move |&local| Claim { transport, local, port: listen.port })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(text: &str) -> LocalAddress {
        LocalAddress { address: text.parse().unwrap(), vlan: VlanTags::default() }
    }

    #[test]
    fn a_wildcard_listen_claims_every_address_of_the_device() {
        let locals = BTreeSet::from([local("192.0.2.1"), local("2001:db8::1")]);
        let listens = [ListenAddress { address: None, port: 53 }];
        let claims = resolve(Transport::Udp, &listens, &locals);
        assert_eq!(claims.iter().map(|claim| claim.local).collect::<BTreeSet<_>>(), locals);
    }

    #[test]
    fn a_bound_listen_claims_its_address_only_while_the_device_has_it() {
        let listens = [ListenAddress { address: Some("192.0.2.1".parse().unwrap()), port: 53 }];
        let with = BTreeSet::from([local("192.0.2.1"), local("192.0.2.2")]);
        let without = BTreeSet::from([local("192.0.2.2")]);
        assert_eq!(resolve(Transport::Udp, &listens, &with).len(), 1);
        assert!(resolve(Transport::Udp, &listens, &without).is_empty());
    }

    #[test]
    fn the_same_address_behind_two_tags_is_two_claims() {
        let tagged = LocalAddress { vlan: VlanTags { outer: 10, inner: 0 }, ..local("192.0.2.1") };
        let locals = BTreeSet::from([local("192.0.2.1"), tagged]);
        let listens = [ListenAddress { address: None, port: 53 }];
        assert_eq!(resolve(Transport::Udp, &listens, &locals).len(), 2);
    }
}
