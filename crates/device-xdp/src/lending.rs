//! Devices for an unprivileged process.
//!
//! ```text
//!   broker (privileged)                                       program
//!   XdpDevice::lend: memory, sockets --layout, descriptors--> XdpDevice::adopt: maps both, fills the fill rings
//!   keeps nothing of them                                     when it ends, the kernel closes them
//! ```
//!
//! The program maps memory that another process describes. Wherever a wrong description would be dangerous, the kernel is asked instead
//! ([`LentLayout::check`], `frame::Region::from_memfd`, `rings_have`); everything else is at worst wrong.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use device::Device;
use frame::Region;
use serde::{Deserialize, Serialize};

use crate::device::XdpQueues;
use crate::lane::Lane;
use crate::loading::has_chains;
use crate::options::{FRAMES_PER_QUEUE, Resolved, mtu_max};
use crate::shared::{Area, FILL_FACTOR, SharedUmem};
use crate::sockets::{self, Sockets};
use crate::xsk::{self, RingEntries};
use crate::{CopyMode, SteeringProgram, XdpDevice, XdpError, XdpMode, XdpOptions};

/// Smallest rings of a device that is lent: sizes below cannot be told from each other, as the memory of all is one page.
const LENT_RING_MIN: u32 = 512;
/// Most queues of one interface, as in `bpf/maps.bpf.h`.
const QUEUES_MAX: usize = 1024;
/// Smallest MTU of a link that carries IP: RFC 791, 3.2.
const MTU_MIN: u16 = 68;
/// Octets of an interface's name at most, see netdevice(7).
const NAME_MAX: usize = 15;

/// A device that another process can adopt. The descriptors are the device: keep no copies of them.
#[derive(Debug)]
pub struct Lent {
    /// What the other process must know.
    pub layout: LentLayout,
    /// The packets' memory, a memfd. It can be adopted once.
    pub memory: OwnedFd,
    /// One socket for each queue, in the order of the layout's queues, and that of the bulk lane if the layout has one.
    pub sockets: Vec<OwnedFd>,
}

/// Memory and sockets that wait for a queue which is busy.
pub struct Spare {
    queues: Vec<u16>,
    sockets: Sockets,
    /// How many sockets are bound already.
    bound: usize,
}

impl std::fmt::Debug for Spare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spare")
            .field("queues", &self.queues)
            .field("bound", &self.bound)
            .finish_non_exhaustive()
    }
}

/// What descriptors do not tell of a device that was lent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LentLayout {
    /// Name of the interface.
    pub interface: String,
    /// Its queues that the sockets are bound to.
    pub queues: Vec<u16>,
    /// Octets of one frame, 2048 or 4096.
    pub frame_size: u16,
    /// Frames in the memory, of all queues together.
    pub frames: u32,
    /// Entries of each ring, a power of two from 512; a fill ring that several processes have has twice as many.
    pub ring_entries: u32,
    /// Octets of the longest IP packet that the interface takes, as far as it fits the frames.
    pub mtu: u16,
    /// How packets come in.
    pub mode: XdpMode,
    /// Peers may leave transport checksums unfinished.
    pub partial_checksums: bool,
    /// The queues' NAPI is left to the program's system calls.
    pub busy_poll: bool,
    /// There is a socket for packets that the kernel cuts.
    pub bulk_lane: bool,
    /// The place of a process that shares the queue with others: see [`crate::SharedQueue`].
    #[serde(default)]
    pub place: Option<u16>,
}

impl LentLayout {
    /// Of sockets that are not bound yet: the copy mode is a guess.
    pub(crate) fn new(program: &SteeringProgram, queues: &[u16], options: &Resolved) -> LentLayout {
        let interface = program.netdev();
        LentLayout {
            interface: interface.name.clone(),
            queues: queues.to_vec(),
            frame_size: options.frame_size,
            frames: queues.len() as u32 * options.frames_per_queue, // At most 2^10 times 2^20.
            ring_entries: options.ring_entries,
            mtu: options.mtu,
            mode: XdpMode { attach: program.mode(), copy: CopyMode::Copy },
            partial_checksums: interface.is_virtual() || has_chains(program.mode()),
            busy_poll: options.busy_poll.is_some(),
            bulk_lane: false,
            place: None,
        }
    }

    /// Descriptors that go with the packets' memory.
    pub fn sockets(&self) -> usize {
        self.queues.len() + usize::from(self.bulk_lane) + usize::from(self.place.is_some())
    }

    /// Whether the layout is one that [`XdpDevice::lend`] makes for that many sockets.
    fn check(&self, sockets: usize) -> Result<(), XdpError> {
        let queues = self.queues.len();
        let frames_per_queue = self.frames as usize / queues.max(1);
        let faults = [
            (!(1..=NAME_MAX).contains(&self.interface.len()), "the interface has no such name"),
            (
                !(1..=QUEUES_MAX).contains(&queues) || self.sockets() != sockets,
                "there is not one socket for each queue",
            ),
            (![2048, 4096].contains(&self.frame_size), "frames are not of such a size"),
            (!FRAMES_PER_QUEUE.contains(&(frames_per_queue as u32)), "there are too few or too many frames"),
            (!rings_can_be_lent(self.ring_entries), "rings are not of such a size"),
            (self.place.is_some() && queues != 1, "it shares several queues"),
            (
                !(MTU_MIN..=mtu_max(self.frame_size)).contains(&self.mtu),
                "packets of that MTU do not fit a frame",
            ),
        ];
        match faults.into_iter().find(|&(wrong, _)| wrong) {
            Some((_, fault)) => Err(XdpError::Lent(fault)),
            None => Ok(()),
        }
    }

    pub(crate) fn rings(&self) -> RingEntries {
        let fill = if self.place.is_some() { FILL_FACTOR * self.ring_entries } else { self.ring_entries };
        RingEntries { fill, others: self.ring_entries }
    }

    /// Octets of the packets' memory.
    fn octets(&self) -> Result<usize, XdpError> {
        let octets = (self.frames as usize).checked_mul(usize::from(self.frame_size));
        octets.ok_or(XdpError::Lent("its memory is larger than any"))
    }
}

/// Refuses rings that cannot be lent.
pub(crate) fn check_ring_entries(options: &XdpOptions) -> Result<(), XdpError> {
    if rings_can_be_lent(options.ring_entries) {
        return Ok(());
    }
    let (option, value) = ("ring_entries", u64::from(options.ring_entries));
    Err(XdpError::Option { option, value, allowed: "a power of two from 512 to 32768" })
}

fn rings_can_be_lent(entries: u32) -> bool {
    entries.is_power_of_two() && (LENT_RING_MIN..=32768).contains(&entries)
}

impl XdpDevice {
    /// Makes a device on `queues` of the interface that `program` sits on, for another process, which need not have any
    /// privileges: see [`XdpDevice::adopt`]. The program delivers to the sockets from now on; until they are adopted, what
    /// arrives at them is lost: claim those queues afterwards. When all copies of a socket are closed, the kernel gets the
    /// queue's packets.
    ///
    /// Linux 6.4 or later: earlier ones map no rings of a socket that is bound.
    ///
    /// # Errors
    /// As of [`XdpDevice::open`]; rings of fewer than 512 entries cannot be lent. `QueueBusy` goes on for some tens of milliseconds
    /// after a queue's last socket was closed: the kernel frees it when it gets to it.
    ///
    /// # Panics
    /// If `queues` is empty.
    pub fn lend(
        program: &mut SteeringProgram,
        queues: &[u16],
        options: &XdpOptions,
    ) -> Result<Lent, XdpError> {
        XdpDevice::lend_with(program, queues, options, &mut None)
    }

    /// As [`XdpDevice::lend`]. What was made for a queue that is busy still is put into `spare`, and taken from there when these
    /// queues are asked for again: what a failed attempt would leave behind, the kernel frees no sooner than the queue.
    pub fn lend_with(
        program: &mut SteeringProgram,
        queues: &[u16],
        options: &XdpOptions,
        spare: &mut Option<Spare>,
    ) -> Result<Lent, XdpError> {
        check_ring_entries(options)?;
        let mut made = match spare.take().filter(|spare| spare.queues == queues) {
            Some(spare) => spare,
            None => {
                let sockets = Sockets::create(program, queues.len(), options)?;
                Spare { queues: queues.to_vec(), sockets, bound: 0 }
            }
        };
        let borrowed: Vec<_> = made.sockets.fds.iter().map(AsFd::as_fd).collect();
        let bound = sockets::bind(program, queues, &borrowed, &made.sockets.options, &mut made.bound);
        if let Err(error) = bound {
            *spare = matches!(error, XdpError::QueueBusy { .. }).then_some(made);
            return Err(error);
        }
        let Sockets { region, fds, options } = made.sockets;
        let memory = region.into_memfd().expect("sockets share a memfd");
        let borrowed: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        let mut layout = LentLayout::new(program, queues, &options);
        layout.mode.copy = xsk::copy_mode(borrowed[0])?;
        let lane = sockets::bulk_lane(program, &options, layout.mode.copy);
        layout.bulk_lane = lane.is_some();
        let sockets = fds.into_iter().chain(lane.map(Lane::into_socket)).collect();
        Ok(Lent { layout, memory, sockets })
    }

    /// Takes over a device that another process made by [`XdpDevice::lend`]. Needs no privileges, and closes `memory`. The
    /// sockets keep their numbers.
    ///
    /// Children of fork(2) inherit the descriptors and not the memory: a child closes the former, and must neither use the device
    /// nor drop it, as something else may have got the addresses of the latter by then.
    ///
    /// # Errors
    /// `Lent` if layout, memory and sockets do not fit each other, or the memory has been adopted before; `Memory` or `System` if
    /// the kernel maps it not.
    pub fn adopt(
        layout: LentLayout,
        memory: OwnedFd,
        mut sockets: Vec<OwnedFd>,
    ) -> Result<XdpDevice, XdpError> {
        if layout.place.is_some() {
            return Err(XdpError::Lent("it is shared"));
        }
        layout.check(sockets.len())?;
        let lane = take_lane(&layout, &mut sockets);
        check_sockets(&layout, &sockets)?;
        let region = adopt_memory(memory, layout.octets()?)?;
        XdpDevice::adopted(&layout, region, sockets, lane)
    }
}

/// Takes over a device that another process made, by [`XdpDevice::lend`] or [`crate::SharedQueue::lend`]. See [`XdpDevice::adopt`].
pub fn adopt(
    layout: LentLayout,
    memory: OwnedFd,
    mut sockets: Vec<OwnedFd>,
) -> Result<Box<dyn Device>, XdpError> {
    let Some(place) = layout.place else {
        return Ok(Box::new(XdpDevice::adopt(layout, memory, sockets)?));
    };
    layout.check(sockets.len())?;
    let area = sockets.pop().ok_or(XdpError::Lent("it has no shared area"))?;
    let lane = take_lane(&layout, &mut sockets);
    check_sockets(&layout, &sockets)?;
    let area = Area::map(area, layout.frames, place).map_err(memory_error(layout.octets()?))?;
    // SAFETY: what is made of the region is a `SharedUmem`, as all processes do that get this memory; the area says who has which slot.
    let region = unsafe { Region::shared(&File::from(memory), layout.octets()?) };
    let region = region.map_err(memory_error(layout.octets()?))?;
    // SAFETY: the region was mapped just now, and `SharedQueue::lend` sends it with its area and its socket.
    let umem = unsafe { SharedUmem::new(region, layout.frame_size, area) };
    Ok(Box::new(XdpQueues::adopted(&layout, umem, sockets, lane)?))
}

fn take_lane(layout: &LentLayout, sockets: &mut Vec<OwnedFd>) -> Option<Lane> {
    if layout.bulk_lane { sockets.pop().map(Lane::adopt) } else { None }
}

/// Whether they are sockets of such a device.
fn check_sockets(layout: &LentLayout, sockets: &[OwnedFd]) -> Result<(), XdpError> {
    for socket in sockets {
        match xsk::rings_have(socket.as_fd(), layout.rings()) {
            Ok(true) => (),
            Ok(false) => return Err(XdpError::Lent("its rings are of another size")),
            Err(_) => return Err(XdpError::Lent("it has a descriptor that is no AF_XDP socket")),
        }
        if xsk::copy_mode(socket.as_fd())? != layout.mode.copy {
            return Err(XdpError::Lent("packets come in another way"));
        }
    }
    Ok(())
}

fn adopt_memory(memory: OwnedFd, octets: usize) -> Result<Region, XdpError> {
    Region::from_memfd(memory, octets).map_err(memory_error(octets))
}

fn memory_error(octets: usize) -> impl Fn(io::Error) -> XdpError {
    move |source| match source.kind() {
        io::ErrorKind::InvalidInput => XdpError::Lent("its memory is of another length, or can be cut"),
        io::ErrorKind::PermissionDenied => XdpError::Lent("its memory has been adopted before"),
        _ => XdpError::Memory { octets, source },
    }
}
