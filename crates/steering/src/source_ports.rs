//! Source ports that come home: local ports of connections that we make, from which the device gives the peer's answers to queues of ours.
//!
//! The packet that the device hashes is the peer's: its source is the peer, its destination is our end. The Toeplitz function is linear over exclusive
//! or, so that its hash is that of the same packet to port 0, exclusive or what the port adds (`Toeplitz::part_of_port`), which is the same for all peers.
//! So one table serves them all: the ports by the low bits of what they add. To choose one, an entry of the indirection table that leads home is drawn, and
//! then a port that leads from the peer to that entry.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use crate::rss::{KEY_LEN, Toeplitz};

/// Ports that are found by searching before it is worth making the table.
const SEARCHES: u32 = 16;
/// Ports that a search looks at by chance, before it looks at all in turn.
const DRAWS: u32 = 256;
/// Draws from the table before it is asked whether there is any port at all.
const TABLE_DRAWS: u32 = 32;
/// The longest indirection table.
const ENTRIES_MAX: usize = 1 << 13;

/// How a device spreads packets of TCP, as far as it concerns somebody who has some of its queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    /// The key of the Toeplitz function, of at least [`KEY_LEN`] octets.
    pub key: Vec<u8>,
    /// For each entry of the indirection table whether its queue is ours.
    pub is_home: Vec<bool>,
    /// Whether ports are hashed besides addresses.
    pub hashes_ports: bool,
}

/// The ports that a socket may get whose program names none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalPorts {
    range: RangeInclusive<u16>,
    /// One bit for each port.
    allowed: Box<[u64; 1024]>,
}

impl LocalPorts {
    /// Those of `range` that are not reserved.
    pub fn new(range: RangeInclusive<u16>, reserved: &[RangeInclusive<u16>]) -> LocalPorts {
        let mut allowed = Box::new([0; 1024]);
        let is_reserved = |port: &u16| reserved.iter().any(|range| range.contains(port));
        for port in range.clone().filter(|port| *port != 0 && !is_reserved(port)) {
            allowed[usize::from(port / 64)] |= 1 << (port % 64);
        }
        LocalPorts { range, allowed }
    }

    fn contains(&self, port: u16) -> bool {
        self.allowed[usize::from(port / 64)] >> (port % 64) & 1 == 1
    }

    fn count(&self) -> u32 {
        u32::from(self.range.end().saturating_sub(*self.range.start())) + 1
    }

    /// The port at a place of the range, counted around.
    fn at(&self, place: u32) -> u16 {
        let (first, port) = (u32::from(*self.range.start()), place % self.count());
        (first + port) as u16 // Within the range, which ends below 2^16.
    }

    fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        self.range.clone().filter(|port| self.contains(*port))
    }
}

/// How a port was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// In the table.
    Table,
    /// By trying one after the other.
    Search,
}

/// Chooses local ports.
#[derive(Debug)]
pub struct SourcePorts {
    spread: Spread,
    toeplitz: Toeplitz,
    ports: LocalPorts,
    /// Entries of the indirection table that lead home.
    homes: Vec<u16>,
    /// For IPv4 and for IPv6.
    tables: [Table; 2],
}

/// Ports by what they add to the hash.
#[derive(Debug, Default)]
struct Table {
    /// What each port adds, by bits of the port: the low octet's and the high one's.
    parts: Option<Box<[[u32; 256]; 2]>>,
    searches: u32,
    /// In the order of what they add; empty until the table is made.
    ports: Vec<u16>,
    /// Where those begin that add this to an entry's number; one more than there are entries.
    starts: Vec<u32>,
    /// The most that add the same.
    most: u32,
}

impl SourcePorts {
    /// `None` if nobody knows where such a device puts packets: its key is shorter than [`KEY_LEN`], or its table's length no power of two.
    pub fn new(spread: Spread, ports: LocalPorts) -> Option<SourcePorts> {
        let key: &[u8; KEY_LEN] = spread.key.first_chunk()?;
        let toeplitz = Toeplitz::new(key);
        let entries = spread.is_home.len();
        if !entries.is_power_of_two() || entries > ENTRIES_MAX {
            return None;
        }
        let homes = (0u16..).zip(&spread.is_home).filter(|(_, is_home)| **is_home).map(|(entry, _)| entry);
        let homes = homes.collect();
        Some(SourcePorts { spread, toeplitz, ports, homes, tables: [Table::default(), Table::default()] })
    }

    /// What it was made of.
    pub fn spread(&self) -> &Spread {
        &self.spread
    }

    /// The same, of the ports.
    pub fn ports(&self) -> &LocalPorts {
        &self.ports
    }

    /// Whether what `remote` sends to `local` comes by a queue of ours.
    pub fn comes_home(&self, remote: SocketAddr, local: SocketAddr) -> bool {
        let hash = match self.spread.hashes_ports {
            true => self.toeplitz.hash_ports(remote, local),
            false => self.toeplitz.hash_addresses(remote.ip(), local.ip()),
        };
        remote.is_ipv4() == local.is_ipv4() && self.leads_home(hash)
    }

    /// A port of `local` to which `remote` answers by a queue of ours, each with the same chance where the table has them, and how it was found. `None`:
    /// there is none. `random` gives a new number each time.
    pub fn choose(
        &mut self,
        remote: SocketAddr,
        local: IpAddr,
        mut random: impl FnMut() -> u64,
    ) -> Option<(u16, Found)> {
        if self.homes.is_empty() || remote.is_ipv4() != local.is_ipv4() {
            return None;
        }
        if !self.spread.hashes_ports {
            let all = self.comes_home(remote, SocketAddr::new(local, 0));
            return all
                .then(|| self.search(&mut random, |_| true))
                .flatten()
                .map(|port| (port, Found::Search));
        }
        let base = self.toeplitz.hash_ports(remote, SocketAddr::new(local, 0));
        self.prepare(local.is_ipv4());
        let table = &self.tables[usize::from(local.is_ipv4())];
        match table.ports.is_empty() {
            true => {
                let comes_home = |port| self.leads_home(base ^ table.part(port));
                self.search(&mut random, comes_home).map(|port| (port, Found::Search))
            }
            false => {
                let base = base as usize & (self.spread.is_home.len() - 1);
                table.choose(&self.homes, base, &mut random).map(|port| (port, Found::Table))
            }
        }
    }

    fn leads_home(&self, hash: u32) -> bool {
        self.spread.is_home[hash as usize & (self.spread.is_home.len() - 1)]
    }

    /// The table is made once ports have been searched for a while: a program that connects a few times does not wait for it.
    fn prepare(&mut self, is_v4: bool) {
        let mask = self.spread.is_home.len() - 1;
        let table = &mut self.tables[usize::from(is_v4)];
        if table.parts.is_none() {
            let part = |port: u16| self.toeplitz.part_of_port(is_v4, port);
            table.parts = Some(Box::new([
                std::array::from_fn(|octet| part(octet as u16)),
                std::array::from_fn(|octet| part((octet as u16) << 8)),
            ]));
        }
        if table.searches < SEARCHES {
            table.searches += 1;
        } else if table.starts.is_empty() {
            table.fill(&self.ports, mask);
        }
    }

    fn search(&self, random: &mut impl FnMut() -> u64, is_good: impl Fn(u16) -> bool) -> Option<u16> {
        let is_good = |port: &u16| self.ports.contains(*port) && is_good(*port);
        let count = self.ports.count();
        let drawn = (0..DRAWS).map(|_| self.ports.at(below(count, random()))).find(|port| is_good(port));
        drawn.or_else(|| {
            let start = below(count, random());
            (0..count).map(|step| self.ports.at(start + step)).find(is_good)
        })
    }
}

impl Table {
    /// What a port adds to the hash.
    fn part(&self, port: u16) -> u32 {
        let [high, low] = port.to_be_bytes();
        self.parts.as_ref().map_or(0, |parts| parts[0][usize::from(low)] ^ parts[1][usize::from(high)])
    }

    fn fill(&mut self, ports: &LocalPorts, mask: usize) {
        let added = |port: u16| self.part(port) as usize & mask;
        let mut starts = vec![0u32; mask + 2];
        ports.iter().for_each(|port| starts[added(port) + 1] += 1);
        let most = starts.iter().copied().max().unwrap_or(0);
        (1..starts.len()).for_each(|at| starts[at] += starts[at - 1]);
        let mut next = starts.clone();
        let mut sorted = vec![0; starts[mask + 1] as usize];
        for port in ports.iter() {
            let place = &mut next[added(port)];
            sorted[*place as usize] = port;
            *place += 1;
        }
        (self.ports, self.starts, self.most) = (sorted, starts, most);
    }

    /// The ports that lead from the entry `base` to the entry `home`.
    fn leading(&self, base: usize, home: u16) -> &[u16] {
        let added = base ^ usize::from(home);
        &self.ports[self.starts[added] as usize..self.starts[added + 1] as usize]
    }

    fn choose(&self, homes: &[u16], base: usize, random: &mut impl FnMut() -> u64) -> Option<u16> {
        for _ in 0..TABLE_DRAWS {
            let number = random();
            let home = homes[below(homes.len() as u32, number) as usize];
            let place = below(self.most, number.rotate_left(32)) as usize;
            // As if all entries had as many ports: so each port has the same chance.
            if let Some(port) = self.leading(base, home).get(place) {
                return Some(*port);
            }
        }
        let count = homes.iter().map(|home| self.leading(base, *home).len()).sum::<usize>() as u32;
        let place = (count > 0).then(|| below(count, random()) as usize)?;
        homes.iter().flat_map(|home| self.leading(base, *home)).nth(place).copied()
    }
}

/// A number below `count`, by the low half of a random one.
fn below(count: u32, random: u64) -> u32 {
    (((random & 0xffff_ffff) * u64::from(count)) >> 32) as u32 // Below 2^32.
}

#[cfg(test)]
mod tests;
