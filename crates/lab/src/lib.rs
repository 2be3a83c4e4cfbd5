//! The laboratory: two network namespaces, a veth pair between them, and real peers in them.
//!
//! Nothing else on the machine uses the wire of a [`Lab`]. Everything that belongs to it, processes included, is removed when it is
//! dropped, when the program gets SIGINT or SIGTERM, and at the latest when the next laboratory is made. Servers run on core 1,
//! generators on core 0.
//!
//! | file | what it does |
//! | --- | --- |
//! | `namespaces.rs` | [`Lab`]: the namespaces, the veth pair, addresses; a box in the middle of the wire |
//! | `child.rs` | [`Child`]: a process with its output |
//! | `registry.rs` | cleaning up, also on a signal and after a crash |
//! | `directory.rs` | [`Directory`]: a temporary directory |
//! | `zone.rs`, `message.rs` | zones and queries; they share no code with the servers that they test |
//! | `peers/` | [`Peer`]: NSD, Knot, Sidestep, started and ready |
//! | `programs/` | [`programs::Program`]: nginx, redis and many more, on the kernel or by `sidestep run` |
//! | `resolvers.rs` | [`ResolverMake`]: resolvers of six makes |
//! | `kxdpgun.rs` | [`Kxdpgun`]: the generator, and its report |
//! | `http.rs`, `wrk.rs` | [`HttpPeer`]: nginx and our example; [`Wrk`]: the load generator, and its report |
//! | `workload.rs` | [`Workload`]: the questions |
//! | `measure.rs` | [`Procedure`]: interleaved rounds and their medians |
//! | `cores.rs` | which cores are used, and their distance; [`by_place`] groups results by distance |
//! | `conditions.rs` | the conditions of a figure |
//! | `binary.rs` | where the `sidestep` binary and the examples are |
//! | `skip.rs` | [`require_root_and_xdp`]: tests that cannot run say so |
#![forbid(unsafe_code)]

mod binary;
mod certificate;
mod child;
mod conditions;
mod cores;
mod directory;
mod error;
mod http;
mod kxdpgun;
mod measure;
pub mod message;
mod namespaces;
mod peers;
mod ports;
pub mod programs;
mod registry;
mod resolvers;
mod skip;
mod workload;
mod wrk;
mod zone;

pub use binary::{example_binary, sidestep_binary, workspace_root};
pub use certificate::make_certificate;
pub use child::Child;
pub use conditions::{Conditions, VETH, markdown_table};
pub use cores::{
    Distance, Place, Placed, all_places, all_then_by_place, by_place, generator_core, in_one_place,
    server_core, stay_on,
};
pub use directory::Directory;
pub use error::LabError;
pub use gun::knee::{Knee, Limit, Rates, Verdict};
pub use http::{HttpPeer, HttpServer};
pub use kxdpgun::{Kxdpgun, Report};
pub use measure::{Outcome, Procedure, Round, median, outcomes, ratio_table};
pub use namespaces::{
    BOX_INTERFACES, CLIENT_INTERFACE, CLIENT_V4, CLIENT_V6, Lab, SERVER_INTERFACE, SERVER_V4, SERVER_V6, Side,
};
pub use peers::{Device, Peer, Server, Settings, Sidestep, start_nsd};
pub use ports::{quiet_port, quiet_ports, quiet_sockets};
pub use resolvers::{ResolverMake, ResolverSetting, RunningResolver};
pub use skip::{require_root_and_xdp, skip};
pub use workload::{QUESTIONS, Questions, Workload};
pub use wrk::{Wrk, WrkReport};
pub use zone::Zone;
