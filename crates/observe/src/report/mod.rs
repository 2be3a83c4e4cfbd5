//! What is told about a program, as values that travel as JSON. Field names are those of ss(8) and of Linux's `tcp_info`;
//! times end in their unit.

mod socket;
mod tcp;
mod trace;

use serde::{Deserialize, Serialize};

pub use socket::SocketReport;
pub(crate) use socket::{connection_id, of_connection, of_listener, of_udp};
pub use tcp::TcpReport;
pub use trace::TraceReport;
pub(crate) use trace::of_record;
pub use trace::{SegmentReport, flag_letters};

/// A counter and its value.
pub type Count = (String, u64);

/// An engine, and what its stack holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineReport {
    /// Its number within the program.
    pub engine: usize,
    /// It has no stack, or did not answer in time: its sockets, or the rest of them, are missing.
    pub missing: Option<String>,
    /// TCP connections, TIME-WAIT aside.
    pub connections: u32,
    /// Those that peers have begun and not completed.
    pub half_open: u32,
    /// Those in TIME-WAIT.
    pub time_wait: u32,
    /// Octets of buffers in use.
    pub buffer_memory: usize,
    /// Octets of buffers that there may be.
    pub buffer_memory_max: usize,
}

/// All counters of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountersReport {
    /// What the program itself counts.
    pub own: Vec<Count>,
    /// What its engines count.
    pub engines: Vec<EngineCounters>,
}

/// Counters of an engine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineCounters {
    /// Of the engine itself.
    pub engine: Vec<Count>,
    /// Of its devices.
    pub devices: Vec<DeviceCounters>,
    /// Of those devices that it had and has no longer, together.
    #[serde(default)]
    pub devices_gone: Vec<Count>,
    /// Of its stack, by the names of SNMP and Linux; empty without one.
    pub stack: Vec<Count>,
}

/// Counters of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceCounters {
    /// Its number within the engine.
    pub device: u32,
    /// In words.
    pub description: String,
    /// Its counts.
    pub counters: Vec<Count>,
}

/// An interface of a capture: a device of an engine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceReport {
    /// What packets call it.
    pub interface: u32,
    /// Whose it is.
    pub engine: usize,
    /// The network interface, or what stands for it.
    pub name: String,
    /// In words.
    pub description: String,
}

/// What became of a capture at one engine: packets that passed the filter, and those of them that were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureReport {
    /// The engine's number within the program.
    pub engine: usize,
    /// They passed the filter.
    pub passed: u64,
    /// They found no room, because they were not read as fast as they came.
    pub dropped: u64,
}
