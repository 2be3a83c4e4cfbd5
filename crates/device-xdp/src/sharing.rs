//! Which sockets share which queue: the map `sharers`, and the part of `xsks` that they have.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsRawFd, BorrowedFd};

use aya::maps::{Array, HashMap, MapData, MapError, XskMap};

use crate::XdpError;
use crate::error::{absent_is_fine, map_error};
use crate::kernel_flows::{Flow, FlowKey};
use crate::syscalls;

/// Shared with `bpf/maps.bpf.h`: entries of `xsks` from here on are those of sharers, by their numbers.
const FIRST: u32 = 1024;
/// Numbers that there are.
const NUMBERS: u16 = 64;
const BPF_NOEXIST: u64 = 1;

/// `struct sharers`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Sharers {
    /// Bit n: number n.
    numbers: u64,
    secret: u64,
}

// SAFETY: two integers of 8 octets, so there are no holes and every bit pattern is valid.
unsafe impl aya::Pod for Sharers {}

/// Who shares which queue, as the steering program knows it.
pub(crate) struct Sharing {
    map: Array<MapData, Sharers>,
    /// Connections, and the numbers of who has them.
    flows: HashMap<MapData, FlowKey, u32>,
    /// Queues that somebody shares.
    current: BTreeMap<u16, Sharers>,
}

impl Sharing {
    /// What the maps hold: something only if another process left it.
    pub(crate) fn read(
        map: Array<MapData, Sharers>,
        flows: HashMap<MapData, FlowKey, u32>,
    ) -> Result<Sharing, XdpError> {
        let mut current = BTreeMap::new();
        for (queue, entry) in (0..).zip(map.iter()) {
            let sharers = entry.map_err(map_error("sharers"))?;
            if sharers.numbers != 0 {
                current.insert(queue, sharers);
            }
        }
        Ok(Sharing { map, flows, current })
    }

    /// Delivers what is claimed for `number` on a queue to this socket.
    pub(crate) fn add(
        &mut self,
        xsks: &mut XskMap<MapData>,
        queue: u16,
        number: u16,
        socket: BorrowedFd<'_>,
    ) -> Result<(), XdpError> {
        xsks.set(FIRST + u32::from(number), socket.as_raw_fd(), 0).map_err(map_error("xsks"))?;
        let fresh = Sharers { numbers: 0, secret: RandomState::new().hash_one(queue) };
        let Sharers { numbers, secret } = self.current.get(&queue).copied().unwrap_or(fresh);
        self.put(queue, Sharers { numbers: numbers | 1 << number, secret })
    }

    /// Ends that.
    pub(crate) fn remove(
        &mut self,
        xsks: &mut XskMap<MapData>,
        queue: u16,
        number: u16,
    ) -> Result<(), XdpError> {
        if let Some(Sharers { numbers, secret }) = self.current.get(&queue).copied() {
            self.put(queue, Sharers { numbers: numbers & !(1 << number), secret })?;
        }
        absent_is_fine(xsks.unset(FIRST + u32::from(number))).map_err(map_error("xsks"))
    }

    /// Has the next packet of a connection choose anew who gets it.
    pub(crate) fn forget_flow(&mut self, flow: Flow) -> Result<(), XdpError> {
        absent_is_fine(self.flows.remove(&flow.key())).map_err(map_error("shared_flows"))
    }

    /// The queue that `number` shares.
    pub(crate) fn queue_of(&self, number: u16) -> Option<u16> {
        let has = |sharers: &Sharers| number < NUMBERS && sharers.numbers >> number & 1 == 1;
        self.current.iter().find(|(_, sharers)| has(sharers)).map(|(queue, _)| *queue)
    }

    /// Whether anybody shares a queue.
    pub(crate) fn is_shared(&self, queue: u16) -> bool {
        self.current.contains_key(&queue)
    }

    fn put(&mut self, queue: u16, sharers: Sharers) -> Result<(), XdpError> {
        self.map.set(u32::from(queue), sharers, 0).map_err(map_error("sharers"))?;
        match sharers.numbers {
            0 => self.current.remove(&queue),
            _ => self.current.insert(queue, sharers),
        };
        Ok(())
    }
}

/// Whether the socket of this number is closed. The kernel tells nobody what is in the map, but takes another entry only where there is none.
pub(crate) fn is_closed(xsks: &mut XskMap<MapData>, number: u16) -> Result<bool, XdpError> {
    let probe = syscalls::xdp_socket().map_err(XdpError::system("opening an AF_XDP socket"))?;
    let key = FIRST + u32::from(number);
    match xsks.set(key, probe.as_raw_fd(), BPF_NOEXIST) {
        Ok(()) => absent_is_fine(xsks.unset(key)).map(|()| true).map_err(map_error("xsks")),
        Err(MapError::SyscallError(error)) if error.io_error.raw_os_error() == Some(libc::EEXIST) => {
            Ok(false)
        }
        Err(error) => Err(map_error("xsks")(error)),
    }
}
