//! AF_XDP: packets of claimed flows, straight from the driver.
//!
//! ```text
//!   interface --> steering program --claimed--> socket of the receive queue --> XdpDevice
//!                        |
//!                        +--everything else--> kernel
//! ```
//!
//! [`SteeringProgram`] decides which packets leave the kernel; [`XdpDevice`] opens one AF_XDP socket per queue, all on
//! one umem, and is a [`Device`](::device::Device). Both belong to the network namespace that the thread was in when it made them.
//! When the process ends, the kernel detaches the program and serves the flows itself, unless the program is kept
//! ([`SteeringProgram::attach_kept`]) for another process to take over.
//!
//! Attaching and opening need privileges, serving needs none: one process may make a device by [`XdpDevice::lend`], and another
//! one take it over by [`XdpDevice::adopt`].
//!
//! [`AcceptQueueProgram`] has the kernel take a connection of another stack into the accept queue of one of its listeners.
//!
//! # Where the unsafe is
//!
//! `syscalls` (one function per system call), `ring` (entries of memory shared with the kernel), `umem` (slots that come
//! back from the kernel), `shared` (slots that several processes have, and the area that says which). These modules state their rules; the
//! rest of the crate is safe code.

mod accept_queue;
mod chain;
mod claim_key;
mod claims;
mod counters;
mod data_path;
mod device;
mod error;
mod flow_rules;
#[cfg(test)]
mod fuse;
mod kernel_flows;
mod lane;
mod lending;
mod loading;
mod netdev;
mod options;
mod owners;
mod packet_memory;
mod queue;
mod ring;
mod shared;
mod sharing;
mod sockets;
mod steering_program;
mod syscalls;
mod umem;
mod xsk;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use crate::accept_queue::{AcceptQueueProgram, AcceptQueueSlot, Agreements, Placed};
pub use crate::counters::SteeringCounters;
pub use crate::data_path::XdpPath;
pub use crate::device::XdpDevice;
pub use crate::error::XdpError;
pub use crate::flow_rules::{
    FlowRule, HashedFields, flow_rules, insert_flow_rule, remove_flow_rule, tcp_hashed_fields,
};
pub use crate::kernel_flows::Flow;
pub use crate::lending::{Lent, LentLayout, Spare, adopt};
pub use crate::netdev::{Driver, Inspection, PresentProgram, mode_for_streams, queue_pairs, queue_pairs_in};
pub use crate::options::{BusyPoll, XdpOptions};
pub use crate::owners::QueueOwner;
pub use crate::shared::{LeftPlaces, PLACES_MAX, SharedQueue};
pub use crate::steering_program::{KEPT_LAYOUT, SteeringOptions, SteeringProgram};

/// How packets come out of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct XdpMode {
    /// Where the steering program runs.
    pub attach: AttachMode,
    /// How packets get into the umem.
    pub copy: CopyMode,
}

/// Where the steering program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AttachMode {
    /// In the driver, before the kernel makes a packet buffer of its own.
    Native,
    /// In the network stack, after that: works with every driver, and costs more.
    Generic,
}

/// How packets get into the umem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CopyMode {
    /// The NIC writes there.
    ZeroCopy,
    /// The kernel copies.
    Copy,
}

impl fmt::Display for XdpMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let copy = match self.copy {
            CopyMode::ZeroCopy => "zero-copy",
            CopyMode::Copy => "copy",
        };
        write!(f, "AF_XDP {copy} mode, {}", self.attach)
    }
}

impl fmt::Display for AttachMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AttachMode::Native => "native",
            AttachMode::Generic => "generic",
        })
    }
}
