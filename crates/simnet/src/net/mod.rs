//! A simulated network: two hosts, a path between them, applications, and an observer that knows the rules.
//!
//! Everything follows from a seed: there is no clock but the simulation's own and no chance but [`Random`]'s, so that what went
//! wrong once goes wrong again. Start at [`Simulation`]; [`Scenario`] makes one out of a seed. [`hostile`] is another way to
//! test: one stack, and somebody who lies to it.

mod application;
mod content;
mod goodput;
mod host;
pub mod hostile;
mod link;
mod observer;
mod our_host;
mod plans;
mod random;
mod scenario;
mod settings;
mod sight;
mod simulation;
mod smoltcp_host;
mod smoltcp_wire;
mod too_big;
mod traffic;
mod violation;
mod weather;

pub use application::{Application, Outcome, Plan, Step};
pub use content::Content;
pub use goodput::{Bottleneck, fairness, shares};
pub use host::{Host, Io, SocketNumber};
pub use link::{Faults, Link, LinkSettings, Passage};
pub use observer::Observer;
pub use our_host::{OurHost, OurSettings};
pub use random::Random;
pub use scenario::{Peers, Report, Scenario, Weather};
pub use sight::{Sight, describe};
pub use simulation::{Change, Place, Simulation};
pub use smoltcp_host::{SmoltcpHost, SmoltcpSettings};
pub use traffic::{Connection, Opening};
pub use violation::{Broken, Violation};
