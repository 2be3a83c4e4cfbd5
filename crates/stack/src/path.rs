//! Links, and the hops in use: where packets leave, and their largest size.

use core::net::IpAddr;

pub use transit::{Hop, LinkHeader, LinkId};
use wire::MacAddress;

/// What the stack knows of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Largest IP packet.
    pub mtu: u16,
    /// Largest TCP segment to announce and to send on it, for paths through tunnels that do not say how narrow they are.
    pub mss_clamp: Option<u16>,
    /// The device fills in transport checksums.
    pub tx_checksum_offload: bool,
    /// Largest IP packet that the device cuts into TCP segments itself; zero if it cuts none.
    pub tso_max: u16,
}

impl Default for Link {
    fn default() -> Link {
        Link { mtu: 1500, mss_clamp: None, tx_checksum_offload: false, tso_max: 0 }
    }
}

/// Number of a path in a [`PathTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PathId(u32);

/// Hops in use. Connections share them by number, so that a neighbour that changes its address is changed once.
#[derive(Debug, Default)]
pub struct PathTable {
    entries: Vec<PathEntry>,
    links: Vec<Option<Link>>,
    clamps: Vec<RouteClamp>,
    /// The entry found last: bursts come from few neighbours.
    latest: usize,
}

#[derive(Debug)]
struct PathEntry {
    hop: Hop,
    users: u32,
}

/// A network behind a narrow path: segments to and from it are no larger than `mss`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteClamp {
    /// The network's address.
    pub network: IpAddr,
    /// Leading bits of it that count.
    pub prefix_len: u8,
    /// Largest TCP segment to announce and to send.
    pub mss: u16,
}

impl RouteClamp {
    fn covers(&self, address: IpAddr) -> bool {
        let same_bits = |own: u128, other: u128, width: u8| {
            let shift = u32::from(width - self.prefix_len.min(width));
            own.checked_shr(shift).unwrap_or(0) == other.checked_shr(shift).unwrap_or(0)
        };
        match (self.network, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                same_bits(own.to_bits().into(), other.to_bits().into(), 32)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => same_bits(own.to_bits(), other.to_bits(), 128),
            _ => false,
        }
    }
}

/// Neighbours that a stack may have; a link has fewer, and a peer that invents more gets no connection.
const PATHS_MAX: usize = 4096;

impl PathTable {
    /// Tells of a link, or changes it.
    pub fn set_link(&mut self, id: LinkId, link: Link) {
        let at = usize::from(id.0);
        if self.links.len() <= at {
            self.links.resize(at + 1, None);
        }
        self.links[at] = Some(link);
    }

    /// A link; an unknown link has the default values.
    pub fn link(&self, id: LinkId) -> Link {
        self.links.get(usize::from(id.0)).copied().flatten().unwrap_or_default()
    }

    /// Clamps segment sizes by route, in place of what was set before.
    pub fn set_route_clamps(&mut self, clamps: Vec<RouteClamp>) {
        self.clamps = clamps;
    }

    /// The clamp of the longest prefix that `remote` is in.
    pub fn route_clamp(&self, remote: IpAddr) -> Option<u16> {
        let covering = self.clamps.iter().filter(|clamp| clamp.covers(remote));
        covering.max_by_key(|clamp| clamp.prefix_len).map(|clamp| clamp.mss)
    }

    /// Numbers `hop`. Each call needs a matching [`PathTable::release`]. `None` if there are too many.
    pub fn acquire(&mut self, hop: Hop) -> Option<PathId> {
        let at = self.find(hop).or_else(|| self.add(hop))?;
        self.latest = at;
        self.entries[at].users += 1;
        Some(PathId(at as u32))
    }

    fn find(&self, hop: Hop) -> Option<usize> {
        let is_it = |entry: &PathEntry| entry.hop == hop;
        if self.entries.get(self.latest).is_some_and(is_it) {
            return Some(self.latest);
        }
        self.entries.iter().position(is_it)
    }

    fn add(&mut self, hop: Hop) -> Option<usize> {
        let entry = PathEntry { hop, users: 0 };
        if let Some(at) = self.entries.iter().position(|entry| entry.users == 0) {
            self.entries[at] = entry;
            return Some(at);
        }
        if self.entries.len() >= PATHS_MAX {
            return None;
        }
        self.entries.push(entry);
        Some(self.entries.len() - 1)
    }

    /// Gives back what [`PathTable::acquire`] gave.
    pub fn release(&mut self, id: PathId) {
        if let Some(entry) = self.entries.get_mut(id.0 as usize) {
            debug_assert!(entry.users > 0, "a path is released once for each time it was acquired");
            entry.users = entry.users.saturating_sub(1);
        }
    }

    /// The hop of a path in use.
    #[inline]
    pub fn hop(&self, id: PathId) -> Hop {
        self.entries.get(id.0 as usize).map(|entry| entry.hop).unwrap_or_default()
    }

    /// A neighbour changed its address: from now on all its connections send to `new`. Returns the number of paths changed.
    pub fn replace_neighbour(&mut self, link: LinkId, old: MacAddress, new: MacAddress) -> usize {
        let concerned = |hop: &Hop| hop.link == link && hop.header.destination == old;
        let hops = self.entries.iter_mut().map(|entry| &mut entry.hop);
        hops.filter(|hop| concerned(hop)).map(|hop| hop.header.destination = new).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(neighbour: u8) -> Hop {
        let header = LinkHeader { destination: MacAddress([neighbour; 6]), ..LinkHeader::default() };
        Hop { link: LinkId(1), header }
    }

    #[test]
    fn connections_by_one_neighbour_share_a_path() {
        let mut paths = PathTable::default();
        let first = paths.acquire(hop(1)).unwrap();
        assert_eq!(paths.acquire(hop(1)), Some(first));
        assert_ne!(paths.acquire(hop(2)), Some(first));
    }

    #[test]
    fn a_neighbour_that_changes_its_address_is_changed_for_all() {
        let mut paths = PathTable::default();
        let path = paths.acquire(hop(1)).unwrap();
        assert_eq!(paths.replace_neighbour(LinkId(0), MacAddress([1; 6]), MacAddress([9; 6])), 0);
        assert_eq!(paths.replace_neighbour(LinkId(1), MacAddress([1; 6]), MacAddress([9; 6])), 1);
        assert_eq!(paths.hop(path), hop(9));
    }

    #[test]
    fn the_clamp_of_the_longest_prefix_counts() {
        let clamp = |network: &str, prefix_len, mss| RouteClamp {
            network: network.parse().unwrap(),
            prefix_len,
            mss,
        };
        let mut paths = PathTable::default();
        paths.set_route_clamps(vec![
            clamp("0.0.0.0", 0, 1400),
            clamp("192.0.2.0", 24, 1300),
            clamp("2001:db8::", 32, 1200),
        ]);
        let of = |address: &str| paths.route_clamp(address.parse().unwrap());
        assert_eq!(of("198.51.100.1"), Some(1400));
        assert_eq!(of("192.0.2.255"), Some(1300));
        assert_eq!(of("2001:db8:1::1"), Some(1200));
        assert_eq!(of("2001:db9::1"), None);
    }

    #[test]
    fn invented_neighbours_do_not_grow_the_table() {
        let mut paths = PathTable::default();
        for n in 0..10_000u32 {
            let [_, a, b, c] = n.to_be_bytes();
            let header = LinkHeader { destination: MacAddress([2, 0, 0, a, b, c]), ..LinkHeader::default() };
            if let Some(path) = paths.acquire(Hop { link: LinkId(0), header }) {
                paths.release(path);
            }
        }
        assert_eq!(paths.entries.len(), 1);
    }
}
