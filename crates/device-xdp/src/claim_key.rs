//! The layouts of claims that are shared with `bpf/maps.bpf.h`.

use std::net::{IpAddr, Ipv6Addr};

use steering::{Claim, ClaimTerms, LocalAddress, Marks, QueueSet, Transport, VlanTags};

/// Words of the port bitmap that one transport has.
const PORT_WORDS: u32 = 65536 / 64;

/// `struct claim_key`: 24 octets without holes, numbers in network byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct ClaimKey {
    /// IPv6, or IPv4 as `::ffff:a.b.c.d`.
    address: [u8; 16],
    vlan_outer: [u8; 2],
    vlan_inner: [u8; 2],
    port: [u8; 2],
    protocol: u8,
    zero: u8,
}

// SAFETY: only octets, so there are no holes and every bit pattern is valid, which is what `Pod` asks for.
unsafe impl aya::Pod for ClaimKey {}

impl From<Claim> for ClaimKey {
    fn from(claim: Claim) -> ClaimKey {
        ClaimKey {
            address: octets_of(claim.local.address),
            vlan_outer: claim.local.vlan.outer.to_be_bytes(),
            vlan_inner: claim.local.vlan.inner.to_be_bytes(),
            port: claim.port.to_be_bytes(),
            protocol: claim.transport.number(),
            zero: 0,
        }
    }
}

impl ClaimKey {
    /// The claim; `None` for another transport, which nobody claims.
    pub(crate) fn claim(self) -> Option<Claim> {
        let transports = [Transport::Udp, Transport::Tcp];
        let transport = transports.into_iter().find(|it| it.number() == self.protocol)?;
        let [outer, inner] = [self.vlan_outer, self.vlan_inner].map(u16::from_be_bytes);
        let address = Ipv6Addr::from(self.address).to_canonical();
        let local = LocalAddress { address, vlan: VlanTags { outer, inner } };
        Some(Claim { transport, local, port: u16::from_be_bytes(self.port) })
    }
}

/// Flags of [`ClaimValue`].
const KERNEL_NEW: u16 = 1;
const KERNEL_SOME: u16 = 2;

/// `struct claim_terms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct ClaimValue {
    queues: u64,
    listening: u64,
    flags: u16,
    table: u16,
    epoch: u32,
}

// SAFETY: integers of 8, 8, 2, 2 and 4 octets, so there are no holes and every bit pattern is valid.
unsafe impl aya::Pod for ClaimValue {}

impl From<ClaimTerms> for ClaimValue {
    fn from(terms: ClaimTerms) -> ClaimValue {
        let flag = |set: bool, flag: u16| if set { flag } else { 0 };
        let flags = flag(terms.kernel_new, KERNEL_NEW) | flag(terms.kernel_some, KERNEL_SOME);
        let Marks { table, epoch } = terms.marks;
        let (queues, listening) = (terms.queues.bits(), terms.listening.bits());
        ClaimValue { queues, listening, flags, table, epoch }
    }
}

impl From<ClaimValue> for ClaimTerms {
    fn from(value: ClaimValue) -> ClaimTerms {
        let has = |flag: u16| value.flags & flag != 0;
        let (kernel_new, kernel_some) = (has(KERNEL_NEW), has(KERNEL_SOME));
        let marks = Marks { table: value.table, epoch: value.epoch };
        let [queues, listening] = [value.queues, value.listening].map(QueueSet::from_bits);
        ClaimTerms { queues, listening, kernel_new, kernel_some, marks }
    }
}

impl ClaimValue {
    /// Has flows looked up that the program has noted of its own accord.
    pub(crate) fn with_noted(self) -> ClaimValue {
        ClaimValue { flags: self.flags | KERNEL_SOME, ..self }
    }

    pub(crate) fn has_noted(self) -> bool {
        self.flags & KERNEL_SOME != 0
    }
}

/// An address as keys have it.
pub(crate) fn octets_of(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// One port's bit in the map `ports`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PortBit {
    /// Which 64-bit word of the map.
    pub(crate) word: u32,
    /// The word with this bit alone.
    pub(crate) mask: u64,
}

impl PortBit {
    pub(crate) fn of(claim: &Claim) -> PortBit {
        let base = match claim.transport {
            Transport::Udp => 0,
            Transport::Tcp => PORT_WORDS,
        };
        PortBit { word: base + u32::from(claim.port) / 64, mask: 1 << (claim.port % 64) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKS: Marks = Marks { table: 3, epoch: 7 };

    fn claim(address: &str, transport: Transport, port: u16) -> Claim {
        let vlan = VlanTags { outer: 0x0102, inner: 0x0304 };
        Claim { transport, local: LocalAddress { address: address.parse().unwrap(), vlan }, port }
    }

    fn octets(key: ClaimKey) -> [u8; 24] {
        // SAFETY: `ClaimKey` is `repr(C)`, made of octets only, 24 of them.
        unsafe { std::mem::transmute(key) }
    }

    #[test]
    fn a_key_has_the_octets_that_the_program_compares() {
        let key = ClaimKey::from(claim("2001:db8::1", Transport::Tcp, 0x0506));
        let expected = [
            0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, // address
            1, 2, 3, 4, // tags
            5, 6, // port
            6, 0, // protocol, zero
        ];
        assert_eq!(octets(key), expected);
    }

    #[test]
    fn an_ipv4_address_is_written_as_a_mapped_one() {
        let key = octets(ClaimKey::from(claim("192.0.2.1", Transport::Udp, 53)));
        assert_eq!(key[..16], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1]);
        assert_eq!(key[22], 17);
    }

    #[test]
    fn terms_are_a_mask_of_queues_and_flags() {
        let value = |terms| ClaimValue::from(terms);
        assert_eq!(
            value(ClaimTerms::default()),
            ClaimValue { queues: u64::MAX, listening: u64::MAX, flags: 0, table: 0, epoch: 0 }
        );
        let queues = QueueSet::from_iter([1]);
        let terms =
            ClaimTerms { queues, listening: queues, kernel_new: true, kernel_some: false, marks: MARKS };
        assert_eq!(value(terms), ClaimValue { queues: 2, listening: 2, flags: 1, table: 3, epoch: 7 });
        assert_eq!(value(ClaimTerms { kernel_some: true, ..terms }).flags, 3);
    }

    #[test]
    fn who_reads_the_map_finds_what_was_claimed() {
        for (address, transport) in [("192.0.2.1", Transport::Tcp), ("2001:db8::1", Transport::Udp)] {
            let claim = claim(address, transport, 443);
            assert_eq!(ClaimKey::from(claim).claim(), Some(claim));
        }
        assert_eq!(ClaimKey { protocol: 1, ..claim("192.0.2.1", Transport::Tcp, 1).into() }.claim(), None);
        let queues = QueueSet::from_iter([1, 63]);
        let listening = QueueSet::NONE;
        let terms = ClaimTerms { queues, listening, kernel_new: false, kernel_some: true, marks: MARKS };
        assert_eq!(ClaimTerms::from(ClaimValue::from(terms)), terms);
    }

    #[test]
    fn every_port_of_both_transports_has_its_own_bit() {
        let bit = |transport, port| PortBit::of(&claim("192.0.2.1", transport, port));
        assert_eq!(bit(Transport::Udp, 53), PortBit { word: 0, mask: 1 << 53 });
        assert_eq!(bit(Transport::Udp, 64), PortBit { word: 1, mask: 1 });
        assert_eq!(bit(Transport::Udp, 65535), PortBit { word: 1023, mask: 1 << 63 });
        assert_eq!(bit(Transport::Tcp, 0), PortBit { word: 1024, mask: 1 });
    }
}
