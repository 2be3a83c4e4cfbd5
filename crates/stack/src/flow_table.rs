//! From a four-tuple to a connection.

use core::hash::Hasher;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use hashbrown::HashTable;
use siphasher::sip::SipHasher13;
use wire::ip::Ip;

pub(crate) mod host_cache;
pub(crate) mod recency_list;

/// The two ends of a flow. Every pair of addresses of one version has exactly one key.
///
/// Scopes of link-local addresses are not part of it: one link is assumed for them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FlowKey(Octets);

/// Local address, remote address, local port, remote port, in network byte order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Octets {
    V4([u8; 12]),
    V6([u8; 36]),
}

const _: () = assert!(size_of::<FlowKey>() <= 40);

/// The addresses of a flow, local first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddressPair {
    V4(Ipv4Addr, Ipv4Addr),
    V6(Ipv6Addr, Ipv6Addr),
}

impl FlowKey {
    /// The key of a flow over IPv4.
    #[inline]
    pub fn v4(local: (Ipv4Addr, u16), remote: (Ipv4Addr, u16)) -> FlowKey {
        let mut octets = [0; 12];
        octets[..4].copy_from_slice(&local.0.octets());
        octets[4..8].copy_from_slice(&remote.0.octets());
        octets[8..10].copy_from_slice(&local.1.to_be_bytes());
        octets[10..].copy_from_slice(&remote.1.to_be_bytes());
        FlowKey(Octets::V4(octets))
    }

    /// The key of a flow over IPv6.
    #[inline]
    pub fn v6(local: (Ipv6Addr, u16), remote: (Ipv6Addr, u16)) -> FlowKey {
        let mut octets = [0; 36];
        octets[..16].copy_from_slice(&local.0.octets());
        octets[16..32].copy_from_slice(&remote.0.octets());
        octets[32..34].copy_from_slice(&local.1.to_be_bytes());
        octets[34..].copy_from_slice(&remote.1.to_be_bytes());
        FlowKey(Octets::V6(octets))
    }

    /// The key of the flow between two addresses; `None` if they are not of one version.
    pub fn new(local: SocketAddr, remote: SocketAddr) -> Option<FlowKey> {
        match (local, remote) {
            (SocketAddr::V4(l), SocketAddr::V4(r)) => {
                Some(FlowKey::v4((*l.ip(), l.port()), (*r.ip(), r.port())))
            }
            (SocketAddr::V6(l), SocketAddr::V6(r)) => {
                Some(FlowKey::v6((*l.ip(), l.port()), (*r.ip(), r.port())))
            }
            _ => None,
        }
    }

    /// The key of what is bound to `local`: as of a flow from nobody, which no packet has.
    pub(crate) fn of_binding(local: SocketAddr) -> FlowKey {
        match local {
            SocketAddr::V4(local) => FlowKey::v4((*local.ip(), local.port()), (Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(local) => FlowKey::v6((*local.ip(), local.port()), (Ipv6Addr::UNSPECIFIED, 0)),
        }
    }

    /// The key of the flow of a packet that arrived, with the ports behind its IP header.
    #[inline]
    pub(crate) fn of_packet(ip: &Ip<'_>, source_port: u16, destination_port: u16) -> FlowKey {
        match ip {
            Ip::V4(ip) => FlowKey::v4((ip.destination(), destination_port), (ip.source(), source_port)),
            Ip::V6(ip) => FlowKey::v6((ip.destination(), destination_port), (ip.source(), source_port)),
        }
    }

    /// Our end.
    #[inline]
    pub fn local(&self) -> SocketAddr {
        self.end(0)
    }

    /// The peer's end.
    #[inline]
    pub fn remote(&self) -> SocketAddr {
        self.end(1)
    }

    /// Both addresses, local first.
    #[inline]
    pub(crate) fn address_pair(&self) -> AddressPair {
        match &self.0 {
            Octets::V4([a, b, c, d, e, f, g, h, ..]) => {
                AddressPair::V4(Ipv4Addr::new(*a, *b, *c, *d), Ipv4Addr::new(*e, *f, *g, *h))
            }
            Octets::V6(octets) => {
                let address = |which: usize| {
                    Ipv6Addr::from(core::array::from_fn::<u8, 16, _>(|at| octets[16 * which + at]))
                };
                AddressPair::V6(address(0), address(1))
            }
        }
    }

    /// Both ports, local first.
    #[inline]
    pub(crate) fn ports(&self) -> (u16, u16) {
        match &self.0 {
            Octets::V4([.., a, b, c, d]) | Octets::V6([.., a, b, c, d]) => {
                (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]))
            }
        }
    }

    /// Whether the addresses are of IPv6.
    #[inline]
    pub fn is_v6(&self) -> bool {
        matches!(self.0, Octets::V6(_))
    }

    /// Everything that the key holds: 12 or 36 octets.
    #[inline]
    pub(crate) fn octets(&self) -> &[u8] {
        match &self.0 {
            Octets::V4(octets) => octets,
            Octets::V6(octets) => octets,
        }
    }

    /// The addresses, local first: 8 or 32 octets.
    #[inline]
    pub(crate) fn addresses(&self) -> &[u8] {
        match &self.0 {
            Octets::V4(octets) => &octets[..8],
            Octets::V6(octets) => &octets[..32],
        }
    }

    #[inline]
    fn end(&self, which: usize) -> SocketAddr {
        let octets = self.octets();
        let ports = &octets[octets.len() - 4..];
        let port = u16::from_be_bytes([ports[2 * which], ports[2 * which + 1]]);
        let address = match &self.0 {
            Octets::V4(octets) => IpAddr::from(core::array::from_fn::<u8, 4, _>(|at| octets[4 * which + at])),
            Octets::V6(octets) => {
                IpAddr::from(core::array::from_fn::<u8, 16, _>(|at| octets[16 * which + at]))
            }
        };
        SocketAddr::new(address, port)
    }
}

impl core::fmt::Debug for FlowKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} <- {}", self.local(), self.remote())
    }
}

/// Finds the indexes of connections, which live elsewhere, by the keyed hash of their [`FlowKey`].
///
/// Peers choose addresses and ports, so the hash is SipHash-1-3 under a secret: nobody outside can make flows collide. An
/// entry is 32 bits of the hash and the index, so a connection is looked at only if its hash is right, and growing looks
/// at none.
#[derive(Debug)]
pub struct FlowTable {
    hasher: SipHasher13,
    entries: HashTable<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    hash: u32,
    index: u32,
}

impl FlowTable {
    /// A table with room for `flows` flows, hashed under the secret `key`. It grows when there are more, which moves the
    /// entries of 9 octets.
    pub fn new(flows: usize, key: [u64; 2]) -> FlowTable {
        FlowTable {
            hasher: SipHasher13::new_with_keys(key[0], key[1]),
            entries: HashTable::with_capacity(flows),
        }
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The hash under which the flow is found in this table.
    #[inline]
    pub fn hash_of(&self, key: &FlowKey) -> u64 {
        match &key.0 {
            Octets::V4(octets) => self.hasher.hash(octets),
            Octets::V6(octets) => self.hasher.hash(octets),
        }
    }

    /// The hash of an address, for tables that know hosts instead of flows.
    #[inline]
    pub(crate) fn hash_of_address(&self, address: IpAddr) -> u64 {
        match address {
            IpAddr::V4(address) => self.hasher.hash(&address.octets()),
            IpAddr::V6(address) => self.hasher.hash(&address.octets()),
        }
    }

    /// The index among those inserted with `hash` for which `matches` holds.
    #[inline]
    pub fn find(&self, hash: u64, mut matches: impl FnMut(u32) -> bool) -> Option<u32> {
        let found = |entry: &Entry| entry.hash == hash as u32 && matches(entry.index);
        self.entries.find(spread(hash as u32), found).map(|entry| entry.index)
    }

    /// Adds `index` under `hash`. The caller knows that it is not there.
    #[inline]
    pub fn insert(&mut self, hash: u64, index: u32) {
        let entry = Entry { hash: hash as u32, index };
        self.entries.insert_unique(spread(entry.hash), entry, |entry| spread(entry.hash));
    }

    /// Removes `index`, inserted with `hash`; returns whether it was there.
    pub fn remove(&mut self, hash: u64, index: u32) -> bool {
        let found = |entry: &Entry| entry.hash == hash as u32 && entry.index == index;
        self.entries.find_entry(spread(hash as u32), found).map(|entry| entry.remove()).is_ok()
    }
}

/// The 64 bits that hashbrown wants, as it looks at the lowest for a place and at the highest 7 for a tag.
#[inline]
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

/// A short keyed hash for what a peer must not be able to guess: SipHash-2-4 of `parts` in a row.
#[inline]
pub(crate) fn secret_hash(key: [u64; 2], parts: &[&[u8]]) -> u64 {
    let mut hasher = siphasher::sip::SipHasher24::new_with_keys(key[0], key[1]);
    parts.iter().for_each(|part| hasher.write(part));
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u64; 2] = [0x0706050403020100, 0x0f0e0d0c0b0a0908];

    fn flow(port: u16) -> FlowKey {
        FlowKey::v4((Ipv4Addr::new(192, 0, 2, 1), 80), (Ipv4Addr::new(198, 51, 100, 7), port))
    }

    #[test]
    fn a_key_tells_its_ends() {
        for (local, remote) in
            [("192.0.2.1:80", "198.51.100.7:50000"), ("[2001:db8::1]:443", "[2001:db8::2]:1")]
        {
            let (local, remote) = (local.parse().unwrap(), remote.parse().unwrap());
            let key = FlowKey::new(local, remote).unwrap();
            assert_eq!((key.local(), key.remote(), key.is_v6()), (local, remote, local.is_ipv6()));
            assert_eq!(key.ports(), (local.port(), remote.port()));
            let (first, second) = match key.address_pair() {
                AddressPair::V4(first, second) => (first.into(), second.into()),
                AddressPair::V6(first, second) => (first.into(), second.into()),
            };
            assert_eq!((first, second), (local.ip(), remote.ip()));
            assert_ne!(FlowKey::new(remote, local), Some(key));
        }
        assert_eq!(FlowKey::new("192.0.2.1:80".parse().unwrap(), "[::1]:80".parse().unwrap()), None);
    }

    #[test]
    fn an_address_mapped_into_ipv6_is_another_flow() {
        let mapped = |key: SocketAddr| match key {
            SocketAddr::V4(end) => SocketAddr::new(end.ip().to_ipv6_mapped().into(), end.port()),
            SocketAddr::V6(_) => key,
        };
        let key = flow(1);
        assert_ne!(FlowKey::new(mapped(key.local()), mapped(key.remote())), Some(key));
    }

    #[test]
    fn flows_are_found_by_hash_and_key() {
        let keys = (0..1000).map(flow).collect::<Vec<_>>();
        let mut table = FlowTable::new(1000, KEY);
        let capacity = table.entries.capacity();
        for (index, key) in keys.iter().enumerate() {
            table.insert(table.hash_of(key), index as u32);
        }
        let find =
            |table: &FlowTable, key| table.find(table.hash_of(key), |index| keys[index as usize] == *key);
        assert!(keys.iter().enumerate().all(|(index, key)| find(&table, key) == Some(index as u32)));
        assert!(table.remove(table.hash_of(&keys[7]), 7));
        assert!(!table.remove(table.hash_of(&keys[7]), 7));
        assert_eq!((find(&table, &keys[7]), table.len()), (None, 999));
        assert_eq!(table.entries.capacity(), capacity);
    }

    #[test]
    fn flows_with_equal_hashes_are_told_apart() {
        let mut table = FlowTable::new(10, KEY);
        (0..5).for_each(|index| table.insert(42, index));
        assert_eq!(table.find(42, |index| index == 3), Some(3));
        assert!(table.remove(42, 3));
        assert_eq!(table.find(42, |index| index == 3), None);
        assert_eq!(table.find(43, |_| true), None);
    }

    #[test]
    fn another_secret_gives_other_hashes() {
        let (one, other) = (FlowTable::new(1, KEY), FlowTable::new(1, [1, 2]));
        assert_ne!(one.hash_of(&flow(1)), other.hash_of(&flow(1)));
    }
}
