//! Flows that belong to the kernel although they are claimed, and flows without an owner for a moment.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::SocketAddr;

use aya::maps::{ArrayOfMaps, HashMap, Map, MapData, MapError};
use steering::{ClaimTerms, Marks, QueueSet, Transport};

use crate::claim_key::octets_of;
use crate::error::{absent_is_fine, map_error};
use crate::{SteeringOptions, XdpError, syscalls};

/// `struct flow_key` of `bpf/maps.bpf.h`: 40 octets without holes, numbers in network byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct FlowKey {
    local: [u8; 16],
    remote: [u8; 16],
    local_port: [u8; 2],
    remote_port: [u8; 2],
    protocol: u8,
    zero: [u8; 3],
}

// SAFETY: only octets, so there are no holes and every bit pattern is valid.
unsafe impl aya::Pod for FlowKey {}

/// Packets between two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// UDP or TCP.
    pub transport: Transport,
    /// Our end.
    pub local: SocketAddr,
    /// The peer.
    pub remote: SocketAddr,
}

impl Flow {
    pub(crate) fn key(self) -> FlowKey {
        let Flow { transport, local, remote } = self;
        FlowKey {
            local: octets_of(local.ip()),
            remote: octets_of(remote.ip()),
            local_port: local.port().to_be_bytes(),
            remote_port: remote.port().to_be_bytes(),
            protocol: transport.number(),
            zero: [0; 3],
        }
    }
}

/// The name of the map of tables.
const MAP: &str = "kernel_flows";

/// `AWAITED` of `bpf/maps.bpf.h`.
const AWAITED: u32 = 1 << 31;

/// `BPF_NOEXIST`: only if there is no entry.
const NO_EXIST: u64 = 1;

/// Whether there is no table in a place.
pub(crate) fn is_absent(error: &MapError) -> bool {
    let errno = match error {
        MapError::SyscallError(error) => error.io_error.raw_os_error(),
        _ => None,
    };
    matches!(error, MapError::KeyNotFound) || errno == Some(libc::ENOENT)
}

/// Whether an entry was not made as there is one.
fn is_there(error: &MapError) -> bool {
    matches!(error, MapError::SyscallError(error) if error.io_error.raw_os_error() == Some(libc::EEXIST))
}

/// One table of flows. The steering program writes to it as well, and the kernel removes what was not looked up for longest when it is full.
pub(crate) type Table = HashMap<MapData, FlowKey, u32>;

/// The map `kernel_flows`, and the tables in it that there are.
pub(crate) struct KernelFlows {
    tables: ArrayOfMaps<MapData, Table>,
    made: BTreeMap<u16, Table>,
    /// Flows in each at most.
    room: u32,
}

impl KernelFlows {
    /// What another process may have left, whose tables go on as they are; new ones have this room.
    pub(crate) fn read(
        tables: ArrayOfMaps<MapData, Table>,
        options: SteeringOptions,
    ) -> Result<KernelFlows, XdpError> {
        let mut made = BTreeMap::new();
        for index in 0..Marks::TABLES {
            match tables.get(&index.into(), 0) {
                Ok(table) => drop(made.insert(index, table)),
                Err(error) if is_absent(&error) => {}
                Err(error) => return Err(map_error(MAP)(error)),
            }
        }
        Ok(KernelFlows { tables, made, room: options.kernel_flows })
    }

    /// Makes the table that flows under these terms are noted in, if there is none.
    pub(crate) fn prepare(&mut self, terms: &ClaimTerms) -> Result<(), XdpError> {
        let notes = terms.kernel_new || terms.kernel_some || terms.deaf() != QueueSet::NONE;
        if notes && self.room > 0 { self.table(terms.marks.table).map(drop) } else { Ok(()) }
    }

    fn table(&mut self, index: u16) -> Result<&mut Table, XdpError> {
        match self.made.entry(index) {
            Entry::Occupied(made) => Ok(made.into_mut()),
            Entry::Vacant(vacant) => {
                let table = new_table(self.room)?;
                self.tables.set(index.into(), &table, 0).map_err(map_error(MAP))?;
                Ok(vacant.insert(table))
            }
        }
    }

    pub(crate) fn add(&mut self, flow: Flow, marks: Marks) -> Result<(), XdpError> {
        self.table(marks.table)?.insert(flow.key(), marks.epoch, 0).map_err(map_error(MAP))
    }

    /// The flow will belong to a socket that does not exist yet. False if it is the kernel's; then it stays the kernel's.
    pub(crate) fn add_awaited(&mut self, flow: Flow, marks: Marks) -> Result<bool, XdpError> {
        let (key, note) = (flow.key(), marks.epoch | AWAITED);
        let table = self.table(marks.table)?;
        match table.insert(key, note, NO_EXIST) {
            Err(error) if is_there(&error) => {}
            inserted => return inserted.map(|()| true).map_err(map_error(MAP)),
        }
        if table.get(&key, 0).is_ok_and(|note| note == marks.epoch) {
            return Ok(false);
        }
        table.insert(key, note, 0).map(|()| true).map_err(map_error(MAP))
    }

    pub(crate) fn remove(&mut self, flow: Flow, table: u16) -> Result<(), XdpError> {
        let Some(table) = self.made.get_mut(&table) else { return Ok(()) };
        absent_is_fine(table.remove(&flow.key())).map_err(map_error(MAP))
    }

    pub(crate) fn contains(&self, flow: Flow, marks: Marks) -> Result<bool, XdpError> {
        let Some(table) = self.made.get(&marks.table) else { return Ok(false) };
        match table.get(&flow.key(), 0) {
            Ok(note) => Ok(note == marks.epoch),
            Err(MapError::KeyNotFound) => Ok(false),
            Err(error) => Err(map_error(MAP)(error)),
        }
    }
}

/// An empty table.
pub(crate) fn new_table(room: u32) -> Result<Table, XdpError> {
    let (key, value) = (size_of::<FlowKey>() as u32, size_of::<u32>() as u32);
    let table =
        syscalls::new_lru_hash(key, value, room.max(1)).map_err(XdpError::system("BPF_MAP_CREATE"))?;
    let table = MapData::from_fd(table).map_err(map_error(MAP))?;
    Table::try_from(Map::LruHashMap(table)).map_err(map_error(MAP))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_the_octets_that_the_program_makes() {
        let [local, remote] = ["192.0.2.1:258", "198.51.100.7:772"].map(|end| end.parse().unwrap());
        let key = Flow { transport: Transport::Tcp, local, remote }.key();
        // SAFETY: `FlowKey` is `repr(C)`, made of octets only, 40 of them.
        let octets: [u8; 40] = unsafe { std::mem::transmute(key) };
        let address = |last: [u8; 4]| [&[0; 10][..], &[0xff, 0xff], &last].concat();
        let expected =
            [&address([192, 0, 2, 1])[..], &address([198, 51, 100, 7]), &[1, 2, 3, 4, 6, 0, 0, 0]].concat();
        assert_eq!(octets[..], expected);
    }
}
