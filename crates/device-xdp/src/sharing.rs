//! Which sockets share which queue: the map `sharers`, and the part of `xsks` that they have.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsRawFd, BorrowedFd};

use aya::maps::{Array, ArrayOfMaps, MapData, MapError, XskMap};
use clock::{Duration, Instant};

use crate::error::{absent_is_fine, map_error};
use crate::kernel_flows::{Flow, Table, is_absent, new_table};
use crate::{SteeringOptions, XdpError, syscalls};

/// Shared with `bpf/maps.bpf.h`: entries of `xsks` from here on are those of sharers, by their numbers.
const FIRST: u32 = 1024;
/// Numbers that there are.
const NUMBERS: u16 = 64;
/// The name of the map of tables.
const MAP: &str = "shared_flows";
const BPF_NOEXIST: u64 = 1;

/// How long a process that has come to share a queue is a newcomer: connections that began before are noted if they say something meanwhile.
const NEW_FOR: Duration = Duration::from_secs(300);
/// Connections that are noted on a queue where nothing is said of how many.
const FLOWS: u32 = 1 << 14;

/// `struct sharers`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Sharers {
    /// Bit n: number n.
    numbers: u64,
    /// Those of them that are no newcomers.
    settled: u64,
    secret: u64,
}

// SAFETY: three integers of 8 octets, so there are no holes and every bit pattern is valid.
unsafe impl aya::Pod for Sharers {}

impl Sharers {
    /// Nobody, so far.
    fn fresh(secret: u64) -> Sharers {
        Sharers { numbers: 0, settled: 0, secret }
    }

    /// Who finds nobody has all connections that there are.
    fn with(self, number: u16) -> Sharers {
        let settled = if self.numbers == 0 { 1 << number } else { self.settled };
        Sharers { numbers: self.numbers | 1 << number, settled, ..self }
    }

    /// When the last settled one leaves, the others are: what is theirs is noted.
    fn without(self, number: u16) -> Sharers {
        let (numbers, settled) = (self.numbers & !(1 << number), self.settled & !(1 << number));
        Sharers { numbers, settled: if settled == 0 { numbers } else { settled }, ..self }
    }

    fn newcomers(self) -> impl Iterator<Item = u16> {
        let newcomers = self.numbers & !self.settled;
        (0..NUMBERS).filter(move |number| newcomers >> number & 1 == 1)
    }
}

/// Who shares which queue, as the steering program knows it.
pub(crate) struct Sharing {
    map: Array<MapData, Sharers>,
    /// By queue, connections and the numbers of who has them.
    tables: ArrayOfMaps<MapData, Table>,
    made: BTreeMap<u16, Table>,
    /// Connections in each at most.
    room: u32,
    /// Queues that somebody shares.
    current: BTreeMap<u16, Sharers>,
    /// Newcomers by number, since they were first seen as such.
    newcomers: BTreeMap<u16, Instant>,
}

impl Sharing {
    /// What the maps hold: something only if another process left it.
    pub(crate) fn read(
        map: Array<MapData, Sharers>,
        tables: ArrayOfMaps<MapData, Table>,
        options: SteeringOptions,
    ) -> Result<Sharing, XdpError> {
        let mut current = BTreeMap::new();
        let mut made = BTreeMap::new();
        for (queue, entry) in (0..).zip(map.iter()) {
            let sharers = entry.map_err(map_error("sharers"))?;
            if sharers.numbers == 0 {
                continue;
            }
            current.insert(queue, sharers);
            match tables.get(&queue.into(), 0) {
                Ok(table) => drop(made.insert(queue, table)),
                Err(error) if is_absent(&error) => {}
                Err(error) => return Err(map_error(MAP)(error)),
            }
        }
        let room = if options.kernel_flows > 0 { options.kernel_flows } else { FLOWS };
        Ok(Sharing { map, tables, made, room, current, newcomers: BTreeMap::new() })
    }

    /// Delivers what is claimed for `number` on a queue to this socket. After an error it is as it was.
    pub(crate) fn add(
        &mut self,
        xsks: &mut XskMap<MapData>,
        queue: u16,
        number: u16,
        socket: BorrowedFd<'_>,
    ) -> Result<(), XdpError> {
        let sharers = self.current.get(&queue).copied();
        if sharers.is_some() && !self.made.contains_key(&queue) {
            let table = self.put_table(queue, self.room)?;
            self.made.insert(queue, table);
        }
        xsks.set(FIRST + u32::from(number), socket.as_raw_fd(), 0).map_err(map_error("xsks"))?;
        let sharers = sharers.unwrap_or_else(|| Sharers::fresh(RandomState::new().hash_one(queue)));
        self.put(queue, sharers.with(number)).inspect_err(|_| {
            let _ = xsks.unset(FIRST + u32::from(number)); // It was there, just now.
        })
    }

    /// Ends that.
    pub(crate) fn remove(
        &mut self,
        xsks: &mut XskMap<MapData>,
        queue: u16,
        number: u16,
    ) -> Result<(), XdpError> {
        if let Some(sharers) = self.current.get(&queue).copied() {
            self.put(queue, sharers.without(number))?;
        }
        self.newcomers.remove(&number);
        if !self.is_shared(queue) && self.made.remove(&queue).is_some() {
            self.put_table(queue, 1)?; // Its memory is free.
        }
        absent_is_fine(xsks.unset(FIRST + u32::from(number))).map_err(map_error("xsks"))
    }

    /// Gives a queue an empty table.
    fn put_table(&mut self, queue: u16, room: u32) -> Result<Table, XdpError> {
        let table = new_table(room)?;
        self.tables.set(queue.into(), &table, 0).map_err(map_error(MAP))?;
        Ok(table)
    }

    /// Those that have been newcomers for long enough are none any more.
    pub(crate) fn settle(&mut self, now: Instant) -> Result<(), XdpError> {
        for (queue, sharers) in self.current.clone() {
            let mut settled = sharers.settled;
            for number in sharers.newcomers() {
                let since = *self.newcomers.entry(number).or_insert(now);
                if now.since(since) >= NEW_FOR {
                    settled |= 1 << number;
                }
            }
            if settled != sharers.settled {
                self.put(queue, Sharers { settled, ..sharers })?;
            }
        }
        let current = &self.current;
        let is_new = |number| current.values().any(|it| it.newcomers().any(|newcomer| newcomer == number));
        self.newcomers.retain(|number, _| is_new(*number));
        Ok(())
    }

    /// Has the next packet of a connection choose anew who gets it.
    pub(crate) fn forget_flow(&mut self, flow: Flow) -> Result<(), XdpError> {
        self.made
            .values_mut()
            .try_for_each(|table| absent_is_fine(table.remove(&flow.key())))
            .map_err(map_error(MAP))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_finds_nobody_is_settled_and_who_comes_later_is_not() {
        let sharers = Sharers::fresh(7).with(0).with(63).with(62);
        assert_eq!((sharers.settled, sharers.secret), (1, 7));
        assert!(sharers.newcomers().eq([62, 63]));
        assert_eq!(sharers.without(63), Sharers::fresh(7).with(0).with(62));
    }

    #[test]
    fn when_the_settled_have_left_those_who_stay_are() {
        let stayed = Sharers::fresh(7).with(0).with(63).with(62).without(0);
        assert_eq!(stayed.newcomers().count(), 0);
        assert!(stayed.with(0).newcomers().eq([0]), "it comes anew");
        assert_eq!(stayed.without(63).without(62), Sharers::fresh(7));
    }
}
