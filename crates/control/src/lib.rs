//! The kernel is the control plane; this is how the data plane follows it.
//!
//! - [`Mirror`]: links, addresses, neighbours and routes as the kernel last told them; pure.
//! - [`NetlinkMonitor`]: the socket that tells the mirror.
//! - [`route_to`], [`look_for_neighbour`]: questions that the mirror leaves to the kernel itself.
//! - [`sock_diag`]: the kernel's own sockets.
//! - [`PortSupervisor`]: keeps one interface attached and its claims right, whatever happens to the interface; what to do
//!   when is decided by the pure [`PortPlan`].
#![forbid(unsafe_code)]

pub mod mirror;
mod monitor;
mod neighbours;
mod plan;
mod query;
pub mod sock_diag;
mod supervisor;

pub use mirror::{Change, Link, Mirror, Neighbour};
pub use monitor::{MonitorError, NetlinkMonitor};
pub use neighbours::{NeighbourMove, NeighbourWatch};
pub use plan::{Action, PortPlan, PortView};
pub use query::{KernelRoute, look_for_neighbour, route_to};
pub use supervisor::{PortConfig, PortError, PortEvent, PortSupervisor};
