//! Local ports: which socket may bind which, as in Linux, and the choice for an outgoing connection (RFC 6056).

use core::fmt;
use core::net::{IpAddr, SocketAddr};
use core::ops::RangeInclusive;

use crate::flow_table::secret_hash;

/// Ports that are given out where the program names none: Linux's `ip_local_port_range`.
pub const EPHEMERAL: RangeInclusive<u16> = 32768..=60999;

/// Protocols have ports of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// What a socket wants to bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The protocol.
    pub protocol: Protocol,
    /// Address and port. An unspecified address stands for all; that of IPv6 for those of IPv4 too, unless `v6only`.
    pub local: SocketAddr,
    /// IPV6_V6ONLY.
    pub v6only: bool,
    /// SO_REUSEADDR.
    pub reuse_address: bool,
    /// SO_REUSEPORT.
    pub reuse_port: bool,
}

/// Why a socket is not bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindError {
    /// Another socket holds the address and port; EADDRINUSE.
    InUse,
    /// No port was named, and none of the range is free; EADDRINUSE too.
    NoPortFree,
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BindError::InUse => "the address is in use",
            BindError::NoPortFree => "no port of the ephemeral range is free",
        })
    }
}

impl core::error::Error for BindError {}

/// A binding in the table; good until it is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindId(u32);

/// The bound addresses and ports.
///
/// Two sockets may hold overlapping addresses of one port if both have SO_REUSEPORT, or if both have SO_REUSEADDR and the
/// one that is there does not listen. UDP sockets never listen. Each connection, also in TIME-WAIT, holds its address like a
/// socket that does not listen; connections that share address and port share an entry.
///
/// Linux looks at the users and network devices of sockets, too. Here all sockets have one of each.
#[derive(Debug)]
pub struct PortTable {
    /// For each protocol and port the first entry, plus 1.
    first: [Vec<u32>; 2],
    entries: Vec<Entry>,
    free: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    binding: Binding,
    holder: Holder,
    /// The next of the same port, plus 1; or the next free one.
    next: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    Socket,
    Listener,
    /// So many connections.
    Connections(u32),
}

impl PortTable {
    /// An empty table.
    pub fn new() -> PortTable {
        PortTable { first: [vec![0; 1 << 16], vec![0; 1 << 16]], entries: Vec::new(), free: None }
    }

    /// Binds a socket to a port, which is not 0.
    pub fn bind(&mut self, binding: Binding) -> Result<BindId, BindError> {
        let binding = canonical(binding);
        if self.entries_of(binding).any(|(_, other)| other.conflicts_with(binding)) {
            return Err(BindError::InUse);
        }
        Ok(self.insert(binding, Holder::Socket))
    }

    /// Binds a socket to a port of `range` that no other socket of an overlapping address has, whatever their options. The
    /// search begins at a place given by the random number `chance`. The port in `binding` does not matter.
    pub fn bind_ephemeral(
        &mut self,
        binding: Binding,
        range: RangeInclusive<u16>,
        chance: u32,
    ) -> Result<(BindId, u16), BindError> {
        let mut binding = canonical(binding);
        let count = range.clone().count() as u64;
        for step in 0..count {
            let port = range.start() + ((u64::from(chance) + step) % count) as u16;
            binding.local.set_port(port);
            if !self.entries_of(binding).any(|(_, other)| other.binding.overlaps(binding)) {
                return Ok((self.insert(binding, Holder::Socket), port));
            }
        }
        Err(BindError::NoPortFree)
    }

    /// The socket begins to listen. Of sockets that share a port by SO_REUSEADDR only one may.
    pub fn listen(&mut self, id: BindId) -> Result<(), BindError> {
        let binding = self.entries[id.0 as usize].binding;
        if self.entries_of(binding).any(|(index, other)| index != id.0 && other.conflicts_with(binding)) {
            return Err(BindError::InUse);
        }
        self.entries[id.0 as usize].holder = Holder::Listener;
        Ok(())
    }

    /// The socket does not listen any more, but stays bound.
    pub fn stop_listening(&mut self, id: BindId) {
        self.entries[id.0 as usize].holder = Holder::Socket;
    }

    /// The socket is closed.
    pub fn release(&mut self, id: BindId) {
        self.remove(id.0);
    }

    /// Whether an unbound socket that connects may share this address and port: no socket is bound to it. Other connections
    /// may be there, as long as the four-tuple is a new one.
    pub fn is_connectable(&self, protocol: Protocol, local: SocketAddr) -> bool {
        let binding = connection_of(protocol, local);
        self.entries_of(binding).all(|(_, other)| other.is_connections() || !other.binding.overlaps(binding))
    }

    /// A connection from `local` comes into being: accepted from a listener with these options, or opened by a socket with
    /// them. It holds the address until it is gone from TIME-WAIT. All connections that share an entry have an option, or
    /// it does not count.
    pub fn hold(&mut self, protocol: Protocol, local: SocketAddr, reuse_address: bool, reuse_port: bool) {
        let new = Binding { reuse_address, reuse_port, ..connection_of(protocol, local) };
        let Some(index) = self.connections(new) else {
            self.insert(new, Holder::Connections(1));
            return;
        };
        let Entry { binding, holder, .. } = &mut self.entries[index as usize];
        binding.reuse_address &= reuse_address;
        binding.reuse_port &= reuse_port;
        if let Holder::Connections(count) = holder {
            *count += 1;
        }
    }

    /// A connection from `local` is gone.
    pub fn release_connection(&mut self, protocol: Protocol, local: SocketAddr) {
        let Some(index) = self.connections(connection_of(protocol, local)) else {
            debug_assert!(false, "each connection holds its address");
            return;
        };
        match &mut self.entries[index as usize].holder {
            Holder::Connections(count) if *count > 1 => *count -= 1,
            _ => self.remove(index),
        }
    }

    /// The entry of the connections from an address and port.
    fn connections(&self, binding: Binding) -> Option<u32> {
        let is_same = |entry: &Entry| entry.is_connections() && entry.binding.local == binding.local;
        self.entries_of(binding).find(|(_, entry)| is_same(entry)).map(|(index, _)| index)
    }

    /// The entries of one protocol and port.
    fn entries_of(&self, binding: Binding) -> impl Iterator<Item = (u32, &Entry)> {
        let entry = |next: u32| next.checked_sub(1).map(|index| (index, &self.entries[index as usize]));
        let first = self.first[binding.protocol as usize][usize::from(binding.local.port())];
        core::iter::successors(entry(first), move |(_, before)| entry(before.next))
    }

    fn insert(&mut self, binding: Binding, holder: Holder) -> BindId {
        let first = &mut self.first[binding.protocol as usize][usize::from(binding.local.port())];
        let entry = Entry { binding, holder, next: *first };
        let index = match self.free {
            Some(index) => {
                self.free = self.entries[index as usize].next.checked_sub(1);
                self.entries[index as usize] = entry;
                index
            }
            None => {
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
        };
        *first = index + 1;
        BindId(index)
    }

    fn remove(&mut self, index: u32) {
        let Entry { binding, next, .. } = self.entries[index as usize];
        let before =
            self.entries_of(binding).find(|(_, entry)| entry.next == index + 1).map(|(before, _)| before);
        match before {
            Some(before) => self.entries[before as usize].next = next,
            None => self.first[binding.protocol as usize][usize::from(binding.local.port())] = next,
        }
        self.entries[index as usize].next = self.free.map_or(0, |free| free + 1);
        self.free = Some(index);
    }
}

impl Default for PortTable {
    fn default() -> PortTable {
        PortTable::new()
    }
}

impl Entry {
    fn is_connections(&self) -> bool {
        matches!(self.holder, Holder::Connections(_))
    }

    /// Whether a socket may not have `new` beside this one.
    fn conflicts_with(&self, new: Binding) -> bool {
        let both_reuse_port = self.binding.reuse_port && new.reuse_port;
        let both_reuse_address = self.binding.reuse_address && new.reuse_address;
        let is_shared = both_reuse_port || both_reuse_address && self.holder != Holder::Listener;
        !is_shared && self.binding.overlaps(new)
    }
}

impl Binding {
    /// Whether a packet could be for either of two bindings of one port.
    fn overlaps(self, other: Binding) -> bool {
        match (self.local.ip(), other.local.ip()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => a == b || a.is_unspecified() || b.is_unspecified(),
            (IpAddr::V6(a), IpAddr::V6(b)) => a == b || a.is_unspecified() || b.is_unspecified(),
            (IpAddr::V6(a), IpAddr::V4(_)) => a.is_unspecified() && !self.v6only,
            (IpAddr::V4(_), IpAddr::V6(b)) => b.is_unspecified() && !other.v6only,
        }
    }
}

/// The binding with an address of IPv4 that was mapped into IPv6 as what it is, and without flow label and scope.
fn canonical(binding: Binding) -> Binding {
    let local = SocketAddr::new(binding.local.ip().to_canonical(), binding.local.port());
    Binding { local, ..binding }
}

fn connection_of(protocol: Protocol, local: SocketAddr) -> Binding {
    canonical(Binding { protocol, local, v6only: true, reuse_address: false, reuse_port: false })
}

/// Counters that the destinations of connections share by chance.
const COUNTERS: usize = 4096;

/// Chooses the local ports of outgoing connections: double-hash port selection (RFC 6056, 3.3.4).
///
/// Ports to one destination follow each other, so that none comes again before all others were used; where they begin is a
/// secret of each destination, and the counter that moves them is shared with destinations that nobody outside knows.
pub struct EphemeralPorts {
    key: [u64; 2],
    range: RangeInclusive<u16>,
    counters: Box<[u32]>,
}

impl EphemeralPorts {
    /// Chooses from `range`, under the secret `key`.
    pub fn new(range: RangeInclusive<u16>, key: [u64; 2]) -> EphemeralPorts {
        let counters = (0..COUNTERS).map(|index| secret_hash(key, &[&index.to_be_bytes()]) as u32);
        EphemeralPorts { key, range, counters: counters.collect() }
    }

    /// The next port for a connection from `local` to `remote` for which `is_free` holds; `None` if it holds for none, after
    /// each port of the range was tried once.
    pub fn select(
        &mut self,
        local: IpAddr,
        remote: SocketAddr,
        mut is_free: impl FnMut(u16) -> bool,
    ) -> Option<u16> {
        let hash = secret_hash(
            self.key,
            &[&mapped_octets(local), &mapped_octets(remote.ip()), &remote.port().to_be_bytes()],
        );
        let counter = &mut self.counters[(hash >> 32) as usize % COUNTERS];
        let count = self.range.clone().count() as u64;
        for _ in 0..count {
            let place = u64::from(hash as u32) + u64::from(*counter);
            let port = self.range.start() + (place % count) as u16;
            *counter = counter.wrapping_add(1);
            if is_free(port) {
                return Some(port);
            }
        }
        None
    }
}

impl fmt::Debug for EphemeralPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EphemeralPorts").field("range", &self.range).finish_non_exhaustive()
    }
}

fn mapped_octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

#[cfg(test)]
mod tests;
