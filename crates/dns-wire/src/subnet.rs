//! Networks of clients in messages: EDNS Client Subnet (RFC 7871).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Where clients come from: the first bits of their addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subnet {
    /// The bits beyond `length` are zero.
    address: IpAddr,
    length: u8,
}

/// Numbers of address families (RFC 7871, 6).
const IPV4: u16 = 1;
const IPV6: u16 = 2;

impl Subnet {
    /// Where clients are of whom servers are to learn nothing. Servers are told that, too (RFC 7871, 7.1.2).
    pub const NOWHERE: Subnet = Subnet { address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), length: 0 };

    /// The first `length` bits of an address, or all of it if it has no more.
    #[must_use]
    pub fn new(address: IpAddr, length: u8) -> Subnet {
        let width = if address.is_ipv4() { 32 } else { 128 };
        let length = length.min(width);
        let beyond = u32::from(width - length);
        let address = match address {
            IpAddr::V4(address) => {
                let kept = u32::MAX.checked_shl(beyond).unwrap_or(0);
                Ipv4Addr::from_bits(address.to_bits() & kept).into()
            }
            IpAddr::V6(address) => {
                let kept = u128::MAX.checked_shl(beyond).unwrap_or(0);
                Ipv6Addr::from_bits(address.to_bits() & kept).into()
            }
        };
        Subnet { address, length }
    }

    /// Reads the data of an option: the network, and the scope behind its length. `None` if it is malformed: the address has as many octets
    /// as its bits need, and no bits beyond them (RFC 7871, 6).
    #[must_use]
    pub fn read(data: &[u8]) -> Option<(Subnet, u8)> {
        let ([high, low, length, scope], octets) = data.split_first_chunk()?;
        let address = match u16::from_be_bytes([*high, *low]) {
            IPV4 => IpAddr::from(padded::<4>(octets)?),
            IPV6 => IpAddr::from(padded::<16>(octets)?),
            _ => return None,
        };
        let subnet = Subnet::new(address, *length);
        let is_whole = octets.len() == usize::from(length.div_ceil(8));
        (is_whole && subnet == Subnet { address, length: *length }).then_some((subnet, *scope))
    }

    /// The data of its option, with this scope.
    #[must_use]
    pub fn write(self, scope: u8) -> Vec<u8> {
        let (family, octets) = match self.address {
            IpAddr::V4(address) => (IPV4, address.octets().to_vec()),
            IpAddr::V6(address) => (IPV6, address.octets().to_vec()),
        };
        let [high, low] = family.to_be_bytes();
        [&[high, low, self.length, scope], &octets[..usize::from(self.length.div_ceil(8))]].concat()
    }

    /// Its address; the bits beyond its length are zero.
    #[must_use]
    pub fn address(self) -> IpAddr {
        self.address
    }

    /// How many bits it has.
    #[must_use]
    pub fn length(self) -> u8 {
        self.length
    }

    /// The networks whose answers are for this one, the longest first. What a server says to nobody in particular is for where we are ourselves.
    pub fn within(self) -> impl Iterator<Item = Subnet> {
        let shortest = self.length.min(1);
        (shortest..=self.length).rev().map(move |length| Subnet::new(self.address, length))
    }
}

/// The octets, and zeros behind them; `None` if they are too many.
fn padded<const N: usize>(octets: &[u8]) -> Option<[u8; N]> {
    let mut whole = [0; N];
    whole.get_mut(..octets.len())?.copy_from_slice(octets);
    Some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subnet(text: &str, length: u8) -> Subnet {
        Subnet::new(text.parse().unwrap(), length)
    }

    #[test]
    fn an_option_has_the_octets_that_its_length_needs_and_zeros_beyond() {
        assert_eq!(subnet("192.0.2.77", 24).write(0), [0, 1, 24, 0, 192, 0, 2]);
        assert_eq!(subnet("2001:db8::1", 33).write(20), [0, 2, 33, 20, 0x20, 1, 0x0d, 0xb8, 0]);
        assert_eq!(subnet("192.0.2.77", 0).write(0), [0, 1, 0, 0]);
        for option in [&[0, 1, 24, 7, 192, 0, 2][..], &[0, 2, 0, 0], &[0, 1, 32, 0, 1, 2, 3, 4]] {
            let (read, scope) = Subnet::read(option).unwrap();
            assert_eq!(read.write(scope), option);
        }
        for malformed in [
            &[0, 1, 24, 0, 192, 0][..],
            &[0, 1, 24, 0, 192, 0, 2, 0],
            &[0, 1, 23, 0, 192, 0, 3],
            &[0, 1, 33, 0, 192, 0, 2, 1, 0],
            &[0, 3, 0, 0],
            &[0, 1, 0],
        ] {
            assert_eq!(Subnet::read(malformed), None, "{malformed:?}");
        }
    }
}
