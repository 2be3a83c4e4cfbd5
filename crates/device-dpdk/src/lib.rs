//! Ports of DPDK as devices: NICs that DPDK drives without the kernel, and virtual ports such as memif.
//!
//! ```text
//!   port (EAL name) --> DpdkDevice, one for each queue --> Steered --claimed--> engine
//!                                                             |
//!                                                             +--else--> TAP interface --> kernel
//! ```
//!
//! [`open`] a port: the result is the [`DataPath`](device::DataPath) of its TAP interface: addresses, routes and ARP are the
//! kernel's there, as on any interface (crate `exception-path`). DPDK's environment (EAL) is started once in a process.
//!
//! **Frames are mbufs.** Each slot of a queue's pool is the memory of one mbuf, always the same (an mbuf pool over pinned external memory), so that
//! nothing is copied between DPDK and an engine. A slot that no [`Frame`](frame::Frame) holds is with DPDK.
//!
//! Without the Cargo feature `dpdk` this crate links nothing, and opening a port is an error that says so.
//!
//! # Where the unsafe is
//!
//! `ffi.rs` (the shim's functions) and `pool.rs`, `queue.rs`, `port.rs`, `eal.rs`, which call them.

#[cfg(feature = "dpdk")]
mod eal;
mod error;
#[cfg(feature = "dpdk")]
mod ffi;
mod name;
mod options;
#[cfg(feature = "dpdk")]
mod path;
#[cfg(feature = "dpdk")]
mod pool;
#[cfg(feature = "dpdk")]
mod port;
#[cfg(feature = "dpdk")]
mod queue;

pub use error::DpdkError;
pub use name::PortName;
pub use options::DpdkOptions;

/// Starts DPDK's environment and the port `name`, and makes its TAP interface, which gets the port's MAC address and MTU. The result is the
/// way to the packets of that interface: what the port receives waits there until devices are opened by it. It ends when it and all of its devices are dropped.
pub fn open(name: &PortName, options: &DpdkOptions) -> Result<Box<dyn device::DataPath>, DpdkError> {
    #[cfg(feature = "dpdk")]
    return Ok(Box::new(path::DpdkPath::open(name, options)?));
    #[cfg(not(feature = "dpdk"))]
    {
        let _ = (name, options);
        Err(DpdkError::NotBuilt)
    }
}
