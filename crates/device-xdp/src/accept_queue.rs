//! The program that has the kernel take a connection into the accept queue of one of its listeners: `bpf/accept_queue.bpf.c`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use aya::maps::{Array, Map, MapData, SockMap};
use aya::programs::{ProgramError, SchedClassifier};
use aya::{Btf, Ebpf, include_bytes_aligned};
use aya_obj::btf::BtfKind;

use crate::error::map_error;
use crate::loading::{load, load_error, open_other};
use crate::netdev::Interface;
use crate::{XdpError, syscalls};

/// Compiled from `bpf/accept_queue.bpf.c` by the build script.
static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/accept_queue.bpf.o"));

const PROGRAM: &str = "sidestep_accept";
/// The kernel's function that the program calls (Linux 6.8).
const FUNCTION: &str = "bpf_sk_assign_tcp_reqsk";
/// The call in the object, whose number stands for that function's; and what makes it a call of the kernel's functions instead of helpers:
/// BPF_PSEUDO_KFUNC_CALL as source register (linux/bpf.h).
const CALL: [u8; 4] = [0x85, 0, 0, 0];
const PLACEHOLDER: i32 = 9999;
const CALL_OF_FUNCTION: [u8; 4] = [0x85, 0x20, 0, 0];
/// Shared with the program: the acknowledgement has not come yet.
const WAITING: i32 = 1;

/// What both ends of a connection have agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Agreements {
    /// The peer's clock as it told it last, if they have clocks (timestamps, RFC 7323).
    pub peer_clock: u32,
    /// What our next segment would say of ours, in milliseconds.
    pub our_clock: u32,
    /// The largest segment that the peer accepts.
    pub peer_mss: u16,
    /// The shift of windows that we announce.
    pub our_scale: u8,
    /// The shift of windows that the peer announces.
    pub peer_scale: u8,
    /// 1 or 0, as those that follow: ECN.
    pub has_ecn: u8,
    /// Window scaling.
    pub has_scales: u8,
    /// SACK.
    pub has_sack: u8,
    /// Timestamps.
    pub has_clocks: u8,
    /// Our clock counts microseconds.
    pub has_microseconds: u8,
    /// Zero.
    pub reserved: [u8; 3],
}

/// `struct placement`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
struct Placement {
    mark: u32,
    outcome: i32,
    agreements: Agreements,
}

// SAFETY: integers without holes: 8 octets, and 20 of `Agreements`, which has none either. Every bit pattern is valid.
unsafe impl aya::Pod for Placement {}

/// What became of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// It has not come: it is dropped if it comes yet.
    NotSeen,
    /// The listener has the connection, unless its accept queue is full.
    Done,
    /// The kernel's answer, an errno.
    Refused(i32),
}

/// The program, on the loopback interface of the network namespace that the thread was in when it was attached, for as long as this value lives.
pub struct AcceptQueueProgram {
    placements: OwnedFd,
    listeners: OwnedFd,
    /// Those of all slots have this one's first bits.
    mark: u32,
    _object: Ebpf,
    _link: OwnedFd,
}

/// A slot for one connection at a time that is on its way. It has nothing in common with other slots: a listener that is locked for long holds up its
/// own one.
pub struct AcceptQueueSlot {
    placements: Array<MapData, Placement>,
    listeners: SockMap<MapData>,
    number: u32,
    mark: u32,
}

impl AcceptQueueProgram {
    /// Slots that there are. Shared with the program.
    pub const SLOTS: u32 = 64;

    /// Loads and attaches it. `mark` is to be one that nobody else has packets with, nor with its last six bits changed. Fails before Linux 6.8.
    pub fn attach(mark: u32) -> Result<AcceptQueueProgram, XdpError> {
        let btf = Btf::from_sys_fs().map_err(|error| load_error(&error))?;
        let function =
            btf.id_by_type_name_kind(FUNCTION, BtfKind::Func).map_err(|error| load_error(&error))?;
        let mut object = open_other(&with_function(OBJECT, function as i32))?;
        let program = object.program_mut(PROGRAM).expect("the object holds the program");
        let program: &mut SchedClassifier =
            program.try_into().map_err(|error: ProgramError| load_error(&error))?;
        load(|| program.load())?;
        let fd = program.fd().map_err(|error| load_error(&error))?.as_fd();
        let link = syscalls::attach_to_ingress(fd, Interface::open("lo")?.index);
        let link = link.map_err(XdpError::system("attaching the program of accept queues to lo"))?;
        let (placements, listeners) = (map_fd(&object, "placements")?, map_fd(&object, "listeners")?);
        Ok(AcceptQueueProgram { placements, listeners, mark, _object: object, _link: link })
    }

    /// The slot with this number, below [`SLOTS`](AcceptQueueProgram::SLOTS). Whoever has it must be the only one.
    pub fn slot(&self, number: u32) -> Result<AcceptQueueSlot, XdpError> {
        let copy = |map: &OwnedFd, name: &'static str| {
            let copy = map.try_clone().map_err(XdpError::system("copying a descriptor of a map"))?;
            MapData::from_fd(copy).map_err(map_error(name))
        };
        let placements = Map::Array(copy(&self.placements, "placements")?);
        let listeners = Map::SockMap(copy(&self.listeners, "listeners")?);
        Ok(AcceptQueueSlot {
            placements: placements.try_into().map_err(map_error("placements"))?,
            listeners: listeners.try_into().map_err(map_error("listeners"))?,
            number,
            mark: self.mark / Self::SLOTS * Self::SLOTS + number,
        })
    }
}

impl AcceptQueueSlot {
    /// The mark of the acknowledgement.
    pub fn mark(&self) -> u32 {
        self.mark
    }

    /// The next acknowledgement with our mark makes a connection that waits at this listener of TCP. It waits while another thread has the listener's lock.
    pub fn expect(&mut self, listener: BorrowedFd<'_>, agreements: Agreements) -> Result<(), XdpError> {
        self.listeners.set(self.number, &listener, 0).map_err(map_error("listeners"))?;
        self.set(WAITING, agreements)
    }

    /// What has become of it by now.
    pub fn outcome(&self) -> Result<Placed, XdpError> {
        let placed = self.placements.get(&self.number, 0).map_err(map_error("placements"))?;
        Ok(match placed.outcome {
            WAITING => Placed::NotSeen,
            0 => Placed::Done,
            refused => Placed::Refused(-refused),
        })
    }

    /// None is expected any more.
    pub fn expect_none(&mut self) -> Result<(), XdpError> {
        let _ = self.listeners.clear_index(&self.number); // It is not there if the listener was closed meanwhile.
        self.set(0, Agreements::default())
    }

    fn set(&mut self, outcome: i32, agreements: Agreements) -> Result<(), XdpError> {
        let placement = Placement { mark: self.mark, outcome, agreements };
        self.placements.set(self.number, placement, 0).map_err(map_error("placements"))
    }
}

fn map_fd(object: &Ebpf, name: &'static str) -> Result<OwnedFd, XdpError> {
    let map = object.map(name).expect("the object holds the map");
    let (Map::Array(data) | Map::SockMap(data)) = map else { panic!("{name} is of another kind") };
    data.fd().as_fd().try_clone_to_owned().map_err(XdpError::system("copying a descriptor of a map"))
}

/// The object with the number of the kernel's function.
fn with_function(object: &[u8], function: i32) -> Vec<u8> {
    let call = [CALL, PLACEHOLDER.to_le_bytes()].concat();
    let mut object = object.to_vec();
    let at = object.windows(call.len()).position(|it| it == call).expect("the program has the call");
    object[at..at + 4].copy_from_slice(&CALL_OF_FUNCTION);
    object[at + 4..at + 8].copy_from_slice(&function.to_le_bytes());
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_has_one_call_of_the_kernels_function() {
        let object = with_function(OBJECT, 0x0102_0304);
        let call = [CALL_OF_FUNCTION, [4, 3, 2, 1]].concat();
        assert_eq!(object.windows(8).filter(|it| *it == call).count(), 1);
        let placeholder = [CALL, PLACEHOLDER.to_le_bytes()].concat();
        assert!(object.windows(8).all(|it| it != placeholder));
    }

    #[test]
    fn the_layout_is_that_of_the_kernel() {
        assert_eq!((size_of::<Agreements>(), size_of::<Placement>()), (20, 28));
    }
}
