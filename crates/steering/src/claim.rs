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

/// What a service listens on: a port on one address, on every address of the device, or on every one of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenAddress {
    /// `None`: every address of the device, also those it will get later. An unspecified address, `0.0.0.0` or `::`: those of its family.
    pub address: Option<IpAddr>,
    /// UDP or TCP port.
    pub port: u16,
}

/// A set of flows taken from the kernel: packets to this address and port, behind these tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Claim {
    /// UDP or TCP.
    pub transport: Transport,
    /// Destination address and the tags in front of it.
    pub local: LocalAddress,
    /// Destination port.
    pub port: u16,
}

/// Receive queues of one interface. Queues from 64 on cannot be named one by one: they are only in the set of all queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSet(u64);

impl QueueSet {
    /// Every queue, whatever its number.
    pub const ALL: QueueSet = QueueSet(u64::MAX);
    /// No queue.
    pub const NONE: QueueSet = QueueSet(0);

    /// The queues whose bits are set: bit `q` is queue `q`'s. All bits: every queue.
    pub const fn from_bits(bits: u64) -> QueueSet {
        QueueSet(bits)
    }

    /// The inverse of [`QueueSet::from_bits`].
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Whether `queue` is in the set.
    pub fn contains(self, queue: u16) -> bool {
        self == QueueSet::ALL || (queue < 64 && self.0 >> queue & 1 == 1)
    }
}

/// Queues that cannot be named are left out.
impl FromIterator<u16> for QueueSet {
    fn from_iter<I: IntoIterator<Item = u16>>(queues: I) -> QueueSet {
        let named = queues.into_iter().filter(|&queue| queue < 64);
        QueueSet(named.fold(0, |bits, queue| bits | 1 << queue))
    }
}

/// How a claim is applied. The kernel keeps claimed packets that these terms do not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimTerms {
    /// Packets are taken on these receive queues.
    pub queues: QueueSet,
    /// TCP connections that peers open are taken on those of them that are in this set. On the others a listener of the kernel's goes
    /// first, as it does before a socket that is only bound; without one, they are taken as well.
    pub listening: QueueSet,
    /// New TCP connections go to the kernel, and their flows are marked as the kernel's.
    pub kernel_new: bool,
    /// Some flows are marked as the kernel's, and their packets go to the kernel. New connections that no socket takes are marked as
    /// well, so that they stay with the kernel when a socket comes later. Costs a look-up for every packet.
    pub kernel_some: bool,
    /// Which marks of flows are the claim's.
    pub marks: Marks,
}

/// Where flows of a claim are marked, and which marks are valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// The table, below [`Marks::TABLES`]. Each forgets marks of its own when it is full.
    pub table: u16,
    /// Marks are valid while this number, below 2^31, is the one that they were made with. Another number invalidates them all.
    pub epoch: u32,
}

impl Marks {
    /// How many tables there can be.
    pub const TABLES: u16 = 16;

    /// The table of what this user has claimed: root's is its own, and few users share one.
    pub const fn table_of(user: u32) -> u16 {
        match user {
            0 => 0,
            user => 1 + (user % (Marks::TABLES as u32 - 1)) as u16,
        }
    }
}

impl ClaimTerms {
    /// The queues on which the kernel's listeners go first.
    pub fn deaf(&self) -> QueueSet {
        QueueSet::from_bits(self.queues.bits() & !self.listening.bits())
    }
}

/// Every packet of the claim is taken.
impl Default for ClaimTerms {
    fn default() -> ClaimTerms {
        let (queues, listening) = (QueueSet::ALL, QueueSet::ALL);
        ClaimTerms { queues, listening, kernel_new: false, kernel_some: false, marks: Marks::default() }
    }
}

/// The claims that follow from `listens` while the device has the addresses `locals`.
///
/// A listen on an address that the device does not have claims nothing, and the kernel keeps its packets.
pub fn resolve(
    transport: Transport,
    listens: &[ListenAddress],
    locals: &BTreeSet<LocalAddress>,
) -> BTreeSet<Claim> {
    let wanted = |listen: &ListenAddress, local: &LocalAddress| {
        listen.address.is_none_or(|address| match address.is_unspecified() {
            true => address.is_ipv4() == local.address.is_ipv4(),
            false => address == local.address,
        })
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
    fn an_unspecified_listen_claims_the_addresses_of_its_family() {
        let locals = ["192.0.2.1", "192.0.2.2", "2001:db8::1", "fe80::1"].map(local);
        for (address, wanted) in [("0.0.0.0", &locals[..2]), ("::", &locals[2..])] {
            let listen = ListenAddress { address: Some(address.parse().unwrap()), port: 53 };
            let claims = resolve(Transport::Udp, &[listen], &BTreeSet::from(locals));
            assert!(claims.iter().map(|claim| &claim.local).eq(wanted), "{address}: {claims:?}");
        }
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
    fn queues_are_named_by_bits_and_those_beyond_are_in_the_whole_only() {
        let some = QueueSet::from_iter([0, 3, 63, 64, 1000]);
        assert_eq!(some.bits(), 1 | 1 << 3 | 1 << 63);
        assert_eq!(
            [0, 1, 3, 63, 64, 1000].map(|queue| some.contains(queue)),
            [true, false, true, true, false, false]
        );
        assert!([0, 63, 64, 1000].iter().all(|&queue| QueueSet::ALL.contains(queue)));
        assert!([0, 63, 64, 1000].iter().all(|&queue| !QueueSet::NONE.contains(queue)));
    }

    #[test]
    fn the_same_address_behind_two_tags_is_two_claims() {
        let tagged = LocalAddress { vlan: VlanTags { outer: 10, inner: 0 }, ..local("192.0.2.1") };
        let locals = BTreeSet::from([local("192.0.2.1"), tagged]);
        let listens = [ListenAddress { address: None, port: 53 }];
        assert_eq!(resolve(Transport::Udp, &listens, &locals).len(), 2);
    }
}
