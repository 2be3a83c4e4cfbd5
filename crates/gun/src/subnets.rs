//! Client subnets that questions tell (RFC 7871), so that a server which answers by them has clients everywhere.

use std::net::IpAddr;

use ipnet::IpNet;

/// The option's code, and its octets in front of the address: code, length, family, source prefix length, scope prefix length (RFC 7871, 6).
const CODE: u16 = 8;
const HEAD_LEN: usize = 8;
/// Bits of a network that a resolver should tell at most (RFC 7871, 11.1).
const TOLD_V4: u8 = 24;
const TOLD_V6: u8 = 56;

/// Networks that clients are in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Subnets(Vec<Subnet>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Subnet {
    /// IANA's number of the IP version.
    family: u16,
    /// The address, its first bit in front.
    address: u128,
    /// Bits that are as they were given, and bits that are told: those in between are chosen by chance.
    given: u8,
    told: u8,
}

impl Subnets {
    pub(crate) fn new(networks: &[IpNet]) -> Subnets {
        Subnets(networks.iter().map(|network| Subnet::new(network.trunc())).collect())
    }

    /// Writes the option for a question into the front of `room`; returns its octets, 0 if there is none to write, or `None` if it does not fit.
    pub(crate) fn write(&self, chance: u64, room: &mut [u8]) -> Option<usize> {
        if self.0.is_empty() {
            return Some(0);
        }
        let subnet = &self.0[(chance % self.0.len() as u64) as usize];
        let option = room.get_mut(..subnet.option_len())?;
        subnet.write(chance, option);
        Some(option.len())
    }
}

impl Subnet {
    fn new(network: IpNet) -> Subnet {
        let (family, address, most) = match network.addr() {
            IpAddr::V4(address) => (1, u128::from(address.to_bits()) << 96, TOLD_V4),
            IpAddr::V6(address) => (2, address.to_bits(), TOLD_V6),
        };
        let given = network.prefix_len();
        Subnet { family, address, given, told: given.max(most) }
    }

    fn option_len(&self) -> usize {
        HEAD_LEN + usize::from(self.told.div_ceil(8))
    }

    fn write(&self, chance: u64, option: &mut [u8]) {
        let chosen = u128::from(chance.rotate_left(32)) << 64 | u128::from(chance);
        let address = self.address | chosen & leading(self.told) & !leading(self.given);
        let (head, tail) = option.split_at_mut(HEAD_LEN);
        let [code, family] = [CODE, self.family].map(u16::to_be_bytes);
        let len = ((HEAD_LEN - 4 + tail.len()) as u16).to_be_bytes(); // 20 at most.
        head.copy_from_slice(&[code[0], code[1], len[0], len[1], family[0], family[1], self.told, 0]);
        tail.copy_from_slice(&address.to_be_bytes()[..tail.len()]);
    }
}

/// So many bits in front are set.
fn leading(bits: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn written(networks: &[&str], chance: u64) -> Vec<u8> {
        let networks: Vec<IpNet> = networks.iter().map(|text| text.parse().unwrap()).collect();
        let mut room = [0xff; 32];
        let len = Subnets::new(&networks).write(chance, &mut room).unwrap();
        room[..len].to_vec()
    }

    #[test]
    fn an_option_tells_a_network_of_the_prefix_and_no_more() {
        let option = written(&["198.18.0.0/15"], 0x1234_5678_9abc_def0);
        assert_eq!(option[..8], [0, 8, 0, 7, 0, 1, 24, 0]);
        assert!(option.len() == 11 && option[8] == 198 && option[9] & !1 == 18, "{option:?}");
        let option = written(&["2001:db8::/32"], u64::MAX);
        assert_eq!(option, [0, 8, 0, 11, 0, 2, 56, 0, 0x20, 1, 0x0d, 0xb8, 0xff, 0xff, 0xff]);
    }

    #[test]
    fn a_longer_prefix_is_told_as_it_is() {
        assert_eq!(written(&["192.0.2.77/32"], 99), [0, 8, 0, 8, 0, 1, 32, 0, 192, 0, 2, 77]);
        assert_eq!(written(&["192.0.2.77/28"], 99), [0, 8, 0, 8, 0, 1, 28, 0, 192, 0, 2, 64]);
    }

    #[test]
    fn all_prefixes_and_many_of_their_networks_have_a_turn() {
        let networks = ["198.18.0.0/15", "2001:db8::/32", "0.0.0.0/0"];
        let seen: BTreeSet<Vec<u8>> = (0..3000_u64)
            .map(|number| written(&networks, number.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
            .collect();
        assert!(seen.len() > 1200, "{}", seen.len());
        for family in [1, 2] {
            assert!(seen.iter().any(|option| option[5] == family), "{family}");
        }
    }

    #[test]
    fn without_networks_there_is_no_option_and_without_room_none_is_written() {
        assert!(written(&[], 1).is_empty());
        let subnets = Subnets::new(&["192.0.2.0/24".parse().unwrap()]);
        assert_eq!(subnets.write(1, &mut [0; 10]), None);
    }
}
