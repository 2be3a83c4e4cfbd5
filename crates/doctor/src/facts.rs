//! What is known of a machine, an interface and a program. Each fact may be unknown, for a reason.

use std::collections::BTreeMap;

use crate::{CoreList, FlowMatch};

/// A fact, or why it is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known<T> {
    /// It is so.
    Is(T),
    /// It is not known, because of this.
    Not(String),
}

impl<T> Known<T> {
    /// The fact, if it is known.
    pub fn get(&self) -> Option<&T> {
        match self {
            Known::Is(fact) => Some(fact),
            Known::Not(_) => None,
        }
    }
}

impl<T> Default for Known<T> {
    fn default() -> Known<T> {
        Known::Not("nobody has looked".to_owned())
    }
}

impl<T, E: std::fmt::Display> From<Result<T, E>> for Known<T> {
    fn from(outcome: Result<T, E>) -> Known<T> {
        match outcome {
            Ok(fact) => Known::Is(fact),
            Err(error) => Known::Not(error.to_string()),
        }
    }
}

/// What [`crate::examine`] judges.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The machine.
    pub machine: Option<Machine>,
    /// The interface.
    pub interface: Option<Interface>,
    /// The program.
    pub program: Option<Program>,
}

/// A machine.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// The kernel's release, such as `6.18.44`.
    pub kernel: Known<String>,
    /// Cores that are online.
    pub cores: Known<CoreList>,
    /// The cores of each NUMA node.
    pub nodes: Known<BTreeMap<u32, CoreList>>,
    /// The frequency governor of each core that has one.
    pub governors: Known<BTreeMap<u32, String>>,
    /// The kernel's word on each flaw of the processor.
    pub vulnerabilities: Known<BTreeMap<String, String>>,
    /// Thousandths of the processors' time since boot that the hypervisor gave to others.
    pub stolen: Known<u32>,
    /// Huge pages of the default size.
    pub huge_pages: Known<u64>,
    /// Their size in KiB.
    pub huge_page_size: Known<u64>,
    /// KiB of memory that are free, or can be made so without harm.
    pub available: Known<u64>,
    /// `net.core.bpf_jit_enable`.
    pub bpf_jit: Known<u32>,
    /// Whether a BPF file system is mounted at `/sys/fs/bpf`.
    pub bpf_files: Known<bool>,
    /// The effective capabilities of this process, as a mask.
    pub capabilities: Known<u64>,
    /// Descriptors that a process may have.
    pub files: Known<Limit>,
    /// Octets that a process may lock in memory.
    pub locked_memory: Known<Limit>,
    /// irqbalance(1).
    pub irqbalance: Known<Service>,
}

/// A limit of resources; `None` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// What holds now.
    pub soft: Option<u64>,
    /// What a process may raise it to.
    pub hard: Option<u64>,
}

/// A service of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// No process of it is there.
    Absent,
    /// systemd runs it, and can stop and start it.
    Unit,
    /// It runs, started by something else.
    Process,
}

/// An interface.
#[derive(Clone, Debug, Default)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Whether it is up.
    pub is_up: Known<bool>,
    /// Whether something is at the other end of its wire.
    pub has_carrier: Known<bool>,
    /// Octets of the largest packet.
    pub mtu: Known<u32>,
    /// Its driver.
    pub driver: Known<Driver>,
    /// What the driver says of XDP.
    pub xdp: Known<XdpFeatures>,
    /// It would hand a program down to the interfaces below it, so that Sidestep's runs in generic mode.
    pub hands_programs_down: bool,
    /// The XDP program on it.
    pub attached: Known<Option<Attached>>,
    /// What came of attaching a program; `None` if that was not asked for.
    pub probe: Option<Known<Probe>>,
    /// Queues that only receive.
    pub rx_queues: Known<Bounded>,
    /// Queues that only transmit.
    pub tx_queues: Known<Bounded>,
    /// Queues that do both.
    pub combined_queues: Known<Bounded>,
    /// Octets of packet memory that a server locks for each of its queues.
    pub queue_memory: Known<u64>,
    /// Descriptors of a receive queue.
    pub rx_ring: Known<Bounded>,
    /// Microseconds before an interrupt.
    pub rx_delay: Known<u32>,
    /// Whether the driver chooses that delay.
    pub adaptive_rx: Known<bool>,
    /// Offloads, by the names of ethtool(8).
    pub features: Known<BTreeMap<String, Feature>>,
    /// Receive-side scaling.
    pub rss: Known<Rss>,
    /// Rules of the NIC that steer a port to a queue.
    pub flow_rules: Known<Vec<(FlowMatch, u32)>>,
    /// All interrupts of its device, in order.
    pub interrupts: Known<Vec<Interrupt>>,
    /// The NUMA node of its device.
    pub node: Known<NodeOf>,
    /// `napi_defer_hard_irqs`.
    pub defer_hard_irqs: Known<u64>,
    /// `gro_flush_timeout`, nanoseconds.
    pub gro_flush_timeout: Known<u64>,
    /// Receive queues whose packets the kernel spreads over cores (RPS).
    pub steered_by_kernel: Known<CoreList>,
    /// VLAN interfaces above it.
    pub vlans: Known<usize>,
}

/// A driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driver {
    /// Its name.
    pub name: String,
    /// Where the device sits; empty for one that is no hardware.
    pub bus: String,
}

impl Driver {
    /// Where its device sits; `None` if it is no hardware. Some drivers have words for that.
    pub(crate) fn place(&self) -> Option<&str> {
        (!["", "N/A", "tap", "tun"].contains(&self.bus.as_str())).then_some(&self.bus)
    }
}

impl Interface {
    /// Queues that receive and transmit, those that AF_XDP serves.
    pub(crate) fn queue_pairs(&self) -> Option<u32> {
        let combined = self.combined_queues.get().map(|it| it.current);
        let single = self.rx_queues.get().zip(self.tx_queues.get());
        match (combined, single.map(|(rx, tx)| rx.current.min(tx.current))) {
            (None, None) => None,
            (combined, single) => Some(combined.unwrap_or(0) + single.unwrap_or(0)),
        }
    }

    /// It is one end of a pair whose ends depend on each other.
    pub(crate) fn is_veth(&self) -> bool {
        self.driver.get().is_some_and(|driver| driver.name == "veth")
    }

    /// The kernel takes an order to switch an offload on, and does not follow it: the program behind a tun or tap interface decides that, and for a macvlan
    /// the interface below it (seen with Linux 6.18).
    pub(crate) fn follows_another(&self) -> bool {
        self.driver.get().is_some_and(|driver| ["tun", "macvlan"].contains(&driver.name.as_str()))
    }

    /// No hardware is behind it.
    pub(crate) fn is_virtual(&self) -> bool {
        self.driver.get().is_some_and(|driver| driver.bus.is_empty())
    }
}

/// What a driver says that it can do of XDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpFeatures {
    /// It runs programs.
    pub basic: bool,
    /// It takes REDIRECT.
    pub redirect: bool,
    /// It has AF_XDP without a copy.
    pub zero_copy: bool,
}

/// An XDP program on an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// The program's number.
    pub id: u32,
    /// Whether the driver runs it.
    pub is_native: bool,
    /// Whether it is Sidestep's.
    pub is_ours: bool,
}

/// What came of attaching a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The driver took it.
    pub is_native: bool,
}

/// A number with the largest that is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounded {
    /// As it is.
    pub current: u32,
    /// At most.
    pub max: u32,
}

/// An offload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feature {
    /// It works now.
    pub is_on: bool,
    /// It can be changed.
    pub is_changeable: bool,
}

/// Receive-side scaling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rss {
    /// The queue of each share of the hash.
    pub table: Vec<u32>,
    /// The key of the hash.
    pub key: Vec<u8>,
}

/// An interrupt of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// Its number.
    pub number: u32,
    /// What its driver calls it; empty while nothing handles it.
    pub name: String,
    /// The cores that it may come to.
    pub allowed: CoreList,
    /// The cores that it does come to.
    pub effective: CoreList,
}

/// Where a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeOf {
    /// At this NUMA node.
    Node(u32),
    /// It is no hardware, or the machine does not say.
    Nowhere,
}

/// A program, as `sidestep run` sees it.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// As the user named it.
    pub name: String,
    /// Its file.
    pub path: Known<String>,
    /// The program that interprets it, if it is a script.
    pub interpreter: Option<String>,
    /// What prevents preloading a library into it.
    pub obstacle: Option<String>,
    /// How it passes the C library by, if it does.
    pub own_calls: Option<String>,
    /// The profile that it gets; otherwise why it runs on the kernel.
    pub profile: Known<String>,
    /// The library for it.
    pub library: Known<String>,
    /// Whether its file names libseccomp.
    pub names_seccomp: Known<bool>,
    /// Running processes of the same file.
    pub running: Vec<Process>,
}

/// A running process of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Whether it has a seccomp filter.
    pub is_confined: bool,
    /// Whether it runs under `sidestep run`.
    pub is_accelerated: bool,
}
