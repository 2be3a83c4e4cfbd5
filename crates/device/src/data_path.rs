//! The [`DataPath`] trait: by which way the packets of an interface come to us.

use std::collections::BTreeSet;
use std::error::Error;

use clock::Duration;
use steering::Claim;

use crate::Device;

/// The way between an interface and its devices: tells how many queues there are, learns what is claimed, and opens devices.
///
/// `control::PortSupervisor` follows the kernel's view of the interface (addresses, MTU, routes) and calls this. All calls come from one thread.
pub trait DataPath: Send {
    /// Receive queues in use; `None` while the interface is not there.
    fn queues(&self) -> Option<u16>;

    /// Octets of frames that hold packets of `mtu` octets; `None` if no frame is large enough.
    fn frame_size_for(&self, mtu: u32) -> Option<u16>;

    /// Gets ready to claim packets. None is claimed yet.
    fn attach(&mut self) -> Result<(), PathError>;

    /// Undoes [`DataPath::attach`]. The kernel receives all packets from now on.
    fn detach(&mut self);

    /// From now on exactly these packets are taken from the kernel.
    fn set_claims(&mut self, claims: &BTreeSet<Claim>) -> Result<(), PathError>;

    /// Devices are about to be opened again, within `max`, or are again, if that is zero. Claimed TCP is dropped meanwhile: the kernel would
    /// reset it.
    fn set_reopening(&mut self, max: Duration) -> Result<(), PathError>;

    /// Opens some queues as one device. `frame_size` is what [`DataPath::frame_size_for`] returned for the interface's MTU.
    fn open(&mut self, queues: &[u16], frame_size: Option<u16>) -> Result<Opened, PathError>;

    /// Packets by what became of them, each with its name; `None` while not attached.
    fn counters(&self) -> Option<Vec<(&'static str, u64)>>;
}

/// A device that a [`DataPath`] opened.
pub struct Opened {
    /// The device.
    pub device: Box<dyn Device>,
    /// How its packets come, for people: `native mode, copy`.
    pub mode: String,
}

/// Why a [`DataPath`] could not do something.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// A queue is in use: perhaps only for a moment, by a device that was dropped.
    #[error(transparent)]
    Busy(Box<dyn Error + Send + Sync>),
    /// Anything else.
    #[error(transparent)]
    Failed(Box<dyn Error + Send + Sync>),
}
