//! The layouts shared with `bpf/steer.bpf.c`.

use std::net::IpAddr;

use steering::{Claim, Transport};

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
        let address = match claim.local.address {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        ClaimKey {
            address: address.octets(),
            vlan_outer: claim.local.vlan.outer.to_be_bytes(),
            vlan_inner: claim.local.vlan.inner.to_be_bytes(),
            port: claim.port.to_be_bytes(),
            protocol: claim.transport.number(),
            zero: 0,
        }
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
    use steering::{LocalAddress, VlanTags};

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
    fn every_port_of_both_transports_has_its_own_bit() {
        let bit = |transport, port| PortBit::of(&claim("192.0.2.1", transport, port));
        assert_eq!(bit(Transport::Udp, 53), PortBit { word: 0, mask: 1 << 53 });
        assert_eq!(bit(Transport::Udp, 64), PortBit { word: 1, mask: 1 });
        assert_eq!(bit(Transport::Udp, 65535), PortBit { word: 1023, mask: 1 << 63 });
        assert_eq!(bit(Transport::Tcp, 0), PortBit { word: 1024, mask: 1 });
    }
}
