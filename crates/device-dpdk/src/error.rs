//! Errors of DPDK ports, and what the user can do about them.

use std::io;

use exception_path::TapError;

/// A port was not opened.
#[derive(Debug, thiserror::Error)]
pub enum DpdkError {
    /// Build with `--features dpdk`; libdpdk is needed.
    #[error(
        "this build has no DPDK; build it with `cargo build --release --package sidestep --features dpdk`"
    )]
    NotBuilt,
    /// EAL would take the text for something else.
    #[error(
        "{0:?} names no port; expected such as net_memif0,role=client,socket=/run/memif.sock or 0000:03:00.0"
    )]
    Name(String),
    /// EAL writes the reason to stderr: most often huge pages, privileges, or an argument that it does not know.
    #[error("DPDK's environment did not start with {arguments:?} ({source})")]
    Eal {
        /// What it was given.
        arguments: Vec<String>,
        /// Its answer.
        source: io::Error,
    },
    /// EAL starts once in a process: name all ports before.
    #[error("DPDK's environment runs already, without the port {0}")]
    StartedBefore(String),
    /// EAL found no such port. For a NIC: is it bound to vfio-pci (`dpdk-devbind.py --status`)?
    #[error("DPDK has no port {name}; there is {known}")]
    NoSuchPort {
        /// As given.
        name: String,
        /// The ports that there are, for people.
        known: String,
    },
    /// The port has fewer.
    #[error("port {name} has {max} queues, not {wanted}")]
    Queues {
        /// The port.
        name: String,
        /// Asked for.
        wanted: u16,
        /// There are.
        max: u16,
    },
    /// DPDK refused a step.
    #[error("port {name}: {operation}: {source}")]
    Port {
        /// The port.
        name: String,
        /// The step.
        operation: &'static str,
        /// DPDK's answer.
        source: io::Error,
    },
    /// There is no TAP interface.
    #[error(transparent)]
    Tap(#[from] TapError),
}
