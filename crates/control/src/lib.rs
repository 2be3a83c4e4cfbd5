//! Follows the kernel's network configuration, which is the control plane of the data path.
//!
//! - [`Mirror`]: the kernel's links, addresses, neighbours and routes; pure.
//! - [`NetlinkMonitor`]: the socket that feeds the mirror.
//! - [`route_to`], [`look_for_neighbour`]: queries to the kernel for what the mirror does not decide.
//! - [`SourceWatch`]: from which addresses the kernel would take packets on an interface.
//! - [`ClampWatch`]: the largest TCP segments by the kernel's routes.
//! - [`sock_diag`]: the kernel's own sockets.
//! - [`PortSupervisor`]: keeps one interface attached and its claims right while the interface changes. The pure [`PortPlan`]
//!   decides what to do.
#![forbid(unsafe_code)]

mod clamps;
pub mod mirror;
mod monitor;
mod neighbours;
mod plan;
mod query;
pub mod sock_diag;
mod sources;
mod supervisor;

pub use clamps::{CLAMPS_MAX, ClampWatch, SegmentClamp};
pub use mirror::{Change, Link, Mirror, Neighbour};
pub use monitor::{MonitorError, NetlinkMonitor};
pub use neighbours::{NeighbourMove, NeighbourWatch};
pub use plan::{Action, PortPlan, PortView};
pub use query::{KernelRoute, bring_up, kernel_name, look_for_neighbour, neighbour, route_to};
pub use sources::{ReversePath, SourceChecks, SourceWatch, Sources};
pub use supervisor::{PortConfig, PortError, PortEvent, PortSupervisor};
