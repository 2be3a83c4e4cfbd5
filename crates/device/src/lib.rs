//! The [`Device`] trait: where frames come from and go to.
//!
//! A device owns the pool its frames come from. The engine takes received frames in bursts, writes replies into the
//! same frames, and gives every frame back, either to [`Device::tx_burst`] or to [`Device::release`]. The trait is
//! chosen at start and called once per burst, so a virtual call costs nothing that can be measured.
#![forbid(unsafe_code)]

mod data_path;
pub mod fault;
mod foreign;
pub mod memory;
pub mod pcap;
mod super_segment;

use std::os::fd::BorrowedFd;

use arrayvec::ArrayVec;
use clock::Instant;
use frame::Frame;

pub use data_path::{DataPath, Opened, PathError};
pub use foreign::ForeignFrames;
pub use super_segment::{Segmenter, SuperSegment, Taken};

/// Most frames that one call moves.
pub const BURST: usize = 64;

/// Frames on their way through one turn of the engine.
pub type Burst = ArrayVec<Frame, BURST>;

/// A source and sink of Ethernet frames. The crate's page says who owns a frame when.
pub trait Device: Send {
    /// What the device can do.
    fn capabilities(&self) -> Capabilities;

    /// Appends received frames to `burst` until it is full or none are waiting. Returns how many came: more than were appended where
    /// others have a part in the device, and got theirs by this call. With zero, nothing was to do.
    fn rx_burst(&mut self, burst: &mut Burst, now: Instant) -> usize;

    /// Takes frames from the front of `burst` for transmission, in order, until it is empty or there is no room; returns
    /// how many were taken. What stays in `burst` is still the caller's: to be tried again, or released and counted.
    ///
    /// A frame of another device's pool is sent as well, itself or as a copy: see [`Device::take_foreign`].
    fn tx_burst(&mut self, burst: &mut Burst, now: Instant) -> usize;

    /// Takes a packet that is to leave as several, behind all frames taken before. Only called where [`Capabilities::tso_max`] is as large
    /// as it.
    fn tx_super_segment(&mut self, _packet: &mut SuperSegment<'_>, _now: Instant) -> Taken {
        Taken::Refused
    }

    /// Takes an empty frame for a packet that answers none; `None` when all are in use.
    fn alloc(&mut self) -> Option<Frame>;

    /// Takes back a frame that will not be sent.
    fn release(&mut self, frame: Frame);

    /// Takes back a frame of another device's pool that was given to [`Device::tx_burst`] and is free again, for its owner
    /// to release. A device that is given such frames accepts no more of them while [`BURST`] wait here.
    fn take_foreign(&mut self) -> Option<Frame> {
        None
    }

    /// The link takes IP packets of up to `mtu` octets from now on. Frames stay as long as they are: a device takes what it
    /// can of it, and [`Device::capabilities`] tells how much that is.
    fn set_mtu(&mut self, _mtu: u16) {}

    /// Adds the descriptors that become readable when frames arrive. None: the device must be polled.
    fn wait_fds<'a>(&'a self, fds: &mut Vec<BorrowedFd<'a>>);

    /// Called before the engine sleeps on [`Device::wait_fds`]: makes sure that the next frame wakes it.
    ///
    /// Returns false if frames are waiting already, so that sleeping would be wrong.
    fn prepare_wait(&mut self) -> bool;

    /// When the device wants to be polled although no descriptor is readable, such as for a frame held back on purpose.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Whether frames that were taken to be sent have not left, or memory to receive into was not provided, as of [`Device::prepare_wait`], and
    /// nothing that happens to the descriptors tells when that can be done: it is tried again by the next call.
    fn holds_unsent(&self) -> bool {
        false
    }

    /// What the device itself counted since it was opened.
    fn counters(&self) -> DeviceCounters;
}

impl<D: Device + ?Sized> Device for Box<D> {
    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }

    fn rx_burst(&mut self, burst: &mut Burst, now: Instant) -> usize {
        (**self).rx_burst(burst, now)
    }

    fn tx_burst(&mut self, burst: &mut Burst, now: Instant) -> usize {
        (**self).tx_burst(burst, now)
    }

    fn tx_super_segment(&mut self, packet: &mut SuperSegment<'_>, now: Instant) -> Taken {
        (**self).tx_super_segment(packet, now)
    }

    fn alloc(&mut self) -> Option<Frame> {
        (**self).alloc()
    }

    fn release(&mut self, frame: Frame) {
        (**self).release(frame);
    }

    fn take_foreign(&mut self) -> Option<Frame> {
        (**self).take_foreign()
    }

    fn set_mtu(&mut self, mtu: u16) {
        (**self).set_mtu(mtu);
    }

    fn wait_fds<'a>(&'a self, fds: &mut Vec<BorrowedFd<'a>>) {
        (**self).wait_fds(fds);
    }

    fn prepare_wait(&mut self) -> bool {
        (**self).prepare_wait()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        (**self).poll_timeout()
    }

    fn holds_unsent(&self) -> bool {
        (**self).holds_unsent()
    }

    fn counters(&self) -> DeviceCounters {
        (**self).counters()
    }
}

/// What a device can do. All of it is fixed, but for the MTU, and for `tso_max`, which is zero once the device refused a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// A name for people: `veth0 queues 0-1, AF_XDP copy mode, native`, `kernel sockets`.
    pub description: String,
    /// Received transport checksums were verified below; they are not looked at again.
    pub rx_checksum_verified: bool,
    /// Transmitted checksums are filled in below; what the fields hold does not matter.
    pub tx_checksum_offload: bool,
    /// Peers may leave a transport checksum unfinished, holding the pseudo-header sum (veth, virtio): accepted as valid.
    pub partial_checksums: bool,
    /// Largest IP packet that may be sent, in octets. For kernel sockets, which fragment: 65535.
    pub mtu: u16,
    /// Largest IP packet that [`Device::tx_super_segment`] takes; zero if none.
    pub tso_max: u16,
    /// Number of receive queues behind this device.
    pub queues: u16,
}

/// Counts of a device. All start at zero when the device is opened. Two of them say where frames are now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounters {
    /// Frames delivered by `rx_burst`.
    pub rx_frames: u64,
    /// Frames accepted by `tx_burst`.
    pub tx_frames: u64,
    /// Frames lost below because no free frame or no ring entry was there for them.
    pub rx_dropped_full: u64,
    /// Frames refused as malformed by the device itself (an invalid descriptor, a datagram larger than a frame).
    pub rx_dropped_invalid: u64,
    /// Frames accepted for transmission that the system then refused, such as no route or no buffer space.
    pub tx_dropped: u64,
    /// Frames that are with the kernel now: to be filled, filled and not fetched, or being sent. Zero where no memory is shared with it.
    pub frames_lent: u64,
    /// Frames that the device's user holds now. An idle user holds none; more would be leaked frames.
    pub frames_held: u64,
}

impl DeviceCounters {
    /// Adds what a device has counted that is no more. It has no frames anywhere.
    pub fn add_gone(&mut self, gone: &DeviceCounters) {
        self.rx_frames += gone.rx_frames;
        self.tx_frames += gone.tx_frames;
        self.rx_dropped_full += gone.rx_dropped_full;
        self.rx_dropped_invalid += gone.rx_dropped_invalid;
        self.tx_dropped += gone.tx_dropped;
    }

    /// Name and value of each count, in a stable order.
    pub fn named(&self) -> [(&'static str, u64); 7] {
        [
            ("rx_frames", self.rx_frames),
            ("tx_frames", self.tx_frames),
            ("rx_dropped_full", self.rx_dropped_full),
            ("rx_dropped_invalid", self.rx_dropped_invalid),
            ("tx_dropped", self.tx_dropped),
            ("frames_lent", self.frames_lent),
            ("frames_held", self.frames_held),
        ]
    }
}
