//! Reports about a program, as values that are sent as JSON. Field names are those of ss(8) and of Linux's `tcp_info`;
//! times end in their unit.

mod labels;
mod name_server;
mod socket;
mod tcp;
mod trace;

use serde::{Deserialize, Serialize};

pub use labels::{labels_of, push_escaped, with_labels};
pub use name_server::NameServerReport;
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
    /// It has no stack, or did not answer in time: some or all of its sockets are missing.
    pub missing: Option<String>,
    /// TCP connections without those in TIME-WAIT.
    pub connections: u32,
    /// Incomplete handshakes.
    pub half_open: u32,
    /// Those in TIME-WAIT.
    pub time_wait: u32,
    /// Octets of buffers in use.
    pub buffer_memory: usize,
    /// Octets of buffers at most.
    pub buffer_memory_max: usize,
}

/// All counters of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountersReport {
    /// The program's own counters.
    pub own: Vec<Count>,
    /// The engines' counters.
    pub engines: Vec<EngineCounters>,
}

/// Counters of an engine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineCounters {
    /// The engine's own counters.
    pub engine: Vec<Count>,
    /// Its devices' counters.
    pub devices: Vec<DeviceCounters>,
    /// The sum of the counters of devices that were removed.
    #[serde(default)]
    pub devices_gone: Vec<Count>,
    /// Its stack's counters, by the names of SNMP and Linux; empty without a stack.
    pub stack: Vec<Count>,
}

/// Counters of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceCounters {
    /// Its number within the engine.
    pub device: u32,
    /// A description.
    pub description: String,
    /// Its counts.
    pub counters: Vec<Count>,
}

/// A zone of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneReport {
    /// Why what is served is not what its files and keys say, if that is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Its name.
    pub zone: String,
    /// Whether it is transferred from elsewhere.
    pub is_secondary: bool,
    /// Whether it is the catalog that the server makes of its zones.
    #[serde(default)]
    pub is_catalog: bool,
    /// Whether it comes from etcd.
    #[serde(default)]
    pub is_from_etcd: bool,
    /// What is served of it; without it, questions are answered with SERVFAIL.
    pub version: Option<ZoneVersion>,
}

/// What is served of a zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneVersion {
    /// Of its SOA record.
    pub serial: u32,
    /// Its records.
    pub records: usize,
    /// Its names.
    pub names: usize,
    /// Whether its apex has signatures.
    pub is_signed: bool,
    /// When the first of its signatures ends, in seconds since 1970.
    #[serde(default)]
    pub signed_until: Option<u64>,
    /// Whether it takes no updates until it is thawed.
    #[serde(default)]
    pub is_frozen: bool,
    /// When it came from a primary, or, since a restart, when a primary has confirmed it last: in seconds since 1970.
    #[serde(default)]
    pub last_transfer: Option<u64>,
    /// Of its addresses that are checked.
    #[serde(default)]
    pub health: Option<PoolHealth>,
}

/// How the addresses of a zone are that are checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolHealth {
    /// How many are checked, each as often as names have it.
    pub addresses: usize,
    /// How many of them are down.
    pub down: usize,
}

/// An interface of a capture: a device of an engine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceReport {
    /// Its number in packets.
    pub interface: u32,
    /// Whose it is.
    pub engine: usize,
    /// The network interface, or a name for what replaces it.
    pub name: String,
    /// A description.
    pub description: String,
}

/// The result of a capture at one engine: packets that matched the filter, and those of them that were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureReport {
    /// The engine's number within the program.
    pub engine: usize,
    /// Packets that matched the filter.
    pub passed: u64,
    /// Packets that were dropped because the capture was not read fast enough.
    pub dropped: u64,
}
