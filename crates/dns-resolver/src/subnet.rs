//! Answers for networks of clients (EDNS Client Subnet, RFC 7871): what servers of zones that the user names are told about who asks, and
//! their answers, each for the network that its scope says.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use clock::{Duration, Instant};
use dns_wire::{Name, NameBuf, Rtype};

use crate::cache::whole_secs;
use crate::resolver::Known;

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
    fn within(self) -> impl Iterator<Item = Subnet> {
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

/// Answers that are kept, of all names: the oldest leave first. Each has a few hundred octets.
const ANSWERS_MAX: usize = 20_000;
/// Octets of one; longer ones are not kept.
const ANSWER_OCTETS_MAX: usize = 2048;

/// What a name is for clients of a network.
#[derive(Debug)]
struct Kept {
    number: u64,
    known: Known,
    stored: Instant,
    expires: Instant,
}

/// What was found.
#[derive(Clone, Debug)]
pub(crate) struct ForNetwork {
    /// With the TTLs that are left.
    pub(crate) known: Known,
    /// Seconds that are left, and seconds in all.
    pub(crate) left: u32,
    pub(crate) whole: u32,
}

/// Answers that differ by network. They are served while they are fresh, and never after.
#[derive(Debug, Default)]
pub(crate) struct ByNetwork {
    names: BTreeMap<(NameBuf, Rtype), BTreeMap<Subnet, Kept>>,
    /// By age; some may have been replaced since.
    order: VecDeque<(u64, NameBuf, Rtype, Subnet)>,
    next_number: u64,
}

impl ByNetwork {
    /// Keeps what `name`, in lower case, is for a network.
    pub(crate) fn put(
        &mut self,
        name: NameBuf,
        rtype: Rtype,
        network: Subnet,
        known: Known,
        ttl: u32,
        now: Instant,
    ) {
        if ttl == 0 || known.octets() > ANSWER_OCTETS_MAX {
            return;
        }
        self.next_number += 1;
        let number = self.next_number;
        let expires = now + Duration::from_secs(ttl.into());
        let kept = Kept { number, known, stored: now, expires };
        self.names.entry((name.clone(), rtype)).or_default().insert(network, kept);
        self.order.push_back((number, name, rtype, network));
        while self.order.len() > ANSWERS_MAX {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        let Some((number, name, rtype, network)) = self.order.pop_front() else { return };
        let key = (name, rtype);
        let Some(networks) = self.names.get_mut(&key) else { return };
        if networks.get(&network).is_some_and(|kept| kept.number == number) {
            networks.remove(&network);
        }
        if networks.is_empty() {
            self.names.remove(&key);
        }
    }

    /// What is known for clients of `subnet`, by the longest network that they are in.
    pub(crate) fn get(
        &self,
        name: Name<'_>,
        rtype: Rtype,
        subnet: Subnet,
        now: Instant,
    ) -> Option<ForNetwork> {
        let networks = self.networks(name, rtype)?;
        let mut found = subnet.within().filter_map(|network| networks.get(&network));
        let kept = found.find(|kept| kept.expires > now)?;
        let (left, whole) =
            (whole_secs(kept.expires.since(now)), whole_secs(kept.expires.since(kept.stored)));
        Some(ForNetwork { known: kept.known.with_ttl(left), left, whole })
    }

    /// Whether there may be an answer for a network.
    pub(crate) fn has(&self, name: Name<'_>, rtype: Rtype) -> bool {
        self.networks(name, rtype).is_some()
    }

    fn networks(&self, name: Name<'_>, rtype: Rtype) -> Option<&BTreeMap<Subnet, Kept>> {
        if self.names.is_empty() {
            return None;
        }
        let mut name = NameBuf::from(name);
        name.make_lowercase();
        self.names.get(&(name, rtype))
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        *self = ByNetwork { next_number: self.next_number, ..ByNetwork::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Rdatas, Rrset};

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

    #[test]
    fn the_longest_network_counts_and_the_oldest_answers_leave() {
        let mut answers = ByNetwork::default();
        let name = NameBuf::from_text(b"www.example.", None).unwrap();
        let known = |ttl| {
            Known::Records(Rrset::unsigned(name.clone(), Rtype::A, ttl, Rdatas::pack([&[1u8, 2, 3, 4][..]])))
        };
        let at = |secs| Instant::ZERO + Duration::from_secs(secs);
        answers.put(name.clone(), Rtype::A, subnet("192.0.2.0", 16), known(60), 60, at(0));
        answers.put(name.clone(), Rtype::A, subnet("192.0.2.0", 24), known(30), 30, at(0));
        let left = |answers: &ByNetwork, text: &str, secs| {
            let upper = NameBuf::from_text(b"WWW.example.", None).unwrap();
            answers.get(upper.as_name(), Rtype::A, subnet(text, 24), at(secs)).map(|found| found.left)
        };
        assert_eq!(left(&answers, "192.0.2.9", 1), Some(29));
        assert_eq!(left(&answers, "192.0.3.9", 1), Some(59));
        assert_eq!(left(&answers, "192.0.2.9", 30), Some(30), "the longer one has ended");
        assert_eq!((left(&answers, "192.1.2.9", 1), left(&answers, "192.0.2.9", 60)), (None, None));
        for number in 0..ANSWERS_MAX as u32 {
            let network = Subnet::new(Ipv4Addr::from_bits(number << 8).into(), 24);
            answers.put(name.clone(), Rtype::A, network, known(60), 60, at(0));
        }
        assert_eq!(left(&answers, "192.0.3.9", 1), None);
        assert!(answers.names.values().map(BTreeMap::len).sum::<usize>() <= ANSWERS_MAX);
    }
}
